"""Settings of BM25."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class BM25Config:
    """Section `bm25`: term weighting and tokens."""

    k1: Annotated[float, Ge(0), Doc("Term frequency saturation.")] = 1.2
    b: Annotated[float, Ge(0), Le(1), Doc("Length normalisation, 0 (none) to 1 (full).")] = 0.75
    tokenizer: Annotated[
        Literal["unicode", "reference"],
        Doc(
            "`unicode` keeps every script and cuts Chinese, Japanese and Korean into bigrams; "
            "`reference` keeps lower-cased runs of a-z and 0-9 alone."
        ),
    ] = "unicode"
