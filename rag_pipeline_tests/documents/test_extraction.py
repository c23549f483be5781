from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from rag_pipeline.core.schemas import EXTRACTED_DOCUMENTS
from rag_pipeline.documents import registry
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import (
    Content,
    Extracted,
    ExtractionFailure,
    ExtractionWarning,
    PageInfo,
    Segment,
    extract_bytes,
    extract_file,
    extractor_versions,
)
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.media_types import DOCX, MARKDOWN, PDF, TEXT
from rag_pipeline.documents.registry import EXTRACTORS, Extractor, extractor_for
from rag_pipeline.documents.source import SourceDocument
from rag_pipeline.documents.states import RETRYABLE, DocumentState, FailureReason, SkipReason, WarningKind
from rag_pipeline_tests.documents.conftest import Write


def failing(error: BaseException) -> Extractor:
    class Failing(Extractor):
        @property
        def extract(self):  # type: ignore[no-untyped-def]
            def function(data: bytes, options: ExtractionConfig) -> Content:
                raise error

            return function

    return Failing("failing", "fails", frozenset({TEXT}), "rag_pipeline.documents.text")


def test_text_is_extracted_with_who_did_it_and_how_long(write: Write, options: ExtractionConfig) -> None:
    found = extract_file(write("a.md", b"# T\n"), MARKDOWN, options)
    assert (found.state, found.reason, found.extractor) == (DocumentState.EXTRACTED, None, "markdown")
    assert found.extractor_version == extractor_versions()["markdown"]
    assert found.seconds is not None and found.seconds >= 0
    assert (found.segments, found.raw_text) == ((Segment("# T\n"),), "# T\n")


@pytest.mark.parametrize(
    ("data", "media_type", "reason", "message"),
    [
        (b"", TEXT, FailureReason.EMPTY, "no bytes"),
        (b"", PDF, FailureReason.EMPTY, "no bytes"),
        (
            b"\xff\xd8\xff\xe0",
            PDF,
            FailureReason.WRONG_TYPE,
            "named as application/pdf and holds a JPEG image",
        ),
        (b"%PDF-1.4", MARKDOWN, FailureReason.WRONG_TYPE, "named as text/markdown and holds a PDF"),
        (
            b"x",
            "application/x-unheard-of",
            FailureReason.UNSUPPORTED,
            "no extractor reads application/x-unheard",
        ),
        (b"x", None, FailureReason.UNSUPPORTED, "no extractor reads files of this kind"),
        (b"%PDF-1.4\n", PDF, FailureReason.CORRUPT, "cannot be opened"),
    ],
)
def test_bad_input_ends_as_a_named_failure(
    data: bytes, media_type: str | None, reason: FailureReason, message: str, options: ExtractionConfig
) -> None:
    found = extract_bytes(data, media_type, options)
    assert (found.state, found.reason) == (DocumentState.FAILED, reason)
    assert message in (found.message or "")
    assert found.segments == ()


def test_a_file_that_cannot_be_opened_is_unreadable(write: Write, options: ExtractionConfig) -> None:
    found = extract_file(write("a.md", b"x").with_name("none.md"), MARKDOWN, options)
    assert found.reason is FailureReason.UNREADABLE
    assert "No such file" in (found.message or "")


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (KeyError("/Root"), FailureReason.CORRUPT, "cannot be read: KeyError: '/Root'"),
        (RecursionError(), FailureReason.CORRUPT, "nested too deeply"),
        (ExtractionFailure(FailureReason.NO_TEXT, "nothing in it"), FailureReason.NO_TEXT, "nothing in it"),
    ],
)
def test_whatever_an_extractor_raises_is_recorded(
    error: Exception,
    reason: FailureReason,
    message: str,
    options: ExtractionConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._BY_MEDIA_TYPE, TEXT, failing(error))
    found = extract_bytes(b"x", TEXT, options)
    assert (found.reason, found.extractor) == (reason, "failing")
    assert message in (found.message or "")


def test_memory_run_out_passes_to_the_worker_and_not_to_a_caller_of_the_file(
    write: Write, options: ExtractionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._BY_MEDIA_TYPE, TEXT, failing(MemoryError()))
    with pytest.raises(MemoryError):
        extract_bytes(b"x", TEXT, options)
    assert extract_file(write("a.txt", b"x"), TEXT, options).reason is FailureReason.OUT_OF_MEMORY


def test_too_much_text_is_a_failure_that_names_the_setting(options: ExtractionConfig) -> None:
    small = replace(options, max_output_mb=1)
    found = extract_bytes(b"a" * (2**20 + 1), TEXT, small)
    assert found.reason is FailureReason.TOO_LARGE
    assert "raise extraction.max_output_mb" in (found.message or "")
    assert found.segments == ()
    assert extract_bytes(b"a" * 2**19, TEXT, small).state is DocumentState.EXTRACTED


def test_the_same_bytes_give_the_same_outcome_under_any_name(write: Write, options: ExtractionConfig) -> None:
    one = extract_file(write("one.txt", b"\x00\x01\x02"), TEXT, options)
    two = extract_file(write("two.txt", b"\x00\x01\x02"), TEXT, options)
    assert replace(one, seconds=None) == replace(two, seconds=None)
    assert one.reason is FailureReason.WRONG_TYPE


ROWS = [
    Extracted(
        DocumentState.EXTRACTED,
        extractor="pdf",
        extractor_version="1",
        seconds=0.5,
        warnings=(ExtractionWarning(WarningKind.DAMAGED_PAGE, "odd", 2),),
        pages=(PageInfo(1), PageInfo(2, ocr=True, confidence=0.25)),
        title="T",
        metadata={"tags": ["a"], "é": 1},
        segments=(Segment("x", Locator.of_page(1)), Segment("y", Locator(t_start=1.5, t_end=2.0))),
        raw_text="xy",
    ),
    Extracted.failed(FailureReason.TIMEOUT, "slow", media_type=PDF, seconds=3.0),
    Extracted.skipped("hidden"),
]


@pytest.mark.parametrize("outcome", ROWS)
def test_a_row_of_the_table_gives_the_outcome_back(outcome: Extracted) -> None:
    source = SourceDocument("a.pdf", 3, "ab", PDF, DocumentState.LISTED)
    table = pa.Table.from_pylist([outcome.to_row(source)], schema=EXTRACTED_DOCUMENTS.schema)
    assert Extracted.from_row(table.to_pylist()[0]) == outcome


def test_half_characters_can_be_stored() -> None:
    source = SourceDocument("a.txt", 3, "ab", TEXT, DocumentState.LISTED)
    row = Extracted(DocumentState.EXTRACTED, segments=(Segment("a\ud800b"),), raw_text="\udfff").to_row(
        source
    )
    pa.Table.from_pylist([row], schema=EXTRACTED_DOCUMENTS.schema)
    assert row["segments"][0]["text"] == "a\ufffdb"


def test_a_failure_names_the_extractor_that_was_to_read_the_file() -> None:
    assert Extracted.failed(FailureReason.TIMEOUT, "slow", media_type=PDF).extractor == "pdf"
    assert Extracted.failed(FailureReason.TIMEOUT, "slow").extractor is None


def test_skipped_keeps_its_reason() -> None:
    assert Extracted.skipped("outside_root").reason is SkipReason.OUTSIDE_ROOT


def test_what_a_normal_run_tries_again() -> None:
    assert {"timeout", "out_of_memory", "crashed", "changed"} <= RETRYABLE
    assert FailureReason.ENCRYPTED not in RETRYABLE


def test_every_extractor_is_declared_whole() -> None:
    assert len({extractor.name for extractor in EXTRACTORS}) == len(EXTRACTORS)
    for extractor in EXTRACTORS:
        assert callable(extractor.extract)
        assert extractor.description
        for media_type in extractor.media_types:
            assert extractor_for(media_type) is extractor
        for library in extractor.libraries:
            assert library in extractor.version
    assert extractor_for(None) is None
    assert extractor_for("application/x-unheard-of") is None
    assert DOCX  # known as a format whether or not an extractor reads it yet


def test_versions_are_known_without_loading_a_library() -> None:
    program = (
        "import sys; from rag_pipeline.documents.extraction import extractor_versions; extractor_versions();"
        "heavy = {'pypdf', 'lxml', 'trafilatura', 'markdown_it', 'charset_normalizer', 'torch', 'dagster', 'pyarrow'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
