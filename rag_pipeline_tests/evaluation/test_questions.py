from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_pipeline.core.errors import GroundTruthError
from rag_pipeline.evaluation.questions import (
    OutOfDomainKind,
    OutOfDomainQuery,
    Question,
    load_out_of_domain,
    load_questions,
)

GOOD = {"id": "n1", "needle": "A lock is a lock.", "document": "a/b.md", "queries": ["what?", "why?"]}
COURSE = Path(__file__).resolve().parents[2].parent / "shared" / "corpora" / "course"


def write(folder: Path, *lines: object) -> Path:
    path = folder / "questions.jsonl"
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines) + b"\n"
    )
    return path


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, b"", {**GOOD, "id": "n2", "queries": ["how?"]})
    assert load_questions(path) == [
        Question("n1", "A lock is a lock.", "a/b.md", ("what?", "why?")),
        Question("n2", "A lock is a lock.", "a/b.md", ("how?",)),
    ]


def test_a_byte_order_mark_and_line_separators_in_strings_are_harmless(tmp_path: Path) -> None:
    line = json.dumps({**GOOD, "needle": "two\u2028lines"}, ensure_ascii=False).encode()
    assert load_questions(write(tmp_path, b"\xef\xbb\xbf" + line))[0].needle == "two\u2028lines"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([GOOD, b"{"], r"questions.jsonl, line 2: is not JSON \(.* at column 2\)"),
        ([b'{"id": "\xff"}'], "line 1: is not UTF-8"),
        ([b"[1]"], 'line 1: must be a JSON object with the keys "id", "needle", "document", "queries"'),
        ([{"id": "n1", "needle": "x"}], 'line 1: misses "document", "queries"'),
        ([{**GOOD, "answer": 1}], 'line 1: has unknown keys "answer"; allowed are "id"'),
        ([b'{"id": "a", "id": "b"}'], 'line 1: has the key "id" twice'),
        ([GOOD, {**GOOD, "queries": ["how?"]}], "line 2: id 'n1' stands twice, first in line 1"),
        (
            [GOOD, {**GOOD, "id": "n2", "queries": ["why? "]}],
            "line 2: query 'why. ' stands twice, first in line 1",
        ),
        ([{**GOOD, "queries": ["x", "x"]}], "line 1: query 'x' stands twice"),
        ([{**GOOD, "queries": []}], 'line 1: "queries" must be a list of one or more strings'),
        ([{**GOOD, "queries": "what?"}], 'line 1: "queries" must be a list of one or more strings'),
        (
            [{**GOOD, "queries": ["x", 3]}],
            r'line 1: "queries"\[1\] must be a string that is not blank, got 3',
        ),
        ([{**GOOD, "needle": "  "}], 'line 1: "needle" must be a string that is not blank'),
        ([{**GOOD, "id": 7}], 'line 1: "id" must be a string that is not blank, got 7'),
        (
            [b'{"id":"a","needle":"\\ud800","document":"d","queries":["q"]}'],
            '"needle" holds half of a surrogate',
        ),
        ([b""], "holds no question"),
    ],
)
def test_a_bad_question_file_names_file_and_line(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(GroundTruthError, match=message) as caught:
        load_questions(write(tmp_path, *lines))
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match=r"none\.jsonl: cannot be read"):
        load_questions(tmp_path / "none.jsonl")


def test_out_of_domain_queries_are_read_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": "o1", "query": "a?", "kind": "near"},
        {"id": "o2", "query": "b?", "kind": "far"},
    )
    assert load_out_of_domain(path) == [
        OutOfDomainQuery("o1", "a?", OutOfDomainKind.NEAR),
        OutOfDomainQuery("o2", "b?", OutOfDomainKind.FAR),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [{"id": "o1", "query": "a?", "kind": "middle"}],
            "line 1: \"kind\" is 'middle'; allowed are near, far",
        ),
        ([{"id": "o1", "query": "a?"}], 'line 1: misses "kind"'),
        (
            [{"id": "o1", "query": "a?", "kind": "near"}, {"id": "o1", "query": "b?", "kind": "far"}],
            "line 2: id 'o1' stands twice",
        ),
        (
            [{"id": "o1", "query": "a?", "kind": "near"}, {"id": "o2", "query": "a?", "kind": "far"}],
            "line 2: query 'a.' stands twice",
        ),
        ([b" "], "holds no query"),
    ],
)
def test_a_bad_out_of_domain_file_names_file_and_line(
    tmp_path: Path, lines: list[object], message: str
) -> None:
    with pytest.raises(GroundTruthError, match=message):
        load_out_of_domain(write(tmp_path, *lines))


@pytest.mark.skipif(not COURSE.is_dir(), reason="the course corpus is not beside the checkout")
def test_the_course_files_are_read() -> None:
    questions = load_questions(COURSE / "questions.jsonl")
    assert len(questions) == 32
    assert sum(len(question.queries) for question in questions) == 64
    kinds = [query.kind for query in load_out_of_domain(COURSE / "out_of_domain.jsonl")]
    assert (kinds.count(OutOfDomainKind.NEAR), kinds.count(OutOfDomainKind.FAR)) == (21, 9)
