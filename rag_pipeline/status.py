"""What there is at a glance: what is published, its scores, the builds kept, the documents that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_pipeline.core.errors import DamagedBuildError, SourceError
from rag_pipeline.core.schemas import DOCUMENTS
from rag_pipeline.core.storage import Handle, Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.documents.source import source_fingerprint
from rag_pipeline.evaluation.stages import load_report
from rag_pipeline.index.builds import Build, find_build, list_builds
from rag_pipeline.index.publish import newest_receipt, published, read_hold
from rag_pipeline.settings import Settings
from rag_pipeline.steps import code_versions


def read_status(settings: Settings) -> dict[str, Any]:
    """Return the JSON object that `rag-pipeline status --json` prints.

    Failed documents are those of the newest candidate, so that a failure shows before it is published. Raises
    `StorageError` for a storage root of another schema version.
    """
    storage = Storage.existing(settings.storage_root)
    if storage is None:
        return {
            "published": None,
            "builds": [],
            "candidate": None,
            "failed_documents": [],
            "hold": None,
            "stale": [],
        }
    now = published(storage)
    candidate = storage.read_handle("candidate_index")
    newest = str(candidate.info["build"]) if candidate is not None else None
    return {
        "published": _published(storage) if now is not None else None,
        "builds": list(_builds(storage, now.build if now else None)),
        "candidate": newest,
        "failed_documents": _failed(storage, newest or (now.build if now else None)),
        "stale": _stale(settings, storage),
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


def _stale(settings: Settings, storage: Storage) -> list[dict[str, str]]:
    """Return the assets whose newest result is not what the settings, the source or the asset above would give."""
    stale = []
    versions = code_versions(settings)
    handles = {name: storage.read_handle(name) for name in versions}
    for name, version in versions.items():
        handle = handles[name]
        if handle is None:
            stale.append({"asset": name, "reason": "not made yet"})
            continue
        made_from = [
            above
            for above, seen in handle.inputs.items()
            if (newest := handles.get(above)) is not None and newest.data_version != seen
        ]
        if handle.code_version and handle.code_version != version:
            stale.append({"asset": name, "reason": "settings or code changed"})
        elif made_from:
            stale.append({"asset": name, "reason": f"{', '.join(made_from)} changed"})
        elif name == "source_documents" and _folder_changed(settings, handle):
            stale.append({"asset": name, "reason": "the source folder changed"})
    return stale


def _folder_changed(settings: Settings, handle: Handle) -> bool:
    try:
        return source_fingerprint(Path(settings.source.path)) != handle.info.get("folder_fingerprint")
    except SourceError:
        return True


def _builds(storage: Storage, published_build: str | None) -> Iterator[dict[str, Any]]:
    for build in list_builds(storage):
        try:
            yield _build(storage, build, published_build)
        except DamagedBuildError as error:
            # Pruned while it was looked at, or damaged: the others are told all the same.
            if build.folder.exists():
                yield _damaged(build, published_build, str(error))


def _damaged(build: Build, published_build: str | None, message: str) -> dict[str, Any]:
    return {
        "build": build.id,
        "created_at": None,
        "documents": None,
        "chunks": None,
        "published": build.id == published_build,
        "gate": "damaged",
        "blocked_by": [message],
    }


def _build(storage: Storage, build: Build, published_build: str | None) -> dict[str, Any]:
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
        lines.append(
            f" {mark} {build['build']}  {build['created_at'] or '-'}  {build['chunks'] or 0:,} chunks  {gate}"
        )
        lines += [f"     {reason}" for reason in build["blocked_by"]]
    if status["stale"] and status["builds"]:
        lines.append("Stale:")
        lines += [f"   {item['asset']}: {item['reason']}" for item in status["stale"]]
    if status["failed_documents"]:
        lines.append("Failed documents of the newest build:")
        lines += [f"   {f['document_id']}: {f['reason']}: {f['message']}" for f in status["failed_documents"]]
    return "\n".join(lines)
