"""What the definitions of one pipeline are called, so that several can live in one Dagster project.

Asset keys stand below a prefix. Jobs, schedules, sensors, resources and groups have flat names: they get the
prefix as a suffix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

_NO_NAME = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True)
class Names:
    """The names of one pipeline's definitions. Without a prefix they are the plain ones."""

    prefix: tuple[str, ...] = ()

    @classmethod
    def below(cls, prefix: Sequence[str]) -> Names:
        """Return the names of the pipeline whose asset keys stand below `prefix`."""
        return cls((prefix,) if isinstance(prefix, str) else tuple(prefix))

    @property
    def reindex(self) -> str:
        """The job from the source folder to the published index."""
        return self._flat("reindex")

    @property
    def retry(self) -> str:
        """The same job, trying failed documents again."""
        return self._flat("retry_failed_documents")

    @property
    def schedule(self) -> str:
        """The schedule of the full re-index."""
        return self._flat("reindex_schedule")

    @property
    def sensor(self) -> str:
        """The sensor on the source folder."""
        return self._flat("source_folder_sensor")

    @property
    def session(self) -> str:
        """The resource that holds the storage root."""
        return self._flat("session")

    @property
    def handles(self) -> str:
        """The resource that keeps the assets' handles."""
        return self._flat("handles")

    def key(self, asset: str) -> dg.AssetKey:
        """Return the key of an asset of the chain."""
        return dg.AssetKey([*self.prefix, asset])

    def group(self, group: str) -> str:
        """Return the name of a group of assets."""
        return self._flat(group)

    def _flat(self, name: str) -> str:
        # Dagster allows letters, digits and underscores alone in these names, and more in asset keys.
        return "_".join([name, *(_NO_NAME.sub("_", part) for part in self.prefix)])
