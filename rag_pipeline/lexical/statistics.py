"""BM25's statistics as plain arrays, and scoring from those arrays alone.

The arrays are an inverted index in compressed sparse row form: the postings of term `i` are rows
`posting_offsets[i]` to `posting_offsets[i + 1]` of `posting_rows` and `posting_frequencies`. They may be
memory maps: a query touches the postings of its own terms and one float a document, nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class PostingLists(Protocol):
    """What scoring reads. `BM25Statistics` has it; so may a view of stored tables."""

    @property
    def terms(self) -> Sequence[str]:
        """Distinct terms in code point order."""

    @property
    def inverse_document_frequency(self) -> NDArray[np.floating]:
        """Weight of each term, [T]."""

    @property
    def posting_offsets(self) -> NDArray[np.integer]:
        """First posting of each term and the number of postings, [T + 1]."""

    @property
    def posting_rows(self) -> NDArray[np.integer]:
        """Document row of each posting, ascending within a term, [P]."""

    @property
    def posting_frequencies(self) -> NDArray[np.integer]:
        """Times the term occurs in that document, at least 1, [P]."""

    @property
    def lengths(self) -> NDArray[np.integer]:
        """Tokens of each document, [N]."""

    @property
    def average_length(self) -> float:
        """Mean of `lengths`; 0 without documents."""

    @property
    def k1(self) -> float:
        """Term frequency saturation, at least 0."""

    @property
    def b(self) -> float:
        """Length normalisation, 0 to 1."""


@dataclass(frozen=True, eq=False)
class BM25Statistics:
    """Everything BM25 knows of a corpus of N documents with T terms and P postings (see `PostingLists`)."""

    terms: Sequence[str]
    document_frequency: NDArray[np.int64]
    inverse_document_frequency: NDArray[np.float64]
    posting_offsets: NDArray[np.int64]
    posting_rows: NDArray[np.int32]
    posting_frequencies: NDArray[np.int32]
    lengths: NDArray[np.int32]
    average_length: float
    k1: float
    b: float

    @property
    def documents(self) -> int:
        """N, the number of documents."""
        return len(self.lengths)


def inverse_document_frequency(
    document_frequency: NDArray[np.integer], documents: int
) -> NDArray[np.float64]:
    """Return `ln(1 + (N - n + 0.5) / (n + 0.5))` of each term, always positive (SPEC 3.6; Lucene's BM25)."""
    n = np.asarray(document_frequency, dtype=np.float64)
    return np.asarray(np.log1p((documents - n + 0.5) / (n + 0.5)))


def score(statistics: PostingLists, query_tokens: Iterable[str]) -> NDArray[np.float64]:
    """Return the BM25 score of every document, float64 [N]; 0 where no query term occurs.

    The sum over the query's terms, repeats counted each time, of
    `idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / average_length))`
    (Robertson and Zaragoza 2009, The Probabilistic Relevance Framework, with Lucene's idf). Only the postings
    of the query's terms are read.
    """
    scores = np.zeros(len(statistics.lengths), dtype=np.float64)
    k1, b = statistics.k1, statistics.b
    for term, repeats in _query_terms(statistics.terms, query_tokens):
        start, end = int(statistics.posting_offsets[term]), int(statistics.posting_offsets[term + 1])
        rows = statistics.posting_rows[start:end]
        frequencies = statistics.posting_frequencies[start:end].astype(np.float64)
        # A posting means a token, so the average length is above 0, and f is at least 1.
        relative_lengths = statistics.lengths[rows] / statistics.average_length
        saturated = frequencies * (k1 + 1) / (frequencies + k1 * (1 - b + b * relative_lengths))
        # A document occurs once in a term's postings, so adding by index loses nothing.
        scores[rows] += repeats * float(statistics.inverse_document_frequency[term]) * saturated
    return scores


def candidates(
    statistics: PostingLists, query_tokens: Iterable[str]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows with a positive score, ascending, int64 [M], and their scores, float64 [M].

    Only positive scores are ranked: a document without any of the query's terms is no result.
    """
    scores = score(statistics, query_tokens)
    rows = np.flatnonzero(scores > 0)
    return rows, scores[rows]


def _query_terms(terms: Sequence[str], query_tokens: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield (term number, times in the query) of the known terms in the order of their first occurrence."""
    for token, repeats in Counter(query_tokens).items():
        position = bisect_left(terms, token)
        if position < len(terms) and terms[position] == token:
            yield position, repeats
