"""One open build: its vectors and postings as memory maps, its texts from DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.schemas import BM25_TERMS, CHUNK_EMBEDDINGS, CHUNKS
from rag_pipeline.core.tables import read_rows
from rag_pipeline.index.builds import (
    DUCKDB,
    LENGTHS,
    POSTING_FREQUENCIES,
    POSTING_ROWS,
    TIE_RANKS,
    VECTORS,
    Build,
)
from rag_pipeline.lexical.tables import MappedStatistics, open_statistics

_CHUNK_SQL = """
SELECT c.row, c.chunk_id, c.document_id, d.name, d.title, d.media_type, d.metadata, c.section, c.start, c."end",
       c.lead_start, c.content, c.text, c.header_length, c.locator
FROM chunks c JOIN documents d USING (document_id)
WHERE c.row IN (SELECT unnest(?))
"""


@dataclass(frozen=True)
class StoredChunk:
    """One chunk as it lies in a build."""

    row: int
    chunk_id: str
    document_id: str
    document_name: str
    document_title: str
    media_type: str | None
    metadata: str
    section: str
    start: int
    end: int
    lead_start: int
    content: str
    text: str
    header_length: int
    locator: dict[str, Any]

    @property
    def passage(self) -> str:
        """What a reader receives: canonical[lead_start:end], no header."""
        return self.text[self.header_length :]


@dataclass(frozen=True)
class ChunkPlace:
    """Where a chunk lies and how much of it the encoder reads, without its text."""

    row: int
    chunk_id: str
    document_id: str
    start: int
    end: int
    lead_start: int
    pieces: int
    header_pieces: int
    window: int
    window_end: int


class BuildReader:
    """Read access to a build's files; they stay readable until `close`, even when the build is pruned."""

    def __init__(self, build: Build) -> None:
        import duckdb

        self.build = build
        self.stamp = build.stamp
        self.vectors: NDArray[np.float32] = open_array(build.folder / VECTORS)
        self.tie_ranks: NDArray[np.int64] = open_array(build.folder / TIE_RANKS)
        self.postings: MappedStatistics = open_statistics(
            build.table(BM25_TERMS.name),
            build.folder / POSTING_ROWS,
            build.folder / POSTING_FREQUENCIES,
            build.folder / LENGTHS,
            k1=float(self.stamp["bm25"]["k1"]),
            b=float(self.stamp["bm25"]["b"]),
        )
        self._duckdb = duckdb.connect(str(build.folder / DUCKDB), read_only=True)
        self._lock = threading.Lock()

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return len(self.tie_ranks)

    def chunks(self, rows: Sequence[int]) -> list[StoredChunk]:
        """Return the chunks at these rows, in their order."""
        found = {r[0]: StoredChunk(*r) for r in self._query(_CHUNK_SQL, [[int(row) for row in rows]])}
        return [found[int(row)] for row in rows]

    def _query(self, sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        # A DuckDB connection serves one thread at a time; a cursor of its own serves each query.
        with self._lock:
            cursor = self._duckdb.cursor()
        try:
            return cursor.execute(sql, parameters).fetchall()
        finally:
            cursor.close()

    def places(self) -> Iterator[ChunkPlace]:
        """Yield every chunk's place, row by row, streamed from the Parquet tables."""
        window = int(self.stamp["embedding"]["window"])
        columns = ("chunk_id", "document_id", "start", "end", "lead_start", "header_length")
        chunks = read_rows(self.build.table(CHUNKS.name), columns=columns, batch_rows=4096)
        pieces = read_rows(
            self.build.table(CHUNK_EMBEDDINGS.name),
            columns=("row", "pieces", "header_pieces", "covered"),
            batch_rows=4096,
        )
        for chunk, embedded in zip(chunks, pieces, strict=True):
            # The encoder reads `covered` characters of text; text is the header and then the passage.
            reach = chunk["lead_start"] + max(0, embedded["covered"] - chunk["header_length"])
            yield ChunkPlace(
                row=embedded["row"],
                chunk_id=chunk["chunk_id"],
                document_id=chunk["document_id"],
                start=chunk["start"],
                end=chunk["end"],
                lead_start=chunk["lead_start"],
                pieces=embedded["pieces"],
                header_pieces=embedded["header_pieces"],
                window=window,
                window_end=min(chunk["end"], reach),
            )

    def close(self) -> None:
        """Close the DuckDB file."""
        self._duckdb.close()
