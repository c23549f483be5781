"""Running a job from the command line on the Dagster home that the UI shows."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from rag_pipeline.core import errors
from rag_pipeline.core.storage import storage_errors
from rag_pipeline.defs.factory import build_definitions
from rag_pipeline.defs.names import Names
from rag_pipeline.settings import Settings

_OURS = {name for name, value in vars(errors).items() if isinstance(value, type)}
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


@dataclass(frozen=True)
class JobOutcome:
    """How a run ended: which assets were materialised, and the first error in words."""

    run_id: str
    success: bool
    materialised: tuple[str, ...]
    seconds: dict[str, float]
    """Wall time of each step, from Dagster's own events."""
    error: str | None
    error_class: str | None


def prepare_home(home: Path) -> Path:
    """Return Dagster's home, made with the default dagster.yaml and workspace.yaml where they are missing."""
    with storage_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        for name in ("dagster.yaml", "workspace.yaml"):
            if not (home / name).exists():
                shutil.copyfile(TEMPLATES / name, home / name)
    return home.absolute()


@contextmanager
def open_instance(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance of the settings' home."""
    home = prepare_home(settings.dagster_home())
    # Two processes that open a new home at once would both make its tables.
    with storage_errors(home), (home / "opening.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        instance = dg.DagsterInstance.from_config(str(home))
    try:
        yield instance
    finally:
        instance.dispose()


def run_job(settings: Settings, *, retry_failed: bool = False, instance: dg.DagsterInstance) -> JobOutcome:
    """Run the full job in this process and return how it ended; progress goes to standard error."""
    definitions = build_definitions(settings)
    job = definitions.resolve_job_def(Names().retry if retry_failed else Names().reindex)
    result = job.execute_in_process(
        instance=instance,
        raise_on_error=False,
        run_config={"loggers": {"console": {"config": {"log_level": "INFO"}}}},
    )
    materialised = []
    seconds: dict[str, float] = {}
    starts: dict[str, float] = {}
    error: str | None = None
    error_class: str | None = None
    for record in instance.all_logs(result.run_id):
        event = record.dagster_event
        if event is None:
            continue
        step = event.step_key or ""
        kind = event.event_type_value
        if kind == "STEP_START":
            starts[step] = record.timestamp
        elif kind in ("STEP_SUCCESS", "STEP_FAILURE") and step in starts:
            seconds[step] = record.timestamp - starts[step]
        elif kind == "ASSET_MATERIALIZATION" and event.asset_key is not None:
            materialised.append(event.asset_key.path[-1])
        if error is None and kind in ("STEP_FAILURE", "PIPELINE_FAILURE", "RUN_FAILURE"):
            error, error_class = _cause(event.event_specific_data)
    return JobOutcome(result.run_id, result.success, tuple(materialised), seconds, error, error_class)


def _cause(data: Any) -> tuple[str | None, str | None]:
    """Return message and class of the error that tells what to do, from Dagster's chain of causes.

    That is the first one which this package raised on purpose, whatever caused it in turn; else the innermost.
    """
    found = getattr(data, "error", None)
    if found is None:
        return None, None
    while found.cause is not None and found.cls_name not in _OURS:
        found = found.cause
    message = found.message.strip()
    name = found.cls_name or ""
    # Dagster writes "module.Class: message".
    head, separator, rest = message.partition(": ")
    if separator and head.endswith(name):
        message = rest
    return message, name
