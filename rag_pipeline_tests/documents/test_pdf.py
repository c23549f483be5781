from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, ExtractionFailure, extract_bytes
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.media_types import PDF
from rag_pipeline.documents.pdf import extract
from rag_pipeline.documents.states import DocumentState, FailureReason, WarningKind
from rag_pipeline_tests.documents.conftest import text_of

OPTIONS = ExtractionConfig()


def drawn(*pages: list[tuple[float, float, str]], **settings: Any) -> bytes:
    """A PDF with lines of text at given places, a list a page."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    target = BytesIO()
    canvas = Canvas(target, pagesize=A4, invariant=1, **settings)
    for lines in pages:
        canvas.setFont("Helvetica", 10)
        for x, y, text in lines:
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def handbook() -> bytes:
    """A PDF as an office makes it: title, sections, wrapped paragraphs, a table, running header and footer."""
    from reportlab.lib import colors
    from reportlab.lib.pagesizes import A5
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

    def frame(canvas: Any, document: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(60, 570, "Depot handbook - internal")
        canvas.drawString(200, 30, f"Page {document.page}")

    styles = getSampleStyleSheet()
    story: list[Any] = [Paragraph("Depot handbook", styles["Title"])]
    for part in range(1, 5):
        story.append(Paragraph(f"Part {part}", styles["Heading2"]))
        for number in range(6):
            sentence = (
                f"Rule {part}.{number} holds for every charging cabinet and for everyone who opens one. "
            )
            story.append(
                Paragraph(
                    sentence + "Batteries of type LX-40 are lifted by two people. " * 3, styles["BodyText"]
                )
            )
        grid = [
            ["Code", "Meaning", "What to do"],
            [f"E-{part}01", "lock jammed", "call the depot"],
            [f"E-{part}02", "battery low", "swap"],
        ]
        story.append(Table(grid, style=[("GRID", (0, 0), (-1, -1), 0.5, colors.black)]))
    target = BytesIO()
    SimpleDocTemplate(target, pagesize=A5, title="Declared title", author="A. B.", invariant=1).build(
        story, onFirstPage=frame, onLaterPages=frame
    )
    return target.getvalue()


def test_a_handbook_keeps_its_structure_and_loses_its_running_lines() -> None:
    data = handbook()
    content = extract(data, OPTIONS)
    assert len(content.pages) >= 4
    assert content.title == "Declared title"
    assert content.metadata["author"] == "A. B."
    assert content.warnings == ()
    document = canonicalise("h.pdf", extract_bytes(data, PDF, OPTIONS), OPTIONS)
    assert document.title == "Depot handbook"
    lines = document.text.split("\n")
    assert [line for line in lines if line.startswith("#")] == [
        "# Depot handbook",
        *(f"## Part {n}" for n in range(1, 5)),
    ]
    assert "internal" not in document.text
    assert not any(line.startswith("Page") for line in lines)
    assert (
        "| Code | Meaning | What to do |\n| --- | --- | --- |\n| E-301 | lock jammed | call the depot |"
        in document.text
    )
    for part in range(1, 5):
        for number in range(6):
            assert (
                document.text.count(f"Rule {part}.{number} holds for every charging cabinet and for everyone")
                == 1
            )


def test_every_character_has_its_page() -> None:
    document = canonicalise("h.pdf", extract_bytes(handbook(), PDF, OPTIONS), OPTIONS)
    assert "".join(document.text[s.start : s.end] for s in document.locators) == document.text
    assert [span.locator.page for span in document.locators] == [page.page for page in document.pages]
    assert resolve(document.locators, 0, len(document.text)).page_last == len(document.pages)


def test_a_sentence_goes_on_over_the_page() -> None:
    content = extract(drawn([(50, 700, "A sentence that is bro-")], [(50, 700, "ken by the page.")]), OPTIONS)
    assert text_of(content) == "A sentence that is broken by the page.\n"
    content = extract(drawn([(50, 700, "A sentence that")], [(50, 700, "goes on.")]), OPTIONS)
    assert text_of(content) == "A sentence that\ngoes on.\n"
    content = extract(drawn([(50, 700, "The end.")], [(50, 700, "A start.")]), OPTIONS)
    assert text_of(content) == "The end.\n\nA start.\n"


def test_a_page_without_text_is_a_warning_and_a_document_without_any_fails() -> None:
    content = extract(drawn([(50, 700, "words")], []), OPTIONS)
    assert [(warning.kind, warning.page) for warning in content.warnings] == [(WarningKind.NO_TEXT_LAYER, 2)]
    document = canonicalise("scan.pdf", extract_bytes(drawn([], []), PDF, OPTIONS), OPTIONS)
    assert (document.state, document.reason) == (DocumentState.FAILED, FailureReason.NO_TEXT)
    assert len(document.warnings) == 2


def encrypted(user: str, owner: str, permissions: int | None = None) -> bytes:
    from pypdf import PdfReader, PdfWriter
    from pypdf.constants import UserAccessPermissions

    writer = PdfWriter(clone_from=PdfReader(BytesIO(drawn([(50, 700, "secret words")]))))
    granted = UserAccessPermissions.all() if permissions is None else UserAccessPermissions(permissions)
    writer.encrypt(user, owner, permissions_flag=granted, algorithm="AES-256")
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def test_a_password_is_a_named_failure() -> None:
    with pytest.raises(ExtractionFailure, match="asks for a password") as caught:
        extract(encrypted("user", "owner"), OPTIONS)
    assert caught.value.reason is FailureReason.ENCRYPTED


def test_an_empty_password_opens_with_a_warning() -> None:
    content = extract(encrypted("", "owner"), OPTIONS)
    assert "secret words" in text_of(content)
    assert [warning.kind for warning in content.warnings] == [WarningKind.OPENED_WITHOUT_PASSWORD]


def test_a_permission_not_given_is_a_warning() -> None:
    content = extract(encrypted("", "owner", permissions=0), OPTIONS)
    assert WarningKind.EXTRACTION_NOT_PERMITTED in {warning.kind for warning in content.warnings}


def outcome(data: bytes) -> Extracted:
    return extract_bytes(data, PDF, OPTIONS)


def test_damaged_files_fail_as_corrupt() -> None:
    whole = handbook()
    for data in (whole[:300], b"%PDF-1.7\n", b"%PDF-1.4\n" + bytes(range(256)) * 4):
        assert (outcome(data).state, outcome(data).reason) == (DocumentState.FAILED, FailureReason.CORRUPT)


def test_a_damaged_page_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from pypdf import PageObject

    read = PageObject.extract_text
    calls = iter(range(10))

    def failing(page: PageObject, *args: Any, **kwargs: Any) -> str:
        if next(calls) == 1:
            raise KeyError("/Contents")
        return read(page, *args, **kwargs)

    monkeypatch.setattr(PageObject, "extract_text", failing)
    content = extract(drawn([(50, 700, "first.")], [(50, 700, "second.")], [(50, 700, "third.")]), OPTIONS)
    assert text_of(content) == "first.\n\nthird.\n"
    assert [(warning.kind, warning.page) for warning in content.warnings] == [(WarningKind.DAMAGED_PAGE, 2)]


def test_no_readable_page_at_all_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    from pypdf import PageObject

    def failing(*args: Any, **kwargs: Any) -> str:
        raise KeyError("/Contents")

    monkeypatch.setattr(PageObject, "extract_text", failing)
    with pytest.raises(ExtractionFailure, match="none of its 2 pages") as caught:
        extract(drawn([(50, 700, "a")], [(50, 700, "b")]), OPTIONS)
    assert caught.value.reason is FailureReason.CORRUPT
    assert len(caught.value.warnings) == 2


def test_mutated_files_end_in_a_named_state() -> None:
    import random

    generator = random.Random(4)
    whole = handbook()
    for _ in range(15):
        data = bytearray(whole[: generator.randrange(len(whole) // 2, len(whole))])
        for _ in range(20):
            data[generator.randrange(9, len(data))] = generator.randrange(256)
        found = outcome(bytes(data))
        assert found.state in (DocumentState.EXTRACTED, DocumentState.FAILED)
        assert (found.reason is None) == (found.state is DocumentState.EXTRACTED)
