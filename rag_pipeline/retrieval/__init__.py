"""Search over an open build: dense, BM25, fusion, re-ranking, refusal and citations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rag_pipeline.retrieval.fusion import reciprocal_rank_fusion

# Imported on first use: a name from here must not load DuckDB or an encoder for a caller who wants another.
_EXPORTS = {"reciprocal_rank_fusion": "rag_pipeline.retrieval.fusion"}

__all__ = ["reciprocal_rank_fusion"]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
