"""The command line: exit codes, JSON on standard output and nothing else there, words on standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import __version__, open_index
from rag_pipeline.cli import COMMANDS, main
from rag_pipeline.core.errors import BuildBlockedError
from rag_pipeline.core.storage import Storage
from rag_pipeline.index.publish import published as read_published
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain

DONE, FAILED, WRONG_USE, BLOCKED = 0, 1, 2, 3


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object it has to be."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


Run = Callable[..., Ran]


def write_settings(file: Path, settings: Settings, **sections: dict[str, Any]) -> Path:
    """Write settings that differ from the defaults as a file."""
    settings = settings.replace(**sections)
    lines = []
    for section, keys in (
        ("source", ("path", "url_template")),
        ("storage", ("root", "lock_timeout")),
        ("embedding", ("model",)),
        ("evaluation", ("questions", "out_of_domain")),
        ("retrieval", ("mode", "k", "threshold")),
        ("gate", ("min_recall", "max_vanished_share")),
        ("bm25", ("k1",)),
        ("extraction", ("workers",)),
    ):
        values = {key: getattr(getattr(settings, section), key) for key in keys}
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command in this process."""

    def command(*arguments: Any) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def config(published: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings file of a published index. For reading only."""
    return write_settings(tmp_path_factory.mktemp("config") / "rag_pipeline.toml", published)


@pytest.fixture
def config_copy(published_copy: Settings, tmp_path: Path) -> Path:
    """The settings file of a published index of the test's own."""
    return write_settings(tmp_path / "rag_pipeline.toml", published_copy)


# -- search and context -------------------------------------------------------------------------------------


def test_search_prints_one_json_object(run: Run, config: Path, published: Settings) -> None:
    ran = run("--config", config, "search", "Which green button?", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    with open_index(published) as index:
        assert ran.json == json.loads(json.dumps(index.search("Which green button?").to_json()))
    assert list(ran.json) == ["query", "mode", "refused", "reason", "threshold", "build", "hits"]


def test_search_takes_mode_k_and_threshold(run: Run, config: Path) -> None:
    ran = run(
        "--config", config, "search", "pads", "--mode", "dense", "--k", "2", "--threshold", "1.5", "--json"
    )
    assert (ran.json["mode"], len(ran.json["hits"]), ran.json["threshold"]) == ("dense", 2, 1.5)


def test_search_in_words(run: Run, config: Path) -> None:
    ran = run("--config", config, "search", "green button", "--mode", "bm25")
    assert (ran.code, ran.err) == (DONE, "")
    head, where, quote = ran.out.splitlines()[:3]
    assert head.startswith("[1] power.md, Reset  (distance ")
    assert where.strip().startswith("docks/power.md#char=")
    assert quote == "    | Press the green button for six seconds to restart a tripped supply."


def test_a_refusal_is_an_answer(run: Run, config: Path) -> None:
    ran = run("--config", config, "search", "passports", "--threshold", "0")
    assert (ran.code, ran.err) == (DONE, "")
    assert ran.out.startswith("refused: no chunk lies below the distance threshold 0 for 'passports'")
    value = run("--config", config, "search", "passports", "--threshold", "0", "--json").json
    assert (value["refused"], value["hits"]) == (True, [])
    assert run("--config", config, "context", "passports", "--threshold", "0").out == ran.out
    context = run("--config", config, "context", "passports", "--threshold", "0", "--json").json
    assert (context["refused"], context["prompt"], context["citations"]) == (True, "", [])


def test_context_prints_prompt_and_citations(run: Run, config: Path, published: Settings) -> None:
    ran = run("--config", config, "context", "Which green button?", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    assert list(ran.json) == ["query", "refused", "reason", "prompt", "tokens", "citations", "build"]
    words = run("--config", config, "context", "Which green button?")
    assert words.out.startswith(ran.json["prompt"])
    assert words.err == f"{ran.json['tokens']} tokens\n"
    for citation in ran.json["citations"]:
        line = f"[{citation['index']}] {citation['document_name']}, {citation['label']}: "
        assert line + citation["document_id"] + citation["fragment"] in words.out


def test_search_can_be_restricted(run: Run, config: Path) -> None:
    value = run("--config", config, "search", "pads supply", "--k", "7", "--path", "docks/*", "--json").json
    assert {hit["document_id"] for hit in value["hits"]} == {"docks/power.md"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", " "], "rag-pipeline: the query is empty"),
        (["search", "pads", "--mode", "sparse"], "mode 'sparse' is unknown"),
        (["search", "pads", "--k", "0"], "k = 0: must be"),
        (["context", "pads", "--threshold", "3"], "threshold = 3.0: a cosine distance"),
        (["search", "brake \udcff"], "holds lone surrogates"),
        (["search", "pads", "--meta", "x"], "--meta 'x': must be KEY=VALUE"),
        (["rollback", "abc", "--release"], "rollback: give a BUILD or --release, not both"),
    ],
)
def test_wrong_use_is_said_on_standard_error(
    run: Run, config: Path, arguments: list[str], message: str
) -> None:
    ran = run("--config", config, *arguments, "--json")
    assert (ran.code, ran.out) == (WRONG_USE, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["search"],
        ["search", "pads", "--k", "four"],
        ["evaluate", "--strategy", "G"],
        ["--nonsense"],
    ],
)
def test_arguments_that_cannot_be_parsed(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == WRONG_USE
    captured = capsys.readouterr()
    assert captured.out == "" and "usage: rag-pipeline" in captured.err


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert f"    {command.name} " in text
    assert "0 done, 1 failed, 2 wrong use or settings, 3 build blocked by the gate" in " ".join(text.split())
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"rag-pipeline {__version__}\n"


# -- settings and what is missing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["status"], ["search", "q"], ["index"], ["evaluate"], ["rollback"], ["extract", "x"]]
)
def test_wrong_settings(run: Run, tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "rag_pipeline.toml"
    file.write_text("[retrieval]\nk = 0\n")
    ran = run("--config", file, *command, "--json")
    assert (ran.code, ran.out) == (WRONG_USE, "")
    assert ran.err == f"rag-pipeline: retrieval.k = 0 (in {file}): allowed is whole number >= 1\n"
    assert run("--config", tmp_path / "none.toml", *command).code == WRONG_USE


def test_a_setting_of_the_environment_counts(run: Run, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_PIPELINE_SOURCE__URL_TEMPLATE", "https://kb/{document_id}")
    value = run("--config", config, "search", "green button", "--json").json
    assert value["hits"][0]["url"].startswith("https://kb/")
    monkeypatch.setenv("RAG_PIPELINE_NONSENSE", "1")
    assert run("--config", config, "status").code == WRONG_USE


@pytest.mark.parametrize("command", [["search", "q"], ["context", "q"], ["evaluate"], ["rollback"]])
def test_nothing_was_indexed_yet(
    run: Run, make_settings: MakeSettings, tmp_path: Path, command: list[str]
) -> None:
    settings = make_settings()
    file = write_settings(tmp_path / "rag_pipeline.toml", settings)
    ran = run("--config", file, *command, "--json")
    assert (ran.code, ran.out) == (FAILED, "")
    assert ran.err.startswith("rag-pipeline: ")
    assert str(settings.storage_root) in ran.err
    assert not settings.storage_root.exists(), "looking makes nothing"


def test_a_mismatching_encoder(run: Run, published: Settings, other_encoder: Path, tmp_path: Path) -> None:
    file = write_settings(tmp_path / "rag_pipeline.toml", published, embedding={"model": str(other_encoder)})
    ran = run("--config", file, "search", "pads", "--json")
    assert (ran.code, ran.out) == (FAILED, "")
    assert "was made with tiny-0" in ran.err and "the query encoder is tiny-1" in ran.err


# -- status -------------------------------------------------------------------------------------------------


def test_status_as_json(run: Run, config: Path, published: Settings) -> None:
    ran = run("--config", config, "status", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    value = ran.json
    assert {"published", "builds", "failed_documents"} <= set(value)
    now = value["published"]
    assert {"build", "created_at", "documents", "chunks", "stamp", "evaluation"} <= set(now)
    assert now["documents"] == {"indexed": 3, "failed": 0, "skipped": 0}
    assert now["chunks"] == 7
    assert now["stamp"]["embedding"]["name"] == "tiny-0"
    assert now["evaluation"]["retrievers"]["hybrid"]["recall"]["4"]["n"] == 6
    assert [build["build"] for build in value["builds"]] == [now["build"]]
    assert value["failed_documents"] == []
    with open_index(published) as index:
        assert index.build == now["build"]


def test_status_before_anything(run: Run, make_settings: MakeSettings, tmp_path: Path, config: Path) -> None:
    file = write_settings(tmp_path / "rag_pipeline.toml", make_settings())
    value = run("--config", file, "status", "--json").json
    assert (value["published"], value["builds"], value["failed_documents"]) == (None, [], [])
    assert set(value) == set(run("--config", config, "status", "--json").json), "the same keys at any time"
    assert "Nothing is published yet" in run("--config", file, "status").out


def test_status_in_words(run: Run, config: Path) -> None:
    ran = run("--config", config, "status")
    assert ran.code == DONE
    for part in (
        "Published: build ",
        "3 documents indexed, 0 failed, 0 skipped; 7 chunks",
        "tiny-0, strategy E",
        "passed",
    ):
        assert part in ran.out


# -- evaluate -----------------------------------------------------------------------------------------------

REPORT_KEYS = (
    "build questions queries destroyed chunks chunks_over_window needles_beyond_window embedded_tokens header_tokens "
    "retrievers refusal sweep verdicts gate"
).split()


def check_report(value: dict[str, Any]) -> None:
    """Hold a report against SPEC 6."""
    assert set(REPORT_KEYS) <= set(value)
    assert sorted(value["retrievers"]) == ["bm25", "dense", "hybrid"]
    for figures in value["retrievers"].values():
        assert list(figures["recall"]) == ["1", "4", "8", "20"]
        for recall in figures["recall"].values():
            assert {"hits", "n", "value", "low", "high"} <= set(recall)
            assert recall["low"] <= recall["value"] <= recall["high"]
        assert 0 <= figures["mrr"] <= 1
    assert {"threshold", "answered", "wrong", "refused", "bluffs", "bluffs_near", "bluffs_far"} <= set(
        value["refusal"]
    )
    assert value["sweep"]
    for verdict in value["verdicts"]:
        assert {"id", "query", "verdict", "rank"} <= set(verdict)
        assert sorted(verdict["rank"]) == ["bm25", "dense", "hybrid"]
    assert {"passed", "checks"} <= set(value["gate"])


def test_evaluate_as_json(run: Run, config: Path) -> None:
    ran = run("--config", config, "evaluate", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    check_report(ran.json)
    assert (ran.json["questions"], ran.json["queries"], ran.json["chunks"]) == (3, 6, 7)
    assert len(ran.json["verdicts"]) == 6
    assert ran.json["gate"]["passed"] is True
    assert ran.json["build"] == run("--config", config, "status", "--json").json["published"]["build"]


def test_evaluate_in_words(run: Run, config: Path) -> None:
    ran = run("--config", config, "evaluate")
    assert ran.code == DONE
    for part in ("# Evaluation of build", "## Recall", "## Threshold sweep", "## Verdicts", "## Gate"):
        assert part in ran.out


def test_evaluate_scores_another_strategy_beside_what_is_published(
    run: Run, config_copy: Path, published_copy: Settings
) -> None:
    before = read_published(Storage(published_copy.storage_root))
    assert before is not None
    ran = run("--config", config_copy, "evaluate", "--strategy", "A", "--json")
    assert ran.code == DONE
    check_report(ran.json)
    assert ran.json["build"] != before.build
    assert read_published(Storage(published_copy.storage_root)) == before
    words = run("--config", config_copy, "evaluate", "--strategy", "A")
    assert f"## Against the published build {before.build}" in words.out
    assert run("--config", config_copy, "evaluate", "--json").json["build"] == before.build, (
        "the newest candidate"
    )


def test_evaluate_runs_what_is_missing(run: Run, warm_settings: MakeSettings, tmp_path: Path) -> None:
    settings = warm_settings()
    build = run_chain(settings, until="ground_truth")["candidate_index"].result.build
    file = write_settings(tmp_path / "rag_pipeline.toml", settings)
    ran = run("--config", file, "evaluate", "--json")
    assert ran.code == DONE
    check_report(ran.json)
    assert ran.json["build"] == build.id
    assert read_published(Storage(settings.storage_root)) is None


# -- rollback and prune -------------------------------------------------------------------------------------


def test_rollback_and_release(run: Run, warm_settings: MakeSettings, tmp_path: Path) -> None:
    first = run_chain(warm_settings())["candidate_index"].result.build.id
    second = run_chain(warm_settings(bm25={"k1": 1.3}))["candidate_index"].result.build.id
    file = write_settings(tmp_path / "rag_pipeline.toml", warm_settings())
    ran = run("--config", file, "rollback", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    assert ran.json == {"published": first, "before": second, "held": True}
    assert run("--config", file, "status", "--json").json["hold"]["build"] == first
    assert "Publication is HELD" in run("--config", file, "status").out
    assert run("--config", file, "rollback", "--release", "--json").json == {"released": True}
    assert run("--config", file, "rollback", "--release", "--json").json == {"released": False}
    words = run("--config", file, "rollback", second)
    assert f"published: build {second} (before: {first})" in words.out
    missing = run("--config", file, "rollback", "zzz", "--json")
    assert (missing.code, missing.out) == (FAILED, "")
    assert "build 'zzz' does not exist" in missing.err


def test_rollback_to_a_blocked_build(run: Run, warm_settings: MakeSettings, tmp_path: Path) -> None:
    run_chain(warm_settings())
    settings = warm_settings(bm25={"k1": 9.0}, gate={"min_recall": 1.0})
    with pytest.raises(BuildBlockedError):
        run_chain(settings)
    candidate = Storage(settings.storage_root).read_handle("candidate_index")
    assert candidate is not None
    file = write_settings(tmp_path / "rag_pipeline.toml", settings)
    ran = run("--config", file, "rollback", candidate.info["build"], "--json")
    assert (ran.code, ran.out) == (BLOCKED, "")
    assert "is blocked by the gate: recall_floor" in ran.err


def test_a_locked_root_names_its_holder(
    run: Run, config_copy: Path, published_copy: Settings, tmp_path: Path
) -> None:
    file = write_settings(tmp_path / "locked.toml", published_copy, storage={"lock_timeout": 0.1})
    with Storage(published_copy.storage_root).lock("run abc", timeout=0):
        ran = run("--config", file, "rollback", "--json")
        assert run("--config", file, "search", "pads", "--json").code == DONE, "readers need no lock"
    assert (ran.code, ran.out) == (FAILED, "")
    assert "waiting: in use by run abc" in ran.err
    assert "rag-pipeline: " in ran.err and "is in use by run abc" in ran.err


def test_prune_says_what_it_freed(run: Run, config_copy: Path) -> None:
    value = run("--config", config_copy, "prune", "--json").json
    assert value["pruned"] == []
    assert value["keep"] == 3
    assert "removed 0 builds" in run("--config", config_copy, "prune").out


# -- extract ------------------------------------------------------------------------------------------------


def test_extract_prints_a_json_object_a_line(run: Run, make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings()
    source = Path(settings.source.path)
    (source / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing more")
    file = write_settings(tmp_path / "rag_pipeline.toml", settings)
    ran = run("--config", file, "extract", source, "--json")
    assert ran.code == DONE, "a file that cannot be read is a finding"
    reports = {report["document_id"]: report for report in map(json.loads, ran.out.splitlines())}
    assert sorted(reports) == ["brakes.md", "broken.pdf", "docks/power.md", "refunds.md"]
    assert reports["brakes.md"]["status"] == "indexed"
    assert reports["brakes.md"]["text"].startswith("# Brake handbook")
    assert (reports["broken.pdf"]["status"], reports["broken.pdf"]["reason"]) == ("failed", "corrupt")
    assert ran.err.endswith("1 of 4 files failed\n")
    words = run("--config", file, "extract", source / "refunds.md")
    assert words.out.startswith("## refunds.md: indexed, ")
    assert "Parking fines are never refunded" in words.out
    missing = run("--config", file, "extract", tmp_path / "none", "--json")
    assert (missing.code, missing.out) == (FAILED, "")
    assert "none: no such file or folder" in missing.err


# -- init ---------------------------------------------------------------------------------------------------


def test_init_in_an_empty_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run("init", "--json")
    assert (ran.code, ran.err) == (DONE, "")
    assert ran.json["settings"] == "rag_pipeline.toml"
    home = Path(ran.json["dagster_home"])
    assert home == tmp_path / "rag_data" / "dagster_home"
    assert (home / "dagster.yaml").is_file()
    settings = Settings.load(environ={})
    assert Path(settings.source.path).is_dir()
    assert Path(settings.evaluation.questions).is_file()
    assert run("status", "--json").json["published"] is None
    text = (tmp_path / "rag_pipeline.toml").read_text()
    again = run("init")
    assert (again.code, again.out) == (WRONG_USE, "")
    assert "rag_pipeline.toml exists already" in again.err
    assert (tmp_path / "rag_pipeline.toml").read_text() == text
    other = run("--config", "deep/other.toml", "init")
    assert other.code == DONE and "next: rag-pipeline index" in other.out
    assert (tmp_path / "deep" / "other.toml").is_file()


# -- index --------------------------------------------------------------------------------------------------


def test_index_publishes_then_does_nothing_then_is_blocked(
    run: Run, warm_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = warm_settings()
    file = tmp_path / "rag_pipeline.toml"
    write_settings(file, settings)

    first = run("--config", file, "index", "--json")
    assert first.code == DONE, first.err
    value = first.json
    assert (value["published"], value["new"]) == (True, True)
    assert value["work"] == {"extracted": 0, "cut": 0, "encoded": 0, "built": True, "published": True}
    assert set(value["seconds"]) >= {"source_documents", "published_index"}
    assert "retrieval_evaluation   8 of 8 queries judged" in first.err, "progress goes to standard error"
    assert "Traceback" not in first.err
    assert run("--config", file, "search", "green button", "--json").json["build"] == value["build"]

    second = run("--config", file, "index")
    assert second.code == DONE
    assert (
        f"Nothing new: no document, text or build changed. Build {value['build']} stays published."
        in second.out
    )
    assert "hybrid" in second.out, "the evaluation is printed all the same"
    assert str(Path(settings.storage_root) / "builds" / value["build"] / "index.duckdb") in second.out

    write_settings(file, settings, gate={"min_recall": 1.0})
    third = run("--config", file, "index", "--json")
    assert third.code == BLOCKED
    assert third.json["published"] is False
    assert third.json["build"] == value["build"]
    assert [reason.split(":")[0] for reason in third.json["blocked_by"]] == ["recall_floor"]
    assert "is blocked by the gate; what is published stays as it was" in third.err
    assert run("--config", file, "search", "green button", "--json").json["build"] == value["build"]
    assert run("--config", file, "evaluate", "--json").json["gate"]["passed"] is False, (
        "it is there to be seen"
    )


@pytest.mark.parametrize(
    ("sections", "code", "message"),
    [
        ({"source": {"path": "/no/such/folder"}}, FAILED, "/no/such/folder"),
        ({"evaluation": {"questions": "/no/such.jsonl"}}, WRONG_USE, "/no/such.jsonl"),
    ],
    ids=["source", "questions"],
)
def test_index_says_what_is_wrong(
    run: Run,
    warm_settings: MakeSettings,
    tmp_path: Path,
    sections: dict[str, dict[str, Any]],
    code: int,
    message: str,
) -> None:
    file = write_settings(tmp_path / "rag_pipeline.toml", warm_settings(), **sections)
    ran = run("--config", file, "index", "--json")
    assert (ran.code, ran.out) == (code, "")
    last = ran.err.strip().splitlines()[-1]
    assert last.startswith("rag-pipeline: ") and message in last


# -- as a process -------------------------------------------------------------------------------------------


def test_the_installed_command(config: Path) -> None:
    executable = Path(sys.executable).parent / "rag-pipeline"
    command = [str(executable)] if executable.exists() else [sys.executable, "-m", "rag_pipeline.cli"]
    done = subprocess.run(
        [*command, "--config", str(config), "search", "green button", "--json"],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert done.returncode == DONE, done.stderr
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["hits"][0]["document_id"] == "docks/power.md"


def test_a_reader_of_the_output_that_goes_away(config: Path) -> None:
    """As `rag-pipeline status | head -0` does."""
    command = [sys.executable, "-m", "rag_pipeline.cli", "--config", str(config), "status", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == FAILED
    assert errors == ""
