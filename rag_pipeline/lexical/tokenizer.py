"""Tokenizers: text -> the tokens that BM25 counts. Declared objects in a registry."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import regex

_REFERENCE_RUN = re.compile(r"[a-z0-9]+")

# Characters that are written without blanks between words. By script extensions, so that the marks which the
# scripts share (the prolonged sound mark, the iteration marks) stay inside their run; a mark belongs to its
# character.
_CJK = r"[[\p{scx=Hani}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}]&&[\p{L}\p{N}]]"
_CJK_CHARACTER = regex.compile(rf"{_CJK}\p{{M}}*", regex.V1)
_RUN = regex.compile(rf"(?P<cjk>(?:{_CJK}\p{{M}}*)+)|[[\p{{L}}\p{{M}}\p{{N}}]--{_CJK}]+", regex.V1)
# Soft hyphens, joiners, variation selectors: part of no word's spelling. A zero-width space does divide
# words.
_IGNORABLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}--\u200b]+", regex.V1)


@dataclass(frozen=True)
class Tokenizer:
    """A named rule from text to tokens; calling it returns the tokens of a text in order, repeats included.

    `version` is raised with every change that gives other tokens for the same text: an index and its queries
    must be cut by the same rule.
    """

    name: str
    version: str
    description: str
    tokens: Callable[[str], list[str]]

    def __call__(self, text: str) -> list[str]:
        """Return the tokens of `text` in order."""
        return self.tokens(text)


def reference_tokens(text: str) -> list[str]:
    """Return the runs of `[a-z0-9]` of the lower-cased text; every other script is lost."""
    return _REFERENCE_RUN.findall(text.lower())


def unicode_tokens(text: str) -> list[str]:
    """Return the folded runs of letters, marks and numbers; Chinese, Japanese and Korean ones as bigrams.

    Folding is NFKC_Casefold (Unicode Standard, section 3.13, D146), except that a zero-width space still
    divides words. A run of Han, Hiragana, Katakana and Hangul gives its overlapping pairs of characters, or
    the character where it has one; any other run is one token. Equal to `reference_tokens` on ASCII text.
    """
    if text.isascii():
        return _REFERENCE_RUN.findall(text.lower())
    tokens: list[str] = []
    for match in _RUN.finditer(_fold(text)):
        if match["cjk"] is None:
            tokens.append(match[0])
        else:
            tokens.extend(_bigrams(match[0]))
    return tokens


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    # What folding changed and removal brought together may compose.
    return unicodedata.normalize("NFKC", _IGNORABLE.sub("", folded))


def _bigrams(run: str) -> list[str]:
    characters: list[str] = _CJK_CHARACTER.findall(run)
    if len(characters) == 1:
        return characters
    return [first + second for first, second in pairwise(characters)]


TOKENIZERS: dict[str, Tokenizer] = {
    tokenizer.name: tokenizer
    for tokenizer in (
        Tokenizer(
            "unicode",
            "1",
            "runs of letters, marks and numbers of every script, CJK in bigrams",
            unicode_tokens,
        ),
        Tokenizer("reference", "1", "lower-cased runs of a-z and 0-9", reference_tokens),
    )
}


def get_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    """Return the tokenizer of that name (a `Tokenizer` as it is); `ValueError` lists the known names."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    found = TOKENIZERS.get(tokenizer)
    if found is None:
        raise ValueError(f"tokenizer is {tokenizer!r}; known tokenizers are {', '.join(TOKENIZERS)}")
    return found
