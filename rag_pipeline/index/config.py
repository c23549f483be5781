"""Settings of publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class PublicationConfig:
    """Section `publication`: what is kept for rollback."""

    keep: Annotated[
        int, Ge(1), Doc("Builds kept for rollback and inspection, the published one not counted.")
    ] = 3
