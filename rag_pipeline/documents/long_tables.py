"""Tables of any length as Markdown, each row on a line of its own with its place in the file.

A chunker cuts between paragraphs, and a table of a thousand rows is one. So a long table is written in parts, set
apart by a blank line, each small enough for a chunk of the usual size. Every part opens with the table's header,
so that a number is found, and read, together with the name of its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.extraction import Segment
from rag_pipeline.documents.locators import Locator

# A part stays below the default `chunking.target` (512), so that no row is cut between two chunks.
PART_CHARACTERS = 500
# A header longer than this is not repeated: the parts would hold little else.
_MAX_REPEATED = PART_CHARACTERS // 3
# Rows with one cell above a table's header: its title, a unit, a date.
_MAX_CAPTIONS = 4
_NUMBER = re.compile(r"[-+(]?[\d\s.,:%€$£/]*\d[\d\s.,:%€$£/)-]*")


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells' texts and its place."""

    cells: Sequence[str]
    place: Locator


def table_segments(rows: Sequence[Row]) -> Iterator[Segment]:
    """Yield the table of `rows`, a segment a row, a blank line after each part.

    Cells are written on one line (line breaks become spaces) and columns without any text are left out. Rows at
    the top that have a single cell are captions and stand in a part of their own; the row below them is the
    header, and is repeated where it looks like one (`is_header`).
    """
    kept = [column for column in range(_width(rows)) if any(_cell(row, column) for row in rows)]
    rows = [Row([_cell(row, column) for column in kept], row.place) for row in rows]
    captions = 0
    while captions < min(_MAX_CAPTIONS, len(rows) - 2) and len(kept) > 1 and _filled(rows[captions]) == 1:
        captions += 1
    for number, row in enumerate(rows[:captions], 1):
        end = "\n\n" if number == captions else "\n"
        yield Segment(_line([cell for cell in row.cells if cell]).rstrip("\n") + end, row.place)
    body = rows[captions:]
    if not body:
        return
    header, *rest = body
    head = _line(header.cells)
    if rest:
        head += markdown_writer.table_rule(len(kept)) + "\n"
    repeated = head if is_header(header.cells) and len(head) <= _MAX_REPEATED else ""
    pending = Segment(head, header.place)
    size = len(head)
    for row in rest:
        line = _line(row.cells)
        if size + len(line) > PART_CHARACTERS and pending.text != head:
            yield Segment(pending.text + "\n", pending.locator)
            line = repeated + line
            size = 0
        else:
            yield pending
        pending = Segment(line, row.place)
        size += len(line)
    yield Segment(pending.text + "\n", pending.locator)


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a row names columns: two different names or more, hardly a gap, and no number."""
    names = [cell for cell in cells if cell]
    return (
        len(names) >= 2
        and len(names) >= 0.6 * len(cells)
        and len(set(names)) == len(names)
        and not any(_NUMBER.fullmatch(name) for name in names)
    )


def _width(rows: Sequence[Row]) -> int:
    return max((len(row.cells) for row in rows), default=0)


def _cell(row: Row, column: int) -> str:
    return row.cells[column].strip() if column < len(row.cells) else ""


def _filled(row: Row) -> int:
    return sum(bool(cell) for cell in row.cells)


def _line(cells: Sequence[str]) -> str:
    return markdown_writer.table_rows([cells], len(cells))[0] + "\n"
