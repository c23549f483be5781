from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rag_pipeline.evaluation.verdicts import RULES, Case, Verdict, verdict_of

# The case in which nothing went wrong; each test breaks it.
ANSWERED = Case(
    mode="dense",
    in_source=True,
    in_canonical=True,
    destroyed=False,
    beyond_window=False,
    retrieved=True,
    passed=True,
)


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [
        ({}, "answered"),
        ({"in_source": False}, "not in the source"),
        ({"in_canonical": False}, "lost in extraction"),
        ({"destroyed": True}, "destroyed by chunking"),
        ({"beyond_window": True}, "beyond the encoder window"),
        ({"retrieved": False, "passed": False}, "not retrieved at k"),
        ({"passed": False}, "refused by the threshold"),
    ],
)
def test_each_fault_has_its_verdict(broken: dict[str, Any], verdict: str) -> None:
    assert verdict_of(replace(ANSWERED, **broken)) == verdict


def test_the_first_that_applies_wins() -> None:
    faults: list[dict[str, Any]] = [
        {"in_source": False},
        {"in_canonical": False},
        {"destroyed": True},
        {"beyond_window": True},
        {"retrieved": False},
        {"passed": False},
    ]
    for first in range(len(faults)):
        everything_after = {key: value for fault in faults[first:] for key, value in fault.items()}
        assert verdict_of(replace(ANSWERED, **everything_after)) == list(Verdict)[first]


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        ("dense", Verdict.BEYOND_WINDOW),
        ("hybrid", Verdict.BEYOND_WINDOW),
        ("reranked", Verdict.BEYOND_WINDOW),
        ("bm25", Verdict.ANSWERED),
    ],
)
def test_the_window_hides_nothing_from_a_retriever_without_encoder(mode: str, verdict: Verdict) -> None:
    assert verdict_of(replace(ANSWERED, mode=mode, beyond_window=True)) == verdict


def test_the_table_declares_every_verdict_once_in_order() -> None:
    assert [rule.verdict for rule in RULES] == list(Verdict)
    assert all(rule.meaning for rule in RULES)
