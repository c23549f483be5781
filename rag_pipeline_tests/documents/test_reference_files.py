"""The reference files that are no PDF, held against their right values by the checker that comes with them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.inspection import extract_paths

# The file holds the number 1234567890123450 beside 123456789012345, and the checker compares letters and digits
# alone, so that "123456789012345.0" is found in it however the numbers are written.
KNOWN = {("xlsx-bignum.xlsx", "absent", "123456789012345.0")}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    files = Path(__file__).resolve().parents[3] / "shared" / "files"
    if not files.is_dir():
        pytest.skip(f"the reference files are not at {files}")
    folder = tmp_path_factory.mktemp("reference")
    right = [json.loads(line) for line in (files / "right_values.jsonl").read_text("utf-8").splitlines()]
    right = [entry for entry in right if not entry["file"].endswith(".pdf")]
    paths = [files / entry["file"] for entry in right]
    found = extract_paths(paths, ExtractionConfig(workers=2, timeout=60.0))
    (folder / "right.jsonl").write_text("\n".join(map(json.dumps, right)), "utf-8")
    (folder / "out.jsonl").write_text("\n".join(map(json.dumps, found)), "utf-8")
    command = [
        sys.executable,
        files / "check_extraction.py",
        folder / "right.jsonl",
        folder / "out.jsonl",
        "-v",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_every_right_value_holds_but_the_known(report: str) -> None:
    short = re.findall(r"^  short: (\S+) (\S+) (.+?) (?:indexed|failed|None)\b", report, re.MULTILINE)
    assert set(short) == KNOWN, report


@pytest.mark.slow
def test_something_was_checked(report: str) -> None:
    match = re.search(r"^(\d+) of (\d+) hold$", report, re.MULTILINE)
    assert match, report
    assert int(match[2]) >= 40
    assert int(match[1]) == int(match[2]) - len(KNOWN)
