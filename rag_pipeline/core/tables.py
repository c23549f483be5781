"""Streaming Parquet tables whose file name and data version come from their rows.

A table's data version is a hash over its rows in the order they were written, volatile columns (times, durations)
left out, whatever the batches were. Two runs that give the same rows give the same version, and the same file.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_pipeline.core.errors import StorageError
from rag_pipeline.core.schemas import TableSchema
from rag_pipeline.core.storage import Storage, canonical_json, storage_errors

BATCH_ROWS = 1024


class TableWriter:
    """Writes one table batch by batch and gives its data version; use it as a context manager.

    >>> with TableWriter(storage, CHUNKS) as writer:        # doctest: +SKIP
    ...     writer.write(rows)
    >>> writer.path, writer.rows, writer.data_version       # doctest: +SKIP

    The file appears at ``tables/NAME/VERSION.parquet`` when the block ends without an error.
    """

    def __init__(self, storage: Storage, table: TableSchema, directory: Path | None = None) -> None:
        self._storage = storage
        self._table = table
        self._directory = directory
        self._digest = hashlib.sha256()
        self._pending: list[dict[str, Any]] = []
        self._temporary = storage.temporary(".parquet")
        with storage_errors(self._temporary):
            self._writer = pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
        self.rows = 0
        self._path: Path | None = None

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; memory grows with a batch of them, not with the table."""
        for row in rows:
            self._digest.update(
                canonical_json({k: v for k, v in row.items() if k not in self._table.volatile}).encode(
                    "utf-8", "surrogatepass"
                )
            )
            self._digest.update(b"\n")
            self._pending.append(dict(row))
            if len(self._pending) >= BATCH_ROWS:
                self._flush()

    def _flush(self) -> None:
        if self._pending:
            batch = pa.RecordBatch.from_pylist(self._pending, schema=self._table.schema)
            with storage_errors(self._temporary):
                self._writer.write_batch(batch)
            self.rows += len(self._pending)
            self._pending = []

    @property
    def data_version(self) -> str:
        """Sixteen hexadecimal digits that identify the rows (and the schema's name)."""
        return hashlib.sha256(f"{self._table.name}\n{self._digest.hexdigest()}".encode()).hexdigest()[:16]

    @property
    def path(self) -> Path:
        """Where the whole table lies; only after the block has ended."""
        if self._path is None:
            raise RuntimeError(f"table {self._table.name} is not written yet")
        return self._path

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # What went wrong is on its way; that the rest cannot be written either would only hide it.
            with contextlib.suppress(OSError):
                self._writer.close()
            self._temporary.unlink(missing_ok=True)
            return
        self._flush()
        with storage_errors(self._temporary):
            self._writer.close()
        if self._directory is not None:
            final = self._directory / f"{self._table.name}.parquet"
        else:
            final = self._storage.root / "tables" / self._table.name / f"{self.data_version}.parquet"
        self._storage.commit(self._temporary, final)
        self._path = final


@contextlib.contextmanager
def _table_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing: run `rag-pipeline index`, which writes it anew") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            f"{path}: {error}: the table is damaged; remove it and run `rag-pipeline index`"
        ) from error


def read_rows(
    path: Path, columns: Sequence[str] | None = None, batch_rows: int = 256
) -> Iterator[dict[str, Any]]:
    """Yield a Parquet table's rows as dictionaries, a batch in memory at a time.

    Raises `StorageError`, saying what to do, where the file is missing or damaged.
    """
    with _table_errors(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=batch_rows, columns=list(columns) if columns else None):
            yield from batch.to_pylist()


def count_rows(path: Path) -> int:
    """Return the number of rows a Parquet file holds, from its footer; raises as `read_rows`."""
    with _table_errors(path), pq.ParquetFile(path) as file:
        return int(file.metadata.num_rows)
