"""Readers that search in a loop, and hold every answer against what its build answered when all was quiet."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_pipeline import open_index
from rag_pipeline.retrieval.search import SearchIndex
from rag_pipeline.settings import Settings
from rag_pipeline_tests.survival.workplace import Answers, corpus

# Searches on one open index before a reader that keeps it opens anew.
KEPT_FOR = 60


@dataclass(frozen=True)
class Expected:
    """What each build answers, and which edition it was made from."""

    editions: dict[str, str]
    answers: dict[str, Answers]

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps([self.editions, self.answers]), "utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Expected:
        return cls(*json.loads(path.read_text("utf-8")))

    def problem(self, answer: dict[str, Any]) -> str | None:
        """Return what is wrong with an answer; None where it comes wholly from one build."""
        build = answer["build"]
        if build not in self.editions:
            return f"unknown build {build}"
        texts = corpus(self.editions[build])
        for hit in answer["hits"]:
            text = texts[hit["document_id"]]
            if hit["quote"] != text[hit["from"] : hit["to"]]:
                return f"build {build}: {hit['quote']!r} does not stand in its corpus"
        if _rounded(answer) not in map(_rounded, self.answers[build]):
            return (
                f"build {build} answered {answer['query']!r} ({answer['mode']}) otherwise when all was quiet"
            )
        return None


def _rounded(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its numbers to six places: threads may add floats in another order."""
    hits = [{k: round(v, 6) if isinstance(v, float) else v for k, v in hit.items()} for hit in answer["hits"]]
    return {**answer, "hits": hits}


@dataclass
class Seen:
    """What a reader saw."""

    answers: int = 0
    builds: list[str] = field(default_factory=list)
    """Builds in the order in which they were opened."""
    problems: list[str] = field(default_factory=list)


def read_until(stop: Callable[[], bool], settings: Settings, expected: Expected, keep: bool = False) -> Seen:
    """Search until `stop`: on an index opened for each few queries, or with `keep` on one that stays open a while."""
    seen = Seen()
    queries = sorted({(a["query"], a["mode"]) for answers in expected.answers.values() for a in answers})
    while not stop():
        try:
            with open_index(settings) as index:
                if not seen.builds or seen.builds[-1] != index.build:
                    seen.builds.append(index.build)
                _search(index, queries, KEPT_FOR if keep else 2, expected, seen)
        except Exception as error:  # noqa: BLE001 - whatever a reader is told while builds come and go is a finding
            seen.problems.append(f"{type(error).__name__}: {error}")
    return seen


def _search(
    index: SearchIndex, queries: list[tuple[str, str]], times: int, expected: Expected, seen: Seen
) -> None:
    for _ in range(times):
        query, mode = queries[seen.answers % len(queries)]
        answer = index.search(query, mode).to_json()
        seen.answers += 1
        problem = expected.problem(answer)
        if problem is None and answer["build"] != index.build:
            problem = f"the answer names build {answer['build']}, the open index {index.build}"
        if problem is not None:
            seen.problems.append(problem)
