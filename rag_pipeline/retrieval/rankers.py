"""Retrievers: each ranks the chunks of an open build for a query. Declared objects in a registry.

A ranking is taken before any threshold. Distances are rounded to six decimals before they are compared, so that
float noise between machines and batch shapes cannot reorder chunks; ties fall by chunk id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.lexical import candidates, get_tokenizer
from rag_pipeline.retrieval.fusion import reciprocal_rank_fusion
from rag_pipeline.retrieval.reader import BuildReader

FUSION_DEPTH = 100
"""How much of each list the fusion joins."""
RERANK_DEPTH = 25
"""How much of the hybrid ranking a cross-encoder re-ranks."""
_DECIMALS = 6


@dataclass(frozen=True)
class Ranking:
    """A retriever's ranking, best first: rows of the chunk table, the score it ranked by, cosine distances."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    distances: NDArray[np.float64]


class Reranker(Protocol):
    """Scores passages against a query; higher is better."""

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float64]:
        """Return one score a passage."""


@dataclass
class QueryContext:
    """One query against one build; what several retrievers need is computed once.

    `allowed` restricts every ranking to some rows (search filters); None allows all.
    """

    reader: BuildReader
    query: str
    encode: Callable[[str], NDArray[np.float32]]
    reranker: Reranker | None = None
    allowed: NDArray[np.bool_] | None = field(default=None)

    @cached_property
    def distances(self) -> NDArray[np.float64]:
        """Cosine distance of every chunk, [N]: on unit vectors 1 - dot product, in [0, 2]."""
        vector = self.encode(self.query)
        if not self.reader.chunk_count:
            return np.zeros(0)
        dots = (self.reader.vectors @ vector).astype(np.float64)
        return np.clip(np.round(1.0 - dots, _DECIMALS), 0.0, 2.0)

    @cached_property
    def lexical(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows with a positive BM25 score, ascending, and their scores."""
        tokens = get_tokenizer(str(self.reader.stamp["bm25"]["tokenizer"]))(self.query)
        rows, scores = candidates(self.reader.postings, tokens)
        if self.allowed is not None:
            keep = self.allowed[rows]
            rows, scores = rows[keep], scores[keep]
        return rows, scores

    @cached_property
    def allowed_rows(self) -> NDArray[np.int64]:
        """Rows that may be ranked."""
        if self.allowed is None:
            return np.arange(self.reader.chunk_count, dtype=np.int64)
        return np.flatnonzero(self.allowed)

    def copies_of(self, row: int) -> list[int]:
        """Return the rows of the same place in identical documents that may be ranked, the row itself left out."""
        found = self.reader.copies_of(row)
        return found if self.allowed is None else [copy for copy in found if self.allowed[copy]]

    def bm25_score(self, row: int) -> float:
        """Return one chunk's BM25 score, 0 where it holds no query term."""
        rows, scores = self.lexical
        at = int(np.searchsorted(rows, row))
        return float(scores[at]) if at < len(rows) and rows[at] == row else 0.0


Rank = Callable[[QueryContext, int | None], Ranking]


@dataclass(frozen=True)
class Retriever:
    """A way of ranking: its name, what it does, and which scores it computes.

    `rank(context, depth)` returns the first `depth` chunks, or the full ranking where depth is None.
    """

    name: str
    description: str
    rank: Rank
    uses_bm25: bool
    needs_reranker: bool = False


def _head(keys: NDArray[np.float64], ties: NDArray[np.int64], depth: int | None) -> NDArray[np.int64]:
    """Return positions of the `depth` smallest keys in order, ties by the second array; all where depth is None."""
    if depth is not None and 0 < depth < len(keys):
        # Everything that ties with the last place stays in, so that the tie-break decides, not the partition.
        cut = np.partition(keys, depth - 1)[depth - 1]
        some = np.flatnonzero(keys <= cut)
        return some[np.lexsort((ties[some], keys[some]))][:depth]
    order = np.lexsort((ties, keys))
    return order if depth is None else order[:depth]


def _ranked(
    context: QueryContext, rows: NDArray[np.int64], keys: NDArray[np.float64], depth: int | None
) -> NDArray[np.int64]:
    """Return positions of `rows` by rising key, the same place of identical documents once, at most `depth`."""
    ties = context.reader.tie_ranks[rows]
    if not context.reader.has_copies:
        return _head(keys, ties, depth)
    order = _head(keys, ties, None)
    _, first = np.unique(context.reader.copies[rows[order]], return_index=True)
    return order[np.sort(first)][:depth]


def _dense(context: QueryContext, depth: int | None) -> Ranking:
    allowed = context.allowed_rows
    distances = context.distances[allowed]
    order = _ranked(context, allowed, distances, depth)
    return Ranking(allowed[order], 1.0 - distances[order], distances[order])


def _bm25(context: QueryContext, depth: int | None) -> Ranking:
    rows, scores = context.lexical
    order = _ranked(context, rows, -scores, depth)
    return Ranking(rows[order], scores[order], context.distances[rows[order]])


def _hybrid(context: QueryContext, depth: int | None) -> Ranking:
    lists = [rank(context, FUSION_DEPTH).rows for rank in (_dense, _bm25)]
    # Fusion breaks ties by id: tie ranks stand in for the chunk ids, whose order they have, and the least of them
    # for the same place of identical documents.
    ids = context.reader.copies
    row_of: dict[int, int] = {}
    for row in (int(row) for rows in lists for row in rows):
        row_of.setdefault(int(ids[row]), row)
    fused = reciprocal_rank_fusion([[int(i) for i in ids[rows]] for rows in lists])[:depth]
    rows = np.array([row_of[tie] for tie, _ in fused], dtype=np.int64)
    scores = np.array([score for _, score in fused], dtype=np.float64)
    return Ranking(rows, scores, context.distances[rows])


def _reranked(context: QueryContext, depth: int | None) -> Ranking:
    if context.reranker is None:
        raise ValueError("mode 'reranked' needs retrieval.reranker")
    hybrid = _hybrid(context, None)
    head = hybrid.rows[:RERANK_DEPTH]
    texts = [chunk.text for chunk in context.reader.chunks(head.tolist())]
    scores = (
        np.asarray(context.reranker.scores(context.query, texts), dtype=np.float64) if texts else np.zeros(0)
    )
    order = _head(-scores, context.reader.tie_ranks[head], None)
    # The rest keeps the hybrid's order below the shortlist; its scores are not the cross-encoder's.
    rows = np.concatenate([head[order], hybrid.rows[RERANK_DEPTH:]])
    tail = np.full(len(hybrid.rows) - len(head), -np.inf)
    ranking = Ranking(rows, np.concatenate([scores[order], tail]), context.distances[rows])
    return Ranking(ranking.rows[:depth], ranking.scores[:depth], ranking.distances[:depth])


RETRIEVERS: dict[str, Retriever] = {
    r.name: r
    for r in (
        Retriever("dense", "cosine distance of the query's and the chunk's vector", _dense, uses_bm25=False),
        Retriever(
            "bm25", "BM25 over the chunks' texts; only positive scores are ranked", _bm25, uses_bm25=True
        ),
        Retriever(
            "hybrid",
            f"reciprocal rank fusion of the first {FUSION_DEPTH} of dense and bm25",
            _hybrid,
            uses_bm25=True,
        ),
        Retriever(
            "reranked",
            f"a cross-encoder over the first {RERANK_DEPTH} of hybrid",
            _reranked,
            uses_bm25=True,
            needs_reranker=True,
        ),
    )
}
