from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from rag_pipeline.core.errors import SourceError
from rag_pipeline.core.schemas import SOURCE_DOCUMENTS
from rag_pipeline.documents.source import SourceDocument, document_path, scan_source, source_fingerprint
from rag_pipeline.documents.states import DocumentState, SkipReason
from rag_pipeline_tests.documents.conftest import Write

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="file names are bytes on Linux only"
)


def reasons(root: Path) -> dict[str, str | None]:
    return {d.document_id: d.reason.value if d.reason else None for d in scan_source(root)}


def test_documents_are_listed_by_their_path_in_order(tmp_path: Path, write: Write) -> None:
    write("b.md", b"# B")
    write("sub/a.TXT", b"text")
    write("README", b"text")
    documents = scan_source(tmp_path)
    assert [d.document_id for d in documents] == ["README", "b.md", "sub/a.TXT"]
    assert [d.media_type for d in documents] == ["text/plain", "text/markdown", "text/plain"]
    assert documents[1].sha256 == hashlib.sha256(b"# B").hexdigest()
    assert documents[1].size == 3
    assert {d.state for d in documents} == {DocumentState.LISTED}


def test_what_is_not_read_is_listed_with_its_reason(tmp_path: Path, write: Write) -> None:
    root = tmp_path / "root"
    outside = write("outside/secret.md", b"secret")
    write("root/a.md", b"x")
    write("root/.hidden.md", b"x")
    write("root/.git/config", b"x")
    write("root/tool.exe", b"\x7fELF")
    write("root/sub/b.md", b"y")
    os.mkfifo(root / "pipe.md")
    (root / "leaves.md").symlink_to(outside)
    (root / "leaves_folder").symlink_to(outside.parent)
    (root / "inside.md").symlink_to(root / "a.md")
    (root / "inside_folder").symlink_to(root / "sub")
    (root / "to_hidden.md").symlink_to(root / ".hidden.md")
    (root / "broken.md").symlink_to(root / "none.md")
    (root / "loop.md").symlink_to(root / "loop.md")
    assert reasons(root) == {
        ".git/": "hidden",
        ".hidden.md": "hidden",
        "a.md": None,
        "broken.md": "broken_link",
        "inside.md": None,
        "inside_folder/": "linked_folder",
        "leaves.md": "outside_root",
        "leaves_folder/": "outside_root",
        "loop.md": "broken_link",
        "pipe.md": "not_a_file",
        "sub/b.md": None,
        "to_hidden.md": "hidden",
        "tool.exe": "unknown_type",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_what_may_not_be_read_is_skipped(tmp_path: Path, write: Write) -> None:
    write("a.md", b"x")
    write("locked.md", b"x").chmod(0)
    assert reasons(tmp_path)["locked.md"] == "unreadable"


def test_a_file_that_cannot_be_opened_is_skipped(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.md", b"x")
    write("locked.md", b"x")
    opened = Path.open

    def refuse(path: Path, *args: object, **kwargs: object) -> object:
        if path.name == "locked.md":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    assert reasons(tmp_path) == {"a.md": None, "locked.md": "unreadable"}


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"source\.path: .*nowhere does not exist"):
        scan_source(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"source\.path: .*does not exist"):
        source_fingerprint(tmp_path / "nowhere")


def test_a_file_as_source_is_an_error(write: Write) -> None:
    with pytest.raises(SourceError, match=r"source\.path: .*is no folder"):
        scan_source(write("a.md", b"x"))


def test_an_empty_source_is_an_error(tmp_path: Path, write: Write) -> None:
    with pytest.raises(SourceError, match=r"source\.path: .*holds no document"):
        scan_source(tmp_path)
    write(".hidden.md", b"x")
    with pytest.raises(SourceError, match=r"holds no document of a known type \(1 entries skipped\)"):
        scan_source(tmp_path)


@linux_only
@pytest.mark.parametrize(
    ("name", "document_id"),
    [
        (b"caf\xe9.md", "caf\\xe9.md"),
        (b"back\\slash.md", "back\\\\slash.md"),
        (b"caf\\xe9.md", "caf\\\\xe9.md"),
        ("日本 語.md".encode(), "日本 語.md"),
        (b"line\nbreak.md", "line\nbreak.md"),
        (b"50%.md", "50%.md"),
    ],
)
def test_any_file_name_has_an_id_that_leads_back_to_it(tmp_path: Path, name: bytes, document_id: str) -> None:
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(b"x")
    (document,) = scan_source(tmp_path)
    assert document.document_id == document_id
    document.document_id.encode("utf-8")
    assert document_path(tmp_path, document.document_id) == path
    assert document_path(tmp_path, document.document_id).read_bytes() == b"x"


def test_progress_counts_the_entries(tmp_path: Path, write: Write) -> None:
    write("a.md", b"x")
    write("b.md", b"x")
    seen: list[tuple[int, str]] = []
    scan_source(tmp_path, lambda done, document_id: seen.append((done, document_id)))
    assert seen == [(1, "a.md"), (2, "b.md")]


def test_the_fingerprint_changes_with_the_folder_and_with_nothing_else(tmp_path: Path, write: Write) -> None:
    path = write("a.md", b"one")
    before = source_fingerprint(tmp_path)
    assert source_fingerprint(tmp_path) == before
    os.utime(path, ns=(1, 1))
    touched = source_fingerprint(tmp_path)
    write("b.md", b"two")
    added = source_fingerprint(tmp_path)
    path.rename(tmp_path / "c.md")
    renamed = source_fingerprint(tmp_path)
    assert len({before, touched, added, renamed}) == 4


def test_a_row_of_the_table_gives_the_entry_back() -> None:
    entries = [
        SourceDocument("a.md", 3, "ab", "text/markdown", DocumentState.LISTED),
        SourceDocument("b/", 0, None, None, DocumentState.SKIPPED, SkipReason.HIDDEN),
    ]
    table = pa.Table.from_pylist([entry.to_row() for entry in entries], schema=SOURCE_DOCUMENTS.schema)
    assert [SourceDocument.from_row(row) for row in table.to_pylist()] == entries
