"""Jobs for the pool's tests; they stand in a module of their own because workers import it by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def square(number: int) -> int:
    return number * number


def act(job: tuple[str, Any]) -> Any:
    """Do what the job says: the ways in which a document may treat its worker."""
    action, value = job
    return _ACTIONS[action](value)


def _raise(value: Any) -> Any:
    raise ValueError(value)


def _kill(value: Any) -> Any:
    os.kill(os.getpid(), value)
    time.sleep(60)


def _exit(value: Any) -> Any:
    os._exit(value)


def _allocate(mebibytes: int) -> Any:
    held = bytearray(mebibytes * 2**20)
    return len(held)


def _fill(mebibytes: int) -> Any:
    """Take memory as native code does: bit by bit, and deaf to errors."""
    held = []
    for _ in range(mebibytes):
        held.append(bytearray(b"x" * 2**20))
        time.sleep(0.002)
    return len(held)


def _reserve(mebibytes: int) -> Any:
    """Reserve address space without using it."""
    import mmap

    with mmap.mmap(-1, mebibytes * 2**20) as region:
        return len(region)


def _unpicklable(value: Any) -> Any:
    return lambda: value


_ACTIONS = {
    "return": lambda value: value,
    "sleep": time.sleep,
    "raise": _raise,
    "kill": _kill,
    "exit": _exit,
    "allocate": _allocate,
    "fill": _fill,
    "reserve": _reserve,
    "unpicklable": _unpicklable,
    "pid": lambda value: os.getpid(),
    "modules": lambda value: sorted(sys.modules),
    "ignore_term": lambda value: (signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(value)),
}
