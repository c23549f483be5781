from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation import paired_comparison, sign_test
from rag_pipeline.evaluation.significance import PairedComparison


@pytest.mark.parametrize(
    ("wins", "losses", "p", "digits"),
    [
        (18, 3, 0.0015, 4),
        (12, 2, 0.0129, 4),
        (8, 6, 0.79, 2),
        (9, 7, 0.80, 2),
        (10, 3, 0.09, 2),
        (10, 6, 0.45, 2),
        (0, 0, 1.0, 12),
        (5, 5, 1.0, 12),
        # 2 * (1/2)^5
        (5, 0, 0.0625, 12),
    ],
)
def test_known_values(wins: int, losses: int, p: float, digits: int) -> None:
    assert round(sign_test(wins, losses), digits) == p
    assert sign_test(losses, wins) == sign_test(wins, losses)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 300), st.integers(0, 300))
def test_agrees_with_the_binomial_test(wins: int, losses: int) -> None:
    from scipy.stats import binomtest

    reference = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(reference, rel=1e-9)


def test_large_counts_do_not_overflow() -> None:
    assert sign_test(3000, 0) == pytest.approx(0.0, abs=1e-300)
    assert sign_test(5000, 5000) == 1.0


def test_negative_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="wins and losses must be 0 or more, got -1 and 2"):
        sign_test(-1, 2)


def test_only_common_queries_are_compared() -> None:
    old = {"a": True, "b": True, "c": False, "gone": True}
    new = {"a": True, "b": False, "c": True, "added": True}
    assert paired_comparison(old, new) == PairedComparison(common=3, wins=1, losses=1, ties=1, p_value=1.0)


def test_words_say_what_may_be_concluded() -> None:
    assert PairedComparison(64, 18, 3, 43, sign_test(18, 3)).sentence() == (
        "Of 64 common queries, 18 are answered by this build alone and 3 by the published build alone (43 "
        "alike); "
        "two-sided sign test p = 0.0015: this build is significantly better at 0.05."
    )
    assert (
        "the published build is significantly better"
        in PairedComparison(64, 3, 18, 43, sign_test(18, 3)).sentence()
    )
    assert "p = 0.79: not distinguishable" in PairedComparison(64, 8, 6, 50, sign_test(8, 6)).sentence()
    assert "p < 0.0001" in PairedComparison(64, 40, 0, 24, sign_test(40, 0)).sentence()
    assert "no queries in common" in PairedComparison(0, 0, 0, 0, 1.0).sentence()


def test_a_gain_is_no_loss() -> None:
    assert PairedComparison(64, 3, 18, 43, sign_test(3, 18)).significant_loss(0.05)
    assert not PairedComparison(64, 18, 3, 43, sign_test(3, 18)).significant_loss(0.05)
    assert not PairedComparison(64, 6, 8, 50, sign_test(6, 8)).significant_loss(0.05)
