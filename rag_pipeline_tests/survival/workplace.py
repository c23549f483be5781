"""A pipeline in a folder of its own, run in processes of their own, and what a reader of it sees."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from rag_pipeline import open_index
from rag_pipeline.core.storage import Storage
from rag_pipeline.index.builds import Build, list_builds
from rag_pipeline.index.publish import published
from rag_pipeline.retrieval.search import SearchIndex
from rag_pipeline.settings import Settings
from rag_pipeline.status import read_status
from rag_pipeline_tests.conftest import DOCUMENTS, OUT_OF_DOMAIN, QUESTIONS, run_chain, write_lines
from rag_pipeline_tests.survival import driver
from rag_pipeline_tests.survival.driver import Action, Place

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["rag_pipeline_tests.survival.warm"])

# Seconds after which a process that should have ended counts as hanging.
PATIENCE = 120

EDITIONS = ("spring", "midsummer", "late autumn")
QUERIES = ("When is a brake pad replaced?", "wholly unknown words")
MODES = ("dense", "bm25", "hybrid")

Answers = list[dict[str, Any]]


def corpus(edition: str) -> dict[str, str]:
    """Return three documents of an edition: every text differs from the other editions', and so do its offsets."""
    texts = {}
    for name, text in DOCUMENTS.items():
        title, _, body = text.partition("\n\n")
        texts[name] = f"{title}\n\n## Edition\n\nThis is the {edition} edition of this handbook.\n\n{body}"
    return texts


def write_edition(folder: Path, edition: str) -> None:
    """Write the documents of an edition to a folder."""
    for name, text in corpus(edition).items():
        _made((folder / name).parent)
        (folder / name).write_text(text, "utf-8")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed."""

    code: int
    output: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Running:
    """A process at work."""

    def __init__(self, process: ForkServerProcess, output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def wait(self) -> Ended:
        """Wait until it has ended."""
        self._process.join(PATIENCE)
        assert not self._process.is_alive(), f"it hangs; so far it printed:\n{self._printed()}"
        code = self._process.exitcode
        assert code is not None
        return Ended(code, self._printed())

    def wait_for(self, words: str, unless_after: float | None = None) -> None:
        """Wait until it has printed these words; or for some seconds, if it may be that it does not come to it."""
        until = time.monotonic() + (PATIENCE if unless_after is None else unless_after)
        while words not in (printed := self._printed()) and self.alive:
            if time.monotonic() >= until:
                assert unless_after is not None, f"it never said {words!r}:\n{printed}"
                return
            time.sleep(0.02)
        assert words in printed or unless_after is not None, f"it ended without saying {words!r}:\n{printed}"

    def _printed(self) -> str:
        return self._output.read_text("utf-8") if self._output.exists() else ""

    def end(self) -> None:
        """End it if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def start(target: Callable[..., None], output: Path, *arguments: Any, **named: Any) -> Running:
    """Start a function of the driver in a process forked from one that has everything imported."""
    process = _FORKS.Process(target=target, args=arguments, kwargs={**named, "output": output})
    process.start()
    return Running(process, output)


@dataclass(frozen=True)
class Workplace:
    """A folder with documents, questions, a settings file and a storage root."""

    folder: Path
    encoder: str

    @classmethod
    def create(cls, folder: Path, encoder: str | Path, edition: str, **sections: dict[str, Any]) -> Workplace:
        """Write everything that a first run needs."""
        work = cls(folder, str(encoder))
        write_lines(_made(folder) / "questions.jsonl", QUESTIONS)
        write_lines(folder / "out_of_domain.jsonl", OUT_OF_DOMAIN)
        work.write_edition(edition)
        work.configure(**sections)
        return work

    def configure(self, **sections: dict[str, Any]) -> None:
        """Write the settings file, with some keys of some sections changed."""
        values: dict[str, dict[str, Any]] = {
            "source": {"path": "documents"},
            "storage": {"root": "data/storage", "lock_timeout": 60.0},
            "embedding": {"model": self.encoder},
            "evaluation": {"questions": "questions.jsonl", "out_of_domain": "out_of_domain.jsonl"},
            # An encoder with random weights knows no meaning: everything is let through.
            "retrieval": {"threshold": 2.0},
            "publication": {"keep": 1},
            "extraction": {"workers": 1},
        }
        for section, keys in sections.items():
            values[section] = {**values.get(section, {}), **keys}
        # JSON's texts and numbers are TOML's.
        lines = [
            line
            for section, keys in values.items()
            for line in (f"[{section}]", *(f"{k} = {json.dumps(v)}" for k, v in keys.items()))
        ]
        self.config.write_text("\n".join(lines) + "\n", "utf-8")

    def copy(self, folder: Path) -> Workplace:
        """Return a copy of the whole folder."""
        shutil.copytree(self.folder, folder)
        return Workplace(folder, self.encoder)

    def copy_with_root(self, folder: Path, root: Path) -> Workplace:
        """Return a copy whose storage root is another one's copy."""
        leave = shutil.ignore_patterns("data", "output")
        shutil.copytree(self.folder, folder, ignore=leave)
        copied = Workplace(folder, self.encoder)
        shutil.copytree(root, copied.root)
        return copied

    @property
    def config(self) -> Path:
        return self.folder / "rag_pipeline.toml"

    @property
    def root(self) -> Path:
        return self.settings.storage_root

    @cached_property
    def settings(self) -> Settings:
        return Settings.load(self.config)

    def write_edition(self, edition: str) -> None:
        """Write the documents of an edition, in place of what was there."""
        write_edition(self.folder / "documents", edition)

    # -- processes --------------------------------------------------------------------------------------------

    def start_job(self, place: Place | None = None, action: Action = driver.die, **named: Any) -> Running:
        """Start the full job."""
        return start(driver.job, self._output(), self.config, place=place, action=action, **named)

    def job(self, place: Place | None = None, action: Action = driver.die, **named: Any) -> Ended:
        """Run the full job to its end."""
        return self.start_job(place, action, **named).wait()

    def start_command(self, *arguments: str, **named: Any) -> Running:
        """Start a command of the command line."""
        return start(driver.command, self._output(), arguments, self.folder, **named)

    def command(self, *arguments: str, **named: Any) -> Ended:
        """Run a command of the command line to its end."""
        return self.start_command(*arguments, **named).wait()

    def publish(self, edition: str | None = None) -> str:
        """Index an edition, which has to succeed; return the published build."""
        if edition is not None:
            self.write_edition(edition)
        ended = self.job()
        assert ended.code == 0, ended.output
        return self.published

    def publish_here(self, edition: str | None = None) -> str:
        """Index an edition in this process, without Dagster: the same steps, and quicker."""
        if edition is not None:
            self.write_edition(edition)
        run_chain(self.settings)
        return self.published

    def _output(self) -> Path:
        folder = _made(self.folder / "output")
        path = folder / f"{len(list(folder.iterdir())):03}.txt"
        path.touch()
        return path

    # -- what there is ----------------------------------------------------------------------------------------

    @property
    def published(self) -> str:
        """The build that readers get."""
        now = published(Storage(self.root))
        assert now is not None
        return now.build

    @property
    def builds(self) -> list[Build]:
        return list_builds(Storage(self.root))

    def open(self) -> SearchIndex:
        return open_index(self.settings)

    def answers(self) -> Answers:
        """Return what a reader gets who opens the index now: every query in every mode."""
        with self.open() as index:
            return answers_of(index)

    def status(self) -> dict[str, Any]:
        return read_status(self.settings)

    def files(self) -> set[str]:
        """Return the files of the storage root, without those that come and go with SQLite."""
        return {
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.is_file() and not path.name.startswith("memo.sqlite-")
        }

    @property
    def litter(self) -> list[str]:
        """What lies in the folder of unfinished files."""
        return sorted(p.name for p in (self.root / "tmp").iterdir())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the storage root's lock, at once or not at all, and touch nothing else."""
        with (self.root / "lock").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield


def answers_of(index: SearchIndex) -> Answers:
    """Return the answers of an open index to every query in every mode."""
    return [index.search(query, mode).to_json() for query in QUERIES for mode in MODES]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
