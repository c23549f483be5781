from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline.core.pool import Limits, Outcome, TaskFailure, available_cores, run_isolated
from rag_pipeline_tests.core.pool_tasks import act, square

REPOSITORY = Path(__file__).resolve().parents[2]


def run(
    jobs: list[tuple[str, Any]], *, seconds: float = 30.0, memory_mb: int | None = None, workers: int = 1
) -> list[Outcome[tuple[str, Any], Any]]:
    limits = Limits(seconds, None if memory_mb is None else memory_mb * 2**20)
    return list(run_isolated(act, jobs, limits=limits, workers=workers))


def test_every_job_has_one_outcome_with_its_result() -> None:
    outcomes = list(run_isolated(square, range(20), limits=Limits(30.0), workers=2))
    assert sorted((outcome.job, outcome.result) for outcome in outcomes) == [(n, n * n) for n in range(20)]
    assert all(outcome.failure is None and outcome.message is None for outcome in outcomes)


def test_no_job_starts_no_worker() -> None:
    assert list(run_isolated(square, [], limits=Limits(1.0))) == []


def test_a_worker_that_crashes_is_replaced_and_the_others_finish() -> None:
    outcomes = {
        outcome.job: outcome for outcome in run([("return", 1), ("kill", int(signal.SIGSEGV)), ("return", 2)])
    }
    crashed = outcomes["kill", int(signal.SIGSEGV)]
    assert crashed.failure is TaskFailure.CRASHED
    assert crashed.message == "its worker process ended with SIGSEGV"
    assert outcomes["return", 1].result == 1
    assert outcomes["return", 2].result == 2


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (("exit", 3), "its worker process ended with exit code 3"),
        (("kill", int(signal.SIGKILL)), "its worker process ended with SIGKILL (the system may have"),
        (("raise", "no such thing"), "ValueError: no such thing"),
        (("unpicklable", 1), "pickle"),
    ],
)
def test_a_crash_says_how_it_ended(job: tuple[str, Any], message: str) -> None:
    (outcome,) = run([job])
    assert outcome.failure is TaskFailure.CRASHED
    assert outcome.result is None
    assert message in (outcome.message or "")


def test_a_job_over_its_time_ends_as_timeout_and_the_next_one_runs() -> None:
    outcomes = {outcome.job: outcome for outcome in run([("sleep", 60), ("return", 5)], seconds=0.5)}
    assert outcomes["sleep", 60].failure is TaskFailure.TIMEOUT
    assert outcomes["sleep", 60].message == "it took longer than 0.5 seconds"
    assert outcomes["return", 5].result == 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space is limited on Linux only")
def test_memory_beyond_the_limit_ends_as_out_of_memory_and_the_worker_is_replaced() -> None:
    before, big, after = run([("pid", 1), ("allocate", 1024), ("pid", 2)], memory_mb=256)
    assert big.failure is TaskFailure.OUT_OF_MEMORY
    assert big.message == "it took more than 256 MiB of memory"
    assert before.result != after.result


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is watched on Linux only")
def test_memory_that_fills_up_ends_as_out_of_memory_before_an_allocation_fails() -> None:
    # 320 MiB fit the address space (twice 256), and are more than may be held.
    (outcome,) = run([("fill", 320)], memory_mb=256)
    assert outcome.failure is TaskFailure.OUT_OF_MEMORY


def test_address_space_that_is_only_reserved_does_not_count() -> None:
    (outcome,) = run([("reserve", 384)], memory_mb=256)
    assert outcome.result == 384 * 2**20


def test_memory_within_the_limit_is_granted() -> None:
    (outcome,) = run([("allocate", 128)], memory_mb=256)
    assert outcome.result == 128 * 2**20


def test_jobs_are_drawn_only_as_workers_take_them() -> None:
    drawn = count()
    outcomes = run_isolated(square, drawn, limits=Limits(30.0), workers=2)
    for _ in range(3):
        next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    # Three outcomes and at most two jobs a worker in flight.
    assert next(drawn) <= 3 + 2 * 2


def test_closing_the_iterator_stops_the_workers() -> None:
    outcomes = run_isolated(act, [("pid", 0), ("sleep", 600)], limits=Limits(None), workers=1)
    pid = next(outcomes).result
    outcomes.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_load_neither_models_nor_dagster() -> None:
    (outcome,) = run([("modules", None)])
    heavy = {"torch", "dagster", "sentence_transformers", "matplotlib", "scipy", "pyarrow", "duckdb"}
    assert heavy.isdisjoint(outcome.result)


def test_it_works_from_a_thread() -> None:
    found: list[int | None] = []
    thread = threading.Thread(
        target=lambda: found.extend(o.result for o in run_isolated(square, [3], limits=Limits(30.0)))
    )
    thread.start()
    thread.join()
    assert found == [9]


def test_a_script_without_a_main_guard_is_not_run_again_in_the_workers(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent(
            """
            from rag_pipeline.core.pool import Limits, run_isolated
            from rag_pipeline_tests.core.pool_tasks import square

            print("main module runs", flush=True)
            print(sorted(o.result for o in run_isolated(square, [1, 2, 3], limits=Limits(30.0), workers=2)))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.stdout == "main module runs\n[1, 4, 9]\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        textwrap.dedent(
            """
            from rag_pipeline.core.pool import Limits, run_isolated
            from rag_pipeline_tests.core.pool_tasks import act

            for outcome in run_isolated(act, [("pid", 0), ("sleep", 600)], limits=Limits(None), workers=1):
                print(outcome.result, flush=True)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(100):
        if not _is_running(worker):
            return
        threading.Event().wait(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent by ten seconds")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # An orphan that nobody has reaped yet is dead all the same.
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_available_cores_is_what_this_process_may_use() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
