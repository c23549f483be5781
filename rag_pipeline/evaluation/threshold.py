"""What a threshold gives up and what it lets through, and the sweep it is chosen from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_pipeline.evaluation.outcomes import OutOfDomainOutcome, QueryOutcome, below
from rag_pipeline.evaluation.questions import OutOfDomainKind

# Cosine distances 0.300, 0.325, ..., 1.000.
GRID: tuple[float, ...] = tuple(round(0.3 + 0.025 * step, 3) for step in range(29))


@dataclass(frozen=True)
class RefusalFigures:
    """What one threshold does to the queries of one retriever; counts of queries.

    `answered`, `wrong` and `refused` add up to the in-domain queries: the needle passes, something passes but
    never the needle, nothing passes. `bluffs` counts the out-of-domain queries for which something passes.
    """

    threshold: float
    answered: int
    wrong: int
    refused: int
    bluffs_near: int
    bluffs_far: int

    @property
    def bluffs(self) -> int:
        """Out-of-domain queries let through, near and far."""
        return self.bluffs_near + self.bluffs_far

    def to_json(self) -> dict[str, float | int]:
        """Return `{"threshold", "answered", "wrong", "refused", "bluffs_near", "bluffs_far", "bluffs"}`."""
        return {
            "threshold": self.threshold,
            "answered": self.answered,
            "wrong": self.wrong,
            "refused": self.refused,
            "bluffs_near": self.bluffs_near,
            "bluffs_far": self.bluffs_far,
            "bluffs": self.bluffs,
        }


def refusal_figures(
    threshold: float, outcomes: Sequence[QueryOutcome], out_of_domain: Sequence[OutOfDomainOutcome]
) -> RefusalFigures:
    """Return the figures of a threshold over one retriever's outcomes."""
    answered = sum(outcome.answered_below(threshold) for outcome in outcomes)
    refused = sum(not below(outcome.nearest, threshold) for outcome in outcomes)
    bluffs = [outcome.kind for outcome in out_of_domain if below(outcome.nearest, threshold)]
    return RefusalFigures(
        threshold=threshold,
        answered=answered,
        wrong=len(outcomes) - answered - refused,
        refused=refused,
        bluffs_near=bluffs.count(OutOfDomainKind.NEAR),
        bluffs_far=bluffs.count(OutOfDomainKind.FAR),
    )


def sweep(
    outcomes: Sequence[QueryOutcome], out_of_domain: Sequence[OutOfDomainOutcome], configured: float
) -> list[RefusalFigures]:
    """Return the figures at every threshold of `GRID` and at the configured one, in rising order."""
    return [
        refusal_figures(threshold, outcomes, out_of_domain)
        for threshold in sorted({*GRID, float(configured)})
    ]
