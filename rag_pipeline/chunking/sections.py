"""Sections of a canonical text: what stands under each `## ` heading, and the preamble before the first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rag_pipeline.documents.markdown_structure import Heading, headings

_TITLE_LEVEL = 1
_SECTION_LEVEL = 2


@dataclass(frozen=True)
class Section:
    """A section's trimmed title and its body `canonical[start:end]`, without heading lines.

    `opened_at` is where its heading line starts (`start` where there is none): blind cuts count a heading
    line to the section that it opens.
    """

    title: str
    start: int
    end: int
    opened_at: int


def sections(text: str) -> list[Section]:
    """Return the sections of a canonical text in order (SPEC 3.4, rules 1 and 6).

    The preamble, and a text without any `## ` line, has the title ''. The line of the document's own `# `
    title (the first level-1 heading of the preamble) is no content: where words stand on both sides of it,
    the preamble is two sections, so that no slice of either holds the title line. A blank preamble gives no
    section; a heading with nothing under it gives an empty one. A `## ` inside a fenced code block is code.
    """
    opening: list[Heading] = []
    title_line: Heading | None = None
    for heading in headings(text):
        if heading.level == _SECTION_LEVEL:
            opening.append(heading)
        elif heading.level == _TITLE_LEVEL and not opening and title_line is None:
            title_line = heading

    preamble_end = opening[0].start if opening else len(text)
    found = [
        Section("", start, end, opened_at=start)
        for start, end in _preamble_bodies(title_line, preamble_end)
        if text[start:end].strip()
    ]
    ends = [heading.start for heading in opening[1:]] + [len(text)]
    for heading, end in zip(opening, ends, strict=False):
        # A heading on the last line without a newline has its empty body at the end of the text.
        found.append(Section(heading.title, min(heading.end + 1, end), end, opened_at=heading.start))
    return found


def title_at(found: Sequence[Section], offset: int) -> str:
    """Return the title of that one of a text's `sections` which holds `offset`, by `opened_at`."""
    position = bisect_right(found, offset, key=lambda section: section.opened_at) - 1
    return found[position].title if position >= 0 else ""


def _preamble_bodies(title_line: Heading | None, end: int) -> list[tuple[int, int]]:
    if title_line is None:
        return [(0, end)]
    return [(0, title_line.start), (min(title_line.end + 1, end), end)]
