"""Readers that search while builds are published and pruned get one build or the other, and never an error."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rag_pipeline.core.storage import Storage
from rag_pipeline.index.publish import newest_receipt, prune, publish
from rag_pipeline_tests.survival import driver
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.driver import Place
from rag_pipeline_tests.survival.readers import Expected, Seen, read_until
from rag_pipeline_tests.survival.workplace import EDITIONS, Workplace, answers_of, start

pytestmark = pytest.mark.slow

# Each edition is published, pruned and published again twice.
ROUNDS = 9


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> tuple[Workplace, Expected]:
    """Three editions, of which the last is published and the first was pruned again; and what each answers."""
    work = Workplace.create(tmp_path_factory.mktemp("library"), tiny_encoder, EDITIONS[0])
    editions, answers = {}, {}
    for edition in EDITIONS:
        build = work.publish(edition)
        editions[build] = edition
        answers[build] = work.answers()
    assert len({build.id for build in work.builds}) == 2
    return work, Expected(editions, answers)


def test_readers_get_one_build_or_the_other_and_never_an_error(
    library: tuple[Workplace, Expected], tmp_path: Path
) -> None:
    seen = watch(*library, tmp_path)
    for reader, what in seen.items():
        assert what.problems == [], reader
        assert what.answers > 0, reader
    assert sum(len(what.builds) for what in seen.values()) > ROUNDS, "the readers slept through it"


def test_control_a_pointer_written_in_place_shows(
    library: tuple[Workplace, Expected], tmp_path: Path
) -> None:
    seen = watch(*library, tmp_path, careless=driver.write_pointer_in_place)
    assert any("not valid JSON" in problem for what in seen.values() for problem in what.problems)


def watch(
    work: Workplace, expected: Expected, folder: Path, careless: driver.Action | None = None
) -> dict[str, Seen]:
    """Let readers search while the editions are published in turn; return what each of them saw."""
    stop = folder / "stop"
    publisher = start(
        driver.publish_in_turn, folder / "publisher.txt", work.config, rounds=ROUNDS, careless=careless
    )
    process = start(
        driver.read_in_a_loop,
        folder / "reader.txt",
        work.config,
        stop=stop,
        expected=expected.save(folder / "expected.json"),
    )

    def read(keep: bool) -> Seen:
        return read_until(lambda: not publisher.alive, work.settings, expected, keep)

    with ThreadPoolExecutor(2) as pool:
        anew, keeping = pool.submit(read, False), pool.submit(read, True)
        seen = {"a thread that opens anew": anew.result(), "a thread that keeps open": keeping.result()}
    stop.touch()
    ended = publisher.wait()
    assert ended.code == 0, ended.output
    report = process.wait()
    assert report.code == 0, report.output
    return {**seen, "a process": Seen(**json.loads(report.output))}


@pytest.mark.parametrize(
    "place",
    [
        Place("rag_pipeline.retrieval.opening:published", "after"),
        Place("rag_pipeline.retrieval.opening:find_build", "after"),
        Place("rag_pipeline.retrieval.opening:check_build", "after"),
        Place("rag_pipeline.retrieval.opening:open_encoder", "after"),
        Place("rag_pipeline.retrieval.reader:open_array", "after"),
        Place("rag_pipeline.retrieval.reader:open_statistics", "after"),
        Place("duckdb:connect"),
    ],
    ids=str,
)
def test_a_build_pruned_while_it_is_being_opened_gives_way_to_the_new_one(
    before: Before, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    work = before.copy(tmp_path)
    (other,) = {build.id for build in work.builds} - {before.build}

    def publish_the_other() -> None:
        storage = Storage(work.root)
        candidate, receipt = storage.read_handle("candidate_index"), newest_receipt(storage, other)
        assert candidate is not None and receipt is not None
        storage.write_handle(replace(candidate, info={"build": other}))
        publish(storage, receipt)
        assert prune(storage, keep=0) == [before.build]

    driver.at(place, publish_the_other, monkeypatch.setattr)
    with work.open() as index:
        assert index.build == other
        assert {answer["build"] for answer in answers_of(index)} == {other}


def test_an_open_index_goes_on_answering_when_its_build_is_pruned(before: Before, tmp_path: Path) -> None:
    work = before.copy(tmp_path)
    with work.open() as index:
        for edition in EDITIONS[2], EDITIONS[0]:
            work.publish(edition)
        assert before.build not in {build.id for build in work.builds}
        assert answers_of(index) == before.answers
