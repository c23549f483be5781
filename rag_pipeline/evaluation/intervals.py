"""Confidence intervals for proportions."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval (low, high) of a binomial proportion, both in [0, 1].

    With p = successes / trials and z the two-sided normal quantile of `confidence`:
    (p + z^2/2n -/+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n). Unlike the normal approximation it stays
    inside [0, 1] and keeps its coverage at small n and near 0 and 1. No trial says nothing: (0.0, 1.0).

    Raises ValueError where trials < 0, successes is outside [0, trials], or confidence outside (0, 1).

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22
    (1927).
    """
    if trials < 0:
        raise ValueError(f"trials must be 0 or more, got {trials}")
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in 0..{trials} (trials), got {successes}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / trials
    centre = p + z * z / (2 * trials)
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # The ends are exactly 0 and 1 there; rounding would leave them a few ulps off.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == trials else (centre + half) / scale
    return low, high
