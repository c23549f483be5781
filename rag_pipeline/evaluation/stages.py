"""The evaluation stages of the chain: check the ground truth, score a build, decide the gate, write the receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_pipeline.core.schemas import DOCUMENTS
from rag_pipeline.core.storage import Storage, read_json, sha256_file, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, read_rows
from rag_pipeline.evaluation.config import EvaluationConfig, GateConfig
from rag_pipeline.evaluation.gates import DocumentCounts, GateContext, GateDecision, decide_gates
from rag_pipeline.evaluation.ground_truth import GroundTruth, check_ground_truth
from rag_pipeline.evaluation.protocols import RankedIndex, Serving, SourceText
from rag_pipeline.evaluation.questions import OutOfDomainQuery, load_out_of_domain, load_questions
from rag_pipeline.evaluation.result import Evaluation
from rag_pipeline.evaluation.run import evaluate
from rag_pipeline.evaluation.schemas import (
    GROUND_TRUTH,
    ground_truth_from_table,
    ground_truth_table,
    out_of_domain_table,
    outcomes_table,
)
from rag_pipeline.index.builds import Build
from rag_pipeline.index.publish import Receipt, evaluation_folder, published, read_receipt, write_receipt
from rag_pipeline.index.structure import structure_problems

# Raised when the same build and questions would be scored, or judged, differently.
EVALUATION_VERSION = "1"
GROUND_TRUTH_VERSION = "1"


@dataclass(frozen=True)
class _StoredDocument:
    """A document as the ground truth is checked against it."""

    document_id: str
    text: str
    raw_text: str | None
    state: str
    sha256: str | None


@dataclass(frozen=True)
class CheckedQuestions:
    """The written ground truth, counted after it was written."""

    table: Path
    rows: int
    data_version: str
    invalid: int
    queries: int
    out_of_domain: int


def check_questions(
    config: EvaluationConfig, canonical: Path, extracted: Path, storage: Storage
) -> CheckedQuestions:
    """Read the question files, check them against the corpus and write the ground truth.

    The data version covers the out-of-domain queries too. Raises `GroundTruthError` naming file and line.
    """
    questions = load_questions(config.questions) if config.questions else []
    strangers = load_out_of_domain(config.out_of_domain) if config.out_of_domain else []
    truths = check_ground_truth(questions, stored_documents(canonical, extracted)) if questions else []
    with TableWriter(storage, GROUND_TRUTH) as writer:
        writer.write(ground_truth_table(truths).to_pylist())
    version = version_of(writer.data_version, [asdict(s) for s in strangers])
    return CheckedQuestions(
        table=writer.path,
        rows=writer.rows,
        data_version=version,
        invalid=sum(not truth.valid for truth in truths),
        queries=sum(len(q.queries) for q in questions),
        out_of_domain=len(strangers),
    )


def read_ground_truth(table: Path) -> list[GroundTruth]:
    """Return the checked questions that `check_questions` wrote."""
    return ground_truth_from_table(pq.read_table(table))


def stored_documents(canonical: Path, extracted: Path) -> Iterator[SourceText]:
    """Yield every document of the two tables to check questions against, one at a time."""
    texts = read_rows(canonical, columns=("document_id", "text", "state", "sha256"), batch_rows=16)
    raws = read_rows(extracted, columns=("document_id", "raw_text"), batch_rows=16)
    for text, raw in zip(texts, raws, strict=True):
        yield _StoredDocument(
            text["document_id"], text["text"], raw["raw_text"], text["state"], text["sha256"]
        )


def build_documents(build: Build) -> Iterator[SourceText]:
    """Yield a build's documents to check questions against; a build keeps canonical texts, no raw ones."""
    columns = ("document_id", "text", "state", "sha256")
    for row in read_rows(build.table(DOCUMENTS.name), columns=columns, batch_rows=16):
        yield _StoredDocument(row["document_id"], row["text"], None, row["state"], row["sha256"])


@dataclass(frozen=True)
class Assessment:
    """What scoring a build found and decided."""

    evaluation: Evaluation
    decision: GateDecision
    receipt: Receipt
    documents: DocumentCounts
    baseline: Evaluation | None
    published_build: str | None
    data_version: str
    new: bool
    """False where exactly this was found before and is what is published."""


def serving_values(
    mode: str, k: int, threshold: float, reranker: str = "", reranker_fingerprint: str = ""
) -> dict[str, Any]:
    """Return what readers are served with, as receipts and the publication carry it.

    A cross-encoder is named, with the fingerprint of its files, only where the served mode uses it.
    """
    used = mode == "reranked"
    values = {"mode": mode, "k": k, "threshold": threshold, "reranker": reranker if used else ""}
    return {**values, "reranker_fingerprint": reranker_fingerprint} if used else values


def gate_rules(config: GateConfig) -> dict[str, Any]:
    """Return the gate's settings as a receipt carries them."""
    return asdict(config)


def assess_build(
    storage: Storage,
    build: Build,
    index: RankedIndex,
    ground_truth: Sequence[GroundTruth],
    out_of_domain: Sequence[OutOfDomainQuery],
    *,
    serving: Serving,
    serving_json: dict[str, Any],
    ks: Sequence[int],
    gate: GateConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Assessment:
    """Score a build, decide the gate against what is published, and write evaluation and receipt beside it.

    Where the same build with the same figures is published already, its receipt stands: a run that finds
    nothing new changes nothing.
    """
    structure = structure_problems(build)
    evaluation = evaluate(index, ground_truth, out_of_domain, retrieval=serving, ks=ks, progress=progress)
    now = published(storage)
    baseline = load_evaluation(storage, now.build, now.evaluation) if now is not None else None
    documents = _document_counts(storage, build, now.build if now is not None else None)
    decision = decide_gates(
        GateContext(
            evaluation=evaluation,
            config=gate,
            documents=documents,
            baseline=baseline,
            structure=structure,
            published_build=now.build if now is not None else None,
        )
    )
    facts = version_of(
        EVALUATION_VERSION, evaluation.to_json(timings=False), serving_json, gate_rules(gate), structure
    )
    # What the gate compared with is no part of the version: publishing a build would make it stale at once.
    version = version_of(facts, decision.passed)
    if now is not None and now.build == build.id:
        receipt = read_receipt(storage, now.build, now.evaluation)
        if receipt is not None and _stands(storage, build, receipt, facts) and decision.passed:
            return Assessment(
                evaluation, decision, receipt, documents, baseline, now.build, version, new=False
            )
    evaluation_id = version_of(facts, now.build if now else None, now.evaluation if now else None)
    folder = evaluation_folder(storage, build.id, evaluation_id)
    report = folder / "evaluation.json"
    storage.write_json(report, evaluation.to_json(decision))
    _write_table(storage, folder / "retrieval_outcomes.parquet", outcomes_table(evaluation))
    _write_table(storage, folder / "out_of_domain_outcomes.parquet", out_of_domain_table(evaluation))
    receipt = Receipt(
        build=build.id,
        manifest_sha256=build.manifest_sha256,
        evaluation=evaluation_id,
        evaluation_sha256=sha256_file(report),
        facts=facts,
        passed=decision.passed,
        scored=evaluation.scored,
        serving=serving_json,
        rules=gate_rules(gate),
        gates=list(decision.to_json()["checks"]),
    )
    write_receipt(storage, receipt)
    published_build = now.build if now is not None else None
    return Assessment(evaluation, decision, receipt, documents, baseline, published_build, version, new=True)


def _stands(storage: Storage, build: Build, receipt: Receipt, facts: str) -> bool:
    """Return whether a receipt says the same of exactly these files, and its evaluation is still there."""
    report = evaluation_folder(storage, receipt.build, receipt.evaluation) / "evaluation.json"
    return (
        receipt.passed
        and receipt.facts == facts
        and receipt.manifest_sha256 == build.manifest_sha256
        and report.is_file()
        and sha256_file(report) == receipt.evaluation_sha256
    )


def load_report(storage: Storage, build_id: str, evaluation_id: str) -> dict[str, Any] | None:
    """Return the report of an evaluation as `evaluate --json` prints it, or None where there is none."""
    path = evaluation_folder(storage, build_id, evaluation_id) / "evaluation.json"
    if not path.is_file():
        return None
    value = read_json(path)
    assert isinstance(value, dict)
    return value


def load_evaluation(storage: Storage, build_id: str, evaluation_id: str) -> Evaluation | None:
    """Return an evaluation written before, or None where there is none."""
    report = load_report(storage, build_id, evaluation_id)
    return Evaluation.from_json(report) if report is not None else None


def _document_counts(storage: Storage, build: Build, published_build: str | None) -> DocumentCounts:
    """Count documents by state, and those of the published build that this one no longer has.

    A document that moved (its bytes are indexed under another id) has not vanished, nor has one that failed: it is
    still there, and failing has a gate of its own.
    """
    columns = ("document_id", "state", "sha256")
    rows = list(read_rows(build.table(DOCUMENTS.name), columns=columns))
    present = {r["document_id"] for r in rows if r["state"] in ("indexed", "failed")}
    contents = {r["sha256"] for r in rows if r["state"] == "indexed"}
    before = []
    # A published build that was deleted by hand has nothing left to compare with; indexing again repairs it.
    old = storage.root / "builds" / (published_build or "-") / f"{DOCUMENTS.name}.parquet"
    if old.is_file():
        before = [r for r in read_rows(old, columns=columns) if r["state"] == "indexed"]
    vanished = sorted(
        r["document_id"] for r in before if r["document_id"] not in present and r["sha256"] not in contents
    )
    states = [r["state"] for r in rows]
    return DocumentCounts(
        indexed=states.count("indexed"),
        failed=states.count("failed"),
        skipped=states.count("skipped"),
        published=len(before),
        vanished=tuple(vanished),
    )


def _write_table(storage: Storage, path: Path, table: pa.Table) -> None:
    temporary = storage.temporary(".parquet")
    with storage_errors(temporary):
        pq.write_table(table, temporary, compression="zstd")
    storage.commit(temporary, path)


__all__ = [
    "EVALUATION_VERSION",
    "GROUND_TRUTH_VERSION",
    "Assessment",
    "CheckedQuestions",
    "assess_build",
    "build_documents",
    "check_questions",
    "gate_rules",
    "load_evaluation",
    "load_report",
    "read_ground_truth",
    "serving_values",
    "stored_documents",
]
