"""A damaged file: the message names it and says what to do, and doing so repairs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_pipeline import steps
from rag_pipeline.core.errors import DamagedBuildError, IndexNotFoundError, StorageError
from rag_pipeline.core.storage import Storage
from rag_pipeline.steps import open_session
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.driver import Place
from rag_pipeline_tests.survival.test_killed import STEPS
from rag_pipeline_tests.survival.workplace import EDITIONS, Workplace

pytestmark = pytest.mark.slow

BUILD_FILES = (
    "stamp.json",
    "manifest.json",
    "vectors.npy",
    "index.duckdb",
    "documents.parquet",
    "terms.parquet",
    "posting_rows.npy",
)


@pytest.fixture
def work(before: Before, tmp_path: Path) -> Workplace:
    return before.copy(tmp_path)


def truncate(path: Path) -> None:
    """Cut a file in half. As another file: the same bytes may have other names."""
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.unlink()
    path.write_bytes(half)


def test_a_truncated_memo_is_deleted(work: Workplace, before: Before) -> None:
    memo = Storage(work.root).memo_path
    truncate(memo)
    ended = work.command("index")
    assert ended.code == 1
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith(f"rag-pipeline: {memo}: ")
    assert "the memo is damaged; delete it (its work is then done again)" in last
    assert work.answers() == before.answers
    memo.unlink()
    assert work.publish_here() == before.next_build
    assert work.files() == before.next_files


@pytest.mark.parametrize("asset", ["candidate_index", "published_index"])
def test_a_truncated_handle_is_written_anew_by_indexing(work: Workplace, before: Before, asset: str) -> None:
    handle = work.root / "handles" / f"{asset}.json"
    truncate(handle)
    with pytest.raises(
        StorageError, match=rf"{asset}\.json: not valid JSON .* remove it and run `rag-pipeline index`"
    ):
        Storage(work.root).read_handle(asset)
    assert work.answers() == before.answers
    assert work.publish_here() == before.next_build
    # Tables are pruned by a run that can read every handle.
    assert work.publish_here() == before.next_build
    assert work.files() == before.next_files


def test_every_truncated_handle_is_written_anew_by_indexing(work: Workplace, before: Before) -> None:
    for asset in STEPS:
        truncate(work.root / "handles" / f"{asset}.json")
    assert work.answers() == before.answers
    assert work.publish_here() == before.next_build
    assert work.publish_here() == before.next_build
    assert work.files() == before.next_files


def tables(work: Workplace) -> list[Path]:
    return sorted(path for path in (work.root / "tables").glob("*/*"))


def test_a_missing_table_names_itself_and_what_writes_it(work: Workplace) -> None:
    """As in Dagster's UI, where one asset may be materialised alone."""
    chunked = Storage(work.root).read_handle("chunks")
    assert chunked is not None
    table = work.root / chunked.files["table"]
    table.unlink()
    with (
        open_session(work.settings, "a test") as session,
        pytest.raises(StorageError, match=rf"{table} is missing: run `rag-pipeline index`"),
    ):
        steps.chunk_embeddings(session, chunked)


def test_a_damaged_table_names_itself_and_what_writes_it(work: Workplace) -> None:
    chunked = Storage(work.root).read_handle("chunks")
    assert chunked is not None
    table = work.root / chunked.files["table"]
    truncate(table)
    with (
        open_session(work.settings, "a test") as session,
        pytest.raises(StorageError, match=rf"{table}: .*: the table is damaged; remove it and run"),
    ):
        steps.chunk_embeddings(session, chunked)


@pytest.mark.parametrize("damage", [Path.unlink, truncate], ids=["missing", "truncated"])
def test_tables_are_written_anew_by_indexing(
    work: Workplace, before: Before, damage: Callable[[Path], None]
) -> None:
    for table in tables(work):
        damage(table)
    # Builds keep their own links to what they share.
    assert work.answers() == before.answers
    work.write_edition(EDITIONS[1])
    assert work.publish_here() == before.build
    assert work.publish_here(EDITIONS[2]) == before.next_build
    assert work.files() == before.next_files


@pytest.mark.parametrize("name", BUILD_FILES)
@pytest.mark.parametrize("damage", [Path.unlink, truncate], ids=["missing", "truncated"])
def test_a_damaged_build_is_refused_by_name(
    work: Workplace, before: Before, name: str, damage: Callable[[Path], None]
) -> None:
    damage(work.root / "builds" / before.build / name)
    with pytest.raises(
        (DamagedBuildError, IndexNotFoundError),
        match=rf"build '?{before.build}'?(: .*{name}\b.*| does not exist .*)index again, .*or roll back",
    ):
        work.answers()
    search = work.command("search", "anything")
    assert search.code == 1
    assert "Traceback" not in search.output


@pytest.mark.parametrize("name", BUILD_FILES)
def test_indexing_the_same_corpus_makes_a_damaged_build_anew(
    work: Workplace, before: Before, name: str
) -> None:
    truncate(work.root / "builds" / before.build / name)
    assert work.publish_here(EDITIONS[1]) == before.build
    assert work.answers() == before.answers
    assert work.litter == []


@pytest.mark.parametrize("name", ["stamp.json", "manifest.json", "vectors.npy"])
def test_indexing_a_changed_corpus_replaces_a_damaged_build(
    work: Workplace, before: Before, name: str
) -> None:
    truncate(work.root / "builds" / before.build / name)
    assert work.publish_here() == before.next_build
    assert work.answers() == before.next_answers


@pytest.mark.parametrize("name", ["manifest.json", "vectors.npy"])
def test_rolling_back_leaves_a_damaged_build(work: Workplace, before: Before, name: str) -> None:
    (other,) = {build.id for build in work.builds} - {before.build}
    truncate(work.root / "builds" / before.build / name)
    ended = work.command("rollback")
    assert ended.code == 0, ended.output
    assert work.published == other
    assert {answer["build"] for answer in work.answers()} == {other}


def test_a_build_taken_away_by_hand_is_made_anew(work: Workplace, before: Before) -> None:
    (work.root / "builds" / before.build).rename(work.folder / "taken away")
    with pytest.raises(IndexNotFoundError, match="It is the published one: index again, or roll back"):
        work.answers()
    assert work.publish_here(EDITIONS[1]) == before.build
    assert work.answers() == before.answers


@pytest.mark.parametrize(
    "place",
    [
        Place("shutil:rmtree", "after", where="evaluations/"),
        Place("rag_pipeline.core.storage:Storage.commit_directory"),
        Place("rag_pipeline.core.storage:Storage.commit_directory", "after"),
    ],
    ids=str,
)
def test_a_repair_that_is_killed_is_made_by_the_next_run(
    work: Workplace, before: Before, place: Place
) -> None:
    truncate(work.root / "builds" / before.build / "vectors.npy")
    work.write_edition(EDITIONS[1])
    ended = work.job(place)
    assert ended.killed, ended.output
    assert work.publish_here() == before.build
    assert work.answers() == before.answers
    assert work.litter == []


def test_a_damaged_candidate_is_not_published(work: Workplace, before: Before) -> None:
    """It is damaged between its evaluation and its publication."""
    ended = work.job(Place("rag_pipeline.steps:published_index"))
    assert ended.killed, ended.output
    truncate(work.root / "builds" / before.next_build / "vectors.npy")
    handles = [Storage(work.root).read_handle(a) for a in ("candidate_index", "retrieval_evaluation")]
    with (
        open_session(work.settings, "a test") as session,
        pytest.raises(
            DamagedBuildError,
            match=rf"build {before.next_build}: vectors\.npy was changed after it was built: index again",
        ),
    ):
        steps.published_index(session, *handles)  # type: ignore[arg-type]
    assert work.answers() == before.answers
    assert work.publish_here() == before.next_build
    assert work.answers() == before.next_answers
    assert work.files() == before.next_files


def test_a_damaged_pointer_is_removed_and_written_anew(work: Workplace, before: Before) -> None:
    pointer = work.root / "published.json"
    truncate(pointer)
    for arguments in ["search", "anything"], ["status"], ["index"]:
        ended = work.command(*arguments)
        assert ended.code == 1, ended.output
        assert f"{pointer}: not valid JSON" in ended.output
        assert "remove it and run `rag-pipeline index`" in ended.output
    pointer.unlink()
    assert work.publish_here() == before.next_build
    assert work.answers() == before.next_answers


def test_a_damaged_hold_still_holds_until_it_is_released(work: Workplace, before: Before) -> None:
    assert work.command("rollback").code == 0
    truncate(work.root / "hold.json")
    held = work.job()
    assert held.code == 1
    assert "hold.json: not valid JSON" in held.output
    assert "release it with `rag-pipeline rollback --release`, then index again" in held.output
    assert work.command("rollback", "--release").code == 0
    assert work.publish_here() == before.next_build


def test_damaged_figures_of_the_published_build_do_not_stop_the_next_run(
    work: Workplace, before: Before
) -> None:
    (receipt,) = (work.root / "evaluations" / before.build).glob("*/receipt.json")
    truncate(receipt)
    assert work.answers() == before.answers
    work.write_edition(EDITIONS[1])
    ended = work.job()
    assert ended.code == 1
    assert f"{receipt}: not valid JSON" in ended.output
    assert "remove it and run `rag-pipeline index`" in ended.output
    receipt.unlink()
    assert work.publish_here() == before.build
    assert work.publish_here(EDITIONS[2]) == before.next_build
