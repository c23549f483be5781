from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.page_lines import Ruling, TextLine
from rag_pipeline.documents.page_tables import Table, find_tables
from rag_pipeline_tests.documents.page_fixtures import line, row


def tables(lines: list[TextLine], rulings: list[Ruling] | None = None) -> list[Table]:
    return find_tables(lines, rulings or [], " ".join)


def rows(lines: list[TextLine], rulings: list[Ruling] | None = None) -> list[tuple[str, ...]]:
    (table,) = tables(lines, rulings)
    return list(table.rows)


def grid(xs: list[float], ys: list[float]) -> list[Ruling]:
    return [Ruling(xs[0], y, xs[-1], y) for y in ys] + [Ruling(x, ys[0], x, ys[-1]) for x in xs]


def test_a_row_with_an_empty_cell_does_not_end_the_table() -> None:
    lines = [
        row(700, (50, "Part"), (150, "Torque"), (250, "Note")),
        row(688, (50, "Bolt"), (150, "9 Nm"), (250, "dry")),
        row(676, (50, "Nut"), (250, "greased")),
        row(664, (50, "Pin"), (150, "4 Nm"), (250, "dry")),
    ]
    assert rows(lines)[2] == ("Nut", "", "greased")


def test_a_table_may_start_with_an_empty_cell() -> None:
    lines = [
        row(700, (150, "2020"), (250, "2021")),
        row(688, (50, "Bolt"), (150, "9"), (250, "11")),
        row(676, (50, "Nut"), (150, "7"), (250, "8")),
    ]
    assert rows(lines) == [("", "2020", "2021"), ("Bolt", "9", "11"), ("Nut", "7", "8")]


def test_a_title_across_stands_in_its_own_row() -> None:
    lines = [
        row(700, (50, "Kind"), (150, "2020"), (250, "2021")),
        row(688, (50, "Bolt"), (150, "9"), (250, "11")),
        line("Scenario two", 676, x=140),
        row(664, (50, "Bolt"), (150, "19"), (250, "21")),
    ]
    assert rows(lines)[2:] == [("", "Scenario two", ""), ("Bolt", "19", "21")]


def test_a_header_of_several_lines_is_one_row() -> None:
    lines = [
        line("Region", 676),
        line("Share of", 700, x=150),
        line("all the", 688, x=150),
        line("riders", 676, x=150),
        line("Rate", 676, x=250),
        *(row(650 - 14 * n, (50, f"R{n}"), (150, f"{n}0"), (250, f"{n}1")) for n in range(4)),
    ]
    assert rows(lines)[:2] == [("Region", "Share of all the riders", "Rate"), ("R0", "00", "01")]


def test_figures_painted_column_by_column_are_rows() -> None:
    names = [line(f"Item {n}", 700 - 12 * n) for n in range(3)]
    first = [line(f"{n}1", 700 - 12 * n, x=200) for n in range(3)]
    second = [line(f"{n}2", 700 - 12 * n, x=300) for n in range(3)]
    assert rows(names + first + second) == [(f"Item {n}", f"{n}1", f"{n}2") for n in range(3)]


def test_two_boxes_of_text_beside_each_other_are_no_table() -> None:
    left = [line(f"left box, line {n}", 700 - 12 * n) for n in range(2)]
    right = [line(f"right box, line {n}", 700 - 12 * n, x=300) for n in range(2)]
    assert tables(left + right) == []


def test_wide_gaps_in_running_text_are_no_columns() -> None:
    lines = [
        row(700, (50, "prove our quarters."), (200, "Accordingly a part of the day has")),
        row(688, (50, "flying into the city from the river."), (290, "High into the")),
        row(676, (50, "went up."), (120, "The lighted fuse of each shell could be seen as")),
    ]
    assert tables(lines) == []


def test_items_with_marks_apart_are_a_list() -> None:
    lines = [row(700 - 12 * n, (50, f"{n + 1}."), (70, f"item {n} of the list")) for n in range(4)]
    assert tables(lines) == []


def test_one_row_is_no_table() -> None:
    assert tables([row(700, (50, "Left"), (300, "Right"))]) == []


def test_rules_tell_the_cells_of_a_table() -> None:
    lines = [
        line("Code", 690, x=55),
        line("Meaning", 690, x=155),
        line("E-1", 660, x=55),
        line("a long text that", 665, x=155),
        line("Takes two lines", 653, x=155),
        line("E-2", 630, x=55),
        line("short", 630, x=155),
    ]
    found = rows(lines, grid([50, 150, 300], [620, 645, 680, 705]))
    assert found == [("Code", "Meaning"), ("E-1", "a long text that Takes two lines"), ("E-2", "short")]


def test_a_cell_that_spans_columns_stands_in_the_first_of_them() -> None:
    rules = [
        *(Ruling(50, y, 350, y) for y in (640, 660, 680, 700)),
        *(Ruling(x, 640, x, 700) for x in (50, 350)),
        # The rules between columns leave the first row open.
        *(Ruling(x, 640, x, 680) for x in (150, 250)),
    ]
    lines = [
        line("All of it", 686, x=180),
        *(line(text, 666, x=x) for text, x in (("a", 60), ("b", 160), ("c", 260))),
        *(line(text, 646, x=x) for text, x in (("d", 60), ("e", 160), ("f", 260))),
    ]
    assert rows(lines, rules) == [("All of it", "", ""), ("a", "b", "c"), ("d", "e", "f")]


def test_figures_below_each_other_between_two_rules_are_rows() -> None:
    names = [line(f"Item {n}", 690 - 12 * n, x=60) for n in range(3)]
    figures = [line(f"{n},000", 690 - 12 * n, x=160) for n in range(3)]
    assert rows(names + figures, grid([50, 150, 250], [650, 705])) == [
        (f"Item {n}", f"{n},000") for n in range(3)
    ]


def test_a_frame_around_a_paragraph_is_no_table() -> None:
    lines = [line(f"line {n} of a framed text", 690 - 12 * n, x=60) for n in range(3)]
    assert tables(lines, grid([50, 300], [640, 705])) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), st.integers(2, 8), st.data())
def test_every_cell_comes_out_once_and_in_its_row(columns: int, count: int, data: st.DataObject) -> None:
    missing = data.draw(
        st.sets(st.tuples(st.integers(1, count - 1), st.integers(1, columns - 1)), max_size=2)
    )
    cells = {(r, c): f"{r}x{c}0" for r, c in product(range(count), range(columns)) if (r, c) not in missing}
    lines = [
        row(700 - 14 * r, *((50 + 80 * c, cells[r, c]) for c in range(columns) if (r, c) in cells))
        for r in range(count)
    ]
    found = tables(lines)
    written = [cell for table in found for item in table.rows for cell in item if cell]
    inside = {position for table in found for position in table.lines}
    expected = [text for (r, _), text in sorted(cells.items()) if r in inside]
    assert written == expected
