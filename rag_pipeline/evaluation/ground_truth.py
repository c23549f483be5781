"""Checks the questions against the corpus: a needle stands once, in the named document, in no heading.

Documents are streamed once; what is kept is a digest a document and the places of needles.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_pipeline.documents.markdown_structure import headings
from rag_pipeline.evaluation.protocols import SourceText
from rag_pipeline.evaluation.questions import Question

_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class GroundTruth:
    """A question and what became of its needle.

    `valid`: the needle stands exactly once in the corpus (identical copies of a document count once), in the
    named document or a copy of it, and in no heading line. `problem` says in words why not ('' where valid).
    `in_source`: the named document holds it at least in its folded raw text, or could not be read at all.
    `in_canonical`: the named document's canonical text holds it verbatim. `occurrences` are all its places in
    the corpus as (document id, start, end), copies included, sorted.
    """

    question: Question
    valid: bool
    problem: str
    in_source: bool
    in_canonical: bool
    occurrences: tuple[tuple[str, int, int], ...]

    @property
    def lost_in_extraction(self) -> bool:
        """Whether the source has the needle and the canonical text has not."""
        return self.in_source and not self.in_canonical

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back."""
        return {
            "id": self.question.id,
            "needle": self.question.needle,
            "document": self.question.document,
            "queries": list(self.question.queries),
            "valid": self.valid,
            "problem": self.problem,
            "in_source": self.in_source,
            "in_canonical": self.in_canonical,
            "occurrences": [list(place) for place in self.occurrences],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GroundTruth:
        """Return what `to_json` wrote."""
        return cls(
            question=Question(data["id"], data["needle"], data["document"], tuple(data["queries"])),
            valid=data["valid"],
            problem=data["problem"],
            in_source=data["in_source"],
            in_canonical=data["in_canonical"],
            occurrences=tuple((document, start, end) for document, start, end in data["occurrences"]),
        )


def fold(text: str) -> str:
    """Return the text's letters and digits alone, NFKC-normalised and case-folded.

    Two extractions of the same sentence agree in this form whatever became of its spaces, hyphens, ligatures
    and quotation marks.
    """
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _NOT_ALPHANUMERIC.sub("", normal)


def check_ground_truth(questions: Sequence[Question], documents: Iterable[SourceText]) -> list[GroundTruth]:
    """Return one `GroundTruth` a question, in the questions' order.

    `documents` is read once, one document at a time; every document of the source belongs in it, whatever its
    state, since a failed one may be the reason why a needle is missing.
    """
    searches = [_Search(question, fold(question.needle)) for question in questions]
    named: dict[str, list[_Search]] = {}
    for search in searches:
        named.setdefault(search.question.document, []).append(search)
    texts: dict[bytes, list[_Search]] = {}
    for document in documents:
        digest = (
            hashlib.sha256(document.text.encode("utf-8", "surrogatepass")).digest() if document.text else b""
        )
        if digest and digest not in texts:
            texts[digest] = _find_all(searches, digest, document.text)
        for search in texts.get(digest, ()):
            search.found[digest].documents.append(document.document_id)
        if document.document_id in named:
            _look_into_named(document, digest, named[document.document_id])
    return [search.conclude() for search in searches]


@dataclass
class _Found:
    """The places of a needle in one canonical text, and the documents that have this text."""

    starts: list[int]
    in_heading: bool
    documents: list[str] = field(default_factory=list)


@dataclass
class _Named:
    """What the document that a question names had to say about its needle."""

    digest: bytes
    state: str
    unread: bool
    folded_in_raw: bool
    folded_in_text: bool


@dataclass
class _Search:
    """The search for one question's needle, gathered while documents pass by."""

    question: Question
    folded: str
    found: dict[bytes, _Found] = field(default_factory=dict)
    named: _Named | None = None

    @property
    def in_canonical(self) -> bool:
        return self.named is not None and self.named.digest in self.found

    @property
    def in_source(self) -> bool:
        return self.in_canonical or (
            self.named is not None
            and (self.named.unread or self.named.folded_in_raw or self.named.folded_in_text)
        )

    @property
    def times(self) -> int:
        return sum(len(found.starts) for found in self.found.values())

    @property
    def places(self) -> tuple[tuple[str, int, int], ...]:
        length = len(self.question.needle)
        return tuple(
            sorted(
                (document, start, start + length)
                for found in self.found.values()
                for document in found.documents
                for start in found.starts
            )
        )

    @property
    def elsewhere(self) -> str:
        others = sorted({document for document, _, _ in self.places})
        return f"; it stands in {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" if others else ""

    def conclude(self) -> GroundTruth:
        problem = next((words(self) for applies, words in _PROBLEMS if applies(self)), "")
        return GroundTruth(
            self.question, not problem, problem, self.in_source, self.in_canonical, self.places
        )


# What can be wrong with a needle: the first that applies is reported.
_PROBLEMS: tuple[tuple[Callable[[_Search], bool], Callable[[_Search], str]], ...] = (
    (
        lambda search: search.named is None,
        lambda search: (
            f"the named document {search.question.document} is not in the source{search.elsewhere}"
        ),
    ),
    (
        lambda search: not search.in_source,
        lambda search: (
            f"the needle is not in the named document {search.question.document}, not even when case, "
            f"spaces and punctuation are ignored{search.elsewhere}"
        ),
    ),
    (
        lambda search: not search.in_canonical,
        lambda search: _lost(search),
    ),
    (
        lambda search: search.times > 1,
        lambda search: (
            f"the needle must stand once in the corpus and stands {search.times} times{search.elsewhere}"
        ),
    ),
    (
        lambda search: any(found.in_heading for found in search.found.values()),
        lambda search: f"the needle is, or touches, a heading line of {search.question.document}",
    ),
)


def _lost(search: _Search) -> str:
    named = search.named
    assert named is not None
    document = search.question.document
    if named.folded_in_text:
        return (
            f"the needle is in the canonical text of {document} only when case, spaces and punctuation are "
            "ignored: copy it verbatim from the canonical text, or repair the extraction"
        )
    if named.state != "indexed":
        return f"lost in extraction: {document} is {named.state}, its text is not in the index"
    if named.unread:
        return (
            f"lost in extraction: the canonical text of {document} misses the needle, and there is no raw "
            "text to compare it with"
        )
    return f"lost in extraction: the file {document} holds the needle, its canonical text does not"


def _find_all(searches: Sequence[_Search], digest: bytes, text: str) -> list[_Search]:
    """Record every place of every needle in a text, and return the searches that had one."""
    hits: list[_Search] = []
    lines: list[tuple[int, int]] | None = None
    for search in searches:
        starts = _starts(text, search.question.needle)
        if not starts:
            continue
        if lines is None:
            lines = [(heading.start, heading.end) for heading in headings(text)]
        length = len(search.question.needle)
        in_heading = any(start < end and begin < start + length for start in starts for begin, end in lines)
        search.found[digest] = _Found(starts, in_heading)
        hits.append(search)
    return hits


def _starts(text: str, needle: str) -> list[int]:
    starts: list[int] = []
    at = text.find(needle)
    while at >= 0:
        starts.append(at)
        at = text.find(needle, at + 1)
    return starts


def _look_into_named(document: SourceText, digest: bytes, searches: Sequence[_Search]) -> None:
    # Folding costs as much as reading; only a needle that the canonical text misses needs it.
    missing = any(digest not in search.found for search in searches)
    raw = fold(document.raw_text or "") if missing else ""
    text = fold(document.text) if missing else ""
    for search in searches:
        search.named = _Named(
            digest=digest,
            state=document.state,
            unread=missing and not raw,
            folded_in_raw=bool(search.folded) and search.folded in raw,
            folded_in_text=bool(search.folded) and search.folded in text,
        )
