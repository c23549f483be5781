"""Text directives: the part of a link that makes a browser scroll to words (`#:~:text=first words,last
words`).

Source: WICG, URL Fragment Text Directives (Scroll to Text Fragment). A browser compares with the rendered
page, so Markdown marks are taken off; each term must lie within one block of the page, so it is taken from
one line.
"""

from __future__ import annotations

import re
import string
from urllib.parse import quote

from rag_pipeline.documents.markdown_structure import Line, iter_lines

_TERM_WORDS = 5
# A run without blanks (as Chinese is written) would be one endless word.
_TERM_CHARACTERS = 60
# What is read of a line at either end; more than two terms and their marks need, and a bound for the work.
_LINE_CHARACTERS = 1000

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_BLOCK_MARKS = re.compile(r"^\s*(?:>\s?)*\s*(?:#{1,6}\s+|(?:[-*+]|[0-9]{1,9}[.)])\s+(?:\[[ xX]\]\s+)?)?")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_TAG = re.compile(r"</?[A-Za-z][^>]*>")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3}|~~)(?=\S)(.+?)(?<=\S)\1(?![\w*])")
_INNER_STRONG = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_LITERAL = re.compile(r"(?<!`)(`+)(?!`)(?P<code>.+?)(?<!`)\1(?!`)|\\(?P<escaped>[!-/:-@\[-`{-~])")
# Marks in code and escaped marks are words: they wait in a private-use plane while the others are taken off.
_SHIELD = {ord(mark): 0xF0000 + ord(mark) for mark in string.punctuation}
_UNSHIELD = {shielded: mark for mark, shielded in _SHIELD.items()}


def text_directive(content: str) -> str:
    """Return `text=first words,last words` for a chunk's content, percent-encoded.

    Short content of one line is one term; content without a word gives ''.
    """
    lines = list(iter_lines(content))
    first = next((words for line in lines for words in _blocks(content, line, _head(line))), None)
    last = next(
        (words for line in reversed(lines) for words in _blocks(content, line, _tail(line))[::-1]), None
    )
    if first is None or last is None:
        return ""
    whole = " ".join(first)
    if first == last and len(first) <= 2 * _TERM_WORDS and len(whole) <= 2 * _TERM_CHARACTERS:
        return f"text={_encode(whole)}"
    start = " ".join(first[:_TERM_WORDS])[:_TERM_CHARACTERS]
    end = " ".join(last[-_TERM_WORDS:])[-_TERM_CHARACTERS:]
    return f"text={_encode(start.strip())},{_encode(end.strip())}"


def _head(line: Line) -> slice:
    return slice(line.start, min(line.end, line.start + _LINE_CHARACTERS))


def _tail(line: Line) -> slice:
    return slice(max(line.start, line.end - _LINE_CHARACTERS), line.end)


def _encode(term: str) -> str:
    # `quote` escapes the comma and the ampersand, which divide terms; the dash marks a prefix or suffix.
    return quote(term, safe="").replace("-", "%2D")


def _blocks(content: str, line: Line, part: slice) -> list[list[str]]:
    """Return the words of a part of a line as the rendered page has them, each table cell by itself."""
    raw = content[part]
    if line.in_fence:
        return [] if _FENCE.match(raw) or not raw.strip() else [raw.split()]
    inner = _BLOCK_MARKS.sub("", raw, count=1)
    # A chunk may begin or end inside a long table's row: one border at either end tells.
    is_row = content[_head(line)].lstrip(" >").startswith("|") or content[_tail(line)].rstrip().endswith("|")
    cells = [_plain(cell) for cell in (_CELL_BORDER.split(inner) if is_row else [inner])]
    # Rules of tables and between paragraphs have no letters.
    return [cell.split() for cell in cells if re.search(r"\w", cell)]


def _plain(text: str) -> str:
    text = _LITERAL.sub(lambda match: (match["code"] or match["escaped"]).translate(_SHIELD), text)
    text = _IMAGE.sub("", text)
    text = _LINK.sub(r"\1", text)
    text = _TAG.sub("", text)
    # Twice, since emphasis stands inside emphasis.
    for _ in range(2):
        text = _EMPHASIS.sub(r"\2", text)
        text = _INNER_STRONG.sub(r"\1", text)
    return text.translate(_UNSHIELD)
