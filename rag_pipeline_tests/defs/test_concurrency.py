"""Two runs at once on one storage root: one writes, the other waits or names the holder."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import dagster as dg

from rag_pipeline import open_index
from rag_pipeline.steps import open_session
from rag_pipeline_tests.defs.pipelines import CHAIN, Pipeline

WAITING = "waiting for the storage root: in use by "
PATIENCE = 60  # seconds until a test gives up; never waited out where the code is right


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.02)


def logged(instance: dg.DagsterInstance, text: str) -> bool:
    return any(
        text in record.user_message for run in instance.get_runs() for record in instance.all_logs(run.run_id)
    )


def test_a_second_run_waits_for_the_first_and_then_both_succeed(small: Pipeline) -> None:
    small.settings = small.settings.replace(storage={"lock_timeout": PATIENCE})
    with ThreadPoolExecutor(1) as pool:
        with open_session(small.settings, "run 01234567"):
            second = pool.submit(small.run)
            eventually(lambda: logged(small.instance, WAITING))
            assert not second.done()
            assert small.runs == []
        run = second.result(timeout=PATIENCE)
    assert run.success, run.error
    assert f"{WAITING}run 01234567 (process {os.getpid()} on " in run.log
    assert set(run.materialised) == set(CHAIN)


def test_two_runs_at_once_both_succeed(small: Pipeline) -> None:
    small.edit("refunds.md", "three working days", "four working days")
    start = threading.Barrier(2)

    def run() -> dict[str, int]:
        # Each its own instance, as two processes have; one storage root.
        with dg.DagsterInstance.ephemeral() as instance:
            pipeline = Pipeline(small.settings.replace(storage={"lock_timeout": PATIENCE}), instance)
            start.wait(PATIENCE)
            return pipeline.published_run().work

    with ThreadPoolExecutor(2) as pool:
        works = [future.result(timeout=PATIENCE) for future in [pool.submit(run), pool.submit(run)]]
    # The work was done once; whoever came second remembered it.
    once = {"extracted": 1, "canonical": 1, "cut": 1, "encoded": 1}
    assert sorted(works, key=str) == sorted([once, dict.fromkeys(once, 0)], key=str)
    assert not (small.storage.root / "lock.json").exists()
    with open_index(small.settings) as index:
        assert index.stamp["build"] == small.candidate.id


def test_a_run_that_may_not_wait_fails_naming_the_holder(small: Pipeline) -> None:
    before = small.pointer
    with open_session(small.settings, "run 01234567"):
        run = small.run(storage={"lock_timeout": 0})
    assert not run.success
    assert "StorageLockedError" in run.error
    assert f"is in use by run 01234567 (process {os.getpid()} on " in run.error
    assert "wait for it to end, or raise storage.lock_timeout" in run.error
    assert run.started == set() and run.materialised == {}
    assert small.pointer == before
    # The root is free again, and nothing of the failed run is left in the way.
    assert small.materialise("source_documents").success


def test_one_asset_alone_holds_the_root_as_well(small: Pipeline) -> None:
    with open_session(small.settings, "run 01234567"):
        run = small.materialise("chunks", storage={"lock_timeout": 0})
    assert "in use by run 01234567" in run.error


def test_a_failed_run_lets_the_root_go(small: Pipeline) -> None:
    assert not small.materialise("retrieval_evaluation", gate={"min_recall": 1.0}).success
    with open_session(small.settings.replace(storage={"lock_timeout": 0}), "the next one"):
        assert small.storage.lock_holder().startswith("the next one")
