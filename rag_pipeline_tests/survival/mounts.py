"""Small and read-only file systems for a test, where this machine lets a test mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Let a folder, made where it is missing, be a disk of `size` bytes while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with _mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        yield


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let a folder be read-only, for root too, while the block runs."""
    with _mounted("--bind", str(folder), str(folder)):
        _mount("-o", "remount,bind,ro", str(folder))
        yield


@contextmanager
def _mounted(*arguments: str) -> Iterator[None]:
    _mount(*arguments)
    try:
        yield
    finally:
        # Lazily: a process of the test that hangs must not leave the mount behind.
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)


def _mount(*arguments: str) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("this system has no mount command")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this user may not mount a file system: {error.stderr.strip()}")
