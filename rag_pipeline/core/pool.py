"""Work in processes that may crash, hang or run out of memory without taking the caller down.

`run_isolated` knows nothing of what it runs. Workers are started by `spawn`: they inherit no thread, lock or
model of the caller, and load only the module of the function they run. Built on Pebble, which kills the
worker of a task that runs over its time and puts another in its place.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pebble import ProcessExpired, ProcessFuture, ProcessPool

Job = TypeVar("Job")
Result = TypeVar("Result")

# A worker ends itself with this code when memory ran out: what is left of its heap is not worth trusting.
_OUT_OF_MEMORY_EXIT = 77
# Jobs handed to the pool per worker: one runs, one waits, so that no worker idles between two.
_IN_FLIGHT_PER_WORKER = 2
# How often a job is tried when the pool itself broke, which says nothing about the job.
_MAX_ATTEMPTS = 3
# Seconds beyond the time limit without any result after which the pool counts as broken.
_STALL_SECONDS = 120.0
# Address space that a worker may reserve, in units of the memory that it may hold.
_ADDRESS_SPACE_FACTOR = 2
# How often a worker looks how much memory it holds.
_MEMORY_POLL_SECONDS = 0.05
# How often a worker looks whether its parent still lives.
_PARENT_POLL_SECONDS = 1.0


class TaskFailure(StrEnum):
    """How a job ended without a result."""

    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Limits:
    """What one job may take: wall-clock seconds, and bytes of memory on top of what an idle worker holds.

    None means no limit. The memory that counts is what the worker really holds (resident); a thread of the worker
    watches it, so that native code that cannot report a failed allocation ends as `out_of_memory` too and not as a
    crash. Address space (`RLIMIT_AS`) is limited to `_ADDRESS_SPACE_FACTOR` times as much, since numerical libraries
    reserve far more than they use; it stops a single huge allocation at once. Both work on Linux only.
    """

    seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Outcome(Generic[Job, Result]):
    """A job with its result, or with how it failed and a message for a person."""

    job: Job
    result: Result | None
    failure: TaskFailure | None = None
    message: str | None = None


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_isolated(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    limits: Limits,
    workers: int = 0,
) -> Iterator[Outcome[Job, Result]]:
    """Run `function` on every job in worker processes; yield each outcome as soon as it is known.

    `function` stands at the top level of an importable module; jobs and results can be pickled.
    `workers` 0 means one a core. Jobs are drawn from `jobs` as workers take them, so an endless iterable is
    fine, and outcomes come in the order in which they end. A job never raises here: an exception in
    `function`, a crash, a hang or memory run out ends as its failure, and its worker is replaced.
    Closing the iterator stops the workers.
    """
    remaining = iter(jobs)
    first = list(islice(remaining, workers or available_cores()))
    if not first:
        return
    waiting: deque[tuple[Job, int]] = deque()
    fresh = chain(first, remaining)
    in_flight: dict[ProcessFuture[bytes], tuple[Job, int]] = {}
    window = _IN_FLIGHT_PER_WORKER * len(first)
    stall = None if limits.seconds is None else limits.seconds + _STALL_SECONDS
    pool = _new_pool(len(first), limits)
    try:
        while True:
            while len(in_flight) < window:
                job, attempt = waiting.popleft() if waiting else (next(fresh, _NO_JOB), 1)
                if job is _NO_JOB:
                    break
                future = pool.schedule(_call, args=(function, job), timeout=limits.seconds)
                in_flight[future] = (job, attempt)
            if not in_flight:
                return
            done, _ = wait(in_flight, timeout=stall, return_when=FIRST_COMPLETED)
            broken = [] if done else list(in_flight)
            for ended in done:
                future = cast("ProcessFuture[bytes]", ended)
                if isinstance(future.exception(), BrokenProcessPool):
                    broken = list(in_flight)
                    continue
                job, _ = in_flight.pop(future)
                yield _outcome(job, future, limits)
            if broken:
                _close(pool)
                pool = _new_pool(len(first), limits)
                for future in broken:
                    if future not in in_flight:
                        continue
                    job, attempt = in_flight.pop(future)
                    if attempt < _MAX_ATTEMPTS:
                        waiting.append((job, attempt + 1))
                    else:
                        yield Outcome(job, None, TaskFailure.CRASHED, "its worker could not be kept running")
    finally:
        _close(pool)


_NO_JOB: Any = object()


def _outcome(job: Job, future: ProcessFuture[bytes], limits: Limits) -> Outcome[Job, Any]:
    error = future.exception()
    if error is None:
        raised, value = pickle.loads(future.result())
        if raised:
            return Outcome(job, None, TaskFailure.CRASHED, value)
        return Outcome(job, value)
    if isinstance(error, TimeoutError):
        return Outcome(job, None, TaskFailure.TIMEOUT, f"it took longer than {limits.seconds:g} seconds")
    if isinstance(error, ProcessExpired):
        if error.exitcode == _OUT_OF_MEMORY_EXIT:
            mebibytes = (limits.memory_bytes or 0) / 2**20
            return Outcome(
                job, None, TaskFailure.OUT_OF_MEMORY, f"it took more than {mebibytes:.0f} MiB of memory"
            )
        return Outcome(
            job, None, TaskFailure.CRASHED, f"its worker process ended with {_ending(error.exitcode)}"
        )
    return Outcome(job, None, TaskFailure.CRASHED, f"{type(error).__name__}: {error}")


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    # The kernel's last resort when the machine runs out of memory, and nobody else's here.
    return f"{name} (the system may have been short of memory)" if name == "SIGKILL" else name


def _new_pool(workers: int, limits: Limits) -> ProcessPool:
    return ProcessPool(
        max_workers=workers,
        initializer=_start_worker,
        initargs=(os.getpid(), limits.memory_bytes),
        context=_Context(),
    )


def _close(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


# In the worker.


def _call(function: Callable[[Any], Any], job: Any) -> bytes:
    """Return, pickled, whether `function` raised, and its result or the exception's text.

    Pickled here, so that memory running out while the result is written counts like any other time.
    """
    try:
        try:
            return pickle.dumps((False, function(job)), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            return pickle.dumps((True, f"{type(error).__name__}: {error}"))
    except MemoryError:
        os._exit(_OUT_OF_MEMORY_EXIT)


def _start_worker(parent: int, memory_bytes: int | None) -> None:
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    if sys.platform == "win32":
        return
    import resource

    # A crash is recorded as a reason; a core file of gigabytes beside it helps nobody.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if memory_bytes is not None:
        address_space, resident = _memory()
        if resident:
            threading.Thread(target=_die_beyond, args=(resident + memory_bytes,), daemon=True).start()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = address_space + _ADDRESS_SPACE_FACTOR * memory_bytes
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        with suppress(ValueError, OSError):  # macOS knows the limit and refuses to set it
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _memory() -> tuple[int, int]:
    """Return the bytes of address space and of resident memory of this process (0 where the system does not tell)."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()
    except OSError:
        return 0, 0
    size = os.sysconf("SC_PAGE_SIZE")
    return int(pages[0]) * size, int(pages[1]) * size


def _die_beyond(resident_bytes: int) -> None:
    """End this worker when it holds more memory than this."""
    while _memory()[1] <= resident_bytes:
        time.sleep(_MEMORY_POLL_SECONDS)
    os._exit(_OUT_OF_MEMORY_EXIT)


def _die_with(parent: int) -> None:
    """End this worker when its parent is gone, so that a killed run leaves no process behind."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


# How workers are started.


class _Process(SpawnProcess):
    """A spawned process that does not import the caller's `__main__`.

    `spawn` re-runs the main script in every child so that functions defined there can be found. Ours never
    are, and re-running it would start the caller's work again wherever the script has no `__main__` guard.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        with _without_main_module():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    Process = _Process


_LAUNCH = threading.Lock()


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Let processes that this thread spawns start without the main module."""
    this_thread = threading.get_ident()
    with _LAUNCH:
        original = spawn.get_preparation_data

        def preparation_data(name: str) -> dict[str, Any]:
            data: dict[str, Any] = original(name)
            if threading.get_ident() == this_thread:
                data.pop("init_main_from_name", None)
                data.pop("init_main_from_path", None)
            return data

        spawn.get_preparation_data = preparation_data
        try:
            yield
        finally:
            spawn.get_preparation_data = original
