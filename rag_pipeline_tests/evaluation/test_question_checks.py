from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation.question_checks import (
    CHECKS,
    QuestionLimits,
    check_questions,
    content_words,
    longest_copy,
)
from rag_pipeline.evaluation.questions import (
    OutOfDomainKind,
    OutOfDomainQuery,
    Question,
    load_out_of_domain,
    load_questions,
)
from rag_pipeline_tests.evaluation.fakes import Document

NEEDLE = "A dock releases the bicycle three seconds after the green light."
TEXT = f"# Docks\n\n## Release\n\n{NEEDLE} Then pull.\n"
QUERIES = ("How long until a dock lets go of the bike?", "i waited and nothing moved, is it broken?")
GOOD = Question("n1", NEEDLE, "a.md", QUERIES)
STRANGER = OutOfDomainQuery("o1", "Which helmet should I buy?", OutOfDomainKind.NEAR)
COURSE = Path(__file__).resolve().parents[2].parent / "shared" / "corpora" / "course"


def problems(
    question: Question = GOOD,
    text: str = TEXT,
    *,
    stranger: OutOfDomainQuery = STRANGER,
    terms: tuple[str, ...] = ("helmet",),
    others: tuple[Document, ...] = (),
    limits: QuestionLimits | None = None,
) -> list[tuple[str, str, str]]:
    documents = [Document("a.md", text, raw_text=text), *others]
    found = check_questions([question], [stranger], documents, absent_terms={"o1": terms}, limits=limits)
    return [(problem.check, problem.subject, problem.message) for problem in found]


def changed(needle: str = NEEDLE, queries: tuple[str, ...] = QUERIES) -> Question:
    return Question("n1", needle, "a.md", queries)


def test_a_good_set_has_no_problem() -> None:
    assert problems() == []


def test_an_invalid_needle_is_reported_as_the_ground_truth_says() -> None:
    (found,) = problems(text="Nothing here.")
    assert found[:2] == ("needle_valid", "n1")
    assert "not in the named document a.md" in found[2]


@pytest.mark.parametrize(
    ("needle", "message"),
    [
        (NEEDLE.replace("bicycle three", "bicycle\nthree"), "spans lines"),
        (f" {NEEDLE}", "begins or ends with white space"),
        ("Too short.", "has 10 characters; 40 to 200 are wanted"),
    ],
)
def test_the_form_of_a_needle(needle: str, message: str) -> None:
    found = problems(changed(needle), TEXT.replace(NEEDLE, needle))
    assert [(check, message in words) for check, _, words in found] == [("needle_form", True)]


def test_another_spelling_of_the_needle_is_reported_and_a_copy_of_the_document_is_not() -> None:
    twice = (Document("b.md", NEEDLE.upper()), Document("c.md", TEXT))
    found = [problem for problem in problems(others=twice) if problem[0] == "needle_repeated"]
    assert found == [
        ("needle_repeated", "n1", "the needle stands 2 times when case, spaces and punctuation are ignored")
    ]
    assert problems(others=(Document("c.md", TEXT),)) == []


def test_a_needle_in_a_code_block() -> None:
    assert problems(text=f"```\n{NEEDLE}\n```\n") == [
        ("needle_in_code", "n1", "the needle stands in a code block")
    ]


def test_too_few_phrasings() -> None:
    assert problems(changed(queries=QUERIES[:1])) == [("phrasings", "n1", "1 phrasings; 2 are wanted")]
    assert problems(changed(queries=QUERIES[:1]), limits=QuestionLimits(phrasings=1)) == []


def test_a_query_that_copies_its_needle() -> None:
    first = changed(queries=("Is it so that a dock releases the bicycle three seconds later?", QUERIES[1]))
    assert problems(first) == [("copied", "n1", "query 1 copies 7 words in a row; 6 are allowed")]
    later = changed(
        queries=(QUERIES[0], "i stand here for ages and want to know about the green light signal now")
    )
    assert problems(later) == []
    later = changed(
        queries=(QUERIES[0], "stuck here for ages, want help or a refund, after the green light nothing")
    )
    assert ("copied", "n1", "query 2 copies 4 words in a row; 3 are allowed") in problems(later)


def test_a_later_phrasing_that_shares_the_needles_words() -> None:
    found = problems(changed(queries=(QUERIES[0], "dock green bicycles stuck")))
    assert found == [
        (
            "shared_words",
            "n1",
            "query 2 shares 3 of its 4 content words with the needle (bicycl, dock, green)",
        )
    ]


def test_a_query_of_both_domains() -> None:
    stranger = OutOfDomainQuery("o1", QUERIES[0].upper(), OutOfDomainKind.FAR)
    assert problems(stranger=stranger) == [("both_domains", "o1", "the same query is asked by question n1")]


def test_a_subject_that_the_corpus_treats() -> None:
    ((check, subject, message),) = problems(terms=("GREEN", "green light"))
    assert (check, subject) == ("absent_terms", "o1")
    assert message.startswith("the corpus treats its subject: a.md has ...")


def test_a_term_that_does_not_compile_is_named() -> None:
    with pytest.raises(ValueError, match=r"absent term of o1: /\(/ does not compile"):
        problems(terms=("(",))


def test_a_document_nobody_asks_about() -> None:
    assert problems(others=(Document("b.md", "Prices."), Document("failed.pdf", state="failed"))) == [
        ("documents_asked", "b.md", "no question asks about this document")
    ]


def test_words() -> None:
    assert content_words("The docks are docking, at Straße 7 x") == {"dock", "strass"}
    assert longest_copy("a b c x b c d e", "Z b C d E y") == 4
    assert longest_copy("", "a") == longest_copy("a", "") == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_the_longest_copy_is_the_longest_common_run(asked: list[str], answer: list[str]) -> None:
    runs = {tuple(answer[i:j]) for i in range(len(answer)) for j in range(i + 1, len(answer) + 1)}
    expected = max(
        (j - i for i in range(len(asked)) for j in range(i + 1, len(asked) + 1) if tuple(asked[i:j]) in runs),
        default=0,
    )
    assert longest_copy(" ".join(asked), " ".join(answer)) == expected


def test_every_check_is_declared() -> None:
    for name, check in CHECKS.items():
        assert check.name == name
        assert check.description


@pytest.mark.skipif(not COURSE.is_dir(), reason="the course corpus is not beside the checkout")
def test_the_course_set_has_no_problem() -> None:
    documents = [
        Document(path.name, path.read_text("utf-8")) for path in sorted((COURSE / "corpus").glob("*.md"))
    ]
    terms = json.loads((COURSE / "ood_absent_terms.json").read_text("utf-8"))
    found = check_questions(
        load_questions(COURSE / "questions.jsonl"),
        load_out_of_domain(COURSE / "out_of_domain.jsonl"),
        documents,
        absent_terms=terms,
    )
    assert found == []
