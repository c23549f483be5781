"""From the positioned lines of pages to Markdown: paragraphs, headings, lists, code, tables.

Knows no PDF library: whatever reads a page hands its lines over in reading order (`reading_order`), without what
repeats from page to page (`running_lines`). Coordinates are points with y growing upwards, as in PDF user space.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.page_lines import Piece, Ruling, TextLine
from rag_pipeline.documents.page_tables import find_tables

# A line this long is running text; its size counts where such lines have this share of all characters.
_PROSE_CHARACTERS = 45
_PROSE_SHARE = 0.2
_HEADING_GROWTH = 1.12
_HEADING_MAX_CHARACTERS = 200
# Of all lines in larger type, the share that one size must have to be a level of headings.
_LEVEL_SHARE = 0.03
# Sizes closer than this ratio are one level.
_SAME_LEVEL = 0.94
# Leading between the lines of one heading, in type sizes.
_HEADING_LEADING = 1.4
_BOLD_HEADING_MAX_CHARACTERS = 100
# Leading between the lines of one paragraph, against the usual one of the page.
_PARAGRAPH_LEADING = 1.35
_INDENT_EMS = 0.8

_BULLET = re.compile(r"(?:[•‣◦▪●○■□–\-*·]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+")
_BULLET_SIGN = re.compile(r"[•‣◦▪●○■□·]\s*")
_LINE_END_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad]$")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”’)\]]*$")
# The dots between an entry of a table of contents and its page.
_LEADERS = re.compile(r"(?:\.\s?){4,}\s*[\divxlc]+$")
_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)+")


@dataclass(frozen=True)
class Style:
    """What a document's type sizes mean: the size of running text and the level of each larger one."""

    body_size: float
    levels: dict[float, int]
    bold_level: int
    is_monospace: bool
    titles: tuple[TextLine, ...]
    outline: Mapping[str, int] = field(default_factory=dict)
    """Titles of the document's outline (see `outline_key`) with their heading level."""

    def is_title(self, line: TextLine) -> bool:
        """Return True for a line of the document's title, by identity and not by its words."""
        return any(line is title for title in self.titles)

    def level_of(self, line: TextLine) -> int | None:
        """Return the heading level of a line, or None for running text."""
        if self.is_title(line):
            return 1
        if len(line.text) > _HEADING_MAX_CHARACTERS or not any(map(str.isalpha, line.text)):
            return None
        if (line.monospace and not self.is_monospace) or _LEADERS.search(line.text):
            return None
        level = self.levels.get(line.size)
        if level is not None:
            return level
        if self.outline and line.size >= self.body_size:
            level = self.outline.get(outline_key(line.text))
            if level is not None:
                return level
        is_bold_heading = (
            line.bold
            and line.size >= self.body_size
            and len(line.text) <= _BOLD_HEADING_MAX_CHARACTERS
            and not _SENTENCE_END.search(line.text)
            and len(line.cells) == 1
        )
        return self.bold_level if is_bold_heading else None


def outline_key(text: str) -> str:
    """Return what identifies a title: its letters and digits, case folded."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text))).casefold()


def style_of(pages: Sequence[Sequence[TextLine]], outline: Mapping[str, int] | None = None) -> Style:
    """Return the style of a document from the sizes of its lines, and from its outline (title key -> depth from 0).

    The size with most characters is that of running text; every clearly larger size is a heading level, the
    largest first. The largest size that recurs is that of the sections (level 2); what is larger is the title
    (level 1). Where title and sections share one size, the document's first heading is the title.
    """
    sizes: Counter[float] = Counter()
    prose: Counter[float] = Counter()
    monospace = 0
    for lines in pages:
        for line in lines:
            sizes[line.size] += len(line.text)
            prose[line.size] += len(line.text) if len(line.text) >= _PROSE_CHARACTERS else 0
            monospace += len(line.text) if line.monospace else 0
    if not sizes:
        return Style(0.0, {}, 2, False, ())
    # Tables in small type may have more characters than the text around them.
    enough = prose.total() >= _PROSE_SHARE * sizes.total()
    body = (prose if enough else sizes).most_common(1)[0][0]
    groups: dict[float, list[TextLine]] = defaultdict(list)
    for lines in pages:
        previous: TextLine | None = None
        for line in lines:
            if line.size >= body * _HEADING_GROWTH and len(line.text) <= _HEADING_MAX_CHARACTERS:
                if previous is None or previous.size != line.size or not _is_next_line(previous, line):
                    groups[line.size].append(line)
                previous = line
            else:
                previous = None
    titles, levels = _levels(pages, groups)
    bold_level = min(max(levels.values(), default=1) + 1, 6)
    by_outline = {title: min(depth + 2, 6) for title, depth in (outline or {}).items()}
    return Style(body, levels, bold_level, monospace > 0.5 * sizes.total(), titles, by_outline)


def _levels(
    pages: Sequence[Sequence[TextLine]], groups: dict[float, list[TextLine]]
) -> tuple[tuple[TextLine, ...], dict[float, int]]:
    """Return the lines of the document's title, and the heading level of each size.

    A size too rare to be a level counts like the level above it; one larger than every level is a title
    on the
    first page with text, and no heading elsewhere (a drawing, a sample of type).
    """
    ordered = sorted(groups, reverse=True)
    needed = max(2.0, _LEVEL_SHARE * sum(map(len, groups.values())))
    recurring = [size for size in ordered if len(groups[size]) >= needed]
    if not recurring:
        return (), {size: min(rank, 6) for rank, size in enumerate(ordered, 1)}
    first_page = [line for line in next((lines for lines in pages if lines), []) if line.size in groups]
    titles = tuple(line for line in first_page if line.size > recurring[0])
    if not titles and first_page and first_page[0].size == recurring[0]:
        titles = (first_page[0],)
    levels: dict[float, int] = {}
    level, anchor = 1, math.inf
    for size in ordered:
        if size in recurring and size < anchor * _SAME_LEVEL:
            level, anchor = min(level + 1, 6), size
        if size <= recurring[0]:
            levels[size] = level
    return titles, levels


@dataclass(frozen=True)
class PageBlock:
    """A block of Markdown and its kind: heading, paragraph, list, code or table."""

    kind: str
    text: str


def hyphenated_words(pages: Sequence[Sequence[TextLine]]) -> frozenset[str]:
    """Return the words that a document writes with a hyphen inside a line, case folded."""
    return frozenset(
        word.casefold() for lines in pages for line in lines for word in _WORD.findall(line.text)
    )


def blocks_of(
    lines: Sequence[TextLine], style: Style, compounds: frozenset[str], rulings: Sequence[Ruling] = ()
) -> list[PageBlock]:
    """Return the blocks of one page from its lines in reading order and its drawn rules."""
    tables = find_tables(lines, rulings, lambda texts: joined(texts, compounds))
    in_table = frozenset(position for table in tables for position in table.lines)
    blocks: list[PageBlock] = []
    stretch: list[TextLine] = []
    starts = {table.first: table for table in tables}
    for position, line in enumerate(lines):
        if position in starts:
            blocks += _text_blocks(stretch, style, compounds)
            stretch = []
            text = markdown_writer.table(starts[position].rows)
            if text:
                blocks.append(PageBlock("table", text))
        if position not in in_table:
            stretch.append(line)
    return blocks + _text_blocks(stretch, style, compounds)


def _text_blocks(lines: Sequence[TextLine], style: Style, compounds: frozenset[str]) -> list[PageBlock]:
    blocks: list[PageBlock] = []
    whole = _with_whole_lines(lines)
    for kind, group in _grouped(whole, style, _usual_leading(whole)):
        if kind == "code":
            text = markdown_writer.code_block(_code_of(group))
        elif kind == "heading":
            level = style.level_of(group[0]) or style.bold_level
            title = joined([line.text for line in group], compounds)
            is_title = len(title) <= _HEADING_MAX_CHARACTERS
            kind = kind if is_title else "paragraph"
            text = markdown_writer.heading(level, title) if is_title else markdown_writer.paragraph(title)
        else:
            text = joined([line.text for line in group], compounds)
            if kind == "list":
                text = _BULLET_SIGN.sub("- ", text, count=1) if _BULLET_SIGN.match(text) else text
            text = markdown_writer.paragraph(text)
        if text:
            blocks.append(PageBlock(kind, text))
    return blocks


def joined(lines: Sequence[str], compounds: frozenset[str]) -> str:
    """Return the lines of one paragraph as running text: spaces between them, line-end hyphens undone.

    A hyphen stays where the document has the same word with one elsewhere, and before a capital or a digit.
    """
    text = ""
    for line in lines:
        text = join(text, line, compounds)
    return text.replace("\u00ad", "")


def join(text: str, line: str, compounds: frozenset[str]) -> str:
    """Return `text` continued by `line`, with the hyphen between them undone where it only broke a word."""
    if not text:
        return line
    if line and _has_no_word_spaces(text[-1]) and _has_no_word_spaces(line[0]):
        return text + line
    if not _LINE_END_HYPHEN.search(text):
        return f"{text} {line}"
    if text.endswith("\u00ad"):
        return text[:-1] + line
    if not line[:1].islower():
        return text + line
    first = re.search(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*[-\u2010]$", text)
    second = re.match(r"[^\W\d_]+", line)
    if first and second and (first[0] + second[0]).casefold() in compounds:
        return text + line
    return text[:-1] + line


def _has_no_word_spaces(character: str) -> bool:
    """True for characters of scripts that put no space between words: Chinese and Japanese, their signs included."""
    return (
        unicodedata.east_asian_width(character) in "WF"
        and not "\uac00" <= character <= "\ud7af"
        and unicodedata.category(character) != "So"
    )


def continues(before: PageBlock, after: PageBlock) -> bool:
    """Return True where a paragraph runs on from the end of one page to the start of the next."""
    return (
        before.kind in ("paragraph", "list")
        and after.kind == "paragraph"
        and not _SENTENCE_END.search(before.text)
        and after.text.split(maxsplit=1)[0].islower()
    )


def _usual_leading(lines: Sequence[TextLine]) -> dict[float, float]:
    """Return the median distance between neighbouring lines of one type size, by that size."""
    gaps: dict[float, list[float]] = defaultdict(list)
    for before, after in pairwise(lines):
        if before.size == after.size and 0 < before.y - after.y < 3 * before.size:
            gaps[before.size].append(before.y - after.y)
    return {size: median(distances) for size, distances in gaps.items()}


def _is_next_line(before: TextLine, after: TextLine) -> bool:
    """True where `after` stands directly below `before`."""
    return 0 < before.y - after.y < _HEADING_LEADING * max(before.size, after.size)


def _with_whole_lines(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return the lines with those joined that follow each other on one baseline, as the cells of a row do."""
    whole: list[TextLine] = []
    for line in lines:
        before = whole[-1] if whole else None
        if (
            before is not None
            and abs(before.y - line.y) < 0.2 * line.size
            and line.x >= before.pieces[-1].x + line.size
            and line.turn == before.turn
        ):
            whole[-1] = TextLine(
                (*before.pieces[:-1], _spaced(before.pieces[-1]), *_as_cell(line.pieces)), line.turn
            )
        else:
            whole.append(line)
    return whole


def _as_cell(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return (replace(pieces[0], starts_cell=True), *pieces[1:])


def _spaced(piece: Piece) -> Piece:
    return replace(piece, text=piece.text + " ")


def _grouped(
    lines: Sequence[TextLine], style: Style, leading: dict[float, float]
) -> Iterator[tuple[str, list[TextLine]]]:
    position = 0
    while position < len(lines):
        kind, length = _group_at(lines, position, style, leading)
        yield kind, list(lines[position : position + length])
        position += length


def _group_at(
    lines: Sequence[TextLine],
    start: int,
    style: Style,
    leading: dict[float, float],
) -> tuple[str, int]:
    """Return the kind of the block that starts at line `start`, and how many lines it has."""
    first = lines[start]
    end = start + 1
    if first.monospace and not style.is_monospace:
        while (
            end < len(lines)
            and lines[end].monospace
            and abs(lines[end - 1].y - lines[end].y) < 4 * first.size
        ):
            end += 1
        return "code", end - start
    level = style.level_of(first)
    if level is not None:
        while end < len(lines) and _same_heading(lines[end - 1], lines[end], style):
            end += 1
        return "heading", end - start
    while end < len(lines) and _same_paragraph(lines[start:end], lines[end], style, leading):
        end += 1
    return ("list" if _BULLET.match(first.text) else "paragraph"), end - start


def _same_heading(before: TextLine, after: TextLine, style: Style) -> bool:
    return (
        before.size == after.size
        and before.bold == after.bold
        and not style.is_title(after)
        and style.level_of(after) is not None
        and _is_next_line(before, after)
    )


def _same_paragraph(
    paragraph: Sequence[TextLine], line: TextLine, style: Style, leading: dict[float, float]
) -> bool:
    before = paragraph[-1]
    if style.level_of(line) is not None or (line.monospace and not style.is_monospace):
        return False
    if _BULLET.match(line.text) or _LEADERS.search(before.text):
        return False
    gap = before.y - line.y
    if gap <= 0:
        # Further up on the page: the next column. A sentence that is not over goes on there.
        return gap < -2 * line.size and not _SENTENCE_END.search(before.text)
    if abs(before.size - line.size) > 0.1 * max(before.size, line.size):
        return False
    usual = min(leading.get(line.size, math.inf), 1.6 * line.size)
    if gap > _PARAGRAPH_LEADING * usual:
        return False
    left = min(other.x for other in paragraph[1:]) if len(paragraph) > 1 else before.x
    indented = line.x - left > _INDENT_EMS * line.size
    return not (indented and _SENTENCE_END.search(before.text) and not _BULLET.match(paragraph[0].text))


def _code_of(lines: Sequence[TextLine]) -> str:
    """Return lines of fixed-width type, indented by characters from the leftmost line."""
    left = min(line.x for line in lines)
    output = []
    for line in lines:
        raw = "".join(piece.text for piece in line.pieces).replace("\n", "").rstrip()
        indent = round((line.x - left) / (0.6 * line.size)) if line.size else 0
        output.append(" " * max(indent, 0) + raw)
    return "\n".join(output)
