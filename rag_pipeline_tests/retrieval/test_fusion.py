from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.retrieval import reciprocal_rank_fusion

rankings = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8), max_size=4)


def test_by_hand() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "d"]])
    assert [item for item, _ in fused] == ["c", "a", "b", "d"]
    assert dict(fused) == pytest.approx(
        {"c": 1 / (60 + 3) + 1 / (60 + 1), "a": 1 / (60 + 1), "b": 1 / (60 + 2), "d": 1 / (60 + 2)},
        abs=1e-15,
    )


def test_k_by_hand() -> None:
    assert reciprocal_rank_fusion([["a", "b"], ["b"]], k=0) == [("b", 1.5), ("a", 1.0)]


def test_ties_fall_by_id() -> None:
    assert [item for item, _ in reciprocal_rank_fusion([["z", "m"], ["m", "z"], ["b"], ["a"]])] == [
        "m",
        "z",
        "a",
        "b",
    ]


@pytest.mark.parametrize("empty", [[], [[]], [[], []]])
def test_nothing_to_fuse(empty: list[list[str]]) -> None:
    assert reciprocal_rank_fusion(empty) == []


def test_a_generator_of_rankings() -> None:
    assert reciprocal_rank_fusion(ranking for ranking in [[2], [1, 2]])[0][0] == 2


def test_an_id_twice_in_one_ranking() -> None:
    with pytest.raises(ValueError, match="ranking 2 holds 'b' more than once"):
        reciprocal_rank_fusion([["a"], ["b", "a", "b"]])


@pytest.mark.parametrize("k", [-1, -0.5, math.inf, math.nan])
def test_wrong_k(k: Any) -> None:
    with pytest.raises(ValueError, match=r"k is .*; it must be a finite number of 0 or more"):
        reciprocal_rank_fusion([["a"]], k=k)


@given(rankings)
@settings(deadline=None, max_examples=200)
def test_the_order_of_the_rankings_makes_no_difference(lists: list[list[str]]) -> None:
    assert reciprocal_rank_fusion(lists) == reciprocal_rank_fusion(lists[::-1])


@given(rankings)
@settings(deadline=None, max_examples=200)
def test_agrees_with_the_formula(lists: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(lists)
    assert {item for item, _ in fused} == {item for ranking in lists for item in ranking}
    for item, score in fused:
        ranks = [ranking.index(item) + 1 for ranking in lists if item in ranking]
        assert score == pytest.approx(sum(1 / (60 + rank) for rank in ranks), abs=1e-15)
    assert fused == sorted(fused, key=lambda entry: (-entry[1], entry[0]))
