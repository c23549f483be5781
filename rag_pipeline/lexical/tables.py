"""BM25 statistics on disk: Parquet tables that can be read by anyone, and raw arrays to be memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.schemas import BM25_LENGTHS, BM25_POSTINGS, BM25_TERMS
from rag_pipeline.core.storage import Storage, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter
from rag_pipeline.lexical.statistics import BM25Statistics


@dataclass(frozen=True)
class StoredStatistics:
    """Where BM25 statistics lie, by role, and what they hold."""

    files: dict[str, Path]
    data_version: str
    terms: int
    postings: int


def write_statistics(storage: Storage, statistics: BM25Statistics) -> StoredStatistics:
    """Write terms, postings and lengths as Parquet tables and the posting arrays as ``.npy`` files.

    The data version is over the tables' rows and the parameters k1 and b.
    """
    offsets = statistics.posting_offsets
    with TableWriter(storage, BM25_TERMS) as terms:
        terms.write(
            {
                "term_id": number,
                "term": term,
                "document_frequency": int(statistics.document_frequency[number]),
                "inverse_document_frequency": float(statistics.inverse_document_frequency[number]),
                "posting_start": int(offsets[number]),
                "posting_end": int(offsets[number + 1]),
            }
            for number, term in enumerate(statistics.terms)
        )
    with TableWriter(storage, BM25_POSTINGS) as postings:
        postings.write(_posting_rows(statistics))
    with TableWriter(storage, BM25_LENGTHS) as lengths:
        lengths.write({"row": row, "length": int(n)} for row, n in enumerate(statistics.lengths))
    version = version_of(
        terms.data_version, postings.data_version, lengths.data_version, statistics.k1, statistics.b
    )
    files = {"terms": terms.path, "postings": postings.path, "lengths": lengths.path}
    for role, values in (
        ("posting_rows", statistics.posting_rows),
        ("posting_frequencies", statistics.posting_frequencies),
        ("length_array", statistics.lengths),
    ):
        files[role] = _write_array(storage, f"{version}.{role}.npy", values)
    return StoredStatistics(files, version, len(statistics.terms), len(statistics.posting_rows))


def _posting_rows(statistics: BM25Statistics) -> Iterator[dict[str, int]]:
    for number in range(len(statistics.terms)):
        at, end = int(statistics.posting_offsets[number]), int(statistics.posting_offsets[number + 1])
        rows = statistics.posting_rows[at:end].tolist()
        frequencies = statistics.posting_frequencies[at:end].tolist()
        for row, frequency in zip(rows, frequencies, strict=True):
            yield {"term_id": number, "row": row, "frequency": frequency}


def _write_array(storage: Storage, name: str, values: NDArray[np.integer]) -> Path:
    temporary = storage.temporary(".npy")
    with storage_errors(temporary), temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(values))
    final = storage.root / "tables" / "bm25_statistics" / name
    storage.commit(temporary, final)
    return final


class _Terms(Sequence[str]):
    """The vocabulary as an Arrow column: compact, and bisected without becoming a list of strings."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column.combine_chunks()

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [str(term) for term in self._column[at].to_pylist()]
        return str(self._column[at].as_py())


@dataclass(frozen=True, eq=False)
class MappedStatistics:
    """Statistics read back for scoring; the arrays are memory maps. It has what `PostingLists` asks for."""

    terms: Sequence[str]
    inverse_document_frequency: NDArray[np.float64]
    posting_offsets: NDArray[np.int64]
    posting_rows: NDArray[np.int32]
    posting_frequencies: NDArray[np.int32]
    lengths: NDArray[np.int32]
    average_length: float
    k1: float
    b: float


def open_statistics(
    terms: Path, posting_rows: Path, posting_frequencies: Path, lengths: Path, k1: float, b: float
) -> MappedStatistics:
    """Return statistics that `write_statistics` wrote, ready to score; raises `OSError` for a missing file."""
    table = pq.read_table(
        terms,
        columns=["term", "inverse_document_frequency", "posting_start", "posting_end"],
        memory_map=False,
    )
    ends = table.column("posting_end").to_numpy()
    mapped = open_array(lengths)
    return MappedStatistics(
        terms=_Terms(table.column("term")),
        inverse_document_frequency=table.column("inverse_document_frequency").to_numpy(),
        posting_offsets=np.concatenate([[0], ends]).astype(np.int64),
        posting_rows=open_array(posting_rows),
        posting_frequencies=open_array(posting_frequencies),
        lengths=mapped,
        average_length=float(mapped.mean()) if len(mapped) else 0.0,
        k1=k1,
        b=b,
    )
