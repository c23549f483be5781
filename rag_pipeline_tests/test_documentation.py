"""The documentation is held against the code: commands, settings, tables, checks, links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rag_pipeline.cli import COMMANDS
from rag_pipeline.documents.states import FailureReason
from rag_pipeline.evaluation.gates import GATES
from rag_pipeline.evaluation.verdicts import Verdict
from rag_pipeline.settings import describe_settings

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_generated_pages_are_up_to_date() -> None:
    script = ROOT / "scripts" / "make_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [c.name for c in COMMANDS])
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"`rag-pipeline {command}" in README


def test_every_setting_has_a_description() -> None:
    assert not [f"{s.section}.{s.key}" for s in describe_settings() if not s.description]
    written = page("settings.md")
    assert not [s.key for s in describe_settings() if f"| `{s.key}` |" not in written]


@pytest.mark.parametrize("gate", list(GATES))
def test_every_check_is_explained(gate: str) -> None:
    assert f"| `{gate}` |" in page("evaluation.md")


@pytest.mark.parametrize("verdict", [v.value for v in Verdict])
def test_every_verdict_is_explained(verdict: str) -> None:
    assert f"| {verdict} |" in page("evaluation.md")


@pytest.mark.parametrize("reason", [r.value for r in FailureReason])
def test_every_failure_reason_is_explained(reason: str) -> None:
    assert f"`{reason}`" in page("troubleshooting.md")


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_links_and_settings_named_in_the_text_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", text):
        assert not target or (path.parent / target).exists(), target
    known = {f"{s.section}.{s.key}" for s in describe_settings()}
    sections = {s.section for s in describe_settings()}
    for section, key in re.findall(r"`([a-z0-9]+)\.([a-z0-9_]+)", text):
        if section in sections:
            assert f"{section}.{key}" in known, f"{section}.{key}"


def test_the_default_files_of_the_package_are_the_repositorys() -> None:
    templates = ROOT / "rag_pipeline" / "templates"
    for name in ("dagster.yaml", "workspace.yaml", "rag_pipeline.toml"):
        assert (templates / name).read_text() == (ROOT / name).read_text(), name
