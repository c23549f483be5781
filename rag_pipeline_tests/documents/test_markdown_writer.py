from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.markdown_structure import headings, iter_lines
from rag_pipeline.documents.markdown_writer import code_block, heading, paragraph, table


@pytest.mark.parametrize(
    ("level", "text", "line"), [(2, " a\n b ", "## a b"), (9, "deep", "###### deep"), (1, " \xa0 ", "")]
)
def test_headings(level: int, text: str, line: str) -> None:
    assert heading(level, text) == line


def test_tables_are_rectangular_and_escape_their_bars() -> None:
    assert table([["a", "b"], ["1 | 2"]]) == "| a | b |\n| --- | --- |\n| 1 \\| 2 |  |"
    assert table([["", " "], [""]]) == ""
    assert table([]) == ""


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="#`~ a\n", max_size=40))
def test_running_text_never_holds_structure(text: str) -> None:
    written = paragraph(text)
    assert list(headings(written)) == []
    assert not any(line.in_fence for line in iter_lines(written))


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="#`~ a\n", max_size=40))
def test_code_never_ends_its_own_fence(code: str) -> None:
    written = code_block(code)
    assert list(headings(written + "\n# after\n" if written else "# after")) != []
    assert all(line.in_fence for line in iter_lines(written))
