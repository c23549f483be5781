from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation import wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (38, 64, 0.471, 0.705),
        (53, 64, 0.718, 0.901),
        # z^2 = 3.8415; low of n/n is 1 / (1 + z^2/n), high of 0/n its complement.
        (10, 10, 1 / 1.38415, 1.0),
        (0, 10, 0.0, 1 - 1 / 1.38415),
    ],
)
def test_known_intervals(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-4)


def test_no_trial_says_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.01, 0.999)
)
def test_agrees_with_scipy_and_holds_the_proportion(case: tuple[int, int], confidence: float) -> None:
    from scipy.stats import binomtest

    successes, trials = case
    low, high = wilson_interval(successes, trials, confidence)
    reference = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=1e-9)
    assert 0 <= low <= successes / trials <= high <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, -1), "trials must be 0 or more, got -1"),
        ((5, 4), r"successes must lie in 0..4 \(trials\), got 5"),
        ((-1, 4), "successes must lie in"),
        ((1, 4, 1.0), "confidence must lie strictly between 0 and 1, got 1.0"),
        ((1, 4, 0.0), "confidence"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wilson_interval(*arguments)
