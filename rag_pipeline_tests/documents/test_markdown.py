from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import extract_file
from rag_pipeline.documents.markdown import with_atx_headings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Title\n=====\nx\n", "# Title\nx\n"),
        ("Part\n---\nx\n", "## Part\nx\n"),
        ("two\nlines\n---\n", "## two lines\n"),
        ("Part\r\n---\r\nx\r\n", "## Part\r\nx\r\n"),
        ("   ## Indented\n", "## Indented\n"),
        ("##\tTab\n", "## Tab\n"),
        ("Last\n===", "# Last"),
        ("---\nkey: value\n---\nTitle\n===\n", "---\nkey: value\n---\n# Title\n"),
    ],
)
def test_headings_of_other_forms_become_atx_lines(text: str, expected: str) -> None:
    assert with_atx_headings(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "para\n\n---\n\npara\n",
        "```\nTitle\n===\n```\n",
        "- item\n  ---\n",
        "> quoted\n> ===\n",
        "    # indented code\n\nTitle kept\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "---\ntitle: only\n---\nbody\n",
        "## Closed ##\n   \n\n\ttab\n",
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert with_atx_headings(text) == text


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet="#=-` ab>\n", max_size=60))
def test_rewriting_twice_changes_nothing_more(text: str) -> None:
    once = with_atx_headings(text)
    assert with_atx_headings(once) == once


def test_canonical_text_of_the_course_equals_its_files(shared: Path, options: ExtractionConfig) -> None:
    paths = sorted((shared / "corpora/course/corpus").glob("*.md"))
    assert len(paths) == 13
    for path in paths:
        document = canonicalise(path.name, extract_file(path, "text/markdown", options), options)
        assert document.text == path.read_bytes().decode("utf-8"), path.name
        assert document.removed == {}
