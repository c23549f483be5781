"""Jobs, the schedule and the sensor: when the index is made again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from rag_pipeline.core.errors import SettingsError, SourceError
from rag_pipeline.core.storage import sha256_text
from rag_pipeline.defs.assets import RETRY_TAG
from rag_pipeline.defs.names import Names
from rag_pipeline.documents.source import source_fingerprint
from rag_pipeline.settings import Settings

Job = Any


def build_jobs(assets: Sequence[dg.AssetsDefinition], names: Names) -> dict[str, Job]:
    """Return the jobs by name: a full re-index, and one that tries failed documents again."""
    everything = dg.AssetSelection.assets(*assets)
    return {
        names.reindex: dg.define_asset_job(
            names.reindex,
            selection=everything,
            description="From the source folder to the published index. Work is done only for what changed.",
        ),
        names.retry: dg.define_asset_job(
            names.retry,
            selection=everything,
            tags={RETRY_TAG: "true"},
            description="The same, and every document whose extraction failed is tried again.",
        ),
    }


def build_schedules(settings: Settings, jobs: Mapping[str, Job], names: Names) -> list[dg.ScheduleDefinition]:
    """Return the schedule of the full re-index: running where `schedule.cron` is set, else off at 03:00."""
    cron = settings.schedule.cron
    try:
        return [
            dg.ScheduleDefinition(
                name=names.schedule,
                job=jobs[names.reindex],
                cron_schedule=cron or "0 3 * * *",
                execution_timezone=settings.schedule.timezone,
                default_status=dg.DefaultScheduleStatus.RUNNING if cron else dg.DefaultScheduleStatus.STOPPED,
                description="Full re-index on a schedule (schedule.cron).",
            )
        ]
    except dg.DagsterInvalidDefinitionError as error:
        raise SettingsError(
            f"schedule.cron = {cron!r}, schedule.timezone = {settings.schedule.timezone!r}: allowed is a cron "
            f"expression of five fields such as '0 3 * * *' and a time zone such as 'Europe/Berlin' ({error})"
        ) from error


def build_sensors(settings: Settings, jobs: Mapping[str, Job], names: Names) -> list[dg.SensorDefinition]:
    """Return the sensor that asks for a re-index when the source folder or the question files changed."""

    @dg.sensor(
        name=names.sensor,
        job=jobs[names.reindex],
        minimum_interval_seconds=settings.schedule.watch_interval,
        default_status=dg.DefaultSensorStatus.RUNNING
        if settings.schedule.watch
        else dg.DefaultSensorStatus.STOPPED,
        description="Asks for a re-index when the source folder or a question file changed and has settled: "
        "two looks in a row must see the same (schedule.watch, schedule.watch_interval).",
    )
    def source_folder_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            seen = _fingerprint(settings)
        except SourceError as error:
            return dg.SkipReason(str(error))
        before: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        after = {"seen": seen, "requested": before.get("requested", "")}
        if seen == after["requested"]:
            context.update_cursor(json.dumps(after))
            return dg.SkipReason("nothing changed since the last run was requested")
        if seen != before.get("seen"):
            context.update_cursor(json.dumps(after))
            return dg.SkipReason("something changed; waiting until it has settled")
        after["requested"] = seen
        return dg.SensorResult(
            run_requests=[dg.RunRequest(tags={"rag_pipeline/source_fingerprint": seen[:16]})],
            cursor=json.dumps(after),
        )

    return [source_folder_sensor]


def _fingerprint(settings: Settings) -> str:
    parts = [source_fingerprint(Path(settings.source.path))]
    for name in (settings.evaluation.questions, settings.evaluation.out_of_domain):
        if name:
            try:
                stat = Path(name).stat()
                parts.append(f"{name} {stat.st_size} {stat.st_mtime_ns}")
            except OSError:
                parts.append(f"{name} missing")
    return sha256_text("\n".join(parts))
