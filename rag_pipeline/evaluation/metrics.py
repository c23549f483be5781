"""Metrics over the rank at which a query's needle was found: declared objects in a registry.

A rank counts from 1; None means that no ranked chunk has the needle in its passage. Every query stays in the
denominator, so a question cannot leave the test by being broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_pipeline.evaluation.intervals import wilson_interval

Rank = int | None


@dataclass(frozen=True)
class Estimate:
    """A metric's value over `n` queries.

    `value` is None without queries. `hits`, `low` and `high` (95 % Wilson interval) belong to proportions and
    are None for other means.
    """

    n: int
    value: float | None
    hits: int | None = None
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, float | int | None]:
        """Return `{"hits", "n", "value", "low", "high"}`."""
        return {"hits": self.hits, "n": self.n, "value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Metric:
    """A metric: what it is called, what it measures, where it is defined, and its value for one query.

    `of_rank(rank, k)` gives a query's value in [0, 1]; a needle not found (None) must give 0. A metric that
    `takes_k` looks at the first k chunks only. The values of a `proportion` are 0 or 1, so its mean gets an
    interval.
    """

    name: str
    title: str
    description: str
    citation: str
    takes_k: bool
    proportion: bool
    of_rank: Callable[[Rank, int | None], float]

    def estimate(self, ranks: Sequence[Rank], k: int | None = None) -> Estimate:
        """Return the mean over the queries' ranks.

        Raises ValueError where k is missing or superfluous, or a rank or k is below 1.
        """
        if self.takes_k != (k is not None):
            raise ValueError(f"{self.name} {'needs' if self.takes_k else 'does not take'} a depth k")
        if k is not None and k < 1:
            raise ValueError(f"k must be 1 or more, got {k}")
        if bad := [rank for rank in ranks if rank is not None and rank < 1]:
            raise ValueError(f"ranks count from 1, got {bad[0]}")
        n = len(ranks)
        total = sum(self.of_rank(rank, k) for rank in ranks)
        value = total / n if n else None
        if not self.proportion:
            return Estimate(n, value)
        low, high = wilson_interval(int(total), n)
        return Estimate(n, value, int(total), low, high)


RECALL = Metric(
    name="recall",
    title="Recall",
    description="Share of queries with the whole needle inside the passage of one of the first k chunks.",
    citation=(
        "C. D. Manning, P. Raghavan, H. Schütze, Introduction to Information Retrieval (2008), chapter 8"
    ),
    takes_k=True,
    proportion=True,
    of_rank=lambda rank, k: float(rank is not None and k is not None and rank <= k),
)

MEAN_RECIPROCAL_RANK = Metric(
    name="mrr",
    title="Mean reciprocal rank",
    description=(
        "Mean of 1 / rank of the first chunk that holds the needle, over the full ranking; 0 where none does."
    ),
    citation="E. M. Voorhees, The TREC-8 Question Answering Track Report (1999)",
    takes_k=False,
    proportion=False,
    of_rank=lambda rank, k: 0.0 if rank is None else 1.0 / rank,
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in (RECALL, MEAN_RECIPROCAL_RANK)}
