"""Tables on a page: cells that ruled lines enclose, or that stand in aligned columns, as rows of text.

Knows no PDF library. A cell is a run of text with a gap before it; lines come in reading order, which for a table
may be row by row or column by column.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.page_lines import CELL_GAP_EMS, Ruling, TextLine

# Rules whose ends are this close (points) touch each other.
_TOUCH = 3.0
# Cells of one row have baselines this close, in type sizes.
_SAME_ROW = 0.4
# The lines of a row stand so close in the order of reading: a cell has no more lines than this.
_ROW_REACH = 8
# Lines without a neighbour that may stand inside a table: a title across, the second line of a cell.
_LONE_LINES = 3
_LONE_REACH_EMS = 15
# Baselines of one cell are no further apart than this, in type sizes.
_LEADING = 1.4
# Share of the columns that a row of a table fills, usually.
_FILLED = 0.6
# Share of the cells beside the first column that must stand in line with those above or below.
_ALIGNED = 0.6
_SHORT_CELL = 20
# Cells longer than this on both sides of a gap are two columns of text.
_PROSE_CELL = 38
_MAX_COLUMNS = 60
_MAX_CROSSINGS = 250_000

_NUMERIC = re.compile(
    r"[\s$€£¥%(),.+\-–—−*†‡§/:\d]*\d[\s$€£¥%(),.+\-–—−*†‡§/:\d]*[a-z]?|[-–—.…*†‡]+|n/?a", re.IGNORECASE
)
_MARKER = re.compile(r"[•‣◦▪●○■□·*–\-]|\(?[\divxa-z]{1,4}[.)]", re.IGNORECASE)

Joiner = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Table:
    """A table: the lines it takes up, by their position on the page, and the text of its cells by row."""

    lines: frozenset[int]
    rows: tuple[tuple[str, ...], ...]

    @property
    def first(self) -> int:
        """The position of its first line."""
        return min(self.lines)


@dataclass(frozen=True)
class _Cell:
    text: str
    x: float
    x_end: float
    y: float
    size: float
    line: int

    @property
    def middle(self) -> float:
        return (self.x + self.x_end) / 2


def find_tables(lines: Sequence[TextLine], rulings: Sequence[Ruling], join: Joiner) -> list[Table]:
    """Return the tables among the lines of a page, which are in reading order.

    `join` makes one text of the lines of a cell. Tables in ruled grids first, then those of aligned columns.
    """
    cells = [
        _Cell(
            markdown_writer.one_line(piece.text), piece.x, piece.x_end, piece.y, max(piece.size, 1.0), index
        )
        for index, line in enumerate(lines)
        for piece in line.cells
    ]
    tables: list[Table] = []
    taken: set[int] = set()
    for grid in _grids(rulings):
        inside = [cell for cell in cells if grid.holds(cell) and cell.line not in taken]
        table = _grid_table(grid, inside, cells, join)
        if table is not None:
            tables.append(table)
            taken |= table.lines
    by_line: dict[int, list[_Cell]] = defaultdict(list)
    for cell in cells:
        if cell.line not in taken:
            by_line[cell.line].append(cell)
    for run in _runs(lines, by_line):
        table = _aligned_table(run, by_line, join)
        if table is not None:
            tables.append(table)
    return sorted(tables, key=lambda table: table.first)


# Ruled tables.


@dataclass(frozen=True)
class _Grid:
    """Rules that cross: where its columns and rows begin and end, and the rules themselves."""

    columns: tuple[float, ...]
    rows: tuple[float, ...]
    levels: tuple[Ruling, ...]
    uprights: tuple[Ruling, ...]

    def holds(self, cell: _Cell) -> bool:
        middle = cell.y + 0.3 * cell.size
        return (
            self.columns[0] - 1 <= cell.middle <= self.columns[-1] + 1
            and self.rows[0] - 1 <= middle <= self.rows[-1] + 1
        )

    def place(self, cell: _Cell) -> tuple[int, int]:
        """Return row (from the top) and column of a cell, those of the first where it spans several."""
        middle = cell.y + 0.3 * cell.size
        column = min(max(bisect_right(self.columns, cell.middle) - 1, 0), len(self.columns) - 2)
        row = min(max(bisect_right(self.rows, middle) - 1, 0), len(self.rows) - 2)
        while column > 0 and not self._is_parted(self.uprights, self.columns[column], middle):
            column -= 1
        last = len(self.rows) - 2
        while row < last and not self._is_parted(self.levels, self.rows[row + 1], cell.middle):
            row += 1
        return last - row, column

    @staticmethod
    def _is_parted(rules: Sequence[Ruling], at: float, across: float) -> bool:
        for rule in rules:
            place, start, end = (
                (rule.y, rule.x, rule.x_end) if rule.is_level else (rule.x, rule.y, rule.y_end)
            )
            if abs(place - at) <= _TOUCH and start - _TOUCH <= across <= end + _TOUCH:
                return True
        return False


def _grids(rulings: Sequence[Ruling]) -> list[_Grid]:
    """Return the grids of two columns or more that level and upright rules form together."""
    levels = _merged([rule for rule in rulings if rule.is_level])
    uprights = _merged([rule for rule in rulings if not rule.is_level])
    if len(levels) * len(uprights) > _MAX_CROSSINGS:  # a map or a drawing
        return []
    rules = levels + uprights
    parent = list(range(len(rules)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for i, level in enumerate(levels):
        for j, upright in enumerate(uprights, len(levels)):
            if (
                level.x - _TOUCH <= upright.x <= level.x_end + _TOUCH
                and upright.y - _TOUCH <= level.y <= upright.y_end + _TOUCH
            ):
                parent[root(i)] = root(j)
    groups: dict[int, list[Ruling]] = defaultdict(list)
    for index, rule in enumerate(rules):
        groups[root(index)].append(rule)
    grids = []
    for group in groups.values():
        across = tuple(rule for rule in group if rule.is_level)
        down = tuple(rule for rule in group if not rule.is_level)
        columns, rows = _distinct([rule.x for rule in down]), _distinct([rule.y for rule in across])
        if 3 <= len(columns) <= _MAX_COLUMNS and len(rows) >= 2:
            grids.append(_Grid(columns, rows, across, down))
    return grids


def _merged(rules: Sequence[Ruling]) -> list[Ruling]:
    """Return rules of one direction with those that continue each other made one."""
    merged: list[Ruling] = []
    by_place = sorted(rules, key=lambda rule: (round(rule.y if rule.is_level else rule.x), rule.x, rule.y))
    for rule in by_place:
        last = merged[-1] if merged else None
        if last is None or last.is_level != rule.is_level:
            merged.append(rule)
        elif rule.is_level and abs(last.y - rule.y) <= 1.5 and rule.x <= last.x_end + _TOUCH:
            merged[-1] = Ruling(last.x, last.y, max(last.x_end, rule.x_end), last.y)
        elif not rule.is_level and abs(last.x - rule.x) <= 1.5 and rule.y <= last.y_end + _TOUCH:
            merged[-1] = Ruling(last.x, last.y, last.x, max(last.y_end, rule.y_end))
        else:
            merged.append(rule)
    return merged


def _distinct(values: Sequence[float]) -> tuple[float, ...]:
    places: list[float] = []
    for value in sorted(values):
        if not places or value - places[-1] > _TOUCH:
            places.append(value)
    return tuple(places)


def _grid_table(grid: _Grid, inside: Sequence[_Cell], cells: Sequence[_Cell], join: Joiner) -> Table | None:
    if len({cell.line for cell in inside}) < 2:
        return None
    inner = {id(cell) for cell in inside}
    lines = {cell.line for cell in inside}
    if any(cell.line in lines and id(cell) not in inner for cell in cells):
        # A line that goes on outside the frame: the rules are of a drawing, not of a table.
        return None
    bands: dict[int, dict[int, list[_Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in inside:
        row, column = grid.place(cell)
        bands[row][column].append(cell)
    if len({column for band in bands.values() for column in band}) < 2:
        return None
    count = len(grid.columns) - 1
    rows: list[tuple[str, ...]] = []
    for _, band in sorted(bands.items()):
        rows += _rows_of_band(band, count, join)
    if len(rows) < 2 and count < 3:
        return None
    used = [column for column in range(count) if any(row[column] for row in rows)]
    return Table(frozenset(lines), tuple(tuple(row[column] for column in used) for row in rows))


def _rows_of_band(band: dict[int, list[_Cell]], count: int, join: Joiner) -> list[tuple[str, ...]]:
    """Return the rows between two rules: one, unless figures stand below each other in it."""
    stacked = [
        column
        for column, cells in band.items()
        if len(_by_baseline(cells)) > 1 and all(_NUMERIC.fullmatch(cell.text) for cell in cells)
    ]
    if not stacked:
        return [tuple(join(_texts(band.get(column, ()))) for column in range(count))]
    rows = _text_rows(band, count)
    return [tuple(join(cell) for cell in row) for row in rows]


def _text_rows(band: dict[int, list[_Cell]], count: int) -> list[list[list[str]]]:
    everything = [cell for cells in band.values() for cell in cells]
    column_of = {id(cell): column for column, cells in band.items() for cell in cells}
    rows = []
    for group in _by_baseline(everything):
        row: list[list[str]] = [[] for _ in range(count)]
        for cell in group:
            row[column_of[id(cell)]].append(cell.text)
        rows.append(row)
    return rows


def _texts(cells: Sequence[_Cell]) -> list[str]:
    """Return the lines of one cell from top to bottom, pieces of one line together."""
    return [" ".join(cell.text for cell in group) for group in _by_baseline(cells)]


def _by_baseline(cells: Sequence[_Cell]) -> list[list[_Cell]]:
    """Return the cells in rows from the top, each from left to right."""
    rows: list[list[_Cell]] = []
    for cell in sorted(cells, key=lambda cell: (-cell.y, cell.x)):
        if rows and abs(rows[-1][0].y - cell.y) <= _SAME_ROW * max(cell.size, rows[-1][0].size):
            rows[-1].append(cell)
        else:
            rows.append([cell])
    return [sorted(row, key=lambda cell: cell.x) for row in rows]


# Tables without rules.


def _runs(lines: Sequence[TextLine], by_line: dict[int, list[_Cell]]) -> list[list[int]]:
    """Return stretches of lines in which most have a neighbour in their row."""
    has_neighbour = {index: _has_neighbour(index, lines, by_line) for index in by_line}
    runs: list[list[int]] = []
    position = 0
    while position < len(lines):
        if not has_neighbour.get(position):
            position += 1
            continue
        run = [position]
        extent = _Extent.of(lines[position])
        following = position + 1
        while following < len(lines):
            step = _next_of_run(extent, following, lines, has_neighbour)
            if not step:
                break
            for index in range(following, step):
                extent = extent.with_line(lines[index])
            run += range(following, step)
            following = step
        if len(run) > 1 or len(by_line[position]) > 1:
            runs.append(run)
        position = run[-1] + 1
    return runs


@dataclass(frozen=True)
class _Extent:
    """The place that the lines of a run take up, and their direction."""

    left: float
    right: float
    top: float
    bottom: float
    turn: int

    @classmethod
    def of(cls, line: TextLine) -> _Extent:
        return cls(line.x, line.x_end, line.y, line.y, line.turn)

    def with_line(self, line: TextLine) -> _Extent:
        return _Extent(
            min(self.left, line.x),
            max(self.right, line.x_end),
            max(self.top, line.y),
            min(self.bottom, line.y),
            self.turn,
        )


def _next_of_run(
    run: _Extent, position: int, lines: Sequence[TextLine], has_neighbour: dict[int, bool]
) -> int:
    """Return the position after the lines that go on with the run from `position`, 0 where it ends."""
    for ahead in range(position, min(position + _LONE_LINES + 1, len(lines))):
        line = lines[ahead]
        size = max(line.size, 1.0)
        if ahead not in has_neighbour or line.turn != run.turn:
            return 0
        if line.y > run.top + _LEADING * _ROW_REACH * size or run.bottom - line.y > 5 * size:
            return 0
        if has_neighbour[ahead]:
            return ahead + 1
        if line.x < run.left - 2 * size or line.x_end > run.right + _LONE_REACH_EMS * size:
            return 0
    return 0


def _has_neighbour(index: int, lines: Sequence[TextLine], by_line: dict[int, list[_Cell]]) -> bool:
    line = lines[index]
    if line.monospace:
        return False
    if len(by_line[index]) > 1:
        return True
    size = max(line.size, 1.0)
    for other in range(max(0, index - _ROW_REACH), min(len(lines), index + _ROW_REACH + 1)):
        if other == index or other not in by_line or lines[other].turn != line.turn:
            continue
        beside = lines[other]
        gap = max(beside.x - line.x_end, line.x - beside.x_end)
        if abs(beside.y - line.y) <= _SAME_ROW * size and gap >= 0.5 * CELL_GAP_EMS * size:
            return True
    return False


def _aligned_table(run: Sequence[int], by_line: dict[int, list[_Cell]], join: Joiner) -> Table | None:
    cells = [cell for index in run for cell in by_line[index]]
    rows = _by_baseline(cells)
    while rows and len(rows[-1]) < 2:
        # What stands alone below the last row is text again, unless it is the rest of a cell.
        last = rows[-1][0]
        if len(rows) > 1 and _continues_cell(last, rows[-2]):
            break
        rows.pop()
    while rows and len(rows[0]) < 2 and not (len(rows) > 1 and _is_tight(rows[0], rows[1])):
        rows.pop(0)
    columns = _columns(rows)
    if _is_by_column(cells, rows) and not _has_figures(rows):
        return None
    if not 2 <= len(columns) <= _MAX_COLUMNS or sum(len(row) >= 2 for row in rows) < 2:
        return None
    table = [_placed(row, columns) for row in rows]
    filled = [sum(map(bool, row)) for row in table]
    if sum(count >= 2 for count in filled) < max(2, 0.4 * len(table)):
        return None
    if _is_prose(table) or _is_list(table) or not _is_aligned(rows, columns):
        return None
    merged = _with_whole_cells(rows, table)
    if sum(sum(map(bool, row)) >= 2 for row in merged) < 2:
        return None
    kept = frozenset(cell.line for row in rows for cell in row)
    return Table(kept, tuple(tuple(join(cell) for cell in row) for row in merged))


def _is_by_column(cells: Sequence[_Cell], rows: Sequence[Sequence[_Cell]]) -> bool:
    """True where the reading order goes down one column after the other: boxes of text beside each other, mostly."""
    row_of = {id(cell): number for number, row in enumerate(rows) for cell in row}
    order = [row_of[id(cell)] for cell in cells if id(cell) in row_of]
    upward = [(before, after) for before, after in pairwise(order) if after < before]
    return bool(upward) and all(before >= len(rows) - 2 and after <= 1 for before, after in upward)


def _has_figures(rows: Sequence[Sequence[_Cell]]) -> bool:
    beside = [cell for row in rows for cell in row[1:]]
    return sum(1 for cell in beside if _NUMERIC.fullmatch(cell.text)) > 0.5 * len(beside)


def _continues_cell(cell: _Cell, row: Sequence[_Cell]) -> bool:
    return row[0].y - cell.y <= _LEADING * cell.size and any(
        abs(above.x - cell.x) <= _TOUCH for above in row[1:]
    )


def _is_tight(upper: Sequence[_Cell], lower: Sequence[_Cell]) -> bool:
    size = min(upper[0].size, lower[0].size)
    return upper[0].y - lower[0].y <= _LEADING * size and not (
        len(lower) > 1
        and upper[0].x < min(cell.x for cell in lower) + _TOUCH
        and upper[0].x_end > lower[-1].x
    )


def _columns(rows: Sequence[Sequence[_Cell]]) -> list[tuple[float, float]]:
    """Return the extents of the columns: of cells above each other, the rows with most cells first."""
    columns: list[tuple[float, float]] = []
    usual = sorted((row for row in rows if len(row) >= 2), key=len, reverse=True)
    for row in usual:
        for cell in row:
            touched = [index for index, (x, x_end) in enumerate(columns) if cell.x < x_end and cell.x_end > x]
            if not touched:
                columns.append((cell.x, cell.x_end))
            elif len(touched) == 1:
                x, x_end = columns[touched[0]]
                columns[touched[0]] = (min(x, cell.x), max(x_end, cell.x_end))
    return sorted(columns)


def _placed(row: Sequence[_Cell], columns: Sequence[tuple[float, float]]) -> list[list[str]]:
    placed: list[list[str]] = [[] for _ in columns]
    for cell in row:
        overlaps = [min(cell.x_end, x_end) - max(cell.x, x) for x, x_end in columns]
        touched = [index for index, overlap in enumerate(overlaps) if overlap > 0]
        column = touched[0] if touched else overlaps.index(max(overlaps))
        placed[column].append(cell.text)
    return placed


def _is_prose(table: Sequence[Sequence[Sequence[str]]]) -> bool:
    """True for columns of running text that stand beside each other."""
    lengths = [[len(" ".join(cell)) for cell in column if cell] for column in zip(*table, strict=True)]
    return len(table) > 3 and sum(median(column) > _PROSE_CELL for column in lengths if column) >= 2


def _is_list(table: Sequence[Sequence[Sequence[str]]]) -> bool:
    """True for items whose marks stand apart from their text."""
    first = [" ".join(row[0]) for row in table if row[0]]
    return len(table[0]) == 2 and all(_MARKER.fullmatch(mark) for mark in first)


def _is_aligned(rows: Sequence[Sequence[_Cell]], columns: Sequence[tuple[float, float]]) -> bool:
    """True where cells below each other begin, end or are centred at one place, as wide gaps in text are not."""
    by_column: dict[int, list[_Cell]] = defaultdict(list)
    for row in rows:
        for cell in row if len(row) > 1 else ():
            touched = [n for n, (x, x_end) in enumerate(columns) if cell.x < x_end and cell.x_end > x]
            if len(touched) == 1 and touched[0]:
                by_column[touched[0]].append(cell)
    total = aligned = 0
    for cells in by_column.values():
        total += len(cells)
        # Lines of text end at one margin whatever stands in them: only short cells are set by their end or
        # middle.
        places = [[cell.x for cell in cells]]
        if median(len(cell.text) for cell in cells) <= _SHORT_CELL:
            places += [[cell.x_end for cell in cells], [cell.middle for cell in cells]]
        aligned += max(_largest_group(place, 0.6 * cells[0].size) for place in places)
    return total > 0 and aligned >= _ALIGNED * total


def _largest_group(values: Sequence[float], reach: float) -> int:
    ordered = sorted(values)
    return max(bisect_right(ordered, value + reach) - n for n, value in enumerate(ordered))


def _with_whole_cells(rows: Sequence[Sequence[_Cell]], table: list[list[list[str]]]) -> list[list[list[str]]]:
    """Return the rows of the table with the lines of one cell put together."""
    count = len(table[0])
    gaps = [upper[0].y - lower[0].y for upper, lower in pairwise(rows)]
    starts = [index for index in range(1, len(table)) if table[index][0]]
    usual = median([gaps[index - 1] for index in starts]) if starts else 0.0
    # A header that fills several lines stands on the line of its first cell.
    head = next((n for n, row in enumerate(table) if row[0]), 0)
    is_head = (
        head > 0
        and sum(map(bool, table[head])) >= _FILLED * count
        and all(gaps[n] <= _LEADING * rows[n][0].size and not _has_number(table[n]) for n in range(head))
    )
    merged: list[list[list[str]]] = []
    for number, row in enumerate(table):
        gap = gaps[number - 1] if number else 0.0
        tight = number > 0 and gap <= _LEADING * rows[number][0].size
        if is_head and 0 < number <= head:
            joins = True
        elif not tight or not merged or (is_head and number == head + 1):
            joins = False
        elif not row[0]:
            joins = (
                not any(_NUMERIC.fullmatch(" ".join(cell)) for cell in row if cell)
                and all(merged[-1][column] for column, cell in enumerate(row) if cell)
                and (gap < 0.85 * usual or any(_goes_on(cell) for cell in row if cell))
            )
        else:
            alone = sum(map(bool, row)) == 1
            label_before = sum(map(bool, merged[-1])) == 1 and bool(merged[-1][0])
            joins = _goes_on(row[0]) and (alone or label_before)
        if joins:
            for column, cell in enumerate(row):
                merged[-1][column] = merged[-1][column] + ([" ".join(cell)] if cell else [])
        else:
            merged.append([[" ".join(cell)] if cell else [] for cell in row])
    return merged


def _has_number(row: Sequence[Sequence[str]]) -> bool:
    return any(_NUMERIC.fullmatch(" ".join(cell)) for cell in row if cell)


def _goes_on(cell: Sequence[str]) -> bool:
    return bool(cell) and cell[0][:1].islower()
