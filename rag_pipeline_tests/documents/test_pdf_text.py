from __future__ import annotations

from typing import Any

import pytest

from rag_pipeline.documents import pdf_text
from rag_pipeline.documents.pdf_text import PageText
from rag_pipeline_tests.documents.pdf_files import HELVETICA, drawn, one_page, painted, stream


def read(data: bytes) -> PageText:
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    try:
        page, text = pdf_text.read_page_with_forms(document, 0)
        page.close()
        return text
    finally:
        document.close()


def texts(data: bytes) -> list[str]:
    return [line.text for line in read(data).lines]


def shown(*operators: str) -> bytes:
    return one_page("\n".join(operators).encode("latin-1"))


def test_lines_come_in_the_order_of_the_stream_with_their_place() -> None:
    found = read(drawn([(50, 700, "second"), (50, 760, "first")])).lines
    assert [line.text for line in found] == ["second", "first"]
    assert [(round(line.x), round(line.y), line.size) for line in found] == [(50, 700, 10.0), (50, 760, 10.0)]


def test_text_drawn_twice_for_boldness_is_read_once() -> None:
    # pdfium itself leaves out what is drawn again at once, and not what is drawn again later or in parts.
    between = [(50, 680 - 12 * n, f"between {n}") for n in range(12)]
    data = drawn([(50, 700, "LILLY bell"), *between, (50.4, 700, "LILLY"), (78.5, 700, "bell")])
    assert texts(data) == ["LILLY bell", *(text for _, _, text in between)]


def test_a_word_that_stands_twice_is_read_twice() -> None:
    assert texts(drawn([(50, 700, "so and so"), (50, 688, "so and so")])) == ["so and so", "so and so"]


def test_ligatures_of_right_to_left_letters_keep_their_order() -> None:
    # Painted from the left: a glyph that stands for lam and alef, and a teh. Read from the right: teh, lam, alef.
    to_unicode = stream(
        b"1 begincodespacerange <00> <FF> endcodespacerange "
        b"2 beginbfchar <61> <062A> <62> <06440627> endbfchar"
    )
    data = one_page(b"BT /F 10 Tf 50 700 Td (ba) Tj ET", o6=to_unicode)
    assert texts(data.replace(HELVETICA, HELVETICA[:-2] + b"/ToUnicode 6 0 R>>")) == ["\u062a\u0644\u0627"]


def test_a_gap_is_a_space_and_a_wide_gap_a_cell() -> None:
    data = shown("BT /F 10 Tf 50 700 Td [(near) -300 (by) -2000 (far) 20 (th) -20 (er)] TJ ET")
    found = read(data).lines
    assert [line.text for line in found] == ["near by", "farther"]
    assert found[1].pieces[0].starts_cell


def test_spaces_stretched_in_a_justified_line_are_no_cells() -> None:
    data = shown("BT /F 10 Tf 6 Tw 50 700 Td (a line with wide spaces) Tj ET")
    assert texts(data) == ["a line with wide spaces"]


def test_raised_and_lowered_figures_stay_in_their_word() -> None:
    data = shown(
        "BT /F 10 Tf 50 700 Td (up to 1) Tj 4 Ts /F 6 Tf (2) Tj 0 Ts /F 10 Tf (and then H) Tj",
        "/F 6 Tf -2 Ts (2) Tj 0 Ts /F 10 Tf (O) Tj ET",
    )
    assert texts(data) == ["up to 12and then H2O"]


def test_a_fraction_stays_in_its_line() -> None:
    from reportlab.pdfbase.pdfmetrics import stringWidth

    end = 50 + stringWidth("sizes up to ", "Helvetica", 10)
    data = shown(
        f"BT /F 10 Tf 50 700 Td (sizes up to ) Tj ET BT /F 6 Tf {end} 703.5 Td (1) Tj ET",
        f"BT /F 6 Tf {end + 3} 697 Td (/4) Tj ET BT /F 10 Tf {end + 8} 700 Td ( inch) Tj ET",
    )
    assert texts(data) == ["sizes up to 1/4 inch"]


@pytest.mark.parametrize(
    ("matrix", "turn"), [("0 1 -1 0 100 200", 1), ("-1 0 0 -1 300 600", 2), ("0 -1 1 0 100 600", 3)]
)
def test_text_that_runs_in_another_direction_is_whole(matrix: str, turn: int) -> None:
    data = shown(
        f"BT /F 10 Tf {matrix} Tm (turned words) Tj ET",
        f"BT /F 10 Tf {matrix} Tm 0 -12 Td (in two lines) Tj ET",
    )
    found = read(data).lines
    assert [(line.text, line.turn) for line in found] == [("turned words", turn), ("in two lines", turn)]
    assert found[0].y - found[1].y == pytest.approx(12.0)


def test_a_turned_page_keeps_the_order_of_its_stream() -> None:
    from io import BytesIO

    from pypdf import PdfReader, PdfWriter

    lines = [(50, 700 - 40 * n, f"line {n}") for n in range(4)]
    for angle in (90, 180, 270):
        writer = PdfWriter(clone_from=PdfReader(BytesIO(drawn(lines))))
        writer.pages[0].rotate(angle)
        target = BytesIO()
        writer.write(target)
        assert texts(target.getvalue()) == [f"line {n}" for n in range(4)]


def test_words_in_other_directions_come_after_the_text() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.saveState()
        canvas.rotate(90)
        canvas.drawString(300, -20, "in the margin")
        canvas.restoreState()
        canvas.saveState()
        canvas.rotate(45)
        canvas.drawString(400, 100, "DRAFT")
        canvas.restoreState()
        canvas.drawString(50, 700, "The text of the page itself.")

    found = read(painted(paint)).lines
    assert [(line.text, line.turn) for line in found] == [
        ("The text of the page itself.", 0),
        ("in the margin", 1),
        ("DRAFT", 4),
    ]


def test_text_in_forms_is_read_where_it_is_painted() -> None:
    form = stream(
        b"BT /F 10 Tf 0 0 Td (inside) Tj ET",
        b"/Type/XObject/Subtype/Form/BBox[0 0 200 50]/Resources<</Font<</F 4 0 R>>>>",
    )
    data = one_page(b"BT /F 10 Tf 50 700 Td (before) Tj ET q 1 0 0 1 50 600 cm /X Do Q", o6=form)
    data = data.replace(
        b"/Resources<</Font<</F 4 0 R>>>>>>", b"/Resources<</Font<</F 4 0 R>>/XObject<</X 6 0 R>>>>>>", 1
    )
    found = read(data).lines
    assert [line.text for line in found] == ["before", "inside"]
    assert round(found[1].y) == 600


def test_rules_are_lines_thin_shapes_and_frames() -> None:
    def paint(canvas: Any, number: int) -> None:
        canvas.line(50, 500, 300, 500)
        canvas.rect(50, 400, 200, 0.5, stroke=0, fill=1)
        canvas.rect(50, 100, 200, 100, stroke=1, fill=0)
        canvas.circle(400, 400, 30)

    rulings = read(painted(paint)).rulings
    level = sorted((round(rule.x), round(rule.y), round(rule.x_end)) for rule in rulings if rule.is_level)
    assert level == [(50, 100, 250), (50, 200, 250), (50, 400, 250), (50, 500, 300)]
    assert sorted(round(rule.x) for rule in rulings if not rule.is_level) == [50, 250]


def test_pictures_are_measured() -> None:
    def paint(canvas: Any, number: int) -> None:
        from PIL import Image

        canvas.drawInlineImage(Image.new("RGB", (10, 10)), 0, 0, 595, 421)

    text = read(painted(paint))
    assert text.image_share == pytest.approx(0.5, abs=0.01)
    assert (text.has_drawing, text.lines) == (True, ())


def test_glyphs_without_a_character_are_counted() -> None:
    to_unicode = stream(
        b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <41> <FFFD> endbfchar"
    )
    data = one_page(b"BT /F 10 Tf 50 700 Td (ABBA) Tj ET", o6=to_unicode)
    data = data.replace(HELVETICA, HELVETICA[:-2] + b"/ToUnicode 6 0 R>>")
    text = read(data)
    assert (text.unmapped, text.glyphs) == (2, 4)
    assert "B" in text.lines[0].text and "A" not in text.lines[0].text


def test_a_form_that_paints_itself_ends() -> None:
    form = stream(b"/X Do", b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 6 0 R>>>>")
    data = one_page(b"/X Do", o6=form).replace(b"/Font<</F 4 0 R>>", b"/XObject<</X 6 0 R>>", 1)
    assert read(data).lines == ()
