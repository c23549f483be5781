"""What happened to each query under each retriever: the facts every figure is counted from."""

from __future__ import annotations

from dataclasses import dataclass

from rag_pipeline.evaluation.questions import OutOfDomainKind
from rag_pipeline.evaluation.verdicts import Verdict


@dataclass(frozen=True)
class QueryOutcome:
    """One in-domain query under one retriever.

    `rank` is the place (from 1) of the first chunk whose passage holds the needle, in the full ranking before
    the threshold; None where no ranked chunk does, or where the needle's ground truth is invalid. `distance`
    is the smallest cosine distance among the holding chunks of the first k, `nearest` that among all of the
    first k; None where there is none. `answered`: a holding chunk of the first k lies strictly below the
    threshold.
    """

    question_id: str
    query: str
    needle: str
    mode: str
    rank: int | None
    distance: float | None
    nearest: float | None
    answered: bool
    verdict: Verdict

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes a query of two evaluations the same: question id, wording and needle."""
        return self.question_id, self.query, self.needle

    def found_at(self, k: int) -> bool:
        """Return whether one of the first k chunks holds the needle."""
        return self.rank is not None and self.rank <= k

    def answered_below(self, threshold: float) -> bool:
        """Return whether the needle would reach a reader under another threshold."""
        return below(self.distance, threshold)


@dataclass(frozen=True)
class OutOfDomainOutcome:
    """One out-of-domain query under one retriever.

    `nearest` is the smallest cosine distance among the first k chunks (None where nothing was ranked);
    `bluff` tells that it lies strictly below the threshold.
    """

    id: str
    query: str
    kind: OutOfDomainKind
    mode: str
    nearest: float | None
    bluff: bool

    @property
    def key(self) -> tuple[str, str]:
        """What makes a query of two evaluations the same: id and wording."""
        return self.id, self.query


def below(distance: float | None, threshold: float) -> bool:
    """Return whether a distance passes the threshold: strictly below it."""
    return distance is not None and distance < threshold
