"""The chunking stage: a table of canonical documents -> a table of chunks, remembered by document text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rag_pipeline.chunking.chunker import CHUNKER_VERSION, Chunk, chunk_document, chunk_id
from rag_pipeline.chunking.config import ChunkingConfig
from rag_pipeline.chunking.strategies import STRATEGIES
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import CHUNKS
from rag_pipeline.core.storage import Storage, canonical_json, sha256_text, version_of
from rag_pipeline.core.tables import TableWriter, read_rows
from rag_pipeline.documents.locators import LocatorSpan, resolve


@dataclass(frozen=True)
class ChunkedDocuments:
    """A written chunk table, counted after it was written."""

    table: Path
    rows: int
    data_version: str
    documents: int
    worked: int
    """Documents cut in this run."""
    remembered: int
    """Documents whose chunks were known."""


def chunking_version(config: ChunkingConfig) -> dict[str, Any]:
    """Return what decides the chunks besides the text. A strategy without overlap does not depend on it."""
    overlap = config.overlap if STRATEGIES[config.strategy].overlap else 0
    return {
        "version": CHUNKER_VERSION,
        "strategy": config.strategy,
        "target": config.target,
        "overlap": overlap,
    }


def chunk_documents(
    canonical: Path,
    storage: Storage,
    memo: Memo,
    config: ChunkingConfig,
    progress: Callable[[int], None] | None = None,
) -> ChunkedDocuments:
    """Cut every indexed document into chunks and write them in the order of documents and offsets."""
    namespace = f"chunks/{version_of(chunking_version(config))}"
    documents = worked = remembered = 0
    columns = ("document_id", "title", "state", "text", "text_sha256", "locators")
    with TableWriter(storage, CHUNKS) as writer:
        for row in read_rows(canonical, columns=columns, batch_rows=16):
            if row["state"] != "indexed":
                continue
            documents += 1
            key = sha256_text(f"{row['title']}\n{row['text_sha256']}")
            known = memo.get(namespace, key)
            if known is None:
                chunks = chunk_document(
                    row["text"], row["title"], config.strategy, config.target, config.overlap
                )
                memo.put(namespace, key, canonical_json([asdict(c) for c in chunks]).encode())
                worked += 1
            else:
                chunks = [Chunk(**values) for values in json.loads(known)]
                remembered += 1
            spans = [LocatorSpan.from_dict(span) for span in row["locators"]]
            writer.write(
                _row(row["document_id"], ordinal, chunk, spans) for ordinal, chunk in enumerate(chunks)
            )
            if progress is not None:
                progress(documents)
    return ChunkedDocuments(writer.path, writer.rows, writer.data_version, documents, worked, remembered)


def _row(document_id: str, ordinal: int, chunk: Chunk, spans: list[LocatorSpan]) -> dict[str, Any]:
    return {
        "chunk_id": chunk_id(document_id, chunk.start, chunk.end, chunk.text),
        "document_id": document_id,
        "ordinal": ordinal,
        "section": chunk.section,
        "start": chunk.start,
        "end": chunk.end,
        "lead_start": chunk.lead_start,
        "content": chunk.content,
        "text": chunk.text,
        "header_length": chunk.header_length,
        "text_sha256": sha256_text(chunk.text),
        "locator": resolve(spans, chunk.start, chunk.end).to_dict(),
    }
