from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.evaluation.outcomes import OutOfDomainOutcome, QueryOutcome
from rag_pipeline.evaluation.questions import OutOfDomainKind
from rag_pipeline.evaluation.threshold import GRID, RefusalFigures, refusal_figures, sweep
from rag_pipeline.evaluation.verdicts import Verdict


def query(distance: float | None, nearest: float | None) -> QueryOutcome:
    return QueryOutcome("q", "?", "needle", "dense", 1, distance, nearest, False, Verdict.ANSWERED)


def stranger(nearest: float | None, kind: OutOfDomainKind) -> OutOfDomainOutcome:
    return OutOfDomainOutcome("o", "?", kind, "dense", nearest, False)


NEAR, FAR = OutOfDomainKind.NEAR, OutOfDomainKind.FAR
QUERIES = [query(0.4, 0.3), query(0.6, 0.5), query(None, 0.5), query(None, 0.9), query(None, None)]
STRANGERS = [stranger(0.5, NEAR), stranger(0.6, NEAR), stranger(0.7, FAR), stranger(None, FAR)]


def test_figures_by_hand() -> None:
    assert refusal_figures(0.55, QUERIES, STRANGERS) == RefusalFigures(0.55, 1, 2, 2, 1, 0)
    assert refusal_figures(0.75, QUERIES, STRANGERS).to_json() == {
        "threshold": 0.75,
        "answered": 2,
        "wrong": 1,
        "refused": 2,
        "bluffs_near": 2,
        "bluffs_far": 1,
        "bluffs": 3,
    }


def test_a_distance_equal_to_the_threshold_does_not_pass() -> None:
    assert refusal_figures(0.4, [query(0.4, 0.4)], [stranger(0.4, NEAR)]) == RefusalFigures(
        0.4, 0, 0, 1, 0, 0
    )


def test_the_grid_runs_from_030_to_100_and_takes_in_the_configured_threshold_once() -> None:
    assert (GRID[0], GRID[1], GRID[-1], len(GRID)) == (0.3, 0.325, 1.0, 29)
    assert [row.threshold for row in sweep([], [], 0.675)] == list(GRID)
    assert [row.threshold for row in sweep([], [], 0.68)] == sorted([*GRID, 0.68])


distances = st.none() | st.floats(0, 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(distances, distances)), st.lists(distances), st.floats(0, 2))
def test_rows_add_up_and_a_looser_threshold_lets_more_through(
    pairs: list[tuple[float | None, float | None]], nearest: list[float | None], configured: float
) -> None:
    queries = [
        query(holding, min((d for d in (holding, other) if d is not None), default=None))
        for holding, other in pairs
    ]
    rows = sweep(queries, [stranger(d, NEAR) for d in nearest], configured)
    assert all(row.answered + row.wrong + row.refused == len(queries) for row in rows)
    assert all(min(row.answered, row.wrong, row.refused) >= 0 for row in rows)
    for tighter, looser in pairwise(rows):
        assert tighter.answered <= looser.answered
        assert tighter.bluffs <= looser.bluffs
        assert tighter.refused >= looser.refused
    # The bluffs close each row: without them a threshold is only a number.
    assert list(rows[0].to_json())[-1] == "bluffs"
