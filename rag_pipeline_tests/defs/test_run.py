"""Running the job as the command line does, on the Dagster home that the UI shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from rag_pipeline.core.errors import StorageError
from rag_pipeline.defs.run import JobOutcome, open_instance, prepare_home, run_job
from rag_pipeline.settings import Settings
from rag_pipeline_tests.defs.pipelines import CHAIN, Pipeline


def run(pipeline: Pipeline, **sections: dict[str, object]) -> JobOutcome:
    return run_job(pipeline.settings.replace(**sections), instance=pipeline.instance)


def test_a_run_tells_what_it_made_and_how_long_each_step_took(small: Pipeline) -> None:
    outcome = run(small)
    assert outcome.success
    assert (outcome.error, outcome.error_class) == (None, None)
    assert sorted(outcome.materialised) == sorted(CHAIN)
    assert sorted(outcome.seconds) == sorted(CHAIN)
    assert all(seconds >= 0 for seconds in outcome.seconds.values())
    # The run is in the instance's log, where the UI finds it.
    found = small.instance.get_run_by_id(outcome.run_id)
    assert found is not None and found.job_name == "reindex" and found.status is dg.DagsterRunStatus.SUCCESS


def test_the_retry_job_is_another_job_and_progress_goes_to_standard_error(
    small: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = run_job(small.settings, retry_failed=True, instance=small.instance)
    found = small.instance.get_run_by_id(outcome.run_id)
    assert found is not None and found.job_name == "retry_failed_documents"
    out, err = capfd.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "retrieval_evaluation" in line]
    assert any(line.endswith("8 of 8 queries judged") for line in lines)
    assert "DEBUG" not in err


def test_a_blocked_run_ends_with_dagster_s_check_error(small: Pipeline) -> None:
    outcome = run(small, gate={"min_recall": 1.0})
    assert not outcome.success
    assert outcome.error_class == "DagsterAssetCheckFailedError"
    assert "recall_floor" in (outcome.error or "")
    assert "published_index" not in outcome.materialised


def test_an_error_is_ours_and_not_what_caused_it(small: Pipeline) -> None:
    questions = Path(small.settings.evaluation.questions)
    questions.write_text('{"id": "q1", "needle"\n', "utf-8")
    outcome = run(small)
    # The decoder's error caused it; what tells a person what to do is the one that names file and line.
    assert outcome.error_class == "GroundTruthError"
    assert outcome.error is not None and outcome.error.startswith(str(questions))


def test_a_missing_source_fails_with_its_setting_s_name(small: Pipeline) -> None:
    shutil.rmtree(small.source)
    outcome = run(small)
    assert outcome.error_class == "SourceError"
    assert outcome.error is not None and outcome.error.startswith(
        f"source.path: {small.source} does not exist"
    )
    assert outcome.materialised == ()


def test_an_empty_source_never_becomes_an_empty_index(small: Pipeline) -> None:
    before = small.pointer
    shutil.rmtree(small.source)
    small.source.mkdir()
    outcome = run(small)
    assert outcome.error_class == "SourceError" and "holds no document" in (outcome.error or "")
    assert small.pointer == before


def test_a_held_storage_root_fails_the_run_naming_the_holder(small: Pipeline) -> None:
    with small.storage.lock("another run", 0):
        outcome = run(small, storage={"lock_timeout": 0})
    assert outcome.error_class == "StorageLockedError"
    assert f"{small.storage.root} is in use by another run (process " in (outcome.error or "")
    assert outcome.materialised == ()


# -- the home -----------------------------------------------------------------------------------------------------


def test_a_new_home_gets_the_default_configuration(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "a" / "home")
    config = home / "dagster.yaml"
    assert "telemetry:\n  enabled: false" in config.read_text("utf-8")
    # What a person changed there stays.
    config.write_text("telemetry:\n  enabled: false\n", "utf-8")
    assert prepare_home(home) == home
    assert config.read_text("utf-8") == "telemetry:\n  enabled: false\n"


def test_a_home_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        prepare_home(tmp_path / "file" / "home")


@pytest.mark.slow
def test_runs_stay_in_the_home_beside_the_storage_root(
    small: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings: Settings = small.settings
    with open_instance(settings) as instance:
        outcome = run_job(settings, instance=instance)
        assert outcome.success
    assert (settings.storage_root.parent / "dagster_home" / "dagster.yaml").is_file()
    with open_instance(settings) as instance:
        assert instance.get_run_by_id(outcome.run_id) is not None
        assert Pipeline(settings, instance).stale() == set()
