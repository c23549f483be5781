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
from rag_pipeline_tests.documents.pdf_files import (
    HELLO,
    HELVETICA,
    assembled,
    drawn,
    page,
    painted,
    stream,
)

OPTIONS = ExtractionConfig(workers=1)


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


def of_pages(*bodies: bytes) -> bytes:
    """A PDF whose pages have these bodies (content streams) as objects 10, 12, ..."""
    numbers = range(10, 10 + 2 * len(bodies), 2)
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(b"%d 0 R" % n for n in numbers), len(bodies)),
        4: HELVETICA,
    }
    for number, body in zip(numbers, bodies, strict=True):
        objects |= {number: page(number + 1), number + 1: body}
    return assembled(objects)


GARBLED = stream(b"\x78\xda\x0b\x51" + b"\xff" * 60, b"/Filter/FlateDecode")


def test_a_damaged_page_costs_itself() -> None:
    content = extract(of_pages(stream(HELLO), GARBLED, stream(HELLO.replace(b"world", b"end"))), OPTIONS)
    assert text_of(content) == "Hello, mended world.\n\nHello, mended end.\n"
    assert [(warning.kind, warning.page) for warning in content.warnings] == [(WarningKind.DAMAGED_PAGE, 2)]
    assert [info.page for info in content.pages] == [1, 2, 3]


def test_a_page_that_is_missing_costs_itself() -> None:
    data = assembled(
        {
            1: b"<</Type/Catalog/Pages 2 0 R>>",
            2: b"<</Type/Pages/Kids[3 0 R 9 0 R]/Count 2>>",
            3: page(5),
            4: HELVETICA,
            5: stream(HELLO),
        }
    )
    content = extract(data, OPTIONS)
    assert text_of(content) == "Hello, mended world.\n"
    assert [(warning.kind, warning.page) for warning in content.warnings] == [(WarningKind.DAMAGED_PAGE, 2)]


def test_no_readable_page_at_all_is_corrupt() -> None:
    with pytest.raises(ExtractionFailure, match="none of its 2 pages") as caught:
        extract(of_pages(GARBLED, GARBLED), OPTIONS)
    assert caught.value.reason is FailureReason.CORRUPT
    assert len(caught.value.warnings) == 2


def test_pypdf_steps_in_for_a_page_that_pdfium_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_pipeline.documents import pdf_text

    def failing(*args: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(pdf_text, "read_page_with_forms", failing)
    assert text_of(extract(drawn([(50, 700, "first.")]), OPTIONS)) == "first.\n"


def test_a_file_that_pypdf_cannot_open_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import pypdf

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise pypdf.errors.PdfReadError("no startxref")

    monkeypatch.setattr(pypdf, "PdfReader", failing)
    content = extract(drawn([(50, 700, "first.")]), OPTIONS)
    assert text_of(content) == "first.\n"
    assert [warning.kind for warning in content.warnings] == [WarningKind.REPAIRED]


def test_more_pages_than_allowed_fail_and_name_the_setting() -> None:
    options = ExtractionConfig(max_pages=2)
    with pytest.raises(ExtractionFailure, match=r"has 3 pages; extraction\.max_pages is 2") as caught:
        extract(drawn(*[[(50, 700, "x")]] * 3), options)
    assert caught.value.reason is FailureReason.TOO_LARGE


def test_columns_painted_row_by_row_are_read_one_after_the_other() -> None:
    left = [f"The left column says in its line {n} what" for n in "abcdefghij"]
    right = [f"and the right one in line {n} something else" for n in "abcdefghij"]
    rows = [
        entry
        for number, (one, two) in enumerate(zip(left, right, strict=True))
        for entry in ((50, 700 - 12 * number, one), (320, 700 - 12 * number, two))
    ]
    title = (
        50,
        740,
        "A title that runs across both of the columns below and ends at the right margin of it all.",
    )
    text = text_of(extract(drawn([title, *rows]), OPTIONS)).replace("\n", " ")
    assert " ".join(left) in text
    assert " ".join(right) in text
    assert text.index(left[0]) < text.index(right[0])


def test_a_note_at_the_foot_of_a_column_does_not_part_the_sentence() -> None:
    def paint(canvas: Any, number: int) -> None:
        for n in range(30):
            canvas.drawString(50, 700 - 12 * n, f"left line {n} of a text that goes on and on")
        canvas.setFont("Helvetica", 7)
        canvas.drawString(50, 320, "1 A note in small type at the foot of the column.")
        canvas.setFont("Helvetica", 10)
        for n in range(30):
            canvas.drawString(320, 700 - 12 * n, f"right line {n} of a text that goes on and on")

    text = text_of(extract(painted(paint), OPTIONS))
    assert "left line 29 of a text that goes on and on right line 0" in text.replace("\n", " ")
    assert text.rstrip().endswith("1 A note in small type at the foot of the column.")


def test_a_note_does_not_part_a_sentence_that_goes_on_over_the_page() -> None:
    def paint(canvas: Any, number: int) -> None:
        words = ["The first page ends in the middle of", "a sentence with a note below. Then more."]
        canvas.drawString(50, 700, "Some text that fills the page above.")
        canvas.drawString(50, 600 if number == 1 else 760, words[number - 1])
        canvas.setFont("Helvetica", 7)
        canvas.drawString(50, 100, f"{'ab'[number - 1]}) Note of page {['one', 'two'][number - 1]}")

    document = canonicalise("n.pdf", extract_bytes(painted(reversed_on_two(paint), 2), PDF, OPTIONS), OPTIONS)
    assert "in the middle of\na sentence with a note below." in document.text
    assert document.text.index("Note of page one") > document.text.index("a sentence with")
    assert "".join(document.text[s.start : s.end] for s in document.locators) == document.text
    note = document.text.index("Note of page one")
    assert resolve(document.locators, note, note + 5).page == 1


def reversed_on_two(paint: Any) -> Any:
    """On page two the sentence stands above the other text and is painted first."""

    def painting(canvas: Any, number: int) -> None:
        if number == 1:
            paint(canvas, number)
            return
        canvas.drawString(50, 760, "a sentence with a note below. Then more.")
        canvas.drawString(50, 700, "Other text stands on the second page.")
        canvas.setFont("Helvetica", 7)
        canvas.drawString(50, 100, "b) Note of page two")

    return painting


def test_form_fields_stand_beside_their_labels() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.drawString(72, 700, "Name of the applicant:")
        canvas.acroForm.textfield(name="n", x=220, y=690, value="Ada Lovelace", width=200, height=24)
        canvas.drawString(72, 650, "Town:")
        canvas.acroForm.textfield(name="t", x=220, y=640, value="London", width=200, height=24)
        canvas.drawString(72, 600, "The end of the form.")

    text = text_of(extract(painted(paint), OPTIONS))
    assert "| Name of the applicant: | Ada Lovelace |" in text
    assert "| Town: | London |" in text


def test_titles_of_the_outline_are_headings() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.bookmarkPage("a")
        canvas.addOutlineEntry("Care of the chain", "a", level=0)
        canvas.drawString(72, 700, "Care of the chain")
        for n in range(4):
            canvas.drawString(
                72, 670 - 12 * n, "A chain is oiled every week and cleaned before that is done, at least"
            )

    assert "## Care of the chain\n" in text_of(extract(painted(paint), OPTIONS))


def test_page_labels_alone_mark_a_page_number() -> None:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(BytesIO(drawn([(50, 700, "Words."), (300, 30, "iv")]))))
    writer.set_page_label(0, 0, style="/r", start=4)
    target = BytesIO()
    writer.write(target)
    assert text_of(extract(target.getvalue(), OPTIONS)) == "Words.\n"


def test_without_ocr_a_scan_says_what_to_do() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.rect(72, 72, 200, 300, fill=1)

    content = extract(painted(paint), ExtractionConfig(ocr="off"))
    (warning,) = content.warnings
    assert (warning.kind, warning.page) == (WarningKind.NO_TEXT_LAYER, 1)
    assert "extraction.ocr is off" in warning.message


def test_a_page_with_text_on_a_picture_is_not_read_by_ocr(monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_pipeline.documents import ocr

    def failing(*args: Any) -> Any:
        raise AssertionError("OCR was asked")

    monkeypatch.setattr(ocr, "read_image", failing)

    def paint(canvas: Any, number: int) -> None:
        canvas.drawInlineImage(picture(), 0, 0, 595, 842)
        canvas.drawString(72, 700, "A text layer of more than forty letters on a picture of the page.")

    assert extract(painted(paint), OPTIONS).pages[0].ocr is False


def picture() -> Any:
    from PIL import Image

    return Image.new("RGB", (60, 80), (200, 220, 240))


def test_a_stamp_on_a_scan_does_not_keep_ocr_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_pipeline.documents import ocr
    from rag_pipeline.documents.page_lines import Piece, TextLine

    lines = tuple(TextLine((Piece(f"scanned line {n}", 50, 200, 700 - 12 * n, 10),)) for n in range(5))
    monkeypatch.setattr(ocr, "read_image", lambda *args, **kwargs: ocr.OcrPage(lines, 0.85, 0.5))

    def paint(canvas: Any, number: int) -> None:
        canvas.drawInlineImage(picture(), 0, 0, 595, 842)
        canvas.drawString(72, 20, "STAMP 0001")

    content = extract(painted(paint), OPTIONS)
    assert (content.pages[0].ocr, content.pages[0].confidence) == (True, 0.85)
    assert "scanned line 0 scanned line 1" in text_of(content)
    assert [warning.kind for warning in content.warnings] == [WarningKind.LOW_CONFIDENCE] * 2


def test_pages_beyond_the_ocr_limit_are_reported() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.rect(72, 72, 200, 300, fill=1)

    content = extract(painted(paint, 2), ExtractionConfig(ocr_max_pages=0))
    assert {(warning.kind, warning.page) for warning in content.warnings} == {
        (WarningKind.OCR_SKIPPED, 1),
        (WarningKind.OCR_SKIPPED, 2),
    }
    assert all("extraction.ocr_max_pages is 0" in warning.message for warning in content.warnings)


def test_a_text_layer_that_is_no_language_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_pipeline.documents import ocr
    from rag_pipeline.documents.page_lines import Piece, TextLine

    words = (
        "the battery of the bicycle is changed at the station when its charge is lower than a third of it "
    )
    shifted = "".join(chr(ord(c) - 29) if c != " " else " " for c in words * 4)
    data = drawn([(20, 700 - 12 * n, shifted[n * 90 : n * 90 + 90]) for n in range(4)])
    content = extract(data, ExtractionConfig(ocr="off"))
    assert text_of(content) == ""
    assert [(w.kind, w.page) for w in content.warnings] == [(WarningKind.UNMAPPED_GLYPHS, 1)]
    seen = ocr.OcrPage((TextLine((Piece("the battery", 20, 90, 700, 12),)),), 0.95, 0.95)
    monkeypatch.setattr(ocr, "read_image", lambda *args, **kwargs: seen)
    assert text_of(extract(data, OPTIONS)) == "the battery\n"
    plain = drawn([(20, 700 - 12 * n, (words * 4)[n * 90 : n * 90 + 90]) for n in range(4)])
    assert extract(plain, OPTIONS).warnings == ()


def test_text_in_a_font_that_pdfium_has_not_got_is_read_by_pypdf() -> None:
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont

    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3"))
    columns = ["吾輩は猫である名前は", "まだ無いどこで生れた"]
    glyphs = [
        (300 - 20 * number, 320 - 12 * place, character)
        for number, text in enumerate(columns)
        for place, character in enumerate(text)
    ]
    assert text_of(extract(drawn(glyphs, font="HeiseiMin-W3"), OPTIONS)) == "".join(columns) + "\n"


def test_a_file_of_nothing_but_one_repeated_line_keeps_it() -> None:
    assert "Same" in text_of(extract(drawn(*[[(50, 700, "Same")]] * 4), OPTIONS))


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
