"""A1 references of spreadsheet cells: `B3`, `A1:C9`, with or without `$`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_REFERENCE = re.compile(r"\$?([A-Z]+)\$?([1-9][0-9]*)(?::\$?([A-Z]+)\$?([1-9][0-9]*))?")


class CellRange(NamedTuple):
    """A rectangle of cells, columns and rows from 1, both ends inclusive."""

    first_column: int
    first_row: int
    last_column: int
    last_row: int

    def __str__(self) -> str:
        first = f"{column_letters(self.first_column)}{self.first_row}"
        last = f"{column_letters(self.last_column)}{self.last_row}"
        return first if first == last else f"{first}:{last}"


def column_letters(column: int) -> str:
    """Return the letters of a column counted from 1: 1 -> A, 26 -> Z, 27 -> AA."""
    if column < 1:
        raise ValueError(f"columns count from 1, not {column}")
    letters = ""
    while column:
        column, remainder = divmod(column - 1, 26)
        letters = chr(ord("A") + remainder) + letters
    return letters


def column_number(letters: str) -> int:
    """Return the number, from 1, of a column named by capital letters: A -> 1, AA -> 27."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def parse_range(reference: str) -> CellRange:
    """Return the rectangle that an A1 reference names; ValueError for anything else."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ValueError(f"{reference!r} is no A1 reference such as B3 or A1:C9")
    column, row, last_column, last_row = match.groups()
    columns = sorted((column_number(column), column_number(last_column or column)))
    rows = sorted((int(row), int(last_row or row)))
    return CellRange(columns[0], rows[0], columns[1], rows[1])


def union(ranges: Iterable[CellRange]) -> CellRange:
    """Return the smallest rectangle that holds all of `ranges`; ValueError when there is none."""
    columns, rows, last_columns, last_rows = zip(*ranges, strict=True)
    return CellRange(min(columns), min(rows), max(last_columns), max(last_rows))
