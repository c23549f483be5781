"""Paired comparison of two systems that answered the same queries."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p-value of the sign test; ties are left out by the caller.

    p = min(1, 2 * sum_{i=0}^{min(wins, losses)} C(n, i) / 2^n) with n = wins + losses: the probability, if
    wins and losses were equally likely, of a split at least this uneven. Without a discordant pair it is 1.0.
    On paired binary outcomes this is McNemar's test in its exact form.

    Raises ValueError for negative counts.

    Source: W. J. Dixon and A. M. Mood, "The statistical sign test", JASA 41 (1946).
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"wins and losses must be 0 or more, got {wins} and {losses}")
    n = wins + losses
    term = total = 1
    for i in range(1, min(wins, losses) + 1):
        term = term * (n - i + 1) // i
        total += term
    # Integers stay exact until the one division, which Python rounds correctly at any size.
    return min(1.0, 2 * total / (1 << n)) if n else 1.0


@dataclass(frozen=True)
class PairedComparison:
    """A new system against an old one on the queries both were asked.

    `wins` counts queries that only the new one answers, `losses` those that only the old one does, `ties` the
    rest of the `common` ones; `p_value` is the two-sided exact sign test of wins against losses.
    """

    common: int
    wins: int
    losses: int
    ties: int
    p_value: float

    def significant_loss(self, alpha: float) -> bool:
        """Return whether the new system is worse with p below `alpha`."""
        return self.losses > self.wins and self.p_value < alpha

    def sentence(
        self,
        alpha: float = 0.05,
        *,
        old: str = "the published build",
        new: str = "this build",
        done: str = "answered",
        queries: str = "queries",
    ) -> str:
        """Return the comparison in words, with what it allows to conclude at level `alpha`."""
        if not self.common:
            return f"Nothing to compare with: no {queries} in common with {old}."
        counts = (
            f"Of {self.common} common {queries}, {self.wins} are {done} by {new} alone and {self.losses} by "
            f"{old} alone ({self.ties} alike); two-sided sign test p {format_p(self.p_value)}"
        )
        if self.p_value >= alpha:
            return f"{counts}: not distinguishable at {alpha:g}."
        better = new if self.wins > self.losses else old
        return f"{counts}: {better} is significantly better at {alpha:g}."


def format_p(p: float) -> str:
    """Return a p-value in words: `= 0.0015` (two significant digits), or `< 0.0001`."""
    if p < 0.0001:
        return "< 0.0001"
    digits = 2 if p >= 0.1 else 1 - math.floor(math.log10(p))
    return f"= {p:.{digits}f}"


def paired_comparison(old: Mapping[Key, bool], new: Mapping[Key, bool]) -> PairedComparison:
    """Return the comparison of `new` with `old` on the keys that both have (true = answered)."""
    common = old.keys() & new.keys()
    wins = sum(new[key] and not old[key] for key in common)
    losses = sum(old[key] and not new[key] for key in common)
    return PairedComparison(len(common), wins, losses, len(common) - wins - losses, sign_test(wins, losses))
