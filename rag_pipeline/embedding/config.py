"""Settings of the embedding encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, MinLen
from typing_extensions import Doc

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """Section `embedding`: the encoder of chunks and queries."""

    model: Annotated[str, MinLen(1), Doc("A sentence-transformers name or the path of a model folder.")] = (
        DEFAULT_MODEL
    )
    runtime: Annotated[Literal["torch"], Doc("What runs the encoder.")] = "torch"
    batch_size: Annotated[int, Ge(1), Doc("Texts encoded at once; small batches pad less.")] = 8
