"""Retrievers held against brute force: distances, scores, ties, fusion, and heads against full rankings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.storage import Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.encoder import SentenceTransformerEncoder, open_encoder
from rag_pipeline.index.builds import Build, list_builds
from rag_pipeline.lexical import BM25
from rag_pipeline.retrieval.rankers import (
    FUSION_DEPTH,
    RERANK_DEPTH,
    RETRIEVERS,
    QueryContext,
    Ranking,
)
from rag_pipeline.retrieval.reader import BuildReader
from rag_pipeline.settings import Settings

QUERIES = [
    "lever of the bell",
    "a rider on the kerb",
    "valve",
    "nothing known xyzzy",
    "saddle saddle saddle dock",
]


@pytest.fixture(scope="module")
def build(published_large: Settings) -> Build:
    (build,) = list_builds(Storage(published_large.storage_root))
    return build


@pytest.fixture(scope="module")
def reader(build: Build) -> Iterator[BuildReader]:
    opened = BuildReader(build)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Path) -> SentenceTransformerEncoder:
    return open_encoder(EmbeddingConfig(model=str(tiny_encoder)))


@pytest.fixture(scope="module")
def chunks(build: Build) -> list[dict[str, Any]]:
    return list(read_rows(build.table("chunks")))


@pytest.fixture
def context(reader: BuildReader, encoder: SentenceTransformerEncoder) -> Any:
    def make(query: str, **more: Any) -> QueryContext:
        return QueryContext(reader, query, lambda text: encoder.encode([text])[0], **more)

    return make


def distances_by_hand(build: Build, encoder: SentenceTransformerEncoder, query: str) -> NDArray[np.float64]:
    vectors = np.array(open_array(build.folder / "vectors.npy"), dtype=np.float64)
    vector = encoder.encode([query])[0].astype(np.float64)
    return np.array([1.0 - sum(a * b for a, b in zip(row, vector, strict=True)) for row in vectors])


def scores_by_hand(chunks: list[dict[str, Any]], query: str) -> NDArray[np.float64]:
    return BM25([chunk["text"] for chunk in chunks]).scores(query)


def same(ranking: Ranking, other: Ranking) -> bool:
    return all(
        np.array_equal(getattr(ranking, name), getattr(other, name))
        for name in ("rows", "scores", "distances")
    )


# -- each retriever against brute force ---------------------------------------------------------------------


def test_the_index_is_large_enough_to_tell(reader: BuildReader) -> None:
    assert reader.chunk_count == 183 > FUSION_DEPTH > RERANK_DEPTH


@pytest.mark.parametrize("query", QUERIES)
def test_dense_ranks_by_cosine_distance(
    build: Build, encoder: SentenceTransformerEncoder, chunks: list[dict[str, Any]], context: Any, query: str
) -> None:
    expected = distances_by_hand(build, encoder, query)
    ranking = RETRIEVERS["dense"].rank(context(query), None)
    assert sorted(ranking.rows) == list(range(183))
    assert ranking.distances == pytest.approx(expected[ranking.rows], abs=1.5e-6)
    assert ranking.scores == pytest.approx(1 - ranking.distances, abs=1e-12)
    keys = [(d, chunks[row]["chunk_id"]) for d, row in zip(ranking.distances, ranking.rows, strict=True)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("query", QUERIES)
def test_bm25_ranks_by_score_and_leaves_out_what_has_none(
    build: Build, encoder: SentenceTransformerEncoder, chunks: list[dict[str, Any]], context: Any, query: str
) -> None:
    expected = scores_by_hand(chunks, query)
    made = context(query)
    ranking = RETRIEVERS["bm25"].rank(made, None)
    assert set(ranking.rows) == set(np.flatnonzero(expected > 0))
    assert ranking.scores == pytest.approx(expected[ranking.rows], abs=1e-9)
    assert ranking.distances == pytest.approx(
        distances_by_hand(build, encoder, query)[ranking.rows], abs=1.5e-6
    ), "every hit carries its cosine distance"
    keys = [(-s, chunks[row]["chunk_id"]) for s, row in zip(ranking.scores, ranking.rows, strict=True)]
    assert keys == sorted(keys)
    assert [made.bm25_score(row) for row in range(183)] == pytest.approx(list(expected), abs=1e-9)


@pytest.mark.parametrize("query", QUERIES)
def test_hybrid_is_the_fusion_of_the_first_hundred(
    chunks: list[dict[str, Any]], context: Any, query: str
) -> None:
    lists = [RETRIEVERS[name].rank(context(query), None).rows[:100] for name in ("dense", "bm25")]
    expected: dict[int, float] = {}
    for rows in lists:
        for rank, row in enumerate(rows, start=1):
            expected[int(row)] = expected.get(int(row), 0.0) + 1 / (60 + rank)
    order = sorted(expected, key=lambda row: (-round(expected[row], 15), chunks[row]["chunk_id"]))
    ranking = RETRIEVERS["hybrid"].rank(context(query), None)
    assert ranking.rows.tolist() == order
    assert ranking.scores == pytest.approx([expected[row] for row in order], abs=1e-15)
    assert ranking.distances.tolist() == context(query).distances[order].tolist()


def test_a_query_without_a_known_word_is_ranked_by_distance_alone(context: Any) -> None:
    query = "xyzzy plugh"
    assert len(RETRIEVERS["bm25"].rank(context(query), None).rows) == 0
    dense, hybrid = (RETRIEVERS[name].rank(context(query), None) for name in ("dense", "hybrid"))
    assert hybrid.rows.tolist() == dense.rows[:100].tolist()


def test_ties_fall_by_chunk_id(chunks: list[dict[str, Any]], context: Any) -> None:
    same = [row for row, chunk in enumerate(chunks) if chunk["document_id"].startswith("copy-")]
    assert len({chunks[row]["text"] for row in same}) == 1
    by_id = sorted(same, key=lambda row: chunks[row]["chunk_id"])
    assert by_id != sorted(same), "else the order of the rows would pass for it"
    for mode in ("dense", "bm25", "hybrid"):
        for depth in (None, 183):
            ranking = RETRIEVERS[mode].rank(context("lever of the spare saddle"), depth)
            found = [int(row) for row in ranking.rows if row in same]
            assert found == by_id, mode
    # A head that ends within the tie keeps the first of them, not any of them.
    for depth in (1, 2):
        assert RETRIEVERS["bm25"].rank(context("spare"), depth).rows.tolist() == by_id[:depth]


# -- heads and filters --------------------------------------------------------------------------------------


@dataclass
class FakeReader:
    """A build of plain arrays; its postings are those of texts."""

    vectors: NDArray[np.float32]
    tie_ranks: NDArray[np.int64]
    texts: Sequence[str]

    def __post_init__(self) -> None:
        self.postings = BM25(self.texts).statistics
        self.stamp = {"bm25": {"tokenizer": "reference"}}
        self.chunk_count = len(self.texts)
        self.copies = self.tie_ranks
        self.has_copies = False


# Few directions and few words, so that most places are ties.
DIRECTIONS = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.6, 0.8)]
WORDS = ["pad", "lever", "bell", ""]
CORPORA = st.lists(st.tuples(st.sampled_from(DIRECTIONS), st.sampled_from(WORDS)), max_size=260)


@settings(deadline=None, max_examples=80)
@given(
    corpus=CORPORA,
    seed=st.integers(0, 5),
    depth=st.integers(1, 280),
    query=st.sampled_from(["pad", "pad lever", "bell bell", "none"]),
    mode=st.sampled_from(["dense", "bm25", "hybrid"]),
    filtered=st.booleans(),
)
def test_a_head_is_the_beginning_of_the_full_ranking(
    corpus: list[tuple[tuple[float, float], str]],
    seed: int,
    depth: int,
    query: str,
    mode: str,
    filtered: bool,
) -> None:
    chance = np.random.default_rng(seed)
    reader = FakeReader(
        vectors=np.array([d for d, _ in corpus], dtype=np.float32).reshape(-1, 2),
        tie_ranks=chance.permutation(len(corpus)).astype(np.int64),
        texts=[word for _, word in corpus],
    )
    allowed = chance.random(len(corpus)) < 0.5 if filtered else None
    made: Any = QueryContext(reader, query, lambda _: np.array([1, 0], np.float32), allowed=allowed)  # type: ignore[arg-type]
    full = RETRIEVERS[mode].rank(made, None)
    head = RETRIEVERS[mode].rank(made, depth)
    assert same(head, Ranking(full.rows[:depth], full.scores[:depth], full.distances[:depth]))
    assert len(set(full.rows.tolist())) == len(full.rows)
    if allowed is not None:
        assert allowed[full.rows].all()
    if mode == "dense":
        expected = sorted(
            (row for row in range(len(corpus)) if allowed is None or allowed[row]),
            key=lambda row: (round(1 - corpus[row][0][0], 6), reader.tie_ranks[row]),
        )
        assert full.rows.tolist() == expected


def test_a_filter_ranks_as_if_the_rest_were_not_there(chunks: list[dict[str, Any]], context: Any) -> None:
    allowed = np.array([chunk["document_id"] in ("d03.md", "copy-b.md") for chunk in chunks])
    for mode in ("dense", "bm25"):
        everything = RETRIEVERS[mode].rank(context("lever saddle"), None)
        some = RETRIEVERS[mode].rank(context("lever saddle", allowed=allowed), None)
        assert some.rows.tolist() == [row for row in everything.rows if allowed[row]]
    nothing = context("lever saddle", allowed=np.zeros(len(chunks), dtype=bool))
    for mode in ("dense", "bm25", "hybrid"):
        assert len(RETRIEVERS[mode].rank(nothing, 4).rows) == 0


def test_distances_are_compared_to_six_decimals() -> None:
    """Float noise between batches and machines must not reorder chunks."""
    noise = np.float32(1 - 2e-7)
    reader: Any = FakeReader(
        vectors=np.array([[noise, 0], [1, 0], [-1.0000001, 0]], dtype=np.float32),
        tie_ranks=np.array([0, 1, 2]),
        texts=["", "", ""],
    )
    ranking = RETRIEVERS["dense"].rank(
        QueryContext(reader, "q", lambda _: np.array([1, 0], np.float32)), None
    )
    assert ranking.rows.tolist() == [0, 1, 2]
    assert ranking.distances.tolist() == [0.0, 0.0, 2.0], "and lie within [0, 2]"


# -- re-ranking ---------------------------------------------------------------------------------------------


class Alphabetical:
    """A re-ranker that likes texts late in the alphabet, and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float64]:
        self.shown = list(passages)
        order = sorted(set(passages))
        return np.array([order.index(passage) for passage in passages], dtype=np.float64)


def test_reranking_reorders_the_first_of_hybrid_and_leaves_the_rest(
    chunks: list[dict[str, Any]], context: Any
) -> None:
    reranker = Alphabetical()
    query = "lever of the spare saddle"
    hybrid = RETRIEVERS["hybrid"].rank(context(query), None)
    ranking = RETRIEVERS["reranked"].rank(context(query, reranker=reranker), None)
    shortlist = hybrid.rows[:25].tolist()
    assert reranker.shown == [chunks[row]["text"] for row in shortlist], "header and passage, as embedded"
    expected = sorted(shortlist, key=lambda row: chunks[row]["chunk_id"])
    expected.sort(key=lambda row: chunks[row]["text"], reverse=True)
    assert ranking.rows[:25].tolist() == expected
    assert ranking.rows[25:].tolist() == hybrid.rows[25:].tolist()
    assert np.isfinite(ranking.scores[:25]).all()
    assert np.isneginf(ranking.scores[25:]).all(), "the cross-encoder gave them none"
    assert ranking.distances.tolist() == context(query).distances[ranking.rows].tolist()
    head = RETRIEVERS["reranked"].rank(context(query, reranker=reranker), 30)
    assert same(head, Ranking(ranking.rows[:30], ranking.scores[:30], ranking.distances[:30]))


def test_reranking_nothing(context: Any, chunks: list[dict[str, Any]]) -> None:
    reranker = Alphabetical()
    nothing = context("lever", reranker=reranker, allowed=np.zeros(len(chunks), dtype=bool))
    assert len(RETRIEVERS["reranked"].rank(nothing, None).rows) == 0
    assert reranker.shown == []


def test_reranking_without_a_cross_encoder(context: Any) -> None:
    with pytest.raises(ValueError, match=r"mode 'reranked' needs retrieval\.reranker"):
        RETRIEVERS["reranked"].rank(context("lever"), 4)


# -- the registry -------------------------------------------------------------------------------------------


def test_retrievers_are_declared() -> None:
    assert list(RETRIEVERS) == ["dense", "bm25", "hybrid", "reranked"]
    assert all(retriever.name == name and retriever.description for name, retriever in RETRIEVERS.items())
    assert [r.uses_bm25 for r in RETRIEVERS.values()] == [False, True, True, True]
    assert [r.needs_reranker for r in RETRIEVERS.values()] == [False, False, False, True]


def test_a_query_is_encoded_once_for_all_retrievers(
    reader: BuildReader, encoder: SentenceTransformerEncoder
) -> None:
    asked: list[str] = []

    def encode(text: str) -> NDArray[np.float32]:
        asked.append(text)
        return encoder.encode([text])[0]

    made = QueryContext(reader, "lever", encode, reranker=Alphabetical())
    for retriever in RETRIEVERS.values():
        retriever.rank(made, 4)
    assert asked == ["lever"]
    other = replace(made, query="bell")
    RETRIEVERS["dense"].rank(other, 4)
    assert asked == ["lever", "bell"], "nothing is carried over to another query"
