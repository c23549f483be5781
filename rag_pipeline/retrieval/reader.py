"""One open build: its vectors and postings as memory maps, its texts from DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.errors import DamagedBuildError, RagPipelineError
from rag_pipeline.core.schemas import BM25_TERMS
from rag_pipeline.index.builds import (
    COPIES,
    DUCKDB,
    LENGTHS,
    POSTING_FREQUENCIES,
    POSTING_ROWS,
    TIE_RANKS,
    VECTORS,
    Build,
)
from rag_pipeline.lexical.tables import MappedStatistics, open_statistics
from rag_pipeline.retrieval.filters import SearchFilter

_CHUNK_SQL = """
SELECT c.row, c.chunk_id, c.document_id, d.name, d.title, d.media_type, d.metadata, c.section, c.start, c."end",
       c.lead_start, c.content, c.text, c.header_length, c.locator
FROM chunks c JOIN documents d USING (document_id)
WHERE c.row IN (SELECT unnest(?))
"""
_PLACE_SQL = """
SELECT c.row, c.chunk_id, c.document_id, c.start, c."end", c.lead_start, c.header_length,
       e.pieces, e.header_pieces, e.covered
FROM chunks c JOIN embeddings e USING (row)
ORDER BY c.row
"""
_FETCHED = 4096


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
        self._lock = threading.Lock()
        try:
            self.vectors: NDArray[np.float32] = open_array(build.folder / VECTORS)
            self.tie_ranks: NDArray[np.int64] = open_array(build.folder / TIE_RANKS)
            self.copies: NDArray[np.int64] = open_array(build.folder / COPIES)
            self.postings: MappedStatistics = open_statistics(
                build.table(BM25_TERMS.name),
                build.folder / POSTING_ROWS,
                build.folder / POSTING_FREQUENCIES,
                build.folder / LENGTHS,
                k1=float(self.stamp["bm25"]["k1"]),
                b=float(self.stamp["bm25"]["b"]),
            )
            self._duckdb = duckdb.connect(str(build.folder / DUCKDB), read_only=True)
        except (OSError, ValueError, duckdb.Error) as error:
            raise self._damaged(error) from error
        self.has_copies = not np.array_equal(self.copies, self.tie_ranks)
        """Whether some documents are identical, so that chunks of theirs are one hit."""
        self._closed = False

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""
        return len(self.tie_ranks)

    def chunks(self, rows: Sequence[int]) -> list[StoredChunk]:
        """Return the chunks at these rows, in their order."""
        with self._cursor() as cursor:
            found = {
                r[0]: StoredChunk(*r)
                for r in cursor.execute(_CHUNK_SQL, [[int(row) for row in rows]]).fetchall()
            }
        return [found[int(row)] for row in rows]

    def copies_of(self, row: int) -> list[int]:
        """Return the rows of the same place in identical documents, the row itself left out."""
        if not self.has_copies:
            return []
        return [int(r) for r in np.flatnonzero(self.copies == self.copies[row]) if r != row]

    def allowed_rows(self, where: SearchFilter) -> NDArray[np.bool_]:
        """Return which chunks belong to documents that pass a filter, [N]."""
        with self._cursor() as cursor:
            documents = cursor.execute("SELECT document_id, metadata FROM documents").fetchall()
            admitted = [document for document, metadata in documents if where.admits(document, metadata)]
            sql = "SELECT row FROM chunks WHERE document_id IN (SELECT unnest(?::VARCHAR[]))"
            rows = cursor.execute(sql, [admitted]).fetchall()
        allowed = np.zeros(self.chunk_count, dtype=np.bool_)
        allowed[[row for (row,) in rows]] = True
        return allowed

    def places(self) -> Iterator[ChunkPlace]:
        """Yield every chunk's place, row by row."""
        window = int(self.stamp["embedding"]["window"])
        with self._cursor() as cursor:
            cursor.execute(_PLACE_SQL)
            while rows := cursor.fetchmany(_FETCHED):
                for (
                    row,
                    chunk_id,
                    document,
                    start,
                    end,
                    lead_start,
                    header,
                    pieces,
                    header_pieces,
                    covered,
                ) in rows:
                    # The encoder reads `covered` characters of text; text is the header and then the passage.
                    reach = lead_start + max(0, covered - header)
                    yield ChunkPlace(
                        row=row,
                        chunk_id=chunk_id,
                        document_id=document,
                        start=start,
                        end=end,
                        lead_start=lead_start,
                        pieces=pieces,
                        header_pieces=header_pieces,
                        window=window,
                        window_end=min(end, reach),
                    )

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        import duckdb

        # A DuckDB connection serves one thread at a time; a cursor of its own serves each query.
        with self._lock:
            if self._closed:
                raise RagPipelineError(f"the index of build {self.build.id} is closed: open it again")
            cursor = self._duckdb.cursor()
        try:
            yield cursor
        except duckdb.Error as error:
            raise self._damaged(error) from error
        finally:
            cursor.close()

    def _damaged(self, error: Exception) -> DamagedBuildError:
        return DamagedBuildError(
            f"build {self.build.id} in {self.build.folder} cannot be read: {error}: index again, or roll back"
        )

    def close(self) -> None:
        """Close the DuckDB file; closing twice does nothing."""
        with self._lock:
            self._closed = True
            self._duckdb.close()
