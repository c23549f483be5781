"""Settings of retrieval: what readers of the published index are served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from typing_extensions import Doc

Mode = Literal["dense", "bm25", "hybrid", "reranked"]


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """Section `retrieval`: the served mode, its depth and its refusal threshold."""

    mode: Annotated[Mode, Doc("Retriever that answers: dense, bm25, hybrid or reranked.")] = "hybrid"
    k: Annotated[int, Ge(1), Doc("Chunks taken from the head of the ranking before the threshold.")] = 4
    threshold: Annotated[
        float, Ge(0), Le(2), Doc("Cosine distance a hit must lie strictly below; none below means refusal.")
    ] = 0.675
    reranker: Annotated[
        str, Doc("Cross-encoder name or path for mode `reranked`; empty: the mode is not evaluated.")
    ] = ""
