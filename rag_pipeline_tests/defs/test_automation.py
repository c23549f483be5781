"""What starts a run: the sensor on the source folder, the schedule, the retry job."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from rag_pipeline.core.errors import SettingsError
from rag_pipeline.defs.factory import build_definitions
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings
from rag_pipeline_tests.defs.pipelines import Pipeline, pdf_of

SETTLING = "something changed; waiting until it has settled"
NOTHING_NEW = "nothing changed since the last run was requested"


class Sensor:
    """The source folder's sensor, its cursor carried from tick to tick as the daemon does."""

    def __init__(self, settings: Settings) -> None:
        self.definition = (
            build_definitions(settings).get_repository_def().get_sensor_def("source_folder_sensor")
        )
        self.cursor: str | None = None

    def tick(self) -> list[dg.RunRequest] | str:
        """Return the runs requested, or why none was."""
        context = dg.build_sensor_context(cursor=self.cursor)
        data = self.definition.evaluate_tick(context)
        self.cursor = data.cursor
        return list(data.run_requests or ()) or str(data.skip_message)

    def settle(self) -> None:
        """Tick until the sensor has asked for a run and is content."""
        while self.tick() != NOTHING_NEW:
            pass


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings()


@pytest.fixture
def sensor(settings: Settings) -> Sensor:
    return Sensor(settings)


def test_the_sensor_waits_until_the_folder_has_settled(sensor: Sensor) -> None:
    assert sensor.tick() == SETTLING
    requests = sensor.tick()
    assert isinstance(requests, list) and len(requests) == 1
    assert set(requests[0].tags) >= {"rag_pipeline/source_fingerprint"}
    assert sensor.tick() == NOTHING_NEW
    assert sensor.tick() == NOTHING_NEW


CHANGES: dict[str, Callable[[Settings], object]] = {
    "edited": lambda s: Path(s.source.path, "brakes.md").write_text("# Brakes\n\nNew words.\n", "utf-8"),
    "added": lambda s: Path(s.source.path, "helmets.md").write_text("Helmets.\n", "utf-8"),
    "deleted": lambda s: Path(s.source.path, "brakes.md").unlink(),
    "renamed": lambda s: Path(s.source.path, "brakes.md").rename(Path(s.source.path, "stops.md")),
    "touched": lambda s: os.utime(Path(s.source.path, "brakes.md"), (1, 1)),
    "question edited": lambda s: Path(s.evaluation.questions).write_text("", "utf-8"),
    "questions deleted": lambda s: Path(s.evaluation.questions).unlink(),
    "strangers edited": lambda s: Path(s.evaluation.out_of_domain).write_text("", "utf-8"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_sensor_sees_every_change_once(
    sensor: Sensor, settings: Settings, change: Callable[[Settings], object]
) -> None:
    sensor.settle()
    change(settings)
    assert sensor.tick() == SETTLING
    assert isinstance(sensor.tick(), list)
    assert sensor.tick() == NOTHING_NEW


def test_the_sensor_goes_on_waiting_while_files_are_copied(sensor: Sensor, settings: Settings) -> None:
    sensor.settle()
    for number in range(3):
        Path(settings.source.path, f"copy{number}.md").write_text("A copy.\n", "utf-8")
        assert sensor.tick() == SETTLING
    assert isinstance(sensor.tick(), list)


def test_a_change_taken_back_asks_for_nothing(sensor: Sensor, settings: Settings) -> None:
    sensor.settle()
    path = Path(settings.source.path, "brakes.md")
    away = path.with_suffix(".away")
    before = path.stat()
    path.rename(away)
    assert sensor.tick() == SETTLING
    away.rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sensor.tick() == NOTHING_NEW


def test_a_missing_source_is_a_skip_that_says_so(sensor: Sensor, settings: Settings) -> None:
    sensor.settle()
    away = Path(settings.source.path).with_name("away")
    Path(settings.source.path).rename(away)
    said = sensor.tick()
    assert isinstance(said, str) and said.startswith("source.path: ") and "does not exist" in said
    # Back again as it was, there is nothing to do: an unmounted disk is no change.
    away.rename(settings.source.path)
    assert sensor.tick() == NOTHING_NEW
    shutil.rmtree(settings.source.path)
    Path(settings.source.path).write_text("a file", "utf-8")
    assert "is no folder" in str(sensor.tick())


def test_the_sensor_is_off_until_it_is_asked_for(make_settings: MakeSettings) -> None:
    off = Sensor(make_settings()).definition
    on = Sensor(make_settings(schedule={"watch": True, "watch_interval": 7})).definition
    assert off.default_status is dg.DefaultSensorStatus.STOPPED
    assert on.default_status is dg.DefaultSensorStatus.RUNNING
    assert (off.minimum_interval_seconds, on.minimum_interval_seconds) == (30, 7)


# -- the schedule -------------------------------------------------------------------------------------------------


def schedule_of(settings: Settings) -> dg.ScheduleDefinition:
    return build_definitions(settings).get_repository_def().get_schedule_def("reindex_schedule")


def test_the_schedule_is_off_without_a_cron_expression(make_settings: MakeSettings) -> None:
    off = schedule_of(make_settings())
    assert off.default_status is dg.DefaultScheduleStatus.STOPPED
    on = schedule_of(make_settings(schedule={"cron": "30 4 * * 1", "timezone": "Europe/Berlin"}))
    assert on.default_status is dg.DefaultScheduleStatus.RUNNING
    assert (on.cron_schedule, on.execution_timezone) == ("30 4 * * 1", "Europe/Berlin")
    assert on.job_name == "reindex"


@pytest.mark.parametrize("cron", ["at three", "61 * * * *", "* * *", "0 3 * * * *", "0 0 31 2 *", " "])
def test_a_wrong_cron_expression_names_the_setting(make_settings: MakeSettings, cron: str) -> None:
    with pytest.raises(
        SettingsError, match=r"schedule\.cron = .*allowed is a cron expression of five fields"
    ) as error:
        build_definitions(make_settings(schedule={"cron": cron}))
    assert repr(cron) in str(error.value)


def test_a_wrong_time_zone_names_the_setting(make_settings: MakeSettings) -> None:
    with pytest.raises(
        SettingsError, match=r"schedule\.timezone = 'Mars/Olympus': allowed .* such as 'Europe"
    ):
        build_definitions(make_settings(schedule={"cron": "0 3 * * *", "timezone": "Mars/Olympus"}))


# -- the retry job ------------------------------------------------------------------------------------------------


def test_the_retry_job_tries_failed_documents_again(library: Pipeline) -> None:
    library.write("locked.pdf", pdf_of("Nobody may read this.", password="secret"))
    first = library.index()
    assert first.work["extracted"] == 1
    assert library.indexed()["locked.pdf"] == "failed"
    # A normal run remembers the failure, as it does a result.
    normal = library.index()
    assert normal.work["extracted"] == 0
    assert normal.metadata("extracted_documents")["documents failed"] == 1
    retry = library.published_run("retry_failed_documents")
    # That one document, and no document that did not fail.
    assert retry.work == {"extracted": 1, "canonical": 0, "cut": 0, "encoded": 0}
    assert retry.metadata("extracted_documents")["documents failed"] == 1
    # The same failure again is the same content.
    assert retry.metadata("candidate_index")["made anew"] is False
    assert library.stale() == set()


def test_a_repaired_document_is_read_by_a_normal_run(library: Pipeline) -> None:
    library.write("locked.pdf", pdf_of("Nobody may read this.", password="secret"))
    library.index()
    library.write("locked.pdf", pdf_of("Everybody may read this."))
    run = library.index()
    assert run.work == {"extracted": 1, "canonical": 1, "cut": 1, "encoded": 1}
    assert library.indexed()["locked.pdf"] == "indexed"
