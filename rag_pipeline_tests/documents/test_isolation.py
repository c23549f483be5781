from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, extractor_versions
from rag_pipeline.documents.isolation import ExtractionJob, extract_isolated
from rag_pipeline.documents.source import SourceDocument, scan_source
from rag_pipeline.documents.states import DocumentState, FailureReason, SkipReason
from rag_pipeline_tests.documents.conftest import Write


def jobs_of(root: Path) -> list[ExtractionJob]:
    return [ExtractionJob.of(d) for d in scan_source(root) if d.state is DocumentState.LISTED]


def outcomes(root: Path, jobs: list[ExtractionJob], options: ExtractionConfig) -> dict[str, Extracted]:
    return {job.document_id: found for job, found in extract_isolated(jobs, options, root)}


def test_every_document_comes_out_once_and_as_in_this_process(
    tmp_path: Path, write: Write, options: ExtractionConfig
) -> None:
    for number in range(6):
        write(f"sub/{number}.md", f"# {number}\n".encode())
    write("bad.pdf", b"%PDF-1.4\n")
    seen: list[tuple[int, str]] = []
    found = {
        job.document_id: outcome
        for job, outcome in extract_isolated(
            jobs_of(tmp_path), replace(options, workers=2), tmp_path, lambda n, name: seen.append((n, name))
        )
    }
    assert {name: outcome.raw_text for name, outcome in found.items()} == {
        **{f"sub/{number}.md": f"# {number}\n" for number in range(6)},
        "bad.pdf": "",
    }
    assert found["bad.pdf"].reason is FailureReason.CORRUPT
    assert [done for done, _ in seen] == list(range(1, 8))
    assert {name for _, name in seen} == set(found)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="file names are bytes on Linux only")
def test_a_name_that_is_no_utf8_is_found(tmp_path: Path, options: ExtractionConfig) -> None:
    import os

    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_bytes(b"x")
    assert outcomes(tmp_path, jobs_of(tmp_path), options)["caf\\xe9.md"].raw_text == "x"


def test_a_file_that_changed_or_vanished_since_it_was_listed_is_not_read(
    tmp_path: Path, write: Write, options: ExtractionConfig
) -> None:
    changed, vanished = write("changed.md", b"old"), write("vanished.md", b"old")
    jobs = jobs_of(tmp_path)
    changed.write_bytes(b"new")
    vanished.unlink()
    found = outcomes(tmp_path, jobs, options)
    assert {outcome.reason for outcome in found.values()} == {FailureReason.CHANGED}
    assert found["changed.md"].message == "the file changed after it was listed"
    assert found["vanished.md"].message == "the file vanished after it was listed"
    assert found["changed.md"].segments == ()


def test_a_document_over_its_time_fails_and_names_the_setting(
    tmp_path: Path, write: Write, options: ExtractionConfig
) -> None:
    write("good.md", b"good")
    # Nested emphasis and links in a page of this size keep the parser busy for far longer than a blink.
    write("slow.html", b"<p>" + b"<a href=x>word word word</a> <b>" * 200_000)
    found = outcomes(tmp_path, jobs_of(tmp_path), replace(options, timeout=0.05))
    slow = found["slow.html"]
    assert slow.reason is FailureReason.TIMEOUT
    assert "extraction.timeout" in (slow.message or "")
    assert slow.extractor_version == extractor_versions()["html"]
    assert slow.seconds == 0.05


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space is limited on Linux only")
def test_a_document_over_its_memory_fails_and_the_others_do_not(
    tmp_path: Path, write: Write, options: ExtractionConfig
) -> None:
    write("good.md", b"good")
    write("huge.txt", b"a" * (100 * 2**20))
    found = outcomes(tmp_path, jobs_of(tmp_path), replace(options, memory_limit_mb=128))
    assert found["good.md"].raw_text == "good"
    assert found["huge.txt"].reason is FailureReason.OUT_OF_MEMORY
    assert "extraction.memory_limit_mb" in (found["huge.txt"].message or "")


def test_skipped_entries_are_no_jobs() -> None:
    skipped = SourceDocument(".git/", 0, None, None, DocumentState.SKIPPED, SkipReason.HIDDEN)
    with pytest.raises(ValueError, match=r"\.git/ was skipped"):
        ExtractionJob.of(skipped)
