"""A storage root that cannot be written: writers say so clearly, readers do not notice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.mounts import read_only
from rag_pipeline_tests.survival.workplace import QUERIES, Workplace

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Locked:
    """A storage root that may only be read."""

    work: Workplace
    advice: str


@pytest.fixture(params=["read-only file system", "folder without write permission"])
def locked(request: pytest.FixtureRequest, before: Before, tmp_path: Path) -> Iterator[Locked]:
    work = before.copy(tmp_path)
    if request.param == "read-only file system":
        with read_only(work.root):
            yield Locked(work, "the file system is read-only")
        return
    _set_modes(work.root, folders=0o555, files=0o444)
    yield Locked(work, "permission denied")
    _set_modes(work.root, folders=0o755, files=0o644)


def _set_modes(folder: Path, folders: int, files: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(folders if path.is_dir() else files)


def test_readers_do_not_notice(locked: Locked, before: Before) -> None:
    work = locked.work
    for query in QUERIES:
        search = work.command("search", query, "--json", obey_permissions=True)
        assert search.code == 0, search.output
        assert json.loads(search.output) in before.answers
    status = work.command("status", "--json", obey_permissions=True)
    assert status.code == 0, status.output
    assert json.loads(status.output)["published"]["build"] == before.build
    evaluate = work.command("evaluate", "--json", obey_permissions=True)
    assert evaluate.code == 0, evaluate.output


@pytest.mark.parametrize(
    "arguments", [["index"], ["rollback"], ["prune"], ["evaluate", "--strategy", "C"]], ids=" ".join
)
def test_writers_say_what_is_wrong(locked: Locked, before: Before, arguments: list[str]) -> None:
    work = locked.work
    ended = work.command(*arguments, obey_permissions=True)
    assert ended.code == 1, ended.output
    last = ended.output.strip().splitlines()[-1]
    assert last.startswith(f"rag-pipeline: {work.root}"), ended.output
    assert f"{locked.advice}: set storage.root to a" in last
    assert work.answers() == before.answers


def test_a_new_root_in_a_read_only_folder_is_refused(before: Before, tmp_path: Path) -> None:
    work = before.copy(tmp_path)
    (work.folder / "shelf").mkdir()
    work.configure(storage={"root": "shelf/storage"})
    with read_only(work.folder / "shelf"):
        ended = work.command("index")
    assert ended.code == 1
    assert (
        "shelf/storage: the file system is read-only: set storage.root to a writable folder" in ended.output
    )
    assert list((work.folder / "shelf").iterdir()) == []
