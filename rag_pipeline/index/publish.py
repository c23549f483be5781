"""Receipts and publication: which build readers get, the switch, rollback with its hold, pruning.

The pointer ``published.json`` is replaced atomically, so readers see the old build or the new one and nothing in
between. A build is published only with a passing receipt of exactly its files.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_pipeline.core.clock import now_rfc3339
from rag_pipeline.core.errors import (
    BuildBlockedError,
    IndexNotFoundError,
    PublicationHeldError,
    StorageError,
)
from rag_pipeline.core.storage import Storage, read_json, sha256_file, storage_errors
from rag_pipeline.index.builds import Build, find_build, list_builds, verify_build

_POINTER = "published.json"
_HOLD = "hold.json"
_HISTORY = 100


@dataclass(frozen=True)
class Receipt:
    """What the evaluation found about one build: its figures' place and every gate's decision."""

    build: str
    manifest_sha256: str
    evaluation: str
    """Id of the evaluation: ``evaluations/BUILD/EVALUATION/``."""
    evaluation_sha256: str
    facts: str
    """Hash of the figures and the settings they were decided under, without what they were compared with."""
    passed: bool
    scored: bool
    serving: Mapping[str, Any]
    """Mode, k, threshold and reranker that were gated; readers are served just these."""
    rules: Mapping[str, Any]
    """The gate's settings it was decided under."""
    gates: list[Mapping[str, Any]] = field(default_factory=list)
    note: str = ""
    """Why it passed although the gate says otherwise: a purge leaves no choice."""

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as a JSON object."""
        return asdict(self)

    def failures(self) -> list[str]:
        """Return in words what blocks the build."""
        return [f"{g['name']}: {g['message']}" for g in self.gates if g["blocks"]]


@dataclass(frozen=True)
class Published:
    """The build that readers get."""

    build: str
    evaluation: str
    published_at: str
    serving: Mapping[str, Any]
    scored: bool
    history: list[Mapping[str, Any]] = field(default_factory=list)
    """Publications before it, newest first."""
    rolled_back: bool = False
    """Whether a rollback, not a run, made it what it is."""


def evaluation_folder(storage: Storage, build_id: str, evaluation_id: str) -> Path:
    """Return where the files of one evaluation of a build lie."""
    return storage.root / "evaluations" / build_id / evaluation_id


def write_receipt(storage: Storage, receipt: Receipt) -> None:
    """Write a receipt beside its evaluation, atomically."""
    folder = evaluation_folder(storage, receipt.build, receipt.evaluation)
    storage.write_json(folder / "receipt.json", receipt.to_json())


def read_receipt(storage: Storage, build_id: str, evaluation_id: str) -> Receipt | None:
    """Return the receipt of an evaluation, or None where there is none."""
    path = evaluation_folder(storage, build_id, evaluation_id) / "receipt.json"
    return Receipt(**read_json(path)) if path.is_file() else None


def newest_receipt(storage: Storage, build_id: str) -> Receipt | None:
    """Return the newest receipt of a build, or None where it was never evaluated."""
    folder = storage.root / "evaluations" / build_id
    try:
        receipts = sorted(folder.glob("*/receipt.json"), key=lambda p: (p.stat().st_mtime_ns, p.parent.name))
        return Receipt(**read_json(receipts[-1])) if receipts else None
    except FileNotFoundError:
        return None  # pruned just now, and its build with it


def check_receipt(
    storage: Storage,
    build: Build,
    receipt: Receipt | None,
    serving: Mapping[str, Any],
    rules: Mapping[str, Any],
) -> Receipt:
    """Return the receipt if it lets exactly this build be published with these settings.

    Raises `BuildBlockedError` where there is no receipt, it is of other files or settings, its evaluation was
    changed, or it does not pass; `DamagedBuildError` where the build's own files were changed.
    """
    receipt = _check_files(storage, build, receipt)
    if dict(receipt.serving) != dict(serving) or dict(receipt.rules) != dict(rules):
        raise BuildBlockedError(
            f"build {build.id} was gated under other retrieval or gate settings than are set now: "
            "materialise retrieval_evaluation again"
        )
    return _check_passed(receipt)


def _check_files(storage: Storage, build: Build, receipt: Receipt | None) -> Receipt:
    if receipt is None:
        raise BuildBlockedError(f"build {build.id} has no receipt: materialise retrieval_evaluation first")
    verify_build(build)
    if receipt.build != build.id or receipt.manifest_sha256 != build.manifest_sha256:
        raise BuildBlockedError(
            f"the receipt is of build {receipt.build}, not of exactly the files of build {build.id}: "
            "materialise retrieval_evaluation again"
        )
    evaluation = evaluation_folder(storage, receipt.build, receipt.evaluation) / "evaluation.json"
    if not evaluation.is_file() or sha256_file(evaluation) != receipt.evaluation_sha256:
        raise BuildBlockedError(
            f"the evaluation of build {build.id} is missing or was changed after its receipt was written: "
            "materialise retrieval_evaluation again"
        )
    return receipt


def _check_passed(receipt: Receipt) -> Receipt:
    if not receipt.passed:
        raise BuildBlockedError(
            f"build {receipt.build} is blocked by the gate: " + "; ".join(receipt.failures())
        )
    return receipt


def published(storage: Storage) -> Published | None:
    """Return what is published, or None where nothing is yet."""
    path = storage.root / _POINTER
    try:
        return Published(**read_json(path))
    except FileNotFoundError:
        return None


def publish(storage: Storage, receipt: Receipt) -> tuple[Published, bool]:
    """Make the receipt's build the one that readers get; return it, with False where it was so already.

    The receipt has been checked by `check_receipt`. Raises `PublicationHeldError` while a rollback holds.
    """
    hold = read_hold(storage)
    if hold is not None:
        raise PublicationHeldError(
            f"publication is held since {hold['since']} by a rollback to build {hold['build']}: release it with "
            "`rag-pipeline rollback --release`, then index again"
        )
    before = published(storage)
    if before is not None and (before.build, before.evaluation) == (receipt.build, receipt.evaluation):
        return before, False
    return _switch(storage, receipt, before), True


def _switch(
    storage: Storage, receipt: Receipt, before: Published | None, *, rolled_back: bool = False
) -> Published:
    history: list[Mapping[str, Any]] = []
    if before is not None:
        entry = {k: v for k, v in asdict(before).items() if k != "history"}
        history = [entry, *before.history][:_HISTORY]
    after = Published(
        build=receipt.build,
        evaluation=receipt.evaluation,
        published_at=now_rfc3339(),
        serving=dict(receipt.serving),
        scored=receipt.scored,
        history=history,
        rolled_back=rolled_back,
    )
    storage.write_json(storage.root / _POINTER, asdict(after))
    return after


def read_hold(storage: Storage) -> dict[str, Any] | None:
    """Return the hold on publication ({"build", "since"}), or None."""
    path = storage.root / _HOLD
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    except StorageError as error:
        raise StorageError(
            f"{path}: not valid JSON ({error.__cause__}): a rollback held publication, and the file was damaged; "
            "release it with `rag-pipeline rollback --release`, then index again"
        ) from error
    assert isinstance(value, dict)
    return value


def release_hold(storage: Storage) -> bool:
    """Let publication go on after a rollback; return whether there was a hold."""
    path = storage.root / _HOLD
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


def rollback(storage: Storage, build_id: str | None = None) -> Published:
    """Publish an earlier build again and hold publication until `release_hold`.

    Without `build_id`, the build published before the present one; repeated, one further back each time. Only a
    build with a passing receipt can be rolled back to. Raises `IndexNotFoundError` or `BuildBlockedError`.
    """
    now = published(storage)
    if now is None:
        raise IndexNotFoundError(f"nothing is published in {storage.root}: there is nothing to roll back")
    target = _entry_before(storage, now) if build_id is None else None
    build = find_build(storage, str(target["build"]) if target is not None else str(build_id))
    if target is None:
        # The receipt it was served under, wherever it was served: newer ones may be of settings that were tried.
        target = next((e for e in (asdict(now), *now.history) if e["build"] == build.id), None)
    receipt = (
        read_receipt(storage, build.id, str(target["evaluation"]))
        if target is not None
        else newest_receipt(storage, build.id)
    )
    receipt = _check_passed(_check_files(storage, build, receipt))
    # The hold comes first: were the process killed between the two, nothing newer could slip in.
    storage.write_json(storage.root / _HOLD, {"build": build.id, "since": now_rfc3339()})
    if now.build == build.id and now.evaluation == receipt.evaluation:
        return now
    return _switch(storage, receipt, now, rolled_back=True)


def _entry_before(storage: Storage, now: Published) -> Mapping[str, Any]:
    """Return the newest earlier publication of another build that is still on disk."""
    kept = {b.id for b in list_builds(storage)}
    history = now.history
    if now.rolled_back:
        # What stands right before it is what was rolled back from: go on from where a run published it.
        own = (i for i, e in enumerate(history) if e["build"] == now.build and not e.get("rolled_back"))
        history = history[next(own, len(history)) :]
    for entry in history:
        if entry["build"] != now.build and entry["build"] in kept:
            return entry
    raise IndexNotFoundError(
        f"no earlier published build is kept in {storage.root} (publication.keep decides how many are)"
    )


def prune(storage: Storage, keep: int) -> list[str]:
    """Remove the oldest builds and tables that nothing needs; return the ids of the builds that went.

    Kept are the published build, a build that a hold or an asset's newest handle names, and `keep` others: those
    that were published last, then the newest that never were. A reader that has a build open goes on reading it:
    its files stay until it closes them.
    """
    now = published(storage)
    hold = read_hold(storage)
    candidate = storage.read_handle("candidate_index")
    needed = {now.build if now else "", hold["build"] if hold else ""}
    if candidate is not None:
        needed.add(str(candidate.info.get("build", "")))
    # Those once published come first: they are what a rollback wants.
    once = [str(h["build"]) for h in (now.history if now else [])]
    others = [b for b in list_builds(storage) if b.id not in needed]
    others.sort(key=lambda b: once.index(b.id) if b.id in once else len(once))
    gone = [b.id for b in others[keep:]]
    for build_id in gone:
        # Renamed first: a reader that comes now finds no build, never half of one.
        trash = storage.temporary("-pruned")
        with storage_errors(trash):
            (storage.root / "builds" / build_id).rename(trash)
            shutil.rmtree(trash)
    with storage_errors(storage.root):
        _prune_evaluations(storage, needed)
        _prune_tables(storage)
    return gone


def _prune_evaluations(storage: Storage, needed: Collection[str]) -> None:
    """Remove the evaluations of builds that are no more, whichever run removed these."""
    kept = {build.id for build in list_builds(storage)} | set(needed)
    for folder in (storage.root / "evaluations").glob("*"):
        if folder.name not in kept:
            shutil.rmtree(folder)


def _prune_tables(storage: Storage) -> None:
    """Remove table files that no handle names; builds keep their own links to what they share."""
    try:
        handles = [storage.read_handle(p.stem) for p in (storage.root / "handles").glob("*.json")]
    except StorageError:
        return  # what a damaged handle named is not known; the run that writes it anew prunes
    named = {storage.path(file) for handle in handles if handle for file in handle.files.values()}
    for path in (storage.root / "tables").glob("*/*"):
        if path not in named:
            path.unlink(missing_ok=True)


def forget_builds(
    storage: Storage, gone: Collection[str], replacement: Receipt | None = None
) -> Published | None:
    """Take builds that are to be removed out of the publication, its history and the hold.

    `replacement` is the receipt of the build that takes the place of the published one. Return what is published
    after it.
    """
    now = published(storage)
    if now is None:
        return None
    history = [entry for entry in now.history if entry["build"] not in gone]
    if replacement is not None:
        now = replace(
            now,
            build=replacement.build,
            evaluation=replacement.evaluation,
            published_at=now_rfc3339(),
            scored=replacement.scored,
        )
    hold = read_hold(storage)
    if hold is not None and hold["build"] in gone:
        storage.write_json(storage.root / _HOLD, {**hold, "build": now.build})
    after = replace(now, history=history)
    storage.write_json(storage.root / _POINTER, asdict(after))
    return after


def describe_publication(storage: Storage) -> str:
    """Return in one line what is published."""
    now = published(storage)
    if now is None:
        return "nothing is published yet"
    held = ", held by a rollback" if read_hold(storage) else ""
    return f"build {now.build} since {now.published_at}{held}"


__all__ = [
    "Published",
    "Receipt",
    "check_receipt",
    "describe_publication",
    "evaluation_folder",
    "newest_receipt",
    "prune",
    "publish",
    "published",
    "read_hold",
    "read_receipt",
    "release_hold",
    "rollback",
    "write_receipt",
]
