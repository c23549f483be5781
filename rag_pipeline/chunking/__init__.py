"""Canonical text -> chunks: pure functions; strategies A to F are combinations of three ingredients."""

from rag_pipeline.chunking.chunker import CHUNKER_VERSION, Chunk, chunk_document, chunk_id, contextual_header
from rag_pipeline.chunking.sections import Section, sections
from rag_pipeline.chunking.strategies import STRATEGIES, Strategy

__all__ = [
    "CHUNKER_VERSION",
    "STRATEGIES",
    "Chunk",
    "Section",
    "Strategy",
    "chunk_document",
    "chunk_id",
    "contextual_header",
    "sections",
]
