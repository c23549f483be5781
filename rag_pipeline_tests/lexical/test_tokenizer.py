from __future__ import annotations

import unicodedata
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.lexical import TOKENIZERS, Tokenizer, get_tokenizer
from rag_pipeline.lexical.config import BM25Config

unicode_ = TOKENIZERS["unicode"]
reference = TOKENIZERS["reference"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("E-0042: Brake_pad isn't O.K.", ["e", "0042", "brake", "pad", "isn", "t", "o", "k"]),
        ("naïve 漢字 x1", ["na", "ve", "x1"]),
    ],
)
def test_reference_tokens(text: str, tokens: list[str]) -> None:
    assert reference(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("—…!", []),
        ("Größe STRASSE Straße", ["grösse", "strasse", "strasse"]),
        ("naïve nai\u0308ve", ["naïve", "naïve"]),  # composed and decomposed
        ("ﬁle ２０２４ ①", ["file", "2024", "1"]),  # ligature, full width, circled
        ("Ελλάδα ΣΊΣΥΦΟΣ Σίσυφος", ["ελλάδα", "σίσυφοσ", "σίσυφοσ"]),  # one sigma
        ("שלום עולם", ["שלום", "עולם"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),  # vowel signs are marks inside the word
        ("co\u00adoperate می\u200cخواهم", ["cooperate", "میخواهم"]),  # soft hyphen, non-joiner
        ("a\u200bb", ["a", "b"]),  # a zero-width space divides
        ("漢", ["漢"]),
        ("漢字", ["漢字"]),
        ("東京都庁", ["東京", "京都", "都庁"]),
        ("東京タワーは", ["東京", "京タ", "タワ", "ワー", "ーは"]),  # scripts mixed in one run
        ("ﾃﾞｰﾀ", ["デー", "ータ"]),  # half width
        ("한국어 문서", ["한국", "국어", "문서"]),
        ("人々〆切", ["人々", "々〆", "〆切"]),
        ("か\u309aき", ["か\u309aき"]),  # a mark that does not compose stays with its character
        ("iPhone手机15", ["iphone", "手机", "15"]),
        ("第3章。终", ["第", "3", "章", "终"]),
    ],
)
def test_unicode_tokens(text: str, tokens: list[str]) -> None:
    assert unicode_(text) == tokens


@given(st.text(alphabet=st.characters(max_codepoint=127)))
@settings(deadline=None, max_examples=300)
def test_unicode_equals_reference_on_ascii(text: str) -> None:
    assert unicode_(text) == reference(text)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
@settings(deadline=None, max_examples=300)
def test_ascii_words_are_the_same_beside_another_script(text: str) -> None:
    # Not only where the whole text is ASCII: a foreign word at its end changes nothing before it.
    assert unicode_(text + " ж") == [*reference(text), "ж"]


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=300)
def test_equivalent_spellings_have_the_same_tokens(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert unicode_(unicodedata.normalize(form, text)) == unicode_(text)


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=300)
def test_tokens_are_fixed_points(text: str) -> None:
    for token in unicode_(text):
        assert unicode_(token) == [token]


@given(st.text(alphabet="漢字かなカナー한국", min_size=2, max_size=20))
@settings(deadline=None, max_examples=100)
def test_every_pair_of_neighbours_is_a_bigram(run: str) -> None:
    assert unicode_(run) == [run[i : i + 2] for i in range(len(run) - 1)]


def test_the_registry() -> None:
    assert set(TOKENIZERS) == set(get_args(get_type_hints(BM25Config)["tokenizer"]))
    for name, tokenizer in TOKENIZERS.items():
        assert name == tokenizer.name
        assert tokenizer.version and tokenizer.description
    assert BM25Config().tokenizer == "unicode"


def test_get_tokenizer() -> None:
    own = Tokenizer("own", "1", "blanks", str.split)
    assert get_tokenizer("reference") is reference
    assert get_tokenizer(own) is own
    with pytest.raises(ValueError, match="tokenizer is 'stems'; known tokenizers are unicode, reference"):
        get_tokenizer("stems")
