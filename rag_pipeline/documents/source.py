"""The source folder: what lies in it, what of it is a document, and whether it changed.

A document's id is its path relative to the folder, with `/`. POSIX file names are bytes; a name that is not
UTF-8 is written with `\\xhh` for each byte that is none (and `\\\\` for a backslash), so that every id is a
string any table can hold and `document_path` finds the file again.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_pipeline.core.errors import SourceError
from rag_pipeline.documents import media_types
from rag_pipeline.documents.states import DocumentState, SkipReason

# Called with the number of documents done so far and the id of the last one.
Progress = Callable[[int, str], None]

_READ_BYTES = 1 << 20
_ESCAPE = re.compile(r"\\(?:\\|x([0-9a-f]{2}))")


@dataclass(frozen=True)
class SourceDocument:
    """An entry of the source folder: the columns of the table `source_documents`.

    `sha256` is None for skipped entries; `media_type` is None where unknown. The id of a folder that is
    skipped
    as a whole ends with `/`.
    """

    document_id: str
    size: int
    sha256: str | None
    media_type: str | None
    state: DocumentState
    reason: SkipReason | None = None

    def to_row(self) -> dict[str, object]:
        """Return the row of the table `source_documents`."""
        return {
            "document_id": self.document_id,
            "size": self.size,
            "sha256": self.sha256,
            "media_type": self.media_type,
            "state": self.state.value,
            "reason": self.reason.value if self.reason else None,
        }

    @classmethod
    def from_row(cls, row: dict[str, object]) -> SourceDocument:
        """Return the entry that a row of the table `source_documents` holds."""
        return cls(
            document_id=str(row["document_id"]),
            size=int(str(row["size"])),
            sha256=None if row["sha256"] is None else str(row["sha256"]),
            media_type=None if row["media_type"] is None else str(row["media_type"]),
            state=DocumentState(str(row["state"])),
            reason=None if row["reason"] is None else SkipReason(str(row["reason"])),
        )


@dataclass(frozen=True)
class _Entry:
    document_id: str
    path: Path
    size: int
    modified_ns: int
    skip: SkipReason | None


def scan_source(root: Path, progress: Progress | None = None) -> list[SourceDocument]:
    """Return every entry of the folder `root`, listed or skipped, sorted by document id.

    Reads every document once, for its sha256. Raises SourceError where `root` is missing, no folder, or holds
    no document that would be listed.
    """
    documents: list[SourceDocument] = []
    for entry in _entries(root):
        documents.append(_described(entry))
        if progress is not None:
            progress(len(documents), entry.document_id)
    if not any(document.state is DocumentState.LISTED for document in documents):
        skipped = f" ({len(documents)} entries skipped)" if documents else ""
        raise SourceError(
            f"source.path: the folder {root} holds no document of a known type{skipped}; "
            "an empty source never becomes an empty index"
        )
    return sorted(documents, key=lambda document: document.document_id)


def source_fingerprint(root: Path) -> str:
    """Return a hash over path, size and modification time of every entry of `root`; reads no content.

    Raises SourceError where `root` is missing or no folder.
    """
    digest = hashlib.sha256()
    for entry in sorted(_entries(root), key=lambda entry: entry.document_id):
        line = (entry.document_id, entry.size, entry.modified_ns, entry.skip and entry.skip.value)
        digest.update(repr(line).encode())
    return digest.hexdigest()


def document_path(root: Path, document_id: str) -> Path:
    """Return where the document `document_id` lies below `root`."""
    if "\\" not in document_id or os.name == "nt":
        return root / document_id
    raw = _ESCAPE.sub(
        lambda match: os.fsdecode(bytes([int(match[1], 16)])) if match[1] else "\\", document_id
    )
    return root / raw


def _document_id(relative: str) -> str:
    if os.name == "nt":
        return relative.replace("\\", "/")
    return (
        relative.replace("\\", "\\\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    )


def _entries(root: Path) -> Iterator[_Entry]:
    """Yield every file below `root`, and the folders and links that are not followed, as skipped entries."""
    try:
        is_folder = root.is_dir()
    except OSError as error:
        raise SourceError(f"source.path: the folder {root} cannot be read: {error.strerror}") from error
    if not is_folder:
        problem = "is no folder" if root.exists() else "does not exist"
        raise SourceError(f"source.path: {root} {problem}; set it to the folder of documents to index")
    try:
        with os.scandir(root):
            pass
    except OSError as error:
        raise SourceError(f"source.path: the folder {root} cannot be read: {error.strerror}") from error
    yield from _walk(root, "", root.resolve())


def _walk(folder: Path, prefix: str, real_root: Path) -> Iterator[_Entry]:
    folders = [(folder, prefix)]
    while folders:
        folder, prefix = folders.pop()
        try:
            with os.scandir(folder) as found:
                children = sorted(found, key=lambda child: child.name)
        except OSError:
            yield _Entry(_document_id(prefix), folder, 0, 0, SkipReason.UNREADABLE)
            continue
        for child in children:
            path = folder / child.name
            relative = prefix + child.name
            skip = _skip_reason(child, path, real_root)
            is_folder = _is_folder(child)
            if is_folder and skip is None:
                folders.append((path, relative + "/"))
                continue
            size, modified_ns = _size_and_time(path)
            document_id = _document_id(relative) + ("/" if is_folder else "")
            yield _Entry(document_id, path, 0 if is_folder else size, modified_ns, skip)


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:
        return False


def _skip_reason(child: os.DirEntry[str], path: Path, real_root: Path) -> SkipReason | None:
    if child.name.startswith("."):
        return SkipReason.HIDDEN
    try:
        if child.is_symlink():
            target = path.resolve(strict=True)
            if not target.is_relative_to(real_root):
                return SkipReason.OUTSIDE_ROOT
            if any(part.startswith(".") for part in target.relative_to(real_root).parts):
                return SkipReason.HIDDEN
            if target.is_dir():
                # Its files are listed where they lie; following it could go round in circles.
                return SkipReason.LINKED_FOLDER
        mode = child.stat().st_mode
    except FileNotFoundError:
        return SkipReason.BROKEN_LINK
    except (OSError, RuntimeError):  # a loop of links, or no permission
        return SkipReason.BROKEN_LINK if child.is_symlink() else SkipReason.UNREADABLE
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else SkipReason.NOT_A_FILE


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def describe_file(path: Path) -> SourceDocument:
    """Return the entry of one file named on its own; its id is the file's name.

    A file that `scan_source` would skip for its name or place is listed: it was asked for. Raises SourceError
    where `path` is no file.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file or folder")
    size, modified_ns = _size_and_time(path)
    return _described(_Entry(_document_id(path.name), path, size, modified_ns, None))


def _described(entry: _Entry) -> SourceDocument:
    if entry.skip is not None:
        return SourceDocument(entry.document_id, entry.size, None, None, DocumentState.SKIPPED, entry.skip)
    try:
        sha256, head, size = _read(entry.path)
    except OSError:
        return SourceDocument(
            entry.document_id, entry.size, None, None, DocumentState.SKIPPED, SkipReason.UNREADABLE
        )
    media_type = media_types.detect(entry.path.name, head)
    if media_type is None:
        return SourceDocument(
            entry.document_id, size, None, None, DocumentState.SKIPPED, SkipReason.UNKNOWN_TYPE
        )
    return SourceDocument(entry.document_id, size, sha256, media_type, DocumentState.LISTED)


def _read(path: Path) -> tuple[str, bytes, int]:
    """Return the sha256, the first bytes and the size of a file, all from one reading of it."""
    digest = hashlib.sha256()
    head = b""
    size = 0
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            head = head or block[: media_types.HEAD_BYTES]
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), head, size
