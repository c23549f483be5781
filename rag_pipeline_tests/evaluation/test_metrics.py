from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation.metrics import MEAN_RECIPROCAL_RANK, METRICS, RECALL, Estimate, Metric

RANKS = [1, 4, 5, None]


def test_recall_counts_ranks_up_to_k_and_keeps_misses_in_the_denominator() -> None:
    assert [RECALL.estimate(RANKS, k).value for k in (1, 4, 5, 100)] == [0.25, 0.5, 0.75, 0.75]
    estimate = RECALL.estimate([1] * 38 + [None] * 26, 20)
    assert (estimate.hits, estimate.n) == (38, 64)
    assert (estimate.low, estimate.high) == pytest.approx((0.471, 0.705), abs=5e-4)


def test_reciprocal_rank_of_a_miss_is_zero() -> None:
    estimate = MEAN_RECIPROCAL_RANK.estimate(RANKS)
    assert estimate.value == pytest.approx((1 + 1 / 4 + 1 / 5 + 0) / 4)
    assert (estimate.hits, estimate.low, estimate.high) == (None, None, None)


def test_no_query_has_no_value() -> None:
    assert RECALL.estimate([], 4) == Estimate(0, None, 0, 0.0, 1.0)
    assert MEAN_RECIPROCAL_RANK.estimate([]) == Estimate(0, None)
    assert RECALL.estimate([], 4).to_json() == {"hits": 0, "n": 0, "value": None, "low": 0.0, "high": 1.0}


@pytest.mark.parametrize(
    ("metric", "ranks", "k", "message"),
    [
        (RECALL, [1], None, "recall needs a depth k"),
        (MEAN_RECIPROCAL_RANK, [1], 4, "mrr does not take a depth k"),
        (RECALL, [1], 0, "k must be 1 or more, got 0"),
        (RECALL, [0], 4, "ranks count from 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(metric: Metric, ranks: list[int], k: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric.estimate(ranks, k)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.none() | st.integers(1, 50), min_size=1), st.integers(1, 50))
def test_recall_grows_with_k_and_bounds_the_reciprocal_rank(ranks: list[int | None], k: int) -> None:
    here, deeper = RECALL.estimate(ranks, k).value, RECALL.estimate(ranks, k + 1).value
    first, all_found = RECALL.estimate(ranks, 1).value, RECALL.estimate(ranks, 50).value
    mean = MEAN_RECIPROCAL_RANK.estimate(ranks).value
    assert here is not None and deeper is not None and first is not None and mean is not None
    assert here <= deeper
    assert all_found is not None and first - 1e-12 <= mean <= all_found + 1e-12


def test_every_metric_is_declared() -> None:
    assert list(METRICS) == ["recall", "mrr"]
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.description and metric.citation and metric.title
        assert metric.of_rank(None, 4) == 0
