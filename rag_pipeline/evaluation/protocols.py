"""What the evaluation asks of the things it judges, as structural types.

The retrieval room implements `RankedIndex` without importing this room; tests implement it with lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class SourceText(Protocol):
    """One document of the source with its canonical text and its crudest text."""

    @property
    def document_id(self) -> str:
        """Path relative to the source root."""

    @property
    def text(self) -> str:
        """Canonical text; '' where the document is not indexed."""

    @property
    def raw_text(self) -> str | None:
        """The crudest text of the file; None or '' where none could be read."""

    @property
    def state(self) -> str:
        """`indexed`, `failed` or `skipped`."""

    @property
    def sha256(self) -> str | None:
        """Hash of the file's bytes; None where it was skipped."""


class Serving(Protocol):
    """The values a reader is served with."""

    @property
    def mode(self) -> str:
        """Retriever that answers."""

    @property
    def k(self) -> int:
        """Chunks taken from the head of its ranking."""

    @property
    def threshold(self) -> float:
        """Cosine distance a hit must lie strictly below."""


class ChunkView(Protocol):
    """One chunk of a build, without its text."""

    @property
    def row(self) -> int:
        """Row in the chunks table; rankings speak in rows."""

    @property
    def chunk_id(self) -> str:
        """Hash that identifies the chunk."""

    @property
    def document_id(self) -> str:
        """Document the chunk is cut from."""

    @property
    def start(self) -> int:
        """Start of the content in the canonical text."""

    @property
    def end(self) -> int:
        """End of content and passage, exclusive."""

    @property
    def lead_start(self) -> int:
        """Start of the passage."""

    @property
    def pieces(self) -> int:
        """Word pieces of the embedded text."""

    @property
    def header_pieces(self) -> int:
        """Word pieces of its contextual header."""

    @property
    def window(self) -> int | None:
        """Word pieces the encoder reads; None where it has no limit."""

    @property
    def window_end(self) -> int:
        """Canonical offset up to which the encoder reads this chunk, exclusive; `end` where it reads all."""


class Ranking(Protocol):
    """The full ranking one retriever gives a query, best first."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of the ranked chunks, shape (n,)."""

    @property
    def distances(self) -> NDArray[np.float64]:
        """Cosine distance of each to the query, shape (n,), whatever the retriever."""


class RankedIndex(Protocol):
    """A build that can be ranked by several retrievers."""

    @property
    def build(self) -> str:
        """Id of the build."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Retrievers it has: dense, bm25, hybrid and, where configured, reranked."""

    def iter_chunks(self) -> Iterator[ChunkView]:
        """Return every chunk once, in any order."""

    def rank(self, mode: str, query: str) -> Ranking:
        """Return the ranking of a retriever before any threshold; ties fall by chunk id."""
