"""What Dagster is given: a snapshot, so that a change of the graph is seen in review; loading; prefixes.

`UPDATE_SNAPSHOTS=1 pytest rag_pipeline_tests/defs/test_graph.py` writes the snapshot anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_pipeline import open_index
from rag_pipeline.defs.factory import build_definitions
from rag_pipeline_tests.conftest import MakeSettings
from rag_pipeline_tests.defs.pipelines import CHAIN, Pipeline, Run, stale_assets

SNAPSHOT = Path(__file__).parent / "snapshots" / "definitions.json"
REPOSITORY = Path(__file__).resolve().parents[2]


def describe(definitions: dg.Definitions) -> dict[str, Any]:
    """Return everything about the definitions that does not depend on the machine or the settings' paths."""
    repository = definitions.get_repository_def()
    graph = definitions.resolve_asset_graph()
    assets = {}
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        schema = node.metadata["dagster/column_schema"]
        assets[key.to_user_string()] = {
            "deps": sorted(parent.to_user_string() for parent in node.parent_keys),
            "group": node.group_name,
            "kinds": sorted(node.kinds),
            "owners": sorted(node.owners),
            "tags": sorted(tag for tag in node.tags if not tag.startswith("dagster/kind/")),
            "has code version": node.code_version is not None,
            "partitioned": node.is_partitioned,
            "automation": node.automation_condition is not None,
            "description": node.description,
            "columns": [column.name for column in schema.columns],
        }
    checks = {}
    for check in sorted(graph.asset_check_keys):
        node_spec = graph.get_check_spec(check)
        checks[check.name] = {
            "asset": check.asset_key.to_user_string(),
            "blocking": node_spec.blocking,
            "description": node_spec.description,
        }
    return {
        "assets": assets,
        "checks": checks,
        "jobs": {
            job.name: {
                "assets": sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys),
                "tags": {tag: value for tag, value in job.tags.items() if not tag.startswith(".")},
                "description": job.description,
                "executor": job.executor_def.name,
            }
            for job in sorted(repository.get_all_jobs(), key=lambda job: job.name)
            if not job.name.startswith("__")
        },
        "schedules": {
            schedule.name: {
                "job": schedule.job_name,
                "cron": schedule.cron_schedule,
                "time zone": schedule.execution_timezone,
                "status": schedule.default_status.value,
                "description": schedule.description,
            }
            for schedule in repository.schedule_defs
        },
        "sensors": {
            sensor.name: {
                "job": sensor.job_name,
                "seconds": sensor.minimum_interval_seconds,
                "status": sensor.default_status.value,
                "description": sensor.description,
            }
            for sensor in repository.sensor_defs
        },
        "resources": {
            name: resource.description
            for name, resource in sorted(repository.get_top_level_resources().items())
        },
        "loggers": sorted(definitions.loggers or {}),
    }


def test_the_graph_is_the_one_in_the_snapshot(make_settings: MakeSettings) -> None:
    found = json.dumps(describe(build_definitions(make_settings())), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(found, "utf-8")
    assert json.loads(found) == json.loads(SNAPSHOT.read_text("utf-8")), (
        "the graph changed: if that was meant, write the snapshot anew with UPDATE_SNAPSHOTS=1 and commit it"
    )


def test_a_changed_graph_differs_from_the_snapshot(make_settings: MakeSettings) -> None:
    known = json.loads(SNAPSHOT.read_text("utf-8"))
    changed = make_settings(schedule={"cron": "0 5 * * *"}, gate={"require_questions": True})
    found = describe(build_definitions(changed))
    assert {part for part in known if known[part] != found[part]} == {"schedules", "checks"}
    assert found["schedules"]["reindex_schedule"]["status"] == "RUNNING"
    assert found["checks"]["questions_present"]["blocking"] is True
    assert known["checks"]["questions_present"]["blocking"] is False


def test_every_asset_says_what_it_is(make_settings: MakeSettings) -> None:
    graph = build_definitions(make_settings()).resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        columns = node.metadata["dagster/column_schema"].columns
        assert len(node.description or "") > 60, key
        assert columns and all(column.description for column in columns), key
        assert node.code_version and node.owners and node.kinds and node.group_name != "default", key


@pytest.mark.parametrize(
    ("model", "tag"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("an org/a model+", "a_model"),
        ("org/trailing/", "trailing"),
        ("org/" + "x" * 80, "x" * 63),
        ("org/" + "x" * 62 + "-y", "x" * 62),
    ],
)
def test_tags_are_made_of_any_model_name(make_settings: MakeSettings, model: str, tag: str) -> None:
    assets = build_definitions(make_settings(embedding={"model": model})).resolve_asset_graph()
    assert assets.get(dg.AssetKey("chunk_embeddings")).tags["rag_pipeline/embedding_model"] == tag


# -- loading ------------------------------------------------------------------------------------------------------


def run_python(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_loading_is_light_and_writes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from rag_pipeline.settings import Settings\n"
        "from rag_pipeline.defs.factory import build_definitions\n"
        f"root = {str(tmp_path / 'storage')!r}\n"
        "build_definitions(Settings.from_values({'storage': {'root': root}})).get_repository_def()\n"
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'matplotlib', 'scipy', 'trafilatura', 'duckdb'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = run_python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


def test_dagster_validates_the_definitions(tmp_path: Path) -> None:
    done = run_python(tmp_path, "-m", "dagster", "definitions", "validate", "-m", "rag_pipeline.definitions")
    assert done.returncode == 0, done.stderr
    assert "Validation successful for code location rag_pipeline.definitions" in done.stderr + done.stdout


@pytest.mark.slow
def test_dagster_validates_the_workspace(tmp_path: Path) -> None:
    done = run_python(tmp_path, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml")
    assert done.returncode == 0, done.stderr
    assert "Validation successful for code location rag_pipeline" in done.stderr + done.stdout


# -- prefixes -----------------------------------------------------------------------------------------------------


def test_a_prefix_goes_into_every_name(make_settings: MakeSettings) -> None:
    plain = describe(build_definitions(make_settings()))
    below = describe(build_definitions(make_settings(), prefix=["kb", "de-AT"]))
    assert set(below["assets"]) == {f"kb/de-AT/{asset}" for asset in plain["assets"]}
    for asset, known in plain["assets"].items():
        found = below["assets"][f"kb/de-AT/{asset}"]
        assert found["deps"] == [f"kb/de-AT/{dep}" for dep in known["deps"]]
        assert found["group"] == f"{known['group']}_kb_de_AT"
        assert {**found, "deps": 0, "group": 0} == {**known, "deps": 0, "group": 0}
    for part in ("jobs", "schedules", "sensors", "resources"):
        names = set(below[part]) - {"io_manager"}
        assert names == {f"{name}_kb_de_AT" for name in set(plain[part]) - {"io_manager"}}
    assert {check["asset"] for check in below["checks"].values()} == {"kb/de-AT/retrieval_evaluation"}
    assert below["schedules"]["reindex_schedule_kb_de_AT"]["job"] == "reindex_kb_de_AT"
    assert below["sensors"]["source_folder_sensor_kb_de_AT"]["job"] == "reindex_kb_de_AT"


def test_a_prefix_given_as_one_word_is_one_part(make_settings: MakeSettings) -> None:
    below = describe(build_definitions(make_settings(), prefix="kb"))
    assert set(below["assets"]) == {f"kb/{asset}" for asset in CHAIN}


def test_two_pipelines_live_in_one_project(
    make_settings: MakeSettings, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    one = Pipeline(make_settings(), instance, ["kb"])
    other_source = tmp_path / "other"
    other_source.mkdir()
    (other_source / "helmets.md").write_text("# Helmets\n\n## Lending\n\nHelmets are lent.\n", "utf-8")
    other = Pipeline(
        make_settings(
            source={"path": str(other_source)},
            storage={"root": str(tmp_path / "other_storage")},
            evaluation={"questions": "", "out_of_domain": ""},
        ),
        instance,
        ["kb", "other"],
    )
    merged = dg.Definitions.merge(one.definitions(), other.definitions())

    def run(job: str) -> Run:
        done = merged.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False)
        return Run(instance, done.run_id, done.success)

    first = run("reindex_kb")
    assert first.success, first.error
    assert all(key.asset_key.path[0] == "kb" for key in first.materialised.values())
    assert stale_assets(merged, instance) == set(CHAIN)  # the other one's, under the same last names
    assert not other.settings.storage_root.exists()
    second = run("reindex_kb_other")
    assert second.success, second.error
    assert stale_assets(merged, instance) == set()
    with open_index(one.settings) as index:
        assert {hit.document_id for hit in index.search("helmets brake").hits} <= set(one.indexed())
    with open_index(other.settings) as index:
        assert {hit.document_id for hit in index.search("helmets brake").hits} == {"helmets.md"}
    # Under a prefix too, publication alone is refused after a blocked run.
    assert not one.run("reindex_kb", gate={"min_recall": 1.0}).success
    assert "recall_floor" in one.materialise("published_index", gate={"min_recall": 1.0}).error
