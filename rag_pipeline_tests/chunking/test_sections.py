from __future__ import annotations

import pytest
from hypothesis import given, settings

from rag_pipeline.chunking import Section, sections
from rag_pipeline_tests.chunking.documents import Built, built_documents


def bodies(text: str) -> list[tuple[str, str]]:
    return [(section.title, text[section.start : section.end]) for section in sections(text)]


def test_sections_by_hand() -> None:
    assert sections("# T\nintro\n## A\none\n## B\n") == [
        Section("", 4, 10, opened_at=4),
        Section("A", 15, 19, opened_at=10),
        Section("B", 24, 24, opened_at=19),
    ]
    assert sections("## A") == [Section("A", 4, 4, opened_at=0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n \n", []),
        ("words", [("", "words")]),
        ("# T", []),
        ("# T\nwords", [("", "words")]),
        ("a\n# T\nb", [("", "a\n"), ("", "b")]),
        ("a\n## S\n# T\nb", [("", "a\n"), ("S", "# T\nb")]),
        ("## A", [("A", "")]),
        ("##   A  \nx", [("A", "x")]),
        ("## \nx", [("", "x")]),
        ("##A\n### B\n ## C", [("", "##A\n### B\n ## C")]),
        ("## A\n~~~\n## B\n~~~\n## C\n", [("A", "~~~\n## B\n~~~\n"), ("C", "")]),
        ("## A\n```\n## B\n", [("A", "```\n## B\n")]),
    ],
)
def test_bodies(text: str, expected: list[tuple[str, str]]) -> None:
    assert bodies(text) == expected


@given(built_documents())
@settings(deadline=None, max_examples=200)
def test_sections_are_those_the_document_was_built_of(document: Built) -> None:
    text = document.text
    built = [(title, text[start:end].strip()) for title, start, end in document.bodies]
    found = [(title, body.strip()) for title, body in bodies(text)]
    # A blank preamble is no section; a heading without words under it is one.
    assert [item for item in found if item[1]] == [item for item in built if item[1]]
