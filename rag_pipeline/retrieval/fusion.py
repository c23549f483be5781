"""Fusion of several rankings into one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

Id = TypeVar("Id", bound=Any)

DEFAULT_K = 60


def reciprocal_rank_fusion(rankings: Iterable[Sequence[Id]], k: float = DEFAULT_K) -> list[tuple[Id, float]]:
    """Return (id, score) of every id that stands in a ranking, best first, ties by id.

    `score(d) = sum over the rankings that hold d of 1 / (k + rank of d)`, ranks from 1. Ranks, not scores:
    the scales of two retrievers cannot be calibrated against each other. Ids must be hashable and comparable.
    The order of the rankings makes no difference.

    Raises `ValueError` for a negative `k`, and for an id that stands twice in one ranking: its rank would be
    ambiguous, and a retriever that repeats itself is at fault.

    Source: Cormack, Clarke, Büttcher: Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods, SIGIR 2009 (k = 60 is theirs).
    """
    if not (k >= 0 and math.isfinite(k)):
        raise ValueError(f"k is {k!r}; it must be a finite number of 0 or more")
    shares: dict[Id, list[float]] = {}
    for number, ranking in enumerate(rankings, start=1):
        if len(set(ranking)) != len(ranking):
            twice = next(item for place, item in enumerate(ranking) if item in ranking[:place])
            raise ValueError(f"ranking {number} holds {twice!r} more than once")
        for rank, item in enumerate(ranking, start=1):
            shares.setdefault(item, []).append(1 / (k + rank))
    # An exact sum: an id's score must not depend on which ranking came first, or ties would.
    scores = {item: math.fsum(parts) for item, parts in shares.items()}
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
