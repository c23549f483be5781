from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from rag_pipeline.documents import pdf_fonts
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.pdf import extract
from rag_pipeline.documents.pdf_fonts import FontRepairs
from rag_pipeline.documents.states import WarningKind
from rag_pipeline_tests.documents.conftest import text_of
from rag_pipeline_tests.documents.pdf_files import HELVETICA, drawn, one_page, stream

OFF = ExtractionConfig(ocr="off", workers=1)
LETTERS = "Thequickbrownfxjmpsvlazydg"


def repaired(data: bytes) -> FontRepairs:
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    return pdf_fonts.repair(reader, len(reader.pages))


def program(*, names: bool = True, characters: bool = True) -> tuple[bytes, dict[str, int]]:
    """A TrueType font with the letters of `LETTERS` and the number of each glyph."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    order = [".notdef", "space", *dict.fromkeys(LETTERS), "T_h"]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(order)
    pen = TTGlyphPen(None)
    for point in ((0, 0), (0, 700), (400, 700), (400, 0)):
        (pen.lineTo if point != (0, 0) else pen.moveTo)(point)
    pen.closePath()
    box = pen.glyph()
    builder.setupGlyf(dict.fromkeys(order, box))
    builder.setupHorizontalMetrics(dict.fromkeys(order, (500, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    mapped = {ord(name): name for name in order if len(name) == 1} | {32: "space"}
    builder.setupCharacterMap(mapped if characters else {})
    builder.setupNameTable({"familyName": "Test", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost(keepGlyphNames=names)
    target = BytesIO()
    builder.save(target)
    return target.getvalue(), {name: number for number, name in enumerate(order)}


def numbered(text: list[str], *, to_unicode: bytes | None = None, **settings: bool) -> bytes:
    """A page set in a font whose codes are the numbers of its glyphs, with or without a map to characters."""
    data, glyphs = program(**settings)
    codes = "".join(f"{glyphs['space' if name == ' ' else name]:04X}" for name in text)
    others = {
        "o6": b"<</Type/Font/Subtype/CIDFontType2/BaseFont/Test/CIDToGIDMap/Identity/FontDescriptor 7 0 R/DW 500"
        b"/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>>>",
        "o7": b"<</Type/FontDescriptor/FontName/Test/Flags 4/FontBBox[0 0 500 700]/ItalicAngle 0/Ascent 800"
        b"/Descent -200/CapHeight 700/StemV 80/FontFile2 8 0 R>>",
        "o8": stream(data, b"/Length1 %d" % len(data), packed=True),
    }
    font = b"<</Type/Font/Subtype/Type0/BaseFont/Test/Encoding/Identity-H/DescendantFonts[6 0 R]"
    if to_unicode is not None:
        others["o9"] = stream(to_unicode)
        font += b"/ToUnicode 9 0 R"
    page = one_page(b"BT /F 12 Tf 72 700 Td <%s> Tj ET" % codes.encode(), **others)
    return page.replace(HELVETICA, font + b">>")


def bfchars(pairs: dict[int, str]) -> bytes:
    lines = "".join(f"<{code:04X}> <{text.encode('utf-16-be').hex()}>\n" for code, text in pairs.items())
    return (
        f"begincmap 1 begincodespacerange <0000> <FFFF> endcodespacerange\n"
        f"{len(pairs)} beginbfchar\n{lines}endbfchar endcmap"
    ).encode()


def test_a_font_without_a_map_is_read_by_the_characters_of_its_program() -> None:
    content = extract(numbered(list("The quick brown fox"), names=False), OFF)
    assert text_of(content) == "The quick brown fox\n"
    assert [(w.kind, w.page) for w in content.warnings] == [(WarningKind.UNMAPPED_GLYPHS, 1)]


def test_a_font_without_a_map_is_read_by_the_names_of_its_glyphs() -> None:
    content = extract(numbered(["T_h", *"e quick brown fox"], characters=False), OFF)
    assert text_of(content) == "The quick brown fox\n"


def test_glyphs_that_nothing_knows_are_reported_and_never_guessed() -> None:
    content = extract(numbered(list("The quick brown fox"), names=False, characters=False), OFF)
    assert text_of(content) == ""
    last = content.warnings[-2]
    assert (last.kind, last.page) == (WarningKind.UNMAPPED_GLYPHS, 1)
    assert "have no character and were left out" in last.message
    assert "extraction.ocr is off" in last.message


def test_a_page_of_unknown_glyphs_is_read_by_ocr(monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_pipeline.documents import ocr
    from rag_pipeline.documents.page_lines import Piece, TextLine

    seen = ocr.OcrPage((TextLine((Piece("The quick brown fox", 72, 200, 700, 12),)),), 0.95, 0.95)
    monkeypatch.setattr(ocr, "read_image", lambda *args, **kwargs: seen)
    content = extract(
        numbered(list("The quick brown fox"), names=False, characters=False), ExtractionConfig()
    )
    assert text_of(content) == "The quick brown fox\n"
    assert content.pages[0].ocr


def test_a_ligature_that_the_map_lacks_is_read_from_its_name() -> None:
    _, glyphs = program()
    known = {number: " " if name == "space" else name for name, number in glyphs.items() if name != "T_h"}
    del known[0]
    content = extract(numbered(["T_h", *"e quick"], to_unicode=bfchars(known)), OFF)
    assert text_of(content) == "The quick\n"
    assert [(w.kind, w.page) for w in content.warnings] == [(WarningKind.LIGATURES_REPAIRED, 1)]


def simple_font(map_: bytes, names: bytes, widths: bytes = b"") -> bytes:
    data = one_page(b"BT /F 12 Tf 72 700 Td (de\\001ned) Tj ET", o6=stream(map_))
    return data.replace(
        HELVETICA,
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</BaseEncoding/WinAnsiEncoding"
        b"/Differences[1 %s]>>/ToUnicode 6 0 R%s>>" % (names, widths),
    )


IDENTITY = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfrange <20> <7E> <0020> endbfrange\n"


@pytest.mark.parametrize("wrong", [b"", b"1 beginbfchar <01> <0069> endbfchar"])
def test_a_ligature_that_is_missing_or_contradicted_by_its_name_is_repaired(wrong: bytes) -> None:
    assert text_of(extract(simple_font(IDENTITY + wrong, b"/f_i"), OFF)) == "defined\n"


def test_a_glyph_as_wide_as_two_letters_is_their_ligature() -> None:
    known = {68: "d", 72: "e", 81: "n", 73: "f", 76: "i", 79: "l", 191: "i", 192: "l"}
    widths = {68: 556, 72: 556, 81: 556, 73: 278, 76: 222, 79: 222, 191: 500, 192: 500}
    assert pdf_fonts._wide_letters(known, widths) == {191: "fi", 192: "fl"}
    # A capital-like or swash i that is a little wider is none.
    assert pdf_fonts._wide_letters(known, widths | {191: 300, 192: 260}) == {}


def test_maps_that_are_right_are_left_alone() -> None:
    right = IDENTITY + b"1 beginbfchar <01> <FB01> endbfchar"
    assert repaired(simple_font(right, b"/f_i")).data is None
    assert repaired(drawn([(50, 700, "plain")])).data is None


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("fi", "fi"),
        ("f_f_i", "ffi"),
        ("T_h", "Th"),
        ("f_i.alt", "fi"),
        ("uniFB03", None),
        ("A", None),
        ("a_.x", None),
    ],
)
def test_ligatures_by_name(name: str, letters: str | None) -> None:
    assert pdf_fonts._ligature(name) == letters


def test_ranges_of_a_map() -> None:
    class Stream:
        def get_object(self) -> Any:
            return self

        def get_data(self) -> bytes:
            return (
                b"2 beginbfrange <01> <03> <0041> <10> <11> [<0066 0069> <005A>] endbfrange"
                b" 1 beginbfchar <20> <D83DDE00> endbfchar"
            )

    assert pdf_fonts._map_of({"/ToUnicode": Stream()}) == {
        1: "A",
        2: "B",
        3: "C",
        16: "fi",
        17: "Z",
        32: "\U0001f600",
    }


def test_a_damaged_font_is_left_as_it_is() -> None:
    data = numbered(list("The"), names=False)
    broken = data.replace(b"/DescendantFonts[6 0 R]", b"/DescendantFonts[66 0 R]")
    assert repaired(broken).data is None
