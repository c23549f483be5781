"""Restricting a search to some documents: by path pattern and by metadata (front matter, document properties)."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_pipeline.core.errors import QueryError


@dataclass(frozen=True)
class SearchFilter:
    """Which documents a search may answer from.

    `paths`: patterns of which the document id must match one (``*`` and ``?`` as in a shell, ``*`` crossing
    ``/``). `metadata`: keys with a value each; a document must have all of them. A list in the metadata has a
    value when one of its items is that value; values are compared as text.
    """

    paths: Sequence[str] = ()
    metadata: Mapping[str, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.paths or self.metadata)

    def admits(self, document_id: str, metadata: str) -> bool:
        """Return whether a document passes; `metadata` is its JSON object."""
        if self.paths and not any(fnmatch.fnmatchcase(document_id, pattern) for pattern in self.paths):
            return False
        if not self.metadata:
            return True
        values = json.loads(metadata)
        return all(key in values and _has(values[key], wanted) for key, wanted in self.metadata.items())

    def words(self) -> str:
        """Return the filter as a person would say it."""
        parts = [f"path {' or '.join(self.paths)}"] if self.paths else []
        parts += [f"{key} = {value}" for key, value in (self.metadata or {}).items()]
        return ", ".join(parts)

    @classmethod
    def parse(cls, paths: Iterable[str] | None, metadata: Iterable[str] | None) -> SearchFilter | None:
        """Return the filter of the command line's `--path` and `--meta KEY=VALUE` options, None without any."""
        values: dict[str, str] = {}
        for item in metadata or ():
            key, separator, value = item.partition("=")
            if not separator or not key:
                raise QueryError(f"--meta {item!r}: must be KEY=VALUE")
            values[key] = value
        found = cls(tuple(paths or ()), values)
        return found or None


def _has(value: Any, wanted: str) -> bool:
    if isinstance(value, list):
        return any(_has(item, wanted) for item in value)
    if isinstance(value, bool):
        return wanted.casefold() == str(value).casefold()
    return str(value) == wanted
