"""Embedding a table of chunks: a vector for each chunk, remembered by text and encoder."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rag_pipeline.core.arrays import write_float32_header
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import CHUNK_EMBEDDINGS
from rag_pipeline.core.storage import Storage, sha256_text, storage_errors, version_of
from rag_pipeline.core.tables import TableWriter, count_rows, read_rows
from rag_pipeline.embedding.encoder import EMBEDDING_VERSION, Encoder, Pieces, Vectors, check_vectors
from rag_pipeline.embedding.fingerprint import Fingerprint

BATCH = 128
_HEAD = struct.Struct("<ii")


class ChunkEncoder(Encoder, Protocol):
    """An encoder that also counts pieces without special tokens (for the share of the header)."""

    def count_plain(self, texts: Sequence[str]) -> list[int]:
        """Return the word pieces of each text, without special tokens."""


@dataclass(frozen=True)
class EmbeddedChunks:
    """What embedding a chunk table gave, counted after it was written."""

    table: Path
    vectors: Path
    rows: int
    data_version: str
    encoded: int
    """Distinct texts encoded in this run."""
    remembered: int
    """Distinct texts whose vector was known."""
    pieces: int
    header_pieces: int
    over_window: int


def memo_namespace(fingerprint: Fingerprint) -> str:
    """Return the memo's namespace for vectors of this encoder."""
    return f"embedding/{EMBEDDING_VERSION}/{fingerprint.id}"


def remembered_vectors(
    texts: dict[str, str], encoder: Encoder, memo: Memo
) -> tuple[dict[str, tuple[int, int, Vectors]], int]:
    """Return (pieces, covered, vector) by sha256 of the text, and how many texts were encoded to get there.

    `texts` maps sha256 to text. Texts are encoded longest first, so that a batch pads little. Raises
    `DamagedBuildError`, and remembers nothing, where the encoder gives a vector that is not of unit length.
    """
    namespace = memo_namespace(encoder.fingerprint)
    known = {k: _unpack(v) for k, v in memo.get_many(namespace, list(texts)).items()}
    missing = sorted((k for k in texts if k not in known), key=lambda k: (-len(texts[k]), k))
    if missing:
        vectors = encoder.encode([texts[k] for k in missing])
        check_vectors(vectors, encoder.fingerprint)
        pieces = encoder.pieces([texts[k] for k in missing])
        new = {k: (p.count, p.covered, v) for k, p, v in zip(missing, pieces, vectors, strict=True)}
        memo.put_many(namespace, ((k, _pack(*v)) for k, v in new.items()))
        known |= new
    return known, len(missing)


def embed_chunks(
    chunks: Path,
    encoder: ChunkEncoder,
    storage: Storage,
    memo: Memo,
    progress: Callable[[int, int], None] | None = None,
) -> EmbeddedChunks:
    """Embed a chunk table and write vectors and piece counts beside each other.

    Memory holds one batch of texts and vectors. The vectors become a NumPy ``.npy`` file, float32, shape
    [chunks, dimensions], rows in the order of the chunk table. The data version is the fingerprint and the text
    hashes: float bytes may differ between machines.
    """
    total = count_rows(chunks)
    dimensions = encoder.fingerprint.dimensions
    temporary = storage.temporary(".npy")
    encoded = remembered = pieces = header_pieces = over = 0
    with (
        storage_errors(temporary),
        temporary.open("wb") as file,
        TableWriter(storage, CHUNK_EMBEDDINGS) as writer,
    ):
        write_float32_header(file, (total, dimensions))
        row = 0
        for batch in _batches(chunks):
            texts = {c["text_sha256"]: c["text"] for c in batch}
            vectors, fresh = remembered_vectors(texts, encoder, memo)
            encoded += fresh
            remembered += len(texts) - fresh
            headers = sorted({c["text"][: c["header_length"]] for c in batch})
            header_counts = dict(zip(headers, encoder.count_plain(headers), strict=True))
            rows = []
            for chunk in batch:
                count, covered, vector = vectors[chunk["text_sha256"]]
                header = header_counts[chunk["text"][: chunk["header_length"]]]
                pieces += count
                header_pieces += header
                over += count > encoder.fingerprint.window
                file.write(np.ascontiguousarray(vector, dtype="<f4").tobytes())
                rows.append(
                    {
                        "row": row,
                        "chunk_id": chunk["chunk_id"],
                        "text_sha256": chunk["text_sha256"],
                        "pieces": count,
                        "header_pieces": header,
                        "covered": covered,
                        "norm": float(np.linalg.norm(vector)),
                    }
                )
                row += 1
            writer.write(rows)
            if progress is not None:
                progress(row, total)
    version = version_of(encoder.fingerprint.id, writer.data_version)
    final = storage.root / "tables" / CHUNK_EMBEDDINGS.name / f"{version}.npy"
    storage.commit(temporary, final)
    return EmbeddedChunks(
        table=writer.path,
        vectors=final,
        rows=writer.rows,
        data_version=version,
        encoded=encoded,
        remembered=remembered,
        pieces=pieces,
        header_pieces=header_pieces,
        over_window=over,
    )


def _batches(chunks: Path) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in read_rows(chunks, columns=("chunk_id", "text", "text_sha256", "header_length")):
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _pack(count: int, covered: int, vector: Vectors) -> bytes:
    return _HEAD.pack(count, covered) + np.ascontiguousarray(vector, dtype="<f4").tobytes()


def _unpack(value: bytes) -> tuple[int, int, Vectors]:
    count, covered = _HEAD.unpack_from(value)
    return count, covered, np.frombuffer(value, dtype="<f4", offset=_HEAD.size)


class MemoisedEncoder:
    """An encoder whose vectors are remembered: the questions of an evaluation are encoded once, not every run."""

    def __init__(self, encoder: ChunkEncoder, memo: Memo) -> None:
        self._encoder = encoder
        self._memo = memo

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the encoder."""
        return self._encoder.fingerprint

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape [len(texts), dimensions], from the memo where it has them."""
        by_hash = {sha256_text(text): text for text in texts}
        known, _ = remembered_vectors(by_hash, self._encoder, self._memo)
        if not texts:
            return self._encoder.encode([])
        return np.stack([known[sha256_text(text)][2] for text in texts])

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Return how each text falls into word pieces."""
        return self._encoder.pieces(texts)
