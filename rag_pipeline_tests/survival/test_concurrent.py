"""Two writers on one storage root: the second waits or names the first, and readers do not care."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rag_pipeline.defs.run import open_instance
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.driver import Pause, Place
from rag_pipeline_tests.survival.workplace import EDITIONS, PATIENCE, Running, Workplace

pytestmark = pytest.mark.slow

HOLDER = (
    r"is in use by run [0-9a-f]{8} \(process \d+ on .+, since .+Z\): wait for it to end, or raise storage"
)


@contextmanager
def paused(folder: Path, start: Callable[[Pause], Running]) -> Iterator[tuple[Running, Path]]:
    """Start a process and wait until it has come to its place; it goes on when the file that is given appears."""
    pause = Pause(folder / "reached", folder / "go on")
    run = start(pause)
    try:
        while not pause.reached.exists():
            assert run.alive, run.wait().output
            time.sleep(0.02)
        yield run, pause.go_on
    finally:
        run.end()


def test_two_runs_started_at_once_both_succeed(tmp_path: Path, tiny_encoder: Path) -> None:
    """As two users would, where nothing was indexed yet."""
    work = Workplace.create(tmp_path, tiny_encoder, EDITIONS[0])
    with open_instance(work.settings):
        pass  # Dagster's home is there; the test below makes it
    command = [sys.executable, "-m", "rag_pipeline.cli", "index", "--json"]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = [run.communicate(timeout=PATIENCE) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], [errors for _, errors in ends]
    reports = [json.loads(output) for output, _ in ends]
    assert {report["build"] for report in reports} == {work.published}
    # One did the work, the other found it done.
    assert sorted(report["new"] for report in reports) == [False, True]
    assert [build.id for build in work.builds] == [work.published]
    assert work.answers()
    assert work.litter == []


@pytest.mark.parametrize(
    "place",
    [
        # No format file was found, and it was not yet looked what else is there.
        Place("pathlib:Path.iterdir", where="data/storage"),
        Place("rag_pipeline.core.storage:Storage.write_json", where="format.json"),
        # The format file is written and lies in `tmp`, which whoever takes the lock empties.
        Place("rag_pipeline.core.storage:fsync_file", where="storage/tmp/"),
    ],
    ids=str,
)
def test_a_storage_root_that_two_runs_make_is_made_once(
    tmp_path: Path, tiny_encoder: Path, place: Place
) -> None:
    work = Workplace.create(tmp_path / "work", tiny_encoder, EDITIONS[0])
    with paused(tmp_path, lambda pause: work.start_job(place, pause)) as (late, go_on):
        build = work.publish()
        go_on.touch()
        ended = late.wait()
    assert ended.code == 0, ended.output
    assert work.published == build
    assert work.litter == []


def test_a_dagster_home_that_two_runs_make_is_made_once(tmp_path: Path, tiny_encoder: Path) -> None:
    work = Workplace.create(tmp_path / "work", tiny_encoder, EDITIONS[0])
    place = Place("sqlalchemy.engine.base:Connection._execute_ddl")

    def start(pause: Pause) -> Running:
        return work.start_command("index", place=place, action=pause)

    with paused(tmp_path, start) as (late, go_on):
        other = work.start_command("index")
        other.wait_for("published_index", unless_after=5)  # it may have to wait for the home
        go_on.touch()
        ends = [late.wait(), other.wait()]
    assert [ended.code for ended in ends] == [0, 0], [ended.output for ended in ends]


@pytest.fixture
def held(before: Before, tmp_path: Path) -> Iterator[tuple[Workplace, Running, Path]]:
    """A storage root that a run holds, half-way through its build; the run goes on when the file appears."""
    work = before.copy(tmp_path)
    place = Place("rag_pipeline.index.builds:write_duckdb")

    def start(pause: Pause) -> Running:
        return work.start_command("index", place=place, action=pause)

    with paused(tmp_path, start) as (run, go_on):
        yield work, run, go_on


@pytest.mark.parametrize(
    "arguments", [["index"], ["rollback"], ["evaluate", "--strategy", "C"]], ids=" ".join
)
def test_a_writer_that_is_not_patient_names_the_holder(
    held: tuple[Workplace, Running, Path], before: Before, arguments: list[str]
) -> None:
    work, run, go_on = held
    work.configure(storage={"lock_timeout": 0.5})
    ended = work.command(*arguments)
    assert ended.code == 1
    assert re.search(HOLDER, ended.output), ended.output
    assert "Traceback" not in ended.output
    assert work.answers() == before.answers
    go_on.touch()
    assert run.wait().code == 0
    assert work.answers() == before.next_answers
    assert work.files() == before.next_files


def test_readers_do_not_wait_for_a_writer(held: tuple[Workplace, Running, Path], before: Before) -> None:
    work, run, go_on = held
    work.configure(storage={"lock_timeout": 0.0})
    search = work.command("search", "When is a brake pad replaced?", "--json")
    assert search.code == 0, search.output
    assert json.loads(search.output) in before.answers
    status = work.command("status", "--json")
    assert status.code == 0, status.output
    assert json.loads(status.output)["published"]["build"] == before.build
    evaluate = work.command("evaluate", "--json")
    assert evaluate.code == 0, evaluate.output
    assert json.loads(evaluate.output)["build"] == before.build
    go_on.touch()
    assert run.wait().code == 0


def test_a_patient_writer_waits_and_then_finds_the_work_done(
    held: tuple[Workplace, Running, Path], before: Before
) -> None:
    work, run, go_on = held
    second = work.start_command("index")
    second.wait_for("waiting for the storage root: in use by run")
    go_on.touch()
    first = run.wait()
    assert first.code == 0, first.output
    ended = second.wait()
    assert ended.code == 0, ended.output
    assert "Nothing new" in ended.output
    assert work.published == before.next_build
    assert work.files() == before.next_files
    assert work.litter == []


def test_a_rollback_waits_for_a_run_and_takes_back_what_it_published(
    held: tuple[Workplace, Running, Path], before: Before
) -> None:
    work, run, go_on = held
    rollback = work.start_command("rollback")
    rollback.wait_for("in use by run")
    go_on.touch()
    assert run.wait().code == 0
    ended = rollback.wait()
    assert ended.code == 0, ended.output
    assert work.published == before.build
    assert work.answers() == before.answers
    assert work.status()["hold"]["build"] == before.build
