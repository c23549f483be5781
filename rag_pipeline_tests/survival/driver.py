"""What runs in a process of its own: a job or a command, interrupted at a named place of the product's code.

The product is not changed for it: a function is wrapped, by its name, in the process that is to be interrupted.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Action = Callable[[], None]


@dataclass(frozen=True)
class Place:
    """Before or after a call of a function of the product."""

    function: str
    """``module:name``, or ``module:Class.name``."""
    moment: Literal["before", "after"] = "before"
    where: str = ""
    """Only calls with this in one of the texts and paths among their arguments count."""
    call: int = 1
    """Which of these calls, from 1."""

    def __str__(self) -> str:
        nth = f" #{self.call}" if self.call > 1 else ""
        where = f" {self.where}" if self.where else ""
        return f"{self.moment} {self.function.partition(':')[2]}{where}{nth}"


def at(place: Place, action: Action, replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let `action` happen when this process comes to a place; `replace` puts the wrapped function there."""
    module, _, path = place.function.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = 0

    @functools.wraps(original)
    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        texts = [str(a) for a in (*arguments, *named.values()) if isinstance(a, str | Path)]
        counts = not place.where or any(place.where in text for text in texts)
        calls += counts
        due = counts and calls == place.call
        if due and place.moment == "before":
            action()
        result = original(*arguments, **named)
        if due and place.moment == "after":
            action()
        return result

    replace(owner, name, interrupted)


def die() -> None:
    """End this process as a lost machine or the kernel's memory killer would."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FillDisk:
    """Writes to a file until nothing more fits on its file system; the file is then what frees the disk."""

    file: Path

    def __call__(self) -> None:
        with self.file.open("wb", buffering=0) as file:
            for size in (2**16, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    pass


@dataclass(frozen=True)
class Pause:
    """Says that it has come to its place by making one file, and goes on when another one appears."""

    reached: Path
    go_on: Path

    def __call__(self) -> None:
        self.reached.touch()
        while not self.go_on.exists():
            time.sleep(0.02)


def _redirect(output: Path) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _obey_permissions() -> None:
    """Let this process obey the permissions of files, which root may ignore (Linux: capabilities 1 to 3)."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then the upper halves
    if libc.capget(header, sets) == 0:
        for at in range(3):
            sets[at] &= ~0b1110
        if libc.capset(header, sets) == 0:
            return
    raise OSError(ctypes.get_errno(), "capset")


def command(
    arguments: Sequence[str],
    directory: Path,
    output: Path,
    place: Place | None = None,
    action: Action = die,
    obey_permissions: bool = False,
) -> None:
    """Run the command line in a folder, its output in a file; the process ends with its exit code."""
    from rag_pipeline.cli import main

    _redirect(output)
    if obey_permissions:
        _obey_permissions()
    os.chdir(directory)
    if place is not None:
        at(place, action)
    sys.exit(main(arguments))


def job(
    config: Path,
    output: Path,
    place: Place | None = None,
    action: Action = die,
    snapshots: Path | None = None,
    careless: Action | None = None,
) -> None:
    """Run the full job through Dagster; the process ends with 0 where it succeeded.

    Dagster's own records are kept in memory and its pictures left out: they are not what survives here, and take
    most of the time.
    With `snapshots`, the storage root is copied there before each change that the process makes to it. `careless`
    puts a worse implementation in place of a part of the product.
    """
    import dagster as dg

    from rag_pipeline.defs.run import run_job
    from rag_pipeline.evaluation import figures
    from rag_pipeline.settings import Settings

    _redirect(output)
    settings = Settings.load(config)
    for picture in ("recall_figure", "sweep_figure"):
        setattr(figures, picture, _no_picture)
    if careless is not None:
        careless()
    if place is not None:
        at(place, action)
    if snapshots is not None:
        _copy_before_each_change(settings.storage_root, snapshots)
    with dg.DagsterInstance.ephemeral() as instance:
        outcome = run_job(settings, instance=instance)
    if outcome.error:
        print(f"{outcome.error_class}: {outcome.error}")
    sys.exit(0 if outcome.success else 1)


def _no_picture(*_: Any) -> bytes:
    return b"<svg/>"


_CHANGES = frozenset({"open", "os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir"})


def _copy_before_each_change(root: Path, into: Path) -> None:
    """Copy the storage root before each change, as an image of what a kill just then would leave."""
    copying = False
    copies = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal copying, copies
        if copying or event not in _CHANGES:
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = str(arguments[0])
        if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:  # a name within an open folder
            path = f"{Path(f'/proc/self/fd/{arguments[1]}').readlink()}/{path}"
        if not path.startswith(f"{root}/") or (event == "os.mkdir" and Path(path).exists()):
            return
        copying = True
        target = f" {arguments[1]}" if event in ("os.rename", "os.link") else ""
        words = f"{path}{target}".replace(f"{root}/", "")
        copies += 1
        image = into / f"{copies:03}"
        shutil.copytree(root, image / "storage")
        (image / "change.txt").write_text(f"{event} {words}", "utf-8")
        copying = False

    sys.addaudithook(hook)


def publish_in_turn(config: Path, output: Path, rounds: int, careless: Action | None = None) -> None:
    """Index and publish the editions in turn, without Dagster, so that builds come and go quickly."""
    from rag_pipeline.settings import Settings
    from rag_pipeline_tests.conftest import run_chain
    from rag_pipeline_tests.survival.workplace import EDITIONS, write_edition

    _redirect(output)
    settings = Settings.load(config)
    if careless is not None:
        careless()
    for number in range(rounds):
        write_edition(Path(settings.source.path), EDITIONS[number % len(EDITIONS)])
        run_chain(settings)


def write_pointer_in_place() -> None:
    """Publish as a careless implementation would: the pointer is overwritten where it stands, bit by bit."""
    from rag_pipeline.core.storage import Storage

    write_json = Storage.write_json

    def careless(self: Storage, path: Path, value: Any) -> None:
        if path.name != "published.json":
            write_json(self, path, value)
            return
        text = json.dumps(value)
        with path.open("w", encoding="utf-8") as file:
            file.write(text[: len(text) // 2])
            file.flush()
            half_written(path)
            file.write(text[len(text) // 2 :])

    Storage.write_json = careless  # type: ignore[method-assign]


def half_written(path: Path) -> None:
    """The moment that an atomic write does not have."""
    del path
    time.sleep(0.05)


def read_in_a_loop(config: Path, output: Path, stop: Path, expected: Path) -> None:
    """Read until a file appears, then print what was seen as JSON."""
    from rag_pipeline.settings import Settings
    from rag_pipeline_tests.survival.readers import Expected, read_until

    _redirect(output)
    seen = read_until(stop.exists, Settings.load(config), Expected.load(expected))
    print(json.dumps(asdict(seen)))
