"""Question files: JSON lines of questions with a needle, and of out-of-domain queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rag_pipeline.core.errors import GroundTruthError


class OutOfDomainKind(StrEnum):
    """How far an out-of-domain query lies from the corpus."""

    NEAR = "near"
    FAR = "far"


@dataclass(frozen=True)
class Question:
    """A needle, the document that holds it, and the phrasings that ask for it."""

    id: str
    needle: str
    document: str
    queries: tuple[str, ...]


@dataclass(frozen=True)
class OutOfDomainQuery:
    """A query that ought to get nothing back."""

    id: str
    query: str
    kind: OutOfDomainKind


def load_questions(path: str | Path) -> list[Question]:
    """Return the questions of a JSON lines file, in file order.

    Each line is `{"id", "needle", "document", "queries": [...]}`; blank lines are passed over. Raises
    GroundTruthError naming file and line for a file that cannot be read or holds no question, malformed JSON,
    missing, unknown or wrongly typed keys, and an id or a query that stands twice.
    """
    questions: list[Question] = []
    seen = _Seen()
    for record in _records(Path(path), ("id", "needle", "document", "queries")):
        queries = record.texts("queries")
        question = Question(record.text("id"), record.text("needle"), record.text("document"), queries)
        seen.add(record, "id", question.id)
        for query in queries:
            seen.add(record, "query", query)
        questions.append(question)
    if not questions:
        raise GroundTruthError(f"{path}: holds no question. Add one, or leave evaluation.questions empty.")
    return questions


def load_out_of_domain(path: str | Path) -> list[OutOfDomainQuery]:
    """Return the out-of-domain queries of a JSON lines file, in file order.

    Each line is `{"id", "query", "kind": "near" | "far"}`. Raises GroundTruthError as `load_questions` does,
    and for another kind.
    """
    queries: list[OutOfDomainQuery] = []
    seen = _Seen()
    for record in _records(Path(path), ("id", "query", "kind")):
        kind = record.text("kind")
        if kind not in set(OutOfDomainKind):
            raise record.error(f'"kind" is {kind!r}; allowed are {", ".join(OutOfDomainKind)}')
        query = OutOfDomainQuery(record.text("id"), record.text("query"), OutOfDomainKind(kind))
        seen.add(record, "id", query.id)
        seen.add(record, "query", query.query)
        queries.append(query)
    if not queries:
        raise GroundTruthError(f"{path}: holds no query. Add one, or leave evaluation.out_of_domain empty.")
    return queries


@dataclass(frozen=True)
class _Record:
    """One line of a question file, with typed access to its keys."""

    path: Path
    line: int
    values: dict[str, Any]

    def error(self, problem: str) -> GroundTruthError:
        return GroundTruthError(f"{self.path}, line {self.line}: {problem}")

    def text(self, key: str) -> str:
        return self._checked(self.values[key], f'"{key}"')

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.values[key]
        if not isinstance(values, list) or not values:
            raise self.error(f'"{key}" must be a list of one or more strings, got {values!r}')
        return tuple(self._checked(value, f'"{key}"[{at}]') for at, value in enumerate(values))

    def _checked(self, value: object, name: str) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{name} must be a string that is not blank, got {value!r}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self.error(f"{name} holds half of a surrogate pair, which no text can hold")
        return value


class _Seen:
    """Where each id and query was first seen, to refuse the second."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], int] = {}

    def add(self, record: _Record, what: str, value: str) -> None:
        key = (what, value.strip())
        if key in self._lines:
            raise record.error(f"{what} {value!r} stands twice, first in line {self._lines[key]}")
        self._lines[key] = record.line


def _records(path: Path, keys: tuple[str, ...]) -> Iterator[_Record]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GroundTruthError(f"{path}: cannot be read ({error.strerror or error})") from error
    # Only a line feed ends a line of JSON: other separators (U+2028, ...) may stand inside its strings.
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys(path, number))
        except UnicodeDecodeError as error:
            raise GroundTruthError(f"{path}, line {number}: is not UTF-8 ({error.reason})") from error
        except json.JSONDecodeError as error:
            raise GroundTruthError(
                f"{path}, line {number}: is not JSON ({error.msg} at column {error.colno})"
            ) from error
        if not isinstance(values, dict):
            raise GroundTruthError(
                f"{path}, line {number}: must be a JSON object with the keys {_quoted(keys)}"
            )
        if missing := [key for key in keys if key not in values]:
            raise GroundTruthError(f"{path}, line {number}: misses {_quoted(missing)}")
        if unknown := [key for key in values if key not in keys]:
            raise GroundTruthError(
                f"{path}, line {number}: has unknown keys {_quoted(unknown)}; allowed are {_quoted(keys)}"
            )
        yield _Record(path, number, values)


def _unique_keys(path: Path, line: int) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise GroundTruthError(f'{path}, line {line}: has the key "{key}" twice')
            values[key] = value
        return values

    return build


def _quoted(keys: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)
