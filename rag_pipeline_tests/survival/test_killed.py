"""A run that is killed at any point loses nothing: readers get the old build or the new one, and the next run ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_pipeline import open_index
from rag_pipeline.core.errors import StorageError
from rag_pipeline.core.storage import Storage
from rag_pipeline.embedding.config import DEFAULT_MODEL
from rag_pipeline.retrieval.config import RetrievalConfig
from rag_pipeline_tests.survival import driver
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.driver import Place
from rag_pipeline_tests.survival.workplace import EDITIONS, QUERIES, Workplace

pytestmark = pytest.mark.slow

STEPS = (
    "source_documents",
    "extracted_documents",
    "canonical_documents",
    "chunks",
    "chunk_embeddings",
    "bm25_statistics",
    "candidate_index",
    "ground_truth",
    "retrieval_evaluation",
    "published_index",
)
AT_STEPS = [Place(f"rag_pipeline.steps:{step}", moment) for step in STEPS for moment in ("before", "after")]

STORAGE = "rag_pipeline.core.storage:Storage"
WITHIN = [
    # The storage root is taken: litter cleared, the holder not yet named.
    Place(f"{STORAGE}._clear_temporary", "after"),
    # One document's result is remembered, the next one's is not.
    Place("rag_pipeline.core.memo:Memo.put", call=2),
    # Within a transaction of the memo.
    Place("rag_pipeline.core.memo:zlib.compress", call=6),
    # A table: rows written and no footer, footer written and no final name, final name and no handle.
    Place("pyarrow.parquet:ParquetWriter.close", call=3),
    Place("rag_pipeline.core.tables:TableWriter.__exit__", call=4),
    Place("rag_pipeline.core.storage:fsync_file", "after", where=".parquet", call=4),
    Place(f"{STORAGE}.write_handle", call=4),
    Place(f"{STORAGE}.write_handle", "after", call=4),
    # Vectors encoded and remembered, but not written.
    Place("rag_pipeline.embedding.embed:remembered_vectors", "after"),
    # A build: linked, half its DuckDB file, stamped, moved.
    Place(f"{STORAGE}.link_or_copy", where="vectors.npy"),
    Place("rag_pipeline.index.builds:_describe"),
    Place("rag_pipeline.index.builds:_check_counts", "after"),
    Place(f"{STORAGE}.commit_directory"),
    Place(f"{STORAGE}.commit_directory", "after"),
    # An evaluation: figures without a receipt, a receipt without a handle.
    Place("rag_pipeline.evaluation.stages:write_receipt"),
    Place("rag_pipeline.evaluation.stages:write_receipt", "after"),
    # The switch.
    Place("rag_pipeline.steps:publish"),
    Place(f"{STORAGE}.commit", where="published.json"),
]
SWITCHED = [
    Place("rag_pipeline.steps:published_index", "after"),
    Place(f"{STORAGE}.commit", "after", where="published.json"),
    # Pruning: a build set aside, half removed, gone while its evaluations are left; half of the tables removed.
    Place("shutil:rmtree", where="-pruned"),
    Place("os:unlink", where="index.duckdb"),
    Place("rag_pipeline.index.publish:_prune_evaluations"),
    Place("os:unlink", where="tables/", call=3),
    # Everything done, and still the holder of the storage root.
    Place("os:unlink", where="lock.json"),
]
REAL = [
    Place("rag_pipeline.embedding.embed:remembered_vectors", "after"),
    Place(f"{STORAGE}.commit", where="published.json"),
]


@pytest.mark.parametrize("place", [*AT_STEPS[:-1], *WITHIN], ids=str)
def test_a_run_killed_before_the_switch_loses_nothing(before: Before, tmp_path: Path, place: Place) -> None:
    work = before.copy(tmp_path)
    ended = work.job(place)
    assert ended.killed, ended.output
    assert work.answers() == before.answers
    status = work.status()
    assert status["published"]["build"] == before.build
    assert status["hold"] is None
    _the_next_run_completes(work, before)


@pytest.mark.parametrize("place", SWITCHED, ids=str)
def test_a_run_killed_after_the_switch_has_published(before: Before, tmp_path: Path, place: Place) -> None:
    work = before.copy(tmp_path)
    ended = work.job(place)
    assert ended.killed, ended.output
    assert work.answers() == before.next_answers
    assert work.status()["published"]["build"] == before.next_build
    _the_next_run_completes(work, before)


def test_every_change_to_the_storage_root_leaves_it_whole(before: Before, tmp_path: Path) -> None:
    """An image of the root before each single change is what a kill just then leaves: readers can use each."""
    work = before.copy(tmp_path)
    ended = work.job(snapshots=tmp_path / "images")
    assert ended.code == 0, ended.output
    images = sorted((tmp_path / "images").iterdir())
    changes = [(image / "change.txt").read_text("utf-8") for image in images]
    (switch,) = [i for i, change in enumerate(changes) if change.endswith(" published.json")]
    # Every file of the build that is pruned is among the changes, one by one.
    assert sum(change.startswith("os.remove") and "-pruned/" in change for change in changes[switch:]) > 10
    for i, image in enumerate(images):
        with open_index(image / "storage") as index:
            expected = before.answers if i <= switch else before.next_answers
            assert index.search(QUERIES[0]).to_json() in expected, changes[i]
        assert Storage.existing(image / "storage") is not None
    for i in range(0, len(images), 30):
        _the_next_run_completes(work.copy_with_root(tmp_path / f"from-{i}", images[i] / "storage"), before)


def test_a_rollback_killed_between_its_hold_and_its_switch_changes_nothing_yet(
    before: Before, tmp_path: Path
) -> None:
    work = before.copy(tmp_path)
    ended = work.command("rollback", place=Place("rag_pipeline.index.publish:_switch"))
    assert ended.killed, ended.output
    assert work.answers() == before.answers
    assert work.status()["hold"] is not None
    # Nothing newer can slip in: the next run waits for a person.
    held = work.job()
    assert held.code == 1
    assert "PublicationHeldError: publication is held since" in held.output
    assert work.answers() == before.answers
    assert work.command("rollback").code == 0
    assert work.published not in (before.build, before.next_build)
    assert work.command("rollback", "--release").code == 0
    assert work.publish() == before.next_build


def test_a_killed_run_with_the_real_model_loses_nothing(tmp_path: Path) -> None:
    """The whole command line, with Dagster's records on disk and the encoder that users have; killed twice."""
    first, second, _ = EDITIONS
    work = Workplace.create(
        tmp_path / "work", DEFAULT_MODEL, first, retrieval={"threshold": RetrievalConfig().threshold}
    )
    assert work.command("index").code == 0
    answers = work.answers()
    assert {answer["refused"] for answer in answers} == {True, False}
    work.write_edition(second)
    undisturbed = work.copy(tmp_path / "undisturbed")
    for place in REAL:
        killed = work.command("index", place=place)
        assert killed.killed, killed.output
        assert work.answers() == answers
    for each in (work, undisturbed):
        ended = each.command("index")
        assert ended.code == 0, ended.output
    assert work.published == undisturbed.published
    assert work.answers() == undisturbed.answers() != answers
    assert work.files() == undisturbed.files()


def test_control_a_pointer_written_in_place_is_lost(before: Before, tmp_path: Path) -> None:
    """What the tests above ask for is not there for nothing: a careless writer fails them."""
    work = before.copy(tmp_path)
    ended = work.job(
        Place("rag_pipeline_tests.survival.driver:half_written"), careless=driver.write_pointer_in_place
    )
    assert ended.killed, ended.output
    with pytest.raises(StorageError, match=r"published\.json: not valid JSON"):
        work.answers()


def _the_next_run_completes(work: Workplace, before: Before) -> None:
    with work.locked():
        pass  # the kernel freed the lock of the killed process
    assert work.publish() == before.next_build
    assert work.answers() == before.next_answers
    assert work.litter == []
    assert work.files() == before.next_files
