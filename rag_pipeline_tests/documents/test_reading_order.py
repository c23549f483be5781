from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents import reading_order
from rag_pipeline.documents.page_lines import TextLine
from rag_pipeline_tests.documents.page_fixtures import line

LEFT = [f"left column line {n} with some words" for n in range(8)]
RIGHT = [f"right column line {n} with some words" for n in range(8)]
THIRD = [f"third column line {n} with some words" for n in range(8)]


def at(texts: list[str], x: float, *, size: float = 10.0) -> list[TextLine]:
    return [line(text, 700 - 12 * n, x=x, size=size) for n, text in enumerate(texts)]


def woven(*columns: list[TextLine]) -> list[TextLine]:
    return [item for items in zip(*columns, strict=True) for item in items]


def texts(lines: list[TextLine]) -> list[str]:
    return [item.text for item in lines]


def test_the_order_of_the_stream_stays() -> None:
    lines = at(RIGHT, 320) + at(LEFT, 50)
    assert reading_order.in_reading_order(lines) == lines


def test_columns_that_are_painted_row_by_row_are_cut() -> None:
    assert texts(reading_order.in_reading_order(woven(at(LEFT, 50), at(RIGHT, 320)))) == LEFT + RIGHT


def test_three_columns_are_cut_and_lines_across_part_them() -> None:
    above = line(
        "A title that runs across all of the three columns of the page below it and on to the margin", 740
    )
    between = line(
        "Another that also runs across all of the three columns of the page below it and to the end", 590
    )
    first = woven(at(LEFT, 50), at(RIGHT, 250), at(THIRD, 450))
    second = [TextLine(tuple(_moved(p, -140) for p in item.pieces)) for item in first]
    found = texts(reading_order.in_reading_order([above, *first, between, *second]))
    assert found == [above.text, *LEFT, *RIGHT, *THIRD, between.text, *LEFT, *RIGHT, *THIRD]


def _moved(piece, by):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(piece, y=piece.y + by)


def test_a_table_is_not_cut() -> None:
    names = [f"Item {n}" for n in range(8)]
    prices = [f"{n}.50" for n in range(8)]
    lines = woven(at(names, 50), at(prices, 320))
    assert reading_order.in_reading_order(lines) == lines


def test_each_direction_of_writing_is_ordered_by_itself() -> None:
    turned = [TextLine(item.pieces, turn=1) for item in woven(at(LEFT, 50), at(RIGHT, 320))]
    upright = at(THIRD, 50)
    assert texts(reading_order.in_reading_order([*upright, *turned])) == THIRD + LEFT + RIGHT


def test_lines_without_an_order_are_read_by_columns() -> None:
    lines = sorted(woven(at(LEFT, 50), at(RIGHT, 320)), key=lambda item: item.text[::-1])
    assert texts(reading_order.by_columns(lines)) == LEFT + RIGHT


def test_cells_without_an_order_are_read_by_rows() -> None:
    names, prices = at(["Bolt", "Nut", "Washer", "Pin", "Cap"], 50), at(["1", "2", "3", "4", "5"], 320)
    found = texts(reading_order.by_columns([*prices, *names]))
    assert found == ["Bolt", "1", "Nut", "2", "Washer", "3", "Pin", "4", "Cap", "5"]


def test_notes_at_the_foot_of_a_column_are_taken_out() -> None:
    notes = [line("1 a note in small type", 600, size=7), line("of two lines", 592, size=7)]
    lines = [*at(LEFT, 50), *notes, *at(RIGHT, 320)]
    kept, found = reading_order.notes_last(lines)
    assert texts(kept) == LEFT + RIGHT
    assert found == notes


def test_small_type_between_lines_of_a_column_stays() -> None:
    lines = [
        *at(LEFT[:4], 50),
        line("caption in small type", 655, size=7),
        *[line(text, 640 - 12 * n) for n, text in enumerate(LEFT[4:])],
    ]
    kept, found = reading_order.notes_last(lines)
    assert (kept, found) == (lines, [])


def test_small_type_that_is_painted_last_but_stands_in_the_column_stays() -> None:
    lines = [*at(LEFT[:4], 50), line("caption", 655, size=7), *at(RIGHT, 320)]
    lines.insert(4, line("the last line of the left column", 600))
    assert reading_order.notes_last(lines) == (lines, [])


def test_a_page_in_small_type_has_no_notes() -> None:
    lines = at(LEFT, 50, size=7)
    assert reading_order.notes_last(lines) == (lines, [])
    assert reading_order.notes_last([]) == ([], [])


PLACES = st.tuples(st.integers(0, 500), st.integers(0, 800), st.sampled_from([6.0, 10.0, 14.0]))


@settings(deadline=None, max_examples=60)
@given(st.lists(PLACES, max_size=40))
def test_no_line_is_lost_or_doubled(places: list[tuple[int, int, float]]) -> None:
    lines = [
        line(f"line {n} of a text with words in it", y, x=x, size=size)
        for n, (x, y, size) in enumerate(places)
    ]
    expected = sorted(texts(lines))
    assert sorted(texts(reading_order.in_reading_order(lines))) == expected
    assert sorted(texts(reading_order.by_columns(lines))) == expected
    kept, notes = reading_order.notes_last(lines)
    assert sorted(texts(kept + notes)) == expected
