"""Whether a build holds together: counts, slices, vectors. No question is asked of it here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.schemas import CHUNK_EMBEDDINGS, CHUNKS, DOCUMENTS
from rag_pipeline.core.storage import sha256_text
from rag_pipeline.core.tables import read_rows
from rag_pipeline.index.builds import TIE_RANKS, VECTORS, Build, count_problems

_NORM_TOLERANCE = 1e-4
_VECTOR_BLOCK = 16384
# A broken build breaks everywhere; the first few places tell as much as all of them.
_SHOWN = 5


def structure_problems(build: Build) -> list[str]:
    """Return in words everything in which a build does not hold together; empty where it is sound.

    Checked: counts agree between stamp, tables, vectors and DuckDB; every content equals its slice of the
    canonical text and every text its header and passage; vectors are finite, of unit length and of the stamped
    dimensions; every document names the one stamped fingerprint; rows of tables and vectors stand in one order.
    """
    problems = count_problems(build.folder, build.stamp)
    problems += _shorten(_slice_problems(build))
    problems += _shorten(_vector_problems(build))
    problems += _shorten(_fingerprint_problems(build))
    problems += _shorten(_order_problems(build))
    return problems


def _shorten(found: Iterator[str]) -> list[str]:
    problems = list(found)
    if len(problems) > _SHOWN:
        return [*problems[:_SHOWN], f"... and {len(problems) - _SHOWN} more of the kind"]
    return problems


def _slice_problems(build: Build) -> Iterator[str]:
    documents = read_rows(build.table(DOCUMENTS.name), columns=("document_id", "text"), batch_rows=16)
    document: dict[str, Any] | None = None
    columns = ("chunk_id document_id start end lead_start content text header_length text_sha256").split()
    for chunk in read_rows(build.table(CHUNKS.name), columns=columns):
        while document is None or document["document_id"] != chunk["document_id"]:
            document = next(documents, None)
            if document is None:
                yield f"chunk {chunk['chunk_id']}: its document {chunk['document_id']} is not in the build"
                return
        text, start, end, lead = document["text"], chunk["start"], chunk["end"], chunk["lead_start"]
        place = f"chunk {chunk['chunk_id']} of {chunk['document_id']}"
        if not 0 <= lead <= start < end <= len(text):
            yield f"{place}: offsets {lead} <= {start} < {end} do not lie in a text of {len(text)} characters"
        elif chunk["content"] != text[start:end]:
            yield f"{place}: content is not canonical[{start}:{end}]"
        elif chunk["text"][chunk["header_length"] :] != text[lead:end]:
            yield f"{place}: text is not its header and canonical[{lead}:{end}]"
        elif sha256_text(chunk["text"]) != chunk["text_sha256"]:
            yield f"{place}: text_sha256 is not the hash of text"


def _vector_problems(build: Build) -> Iterator[str]:
    vectors = open_array(build.folder / VECTORS)
    dimensions = int(build.stamp["embedding"]["dimensions"])
    if vectors.ndim != 2 or (len(vectors) and vectors.shape[1] != dimensions):
        yield f"vectors have shape {vectors.shape}, the stamp says {dimensions} dimensions"
        return
    for at in range(0, len(vectors), _VECTOR_BLOCK):
        block = np.asarray(vectors[at : at + _VECTOR_BLOCK])
        norms = np.linalg.norm(block, axis=1)
        for row in np.flatnonzero(~np.isfinite(block).all(axis=1)):
            yield f"vector {at + int(row)} is not finite"
        for row in np.flatnonzero(np.isfinite(norms) & (np.abs(norms - 1) > _NORM_TOLERANCE)):
            yield f"vector {at + int(row)} has length {norms[row]:.4f}, not 1"


def _fingerprint_problems(build: Build) -> Iterator[str]:
    stamped = build.stamp["embedding"]["id"]
    for row in read_rows(build.table(DOCUMENTS.name), columns=("document_id", "embedding_fingerprint")):
        if row["embedding_fingerprint"] != stamped:
            yield (
                f"document {row['document_id']} is stamped with encoder {row['embedding_fingerprint']}, "
                f"the build with {stamped}"
            )


def _order_problems(build: Build) -> Iterator[str]:
    chunks = read_rows(build.table(CHUNKS.name), columns=("chunk_id", "text_sha256"))
    embedded = read_rows(build.table(CHUNK_EMBEDDINGS.name), columns=("row", "chunk_id", "text_sha256"))
    for row, (chunk, vector) in enumerate(zip(chunks, embedded, strict=False)):
        if (vector["row"], vector["chunk_id"], vector["text_sha256"]) != (
            row,
            chunk["chunk_id"],
            chunk["text_sha256"],
        ):
            yield f"row {row}: the vector belongs to chunk {vector['chunk_id']}, the chunk is {chunk['chunk_id']}"
    ranks = np.load(build.folder / TIE_RANKS)
    if len(np.unique(ranks)) != len(ranks):
        yield "tie ranks are not a permutation: chunk ids are not unique"
