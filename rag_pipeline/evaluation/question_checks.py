"""What is worth knowing about a question set before a build is judged by it.

A needle that is not in the corpus is an error of the ground truth. The checks here go further: a query that
copies its needle, or shares most of its words with it, tests nothing but string matching; an out-of-domain
query whose subject the corpus treats is no bluff. Whether a needle answers its queries only a reader can
tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rag_pipeline.documents.markdown_structure import iter_lines
from rag_pipeline.evaluation.ground_truth import GroundTruth, check_ground_truth, fold
from rag_pipeline.evaluation.protocols import SourceText
from rag_pipeline.evaluation.questions import OutOfDomainQuery, Question

_WORD = re.compile(r"\w+")
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "ly", "s")
# English words that carry no subject. Words of other languages all count as content.
_STOP_WORDS = frozenset(
    _WORD.findall(
        """
        a an and are as at be been but by can could did do does for from get had has have how i if in into
        is it its may me might more most must my no nor not of on or our out over should so such than that
        the their them then there these they this those to too up us was we what when where which while who
        whose why will with would you your
        """
    )
)


@dataclass(frozen=True)
class QuestionLimits:
    """What the checks allow.

    Lengths of a needle in code points; words in a row that a query may share with its needle (the first
    phrasing, and the later ones, which ought to use words of their own); the share of a later phrasing's
    content words that the needle may have; phrasings a question needs.
    """

    shortest_needle: int = 40
    longest_needle: int = 200
    phrasings: int = 2
    copied_first: int = 6
    copied_later: int = 3
    shared_later: float = 0.25


@dataclass(frozen=True)
class QuestionProblem:
    """One thing wrong: the check that found it, the id of what it concerns, and words for a person."""

    check: str
    subject: str
    message: str


@dataclass
class Corpus:
    """What one pass over the documents found for the question set."""

    ground_truth: Sequence[GroundTruth] = ()
    folded_counts: Counter[str] = field(default_factory=Counter)
    in_code: set[str] = field(default_factory=set)
    documents: list[str] = field(default_factory=list)
    present_terms: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class QuestionSet:
    """A question set, its limits and what the corpus says about it: what every check looks at."""

    questions: Sequence[Question]
    out_of_domain: Sequence[OutOfDomainQuery]
    corpus: Corpus
    limits: QuestionLimits


Found = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class QuestionCheck:
    """A check: its name, what it holds a set to, and a function that yields (subject, message) a problem."""

    name: str
    description: str
    find: Callable[[QuestionSet], Found]


def check_questions(
    questions: Sequence[Question],
    out_of_domain: Sequence[OutOfDomainQuery],
    documents: Iterable[SourceText],
    *,
    absent_terms: Mapping[str, Sequence[str]] | None = None,
    limits: QuestionLimits | None = None,
) -> list[QuestionProblem]:
    """Return every problem of a question set, in the order of `CHECKS`.

    `documents` is read once, one at a time. `absent_terms` maps ids of out-of-domain queries to regular
    expressions that must match nowhere in the corpus (letter case counts where the expression has two
    capitals in a row).

    Raises ValueError for an expression that does not compile.
    """
    patterns = _compile(absent_terms or {})
    corpus = Corpus()
    corpus.ground_truth = check_ground_truth(questions, _observe(documents, questions, patterns, corpus))
    judged = QuestionSet(questions, out_of_domain, corpus, limits or QuestionLimits())
    return [
        QuestionProblem(check.name, subject, message)
        for check in CHECKS.values()
        for subject, message in check.find(judged)
    ]


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words that carry a subject (English stop words left out)."""
    words = _WORD.findall(text.casefold())
    return {_stem(word) for word in words if len(word) > 1 and word not in _STOP_WORDS}


def longest_copy(query: str, needle: str) -> int:
    """Return how many words in a row the query has in common with the needle, letter case aside."""
    asked, answer = _WORD.findall(query.casefold()), _WORD.findall(needle.casefold())
    longest = 0
    # Row of the longest-common-run table: runs[j] ends at the current query word and at answer[j - 1].
    runs = [0] * (len(answer) + 1)
    for word in asked:
        previous = 0
        for at, other in enumerate(answer, start=1):
            previous, runs[at] = runs[at], previous + 1 if word == other else 0
            longest = max(longest, runs[at])
    return longest


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            word = word[: -len(suffix)]
            break
    return word.removesuffix("e")


def _compile(absent_terms: Mapping[str, Sequence[str]]) -> list[tuple[str, re.Pattern[str]]]:
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for query_id, terms in absent_terms.items():
        for term in terms:
            flags = re.NOFLAG if re.search(r"[A-Z]{2}", term) else re.IGNORECASE
            try:
                patterns.append((query_id, re.compile(term, flags)))
            except re.error as error:
                raise ValueError(f"absent term of {query_id}: /{term}/ does not compile ({error})") from error
    return patterns


def _observe(
    documents: Iterable[SourceText],
    questions: Sequence[Question],
    patterns: Sequence[tuple[str, re.Pattern[str]]],
    corpus: Corpus,
) -> Iterator[SourceText]:
    """Pass the documents on, noting in `corpus` what the checks need of each."""
    folded_needles = {question.id: fold(question.needle) for question in questions}
    seen: set[str] = set()
    for document in documents:
        text = document.text
        if text:
            corpus.documents.append(document.document_id)
            folded = fold(text)
            # Identical copies of a document count once.
            if folded not in seen:
                seen.add(folded)
                for question_id, needle in folded_needles.items():
                    corpus.folded_counts[question_id] += folded.count(needle) if needle else 0
            _note_code(text, questions, corpus)
            for query_id, pattern in patterns:
                if match := pattern.search(text):
                    around = text[max(0, match.start() - 40) : match.end() + 40]
                    corpus.present_terms.append((query_id, document.document_id, " ".join(around.split())))
        yield document


def _note_code(text: str, questions: Sequence[Question], corpus: Corpus) -> None:
    found = [(question.id, at) for question in questions if (at := text.find(question.needle)) >= 0]
    if not found:
        return
    fenced = [(line.start, line.end) for line in iter_lines(text) if line.in_fence]
    corpus.in_code.update(
        question_id for question_id, at in found if any(start <= at < end for start, end in fenced)
    )


def _needle_valid(judged: QuestionSet) -> Found:
    for truth in judged.corpus.ground_truth:
        if not truth.valid:
            yield truth.question.id, truth.problem


def _needle_form(judged: QuestionSet) -> Found:
    limits = judged.limits
    for question in judged.questions:
        needle = question.needle
        if "\n" in needle:
            yield question.id, "the needle spans lines"
        if needle != needle.strip():
            yield question.id, "the needle begins or ends with white space"
        if not limits.shortest_needle <= len(needle) <= limits.longest_needle:
            yield (
                question.id,
                f"the needle has {len(needle)} characters; "
                f"{limits.shortest_needle} to {limits.longest_needle} are wanted",
            )


def _needle_repeated(judged: QuestionSet) -> Found:
    for question in judged.questions:
        times = judged.corpus.folded_counts[question.id]
        if times > 1:
            yield (
                question.id,
                f"the needle stands {times} times when case, spaces and punctuation are ignored",
            )


def _needle_in_code(judged: QuestionSet) -> Found:
    for question in judged.questions:
        if question.id in judged.corpus.in_code:
            yield question.id, "the needle stands in a code block"


def _phrasings(judged: QuestionSet) -> Found:
    for question in judged.questions:
        if len(question.queries) < judged.limits.phrasings:
            yield question.id, f"{len(question.queries)} phrasings; {judged.limits.phrasings} are wanted"


def _copied(judged: QuestionSet) -> Found:
    for question in judged.questions:
        for at, query in enumerate(question.queries):
            allowed = judged.limits.copied_later if at else judged.limits.copied_first
            copied = longest_copy(query, question.needle)
            if copied > allowed:
                yield question.id, f"query {at + 1} copies {copied} words in a row; {allowed} are allowed"


def _shared_words(judged: QuestionSet) -> Found:
    for question in judged.questions:
        answer = content_words(question.needle)
        for at, query in enumerate(question.queries[1:], start=2):
            asked = content_words(query)
            shared = asked & answer
            if asked and len(shared) / len(asked) > judged.limits.shared_later:
                words = ", ".join(sorted(shared))
                yield (
                    question.id,
                    f"query {at} shares {len(shared)} of its {len(asked)} content words with the needle "
                    f"({words})",
                )


def _both_domains(judged: QuestionSet) -> Found:
    asked = {
        query.strip().casefold(): question.id for question in judged.questions for query in question.queries
    }
    for stranger in judged.out_of_domain:
        if question_id := asked.get(stranger.query.strip().casefold()):
            yield stranger.id, f"the same query is asked by question {question_id}"


def _absent_terms(judged: QuestionSet) -> Found:
    for query_id, document_id, around in judged.corpus.present_terms:
        yield query_id, f"the corpus treats its subject: {document_id} has ... {around} ..."


def _documents_asked(judged: QuestionSet) -> Found:
    asked = {question.document for question in judged.questions}
    asked |= {place[0] for truth in judged.corpus.ground_truth for place in truth.occurrences}
    for document_id in judged.corpus.documents:
        if document_id not in asked:
            yield document_id, "no question asks about this document"


CHECKS: dict[str, QuestionCheck] = {
    check.name: check
    for check in (
        QuestionCheck(
            "needle_valid", "A needle stands once, in the named document, in no heading.", _needle_valid
        ),
        QuestionCheck("needle_form", "A needle is one line of a sentence's length, trimmed.", _needle_form),
        QuestionCheck(
            "needle_repeated", "No other spelling of the needle stands in the corpus.", _needle_repeated
        ),
        QuestionCheck("needle_in_code", "A needle is prose, not code.", _needle_in_code),
        QuestionCheck("phrasings", "Every question has enough phrasings.", _phrasings),
        QuestionCheck("copied", "No query copies a run of the needle's words.", _copied),
        QuestionCheck("shared_words", "Later phrasings use words of their own.", _shared_words),
        QuestionCheck("both_domains", "No out-of-domain query is a question's.", _both_domains),
        QuestionCheck(
            "absent_terms", "The corpus does not treat an out-of-domain query's subject.", _absent_terms
        ),
        QuestionCheck("documents_asked", "Every document is asked about.", _documents_asked),
    )
}
