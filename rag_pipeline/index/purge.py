"""Purging a document: its text leaves the memo, the tables, every kept build and their evaluations.

Builds are immutable, so none is edited: a build that holds the document is removed, and where it is the published
one, a build of the same tables without the document takes its place. That build is the one that indexing the
source without the document would give, id and all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rag_pipeline.core.arrays import open_array, write_float32
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import CHUNK_EMBEDDINGS, CHUNKS, DOCUMENTS
from rag_pipeline.core.storage import Handle, Storage, sha256_text, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, read_rows
from rag_pipeline.index.builds import VECTORS, Build, BuildInputs, list_builds, make_build
from rag_pipeline.lexical.bm25 import BM25
from rag_pipeline.lexical.tables import write_statistics

_BLOCK = 16384


@dataclass(frozen=True)
class DocumentTraces:
    """Where a document has left its text."""

    memo_keys: frozenset[str]
    builds: tuple[Build, ...]
    copies: tuple[str, ...]
    """Ids of other documents with the same bytes; their text stays."""

    @property
    def found(self) -> bool:
        """Whether there is any trace of the document."""
        return bool(self.memo_keys or self.builds)


def find_traces(storage: Storage, memo: Memo, document_id: str) -> DocumentTraces:
    """Return where the text of a document lies: memo entries of every version of it, and builds.

    The memo is read whole, one entry at a time: purging is rare, and a trace that is missed is worse than a minute.
    """
    rows = [(key, _identity(value)) for _, key, value in memo.items("canonical/")]
    own = [(key, row) for key, row in rows if row["document_id"] == document_id]
    builds = tuple(build for build in list_builds(storage) if _holds(build, document_id))
    hashes = {row["sha256"] for _, row in own if row["sha256"]}
    for build in builds:
        hashes |= {
            r["sha256"] for r in _document_rows(build) if r["document_id"] == document_id and r["sha256"]
        }
    cut = {sha256_text(f"{row['title']}\n{row['text_sha256']}") for _, row in own if row["text_sha256"]}
    texts = {
        sha256_text(chunk["text"])
        for _, key, value in memo.items("chunks/")
        if key in cut
        for chunk in json.loads(value)
    }
    for build in builds:
        chunks = read_rows(build.table(CHUNKS.name), columns=("document_id", "text_sha256"))
        texts |= {chunk["text_sha256"] for chunk in chunks if chunk["document_id"] == document_id}
    copies = {str(row["document_id"]) for _, row in rows if row["sha256"] in hashes} - {document_id}
    keys = hashes | {key for key, _ in own} | cut | texts
    known = [key for key in keys if memo.has(key)]
    return DocumentTraces(frozenset(known), builds, tuple(sorted(copies)))


def _identity(value: bytes) -> dict[str, str | None]:
    """Return what identifies a remembered canonical document, without its text."""
    row = json.loads(value)
    return {name: row[name] for name in ("document_id", "sha256", "title", "text_sha256")}


def _document_rows(build: Build) -> Iterator[dict[str, str | None]]:
    return read_rows(build.table(DOCUMENTS.name), columns=("document_id", "sha256"))


def _holds(build: Build, document_id: str) -> bool:
    return any(row["document_id"] == document_id for row in _document_rows(build))


def remove_tables(storage: Storage) -> int:
    """Remove every table and handle of the chain, and return how many files went; a run makes them anew.

    Vocabulary and vectors tell of a text as well as the text itself does, so no table is spared.
    """
    files = [p for p in (storage.root / "tables").glob("*/*") if p.is_file()]
    for path in [*files, *(storage.root / "handles").glob("*.json")]:
        path.unlink(missing_ok=True)
    return len(files)


def remove_build(storage: Storage, build: Build) -> None:
    """Remove a build and its evaluations; whoever has it open reads on until he closes it."""
    trash = storage.temporary("-purged")
    with storage_errors(trash):
        build.folder.rename(trash)
        shutil.rmtree(trash)
        shutil.rmtree(storage.root / "evaluations" / build.id, ignore_errors=True)


def build_without(storage: Storage, build: Build, document_id: str) -> Build:
    """Return a build of the same tables without one document, made by the same models and settings."""
    stamp = build.stamp
    extractors: dict[str, str] = {}
    with TableWriter(storage, replace(DOCUMENTS, name="purged_documents")) as documents:
        for row in read_rows(build.table(DOCUMENTS.name), batch_rows=16):
            if row["document_id"] == document_id:
                continue
            documents.write([row])
            if row["state"] == "indexed":
                extractors[str(row["extractor"])] = str(row["extractor_version"])
    kept: list[int] = []
    with TableWriter(storage, CHUNKS) as chunks:
        for at, row in enumerate(read_rows(build.table(CHUNKS.name))):
            if row["document_id"] != document_id:
                kept.append(at)
                chunks.write([row])
    vectors, embeddings = _embeddings_of(storage, build, kept)
    parameters = stamp["bm25"]
    texts = (row["text"] for row in read_rows(chunks.path, columns=("text",)))
    scorer = BM25(texts, k1=parameters["k1"], b=parameters["b"], tokenizer=parameters["tokenizer"])
    lexical = write_statistics(storage, scorer.statistics)

    def relative(path: Path) -> str:
        return storage.relative(path)

    canonical = Handle(
        "canonical_documents",
        documents.data_version,
        documents.rows,
        {"table": relative(documents.path)},
        info={"canonical_version": stamp["canonical_version"], "extractors": extractors},
    )
    chunked = Handle(
        "chunks",
        chunks.data_version,
        chunks.rows,
        {"table": relative(chunks.path)},
        {"canonical_documents": canonical.data_version},
        {"chunking": stamp["chunking"]},
    )
    made_from_chunks = {"chunks": chunked.data_version}
    embedded = Handle(
        "chunk_embeddings",
        version_of(stamp["embedding"]["id"], embeddings.data_version),
        embeddings.rows,
        {"table": relative(embeddings.path), "vectors": relative(vectors)},
        made_from_chunks,
        {"fingerprint": stamp["embedding"], "model_location": stamp["model_location"]},
    )
    bm25 = Handle(
        "bm25_statistics",
        version_of(lexical.data_version, parameters),
        lexical.terms,
        {role: relative(path) for role, path in lexical.files.items()},
        made_from_chunks,
        {"bm25": parameters},
    )
    made, _ = make_build(
        storage, BuildInputs(canonical, chunked, embedded, bm25), str(stamp["pipeline_version"])
    )
    return made


def _embeddings_of(storage: Storage, build: Build, kept: list[int]) -> tuple[Path, TableWriter]:
    """Write the vectors and embedding rows at these rows of a build, numbered anew."""
    vectors = open_array(build.folder / VECTORS)
    temporary = storage.temporary(".npy")
    with storage_errors(temporary), temporary.open("wb") as file:
        blocks = (vectors[kept[at : at + _BLOCK]] for at in range(0, len(kept), _BLOCK))
        write_float32(file, (len(kept), vectors.shape[1]), blocks)
    wanted = {old: new for new, old in enumerate(kept)}
    with TableWriter(storage, CHUNK_EMBEDDINGS) as writer:
        for at, row in enumerate(read_rows(build.table(CHUNK_EMBEDDINGS.name))):
            if at in wanted:
                writer.write([{**row, "row": wanted[at]}])
    final = storage.root / "tables" / CHUNK_EMBEDDINGS.name / f"purged-{writer.data_version}.npy"
    storage.commit(temporary, final)
    return final, writer
