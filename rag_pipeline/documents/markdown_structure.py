"""The structure of Markdown text that offsets depend on: lines, fenced code, ATX headings.

Fences follow CommonMark 0.31.2, section 4.5: three or more backticks or tildes, indented by at most three
spaces; closed by a fence of the same character that is at least as long and has nothing after it; an unclosed
fence runs to the end of the text. The info string of a backtick fence holds no backtick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>[^\n]*)")
_HEADING = re.compile(r"(?P<marks>#{1,6}) (?P<title>[^\n]*)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line `text[start:end]` without its newline. Fence lines themselves count as in the fence."""

    start: int
    end: int
    in_fence: bool


@dataclass(frozen=True, slots=True)
class Heading:
    """An ATX heading line `text[start:end]` (no newline): level 1 to 6 and its trimmed title."""

    level: int
    title: str
    start: int
    end: int


def iter_lines(text: str) -> Iterator[Line]:
    """Yield every line of `text` in order; the characters after the last newline are a line unless there
    are none.

    Only the line feed ends a line, as canonical text has no other line end.
    """
    fence = ""
    start = 0
    length = len(text)
    while start < length:
        end = text.find("\n", start)
        if end < 0:
            end = length
        match = _FENCE.match(text, start, end)
        in_fence = bool(fence)
        if fence:
            if match and _closes(match, fence):
                fence = ""
        elif match and not (match["fence"][0] == "`" and "`" in match["rest"]):
            fence = match["fence"]
            in_fence = True
        yield Line(start, end, in_fence)
        start = end + 1


def _closes(match: re.Match[str], fence: str) -> bool:
    mark = match["fence"]
    return mark[0] == fence[0] and len(mark) >= len(fence) and not match["rest"].strip(" \t")


def headings(text: str) -> Iterator[Heading]:
    """Yield every ATX heading of `text` that starts in the first column and stands outside fenced code.

    A heading is one to six hashes and a space, so `##Title` is none. The title may be empty.
    """
    for line in iter_lines(text):
        if not line.in_fence and text.startswith("#", line.start):
            match = _HEADING.match(text, line.start, line.end)
            if match:
                yield Heading(len(match["marks"]), match["title"].strip(), line.start, line.end)
