from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.chunking import (
    STRATEGIES,
    Chunk,
    chunk_document,
    chunk_id,
    contextual_header,
)
from rag_pipeline_tests.chunking.documents import Built, built_documents

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SHARED = Path(__file__).resolve().parents[2].parent / "shared"

BOUNDARY = [letter for letter, strategy in STRATEGIES.items() if strategy.boundaries]
BLIND = [letter for letter, strategy in STRATEGIES.items() if not strategy.boundaries]

targets = st.integers(1, 80)
overlaps = st.integers(0, 40)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def comparable(text: str, chunks: list[Chunk]) -> list[Chunk]:
    """The chunks that the reference gives too: it drops the preamble of a text with headings."""
    first_heading = re.search(r"^## ", text, re.MULTILINE)
    return [chunk for chunk in chunks if first_heading is None or chunk.start > first_heading.start()]


# --- reference outputs


@pytest.mark.parametrize(
    "case", read_jsonl(FIXTURES / "chunks_edge_cases.jsonl"), ids=lambda case: case["name"]
)
def test_agrees_with_the_reference_on_edge_cases(case: dict[str, Any]) -> None:
    chunks = chunk_document(case["text"], case["title"], "E", target=case["target"])
    found = [[c.section, c.start, c.end, c.text] for c in comparable(case["text"], chunks)]
    assert found == case["chunks"]


def test_agrees_with_the_reference_on_the_course() -> None:
    reference = SHARED / "golden" / "chunks_course_E.jsonl"
    if not reference.exists():
        pytest.skip("shared/golden is not beside this checkout")
    total = 0
    for case in read_jsonl(reference):
        text = (SHARED / "corpora" / "course" / "corpus" / case["document"]).read_text(encoding="utf-8")
        chunks = chunk_document(text, case["title"], "E", target=case["target"])
        assert [[c.section, c.start, c.end] for c in chunks] == case["chunks"], case["document"]
        total += len(chunks)
    assert total == 1062


# --- by hand

DOCUMENT = "# Bikes\n\nIntro words.\n\n## Brakes\nPads wear. Check them.\n\nReplace at 1 mm.\n"


def test_default_strategy_by_hand() -> None:
    assert chunk_document(DOCUMENT, "Bikes") == [
        Chunk("", "Intro words.", "[Bikes]\nIntro words.", 9, 21, 9, 8),
        Chunk(
            "Brakes",
            "Pads wear. Check them.\n\nReplace at 1 mm.",
            "[Bikes > Brakes]\nPads wear. Check them.\n\nReplace at 1 mm.",
            33,
            73,
            33,
            17,
        ),
    ]


def test_sentences_with_header_and_overlap_by_hand() -> None:
    chunks = chunk_document(DOCUMENT, "Bikes", "F", target=16, overlap=8)
    assert [(c.section, c.content, c.text) for c in chunks] == [
        ("", "Intro words.", "[Bikes]\n\nIntro words."),
        ("Brakes", "Pads wear.", "[Bikes > Brakes]\nPads wear."),
        ("Brakes", "Check them.", "[Bikes > Brakes]\ns wear. Check them."),
        ("Brakes", "Replace at 1 mm.", "[Bikes > Brakes]\n them.\n\nReplace at 1 mm."),
    ]


def test_blind_cuts_by_hand() -> None:
    text = "abcd efg\n## S\nhij"
    chunks = chunk_document(text, "T", "B", target=5, overlap=3)
    assert [(c.section, c.content, c.start, c.end, c.lead_start) for c in chunks] == [
        ("", "abcd", 0, 4, 0),
        ("", "efg\n#", 5, 10, 2),
        ("S", "# S\nh", 10, 15, 7),
        ("S", "ij", 15, 17, 12),
    ]


def test_a_and_b_have_the_same_cuts_and_a_no_lead() -> None:
    a, b = (chunk_document(DOCUMENT, "Bikes", letter, target=16) for letter in "AB")
    assert [(c.start, c.end) for c in a] == [(c.start, c.end) for c in b]
    assert all(c.lead_start == c.start and c.text == c.content for c in a)
    assert [c.lead_start for c in b] == [max(0, c.start - 64) for c in b]


def test_title_line_stands_in_no_passage() -> None:
    text = "Before.\n# Title\nAfter.\n\nMore."
    chunks = chunk_document(text, "Title", "D", target=7)
    assert [(c.content, text[c.lead_start : c.end]) for c in chunks] == [
        ("Before.", "Before."),
        ("After.", "After."),
        ("More.", "After.\n\nMore."),
    ]


def test_only_the_first_level_1_line_of_the_preamble_is_the_title() -> None:
    text = "# Title\n# Second\n## S\n# Third"
    assert [c.content for c in chunk_document(text, "Title")] == ["# Second", "# Third"]


def test_a_heading_in_a_fence_is_code() -> None:
    text = "## S\n```\n## not a section\n# not a title\n```\n"
    (chunk,) = chunk_document(text, "T")
    assert chunk.section == "S"
    assert chunk.content == text[5:-1]


def test_a_title_in_a_fence_is_code() -> None:
    (chunk,) = chunk_document("```\n# shell comment\n```", "T")
    assert chunk.content == "```\n# shell comment\n```"


def test_a_paragraph_of_the_targets_length_before_a_heading_stays_whole() -> None:
    text = "## A\nOne. Two. Three.\n## B\nx"
    assert [c.content for c in chunk_document(text, "T", target=16)] == ["One. Two. Three.", "x"]
    assert [c.content for c in chunk_document(text, "T", target=15)] == ["One. Two.", "Three.", "x"]


def test_a_paragraph_that_starts_with_a_full_stop_loses_nothing() -> None:
    text = "... and so on. Then the end comes. Yes."
    contents = [c.content for c in chunk_document(text, "T", "C", target=20)]
    assert contents == ["... and so on.", "Then the end comes.", "Yes."]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", ["", " \n\n\t", "\n"])
def test_a_blank_text_has_no_chunk(text: str, strategy: str) -> None:
    assert chunk_document(text, "T", strategy) == []


@pytest.mark.parametrize(
    ("title", "section", "header"),
    [("T", "S", "[T > S]\n"), ("T", "", "[T]\n"), ("", "S", "[S]\n"), ("", "", "")],
)
def test_contextual_header(title: str, section: str, header: str) -> None:
    assert contextual_header(title, section) == header


# --- wrong use


@pytest.mark.parametrize("strategy", ["G", "e", ""])
def test_unknown_strategy(strategy: str) -> None:
    with pytest.raises(ValueError, match=rf"strategy is '{strategy}'; known strategies are A, B, C, D, E, F"):
        chunk_document("x", "T", strategy)


@pytest.mark.parametrize("target", [0, -1, 1.5, True, "512"])
def test_wrong_target(target: Any) -> None:
    with pytest.raises(ValueError, match=r"target is .*; it must be an integer of 1 or more"):
        chunk_document("x", "T", target=target)


@pytest.mark.parametrize("overlap", [-1, 0.5, False, None])
def test_wrong_overlap(overlap: Any) -> None:
    with pytest.raises(ValueError, match=r"overlap is .*; it must be an integer of 0 or more"):
        chunk_document("x", "T", overlap=overlap)


# --- properties


@given(built_documents(), st.sampled_from(sorted(STRATEGIES)), targets, overlaps)
@settings(deadline=None, max_examples=200)
def test_contents_and_passages_are_slices(document: Built, strategy: str, target: int, overlap: int) -> None:
    text = document.text
    for chunk in chunk_document(text, document.title, strategy, target, overlap):
        assert chunk.content == text[chunk.start : chunk.end]
        assert chunk.content == chunk.content.strip() != ""
        assert chunk.text[chunk.header_length :] == text[chunk.lead_start : chunk.end]
        header = contextual_header(document.title, chunk.section) if STRATEGIES[strategy].header else ""
        assert chunk.text[: chunk.header_length] == header


@given(built_documents(), st.sampled_from(sorted(STRATEGIES)), targets, overlaps)
@settings(deadline=None, max_examples=200)
def test_lead_bounds(document: Built, strategy: str, target: int, overlap: int) -> None:
    for chunk in chunk_document(document.text, document.title, strategy, target, overlap):
        earliest = 0
        if STRATEGIES[strategy].boundaries:
            earliest = max(start for _, start, end in document.bodies if start <= chunk.start < end)
        lead = overlap if STRATEGIES[strategy].overlap else 0
        assert chunk.lead_start == max(chunk.start - lead, earliest)


@given(built_documents(), st.sampled_from(BOUNDARY), targets)
@settings(deadline=None, max_examples=200)
def test_boundary_contents_cover_the_body_exactly_once(document: Built, strategy: str, target: int) -> None:
    chunks = chunk_document(document.text, document.title, strategy, target)
    covered = [o for c in chunks for o in range(c.start, c.end) if not document.text[o].isspace()]
    assert covered == document.body_offsets()


@given(built_documents(), st.sampled_from(BOUNDARY), targets)
@settings(deadline=None, max_examples=200)
def test_boundary_chunks_name_the_section_that_holds_them(
    document: Built, strategy: str, target: int
) -> None:
    for chunk in chunk_document(document.text, document.title, strategy, target):
        holders = [name for name, start, end in document.bodies if start <= chunk.start and chunk.end <= end]
        assert holders == [chunk.section]


@given(built_documents(), st.sampled_from(BLIND), targets)
@settings(deadline=None, max_examples=200)
def test_blind_contents_cover_the_text_exactly_once(document: Built, strategy: str, target: int) -> None:
    chunks = chunk_document(document.text, document.title, strategy, target)
    covered = [o for c in chunks for o in range(c.start, c.end) if not document.text[o].isspace()]
    assert covered == [o for o, character in enumerate(document.text) if not character.isspace()]
    assert all(c.start // target == (c.end - 1) // target for c in chunks)


@given(built_documents(), st.sampled_from(BOUNDARY), targets)
@settings(deadline=None, max_examples=200)
def test_a_paragraph_that_fits_is_never_cut(document: Built, strategy: str, target: int) -> None:
    chunks = chunk_document(document.text, document.title, strategy, target)
    for _, body_start, body_end in document.bodies:
        for match in re.finditer(r"[^\n]+(?:\n[^\n]+)*", document.text[body_start:body_end]):
            words = match[0].strip()
            if not words or len(match[0]) > target:
                continue
            start = body_start + match.start() + match[0].index(words)
            assert any(c.start <= start and start + len(words) <= c.end for c in chunks)


@given(built_documents(), st.sampled_from(BOUNDARY), targets)
@settings(deadline=None, max_examples=200)
def test_a_chunk_over_the_target_is_one_sentence(document: Built, strategy: str, target: int) -> None:
    for chunk in chunk_document(document.text, document.title, strategy, target):
        if len(chunk.content) > target:
            assert not re.search(r"[.!?]\s*[^.!?\s]", chunk.content)


@given(built_documents(), st.sampled_from(sorted(STRATEGIES)), targets)
@settings(deadline=None, max_examples=100)
def test_ids_are_unique_in_a_document(document: Built, strategy: str, target: int) -> None:
    chunks = chunk_document(document.text, document.title, strategy, target)
    ids = {chunk_id("a/b.md", c.start, c.end, c.text) for c in chunks}
    assert len(ids) == len(chunks)


# --- ids


def test_id_is_the_hash_of_its_length_prefixed_parts() -> None:
    # sha256 of 0x0000000000000004 "d.md" 0x..01 "3" 0x..02 "10" 0x..03 "é!" (é is two bytes), by sha256sum.
    assert chunk_id("d.md", 3, 10, "é!") == "b8ae16ba6b30c256d2df9fcdb7c474bc"
    assert re.fullmatch("[0-9a-f]{32}", chunk_id("", 0, 0, ""))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", 1, 23, "t"), ("a", 12, 3, "t")),
        (("a", 1, 2, "t"), ("a1", 1, 2, "t")),
        (("a", 1, 2, "3t"), ("a", 1, 23, "t")),
        (("a", 1, 2, "t"), ("a", 1, 2, "u")),
    ],
)
def test_ids_differ_where_any_part_does(one: Any, other: Any) -> None:
    assert chunk_id(*one) != chunk_id(*other)


def test_a_file_name_that_is_no_utf8_has_an_id() -> None:
    assert chunk_id("caf\udce9.md", 0, 1, "x") != chunk_id("caf\udcea.md", 0, 1, "x")
