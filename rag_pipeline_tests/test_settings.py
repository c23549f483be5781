"""Settings: where they come from, which wins, and what a wrong one says."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline.chunking.config import ChunkingConfig
from rag_pipeline.core.errors import SettingsError
from rag_pipeline.embedding.config import DEFAULT_MODEL, EmbeddingConfig
from rag_pipeline.evaluation.config import EvaluationConfig, GateConfig
from rag_pipeline.retrieval.config import RetrievalConfig
from rag_pipeline.settings import (
    SAMPLE_FOLDER,
    ScheduleConfig,
    Settings,
    describe_settings,
    section_type,
)

# Every setting with a value that is not its default: as TOML writes it, as Python holds it.
VALUES: dict[str, tuple[str, Any]] = {
    "source.path": ("'/srv/documents'", "/srv/documents"),
    "source.url_template": ("'https://kb/{document_id}'", "https://kb/{document_id}"),
    "extraction.timeout": ("12.5", 12.5),
    "extraction.memory_limit_mb": ("512", 512),
    "extraction.max_output_mb": ("7", 7),
    "extraction.max_pages": ("100", 100),
    "extraction.ocr": ("'off'", "off"),
    "extraction.ocr_max_pages": ("9", 9),
    "extraction.workers": ("3", 3),
    "extraction.remove_references": ("false", False),
    "extraction.remove_front_matter": ("false", False),
    "chunking.strategy": ("'F'", "F"),
    "chunking.target": ("256", 256),
    "chunking.overlap": ("32", 32),
    "embedding.model": ("'some/model'", "some/model"),
    "embedding.runtime": ("'torch'", "torch"),
    "embedding.batch_size": ("1", 1),
    "bm25.k1": ("0.9", 0.9),
    "bm25.b": ("0.4", 0.4),
    "bm25.tokenizer": ("'reference'", "reference"),
    "retrieval.mode": ("'dense'", "dense"),
    "retrieval.k": ("8", 8),
    "retrieval.threshold": ("0.5", 0.5),
    "retrieval.reranker": ("'a/cross-encoder'", "a/cross-encoder"),
    "evaluation.questions": ("'/srv/questions.jsonl'", "/srv/questions.jsonl"),
    "evaluation.out_of_domain": ("'/srv/strangers.jsonl'", "/srv/strangers.jsonl"),
    "evaluation.ks": ("[1, 10]", (1, 10)),
    "gate.max_destroyed": ("2", 2),
    "gate.max_lost_in_extraction": ("3", 3),
    "gate.min_recall": ("0.25", 0.25),
    "gate.recall_k": ("5", 5),
    "gate.comparison_k": ("6", 6),
    "gate.alpha": ("0.01", 0.01),
    "gate.block_on_loss": ("false", False),
    "gate.block_on_bluffs": ("false", False),
    "gate.max_bluffs": ("9", 9),
    "gate.max_vanished_share": ("0.5", 0.5),
    "gate.max_failed_share": ("0.4", 0.4),
    "gate.require_questions": ("true", True),
    "publication.keep": ("1", 1),
    "storage.root": ("'/srv/storage'", "/srv/storage"),
    "storage.lock_timeout": ("1.5", 1.5),
    "schedule.cron": ("'0 4 * * *'", "0 4 * * *"),
    "schedule.timezone": ("'Europe/Berlin'", "Europe/Berlin"),
    "schedule.watch": ("true", True),
    "schedule.watch_interval": ("60", 60),
}
# What each setting refuses: of another type, and out of range where it has one.
WRONG: dict[str, list[str]] = {
    "source.path": ["3", "''"],
    "source.url_template": ["true"],
    "extraction.timeout": ["0", "'5'", "nan", "inf"],
    "extraction.memory_limit_mb": ["127", "512.0"],
    "extraction.max_output_mb": ["0"],
    "extraction.max_pages": ["0", "1.5"],
    "extraction.ocr": ["'maybe'", "false"],
    "extraction.ocr_max_pages": ["-1"],
    "extraction.workers": ["-1"],
    "extraction.remove_references": ["1", "'no'"],
    "extraction.remove_front_matter": ["0"],
    "chunking.strategy": ["'G'", "'e'", "1"],
    "chunking.target": ["15", "'512'", "true"],
    "chunking.overlap": ["-1"],
    "embedding.model": ["''", "[]"],
    "embedding.runtime": ["'onnx'"],
    "embedding.batch_size": ["0"],
    "bm25.k1": ["-0.1", "'1.2'"],
    "bm25.b": ["1.01", "-0.01"],
    "bm25.tokenizer": ["'ascii'"],
    "retrieval.mode": ["'sparse'"],
    "retrieval.k": ["0", "4.0", "true"],
    "retrieval.threshold": ["2.1", "-0.1", "nan", "'0.675'", "false"],
    "retrieval.reranker": ["1"],
    "evaluation.questions": ["['a.jsonl']"],
    "evaluation.out_of_domain": ["1"],
    "evaluation.ks": ["[]", "[0]", "4", "['1']", "[1.0]"],
    "gate.max_destroyed": ["-1"],
    "gate.max_lost_in_extraction": ["-1"],
    "gate.min_recall": ["1.5", "'none'"],
    "gate.recall_k": ["0"],
    "gate.comparison_k": ["0"],
    "gate.alpha": ["0", "1", "1.0"],
    "gate.block_on_loss": ["'true'"],
    "gate.block_on_bluffs": ["1"],
    "gate.max_bluffs": ["-1", "0.5"],
    "gate.max_vanished_share": ["1.1"],
    "gate.max_failed_share": ["-0.1"],
    "gate.require_questions": ["'yes'"],
    "publication.keep": ["0"],
    "storage.root": ["''"],
    "storage.lock_timeout": ["-1"],
    "schedule.cron": ["5"],
    "schedule.timezone": ["0"],
    "schedule.watch": ["'on'"],
    "schedule.watch_interval": ["4"],
}
EVERY_KEY = [f"{d.section}.{d.key}" for d in describe_settings()]


def write(folder: Path, text: str) -> Path:
    path = folder / "rag_pipeline.toml"
    path.write_text(text, encoding="utf-8")
    return path


def one_key(folder: Path, key: str, value: str) -> Path:
    section, name = key.split(".")
    return write(folder, f"[{section}]\n{name} = {value}\n")


def get(settings: Settings, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(settings, section), name)


def variable(key: str) -> str:
    return "RAG_PIPELINE_" + key.upper().replace(".", "__")


def in_environment(value: str) -> str:
    """A TOML value as a person writes it in a variable: text without quotes."""
    return value.strip("'") if value.startswith("'") else value


def test_the_tables_of_this_test_hold_every_setting() -> None:
    assert sorted(VALUES) == sorted(WRONG) == sorted(EVERY_KEY)


@pytest.mark.parametrize("key", EVERY_KEY)
def test_each_key_is_read_from_the_file(tmp_path: Path, key: str) -> None:
    written, expected = VALUES[key]
    value = get(Settings.load(one_key(tmp_path, key, written), environ={}), key)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("key", EVERY_KEY)
def test_each_key_is_read_from_the_environment(tmp_path: Path, key: str) -> None:
    written, expected = VALUES[key]
    file = write(tmp_path, "")
    value = get(Settings.load(file, environ={variable(key): in_environment(written)}), key)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(("key", "wrong"), [(key, value) for key in WRONG for value in WRONG[key]])
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(
    tmp_path: Path, key: str, wrong: str
) -> None:
    file = one_key(tmp_path, key, wrong)
    described = {f"{d.section}.{d.key}": d.type for d in describe_settings()}[key]
    with pytest.raises(SettingsError) as error:
        Settings.load(file, environ={})
    assert str(error.value) == f"{key} = {wrong} (in {file}): allowed is {described}"


def test_a_wrong_value_of_the_environment_names_the_variable(tmp_path: Path) -> None:
    environ = {"RAG_PIPELINE_RETRIEVAL__K": "four"}
    with pytest.raises(
        SettingsError,
        match=r"^retrieval\.k = 'four' \(in the environment \(RAG_PIPELINE_RETRIEVAL__K\)\): "
        r"allowed is whole number >= 1$",
    ):
        Settings.load(write(tmp_path, ""), environ=environ)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "[retrieval]\nk = 0\nmood = 1\n[chunkin]\ntarget = 5\n")
    with pytest.raises(SettingsError) as error:
        Settings.load(file, environ={})
    assert all(text in str(error.value) for text in ("retrieval.k = 0", "retrieval.mood", "[chunkin]"))


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, "[retrieval]\nk = 7\nthreshold = 0.5\n")
    settings = Settings.load(file, environ={"RAG_PIPELINE_RETRIEVAL__K": "9"})
    assert settings.retrieval == RetrievalConfig(k=9, threshold=0.5)
    assert settings.retrieval.mode == "hybrid"


def test_the_defaults_are_the_definition() -> None:
    settings = Settings()
    assert settings.chunking == ChunkingConfig(strategy="E", target=512, overlap=64)
    assert settings.embedding.model == DEFAULT_MODEL == "sentence-transformers/all-MiniLM-L6-v2"
    assert (settings.bm25.k1, settings.bm25.b, settings.bm25.tokenizer) == (1.2, 0.75, "unicode")
    assert (settings.retrieval.mode, settings.retrieval.k, settings.retrieval.threshold) == (
        "hybrid",
        4,
        0.675,
    )
    assert settings.evaluation.ks == (1, 4, 8, 20)
    gate = settings.gate
    assert (gate.max_destroyed, gate.max_lost_in_extraction, gate.min_recall, gate.comparison_k) == (
        0,
        0,
        None,
        8,
    )
    assert (gate.alpha, gate.max_vanished_share, gate.max_failed_share) == (0.05, 0.2, 0.1)
    assert not settings.schedule.cron


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[retrieval]\nthreshhold = 0.5",
            r"unknown setting retrieval\.threshhold \(in .*toml\): \[retrieval\] has k, mode, reranker, threshold",
        ),
        (
            "[retriever]\nk = 1",
            r"unknown section \[retriever\] \(in .*toml\): allowed are bm25, chunking, embedding, ",
        ),
        ("[nothing]", r"unknown section \[nothing\]: allowed are"),
        ("[retrieval.deep]\nk = 1", r"unknown setting retrieval\.deep"),
        ("k = 4", r"rag_pipeline\.toml: k = 4 stands outside a section; write it under \[section\]"),
        ("[retrieval\nk = 4", r"rag_pipeline\.toml: not valid TOML: "),
        ("[retrieval]\nk = 4\nk = 5", r"rag_pipeline\.toml: not valid TOML: "),
        ("[retrieval]\nmode = 'reranked'", r"retrieval\.mode = 'reranked' needs retrieval\.reranker"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.load(write(tmp_path, text), environ={})


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "rag_pipeline.toml").write_bytes("[source]\npath = 'Größe'".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"rag_pipeline\.toml: not valid TOML"):
        Settings.load(tmp_path / "rag_pipeline.toml", environ={})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "RAG_PIPELINE_RETREIVAL__K",
            r"unknown section \[retreival\] \(in the environment \(RAG_PIPELINE_RETREI",
        ),
        (
            "RAG_PIPELINE_RETRIEVAL__KK",
            r"unknown setting retrieval\.kk \(in the environment \(RAG_PIPELINE_RET",
        ),
        (
            "RAG_PIPELINE_DEBUG",
            r"environment variable RAG_PIPELINE_DEBUG: not a setting; they are named RAG_PIPE",
        ),
    ],
)
def test_a_variable_that_is_no_setting_is_not_ignored(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.load(write(tmp_path, ""), environ={name: "1", "PATH": "/bin"})


@pytest.mark.parametrize("written", ["true", "True", "TRUE"])
def test_a_truth_value_of_the_environment_in_any_case(tmp_path: Path, written: str) -> None:
    environ = {"RAG_PIPELINE_GATE__REQUIRE_QUESTIONS": written}
    assert Settings.load(write(tmp_path, ""), environ=environ).gate.require_questions is True


def test_text_of_the_environment_is_taken_word_for_word(tmp_path: Path) -> None:
    environ = {"RAG_PIPELINE_SCHEDULE__CRON": "0 3 * * *", "RAG_PIPELINE_SOURCE__URL_TEMPLATE": "3"}
    settings = Settings.load(write(tmp_path, ""), environ=environ)
    assert (settings.schedule.cron, settings.source.url_template) == ("0 3 * * *", "3")


# -- files and paths ----------------------------------------------------------------------------------------


def test_the_file_is_looked_for_here_and_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    assert Settings.load(environ={}).retrieval.k == 4
    write(here, "[retrieval]\nk = 5")
    named = write(there, "[retrieval]\nk = 6")
    assert Settings.load(environ={}).retrieval.k == 5
    assert Settings.load(environ={"RAG_PIPELINE_CONFIG": ""}).retrieval.k == 5
    assert Settings.load(environ={"RAG_PIPELINE_CONFIG": str(named)}).retrieval.k == 6
    assert Settings.load("rag_pipeline.toml", environ={"RAG_PIPELINE_CONFIG": str(named)}).retrieval.k == 5


def test_a_named_file_that_is_missing(tmp_path: Path) -> None:
    for config, environ in (
        (tmp_path / "none.toml", {}),
        (None, {"RAG_PIPELINE_CONFIG": str(tmp_path / "none.toml")}),
        (tmp_path, {}),
    ):
        with pytest.raises(
            SettingsError, match=rf"settings file {re.escape(str(tmp_path))}.* does not exist"
        ):
            Settings.load(config, environ=environ)


def test_relative_paths_count_from_the_file_and_from_here_for_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "models" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(here)
    file = write(
        there,
        "[source]\npath = 'documents'\n[evaluation]\nquestions = 'q.jsonl'\n"
        "[embedding]\nmodel = 'models/tiny'\n[retrieval]\nreranker = 'models/none'\n",
    )
    settings = Settings.load(file, environ={"RAG_PIPELINE_EVALUATION__OUT_OF_DOMAIN": "o.jsonl"})
    assert settings.source.path == str(there / "documents")
    assert settings.evaluation == EvaluationConfig(
        questions=str(there / "q.jsonl"), out_of_domain=str(here / "o.jsonl")
    )
    assert settings.embedding.model == str(there / "models" / "tiny"), "a folder that is there"
    assert settings.retrieval.reranker == "models/none", "a name"
    assert settings.storage_root == there / "rag_data" / "storage", "defaults too"
    assert settings.dagster_home({}) == there / "rag_data" / "dagster_home"
    assert settings.dagster_home({"DAGSTER_HOME": "/srv/home"}) == Path("/srv/home")


def test_without_a_file_paths_count_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(environ={})
    assert settings.source.path == str(tmp_path / "documents")
    assert settings.evaluation.questions == "", "no question file is none, not a folder"


def test_home_and_sample_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    file = write(
        tmp_path,
        "[source]\npath = '{sample}/corpus'\n[storage]\nroot = '~/storage'\n"
        "[evaluation]\nquestions = '{sample}/questions.jsonl'\n",
    )
    settings = Settings.load(file, environ={})
    assert settings.source.path == str(SAMPLE_FOLDER / "corpus")
    assert settings.storage.root == "/home/someone/storage"
    assert Path(settings.evaluation.questions).is_file()


# -- settings as values -------------------------------------------------------------------------------------


def test_each_section_is_the_rooms_own_class(tmp_path: Path) -> None:
    settings = Settings.load(
        write(tmp_path, "[embedding]\nbatch_size = 8\n[schedule]\nwatch = true"), environ={}
    )
    for section in dataclasses.fields(Settings):
        value = getattr(settings, section.name)
        assert type(value) is section_type(section.name)
        assert type(value).__module__.startswith("rag_pipeline.")
    assert settings.embedding == EmbeddingConfig(batch_size=8)
    assert settings.schedule == ScheduleConfig(watch=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.embedding.batch_size = 4  # type: ignore[misc]


def test_equal_files_give_equal_settings(tmp_path: Path) -> None:
    file = write(tmp_path, "[gate]\nalpha = 0.01\n")
    assert Settings.load(file, environ={}) == Settings.load(file, environ={})
    assert Settings.load(file, environ={}).gate == GateConfig(alpha=0.01)


def test_replacing_keys_checks_them() -> None:
    settings = Settings().replace(retrieval={"k": 9}, chunking={"strategy": "A"})
    assert settings.retrieval == RetrievalConfig(k=9)
    assert settings.chunking == ChunkingConfig(strategy="A")
    assert Settings().replace() == Settings()
    with pytest.raises(SettingsError, match=r"retrieval\.k = 0: allowed is whole number >= 1"):
        settings.replace(retrieval={"k": 0})
    with pytest.raises(SettingsError, match=r"unknown section \[retriever\]"):
        settings.replace(retriever={"k": 1})
    with pytest.raises(SettingsError, match=r"gate = 3: must be a section, written \[gate\]"):
        Settings.from_values({"gate": 3})


def test_the_reference_describes_every_setting() -> None:
    described = describe_settings()
    sections = {f.name: section_type(f.name) for f in dataclasses.fields(Settings)}
    assert [(d.section, d.key) for d in described] == [
        (name, key.name) for name, type_ in sections.items() for key in dataclasses.fields(type_)
    ]
    for one in described:
        assert one.description.endswith("."), one
        assert one.type and "typing" not in one.type and "class" not in one.type, one
        assert one.default == getattr(sections[one.section](), one.key)
    words = {f"{d.section}.{d.key}": d.type for d in described}
    assert words["retrieval.mode"] == "dense | bm25 | hybrid | reranked"
    assert words["retrieval.threshold"] == "number >= 0 and <= 2"
    assert words["gate.alpha"] == "number > 0 and < 1"
    assert words["gate.min_recall"] == "number >= 0 and <= 1, or unset"
    assert words["evaluation.ks"] == "list of whole number >= 1, not empty"
    assert words["storage.root"] == "text, not empty"


def test_loading_settings_is_light() -> None:
    code = (
        "import sys; from rag_pipeline.settings import Settings; Settings.load(); "
        "heavy = {'torch', 'dagster', 'duckdb', 'pyarrow', 'transformers'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path("/"))
    assert done.returncode == 0, done.stderr
