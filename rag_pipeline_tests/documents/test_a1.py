from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.a1 import CellRange, column_letters, column_number, parse_range, union


@pytest.mark.parametrize(
    ("number", "letters"), [(1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (16384, "XFD")]
)
def test_columns_are_named_as_spreadsheets_do(number: int, letters: str) -> None:
    assert column_letters(number) == letters
    assert column_number(letters) == number


@pytest.mark.parametrize("column", [0, -3])
def test_columns_count_from_one(column: int) -> None:
    with pytest.raises(ValueError, match="columns count from 1"):
        column_letters(column)


def test_ranges_are_read_with_and_without_dollars_and_from_any_corner() -> None:
    assert parse_range("B3") == CellRange(2, 3, 2, 3)
    assert parse_range("$A$1:$C$9") == CellRange(1, 1, 3, 9)
    assert parse_range("C9:A1") == CellRange(1, 1, 3, 9)


@pytest.mark.parametrize("reference", ["", "A", "3", "A0", "a1", "A1:", "Sheet!A1"])
def test_what_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(ValueError, match="no A1 reference"):
        parse_range(reference)


def test_union_is_the_smallest_rectangle() -> None:
    assert str(union([parse_range("B5"), parse_range("A7:A9")])) == "A5:B9"


cells = st.tuples(st.integers(1, 800), st.integers(1, 5000))


@settings(deadline=None, max_examples=50)
@given(cells, cells)
def test_a_range_survives_writing_and_reading(one: tuple[int, int], other: tuple[int, int]) -> None:
    both = union([CellRange(*one, *one), CellRange(*other, *other)])
    assert parse_range(str(both)) == both
