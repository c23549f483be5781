"""From the positioned lines of pages to Markdown: running lines, paragraphs, headings, tables.

Knows no PDF library: whatever reads a page hands its lines over in reading order, and the rules here apply to
all. Coordinates are points with y growing upwards, as in PDF user space.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from statistics import median

from rag_pipeline.documents import markdown_writer

# A line is running matter when it stands at the same height on so many pages, and on so large a share of
# the pages
# between (a header may hold the chapter's title; left and right pages may differ).
_RUNNING_PAGES = 3
_RUNNING_SHARE = 0.4
_RUNNING_HEIGHT_TOLERANCE = 3.0
# A header has few numbers, and short ones: page, pages, year, chapter.
_MAX_NUMBERS = 4
_MAX_DIGITS = 9
# Only the outermost lines of a page can be running matter.
_OUTER_LINES = 3

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
# The gap between two pieces of a line, in ems, that separates two cells.
_CELL_GAP_EMS = 0.9
# Cells of one column begin within so many points of each other, unless none has more characters than this.
_COLUMN_TOLERANCE = 3.0
_SHORT_CELL = 14
_CELL_MAX_LINES = 8
# Widths of characters in ems in common sans-serif type, for libraries that do not tell where a piece ends.
_NARROW = frozenset("iljtfrI.,:;'!|()[]/ -‘’·")
_WIDE = frozenset("mwMW@%—…")

_DIGITS = re.compile(r"\d+")
_BULLET = re.compile(r"(?:[•‣◦▪●○■□–\-*·]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+")
_BULLET_SIGN = re.compile(r"[•‣◦▪●○■□·]\s*")
_LINE_END_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad]$")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”’)\]]*$")
_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)+")


@dataclass(frozen=True)
class Piece:
    """A run of text in one font: where it starts and ends, its baseline, its size, the look of its font.

    `starts_cell` is set where it is known that a gap, not a space, stands before it.
    """

    text: str
    x: float
    x_end: float
    y: float
    size: float
    bold: bool = False
    monospace: bool = False
    starts_cell: bool = False


@dataclass(frozen=True)
class TextLine:
    """One line of a page: its pieces from left to right."""

    pieces: tuple[Piece, ...]

    @cached_property
    def text(self) -> str:
        """The line's words, single-spaced."""
        return markdown_writer.one_line("".join(piece.text for piece in self.pieces))

    @property
    def x(self) -> float:
        """Where the line starts."""
        return min(piece.x for piece in self.pieces)

    @property
    def x_end(self) -> float:
        """Where the line ends."""
        return max(piece.x_end for piece in self.pieces)

    @property
    def y(self) -> float:
        """The line's baseline."""
        return self.pieces[0].y

    @cached_property
    def size(self) -> float:
        """The font size of most of the line's characters, to half a point."""
        sizes: Counter[float] = Counter()
        for piece in self.pieces:
            sizes[round(piece.size * 2) / 2] += len(piece.text.strip())
        return sizes.most_common(1)[0][0]

    @property
    def bold(self) -> bool:
        """True where the whole line is bold."""
        return all(piece.bold for piece in self.pieces if piece.text.strip())

    @property
    def monospace(self) -> bool:
        """True where the whole line is set in a font of fixed width."""
        return all(piece.monospace for piece in self.pieces if piece.text.strip())

    @cached_property
    def cells(self) -> tuple[Piece, ...]:
        """The pieces with those that touch made one: the cells of a table row."""
        cells: list[Piece] = []
        for piece in sorted(
            (piece for piece in self.pieces if piece.text.strip()), key=lambda piece: piece.x
        ):
            touches = bool(cells) and piece.x - cells[-1].x_end < _CELL_GAP_EMS * piece.size
            if touches and not piece.starts_cell:
                last = cells[-1]
                cells[-1] = Piece(
                    last.text + " " + piece.text, last.x, piece.x_end, last.y, last.size, last.bold
                )
            else:
                cells.append(piece)
        return tuple(cells)


def estimated_width(text: str, size: float, *, monospace: bool) -> float:
    """Return about how wide `text` is when set in type of `size`, in the unit of `size`."""
    if monospace:
        return 0.6 * size * len(text)
    ems = 0.0
    for character in text:
        if character in _NARROW:
            ems += 0.29
        elif character in _WIDE:
            ems += 0.87
        elif character.isupper() or unicodedata.east_asian_width(character) in "WF":
            ems += 0.69
        else:
            ems += 0.54
    return ems * size


def fold_ligatures(text: str) -> str:
    """Return `text` with ligature characters (U+FB00 to U+FB17) taken apart; nothing else changes."""
    if text.isascii():
        return text
    return "".join(
        unicodedata.normalize("NFKC", character) if "\ufb00" <= character <= "\ufb17" else character
        for character in text
    )


def without_running_lines(pages: Sequence[Sequence[TextLine]]) -> list[list[TextLine]]:
    """Return the pages without headers, footers and page numbers.

    A line goes when it repeats at the same height among the outermost lines of at least `_RUNNING_PAGES` pages,
    and of `_RUNNING_SHARE` of those from the first of them to the last. Its words must be the same; its numbers
    must be the same too, or count up with the pages.
    """
    places: dict[tuple[object, ...], list[tuple[float, int, TextLine]]] = defaultdict(list)
    for number, lines in enumerate(pages):
        for line in _outer_lines(lines):
            for key in _repetition_keys(line, number):
                places[key].append((line.y, number, line))
    running: set[int] = set()
    for found in places.values():
        for group in _at_one_height(found):
            numbers = {number for _, number, _ in group}
            extent = max(numbers) - min(numbers) + 1
            if len(numbers) >= max(_RUNNING_PAGES, _RUNNING_SHARE * extent):
                running.update(id(line) for _, _, line in group)
    return [[line for line in lines if id(line) not in running] for lines in pages]


def _repetition_keys(line: TextLine, page: int) -> Iterator[tuple[object, ...]]:
    """Yield a key for each way in which the line may repeat: every number as it is, or relative to the page."""
    text = line.text.casefold()
    numbers = _DIGITS.findall(text)
    if len(numbers) > _MAX_NUMBERS or any(len(number) > _MAX_DIGITS for number in numbers):
        yield (text,)
        return
    ways = [(("=", int(number)), ("+", int(number) - page)) for number in numbers]
    for choice in product(*ways):
        yield (_DIGITS.sub("#", text), *choice)


def _at_one_height(
    found: list[tuple[float, int, TextLine]],
) -> Iterator[list[tuple[float, int, TextLine]]]:
    """Yield the entries in groups of about the same height."""
    group: list[tuple[float, int, TextLine]] = []
    for entry in sorted(found, key=lambda entry: entry[:2]):
        if group and entry[0] - group[0][0] > _RUNNING_HEIGHT_TOLERANCE:
            yield group
            group = []
        group.append(entry)
    yield group


def _outer_lines(lines: Sequence[TextLine]) -> list[TextLine]:
    by_height = sorted(lines, key=lambda line: -line.y)
    if len(by_height) <= 2 * _OUTER_LINES:
        return by_height
    return by_height[:_OUTER_LINES] + by_height[-_OUTER_LINES:]


@dataclass(frozen=True)
class Style:
    """What a document's type sizes mean: the size of running text and the level of each larger one."""

    body_size: float
    levels: dict[float, int]
    bold_level: int
    is_monospace: bool
    titles: tuple[TextLine, ...]

    def is_title(self, line: TextLine) -> bool:
        """Return True for a line of the document's title, by identity and not by its words."""
        return any(line is title for title in self.titles)

    def level_of(self, line: TextLine) -> int | None:
        """Return the heading level of a line, or None for running text."""
        if self.is_title(line):
            return 1
        if len(line.text) > _HEADING_MAX_CHARACTERS or not any(map(str.isalpha, line.text)):
            return None
        if line.monospace and not self.is_monospace:
            return None
        level = self.levels.get(line.size)
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


def style_of(pages: Sequence[Sequence[TextLine]]) -> Style:
    """Return the style of a document from the sizes of its lines.

    The size with most characters is that of running text; every clearly larger size is a heading level, the
    largest first. The largest size that recurs is that of the sections (level 2); what is larger is the title
    (level 1). Where title and sections share one size, the document's first heading is the title.
    """
    sizes: Counter[float] = Counter()
    monospace = 0
    for lines in pages:
        for line in lines:
            sizes[line.size] += len(line.text)
            monospace += len(line.text) if line.monospace else 0
    if not sizes:
        return Style(0.0, {}, 2, False, ())
    body = sizes.most_common(1)[0][0]
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
    return Style(body, levels, bold_level, monospace > 0.5 * sizes.total(), titles)


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


def blocks_of(lines: Sequence[TextLine], style: Style, compounds: frozenset[str]) -> list[PageBlock]:
    """Return the blocks of one page from its lines in reading order."""
    blocks: list[PageBlock] = []
    whole = _with_whole_lines(lines)
    for kind, group in _grouped(whole, style, _usual_leading(whole), compounds):
        if kind == "table":
            text = markdown_writer.table([row.cells for row in _table_at(group, 0, compounds)])
        elif kind == "code":
            text = markdown_writer.code_block(_code_of(group))
        elif kind == "heading":
            level = style.level_of(group[0]) or style.bold_level
            text = markdown_writer.heading(level, joined([line.text for line in group], compounds))
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


def continues(before: PageBlock, after: PageBlock) -> bool:
    """Return True where a paragraph runs on from the end of one page to the start of the next."""
    return (
        before.kind in ("paragraph", "list")
        and after.kind == "paragraph"
        and not _SENTENCE_END.search(before.text)
        and after.text[:1].islower()
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
        ):
            whole[-1] = TextLine((*before.pieces[:-1], _spaced(before.pieces[-1]), *_as_cell(line.pieces)))
        else:
            whole.append(line)
    return whole


def _as_cell(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return (replace(pieces[0], starts_cell=True), *pieces[1:])


def _spaced(piece: Piece) -> Piece:
    return replace(piece, text=piece.text + " ")


def _grouped(
    lines: Sequence[TextLine], style: Style, leading: dict[float, float], compounds: frozenset[str]
) -> Iterator[tuple[str, list[TextLine]]]:
    position = 0
    while position < len(lines):
        kind, length = _group_at(lines, position, style, leading, compounds)
        yield kind, list(lines[position : position + length])
        position += length


def _group_at(
    lines: Sequence[TextLine],
    start: int,
    style: Style,
    leading: dict[float, float],
    compounds: frozenset[str],
) -> tuple[str, int]:
    """Return the kind of the block that starts at line `start`, and how many lines it has."""
    rows = _table_at(lines, start, compounds)
    if rows:
        return "table", sum(row.length for row in rows)
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
    while (
        end < len(lines)
        and _same_paragraph(lines[start:end], lines[end], style, leading)
        and not _table_at(lines, end, compounds)
    ):
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
    if _BULLET.match(line.text):
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


@dataclass(frozen=True)
class _Row:
    """A table row: the text of its cells, where each starts, and how many lines it takes up."""

    cells: tuple[str, ...]
    starts: tuple[float, ...]
    length: int


def _table_at(lines: Sequence[TextLine], start: int, compounds: frozenset[str]) -> list[_Row]:
    """Return the rows of the table that starts at line `start`; none where it is no table.

    A table has two rows or more of the same number of cells, at least two, each column apart from the one
    before it, and the cells of a column begin at the same place, unless they are short (numbers).
    """
    rows: list[_Row] = []
    position = start
    while position < len(lines):
        row = _row_at(lines, position, compounds)
        if row is None or (rows and len(row.cells) != len(rows[0].cells)) or not _fits([*rows, row]):
            break
        rows.append(row)
        position += row.length
    return rows if len(rows) >= 2 else []


def _fits(rows: Sequence[_Row]) -> bool:
    columns = list(zip(*(row.starts for row in rows), strict=True))
    texts = zip(*(row.cells for row in rows), strict=True)
    apart = all(max(left) < min(right) for left, right in pairwise(columns))
    return apart and all(
        max(starts) - min(starts) <= _COLUMN_TOLERANCE or max(map(len, cells)) <= _SHORT_CELL
        for starts, cells in zip(columns, texts, strict=True)
    )


def _row_at(lines: Sequence[TextLine], start: int, compounds: frozenset[str]) -> _Row | None:
    """Return the table row that starts at line `start`, or None.

    Cells follow each other from left to right; a cell's own lines stand below each other at the same place.
    """
    cells: list[list[str]] = []
    starts: list[float] = []
    top = lines[start].y
    bottom = top
    position = start
    while position < len(lines):
        line = lines[position]
        size = max(line.size, 1.0)
        is_next_cell = not cells or (
            line.x > starts[-1] + size and bottom - 0.5 * size <= line.y <= top + size
        )
        if is_next_cell:
            for cell in line.cells:
                cells.append([markdown_writer.one_line(cell.text)])
                starts.append(cell.x)
        elif (
            len(line.cells) == 1
            and abs(line.x - starts[-1]) <= _COLUMN_TOLERANCE
            and len(cells[-1]) < _CELL_MAX_LINES
            and 0 < lines[position - 1].y - line.y < 1.5 * size
            and (len(cells) > 1 or _is_beside(lines, position, top, bottom))
        ):
            cells[-1].append(line.text)
        else:
            break
        bottom = min(bottom, line.y)
        position += 1
    if len(cells) < 2:
        return None
    return _Row(tuple(joined(cell, compounds) for cell in cells), tuple(starts), position - start)


def _is_beside(lines: Sequence[TextLine], position: int, top: float, bottom: float) -> bool:
    """Return True where a line to the right, and no lower, follows within the length of a cell."""
    for line in lines[position + 1 : position + _CELL_MAX_LINES]:
        if line.x > lines[position].x + line.size and line.y > lines[position].y - 1.0:
            return True
    return False


def _code_of(lines: Sequence[TextLine]) -> str:
    """Return lines of fixed-width type, indented by characters from the leftmost line."""
    left = min(line.x for line in lines)
    output = []
    for line in lines:
        raw = "".join(piece.text for piece in line.pieces).replace("\n", "").rstrip()
        indent = round((line.x - left) / (0.6 * line.size)) if line.size else 0
        output.append(" " * max(indent, 0) + raw)
    return "\n".join(output)
