from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.markdown_structure import headings, iter_lines


def fenced(text: str) -> list[str]:
    return [text[line.start : line.end] for line in iter_lines(text) if line.in_fence]


def titles(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in headings(text)]


def test_headings_are_hashes_and_a_space_in_the_first_column() -> None:
    text = "# One\n##  Two  \n##NoSpace\n ## Indented\n####### seven\n###### Six\n##\ttab\n## \n"
    assert titles(text) == [(1, "One"), (2, "Two"), (6, "Six"), (2, "")]


def test_a_heading_knows_its_line() -> None:
    (heading,) = headings("intro\n## Part one\nrest")
    assert (heading.start, heading.end) == (6, 17)


@pytest.mark.parametrize(
    "text",
    [
        "```\n# code\n```\n",
        "~~~\n# code\n~~~\n",
        "   ```sh\n# code\n   ```\n",
        "````\n```\n# code\n```\n````\n",
        "```\n~~~\n# code\n```\n",
        "```\n# code\n``` not closing\n# more\n```\n",
        "```\n# code to the end",
        "```\n# code\n    ```\n# indented too far to close\n",
    ],
)
def test_a_hash_in_fenced_code_is_no_heading(text: str) -> None:
    assert titles(text) == []


def test_text_after_a_closed_fence_is_text_again() -> None:
    assert titles("```\n# code\n`````\n# Title\n") == [(1, "Title")]
    assert titles("```inline```\n# Title\n") == [(1, "Title")]
    assert titles("    ```\n# Title\n") == [(1, "Title")]


def test_fence_lines_count_as_in_the_fence() -> None:
    assert fenced("a\n```py\nx\n```\nb\n") == ["```py", "x", "```"]


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="#`~ ab\n", max_size=80))
def test_lines_cover_the_text_and_nothing_else(text: str) -> None:
    lines = list(iter_lines(text))
    assert [text[line.start : line.end] for line in lines] == text.removesuffix("\n").split("\n")[
        : len(lines)
    ]
    assert len(lines) == text.count("\n") + (not text.endswith("\n") and bool(text))
