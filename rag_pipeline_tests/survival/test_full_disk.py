"""A full disk is a clear error, loses nothing that was published, and is over once there is space again."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rag_pipeline.core.errors import StorageError
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import SOURCE_DOCUMENTS
from rag_pipeline.core.storage import Storage, storage_errors
from rag_pipeline.core.tables import TableWriter
from rag_pipeline.index.publish import prune
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.driver import FillDisk, Place
from rag_pipeline_tests.survival.mounts import small_disk
from rag_pipeline_tests.survival.workplace import Workplace

pytestmark = pytest.mark.slow

STORAGE = "rag_pipeline.core.storage:Storage"


@pytest.fixture
def work(before: Before, tmp_path: Path) -> Iterator[Workplace]:
    """The published index on a disk of its own; Dagster's records lie elsewhere."""
    work = before.copy(tmp_path)
    aside = work.root.rename(tmp_path / "aside")
    with small_disk(work.root, 64 * 2**20):
        shutil.copytree(aside, work.root, dirs_exist_ok=True)
        yield work


@pytest.mark.parametrize(
    "place",
    [
        # Before the storage root is taken: not even the holder's name can be written.
        Place(f"{STORAGE}.lock"),
        Place("rag_pipeline.documents.stages:extract_isolated"),
        Place("rag_pipeline.embedding.embed:remembered_vectors", "after"),
        Place("rag_pipeline.lexical.tables:_write_array"),
        Place("rag_pipeline.index.builds:_write_tie_ranks"),
        Place("rag_pipeline.index.builds:write_duckdb"),
        Place("rag_pipeline.index.builds:_describe"),
        Place("rag_pipeline.index.builds:_check_counts", "after"),
        Place("rag_pipeline.steps:assess_build"),
        Place("rag_pipeline.steps:published_index"),
    ],
    ids=str,
)
def test_a_disk_that_fills_up_is_a_clear_error_and_loses_nothing(
    before: Before, work: Workplace, place: Place
) -> None:
    filler = FillDisk(work.root / "filler")
    ended = work.command("index", place=place, action=filler)
    assert ended.code == 1, ended.output
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith("rag-pipeline: ") and "the disk is full: free some space" in last, ended.output
    assert str(work.root) in last
    assert work.answers() == before.answers
    status = work.command("status")
    assert status.code == 0, status.output
    filler.file.unlink()
    assert work.publish() == before.next_build
    assert work.answers() == before.next_answers
    assert work.litter == []
    assert work.files() == before.next_files


def test_a_disk_that_fills_up_after_the_switch_leaves_the_new_build_to_readers(
    before: Before, work: Workplace
) -> None:
    filler = FillDisk(work.root / "filler")
    ended = work.command("index", place=Place(f"{STORAGE}.write_handle", call=10), action=filler)
    assert ended.code == 1, ended.output
    assert "the disk is full" in ended.output
    assert work.answers() == before.next_answers
    filler.file.unlink()
    assert work.publish() == before.next_build
    assert work.files() == before.next_files


def test_pruning_needs_no_space(before: Before, work: Workplace) -> None:
    """It is the way out of a full disk."""
    FillDisk(work.root / "filler")()
    storage = Storage(work.root)
    (other,) = {build.id for build in work.builds} - {before.build}
    with storage.lock("prune", timeout=0):
        assert prune(storage, keep=0) == [other]
    assert shutil.disk_usage(work.root).free > 0
    assert work.answers() == before.answers


def test_the_memo_tells_a_full_disk_from_a_damaged_file(work: Workplace) -> None:
    """Whoever deletes a whole memo because the disk is full does all its work again."""
    FillDisk(work.root / "filler")()
    with pytest.raises(StorageError, match=r"memo\.sqlite: .*: the disk is full: free some space") as caught:
        Memo(Storage(work.root).memo_path)
    assert "delete" not in str(caught.value)


def test_a_table_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    noise = random.Random(0)
    rows = [
        {
            "document_id": noise.randbytes(64).hex(),
            "size": 1,
            "sha256": noise.randbytes(32).hex(),
            "media_type": "text/plain",
            "state": "listed",
            "reason": None,
        }
        for _ in range(5000)
    ]
    with small_disk(tmp_path / "disk", 2**18):
        storage = Storage.create(tmp_path / "disk")
        with (
            pytest.raises(StorageError, match="the disk is full"),
            TableWriter(storage, SOURCE_DOCUMENTS) as table,
        ):
            table.write(rows)
        assert list((storage.root / "tmp").iterdir()) == []
        assert not (storage.root / "tables" / SOURCE_DOCUMENTS.name).exists()


def test_a_full_disk_does_not_hide_what_went_wrong_while_a_table_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: pq.ParquetWriter) -> None:
        raise OSError(errno.ENOSPC, "the footer does not fit")

    storage = Storage.create(tmp_path / "storage")
    writer = TableWriter(storage, SOURCE_DOCUMENTS)
    monkeypatch.setattr(pq.ParquetWriter, "close", close)
    with pytest.raises(StorageError, match="what went wrong"), writer:
        raise StorageError("what went wrong")
    monkeypatch.undo()
    assert list((storage.root / "tmp").iterdir()) == []


def test_an_array_that_does_not_fit_is_a_full_disk(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 2**18),
        pytest.raises(StorageError, match=r"disk: the disk is full"),
        storage_errors(tmp_path / "disk"),
        (tmp_path / "disk" / "array.npy").open("wb") as file,
    ):
        np.save(file, np.zeros(2**18))
