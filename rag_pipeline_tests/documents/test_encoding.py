from __future__ import annotations

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import ExtractionFailure
from rag_pipeline.documents.states import FailureReason, WarningKind


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("Grüße".encode(), "utf-8"),
        (codecs.BOM_UTF8 + "Grüße".encode(), "utf-8"),
        ("Grüße".encode("utf-16"), "utf-16"),
        (codecs.BOM_UTF16_BE + "Grüße".encode("utf-16-be"), "utf-16"),
        ("Grüße".encode("utf-32"), "utf-32"),
        ("Grüße aus Köln".encode("utf-16-le"), "utf-16-le"),
        ("Grusse aus Koln".encode("utf-16-be"), "utf-16-be"),
    ],
)
def test_unicode_is_known_without_a_guess(data: bytes, encoding: str) -> None:
    decoded = decode(data)
    assert decoded.encoding == encoding
    assert decoded.text.startswith("Gr")
    assert "\ufeff" not in decoded.text
    assert decoded.warnings == ()


def test_a_declaration_comes_before_a_guess_and_after_valid_utf8() -> None:
    assert decode("Привет".encode("koi8-r"), "koi8-r").text == "Привет"
    assert decode("Привет".encode(), "koi8-r").text == "Привет"


def test_latin1_means_windows_1252() -> None:
    assert decode(b"\x93quoted\x94", "ISO-8859-1").text == "“quoted”"


@pytest.mark.parametrize("label", ["utf-8", "no-such-encoding", "rot13", "zip", ""])
def test_a_useless_declaration_is_passed_over(label: str) -> None:
    assert decode("Köln und Düsseldorf".encode("latin-1"), label).text == "Köln und Düsseldorf"


@pytest.mark.parametrize("text", ["können\n\näöüß\n", "Müller", "naïve café, “quoted” – 5 €"])
def test_short_western_text_is_read_as_windows_1252_with_a_warning(text: str) -> None:
    decoded = decode(text.encode("cp1252"))
    assert decoded.text == text
    assert [warning.kind for warning in decoded.warnings] == [WarningKind.ENCODING_GUESSED]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Каждый велосипед проверяется два раза в год, весной и осенью, в мастерской."),
        ("shift_jis", "自転車は年に二回、春と秋に工場で点検されます。とても大切な仕事です。"),
    ],
)
def test_other_encodings_are_guessed(encoding: str, text: str) -> None:
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert [warning.kind for warning in decoded.warnings] == [WarningKind.ENCODING_GUESSED]


def test_symbols_inside_words_speak_against_windows_1252() -> None:
    # Polish in windows-1250: its z with a dot is the byte of an inverted question mark in windows-1252.
    decoded = decode("ciężka praca, każda chwila".encode("cp1250"))
    assert decoded.encoding != "cp1252"
    assert [warning.kind for warning in decoded.warnings] == [WarningKind.ENCODING_GUESSED]


def test_bytes_that_do_not_fit_their_mark_are_replaced_and_reported() -> None:
    decoded = decode(codecs.BOM_UTF8 + b"ab\xffcd")
    assert decoded.text == "ab\ufffdcd"
    assert [warning.kind for warning in decoded.warnings] == [WarningKind.UNDECODABLE_BYTES]


@pytest.mark.parametrize("data", [bytes(range(32)) * 8, b"\x00" * 64])
def test_binary_data_is_no_text(data: bytes) -> None:
    with pytest.raises(ExtractionFailure, match=r"no text|not text") as caught:
        decode(data)
    assert caught.value.reason is FailureReason.WRONG_TYPE


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_a_named_failure(data: bytes) -> None:
    reasons = []
    try:
        decode(data)
    except ExtractionFailure as failure:
        reasons.append(failure.reason)
    assert reasons in ([], [FailureReason.WRONG_TYPE])


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_valid_utf8_is_never_read_as_anything_else(text: str) -> None:
    assert decode(text.encode()).text.removeprefix("\ufeff") == text.removeprefix("\ufeff")
