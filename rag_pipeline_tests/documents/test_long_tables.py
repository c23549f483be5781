from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.long_tables import PART_CHARACTERS, Row, is_header, table_segments


def rows(*cells: list[str]) -> list[Row]:
    return [Row(row, Locator(row_first=number, row_last=number)) for number, row in enumerate(cells, 1)]


def written(*cells: list[str]) -> str:
    return "".join(segment.text for segment in table_segments(rows(*cells)))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["name", "docks"], True),
        (["", "May", "June"], True),
        (["name"], False),
        (["name", "name"], False),
        (["name", "12.5"], False),
        (["name", "3 %"], False),
        (["Total", "", "", "x"], False),
    ],
)
def test_headers_name_their_columns(cells: list[str], expected: bool) -> None:
    assert is_header(cells) is expected


def test_small_tables() -> None:
    assert written() == ""
    assert written(["only"]) == "| only |\n\n"
    assert written(["a", "", "b"], ["1", " ", "2"]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
    assert written(["Title", ""], ["a", "b"], ["1", "2"]) == (
        "| Title |\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n"
    )


def test_a_row_longer_than_a_part_stands_alone() -> None:
    long = "x" * (PART_CHARACTERS + 50)
    parts = written(["a", "b"], ["1", "2"], [long, "3"], ["4", "5"]).rstrip("\n").split("\n\n")
    assert [part.split("\n")[-1] for part in parts] == ["| 1 | 2 |", f"| {long} | 3 |", "| 4 | 5 |"]


def test_what_is_no_header_is_not_repeated() -> None:
    body = [[str(number), "word " * 20] for number in range(20)]
    text = written(["1999", "first " * 10], *body)
    assert text.count("1999") == 1
    assert text.count("---") == 2


def test_a_long_header_is_not_repeated() -> None:
    header = [f"column number {number}" for number in range(20)]
    text = written(header, *[[str(number)] * 20 for number in range(40)])
    assert text.count("column number 7") == 1


words = st.text(alphabet="ab 1|\n", max_size=30)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(words, min_size=1, max_size=5), max_size=60))
def test_rows_are_lines_in_order_and_parts_are_small(cells: list[list[str]]) -> None:
    table = rows(*cells)
    segments = list(table_segments(table))
    assert [s.locator.row_first for s in segments] == [row.place.row_first for row in table] or not any(
        cell.strip() for row in cells for cell in row
    )
    text = "".join(segment.text for segment in segments)
    for part in text.split("\n\n"):
        lines = [line for line in part.split("\n") if line]
        assert all(line.startswith("|") and line.endswith("|") for line in lines)
        assert len(part) <= PART_CHARACTERS + 3 * 200 or len(lines) <= 4
    # Nothing but white space and bars is lost or gained, headers apart.
    for row, segment in zip(table, segments, strict=False):
        for cell in row.cells:
            assert " ".join(cell.split()).replace("|", "\\|") in segment.text
