"""Everything Dagster is given, built from one settings object. Nothing here is global."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from rag_pipeline.defs.assets import build_assets
from rag_pipeline.defs.automation import build_jobs, build_schedules, build_sensors
from rag_pipeline.defs.logging import plain_console_logger
from rag_pipeline.defs.names import Names
from rag_pipeline.defs.resources import HandleIOManager, build_session_resource
from rag_pipeline.settings import Settings


def build_definitions(settings: Settings, prefix: Sequence[str] = ()) -> dg.Definitions:
    """Return the definitions of one pipeline: assets, checks, jobs, schedules, sensors and resources.

    `prefix` goes before every asset key and, as a suffix, into every other name, so that several pipelines, each
    with a storage root of its own, can be merged into one Dagster project. Loading is quick: no torch, no
    download, nothing written.
    """
    names = Names.below(prefix)
    assets = build_assets(settings, names)
    jobs = build_jobs(assets, names)
    return dg.Definitions(
        assets=assets,
        jobs=list(jobs.values()),
        schedules=build_schedules(settings, jobs, names),
        sensors=build_sensors(settings, jobs, names),
        resources={
            names.session: build_session_resource(settings),
            names.handles: dg.IOManagerDefinition.hardcoded_io_manager(
                HandleIOManager(settings), description="The newest handle of each asset, in the storage root."
            ),
        },
        loggers={"console": plain_console_logger},
        # One process a run: the encoder is loaded once, and the storage root is held from start to end.
        executor=dg.in_process_executor,
    )
