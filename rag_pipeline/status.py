"""What there is at a glance: what is published, its scores, the builds kept, the documents that failed."""

from __future__ import annotations

from typing import Any

from rag_pipeline.core.schemas import DOCUMENTS
from rag_pipeline.core.storage import Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.evaluation.stages import load_report
from rag_pipeline.index.builds import find_build, list_builds
from rag_pipeline.index.publish import newest_receipt, published, read_hold
from rag_pipeline.settings import Settings


def read_status(settings: Settings) -> dict[str, Any]:
    """Return the JSON object that `rag-pipeline status --json` prints.

    Failed documents are those of the newest candidate, so that a failure shows before it is published. Raises
    `StorageError` for a storage root of another schema version.
    """
    storage = Storage.existing(settings.storage_root)
    if storage is None:
        return {"published": None, "builds": [], "failed_documents": [], "hold": None}
    now = published(storage)
    candidate = storage.read_handle("candidate_index")
    newest = str(candidate.info["build"]) if candidate is not None else None
    return {
        "published": _published(storage) if now is not None else None,
        "builds": [_build(storage, build, now.build if now else None) for build in list_builds(storage)],
        "candidate": newest,
        "failed_documents": _failed(storage, newest or (now.build if now else None)),
        "hold": read_hold(storage),
    }


def _published(storage: Storage) -> dict[str, Any]:
    now = published(storage)
    assert now is not None
    build = find_build(storage, now.build)
    stamp = build.stamp
    report = load_report(storage, now.build, now.evaluation) or {}
    # Facts by query are for `evaluate`; a status is for a glance.
    left_out = {"outcomes", "out_of_domain", "ground_truth", "verdicts", "sweep"}
    return {
        "build": now.build,
        "created_at": stamp["created_at"],
        "published_at": now.published_at,
        "status": "scored" if now.scored else "unscored",
        "documents": stamp["documents"],
        "chunks": stamp["chunks"],
        "stamp": {**stamp, "serving": dict(now.serving)},
        "serving": dict(now.serving),
        "evaluation": {k: v for k, v in report.items() if k not in left_out},
    }


def _build(storage: Storage, build: Any, published_build: str | None) -> dict[str, Any]:
    receipt = newest_receipt(storage, build.id)
    stamp = build.stamp
    return {
        "build": build.id,
        "created_at": stamp["created_at"],
        "documents": stamp["documents"],
        "chunks": stamp["chunks"],
        "published": build.id == published_build,
        "gate": None if receipt is None else ("passed" if receipt.passed else "blocked"),
        "blocked_by": [] if receipt is None else receipt.failures(),
    }


def _failed(storage: Storage, build_id: str | None) -> list[dict[str, str]]:
    if build_id is None:
        return []
    build = find_build(storage, build_id)
    rows = read_rows(build.table(DOCUMENTS.name), columns=("document_id", "state", "reason", "message"))
    return [
        {"document_id": r["document_id"], "reason": r["reason"], "message": r["message"] or ""}
        for r in rows
        if r["state"] == "failed"
    ]


def status_text(status: dict[str, Any]) -> str:
    """Return the status in words."""
    lines = []
    now = status["published"]
    if now is None:
        lines.append("Nothing is published yet: run `rag-pipeline index`.")
    else:
        documents = now["documents"]
        lines += [
            f"Published: build {now['build']} since {now['published_at']} ({now['status']})",
            f"  {documents['indexed']} documents indexed, {documents['failed']} failed, "
            f"{documents['skipped']} skipped; {now['chunks']:,} chunks",
            f"  {now['stamp']['embedding']['name']}, strategy {now['stamp']['chunking']['strategy']}",
            f"  served: {now['serving']['mode']}, first {now['serving']['k']}, below {now['serving']['threshold']:g}",
        ]
        figures = now["evaluation"].get("retrievers", {}).get(now["serving"]["mode"])
        if figures and now["status"] == "scored":
            recall = ", ".join(
                f"recall@{k} {r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}]"
                for k, r in figures["recall"].items()
            )
            lines.append(f"  {recall}; MRR {figures['mrr']:.3f}")
    hold = status["hold"]
    if hold:
        lines.append(f"Publication is HELD since {hold['since']} by a rollback to build {hold['build']}")
    if status["builds"]:
        lines.append("Builds:")
    for build in status["builds"]:
        mark = "*" if build["published"] else " "
        gate = build["gate"] or "not evaluated"
        lines.append(f" {mark} {build['build']}  {build['created_at']}  {build['chunks']:,} chunks  {gate}")
        lines += [f"     {reason}" for reason in build["blocked_by"]]
    if status["failed_documents"]:
        lines.append("Failed documents of the newest build:")
        lines += [f"   {f['document_id']}: {f['reason']}: {f['message']}" for f in status["failed_documents"]]
    return "\n".join(lines)
