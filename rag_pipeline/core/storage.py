"""The storage root: atomic writes, content-addressed tables, handles and the one writer's lock.

Layout of a root (every name below it is ours)::

    format.json            schema version of the root
    lock, lock.json        the writer's lock and who holds it
    memo.sqlite            what was computed before, by version and sha256 of its input
    tmp/                   files being written; emptied when the lock is taken
    tables/ASSET/          Parquet files and raw arrays, named by their content
    handles/               the newest handle of each asset, a small JSON file
    builds/ID/             immutable candidate indexes
    evaluations/ID/ID/     figures and receipts, beside the builds
    published.json         the build that readers get, and those before it
    hold.json              present while a rollback holds publication

A file appears under its final name only when it is whole (written in ``tmp``, flushed to disk, renamed), so a
reader never sees half a file and a killed writer leaves nothing but litter in ``tmp``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rag_pipeline.core.clock import now_rfc3339
from rag_pipeline.core.errors import StorageError, StorageLockedError
from rag_pipeline.core.schemas import STORAGE_SCHEMA_VERSION


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's write errors into a `StorageError` that names the path and what to do."""
    try:
        yield
    except OSError as error:
        number = errno.ENOSPC if _is_short_write(error) else error.errno
        advice = {
            errno.ENOSPC: "the disk is full: free some space (`rag-pipeline prune` drops old builds) and run again",
            errno.EDQUOT: "the disk quota is used up: free some space and run again",
            errno.EROFS: "the file system is read-only: set storage.root to a writable folder",
            errno.EACCES: "permission denied: set storage.root to a folder this user may write",
            errno.EPERM: "permission denied: set storage.root to a folder this user may write",
            errno.ENOTDIR: "a part of the path is a file: set storage.root to a folder",
            errno.EEXIST: "a file stands where a folder is needed: set storage.root to a folder",
        }.get(number or 0)
        if advice is None:
            raise
        raise StorageError(f"{error.filename or path}: {advice}. What is published is whole.") from error


def _is_short_write(error: OSError) -> bool:
    """Return whether NumPy wrote less of an array than there was, which it tells in words and without a number."""
    return error.errno is None and re.search(r"\d+ requested and \d+ written", str(error)) is not None


def sha256_bytes(data: bytes) -> str:
    """Return the sha256 of the bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_text(text: str) -> str:
    """Return the sha256 of the text in UTF-8 as 64 hexadecimal digits."""
    return sha256_bytes(text.encode("utf-8", "surrogatepass"))


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file's bytes as 64 hexadecimal digits, reading it in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text, fit for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def version_of(*parts: Any) -> str:
    """Return 16 hexadecimal digits that identify these JSON-able values (for code and data versions)."""
    return sha256_text(canonical_json(parts))[:16]


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Flush one file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """Return the JSON value of a file; a damaged file is a `StorageError` that names it and what to do."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StorageError(
            f"{path}: not valid JSON ({error}): the file is damaged; remove it and run `rag-pipeline index`"
        ) from error


@dataclass(frozen=True)
class Handle:
    """What one asset hands to the next: where its files lie and what they hold, never the tables themselves."""

    asset: str
    data_version: str
    rows: int
    files: Mapping[str, str]
    """File name by role, relative to the storage root."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Data version of each input this was made from."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Small facts about how it was made (models, versions), JSON-able."""
    code_version: str = ""
    """Version of the code and settings that made it, cumulative; '' where it was not made as an asset."""

    def to_json(self) -> dict[str, Any]:
        """Return the handle as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Handle:
        """Return the handle that `to_json` wrote."""
        return cls(**value)


class Storage:
    """A storage root on a local file system. Cheap to make; holds no open file but the lock."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, root: Path) -> Storage:
        """Return the storage at `root`, made where it is missing.

        Raises `StorageError` where the folder is of another schema version, holds foreign files or cannot be
        written.
        """
        storage = cls(root)
        with storage_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            if not storage._format_file.exists():
                foreign = sorted(p.name for p in root.iterdir() if p.name not in _OWN_NAMES)
                # Another run that makes the root just now has written its format file last.
                if foreign and not storage._format_file.exists():
                    raise StorageError(
                        f"{root}: not a storage root, and not empty (holds {foreign[0]!r}): "
                        "set storage.root to an empty or new folder"
                    )
                for name in ("tmp", "tables", "handles", "builds", "evaluations"):
                    (root / name).mkdir(exist_ok=True)
                if not storage._format_file.exists():
                    storage.write_json(storage._format_file, {"schema_version": STORAGE_SCHEMA_VERSION})
        storage.check_format()
        return storage

    @classmethod
    def existing(cls, root: Path) -> Storage | None:
        """Return the storage at `root` for reading, or None where there is none yet."""
        storage = cls(root)
        with storage_errors(root):
            if not storage._format_file.exists():
                return None
            storage.check_format()
        return storage

    @property
    def _format_file(self) -> Path:
        return self.root / "format.json"

    def check_format(self) -> None:
        """Raise `StorageError` where the root was written by code of another schema version."""
        try:
            found = read_json(self._format_file).get("schema_version")
        except (StorageError, AttributeError) as error:
            raise StorageError(
                f"{self._format_file}: not valid JSON, so the release that wrote the storage root is not known: if "
                f'it was this one, write {{"schema_version": {STORAGE_SCHEMA_VERSION}}} to the file; else set '
                "storage.root to a new folder and index again"
            ) from error
        if found != STORAGE_SCHEMA_VERSION:
            newer = isinstance(found, int) and found > STORAGE_SCHEMA_VERSION
            raise StorageError(
                f"{self.root}: storage schema version {found}, this release reads {STORAGE_SCHEMA_VERSION}: "
                + (
                    "use the newer release that wrote it"
                    if newer
                    else "set storage.root to a new folder and index again, or open it with the release that wrote it"
                )
            )

    # -- atomic writes ------------------------------------------------------------------------------------

    def temporary(self, suffix: str = "") -> Path:
        """Return a fresh path in the root's `tmp` folder, on the same file system as every final place."""
        folder = self.root / "tmp"
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{uuid.uuid4().hex}{suffix}"

    def commit(self, temporary: Path, final: Path) -> None:
        """Move a whole file to its final name: flushed, renamed, its folder flushed."""
        with storage_errors(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            fsync_file(temporary)
            temporary.replace(final)
            _fsync_directory(final.parent)

    def commit_directory(self, temporary: Path, final: Path) -> bool:
        """Move a whole folder to its final name; return False (and drop it) where that name exists already."""
        with storage_errors(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.exists():
                shutil.rmtree(temporary)
                return False
            for path in temporary.rglob("*"):
                if path.is_file():
                    fsync_file(path)
            _fsync_directory(temporary)
            temporary.rename(final)
            _fsync_directory(final.parent)
            return True

    def write_json(self, path: Path, value: Any) -> None:
        """Write a JSON file atomically."""
        self.write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Write a file atomically. Needs no lock."""
        for attempt in range(1, _SWEPT_AT_MOST + 1):
            temporary = self.temporary()
            with storage_errors(path):
                temporary.write_bytes(data)
            try:
                self.commit(temporary, path)
            except FileNotFoundError:
                # A run that took the lock just now has emptied `tmp`.
                if temporary.exists() or attempt == _SWEPT_AT_MOST:
                    raise
            else:
                return

    def link_or_copy(self, source: Path, target: Path) -> None:
        """Share an immutable file by a hard link; copy it where the file system has none."""
        with storage_errors(target):
            try:
                target.hardlink_to(source)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.EMLINK, errno.EACCES):
                    raise
                shutil.copyfile(source, target)

    # -- places -------------------------------------------------------------------------------------------

    def path(self, relative: str) -> Path:
        """Return the absolute path of a file named in a handle."""
        return self.root / relative

    def relative(self, path: Path) -> str:
        """Return a path relative to the root, with / on every system."""
        return path.relative_to(self.root).as_posix()

    @property
    def memo_path(self) -> Path:
        """Where the memo lies."""
        return self.root / "memo.sqlite"

    def size(self) -> int:
        """Return the bytes the root takes on disk; a file shared by hard links counts once."""
        seen: dict[int, int] = {}
        for path in self.root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.lstat()
                seen[stat.st_ino] = stat.st_blocks * 512
        return sum(seen.values())

    def write_handle(self, handle: Handle) -> None:
        """Remember the newest handle of an asset. Call it when the handle's files are whole."""
        self.write_json(self.root / "handles" / f"{handle.asset}.json", handle.to_json())

    def read_handle(self, asset: str) -> Handle | None:
        """Return the newest handle of an asset, or None where it was never made."""
        path = self.root / "handles" / f"{asset}.json"
        if not path.exists():
            return None
        try:
            return Handle.from_json(read_json(path))
        except TypeError as error:
            raise StorageError(
                f"{path}: not a handle ({error}): the file is damaged; remove it and run `rag-pipeline index`"
            ) from error

    # -- the writer's lock --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(
        self, holder: str, timeout: float, on_wait: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Hold the root as its one writer.

        Waits up to `timeout` seconds for another writer, telling `on_wait` once who holds it, then raises
        `StorageLockedError`. The kernel frees the lock of a killed process, so it never has to be broken by
        hand. Litter of a killed writer is removed once the lock is held.
        """
        with storage_errors(self.root):
            file = (self.root / "lock").open("a+")
        with file:
            deadline = time.monotonic() + timeout
            told = False
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told and on_wait is not None:
                        on_wait(self.lock_holder())
                        told = True
                    if time.monotonic() >= deadline:
                        raise StorageLockedError(
                            f"{self.root} is in use by {self.lock_holder()}: wait for it to end, "
                            "or raise storage.lock_timeout"
                        ) from None
                    time.sleep(0.1)
            try:
                self._clear_temporary()
                self._name_holder(holder)
                yield
            finally:
                self._clear_temporary()
                (self.root / "lock.json").unlink(missing_ok=True)
                fcntl.flock(file, fcntl.LOCK_UN)

    def _name_holder(self, holder: str) -> None:
        since = now_rfc3339()
        value = {"holder": holder, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        # Only a courtesy to who waits: on a full disk the lock must be had without it, or nothing could be pruned.
        with contextlib.suppress(StorageError):
            self.write_json(self.root / "lock.json", value)

    def lock_holder(self) -> str:
        """Return in words who holds the lock, as far as the holder said."""
        try:
            holder = read_json(self.root / "lock.json")
        except (FileNotFoundError, StorageError):
            return "another process"
        return f"{holder['holder']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"

    def _clear_temporary(self) -> None:
        folder = self.root / "tmp"
        if not folder.exists():
            return
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


# Runs that may take the lock one after the other while a small file is written beside them.
_SWEPT_AT_MOST = 5

_OWN_NAMES = frozenset(
    {"tmp", "tables", "handles", "builds", "evaluations", "lock", "lock.json", "weights.json", "memo.sqlite"}
)
