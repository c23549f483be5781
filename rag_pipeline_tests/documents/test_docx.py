from __future__ import annotations

import pytest

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.docx import extract
from rag_pipeline.documents.extraction import Content, extract_bytes
from rag_pipeline.documents.media_types import DOCX
from rag_pipeline.documents.states import DocumentState, FailureReason, WarningKind
from rag_pipeline_tests.documents.conftest import text_of
from rag_pipeline_tests.documents.office_files import (
    CHART,
    CHART_TABLE,
    DIAGRAM,
    W,
    docx,
    paragraph,
    strict,
    styles,
)

OPTIONS = ExtractionConfig()


def read(body: str, **more: object) -> str:
    return text_of(extract(docx(body, **more), OPTIONS))  # type: ignore[arg-type]


def kinds(content: Content) -> list[WarningKind]:
    return [warning.kind for warning in content.warnings]


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_insertions_are_kept_and_deletions_and_what_was_moved_away_are_not() -> None:
    body = (
        f"<w:p>{run('The ')}<w:ins>{run('quick ')}</w:ins><w:del><w:r><w:delText>slow </w:delText></w:r></w:del>"
        f"<w:moveFrom>{run('gone ')}</w:moveFrom><w:moveTo>{run('brown ')}</w:moveTo>{run('fox.')}</w:p>"
    )
    assert read(body) == "The quick brown fox.\n"


def test_words_in_fields_bidirectional_runs_and_ruby_are_not_lost() -> None:
    body = (
        f"<w:p>{run('Figure ')}<w:fldSimple w:instr='SEQ'>{run('1')}</w:fldSimple>{run(': ')}"
        f"<w:dir>{run('abc')}</w:dir>"
        f"<w:r><w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('漢')}</w:rubyBase></w:ruby></w:r>"
        f"<w:r><w:t>co</w:t><w:softHyphen/><w:t>op</w:t><w:noBreakHyphen/><w:t>x</w:t></w:r></w:p>"
    )
    assert read(body) == "Figure 1: abc漢coop\u2011x\n"


def test_headings_are_found_by_outline_level_whatever_the_style_is_called() -> None:
    level = '<w:outlineLvl w:val="{}"/>'
    sheet = styles(
        ("berschrift1", "heading 1", "", ""),
        ("Kapitel", "Kapitel", "berschrift1", ""),
        ("Abschnitt", "Mein Abschnitt", "", level.format(1)),
        ("Body", "Fliesstext", "Abschnitt", level.format(9)),
        ("Circle", "Circle", "Circle", ""),
    )
    body = (
        paragraph("One", "berschrift1")
        + paragraph("Two", "Kapitel")
        + paragraph("Three", "Abschnitt")
        + paragraph("plain", "Body")
        + paragraph("Four", "", level.format(2))
        + paragraph("round", "Circle")
        + paragraph("", "berschrift1")
    )
    found = read(body, relations=[("rId1", "styles", "styles.xml")], parts={"word/styles.xml": sheet})
    assert found == "# One\n\n# Two\n\n## Three\n\nplain\n\n### Four\n\nround\n"


def test_a_title_stands_above_the_headings() -> None:
    sheet = styles(("Title", "Title", "", ""), ("Sub", "Sub", "Title", ""))
    body = paragraph("Minutes", "Title") + paragraph("Costs", "Heading1") + paragraph("below", "Sub")
    data = docx(body, [("rId1", "styles", "styles.xml")], {"word/styles.xml": sheet})
    assert text_of(extract(data, OPTIONS)) == "# Minutes\n\n## Costs\n\nbelow\n"
    assert canonicalise("a.docx", extract_bytes(data, DOCX, OPTIONS), OPTIONS).title == "Minutes"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def test_a_merged_cell_stands_once_and_a_nested_table_in_its_cell() -> None:
    nested = f"<w:tbl><w:tr>{cell('n1')}{cell('n2')}</w:tr></w:tbl>"
    wide, tall = "<w:gridSpan w:val='2'/>", "<w:vMerge w:val='restart'/>"
    body = (
        f"<w:tbl><w:tr>{cell('wide', wide)}{cell('c')}</w:tr>"
        f"<w:tr>{cell('tall', tall)}{cell('d')}<w:tc>{nested}{paragraph('e')}</w:tc></w:tr>"
        f"<w:tr>{cell('', '<w:vMerge/>')}{cell('f | g')}{cell('two')}</w:tr></w:tbl>"
    )
    assert read(body) == (
        "| wide |  | c |\n| --- | --- | --- |\n| tall | d | n1 n2 e |\n|  | f \\| g | two |\n"
    )


def note_part(kind: str, *texts: str) -> str:
    items = "".join(f'<w:{kind} w:id="{n}">{paragraph(text)}</w:{kind}>' for n, text in enumerate(texts, 2))
    return f'<w:{kind}s xmlns:w="{W}">{items}</w:{kind}s>'


def reference(kind: str, number: int) -> str:
    return f'<w:r><w:{kind}Reference w:id="{number}"/></w:r>'


NOTES = {
    "word/footnotes.xml": note_part("footnote", "At the foot."),
    "word/endnotes.xml": note_part("endnote", "At the end."),
}
NOTE_RELATIONS = [("rId1", "footnotes", "footnotes.xml"), ("rId2", "endnotes", "endnotes.xml")]


def test_notes_stand_after_the_body_and_keep_their_marks() -> None:
    body = f"<w:p>{run('Said')}{reference('footnote', 2)}{run(' and done')}{reference('endnote', 2)}{run('.')}</w:p>"
    assert read(body + paragraph("Last."), relations=NOTE_RELATIONS, parts=NOTES) == (
        "Said[1] and done[2].\n\nLast.\n\n[1] At the foot.\n\n[2] At the end.\n"
    )


def test_notes_of_a_titled_document_are_a_section_of_their_own() -> None:
    body = (
        paragraph("T", "Title")
        + paragraph("A", "Heading1")
        + f"<w:p>{run('x')}{reference('footnote', 2)}</w:p>"
    )
    parts = {**NOTES, "word/styles.xml": styles(("Title", "Title", "", ""))}
    found = read(body, relations=[*NOTE_RELATIONS, ("rId3", "styles", "styles.xml")], parts=parts)
    assert found == "# T\n\n## A\n\nx[1]\n\n## Notes\n\n[1] At the foot.\n"


@pytest.mark.parametrize(
    ("headings", "notes"),
    [((), "# Notes"), (("Heading2",), "# Notes")],
)
def test_notes_do_not_belong_to_the_last_section(headings: tuple[str, ...], notes: str) -> None:
    body = paragraph("A", "Heading1") + "".join(paragraph("B", style) for style in headings)
    body += f"<w:p>{run('x')}{reference('footnote', 2)}</w:p>" + paragraph("References", "Heading1")
    data = docx(body, NOTE_RELATIONS, NOTES)
    assert f"{notes}\n\n[1] At the foot." in text_of(extract(data, OPTIONS))
    # A list of references at the end goes; what the notes say stays.
    assert "At the foot." in canonicalise("a.docx", extract_bytes(data, DOCX, OPTIONS), OPTIONS).text


BOX = f"<w:txbxContent>{paragraph('In the box.')}</w:txbxContent>"


@pytest.mark.parametrize(
    "box",
    [
        f"<mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict><v:shape><v:textbox>{BOX}</v:textbox></v:shape></w:pict></mc:Fallback></mc:AlternateContent>",
        f"<mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wps:txbx>{BOX}</wps:txbx></w:drawing></mc:Choice>"
        "</mc:AlternateContent>",
        f"<w:pict><v:shape><v:textbox>{BOX}</v:textbox></v:shape></w:pict>",
    ],
)
def test_a_text_box_stands_once_after_its_paragraph(box: str) -> None:
    assert read(f"<w:p>{run('Before ')}<w:r>{box}</w:r>{run('after.')}</w:p>") == (
        "Before after.\n\nIn the box.\n"
    )


def test_comments_are_kept_apart() -> None:
    comment = f'<w:comment w:id="0" w:author="A. B.">{paragraph("Really?")}</w:comment>'
    part = f'<w:comments xmlns:w="{W}">{comment}</w:comments>'
    data = docx(
        f"<w:p>{run('Yes.')}<w:r><w:commentReference w:id='0'/></w:r></w:p>",
        [("rId1", "comments", "comments.xml")],
        {"word/comments.xml": part},
    )
    content = extract(data, OPTIONS)
    assert text_of(content) == "Yes.\n"
    assert content.metadata["comments"] == ["A. B.: Really?"]
    assert kinds(content) == [WarningKind.COMMENTS_LEFT_OUT]
    assert "Really?" in content.raw_text


def test_formulas_are_written_on_a_line() -> None:
    formula = (
        "<m:oMath><m:r><m:t>E=</m:t></m:r><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r>"
        "</m:den></m:f><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
        "<m:rad><m:radPr/><m:deg/><m:e><m:r><m:t>y</m:t></m:r></m:e></m:rad></m:oMath>"
    )
    assert read(f"<w:p>{run('where ')}{formula}{run(' holds')}</w:p>") == "where E=(a+b)/2x^2√(y) holds\n"
    assert read(f"<w:p><m:oMathPara>{formula}</m:oMathPara></w:p>") == "E=(a+b)/2x^2√(y)\n"


def test_charts_and_diagrams_become_tables_and_lists() -> None:
    body = (
        f"<w:p>{run('See.')}<w:r><w:drawing><c:chart r:id='rId1'/></w:drawing></w:r>"
        "<w:r><w:drawing><dgm:relIds r:dm='rId2'/></w:drawing></w:r></w:p>"
    )
    found = read(
        body,
        relations=[("rId1", "chart", "charts/chart1.xml"), ("rId2", "diagramData", "diagrams/data1.xml")],
        parts={"word/charts/chart1.xml": CHART, "word/diagrams/data1.xml": DIAGRAM},
    )
    assert found == f"See.\n\n{CHART_TABLE}\n\n- Report\n- Repair\n"


def test_imported_chunks_are_read_or_reported() -> None:
    body = (
        paragraph("Own.")
        + "<w:altChunk r:id='rId1'/><w:altChunk r:id='rId2'/><w:altChunk r:id='rId3'/><w:altChunk r:id='rId9'/>"
    )
    data = docx(
        body,
        [("rId1", "aFChunk", "a.html"), ("rId2", "aFChunk", "b.docx"), ("rId3", "aFChunk", "c.rtf")],
        {
            "word/a.html": "<html><body><h2>Part</h2><p>From HTML.</p></body></html>",
            "word/b.docx": docx(paragraph("From Word.")),
            "word/c.rtf": "{\\rtf1 From RTF.}",
        },
    )
    content = extract(data, OPTIONS)
    assert text_of(content) == "Own.\n\n## Part\n\nFrom HTML.\n\nFrom Word.\n"
    assert kinds(content) == [WarningKind.UNREAD_CONTENT] * 2
    assert "a chunk is not in the file" in " ".join(warning.message for warning in content.warnings)


def test_a_page_packed_as_a_message_is_read() -> None:
    message = (
        "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
        "Content-Type: text/html; charset=utf-8\n"
        "Content-Transfer-Encoding: quoted-printable\n\n<p>Gr=C3=BC=C3=9Fe</p>\n--x--\n"
    )
    body = "<w:altChunk r:id='rId1'/>"
    assert read(body, relations=[("rId1", "aFChunk", "a.mht")], parts={"word/a.mht": message}) == "Grüße\n"


def test_a_document_that_imports_itself_ends() -> None:
    inner = docx("<w:altChunk r:id='rId1'/>", [("rId1", "aFChunk", "b.docx")], {"word/b.docx": docx("")})
    for _ in range(6):
        inner = docx("<w:altChunk r:id='rId1'/>", [("rId1", "aFChunk", "b.docx")], {"word/b.docx": inner})
    assert WarningKind.UNREAD_CONTENT in kinds(extract(inner, OPTIONS))


def test_hidden_text_and_embedded_objects_are_reported() -> None:
    body = (
        f"<w:p>{run('Seen.')}<w:r><w:rPr><w:vanish/></w:rPr><w:t>Not seen.</w:t></w:r>"
        "<w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t> Shown.</w:t></w:r>"
        "<w:r><w:object><o:OLEObject xmlns:o='urn:schemas-microsoft-com:office:office'/></w:object></w:r></w:p>"
    )
    content = extract(docx(body), OPTIONS)
    assert text_of(content) == "Seen. Shown.\n"
    assert [(w.kind, w.message[:12]) for w in content.warnings] == [
        (WarningKind.HIDDEN_CONTENT, "9 characters"),
        (WarningKind.UNREAD_CONTENT, "1 embedded o"),
    ]


def test_the_strict_variant_is_read_alike() -> None:
    body = f"<w:p>{run('Said')}{reference('footnote', 2)}</w:p>" + paragraph("Two", "Heading2")
    data = docx(body, NOTE_RELATIONS, NOTES)
    assert b"purl.oclc.org" not in data
    assert text_of(extract(strict(data), OPTIONS)) == text_of(extract(data, OPTIONS))


def test_a_damaged_part_beside_the_body_costs_itself() -> None:
    body = f"<w:p>{run('Said')}{reference('footnote', 2)}{run('.')}</w:p>"
    parts = {"word/footnotes.xml": "<w:footnotes", "word/styles.xml": "no XML"}
    data = docx(body, [("rId1", "footnotes", "footnotes.xml"), ("rId2", "styles", "styles.xml")], parts)
    outcome = extract_bytes(data, DOCX, OPTIONS)
    assert outcome.state is DocumentState.EXTRACTED, outcome.message
    assert "Said" in outcome.raw_text
    assert {warning.kind for warning in outcome.warnings} == {WarningKind.DAMAGED_PART}


def test_pointers_to_nothing_cost_no_words() -> None:
    body = (
        f"<w:p><w:hyperlink r:id='rId7'>{run('a link')}</w:hyperlink>{run(' and ')}{reference('endnote', 9)}"
        f"<w:r><w:drawing><wp:inline><a:graphic><a:blip r:embed='rId8'/></a:graphic></wp:inline></w:drawing></w:r>"
        f"{run('a picture')}</w:p>"
    )
    relations = [("rId7", "hyperlink", "nowhere.xml"), ("rId8", "image", "media/none.png")]
    assert read(body, relations=relations) == "a link and a picture\n"


def test_a_damaged_body_is_corrupt() -> None:
    outcome = extract_bytes(docx("<w:p><w:r></w:p>"), DOCX, OPTIONS)
    assert outcome.reason is FailureReason.CORRUPT
    assert "word/document.xml" in (outcome.message or "")


def test_properties_and_lists() -> None:
    numbering = (
        f'<w:numbering xmlns:w="{W}"><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/>'
        '</w:lvl><w:lvl w:ilvl="1"><w:numFmt w:val="decimal"/></w:lvl></w:abstractNum><w:num w:numId="1">'
        '<w:abstractNumId w:val="0"/></w:num></w:numbering>'
    )
    item = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="1"/></w:numPr>'
    body = (
        paragraph("a", "", item.format(0))
        + paragraph("b", "", item.format(1))
        + paragraph("c", "", item.format(0))
    )
    found = read(
        body, relations=[("rId1", "numbering", "numbering.xml")], parts={"word/numbering.xml": numbering}
    )
    assert found == "- a\n  1. b\n- c\n"
