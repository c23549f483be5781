from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from rag_pipeline.lexical import BM25, BM25Statistics, Tokenizer, candidates, score
from rag_pipeline.lexical.config import BM25Config

words = st.sampled_from(["a", "b", "c", "d", "漢字", "é"])
texts = st.lists(st.lists(words, max_size=8).map(" ".join), max_size=12)
queries = st.lists(st.one_of(words, st.just("unknown")), max_size=6).map(" ".join)
parameters = st.tuples(st.floats(0, 3), st.floats(0, 1))


def formula(corpus: list[str], query: str, k1: float, b: float) -> list[float]:
    """SPEC 3.6 in plain Python, for texts whose tokens are their words."""
    documents = [text.split() for text in corpus]
    n = len(documents)
    average = sum(map(len, documents)) / n if n else 0.0
    result = []
    for document in documents:
        counts, total = Counter(document), 0.0
        for term in query.split():
            f = counts[term]
            if not f:
                continue
            holding = sum(term in other for other in documents)
            idf = math.log(1 + (n - holding + 0.5) / (holding + 0.5))
            total += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * len(document) / average))
        result.append(total)
    return result


def test_scores_by_hand() -> None:
    # N = 3, lengths 3, 1, 2, average 2. "brake" stands in two texts, twice in the first; "pad" in one.
    bm25 = BM25(["brake brake pad", "brake", "tyre valve"])
    idf_brake = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    idf_pad = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    first = idf_brake * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2))
    first += idf_pad * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 2))
    second = idf_brake * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / 2))
    scores = bm25.scores("Brake pad!")
    assert scores.dtype == np.float64
    assert scores == pytest.approx([first, second, 0.0], abs=1e-9)


@given(texts, queries, parameters)
@settings(deadline=None, max_examples=300)
def test_agrees_with_the_formula(corpus: list[str], query: str, k1_b: tuple[float, float]) -> None:
    k1, b = k1_b
    scores = BM25(corpus, k1, b).scores(query)
    assert scores.shape == (len(corpus),)
    assert scores.tolist() == pytest.approx(formula(corpus, query, k1, b), abs=1e-9)


@given(texts.filter(any), queries, parameters)
@settings(deadline=None, max_examples=100)
def test_agrees_with_the_base_class_given_our_idf(
    corpus: list[str], query: str, k1_b: tuple[float, float]
) -> None:
    k1, b = k1_b
    ours = BM25(corpus, k1, b)
    base = BM25Okapi([text.split() for text in corpus], k1=k1, b=b)
    base.idf = ours.idf
    if k1 == 0 or b == 1:
        return  # The base class divides 0 by 0 for texts without the term.
    assert ours.scores(query).tolist() == pytest.approx(base.get_scores(query.split()).tolist(), abs=1e-9)
    rows = list(range(len(corpus)))[::-1]
    assert ours.get_batch_scores(query.split(), rows) == pytest.approx(
        base.get_batch_scores(query.split(), rows), abs=1e-9
    )


def test_idf_is_positive_for_a_term_in_every_text() -> None:
    bm25 = BM25(["a", "a", "a b"])
    assert bm25.idf["a"] == pytest.approx(math.log(1 + 0.5 / 3.5), abs=1e-12)
    assert all(weight > 0 for weight in bm25.idf.values())
    assert BM25Okapi([["a"], ["a"], ["a", "b"]]).idf["a"] != pytest.approx(bm25.idf["a"])


def test_repeated_query_terms_count_each_time() -> None:
    bm25 = BM25(["a b", "b c"])
    assert bm25.scores("a a b") == pytest.approx(2 * bm25.scores("a") + bm25.scores("b"), abs=1e-12)


@pytest.mark.parametrize("query", ["", "unknown", "?!"])
def test_a_query_without_known_terms_scores_0(query: str) -> None:
    assert BM25(["a", "b"]).scores(query).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("corpus", [[], [""], ["", "!?"]])
def test_a_corpus_without_words(corpus: list[str]) -> None:
    bm25 = BM25(corpus)
    assert bm25.scores("a").tolist() == [0.0] * len(corpus)
    assert bm25.get_top_n(["a"], corpus) == []
    assert (bm25.avgdl, bm25.idf, bm25.average_idf) == (0.0, {}, 0.0)


def test_empty_texts_count_as_documents() -> None:
    assert BM25(["a", "", ""]).scores("a").tolist() == pytest.approx(formula(["a", "", ""], "a", 1.2, 0.75))


def test_k1_0_is_presence_and_weight() -> None:
    bm25 = BM25(["a a a", "a", "b"], k1=0)
    assert bm25.scores("a").tolist() == pytest.approx([bm25.idf["a"], bm25.idf["a"], 0.0])


def test_texts_may_be_a_generator_and_tokenizers_an_object() -> None:
    commas = Tokenizer("commas", "1", "cut at commas", lambda text: text.split(","))
    bm25 = BM25((text for text in ["x y,z", "z"]), tokenizer=commas)
    assert (bm25.scores("x y") > 0).tolist() == [True, False]


def test_the_tokenizer_cuts_texts_and_queries() -> None:
    assert BM25(["東京都"], tokenizer="unicode").scores("京都")[0] > 0
    assert BM25(["東京都"], tokenizer="reference").scores("京都")[0] == 0


def test_top_n_ranks_positive_scores_with_ties_in_order() -> None:
    documents = ["b", "a", "c", "a", "a a"]
    assert BM25(documents).get_top_n(["a"], [0, 1, 2, 3, 4], n=5) == [4, 1, 3]
    assert BM25(documents).get_top_n(["a"], [0, 1, 2, 3, 4], n=2) == [4, 1]
    with pytest.raises(ValueError, match="2 documents were given for a corpus of 5"):
        BM25(documents).get_top_n(["a"], ["b", "a"])


@given(texts, queries)
@settings(deadline=None, max_examples=100)
def test_candidates_are_the_positive_scores(corpus: list[str], query: str) -> None:
    bm25 = BM25(corpus)
    scores = bm25.scores(query)
    rows, positive = bm25.candidates(query)
    assert rows.tolist() == [row for row, value in enumerate(scores) if value > 0]
    assert positive.tolist() == scores[rows].tolist()


def test_statistics_by_hand() -> None:
    statistics = BM25(["b a b", "", "c a"]).statistics
    assert statistics.terms == ["a", "b", "c"]
    assert statistics.document_frequency.tolist() == [2, 1, 1]
    assert statistics.posting_offsets.tolist() == [0, 2, 3, 4]
    assert statistics.posting_rows.tolist() == [0, 2, 0, 2]
    assert statistics.posting_frequencies.tolist() == [1, 1, 2, 1]
    assert statistics.lengths.tolist() == [3, 0, 2]
    assert statistics.average_length == pytest.approx(5 / 3)
    assert (statistics.documents, statistics.k1, statistics.b) == (3, 1.2, 0.75)


def test_terms_stand_in_code_point_order() -> None:
    statistics = BM25(["é z 𝔸x 漢 10 9", "ÿ"]).statistics
    assert statistics.terms == sorted(statistics.terms)
    assert statistics.terms[:2] == ["10", "9"]


def test_memory_mapped_arrays_score_the_same(tmp_path: Path) -> None:
    corpus = ["brake pad", "brake brake", "tyre", ""]
    bm25 = BM25(corpus)
    mapped = {}
    for name in (
        "document_frequency",
        "inverse_document_frequency",
        "posting_offsets",
        "posting_rows",
        "posting_frequencies",
        "lengths",
    ):
        np.save(tmp_path / f"{name}.npy", getattr(bm25.statistics, name))
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    stored = BM25Statistics(
        terms=tuple(bm25.statistics.terms),
        average_length=bm25.statistics.average_length,
        k1=bm25.statistics.k1,
        b=bm25.statistics.b,
        **mapped,
    )
    assert score(stored, ["brake", "pad", "unknown"]).tolist() == bm25.scores("brake pad unknown").tolist()
    rows, values = candidates(stored, ["tyre"])
    assert (rows.tolist(), values.tolist()) == ([2], [bm25.scores("tyre")[2]])


def test_scoring_reads_only_the_postings_of_the_query_terms() -> None:
    bm25 = BM25(["a b", "b c", "c d"])
    read: list[tuple[int, int]] = []

    class Watched:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __getitem__(self, item: slice) -> np.ndarray:
            read.append((item.start, item.stop))
            return self.values[item]

    statistics = bm25.statistics
    watched = {**vars(statistics), "posting_rows": Watched(statistics.posting_rows)}
    assert score(BM25Statistics(**watched), ["c", "unknown"]).tolist() == bm25.scores("c").tolist()
    assert read == [(3, 5)]


@pytest.mark.parametrize("k1", [-0.1, math.inf, math.nan])
def test_wrong_k1(k1: float) -> None:
    with pytest.raises(ValueError, match=r"k1 is .*; it must be a finite number of 0 or more"):
        BM25([], k1=k1)


@pytest.mark.parametrize("b", [-0.1, 1.1, math.nan])
def test_wrong_b(b: float) -> None:
    with pytest.raises(ValueError, match=r"b is .*; it must lie between 0 and 1"):
        BM25([], b=b)


def test_wrong_tokenizer_and_texts() -> None:
    with pytest.raises(ValueError, match="known tokenizers are"):
        BM25([], tokenizer="stems")
    with pytest.raises(ValueError, match="texts is one string"):
        BM25("a b c")


def test_the_settings_defaults_are_the_constructors_defaults() -> None:
    config = BM25Config()
    assert (config.k1, config.b) == (BM25([]).k1, BM25([]).b)
    assert BM25([]).tokenizer.name == config.tokenizer
