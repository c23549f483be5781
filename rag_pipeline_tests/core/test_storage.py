"""The storage root: atomic files, its lock, its schema version, and what it says when it cannot write."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rag_pipeline.core.errors import StorageError, StorageLockedError
from rag_pipeline.core.schemas import SOURCE_DOCUMENTS
from rag_pipeline.core.storage import Handle, Storage, canonical_json, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, count_rows, read_rows


def rows(n: int, size: int = 1) -> list[dict[str, object]]:
    return [
        {
            "document_id": f"{i:05}.md",
            "size": size,
            "sha256": "0" * 64,
            "media_type": "text/markdown",
            "state": "listed",
            "reason": None,
        }
        for i in range(n)
    ]


def test_a_root_is_made_and_opened_again(tmp_path: Path) -> None:
    assert Storage.existing(tmp_path / "new") is None
    Storage.create(tmp_path / "new")
    assert Storage.existing(tmp_path / "new") is not None
    Storage.create(tmp_path / "new")


def test_a_folder_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(StorageError, match=r"not a storage root, and not empty \(holds 'holiday.jpg'\)"):
        Storage.create(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["holiday.jpg"]


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "set storage.root to a new folder"), (99, "newer release")]
)
def test_a_root_of_another_schema_version_is_refused(tmp_path: Path, version: int, advice: str) -> None:
    Storage.create(tmp_path / "root")
    (tmp_path / "root" / "format.json").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(StorageError, match=f"schema version {version}, this release reads 1.*{advice}"):
        Storage.create(tmp_path / "root")
    with pytest.raises(StorageError, match="schema version"):
        Storage.existing(tmp_path / "root")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    (storage.root / "format.json").write_text("{half")
    with pytest.raises(StorageError, match=r"format\.json: not valid JSON"):
        storage.check_format()


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission denied")],
)
def test_write_errors_say_what_to_do(tmp_path: Path, number: int, advice: str) -> None:
    with (
        pytest.raises(StorageError, match=f"{advice}.*What is published is whole"),
        storage_errors(tmp_path),
    ):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), storage_errors(tmp_path):
        tmp_path.write_text("a folder")


def test_handles_survive_a_round_trip(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    handle = Handle("chunks", "abc", 3, {"table": "t.parquet"}, {"canonical_documents": "x"}, {"a": 1})
    assert storage.read_handle("chunks") is None
    storage.write_handle(handle)
    assert storage.read_handle("chunks") == handle


def test_an_existing_folder_is_never_replaced(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    for content in ("first", "second"):
        folder = storage.temporary()
        folder.mkdir()
        (folder / "file").write_text(content)
        fresh = storage.commit_directory(folder, storage.root / "builds" / "one")
        assert fresh is (content == "first")
    assert (storage.root / "builds" / "one" / "file").read_text() == "first"
    assert list((storage.root / "tmp").iterdir()) == []


def test_the_lock_names_its_holder(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    waited: list[str] = []
    with (
        storage.lock("run abc", timeout=0),
        pytest.raises(StorageLockedError, match=rf"in use by run abc \(process {os.getpid()} on "),
        Storage(storage.root).lock("run def", timeout=0.2, on_wait=waited.append),
    ):
        pass
    assert len(waited) == 1
    with storage.lock("run ghi", timeout=0):
        assert "run ghi" in storage.lock_holder()


def test_a_killed_holder_frees_the_lock_and_its_litter_goes(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from rag_pipeline.core.storage import Storage
        storage = Storage(Path(sys.argv[1]))
        with storage.lock("doomed", timeout=0):
            storage.temporary(".parquet").write_text("half a file")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    subprocess.run([sys.executable, "-c", script, str(storage.root)], check=False)
    assert len(list((storage.root / "tmp").iterdir())) == 1
    with storage.lock("next", timeout=0):
        assert not [p for p in (storage.root / "tmp").iterdir() if p.suffix == ".parquet"]


def test_a_tables_version_is_its_rows_whatever_the_batches(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")
    with TableWriter(storage, SOURCE_DOCUMENTS) as whole:
        whole.write(rows(3000))
    with TableWriter(storage, SOURCE_DOCUMENTS) as pieces:
        for row in rows(3000):
            pieces.write([row])
    assert whole.data_version == pieces.data_version
    assert whole.path == pieces.path
    assert whole.rows == pieces.rows == count_rows(whole.path) == 3000
    assert list(read_rows(whole.path)) == rows(3000)
    with TableWriter(storage, SOURCE_DOCUMENTS) as other:
        other.write(rows(3000, size=2))
    assert other.data_version != whole.data_version


def test_a_failed_table_leaves_nothing(tmp_path: Path) -> None:
    storage = Storage.create(tmp_path / "root")

    def interrupted() -> None:
        with TableWriter(storage, SOURCE_DOCUMENTS) as writer:
            writer.write(rows(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list((storage.root / "tmp").iterdir()) == []
    assert list((storage.root / "tables").iterdir()) == []


def test_versions_depend_on_values_not_on_key_order() -> None:
    assert version_of({"a": 1, "b": 2}) == version_of({"b": 2, "a": 1})
    assert version_of("ab", "c") != version_of("a", "bc")
    assert canonical_json({"b": "é", "a": None}) == '{"a":null,"b":"é"}'
