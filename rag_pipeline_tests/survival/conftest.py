from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rag_pipeline_tests.survival.workplace import EDITIONS, Answers, Workplace


@dataclass(frozen=True)
class Before:
    """An index that is published, one that was before it, and a changed corpus that was not indexed yet.

    What an undisturbed run makes of it is told by runs in two other folders: one that goes on from here, and one
    that indexes the changed corpus alone.
    """

    work: Workplace
    build: str
    answers: Answers
    next_build: str
    next_answers: Answers
    next_files: frozenset[str]

    def copy(self, folder: Path) -> Workplace:
        """Return a copy to be disturbed."""
        return self.work.copy(folder / "work")


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Before:
    """Two editions indexed, the third one written. To be copied, not to be changed."""
    folder = tmp_path_factory.mktemp("before")
    first, second, third = EDITIONS
    work = Workplace.create(folder / "work", tiny_encoder, first)
    work.publish()
    build = work.publish(second)
    answers = work.answers()
    work.write_edition(third)
    undisturbed = work.copy(folder / "undisturbed")
    alone = Workplace.create(folder / "alone", tiny_encoder, third)
    next_build = alone.publish()
    assert undisturbed.publish() == next_build
    return Before(work, build, answers, next_build, alone.answers(), frozenset(undisturbed.files()))
