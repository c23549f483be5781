"""A build: one complete, immutable candidate index on disk.

``builds/ID/`` holds Parquet tables (hard links where an earlier step or build has the same file), the vectors and
the BM25 arrays to be memory-mapped, one DuckDB file with real tables, ``stamp.json`` and ``manifest.json``. The id
is the build's hash: over the tables' rows in key order, the vectors by fingerprint and text hash, and the stamp
without its time. The same content is the same build, however often it is made.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_pipeline.chunking import sections
from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.clock import now_rfc3339
from rag_pipeline.core.errors import (
    DamagedBuildError,
    InconsistentInputsError,
    IndexNotFoundError,
    StorageError,
)
from rag_pipeline.core.schemas import (
    BM25_LENGTHS,
    BM25_POSTINGS,
    BM25_TERMS,
    CHUNK_EMBEDDINGS,
    CHUNKS,
    DOCUMENTS,
    SECTIONS,
    STORAGE_SCHEMA_VERSION,
    TableSchema,
    describe,
)
from rag_pipeline.core.storage import Handle, Storage, read_json, sha256_file, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, count_rows, read_rows

# Raised when the files of a build, or what is in them, change for the same inputs.
INDEX_VERSION = "2"

VECTORS = "vectors.npy"
DUCKDB = "index.duckdb"
STAMP = "stamp.json"
MANIFEST = "manifest.json"
POSTING_ROWS = "posting_rows.npy"
POSTING_FREQUENCIES = "posting_frequencies.npy"
LENGTHS = "lengths.npy"
TIE_RANKS = "tie_ranks.npy"
COPIES = "copies.npy"

_REPAIR = "index again, which makes it anew, or roll back"

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
        return self._read(STAMP)

    @property
    def manifest(self) -> dict[str, Any]:
        """The build's files with sizes and hashes, and its tables' row hashes."""
        return self._read(MANIFEST)

    @property
    def manifest_sha256(self) -> str:
        """Hash of the manifest file; binds a receipt to exactly these files."""
        return sha256_file(self.folder / MANIFEST)

    def table(self, name: str) -> Path:
        """Return the Parquet file of a table."""
        return self.folder / f"{name}.parquet"

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value = read_json(self.folder / name)
        except FileNotFoundError as error:
            raise DamagedBuildError(f"build {self.id}: {name} is missing: {_REPAIR}") from error
        except StorageError as error:
            raise DamagedBuildError(
                f"build {self.id}: {self.folder / name}: not valid JSON ({error.__cause__}): {_REPAIR}"
            ) from error
        assert isinstance(value, dict)
        return value


def find_build(storage: Storage, build_id: str) -> Build:
    """Return a build by its id or an unambiguous start of it; raises `IndexNotFoundError`."""
    builds = list_builds(storage)
    matches = [b for b in builds if build_id and b.id.startswith(build_id)]
    exact = [b for b in matches if b.id == build_id]
    if len(exact or matches) != 1:
        known = ", ".join(b.id for b in builds) or "none"
        what = "is ambiguous" if matches else "does not exist"
        raise IndexNotFoundError(f"build {build_id!r} {what} in {storage.root}: there are {known}")
    return (exact or matches)[0]


def list_builds(storage: Storage) -> list[Build]:
    """Return every build on disk, newest first; a build that has lost its stamp comes last."""
    folder = storage.root / "builds"
    if not folder.is_dir():
        return []
    builds = [Build(p.name, p) for p in folder.iterdir() if (p / MANIFEST).is_file()]
    return sorted(builds, key=lambda b: (_created_at(b), b.id), reverse=True)


def _created_at(build: Build) -> str:
    try:
        return str(build.stamp["created_at"])
    except DamagedBuildError:
        return ""


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
        source = storage.path(handles[asset].files[role])
        if not source.is_file():
            raise StorageError(f"{source} is missing: materialise {asset} again (`rag-pipeline index` does)")
        storage.link_or_copy(source, folder / name)
    created_at = now_rfc3339()
    counts = _count_chunks(folder)
    stamp = _stamp(inputs, pipeline_version)
    say("writing documents and sections")
    documents, section_writer = _write_documents(storage, inputs, stamp, counts, folder, created_at)
    _write_copies(folder, _write_tie_ranks(folder))
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
    build = Build(build_id, storage.root / "builds" / build_id)
    if _is_sound(build):
        shutil.rmtree(folder)
        return build, False
    say("writing the DuckDB file")
    write_duckdb(folder, stamp)
    _check_counts(folder, stamp)
    with storage_errors(folder):
        (folder / STAMP).write_text(json.dumps(stamp, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        files = {
            p.name: {"size": p.stat().st_size, "sha256": sha256_file(p)} for p in sorted(folder.iterdir())
        }
        _share_with_earlier(storage, folder, files)
        manifest = {"build": build_id, "schema_version": STORAGE_SCHEMA_VERSION, "rows": rows, "files": files}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        # Receipts of this id are of files that are no more: the build was damaged, or taken away by hand.
        shutil.rmtree(storage.root / "evaluations" / build_id, ignore_errors=True)
        if build.folder.exists():
            # Damaged, or it would have been returned above. Readers that have it open go on reading it.
            build.folder.rename(storage.temporary("-damaged"))
    storage.commit_directory(folder, build.folder)
    return build, True


def _is_sound(build: Build) -> bool:
    """Return whether the build is there already, whole; a damaged one is to be made again."""
    if not (build.folder / MANIFEST).is_file():
        return False
    try:
        verify_build(build)
    except DamagedBuildError:
        return False
    return True


def _share_with_earlier(storage: Storage, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace files that an earlier build has byte for byte by hard links to that build's.

    Links to the steps' tables are not enough: those are written, and removed, as runs come and go.
    """
    own = set(files)
    for earlier in list_builds(storage):
        for name in sorted(own):
            mine, other = folder / name, earlier.folder / name
            if not other.is_file() or other.stat().st_size != files[name]["size"]:
                continue
            if mine.samefile(other):
                own.discard(name)
            elif filecmp.cmp(mine, other, shallow=False):
                mine.unlink()
                storage.link_or_copy(other, mine)
                own.discard(name)


def check_build(build: Build) -> None:
    """Raise `DamagedBuildError` unless every file is there in its size and the id is the hash of the stamp.

    Quick, whatever the build's size: for opening. `verify_build` reads every byte.
    """
    manifest, stamp = build.manifest, build.stamp
    if manifest.get("schema_version") != STORAGE_SCHEMA_VERSION:
        raise DamagedBuildError(
            f"build {build.id}: schema version {manifest.get('schema_version')}, this release reads "
            f"{STORAGE_SCHEMA_VERSION}: index again"
        )
    hashed = {k: v for k, v in stamp.items() if k not in _OUTSIDE_HASH}
    if not manifest["build"] == stamp.get("build") == build.id == version_of(manifest["rows"], hashed):
        raise DamagedBuildError(
            f"build {build.id}: its id is not the hash of its tables and stamp: {_REPAIR}"
        )
    for name, expected in manifest["files"].items():
        path = build.folder / name
        if not path.is_file():
            raise DamagedBuildError(f"build {build.id}: {name} is missing: {_REPAIR}")
        if path.stat().st_size != expected["size"]:
            raise DamagedBuildError(f"build {build.id}: {name} was changed after it was built: {_REPAIR}")


def verify_build(build: Build) -> None:
    """Raise `DamagedBuildError` unless every file is the one the manifest names and the id is their hash."""
    check_build(build)
    for name, expected in build.manifest["files"].items():
        if sha256_file(build.folder / name) != expected["sha256"]:
            raise DamagedBuildError(f"build {build.id}: {name} was changed after it was built: {_REPAIR}")


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


def _write_tie_ranks(folder: Path) -> NDArray[np.int64]:
    """Write and return the rank of each row in chunk id order, so that ties in a ranking fall by chunk id."""
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
    return ranks


def _write_copies(folder: Path, tie_ranks: NDArray[np.int64]) -> None:
    """Write for each row the least tie rank among the chunks that stand at the same place of identical documents.

    Identical files at two paths are two documents with one text; a search shows such chunks as one hit.
    """
    texts = {
        row["document_id"]: row["text_sha256"]
        for row in read_rows(folder / f"{DOCUMENTS.name}.parquet", columns=("document_id", "text_sha256"))
        if row["text_sha256"]
    }
    times = Counter(texts.values())
    copies = tie_ranks.copy()
    groups: dict[tuple[str, int, int], list[int]] = {}
    chunks = read_rows(
        folder / f"{CHUNKS.name}.parquet", columns=("document_id", "start", "end"), batch_rows=4096
    )
    for row, chunk in enumerate(chunks):
        text = texts[chunk["document_id"]]
        if times[text] > 1:
            groups.setdefault((text, chunk["start"], chunk["end"]), []).append(row)
    for rows in groups.values():
        copies[rows] = tie_ranks[rows].min()
    with storage_errors(folder), (folder / COPIES).open("wb") as file:
        np.save(file, copies)


_COPIED = (DOCUMENTS, SECTIONS, CHUNKS, BM25_TERMS, BM25_POSTINGS, BM25_LENGTHS)


def _descriptions(table: TableSchema) -> dict[str, str]:
    return {column.name: describe(column) for column in table.schema}


def write_duckdb(folder: Path, stamp: Mapping[str, Any]) -> None:
    """Write the build's DuckDB file: real tables, so that it opens from anywhere, without the Parquet files."""
    import duckdb

    path = folder / DUCKDB
    with storage_errors(path), _duckdb_errors(path), duckdb.connect(str(path)) as connection:
        for table in _COPIED:
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
        connection.executemany("INSERT INTO stamp VALUES (?, ?)", [(k, _plain(v)) for k, v in flatten(stamp)])
        _describe(connection)
        connection.execute("CHECKPOINT")


@contextmanager
def _duckdb_errors(path: Path) -> Iterator[None]:
    """Give DuckDB's errors the number of the system's, whose words are all that DuckDB passes on."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        known = (n for n in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) if os.strerror(n) in str(error))
        number = next(known, None)
        if number is None:
            raise
        raise OSError(number, str(error), str(path)) from error


_ROW = "row of the vector array and of the postings"
_PLAIN_TABLES = {
    "embeddings": (
        "one chunk's vector and its word pieces",
        {"vector": "vector of unit length", **_descriptions(CHUNK_EMBEDDINGS)},
    ),
    "stamp": (
        "what made this build",
        {"key": "dotted key", "value": "its value; lists and numbers as JSON"},
    ),
}


def _describe(connection: Any) -> None:
    """Comment every table and column, so that the file explains itself to whoever opens it."""
    tables = {t.name: (t.description, {"row": _ROW, **_descriptions(t)}) for t in _COPIED} | _PLAIN_TABLES
    connection.begin()  # one transaction: a comment of its own would be flushed to disk a hundred times
    for table, (description, columns) in tables.items():
        connection.execute(f'COMMENT ON TABLE "{table}" IS {_literal(description)}')
        for (column,) in connection.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall():
            connection.execute(f'COMMENT ON COLUMN "{table}"."{column}" IS {_literal(columns[column])}')
    connection.commit()


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
    """Return in words where the stamp, the Parquet tables, the arrays and the DuckDB file disagree in number."""
    import duckdb

    with duckdb.connect(str(folder / DUCKDB), read_only=True) as connection:

        def stored(table: str) -> int:
            row = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            return int(row[0]) if row else 0

        def rows(table: TableSchema) -> int:
            return count_rows(folder / f"{table.name}.parquet")

        def length(array: str) -> int:
            return int(open_array(folder / array).shape[0])

        # What is counted -> how often, by place; the first place is the Parquet table.
        counted = {
            "chunks": {
                "chunks": rows(CHUNKS),
                "the stamp": int(stamp["chunks"]),
                "chunk_embeddings": rows(CHUNK_EMBEDDINGS),
                "lengths": rows(BM25_LENGTHS),
                VECTORS: length(VECTORS),
                LENGTHS: length(LENGTHS),
                TIE_RANKS: length(TIE_RANKS),
                COPIES: length(COPIES),
                "DuckDB's chunks": stored("chunks"),
                "DuckDB's embeddings": stored("embeddings"),
                "DuckDB's lengths": stored("lengths"),
            },
            "postings": {
                "postings": rows(BM25_POSTINGS),
                POSTING_ROWS: length(POSTING_ROWS),
                POSTING_FREQUENCIES: length(POSTING_FREQUENCIES),
                "DuckDB's postings": stored("postings"),
            },
            "terms": {"terms": rows(BM25_TERMS), "DuckDB's terms": stored("terms")},
            "documents": {
                "documents": rows(DOCUMENTS),
                "the stamp": sum(stamp["documents"].values()),
                "DuckDB's documents": stored("documents"),
            },
            "sections": {"sections": rows(SECTIONS), "DuckDB's sections": stored("sections")},
        }
        declared = connection.execute(_DECLARED_COUNTS).fetchall()
    problems = [
        f"{table} holds {numbers[table]} {table}, {place} {number}"
        for table, numbers in counted.items()
        for place, number in numbers.items()
        if number != numbers[table]
    ]
    return problems + [
        f"document {document} is stamped with {said} chunks and has {has}" for document, said, has in declared
    ]


_DECLARED_COUNTS = """
SELECT d.document_id, d.chunks, count(c.chunk_id)
FROM documents d LEFT JOIN chunks c USING (document_id)
GROUP BY ALL HAVING d.chunks <> count(c.chunk_id) ORDER BY d.document_id
"""
