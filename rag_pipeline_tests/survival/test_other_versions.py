"""A storage root of another release is refused by every command, and nothing in it is changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from rag_pipeline.core.schemas import STORAGE_SCHEMA_VERSION
from rag_pipeline_tests.survival.conftest import Before
from rag_pipeline_tests.survival.workplace import Workplace

pytestmark = pytest.mark.slow

COMMANDS = (
    ["index"],
    ["search", "anything"],
    ["context", "anything"],
    ["status"],
    ["evaluate"],
    ["evaluate", "--strategy", "C"],
    ["rollback"],
    ["rollback", "--release"],
    ["prune"],
)


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def work(before: Before, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The published index; every test here has to leave it as it was."""
    return before.copy(tmp_path_factory.mktemp("versions"))


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (
            STORAGE_SCHEMA_VERSION - 1,
            "set storage.root to a new folder and index again, or open it with the release",
        ),
        (STORAGE_SCHEMA_VERSION + 1, "use the newer release that wrote it"),
        ("seven", "set storage.root to a new folder and index again"),
    ],
)
def test_every_command_refuses_it(work: Workplace, version: object, advice: str) -> None:
    (work.root / "format.json").write_text(json.dumps({"schema_version": version}), "utf-8")
    there = digests(work.root.parent)
    for arguments in COMMANDS:
        ended = work.command(*arguments)
        assert ended.code == 1, (arguments, ended.output)
        (line,) = ended.output.strip().splitlines()
        expected = f"storage schema version {version}, this release reads {STORAGE_SCHEMA_VERSION}: {advice}"
        assert line.startswith(f"rag-pipeline: {work.root}: {expected}"), arguments
    assert digests(work.root.parent) == there


def test_a_root_whose_version_cannot_be_read_says_how_to_go_on(work: Workplace, before: Before) -> None:
    good = json.dumps({"schema_version": STORAGE_SCHEMA_VERSION})
    (work.root / "format.json").write_text(good[:9], "utf-8")
    there = digests(work.root.parent)
    for arguments in COMMANDS:
        ended = work.command(*arguments)
        assert ended.code == 1, (arguments, ended.output)
        (line,) = ended.output.strip().splitlines()
        assert "format.json: not valid JSON, so the release that wrote the storage root is not known" in line
        assert f"write {good} to the file" in line
    assert digests(work.root.parent) == there
    (work.root / "format.json").write_text(good, "utf-8")
    assert work.answers() == before.answers
