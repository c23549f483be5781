from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation.ground_truth import GroundTruth, check_ground_truth, fold
from rag_pipeline.evaluation.questions import Question, load_questions
from rag_pipeline_tests.evaluation.fakes import Document

NEEDLE = "The dock releases the bike after 3 seconds."
TEXT = f"# Docks\n\n## Release\n\nPress the button. {NEEDLE} Then pull.\n"
COURSE = Path(__file__).resolve().parents[2].parent / "shared" / "corpora" / "course"


def check(*documents: Document, needle: str = NEEDLE, named: str = "a.md") -> GroundTruth:
    (result,) = check_ground_truth([Question("q", needle, named, ("query?",))], documents)
    return result


def test_a_needle_that_stands_once_in_the_named_document_is_valid() -> None:
    result = check(Document("a.md", TEXT), Document("b.md", "Another thing."))
    at = TEXT.index(NEEDLE)
    assert (result.valid, result.problem, result.in_source, result.in_canonical) == (True, "", True, True)
    assert result.occurrences == (("a.md", at, at + len(NEEDLE)),)


def test_identical_copies_count_once_and_either_may_be_named() -> None:
    copies = Document("a.md", TEXT), Document("copy/a.md", TEXT)
    for named in ("a.md", "copy/a.md"):
        result = check(*copies, named=named)
        assert result.valid
        assert [place[0] for place in result.occurrences] == ["a.md", "copy/a.md"]


def test_a_second_place_in_the_same_document_is_reported() -> None:
    result = check(Document("a.md", TEXT + NEEDLE))
    assert not result.valid
    assert result.problem == "the needle must stand once in the corpus and stands 2 times; it stands in a.md"


def test_a_second_place_in_another_document_is_reported() -> None:
    result = check(Document("a.md", TEXT), Document("b.md", f"{TEXT}More."))
    assert (result.valid, result.in_canonical) == (False, True)
    assert "stands 2 times; it stands in a.md, b.md" in result.problem


def test_overlapping_places_are_counted() -> None:
    assert "stands 2 times" in check(Document("a.md", "bim bim bim"), needle="bim bim").problem


@pytest.mark.parametrize("needle", ["Release", "## Release", "Release\n\nPress"])
def test_a_needle_in_or_across_a_heading_is_invalid(needle: str) -> None:
    result = check(Document("a.md", TEXT), needle=needle)
    assert not result.valid
    assert "heading line of a.md" in result.problem


def test_a_comment_in_fenced_code_is_no_heading() -> None:
    assert check(Document("a.md", f"Text.\n\n```\n# {NEEDLE}\n```\n")).valid


def test_a_needle_in_another_document_than_the_named_one() -> None:
    result = check(Document("a.md", "Nothing here.", raw_text="Nothing here."), Document("b.md", TEXT))
    assert (result.valid, result.in_source, result.in_canonical) == (False, False, False)
    assert "not in the named document a.md" in result.problem
    assert result.problem.endswith("it stands in b.md")


def test_a_named_document_that_is_not_there() -> None:
    result = check(Document("b.md", TEXT))
    assert (result.in_source, result.in_canonical) == (False, False)
    assert result.problem == "the named document a.md is not in the source; it stands in b.md"


def test_a_needle_that_is_nowhere() -> None:
    result = check(Document("a.md", "Nothing.", raw_text="Nothing."))
    assert (result.valid, result.in_source, result.lost_in_extraction) == (False, False, False)
    assert result.occurrences == ()


@pytest.mark.parametrize(
    "raw",
    [
        f"head {NEEDLE} foot",
        "The dock re-\nleases the bike after 3 sec-\nonds.",
        "THE DOCK RELEASES THE BIKE AFTER 3 SECONDS",
        "The  dock\u00a0releases the bike, after (3) seconds",
    ],
)
def test_a_needle_in_the_raw_text_alone_was_lost_in_extraction(raw: str) -> None:
    result = check(Document("a.md", "Only this came out.", raw_text=raw))
    assert (result.valid, result.in_source, result.in_canonical) == (False, True, False)
    assert result.lost_in_extraction
    assert "the file a.md holds the needle" in result.problem


def test_ligatures_are_folded() -> None:
    assert (
        fold("The o\ufb03ce \u2460 Stra\u00dfe_x") == fold("the office 1 STRASSE x") == "theoffice1strassex"
    )


@pytest.mark.parametrize("raw", [None, "", " \n"])
@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_a_document_that_could_not_be_read_lost_its_needle(raw: str | None, state: str) -> None:
    result = check(Document("a.md", "", raw_text=raw, state=state))
    assert result.lost_in_extraction
    assert f"a.md is {state}" in result.problem


def test_a_failed_document_whose_raw_text_lacks_the_needle_is_not_its_source() -> None:
    result = check(Document("a.md", "", raw_text="Something else.", state="failed"))
    assert (result.in_source, result.lost_in_extraction) == (False, False)


def test_an_indexed_document_without_raw_text_says_so() -> None:
    result = check(Document("a.md", "Read by OCR, badly.", raw_text=""))
    assert result.lost_in_extraction
    assert "no raw text to compare" in result.problem


def test_another_spelling_in_the_canonical_text_is_told() -> None:
    result = check(Document("a.md", TEXT.replace("the bike", "the\nbike"), raw_text=""))
    assert result.lost_in_extraction
    assert "only when case, spaces and punctuation are ignored" in result.problem


def test_a_needle_of_punctuation_is_in_no_folded_text() -> None:
    assert not check(Document("a.md", "words", raw_text="words"), needle="---").in_source


def test_documents_are_read_once_and_one_at_a_time() -> None:
    alive = 0

    class Counted(Document):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def stream() -> Iterator[Document]:
        nonlocal alive
        for number in range(5):
            alive += 1
            # The consumer may hold the previous one while it asks for the next.
            assert alive <= 2
            yield Counted(f"{number}.md", f"{TEXT} {number}")

    results = check_ground_truth([Question("q", NEEDLE, "1.md", ("query?",))], stream())
    assert "stands 5 times" in results[0].problem


@settings(deadline=None, max_examples=50)
@given(st.text("ab \n#", min_size=1, max_size=5), st.lists(st.text("ab \n#", max_size=30), max_size=4))
def test_every_occurrence_is_a_slice_that_equals_the_needle(needle: str, texts: list[str]) -> None:
    documents = {f"{at}.md": text for at, text in enumerate(texts)}
    result = check(*(Document(name, text) for name, text in documents.items()), needle=needle, named="0.md")
    assert all(documents[name][start:end] == needle for name, start, end in result.occurrences)
    expected = sum(text.startswith(needle, at) for text in texts for at in range(len(text)))
    assert len(result.occurrences) == expected
    assert GroundTruth.from_json(result.to_json()) == result


@pytest.mark.skipif(not COURSE.is_dir(), reason="the course corpus is not beside the checkout")
def test_the_course_questions_agree_with_the_course() -> None:
    questions = load_questions(COURSE / "questions.jsonl")
    documents = (
        Document(path.name, path.read_text("utf-8")) for path in sorted((COURSE / "corpus").glob("*.md"))
    )
    assert [result.problem for result in check_ground_truth(questions, documents) if not result.valid] == []
