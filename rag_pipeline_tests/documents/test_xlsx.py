from __future__ import annotations

import datetime as dt
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents import xlsx as module
from rag_pipeline.documents.a1 import column_letters, parse_range
from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Content, ExtractionFailure, extract_bytes
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.media_types import ODS, XLS, XLSX
from rag_pipeline.documents.office_package import open_package
from rag_pipeline.documents.sheet_parts import sheet_notes
from rag_pipeline.documents.states import FailureReason, WarningKind
from rag_pipeline.documents.xlsx import extract
from rag_pipeline.retrieval.citations import fragment, label
from rag_pipeline_tests.documents.conftest import text_of
from rag_pipeline_tests.documents.office_files import A, strict, text_cell, xlsx, zipped

OPTIONS = ExtractionConfig()
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def read(data: str, name: str = "S") -> str:
    return text_of(extract(xlsx({name: data}), OPTIONS))


def kinds(content: Content) -> list[WarningKind]:
    return [warning.kind for warning in content.warnings]


def test_values_are_written_as_their_readers_see_them() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["what", "value"])
    for what, value in [
        ("whole", 7.0),
        ("long", 1234567890123451),
        ("huge", 1e21),
        ("sum", 0.1 + 0.2),
        ("small", 0.0000125),
        ("truth", True),
        ("day", dt.date(2018, 9, 20)),
        ("moment", dt.datetime(2018, 9, 20, 8, 30)),
        ("clock", dt.time(7, 5)),
        ("length", dt.timedelta(hours=30)),
        ("code", "007"),
        ("lines", "a\nb | c"),
    ]:
        sheet.append([what, value])
    file = io.BytesIO()
    book.save(file)
    rows = text_of(extract(file.getvalue(), OPTIONS)).splitlines()
    assert [row.split(" | ", 1)[1].removesuffix(" |") for row in rows[4:] if row.startswith("| ")] == [
        "7",
        "1234567890123451",
        "1000000000000000000000",
        "0.3",
        "0.0000125",
        "TRUE",
        "2018-09-20",
        "2018-09-20 08:30:00",
        "07:05:00",
        "30:00:00",
        "007",
        "a b \\| c",
    ]


def test_percentages_are_written_as_such() -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for value, code in [
        (0.035, "0.00%"),
        (0.12345, "0%"),
        (1, "0%"),
        (0.5, '0.0"%"'),
        (0.07, '"to "0.0 %;-0.0 %'),
    ]:
        sheet.append(["x", value])
        sheet.cell(sheet.max_row, 2).number_format = code
    file = io.BytesIO()
    book.save(file)
    rows = text_of(extract(file.getvalue(), OPTIONS)).splitlines()
    assert [row for row in rows if row.startswith("| x")] == [
        "| x | 3.50% |",
        "| x | 12.345% |",
        "| x | 100% |",
        "| x | 0.5 |",
        "| x | 7.0% |",
    ]


def test_every_row_has_the_place_of_its_cells() -> None:
    data = xlsx(
        {
            "Q3 results": f"<row r='2'>{text_cell('B2', 'name')}{text_cell('D2', 'docks')}</row>"
            f"<row r='3'>{text_cell('B3', 'Old Quay')}<c r='D3'><v>24</v></c></row>"
        }
    )
    document = canonicalise("a.xlsx", extract_bytes(data, XLSX, OPTIONS), OPTIONS)
    assert document.text == "## Q3 results\n\n| name | docks |\n| --- | --- |\n| Old Quay | 24 |\n"
    at = document.text.index("Old Quay")
    place = resolve(document.locators, at, at + 8)
    assert fragment(XLSX, at, at + 8, place) == "#'Q3 results'!B3:D3"
    assert label("", XLSX, resolve(document.locators, 0, len(document.text))) == "'Q3 results'!B2:D3"
    assert (document.locators[0].start, document.locators[-1].end) == (0, len(document.text))


def test_empty_rows_part_tables_and_a_lone_first_cell_is_a_caption() -> None:
    rows = (
        f"<row r='1'>{text_cell('A1', 'Tariffs 2024')}</row>"
        f"<row r='2'>{text_cell('A2', 'code')}{text_cell('B2', 'price')}</row>"
        f"<row r='3'>{text_cell('A3', 'R1')}<c r='B3'><v>2.5</v></c></row>"
        "<row r='4'><c r='A4' s='0'/></row>"
        f"<row r='9'>{text_cell('C9', 'Valid from May')}</row>"
    )
    assert read(rows) == (
        "## S\n\n| Tariffs 2024 |\n\n| code | price |\n| --- | --- |\n| R1 | 2.5 |\n\n| Valid from May |\n"
    )


def test_long_tables_are_cut_between_rows_and_repeat_their_header() -> None:
    rows = f"<row r='1'>{text_cell('A1', 'station')}{text_cell('B1', 'remark')}</row>"
    for number in range(2, 42):
        rows += f"<row r='{number}'><c r='A{number}'><v>{number}</v></c>{text_cell(f'B{number}', 'word. ' * 6)}</row>"
    data = xlsx({"S": rows})
    document = canonicalise("a.xlsx", extract_bytes(data, XLSX, OPTIONS), OPTIONS)
    parts = document.text.removeprefix("## S\n\n").rstrip("\n").split("\n\n")
    assert len(parts) > 3
    assert all(part.startswith("| station | remark |\n| --- | --- |\n| ") for part in parts)
    assert all(len(part) <= 512 for part in parts)
    assert [line for part in parts for line in part.split("\n")[2:]] == [
        f"| {number} | {('word. ' * 6).strip()} |" for number in range(2, 42)
    ]
    # A repeated header belongs to the row below it: a citation of the last part names its own rows.
    start = document.text.rindex("| station")
    place = resolve(document.locators, start, len(document.text))
    assert place.range is not None
    assert parse_range(place.range).first_row > 30


def test_hidden_sheets_are_left_out_and_reported() -> None:
    cell = "<row r='1'><c r='A1'><v>{}</v></c></row>"
    data = xlsx(
        {"Seen": cell.format(1), "Hid": cell.format(2), "Very": cell.format(3)},
        {"Hid": "hidden", "Very": "veryHidden"},
    )
    content = extract(data, OPTIONS)
    assert text_of(content) == "## Seen\n\n| 1 |\n"
    assert [warning.message for warning in content.warnings] == [
        "the sheet 'Hid' is hidden and was left out",
        "the sheet 'Very' is hidden and was left out",
    ]


def test_formulas_stand_by_their_value_else_as_they_are() -> None:
    rows = (
        "<row r='1'><c r='A1'><v>2</v></c><c r='B1'><f>A1*2</f><v>4</v></c><c r='C1'><f>A1*3&lt;7</f></c></row>"
        "<row r='2'><c r='A2' t='e'><f>1/0</f><v>#DIV/0!</v></c><c r='B2' t='str'><f>\"\"</f><v></v></c></row>"
        "<row r='4'><c r='A4'><f t='shared' ref='A4:B4' si='0'>A1+1</f></c><c r='B4'><f t='shared' si='0'/></c></row>"
    )
    content = extract(xlsx({"S": rows}), OPTIONS)
    assert text_of(content) == (
        "## S\n\n| 2 | 4 | =A1*3<7 |\n| --- | --- | --- |\n| #DIV/0! |  |  |\n\n| =A1+1 | =B1+1 |\n"
    )
    assert kinds(content) == [WarningKind.FORMULA_WITHOUT_VALUE]
    assert content.warnings[0].message.startswith("3 formulas of the sheet 'S'")
    assert content.warnings[0].message.endswith("C1, A4, B4")


def test_millions_of_empty_rows_cost_nothing() -> None:
    empty = "".join(f"<row r='{number}'><c r='A{number}' s='0'/></row>" for number in range(2, 20_000))
    assert read("<row r='1'><c r='A1'><v>1</v></c></row>" + empty) == "## S\n\n| 1 |\n"


def test_a_stray_cell_in_the_last_corner_does_not_fill_the_space_between() -> None:
    rows = f"<row r='1'>{text_cell('A1', 'here')}</row><row r='1048576'><c r='XFD1048576'><v>5</v></c></row>"
    content = extract(xlsx({"S": rows}), OPTIONS)
    assert [(s.text, s.locator.range) for s in content.segments] == [
        ("## S\n\n", "A1"),
        ("| here |\n\n", "A1"),
        ("| 5 |\n", "XFD1048576"),
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=12, unique=True))
def test_the_reach_of_a_sheet_is_its_last_cell_with_something_in_it(cells: list[tuple[int, int]]) -> None:
    body = "".join(
        f"<c r='{column_letters(c)}{r}' s='1'><v>1</v></c><c r=\"ZZ99999\" s='1'/>" for r, c in cells
    )
    package = open_package(xlsx({"S": f"<row>{body}</row>"}), XLSX)
    notes = sheet_notes(package, "xl/worksheets/sheet1.xml", {})
    assert (notes.last_row, notes.last_column) == (max(r for r, _ in cells), max(c for _, c in cells))


def test_comments_and_texts_of_shapes() -> None:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    drawing = "http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"
    content = extract(
        xlsx(
            {"S": "<row r='1'><c r='A1'><v>1</v></c></row>"},
            relations={1: [("rId1", "comments", "../comments1.xml"), ("rId2", "drawing", "../drawing1.xml")]},
            parts={
                "xl/comments1.xml": f'<comments xmlns="{main}"><commentList><comment ref="A1"><text>'
                "<r><t>Check </t></r><r><t>this</t></r></text></comment></commentList></comments>",
                "xl/drawing1.xml": f'<x:wsDr xmlns:x="{drawing}" xmlns:a="{A}"><x:twoCellAnchor><x:from>'
                "<x:col>2</x:col>"
                "<x:row>4</x:row></x:from><x:sp><x:txBody><a:p><a:r><a:t>In a shape</a:t></a:r></a:p></x:txBody></x:sp>"
                "</x:twoCellAnchor></x:wsDr>",
            },
        ),
        OPTIONS,
    )
    assert text_of(content) == "## S\n\n| 1 |\n\nIn a shape\n"
    assert content.segments[-1].locator.range == "C5"
    assert content.metadata["comments"] == ["S!A1: Check this"]
    assert kinds(content) == [WarningKind.COMMENTS_LEFT_OUT]


def test_a_damaged_part_beside_the_sheet_is_reported() -> None:
    content = extract(
        xlsx(
            {"S": "<row r='1'><c r='A1'><v>1</v></c></row>"},
            relations={1: [("rId1", "comments", "../comments1.xml")]},
            parts={"xl/comments1.xml": "<comments"},
        ),
        OPTIONS,
    )
    assert text_of(content) == "## S\n\n| 1 |\n"
    assert kinds(content) == [WarningKind.DAMAGED_PART]


def test_a_damaged_sheet_costs_itself() -> None:
    good = "<row r='1'><c r='A1'><v>1</v></c></row>"
    content = extract(xlsx({"Bad": "<row r='1'><c", "Good": good}), OPTIONS)
    assert text_of(content) == "## Good\n\n| 1 |\n"
    assert [(warning.kind, warning.message[:15]) for warning in content.warnings] == [
        (WarningKind.DAMAGED_PART, "the sheet 'Bad'")
    ]
    outcome = extract_bytes(xlsx({"Bad": "<row r='1'><c"}), XLSX, OPTIONS)
    assert outcome.reason is FailureReason.CORRUPT


def test_the_strict_variant_is_read_alike() -> None:
    data = xlsx({"S": f"<row r='1'>{text_cell('A1', 'x')}<c r='B1'><f>1+1</f></c></row>"})
    assert text_of(extract(strict(data), OPTIONS)) == text_of(extract(data, OPTIONS))


def test_too_much_text_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"<row r='{n}'>{text_cell(f'A{n}', 'x' * 1000)}</row>" for n in range(1, 1200))
    with pytest.raises(ExtractionFailure, match=r"raise extraction\.max_output_mb"):
        extract(xlsx({"S": rows}), ExtractionConfig(max_output_mb=1))


def test_a_panic_of_the_reader_is_a_named_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*arguments: object) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(module, "_read_sheets", panics)
    outcome = extract_bytes(xlsx({"S": ""}), XLSX, OPTIONS)
    assert (outcome.reason, "out of bounds" in (outcome.message or "")) == (FailureReason.CORRUPT, True)


@pytest.mark.parametrize("media_type", [XLSX, XLS])
def test_what_is_no_workbook_is_refused(media_type: str) -> None:
    ole2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504
    assert extract_bytes(ole2, media_type, OPTIONS).reason in (
        FailureReason.CORRUPT,
        FailureReason.WRONG_TYPE,
    )
    locked = ole2 + "EncryptedPackage".encode("utf-16-le")
    assert extract_bytes(locked, media_type, OPTIONS).reason is FailureReason.ENCRYPTED


OPEN_DOCUMENT = """<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">
<office:body><office:spreadsheet><table:table table:name="Open">
<table:table-row><table:table-cell office:value-type="string"><text:p>name</text:p></table:table-cell>
<table:table-cell office:value-type="string"><text:p>docks</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell office:value-type="string"><text:p>Quay</text:p></table:table-cell>
<table:table-cell office:value-type="float" office:value="24"><text:p>24</text:p></table:table-cell></table:table-row>
</table:table></office:spreadsheet></office:body></office:document-content>"""


def test_open_document_sheets_are_read_by_the_same_reader() -> None:
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        '<manifest:file-entry manifest:full-path="/" manifest:media-type="x"/></manifest:manifest>'
    )
    data = zipped(
        {
            "mimetype": ODS,
            "content.xml": OPEN_DOCUMENT.replace("\n<", "<").replace("\n", " "),
            "META-INF/manifest.xml": manifest,
            "styles.xml": "<x/>",
        }
    )
    outcome = extract_bytes(data, ODS, OPTIONS)
    assert [segment.text for segment in outcome.segments] == [
        "## Open\n\n",
        "| name | docks |\n| --- | --- |\n",
        "| Quay | 24 |\n",
    ], outcome.message
    assert outcome.segments[-1].locator.range == "A2:B2"


def test_workbooks_of_1997_are_read_by_the_same_reader() -> None:
    content = extract((FIXTURES / "workbook-1997.xls").read_bytes(), OPTIONS)
    assert text_of(content) == (
        "## Old\n\n| name | day |\n| --- | --- |\n| Quay | 2018-09-20 |\n| 12 | TRUE |\n"
    )
    assert kinds(content) == [WarningKind.HIDDEN_CONTENT]
