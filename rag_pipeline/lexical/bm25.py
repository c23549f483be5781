"""BM25 over a list of texts: rank-bm25's `BM25Okapi` with our weighting and an inverted index."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from rag_pipeline.lexical.statistics import BM25Statistics, candidates, inverse_document_frequency, score
from rag_pipeline.lexical.tokenizer import Tokenizer, get_tokenizer

# Raised with every change that gives another score for the same tokens and parameters.
BM25_VERSION = "1"

_Document = TypeVar("_Document")


class BM25(BM25Okapi):
    """BM25 statistics and scores of a corpus (SPEC 3.6).

    Three things differ from the base class. Its idf floors negative values and lacks the `1 +`; ours is
    `ln(1 + (N - n + 0.5) / (n + 0.5))`. Its scores walk every document for each query term; ours read the
    term's postings. It keeps one dictionary a document (`doc_freqs`); here stands an inverted index,
    `statistics`.

    `texts` is read once and may be a generator. Raises `ValueError` for an unknown tokenizer, `k1` below 0 or
    `b` outside 0 to 1.
    """

    corpus_size: int
    avgdl: float
    statistics: BM25Statistics

    def __init__(
        self, texts: Iterable[str], k1: float = 1.2, b: float = 0.75, tokenizer: str | Tokenizer = "unicode"
    ) -> None:
        if not (k1 >= 0 and np.isfinite(k1)):
            raise ValueError(f"k1 is {k1!r}; it must be a finite number of 0 or more")
        if not 0 <= b <= 1:
            raise ValueError(f"b is {b!r}; it must lie between 0 and 1")
        if isinstance(texts, str):
            raise ValueError("texts is one string; BM25 takes a sequence of texts")
        chosen = get_tokenizer(tokenizer)
        # The base class would hand a tokenizer to a pool of processes, with the whole corpus in memory.
        super().__init__((chosen(text) for text in texts), tokenizer=None, k1=float(k1), b=float(b))
        self.tokenizer = chosen

    def scores(self, query: str) -> NDArray[np.float64]:
        """Return the score of every text for the query, float64 [N], in the texts' order."""
        return self.get_scores(self.tokenizer(query))

    def candidates(self, query: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows with a positive score, ascending, int64 [M], and their scores, float64 [M]."""
        return candidates(self.statistics, self.tokenizer(query))

    def get_scores(self, query: Iterable[str]) -> NDArray[np.float64]:
        """Return the score of every text for a query's tokens, float64 [N] (the base class's interface)."""
        return score(self.statistics, query)

    def get_batch_scores(self, query: Iterable[str], doc_ids: Sequence[int]) -> list[float]:
        """Return the scores of the texts at `doc_ids` for a query's tokens."""
        batch: list[float] = self.get_scores(query)[np.asarray(doc_ids, dtype=np.int64)].tolist()
        return batch

    def get_top_n(self, query: Iterable[str], documents: Sequence[_Document], n: int = 5) -> list[_Document]:
        """Return those of `documents` with the best positive scores, at most `n`, ties in their own order.

        Raises `ValueError` when `documents` is not as long as the corpus.
        """
        if len(documents) != self.corpus_size:
            raise ValueError(f"{len(documents)} documents were given for a corpus of {self.corpus_size}")
        rows, scores = candidates(self.statistics, query)
        return [documents[row] for row in rows[np.argsort(-scores, kind="stable")][:n]]

    def _initialize(self, corpus: Iterable[list[str]]) -> Mapping[str, Any]:
        """Count terms document by document into flat arrays (the base class's hook)."""
        # Not kept, and an empty list would be read as a corpus without words.
        del self.doc_freqs
        numbers: dict[str, int] = {}
        term_numbers, frequencies = array("i"), array("i")
        lengths, distinct = array("i"), array("i")
        for tokens in corpus:
            counts = Counter(tokens)
            term_numbers.extend([numbers.setdefault(term, len(numbers)) for term in counts])
            frequencies.extend(counts.values())
            lengths.append(len(tokens))
            distinct.append(len(counts))

        self.doc_len = np.frombuffer(lengths, dtype=np.int32)
        self.corpus_size = len(lengths)
        self.avgdl = float(self.doc_len.mean()) if lengths else 0.0

        terms = sorted(numbers)
        in_term_order = np.empty(len(terms), dtype=np.int32)
        in_term_order[[numbers[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
        term_of_posting = in_term_order[np.frombuffer(term_numbers, dtype=np.int32)]
        document_frequency = np.bincount(term_of_posting, minlength=len(terms)).astype(np.int64)
        # Stable: the postings stand in the documents' order, and so they do within each term.
        order = np.argsort(term_of_posting, kind="stable")
        rows = np.repeat(np.arange(self.corpus_size, dtype=np.int32), np.frombuffer(distinct, dtype=np.int32))
        self.statistics = BM25Statistics(
            terms=terms,
            document_frequency=document_frequency,
            inverse_document_frequency=inverse_document_frequency(document_frequency, self.corpus_size),
            posting_offsets=np.concatenate([[0], np.cumsum(document_frequency)]).astype(np.int64),
            posting_rows=rows[order],
            posting_frequencies=np.frombuffer(frequencies, dtype=np.int32)[order],
            lengths=self.doc_len,
            average_length=self.avgdl,
            k1=self.k1,
            b=self.b,
        )
        return dict(zip(terms, document_frequency.tolist(), strict=True))

    def _calc_idf(self, nd: Mapping[str, Any]) -> None:
        """Fill `idf`, the base class's dictionary of weights, from the statistics."""
        weights = self.statistics.inverse_document_frequency
        self.idf = dict(zip(nd, weights.tolist(), strict=True))
        self.average_idf = float(weights.mean()) if len(weights) else 0.0
