"""Settings of the storage root. (Each room owns the dataclass of its section; `settings.py` assembles them.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, MinLen
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """Section `storage`: where tables, memos and builds lie."""

    root: Annotated[
        str, MinLen(1), Doc("Folder that holds every table, memo and build. Dagster's home lies beside it.")
    ] = "rag_data/storage"
    lock_timeout: Annotated[
        float,
        Ge(0),
        Doc("Seconds a run waits for another run that holds the storage root before it gives up."),
    ] = 600.0
