"""What a gate looks at, what it returns, and what a gate is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.result import Evaluation

Number = int | float


class Severity(StrEnum):
    """How much a failed gate weighs: an error blocks publication, a warning is shown."""

    ERROR = "error"
    WARN = "warn"


@dataclass(frozen=True)
class DocumentCounts:
    """The documents of the candidate build by state, and those of the published build that it no longer has.

    `published` is the number of documents the published build had indexed; `vanished` are those of them that
    the candidate neither indexed nor reports as failed.
    """

    indexed: int
    failed: int
    skipped: int = 0
    published: int = 0
    vanished: tuple[str, ...] = ()

    @classmethod
    def compare(cls, states: Mapping[str, str], published: Collection[str] = ()) -> DocumentCounts:
        """Return the counts, from the candidate's state by document id and the published indexed ids."""
        counted = list(states.values())
        present = {document_id for document_id, state in states.items() if state in ("indexed", "failed")}
        return cls(
            indexed=counted.count("indexed"),
            failed=counted.count("failed"),
            skipped=counted.count("skipped"),
            published=len(set(published)),
            vanished=tuple(sorted(set(published) - present)),
        )


@dataclass(frozen=True)
class GateContext:
    """Everything a gate may look at.

    `published_build` is the published build's id and `baseline` its evaluation (None where there is none);
    `structure` lists what was found wrong with the candidate's tables (unit norms, finite vectors, one
    fingerprint, counts that agree, contents that are slices), one sentence each.
    """

    evaluation: Evaluation
    config: GateConfig
    documents: DocumentCounts
    baseline: Evaluation | None = None
    structure: Sequence[str] = ()
    published_build: str | None = None


@dataclass(frozen=True)
class Finding:
    """What a gate's decide function found: the decision before severity is settled.

    `blocks` tells whether a failure blocks; None leaves it to the gate's own declaration.
    """

    passed: bool
    value: Number | None
    limit: Number | None
    message: str
    blocks: bool | None = None


@dataclass(frozen=True)
class GateResult:
    """A gate's decision. `blocks` is true only for a failure that keeps the build from being published."""

    name: str
    title: str
    passed: bool
    blocks: bool
    severity: Severity
    value: Number | None
    limit: Number | None
    message: str
    advice: str

    def to_json(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        return {**asdict(self), "severity": self.severity.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GateResult:
        """Return what `to_json` wrote."""
        return cls(**{**data, "severity": Severity(data["severity"])})


@dataclass(frozen=True)
class GateDecision:
    """All gates' decisions; `passed` where none of them blocks."""

    passed: bool
    results: tuple[GateResult, ...]

    @property
    def blocking(self) -> tuple[GateResult, ...]:
        """The results that keep the build from being published."""
        return tuple(result for result in self.results if result.blocks)

    @property
    def warnings(self) -> tuple[GateResult, ...]:
        """The results that failed without blocking."""
        return tuple(result for result in self.results if not result.passed and not result.blocks)

    def to_json(self) -> dict[str, Any]:
        """Return `{"passed", "checks": [...]}`."""
        return {"passed": self.passed, "checks": [result.to_json() for result in self.results]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GateDecision:
        """Return what `to_json` wrote."""
        return cls(data["passed"], tuple(GateResult.from_json(check) for check in data["checks"]))


@dataclass(frozen=True)
class Gate:
    """A gate: its name and title, what it holds a build to, what to do when it fails, and how it decides.

    `blocking`: whether a failure blocks unless the finding says otherwise. `needs_questions`: without any
    question the gate passes, since there is nothing to judge.
    """

    name: str
    title: str
    description: str
    advice: str
    blocking: bool
    needs_questions: bool
    find: Callable[[GateContext], Finding]

    def decide(self, context: GateContext) -> GateResult:
        """Return this gate's decision."""
        if self.needs_questions and not context.evaluation.scored:
            finding = Finding(True, None, None, "Nothing to judge: there are no questions.")
        else:
            finding = self.find(context)
        blocking = self.blocking if finding.blocks is None else finding.blocks
        return GateResult(
            name=self.name,
            title=self.title,
            passed=finding.passed,
            blocks=blocking and not finding.passed,
            severity=Severity.ERROR if blocking else Severity.WARN,
            value=finding.value,
            limit=finding.limit,
            message=finding.message,
            advice=self.advice,
        )
