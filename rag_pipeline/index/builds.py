"""A build: one complete, immutable candidate index on disk.

``builds/ID/`` holds Parquet tables (hard links where an earlier step or build has the same file), the vectors and
the BM25 arrays to be memory-mapped, one DuckDB file with real tables, ``stamp.json`` and ``manifest.json``. The id
is the build's hash: over the tables' rows in key order, the vectors by fingerprint and text hash, and the stamp
without its time. The same content is the same build, however often it is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline.chunking import sections
from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.clock import now_rfc3339
from rag_pipeline.core.errors import DamagedBuildError, InconsistentInputsError, IndexNotFoundError
from rag_pipeline.core.schemas import (
    BM25_LENGTHS,
    BM25_POSTINGS,
    BM25_TERMS,
    CHUNK_EMBEDDINGS,
    CHUNKS,
    DOCUMENTS,
    SECTIONS,
    STORAGE_SCHEMA_VERSION,
)
from rag_pipeline.core.storage import Handle, Storage, read_json, sha256_file, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, count_rows, read_rows

# Raised when the files of a build, or what is in them, change for the same inputs.
INDEX_VERSION = "1"

VECTORS = "vectors.npy"
DUCKDB = "index.duckdb"
STAMP = "stamp.json"
MANIFEST = "manifest.json"
POSTING_ROWS = "posting_rows.npy"
POSTING_FREQUENCIES = "posting_frequencies.npy"
LENGTHS = "lengths.npy"
TIE_RANKS = "tie_ranks.npy"

# Parts of the stamp that say when and where, not what.
_OUTSIDE_HASH = frozenset({"build", "created_at", "model_location"})

# File of a build -> (asset whose handle has it, role in that handle)
_SHARED = {
    f"{CHUNKS.name}.parquet": ("chunks", "table"),
    f"{CHUNK_EMBEDDINGS.name}.parquet": ("chunk_embeddings", "table"),
    VECTORS: ("chunk_embeddings", "vectors"),
    f"{BM25_TERMS.name}.parquet": ("bm25_statistics", "terms"),
    f"{BM25_POSTINGS.name}.parquet": ("bm25_statistics", "postings"),
    f"{BM25_LENGTHS.name}.parquet": ("bm25_statistics", "lengths"),
    POSTING_ROWS: ("bm25_statistics", "posting_rows"),
    POSTING_FREQUENCIES: ("bm25_statistics", "posting_frequencies"),
    LENGTHS: ("bm25_statistics", "length_array"),
}


@dataclass(frozen=True)
class Build:
    """A build on disk, by its folder."""

    id: str
    folder: Path

    @property
    def stamp(self) -> dict[str, Any]:
        """What made the build: models, versions, settings and counts."""
        value = read_json(self.folder / STAMP)
        assert isinstance(value, dict)
        return value

    @property
    def manifest(self) -> dict[str, Any]:
        """The build's files with sizes and hashes, and its tables' row hashes."""
        value = read_json(self.folder / MANIFEST)
        assert isinstance(value, dict)
        return value

    @property
    def manifest_sha256(self) -> str:
        """Hash of the manifest file; binds a receipt to exactly these files."""
        return sha256_file(self.folder / MANIFEST)

    def table(self, name: str) -> Path:
        """Return the Parquet file of a table."""
        return self.folder / f"{name}.parquet"


def find_build(storage: Storage, build_id: str) -> Build:
    """Return a build by its id or an unambiguous start of it; raises `IndexNotFoundError`."""
    folder = storage.root / "builds"
    matches = sorted(p for p in folder.glob(f"{build_id}*") if (p / MANIFEST).is_file()) if build_id else []
    exact = [p for p in matches if p.name == build_id]
    if len(exact or matches) != 1:
        known = ", ".join(b.id for b in list_builds(storage)) or "none"
        what = "is ambiguous" if matches else "does not exist"
        raise IndexNotFoundError(f"build {build_id!r} {what} in {storage.root}: there are {known}")
    found = (exact or matches)[0]
    return Build(found.name, found)


def list_builds(storage: Storage) -> list[Build]:
    """Return every build on disk, newest first."""
    folder = storage.root / "builds"
    if not folder.is_dir():
        return []
    builds = [Build(p.name, p) for p in folder.iterdir() if (p / MANIFEST).is_file()]
    return sorted(builds, key=lambda b: (str(b.stamp["created_at"]), b.id), reverse=True)


@dataclass(frozen=True)
class BuildInputs:
    """The handles that a build is made of."""

    canonical: Handle
    chunks: Handle
    embeddings: Handle
    bm25: Handle

    def check(self) -> None:
        """Raise `InconsistentInputsError` unless they were made from each other: no half-migrated index."""
        for asset, handle in (("chunk_embeddings", self.embeddings), ("bm25_statistics", self.bm25)):
            if handle.inputs.get("chunks") != self.chunks.data_version:
                raise InconsistentInputsError(
                    f"{asset} was made from another version of chunks "
                    f"({handle.inputs.get('chunks')}) than the index would hold ({self.chunks.data_version}): "
                    f"materialise {asset} again"
                )
        if self.chunks.inputs.get("canonical_documents") != self.canonical.data_version:
            raise InconsistentInputsError(
                "chunks was made from another version of canonical_documents than the index would hold: "
                "materialise chunks again"
            )


def make_build(
    storage: Storage,
    inputs: BuildInputs,
    pipeline_version: str,
    progress: Callable[[str], None] | None = None,
) -> tuple[Build, bool]:
    """Make the build of these inputs and return it, with True where it is new (False: it was there already).

    The stamp's counts are counted in the files after they were written. Raises `InconsistentInputsError` for
    inputs that do not belong together and `DamagedBuildError` where the counts disagree.
    """
    inputs.check()
    say = progress or (lambda _: None)
    handles = {
        "chunks": inputs.chunks,
        "chunk_embeddings": inputs.embeddings,
        "bm25_statistics": inputs.bm25,
    }
    folder = storage.temporary("-build")
    with storage_errors(folder):
        folder.mkdir()
    for name, (asset, role) in _SHARED.items():
        storage.link_or_copy(storage.path(handles[asset].files[role]), folder / name)
    created_at = now_rfc3339()
    counts = _count_chunks(folder)
    stamp = _stamp(inputs, pipeline_version)
    say("writing documents and sections")
    documents, section_writer = _write_documents(storage, inputs, stamp, counts, folder, created_at)
    _write_tie_ranks(folder)
    states = {"indexed": 0, "failed": 0, "skipped": 0}
    for row in read_rows(documents.path, columns=("state",)):
        states[row["state"]] += 1
    stamp["documents"] = states
    stamp["chunks"] = count_rows(folder / f"{CHUNKS.name}.parquet")
    rows = {
        CHUNKS.name: inputs.chunks.data_version,
        CHUNK_EMBEDDINGS.name: inputs.embeddings.data_version,
        "bm25_statistics": inputs.bm25.data_version,
        DOCUMENTS.name: documents.data_version,
        SECTIONS.name: section_writer.data_version,
    }
    build_id = version_of(rows, stamp)
    stamp = {
        "build": build_id,
        "created_at": created_at,
        "model_location": inputs.embeddings.info["model_location"],
        **stamp,
    }
    final = storage.root / "builds" / build_id
    if (final / MANIFEST).is_file():
        shutil.rmtree(folder)
        return Build(build_id, final), False
    say("writing the DuckDB file")
    write_duckdb(folder, stamp)
    _check_counts(folder, stamp)
    with storage_errors(folder):
        (folder / STAMP).write_text(json.dumps(stamp, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        manifest = {
            "build": build_id,
            "schema_version": STORAGE_SCHEMA_VERSION,
            "rows": rows,
            "files": {
                p.name: {"size": p.stat().st_size, "sha256": sha256_file(p)} for p in sorted(folder.iterdir())
            },
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    storage.commit_directory(folder, final)
    return Build(build_id, final), True


def verify_build(build: Build) -> None:
    """Raise `DamagedBuildError` unless every file is the one the manifest names and the id is their hash."""
    manifest = build.manifest
    stamp = build.stamp
    if manifest.get("schema_version") != STORAGE_SCHEMA_VERSION:
        raise DamagedBuildError(
            f"build {build.id}: schema version {manifest.get('schema_version')}, this release reads "
            f"{STORAGE_SCHEMA_VERSION}: index again"
        )
    hashed = {k: v for k, v in stamp.items() if k not in _OUTSIDE_HASH}
    if not manifest["build"] == stamp.get("build") == build.id == version_of(manifest["rows"], hashed):
        raise DamagedBuildError(
            f"build {build.id}: its id is not the hash of its tables and stamp: index again"
        )
    for name, expected in manifest["files"].items():
        path = build.folder / name
        if not path.is_file():
            raise DamagedBuildError(f"build {build.id}: {name} is missing: index again or roll back")
        if path.stat().st_size != expected["size"] or sha256_file(path) != expected["sha256"]:
            raise DamagedBuildError(f"build {build.id}: {name} was changed after it was built: index again")


def _stamp(inputs: BuildInputs, pipeline_version: str) -> dict[str, Any]:
    return {
        "schema_version": STORAGE_SCHEMA_VERSION,
        "index_version": INDEX_VERSION,
        "pipeline_version": pipeline_version,
        "embedding": dict(inputs.embeddings.info["fingerprint"]),
        "chunking": dict(inputs.chunks.info["chunking"]),
        "bm25": dict(inputs.bm25.info["bm25"]),
        "canonical_version": inputs.canonical.info["canonical_version"],
        "extractors": dict(inputs.canonical.info["extractors"]),
    }


def _count_chunks(folder: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in read_rows(folder / f"{CHUNKS.name}.parquet", columns=("document_id",), batch_rows=65536):
        counts[row["document_id"]] = counts.get(row["document_id"], 0) + 1
    return counts


_CARRIED = (
    "document_id name title sha256 size media_type state reason message text text_sha256 metadata warnings pages "
    "extractor extractor_version"
).split()


def _write_documents(
    storage: Storage,
    inputs: BuildInputs,
    stamp: Mapping[str, Any],
    counts: Mapping[str, int],
    folder: Path,
    created_at: str,
) -> tuple[TableWriter, TableWriter]:
    made_by = {
        "embedding_model": stamp["embedding"]["name"],
        "embedding_dimensions": stamp["embedding"]["dimensions"],
        "embedding_fingerprint": stamp["embedding"]["id"],
        "chunking_strategy": stamp["chunking"]["strategy"],
        "chunker_version": stamp["chunking"]["version"],
        "tokenizer": stamp["bm25"]["tokenizer"],
        "tokenizer_version": stamp["bm25"]["tokenizer_version"],
        "pipeline_version": stamp["pipeline_version"],
        "built_at": created_at,
    }
    canonical = storage.path(inputs.canonical.files["table"])
    with (
        TableWriter(storage, DOCUMENTS, folder) as documents,
        TableWriter(storage, SECTIONS, folder) as section_rows,
    ):
        for row in read_rows(canonical, columns=_CARRIED, batch_rows=16):
            documents.write([{**row, "chunks": counts.get(row["document_id"], 0), **made_by}])
            section_rows.write(
                {
                    "document_id": row["document_id"],
                    "ordinal": ordinal,
                    "title": section.title,
                    "start": section.start,
                    "end": section.end,
                }
                for ordinal, section in enumerate(sections(row["text"]) if row["text"] else ())
            )
    return documents, section_rows


def _write_tie_ranks(folder: Path) -> None:
    """Write the rank of each row in chunk id order, so that ties in a ranking fall by chunk id."""
    ids = np.array(
        [
            row["chunk_id"].encode()
            for row in read_rows(folder / f"{CHUNKS.name}.parquet", columns=("chunk_id",), batch_rows=65536)
        ],
        dtype="S32",
    )
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    with storage_errors(folder), (folder / TIE_RANKS).open("wb") as file:
        np.save(file, ranks)


def write_duckdb(folder: Path, stamp: Mapping[str, Any]) -> None:
    """Write the build's DuckDB file: real tables, so that it opens from anywhere, without the Parquet files."""
    import duckdb

    path = folder / DUCKDB
    with storage_errors(path), duckdb.connect(str(path)) as connection:
        try:
            for table in (DOCUMENTS, SECTIONS, CHUNKS, BM25_TERMS, BM25_POSTINGS, BM25_LENGTHS):
                # Chunks get the row number that vectors and postings speak in.
                columns = "file_row_number AS row, * EXCLUDE (file_row_number)" if table is CHUNKS else "*"
                option = ", file_row_number = true" if table is CHUNKS else ""
                connection.execute(
                    f'CREATE TABLE "{table.name}" AS SELECT {columns} FROM read_parquet(?{option})',
                    [str(folder / f"{table.name}.parquet")],
                )
            dimensions = int(stamp["embedding"]["dimensions"])
            reader = pa.RecordBatchReader.from_batches(
                _embedding_schema(dimensions), _embedding_batches(folder, dimensions)
            )
            connection.register("embedding_rows", reader)
            connection.execute(
                f"CREATE TABLE embeddings AS SELECT row, chunk_id, text_sha256, pieces, header_pieces, covered, "
                f"vector::FLOAT[{dimensions}] AS vector FROM embedding_rows"
            )
            connection.unregister("embedding_rows")
            connection.execute("CREATE TABLE stamp (key VARCHAR, value VARCHAR)")
            connection.executemany(
                "INSERT INTO stamp VALUES (?, ?)", [(k, _plain(v)) for k, v in flatten(stamp)]
            )
            for table in (DOCUMENTS, SECTIONS, CHUNKS, BM25_TERMS, BM25_POSTINGS, BM25_LENGTHS):
                _comment(connection, table.name, table.description)
                for column in table.schema:
                    text = (column.metadata or {}).get(b"description", b"").decode()
                    connection.execute(
                        f'COMMENT ON COLUMN "{table.name}"."{column.name}" IS {_literal(text)}'
                    )
            _comment(connection, "embeddings", "one chunk's vector and its word pieces")
            _comment(connection, "stamp", "what made this build, by dotted key")
            connection.execute("CHECKPOINT")
        except duckdb.IOException as error:
            raise OSError(28 if "space" in str(error).lower() else 5, str(error), str(path)) from error


def _comment(connection: Any, table: str, text: str) -> None:
    connection.execute(f'COMMENT ON TABLE "{table}" IS {_literal(text)}')


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of a nested mapping."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from flatten(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def _embedding_schema(dimensions: int) -> pa.Schema:
    return pa.schema(
        [
            ("row", pa.int64()),
            ("chunk_id", pa.string()),
            ("text_sha256", pa.string()),
            ("pieces", pa.int32()),
            ("header_pieces", pa.int32()),
            ("covered", pa.int32()),
            ("vector", pa.list_(pa.float32(), dimensions)),
        ]
    )


def _embedding_batches(folder: Path, dimensions: int) -> Iterable[pa.RecordBatch]:
    import pyarrow.parquet as pq

    vectors = open_array(folder / VECTORS)
    columns = ["row", "chunk_id", "text_sha256", "pieces", "header_pieces", "covered"]
    with pq.ParquetFile(folder / f"{CHUNK_EMBEDDINGS.name}.parquet") as file:
        at = 0
        for batch in file.iter_batches(batch_size=4096, columns=columns):
            some = np.ascontiguousarray(vectors[at : at + batch.num_rows])
            values = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), dimensions)
            yield pa.RecordBatch.from_arrays(
                [*(batch.column(c) for c in columns), values], schema=_embedding_schema(dimensions)
            )
            at += batch.num_rows


def _check_counts(folder: Path, stamp: Mapping[str, Any]) -> None:
    problems = count_problems(folder, stamp)
    if problems:
        raise DamagedBuildError("the build's counts disagree: " + "; ".join(problems))


def count_problems(folder: Path, stamp: Mapping[str, Any]) -> list[str]:
    """Return in words where the stamp, the Parquet tables, the vectors and the DuckDB file disagree in number."""
    import duckdb

    chunks = count_rows(folder / f"{CHUNKS.name}.parquet")
    with duckdb.connect(str(folder / DUCKDB), read_only=True) as connection:

        def count(table: str) -> int:
            row = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            return int(row[0]) if row else 0

        found = {
            "chunks in the stamp": int(stamp["chunks"]),
            "rows of vectors": int(open_array(folder / VECTORS).shape[0]),
            "rows of chunk_embeddings": count_rows(folder / f"{CHUNK_EMBEDDINGS.name}.parquet"),
            "rows of lengths": count_rows(folder / f"{BM25_LENGTHS.name}.parquet"),
            "chunks in DuckDB": count("chunks"),
            "embeddings in DuckDB": count("embeddings"),
        }
        row = connection.execute("SELECT coalesce(sum(chunks), 0) FROM documents").fetchone()
        found["chunks that documents declare"] = int(row[0]) if row else 0
    return [
        f"{what}: {number}, rows of chunks: {chunks}" for what, number in found.items() if number != chunks
    ]
