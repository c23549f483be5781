from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.core.schemas import CANONICAL_DOCUMENTS
from rag_pipeline.documents.canonical import Canonical, canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, ExtractionWarning, PageInfo
from rag_pipeline.documents.locators import Locator, resolve
from rag_pipeline.documents.source import SourceDocument
from rag_pipeline.documents.states import DocumentState, FailureReason, SkipReason, WarningKind
from rag_pipeline_tests.documents.conftest import canonical

ONE, TWO = Locator.of_page(1), Locator.of_page(2)


def test_plain_markdown_stays_as_it_is() -> None:
    text = "# T\n\n\n\n## S  \nbody  \n   \n\n- a\n\n```\n# x\n```\n"
    document = canonical(text)
    assert document.text == text
    assert document.text_sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert document.state is DocumentState.INDEXED
    assert document.removed == {}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("---\ntitle: From front matter\n---\n# Heading\nx", "From front matter"),
        ("---\ntitle: '  two\n\n  lines '\n---\nx", "two lines"),
        ("---\ntitle: 2025\n---\nx", "2025"),
        ("---\ntitle: true\n---\n# Heading\nx", "Heading"),
        ("---\nauthor: A\n---\n# Heading\nx", "Heading"),
        ("## Section\n# Heading\nx", "Heading"),
        ("```\n# code\n```\n# Heading\nx", "Heading"),
        ("# \n# Heading\nx", "Heading"),
        ("# One\n# Two\nx", "One"),
        ("plain text", "notes.txt"),
        ("# code\n```", "code"),
    ],
)
def test_the_title_is_front_matter_or_first_heading_or_name(text: str, title: str) -> None:
    assert canonical(text, name="sub/notes.txt").title == title


def test_front_matter_leaves_the_text_and_its_keys_stay() -> None:
    document = canonical("---\ntitle: T\ntags: [a]\n---\n\nBody\n")
    assert document.text == "\nBody\n"
    assert document.metadata == {"tags": ["a"]}
    assert document.removed == {"front_matter": 4 + 9 + 10 + 4}


def test_front_matter_can_stay() -> None:
    text = "---\ntitle: T\n---\nBody\n"
    document = canonical(text, remove_front_matter=False)
    assert (document.text, document.title) == (text, "T")


def test_unreadable_front_matter_stays_with_a_warning() -> None:
    document = canonical("---\nkey: [1\n---\nBody\n")
    assert document.text.startswith("---")
    assert [warning.kind for warning in document.warnings] == [WarningKind.FRONT_MATTER_UNREADABLE]


@pytest.mark.parametrize(
    "title",
    ["References", "REFERENCES", "7. References", "Bibliography", "## Works cited"[3:], "IV. Literature:"],
)
def test_a_reference_list_is_removed_up_to_the_next_heading_of_its_level(title: str) -> None:
    document = canonical(f"# T\n\n## A\na\n\n## {title}\n[1] x\n### Sub\n[2] y\n## B\nb\n")
    assert document.text == "# T\n\n## A\na\n\n## B\nb\n"
    assert set(document.removed) == {"references"}


def test_a_reference_list_at_the_end_is_removed_to_the_end() -> None:
    assert canonical("# T\nx\n\n### References\n[1] x\n").text == "# T\nx\n\n"


@pytest.mark.parametrize(
    "text",
    [
        "# References\n\nHow we cite.\n",
        "# T\n\n## References to other pages\nx\n",
        "# T\n\n```\n## References\n```\nx\n",
        "# T\n\nReferences\n\nx\n",
    ],
)
def test_what_only_looks_like_a_reference_list_stays(text: str) -> None:
    assert canonical(text).text == text


def test_reference_lists_can_stay() -> None:
    text = "# T\n\n## References\n[1] x\n"
    assert canonical(text, remove_references=False).text == text


def test_several_titles_without_sections_move_one_level_down() -> None:
    document = canonical("# One\na\n```\n# code\n```\n### Three\n###### Six\n# Two\nb\n")
    assert document.text == "## One\na\n```\n# code\n```\n#### Three\n###### Six\n## Two\nb\n"
    assert document.title == "One"


@pytest.mark.parametrize("text", ["# One\n## Two\n# Three\n", "# One\n### Two\n", "## One\n## Two\n"])
def test_other_headings_keep_their_level(text: str) -> None:
    assert canonical(text).text == text


@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff\x00", "---\na: 1\n---\n", "## References\n[1] x"])
def test_a_document_without_text_fails(text: str) -> None:
    document = canonical(text)
    assert (document.state, document.reason) == (DocumentState.FAILED, FailureReason.NO_TEXT)
    assert (document.text, document.text_sha256) == ("", None)
    assert "a.md" in (document.message or "")


def test_failures_and_skips_keep_state_and_reason(options: ExtractionConfig) -> None:
    failed = canonicalise("x/a.pdf", Extracted.failed(FailureReason.ENCRYPTED, "locked"), options)
    assert (failed.state, failed.reason, failed.message) == ("failed", "encrypted", "locked")
    assert (failed.name, failed.title) == ("a.pdf", "a.pdf")
    skipped = canonicalise(".git/", Extracted.skipped("hidden"), options)
    assert (skipped.state, skipped.reason) == (DocumentState.SKIPPED, SkipReason.HIDDEN)


def test_places_survive_every_step() -> None:
    document = canonical(("# A\r\nfirst\n\n", ONE), ("# B\nse\u0301cond\n\n## References\n[1]\n", TWO))
    # Two level-1 headings and, before the reference list goes, a level-2 one: it goes first.
    assert document.text == "## A\nfirst\n\n## B\nsécond\n\n"
    second = document.text.index("sécond")
    assert resolve(document.locators, second, second + 6) == TWO
    boundary = document.text.index("## B")
    assert [(span.start, span.end) for span in document.locators] == [
        (0, boundary),
        (boundary, len(document.text)),
    ]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.text(alphabet="#-`: a\u0301b\n\r\x00", max_size=25), min_size=1, max_size=4))
def test_every_character_lies_in_exactly_one_span(pieces: list[str]) -> None:
    document = canonical(*((piece, Locator.of_page(n)) for n, piece in enumerate(pieces, 1)))
    assert "".join(document.text[s.start : s.end] for s in document.locators) == document.text
    pages = [span.locator.page or 0 for span in document.locators]
    assert pages == sorted(set(pages))


def test_a_row_of_the_table_gives_the_document_back() -> None:
    document = Canonical(
        document_id="a/b.pdf",
        name="b.pdf",
        title="T",
        state=DocumentState.INDEXED,
        extractor="pdf",
        extractor_version="1",
        text="x",
        text_sha256="00",
        metadata={"author": "é"},
        locators=canonical(("x", ONE)).locators,
        removed={"references": 3},
        warnings=(ExtractionWarning(WarningKind.NO_TEXT_LAYER, "no text", 2),),
        pages=(PageInfo(1), PageInfo(2, ocr=True, confidence=0.5)),
    )
    source = SourceDocument("a/b.pdf", 3, "ab", "application/pdf", DocumentState.LISTED)
    table = pa.Table.from_pylist([document.to_row(source)], schema=CANONICAL_DOCUMENTS.schema)
    assert Canonical.from_row(table.to_pylist()[0]) == document


def test_the_payload_of_pictures_is_removed_and_counted() -> None:
    payload = "iVBORw0KGgo" * 10
    document = canonical(f"a ![x](data:image/png;base64,{payload}) b\n")
    assert document.text == "a ![x](data:image/png;base64,) b\n"
    assert document.removed == {"base64": len(payload)}
    assert canonical("short;base64,abcd\n").text == "short;base64,abcd\n"
