"""The evaluation of one build: recorded facts, and the figures counted from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rag_pipeline.evaluation.ground_truth import GroundTruth
from rag_pipeline.evaluation.metrics import MEAN_RECIPROCAL_RANK, RECALL, Estimate
from rag_pipeline.evaluation.outcomes import OutOfDomainOutcome, QueryOutcome
from rag_pipeline.evaluation.questions import OutOfDomainKind
from rag_pipeline.evaluation.threshold import RefusalFigures, refusal_figures, sweep
from rag_pipeline.evaluation.verdicts import Verdict

if TYPE_CHECKING:
    from rag_pipeline.evaluation.gate_model import GateDecision


@dataclass(frozen=True)
class Served:
    """What readers of the build are served with: retriever, depth and threshold (a cosine distance)."""

    mode: str
    k: int
    threshold: float


@dataclass(frozen=True)
class Evaluation:
    """Everything that was seen when a build was scored.

    The fields are facts: the checked questions, what happened to each query under each retriever, counts over
    the chunks. Recall, refusals, the sweep and the report are counted from them on demand, so that no two
    figures can disagree. `destroyed` and `beyond_window` are question ids in file order; `window` is the
    encoder's, in word pieces (None: no limit, or no chunks). `milliseconds` is the median time of a query by
    retriever on the machine that evaluated; it takes no part in equality.
    """

    build: str
    served: Served
    modes: tuple[str, ...]
    ks: tuple[int, ...]
    chunks: int
    chunks_over_window: int
    window: int | None
    embedded_tokens: int
    header_tokens: int
    ground_truth: tuple[GroundTruth, ...]
    destroyed: tuple[str, ...]
    beyond_window: tuple[str, ...]
    outcomes: tuple[QueryOutcome, ...]
    out_of_domain: tuple[OutOfDomainOutcome, ...]
    milliseconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def scored(self) -> bool:
        """Whether there were questions to score the build with."""
        return bool(self.ground_truth)

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.ground_truth)

    @property
    def queries(self) -> int:
        """Number of in-domain queries: the phrasings of all questions."""
        return sum(len(truth.question.queries) for truth in self.ground_truth)

    @property
    def header_share(self) -> float | None:
        """Share of the embedded word pieces that belong to contextual headers; None without chunks."""
        return self.header_tokens / self.embedded_tokens if self.embedded_tokens else None

    @property
    def lost_in_extraction(self) -> tuple[str, ...]:
        """Ids of the questions whose needle the source has and the canonical text has not."""
        return tuple(truth.question.id for truth in self.ground_truth if truth.lost_in_extraction)

    def of_mode(self, mode: str) -> list[QueryOutcome]:
        """Return one retriever's in-domain outcomes, in the order of the questions."""
        return [outcome for outcome in self.outcomes if outcome.mode == mode]

    def out_of_domain_of_mode(self, mode: str) -> list[OutOfDomainOutcome]:
        """Return one retriever's out-of-domain outcomes, in file order."""
        return [outcome for outcome in self.out_of_domain if outcome.mode == mode]

    def recall(self, mode: str, k: int) -> Estimate:
        """Return recall at k, before the threshold, with its 95 % Wilson interval."""
        return RECALL.estimate([outcome.rank for outcome in self.of_mode(mode)], k)

    def mean_reciprocal_rank(self, mode: str) -> Estimate:
        """Return the mean reciprocal rank over the full ranking, before the threshold."""
        return MEAN_RECIPROCAL_RANK.estimate([outcome.rank for outcome in self.of_mode(mode)])

    def refusal(self, mode: str | None = None) -> RefusalFigures:
        """Return what the served threshold does to a retriever's queries (of the served one if not named)."""
        mode = mode or self.served.mode
        return refusal_figures(self.served.threshold, self.of_mode(mode), self.out_of_domain_of_mode(mode))

    def sweep(self, mode: str | None = None) -> list[RefusalFigures]:
        """Return the same at every threshold of the grid and at the served one, in rising order."""
        mode = mode or self.served.mode
        return sweep(self.of_mode(mode), self.out_of_domain_of_mode(mode), self.served.threshold)

    def found(self, k: int, mode: str | None = None) -> dict[tuple[str, str, str], bool]:
        """Return by query whether a retriever has the needle in its first k chunks, to compare paired."""
        return {outcome.key: outcome.found_at(k) for outcome in self.of_mode(mode or self.served.mode)}

    def held_back(self, mode: str | None = None) -> dict[tuple[str, str], bool]:
        """Return by out-of-domain query whether the threshold stopped it, for paired comparison."""
        return {
            outcome.key: not outcome.bluff for outcome in self.out_of_domain_of_mode(mode or self.served.mode)
        }

    def out_of_domain_count(self, kind: OutOfDomainKind | None = None) -> int:
        """Return the number of out-of-domain queries, of one kind or of both."""
        return sum(kind in (None, outcome.kind) for outcome in self.out_of_domain_of_mode(self.served.mode))

    def to_json(self, gate: GateDecision | None = None, *, timings: bool = True) -> dict[str, Any]:
        """Return the report of `evaluate --json`: figures first, then the facts that `from_json` reads back.

        `gate` is added where it was decided. Without `timings` the same build and questions give the same
        report.
        """
        report: dict[str, Any] = {
            "build": self.build,
            "scored": self.scored,
            "questions": self.questions,
            "queries": self.queries,
            "served": {"mode": self.served.mode, "k": self.served.k, "threshold": self.served.threshold},
            "destroyed": list(self.destroyed),
            "lost_in_extraction": list(self.lost_in_extraction),
            "chunks": self.chunks,
            "window": self.window,
            "chunks_over_window": self.chunks_over_window,
            "needles_beyond_window": list(self.beyond_window),
            "embedded_tokens": self.embedded_tokens,
            "header_tokens": self.header_tokens,
            "header_share": self.header_share,
            "retrievers": {mode: self._retriever(mode) for mode in self.modes},
            "refusal": self.refusal().to_json(),
            "sweep": [row.to_json() for row in self.sweep()],
            "out_of_domain_queries": {kind.value: self.out_of_domain_count(kind) for kind in OutOfDomainKind},
            "verdicts": self._verdicts(),
            "ground_truth": [truth.to_json() for truth in self.ground_truth],
            "outcomes": [_outcome_to_json(outcome) for outcome in self.outcomes],
            "out_of_domain": [_out_of_domain_to_json(outcome) for outcome in self.out_of_domain],
        }
        if timings:
            report["timings"] = {
                "note": "local: median milliseconds of a query, on the machine that evaluated",
                "milliseconds": dict(self.milliseconds),
            }
        if gate is not None:
            report["gate"] = gate.to_json()
        return report

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that `to_json` wrote; its figures are counted anew from the facts."""
        served = data["served"]
        return cls(
            build=data["build"],
            served=Served(served["mode"], served["k"], served["threshold"]),
            modes=tuple(data["retrievers"]),
            ks=_ks(data["retrievers"]),
            chunks=data["chunks"],
            chunks_over_window=data["chunks_over_window"],
            window=data["window"],
            embedded_tokens=data["embedded_tokens"],
            header_tokens=data["header_tokens"],
            ground_truth=tuple(GroundTruth.from_json(truth) for truth in data["ground_truth"]),
            destroyed=tuple(data["destroyed"]),
            beyond_window=tuple(data["needles_beyond_window"]),
            outcomes=tuple(_outcome_from_json(outcome) for outcome in data["outcomes"]),
            out_of_domain=tuple(_out_of_domain_from_json(outcome) for outcome in data["out_of_domain"]),
            milliseconds=dict(data.get("timings", {}).get("milliseconds", {})),
        )

    def _retriever(self, mode: str) -> dict[str, Any]:
        return {
            "recall": {str(k): self.recall(mode, k).to_json() for k in self.ks},
            "mrr": self.mean_reciprocal_rank(mode).value,
            "refusal": self.refusal(mode).to_json(),
        }

    def _verdicts(self) -> list[dict[str, Any]]:
        by_query: dict[tuple[str, str, str], dict[str, QueryOutcome]] = {}
        for outcome in self.outcomes:
            by_query.setdefault(outcome.key, {})[outcome.mode] = outcome
        valid = {truth.question.id: truth.valid for truth in self.ground_truth}
        return [
            {
                "id": question_id,
                "query": query,
                "verdict": of_mode[self.served.mode].verdict.value,
                "rank": {mode: of_mode[mode].rank for mode in self.modes},
                "verdicts": {mode: of_mode[mode].verdict.value for mode in self.modes},
                "valid": valid[question_id],
            }
            for (question_id, query, _), of_mode in by_query.items()
        ]


def _ks(retrievers: Mapping[str, Any]) -> tuple[int, ...]:
    return next((tuple(int(k) for k in figures["recall"]) for figures in retrievers.values()), ())


def _outcome_to_json(outcome: QueryOutcome) -> dict[str, Any]:
    return {
        "id": outcome.question_id,
        "query": outcome.query,
        "needle": outcome.needle,
        "mode": outcome.mode,
        "rank": outcome.rank,
        "distance": outcome.distance,
        "nearest": outcome.nearest,
        "answered": outcome.answered,
        "verdict": outcome.verdict.value,
    }


def _outcome_from_json(data: Mapping[str, Any]) -> QueryOutcome:
    return QueryOutcome(
        question_id=data["id"],
        query=data["query"],
        needle=data["needle"],
        mode=data["mode"],
        rank=data["rank"],
        distance=data["distance"],
        nearest=data["nearest"],
        answered=data["answered"],
        verdict=Verdict(data["verdict"]),
    )


def _out_of_domain_to_json(outcome: OutOfDomainOutcome) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "query": outcome.query,
        "kind": outcome.kind.value,
        "mode": outcome.mode,
        "nearest": outcome.nearest,
        "bluff": outcome.bluff,
    }


def _out_of_domain_from_json(data: Mapping[str, Any]) -> OutOfDomainOutcome:
    return OutOfDomainOutcome(
        id=data["id"],
        query=data["query"],
        kind=OutOfDomainKind(data["kind"]),
        mode=data["mode"],
        nearest=data["nearest"],
        bluff=data["bluff"],
    )
