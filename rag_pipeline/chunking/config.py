"""Settings of chunking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class ChunkingConfig:
    """Section `chunking`: how canonical text is cut."""

    strategy: Annotated[
        Literal["A", "B", "C", "D", "E", "F"],
        Doc("A blind, B blind + overlap, C boundaries, D + overlap, E boundaries + header, F + overlap."),
    ] = "E"
    target: Annotated[int, Ge(16), Doc("Longest chunk content, in characters, that packing aims for.")] = 512
    overlap: Annotated[int, Ge(0), Doc("Characters before a chunk that B, D and F add to its passage.")] = 64
