"""The order in which the lines of a page are read.

The order of the content stream is nearly always the reading order, and geometry alone interleaves columns. So the
stream's order stays, unless its lines switch sides of a gutter again and again: then the page is cut by its white
space, columns before lines (recursive XY cut; Nagy and Seth, 1984). Small type at the foot of a column, which
interrupts the sentence that goes on in the next one, is moved to the page's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median

from rag_pipeline.documents.page_lines import TextLine

# A gutter is at least so wide (points), and this share of the lines beside it may cross it.
_GUTTER = 7.0
_CROSSING_SHARE = 0.25
# Lines that each side of a gutter must have, and how often (of what is possible) the stream must switch
# sides.
_SIDE_LINES = 4
_SWITCH_SHARE = 0.4
# Columns of text have long lines that fill them, columns of a table do not.
_PROSE_CHARACTERS = 22
_PROSE_FILL = 0.55
# Type this much smaller than the page's is that of notes.
_NOTE_SIZE = 0.92
_MAX_DEPTH = 6


def in_reading_order(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return the lines of a page, given in stream order, in the order in which they are read."""
    ordered: list[TextLine] = []
    for _, group in groupby(lines, key=lambda line: line.turn):
        same_turn = list(group)
        if _gutter(same_turn, interleaved=True) is not None:
            same_turn = _cut(same_turn, 0)
        ordered += same_turn
    return ordered


def by_columns(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return lines that have no order of their own (of OCR) by columns of text, in each from the top."""
    return _cut(list(lines), 0, prose=True)


def notes_last(lines: Sequence[TextLine]) -> tuple[list[TextLine], list[TextLine]]:
    """Return the lines without the notes at the feet of its columns, and those notes, in their order.

    A note is small type below everything else of its column, after which the text goes on in the next one or ends.
    """
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[line.size] += len(line.text)
    if not sizes:
        return list(lines), []
    body = sizes.most_common(1)[0][0]
    kept: list[TextLine] = []
    notes: list[TextLine] = []
    position = 0
    while position < len(lines):
        end = position
        while end < len(lines) and lines[end].size <= _NOTE_SIZE * body and lines[end].turn == lines[0].turn:
            end += 1
        run = lines[position:end]
        if run and _is_column_foot(run, lines, body, end):
            notes += run
        else:
            kept += run
        if end < len(lines):
            kept.append(lines[end])
        position = end + 1
    return kept, notes


def _is_column_foot(run: Sequence[TextLine], lines: Sequence[TextLine], body: float, end: int) -> bool:
    left, right = min(line.x for line in run), max(line.x_end for line in run)
    top = max(line.y for line in run)
    above = below = False
    for line in lines:
        if line.size <= _NOTE_SIZE * body or line.x >= right or line.x_end <= left:
            continue
        above = above or line.y > top
        below = below or line.y < top
    if below or not above:
        return False
    # Either the page is over, or the text goes on further up, in the next column.
    return end >= len(lines) or lines[end].y > top + body


def _gutter(lines: Sequence[TextLine], *, interleaved: bool = False, prose: bool = False) -> float | None:
    """Return the middle of the widest white strip that parts columns, or None.

    With `prose` the columns must be of running text; with `interleaved` also lines must switch sides again and again.
    """
    best: tuple[float, float] | None = None
    for left, right in _white_strips(lines):
        middle = (left + right) / 2
        on_left = [line for line in lines if line.x_end <= middle]
        on_right = [line for line in lines if line.x >= middle]
        if min(len(on_left), len(on_right)) < _SIDE_LINES:
            continue
        if len(lines) - len(on_left) - len(on_right) > _CROSSING_SHARE * len(lines):
            continue
        if (prose or interleaved) and not (_is_prose(on_left) and _is_prose(on_right)):
            continue
        if interleaved:
            sides = [line.x >= middle for line in lines if line.x_end <= middle or line.x >= middle]
            switches = sum(before != after for before, after in pairwise(sides))
            if switches < max(_SIDE_LINES, _SWITCH_SHARE * 2 * min(len(on_left), len(on_right))):
                continue
        if best is None or right - left > best[0]:
            best = (right - left, middle)
    return best[1] if best else None


def _white_strips(lines: Sequence[TextLine]) -> list[tuple[float, float]]:
    """Return the strips between lines that hardly any line crosses, from left to right."""
    left, right = min(line.x for line in lines), max(line.x_end for line in lines)
    if right - left < 10 * _GUTTER:
        return []
    width = int(right - left) + 2
    change = [0] * (width + 1)
    for line in lines:
        change[max(0, int(line.x - left))] += 1
        change[min(width, int(line.x_end - left) + 1)] -= 1
    allowed = max(0, int(0.5 * _CROSSING_SHARE * len(lines)))
    strips: list[tuple[float, float]] = []
    start: int | None = None
    cover = 0
    for position in range(width):
        cover += change[position]
        if cover <= allowed:
            start = position if start is None else start
        elif start is not None:
            if position - start >= _GUTTER and start > 0:
                strips.append((left + start, left + position))
            start = None
    return strips


def _is_prose(lines: Sequence[TextLine]) -> bool:
    widths = sorted(line.x_end - line.x for line in lines)
    return (
        median(len(line.text) for line in lines) >= _PROSE_CHARACTERS
        and median(widths) >= _PROSE_FILL * widths[int(0.9 * len(widths))]
    )


def _cut(lines: Sequence[TextLine], depth: int, *, prose: bool = False) -> list[TextLine]:
    """Return the lines by rows and columns: bands between lines that cross the gutter, in each its left side first."""
    if not lines:
        return []
    rows = _by_row(lines)
    is_cut = len(lines) >= 2 * _SIDE_LINES and depth < _MAX_DEPTH
    gutter = _gutter(lines, prose=prose) if is_cut else None
    if gutter is None:
        return rows
    ordered: list[TextLine] = []
    band: list[TextLine] = []

    def close() -> None:
        ordered.extend(_cut([line for line in band if line.x_end <= gutter], depth + 1, prose=prose))
        ordered.extend(_cut([line for line in band if line.x >= gutter], depth + 1, prose=prose))
        band.clear()

    for line in rows:
        if line.x < gutter < line.x_end:
            close()
            ordered.append(line)
        else:
            band.append(line)
    close()
    return ordered


def _by_row(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return the lines from the top, those of one row from left to right."""
    rows: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda line: -line.y):
        if rows and rows[-1][0].y - line.y <= 0.5 * min(line.size, rows[-1][0].size):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.x)]
