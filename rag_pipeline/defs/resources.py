"""What assets need from outside: the storage root held for writing, and the handles' store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import dagster as dg

from rag_pipeline.core.errors import RagPipelineError
from rag_pipeline.core.storage import Handle, Storage
from rag_pipeline.settings import Settings
from rag_pipeline.steps import Session, code_versions, open_session


def build_session_resource(settings: Settings) -> dg.ResourceDefinition:
    """Return the resource that holds the storage root as its one writer while a run's process works.

    A second run waits for `storage.lock_timeout` seconds, naming the holder in its log, and then fails. In the
    in-process executor the root is held for the whole run.
    """

    @dg.resource(description="The storage root, held as its one writer, and its memo.")
    def session(context: dg.InitResourceContext) -> Iterator[Session]:
        run_id = context.run.run_id[:8] if context.run is not None else "outside a run"

        def on_wait(holder: str) -> None:
            if context.log is not None:
                context.log.info(f"waiting for the storage root: in use by {holder}")

        with open_session(settings, f"run {run_id}", on_wait) as opened:
            yield opened

    return session


class HandleIOManager(dg.IOManager):
    """Keeps each asset's newest handle as a small JSON file in the storage root; tables never pass through it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _versions(self) -> Mapping[str, str]:
        return code_versions(self._settings)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write the handle of a materialised asset."""
        if not isinstance(obj, Handle):
            raise RagPipelineError(f"asset {context.asset_key.to_user_string()} returned no handle: {obj!r}")
        handle = replace(obj, code_version=self._versions[obj.asset])
        Storage.create(self._settings.storage_root).write_handle(handle)

    def load_input(self, context: dg.InputContext) -> Handle:
        """Return the newest handle of an asset above."""
        name = context.asset_key.path[-1]
        storage = Storage.existing(self._settings.storage_root)
        handle = storage.read_handle(name) if storage is not None else None
        if handle is None:
            raise RagPipelineError(
                f"{name} was never materialised in {self._settings.storage_root}: materialise it first"
            )
        return handle
