from __future__ import annotations

import pytest

from rag_pipeline.documents import page_lines
from rag_pipeline.documents.page_lines import Piece, Ruling, TextLine
from rag_pipeline_tests.documents.page_fixtures import row


def test_ligatures_are_taken_apart_and_nothing_else_is_folded() -> None:
    assert page_lines.fold_ligatures("e\ufb03cient \ufb02ow, x² ½ Å") == "efficient flow, x² ½ Å"


def test_pieces_that_touch_are_one_cell() -> None:
    line = TextLine(
        (Piece("one", 50, 65, 700, 10), Piece("two", 67, 82, 700, 10), Piece("three", 120, 145, 700, 10))
    )
    assert [cell.text for cell in line.cells] == ["one two", "three"]
    assert [cell.text for cell in row(700, (50, "a"), (56, "b")).cells] == ["a b"]


def test_a_line_is_as_large_as_most_of_its_letters() -> None:
    line = TextLine((Piece("1", 50, 54, 703, 6.0), Piece("note", 54, 74, 700, 10.0)))
    assert (line.size, line.x, line.x_end, line.text) == (10.0, 50, 74, "1note")


@pytest.mark.parametrize(
    ("name", "bold", "monospace"),
    [("ABCDEF+Helvetica-Bold", True, False), ("Courier", False, True), ("Times-Roman", False, False)],
)
def test_the_look_of_a_font_is_in_its_name(name: str, bold: bool, monospace: bool) -> None:
    assert (page_lines.is_bold(name), page_lines.is_monospace(name)) == (bold, monospace)


def test_a_rule_is_level_or_upright() -> None:
    assert Ruling(0, 5, 100, 5).is_level
    assert not Ruling(5, 0, 5, 100).is_level
