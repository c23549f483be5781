"""The PDF files of `shared/files` held against their right values by the checker that stands beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.inspection import extract_paths

# Both checks count words that belong to the text. "Chapter 2 Graphics and Text with pdfgen" stands in the table of
# contents and as the chapter's own title, and of "Page 20" the checker drops the number, so that every "page" counts.
NOT_RUNNING_LINES = {
    ("reportlab-ug.pdf", "running_line", "Chapter 2 Graphics and Text with pdfgen"),
    ("reportlab-ug.pdf", "running_line", "Page 20"),
}


@pytest.mark.slow
def test_the_right_values_hold(shared: Path, tmp_path: Path) -> None:
    files = shared / "files"
    paths = sorted(files.glob("*.pdf"))
    reports = list(extract_paths(paths, ExtractionConfig()))
    assert {report["document_id"] for report in reports} == {path.name for path in paths}
    right, out = tmp_path / "right.jsonl", tmp_path / "out.jsonl"
    lines = (files / "right_values.jsonl").read_text("utf-8").splitlines()
    right.write_text("\n".join(line for line in lines if json.loads(line)["file"].endswith(".pdf")), "utf-8")
    out.write_text("\n".join(json.dumps(report) for report in reports), "utf-8")
    done = subprocess.run(
        [sys.executable, str(files / "check_extraction.py"), str(right), str(out), "-v"],
        capture_output=True,
        text=True,
        check=False,
    )
    short = {line for line in done.stdout.splitlines() if line.startswith("  short:")}
    assert short == {f"  short: {' '.join(check)} indexed None" for check in NOT_RUNNING_LINES}


@pytest.mark.slow
def test_every_character_of_every_pdf_has_its_page(shared: Path) -> None:
    options = ExtractionConfig(ocr="off")
    for report in extract_paths(sorted((shared / "files").glob("*.pdf")), options):
        spans = report["locators"]
        assert "".join(report["text"][span["from"] : span["to"]] for span in spans) == report["text"]
        assert {span["page"] for span in spans} <= {page["page"] for page in report["pages"]}
