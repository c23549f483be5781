from __future__ import annotations

import io
import zipfile

import pytest

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Content, PageInfo, extract_bytes
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.media_types import PPTX
from rag_pipeline.documents.pptx import extract
from rag_pipeline.documents.states import DocumentState, FailureReason, WarningKind
from rag_pipeline.retrieval.citations import fragment, label
from rag_pipeline_tests.documents.conftest import text_of
from rag_pipeline_tests.documents.office_files import (
    CHART,
    CHART_TABLE,
    DIAGRAM,
    A,
    P,
    frame,
    notes,
    pptx,
    shape,
    strict,
    zipped,
)

OPTIONS = ExtractionConfig()


def read(*slides: str, **more: object) -> str:
    return text_of(extract(pptx(slides, **more), OPTIONS))  # type: ignore[arg-type]


def kinds(content: Content) -> list[tuple[WarningKind, int | None]]:
    return [(warning.kind, warning.page) for warning in content.warnings]


def test_titles_are_headings_and_every_character_has_its_slide() -> None:
    data = pptx(
        [
            shape("Monthly\nreport", "ctrTitle") + shape("May 2024", "subTitle"),
            shape("Body first") + shape("Rides", "title"),
            "",
            shape("No title here"),
        ]
    )
    content = extract(data, OPTIONS)
    assert [(s.text, s.locator.page) for s in content.segments] == [
        ("# Monthly report\n\nMay 2024\n\n", 1),
        ("## Rides\n\nBody first\n\n", 2),
        ("## Slide 4\n\nNo title here\n", 4),
    ]
    assert content.pages == tuple(PageInfo(number) for number in (1, 2, 3, 4))
    document = canonicalise("a.pptx", extract_bytes(data, PPTX, OPTIONS), OPTIONS)
    assert document.title == "Monthly report"
    assert (document.locators[0].start, document.locators[-1].end) == (0, len(document.text))
    at = document.text.index("No title")
    place = resolve(document.locators, at, at + 8)
    assert fragment(PPTX, at, at + 8, place) == "#slide=4"
    both = resolve(document.locators, 0, at)
    assert label("Rides", PPTX, both) == "Rides, slides 1-4"


def test_groups_unknown_shapes_and_alternatives_are_read() -> None:
    group = f"<p:grpSp><p:nvGrpSpPr/><p:grpSpPr/><p:grpSp>{shape('deep')}</p:grpSp>{shape('near')}</p:grpSp>"
    unknown = f"<p:newShape>{shape('inside')}</p:newShape>"
    alternative = (
        f"<mc:AlternateContent><mc:Choice Requires='x'>{shape('new')}</mc:Choice>"
        f"<mc:Fallback>{shape('old')}</mc:Fallback></mc:AlternateContent>"
        f"<mc:AlternateContent><mc:Choice Requires='x'><p:pic/></mc:Choice>"
        f"<mc:Fallback>{shape('only here')}</mc:Fallback></mc:AlternateContent>"
    )
    text = read(shape("T", "title") + group + unknown + alternative + shape("odd", name="odd"))
    assert text == "## T\n\ndeep\n\nnear\n\ninside\n\nnew\n\nonly here\n\nodd\n"


def item(text: str, properties: str) -> str:
    return f"<a:p><a:pPr {properties}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>"


def test_lists_keep_their_levels_and_numbers_and_running_lines_go() -> None:
    body = "\n".join(
        [
            "one",
            item("two", 'lvl="1">'),
            item("first", "><a:buAutoNum type='arabicPeriod'/>"),
            item("second", "><a:buAutoNum type='arabicPeriod'/>"),
            item("plain", "><a:buNone/>"),
            "1) typed",
            "<a:p/>",
        ]
    )
    text = read(shape("T", "title") + shape(body, "body") + shape("Plover", "ftr") + shape("3", "sldNum"))
    assert text == "## T\n\n- one\n  - two\n2. first\n3. second\n\nplain\n\n1) typed\n"


def test_line_breaks_inside_a_paragraph_are_spaces() -> None:
    assert read(shape("<a:p><a:r><a:t>a</a:t></a:r><a:br/><a:fld><a:t>b</a:t></a:fld></a:p>")) == (
        "## Slide 1\n\na b\n"
    )


def table_cell(text: str, attributes: str = "") -> str:
    return f"<a:tc {attributes}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"


def test_tables_charts_diagrams_and_notes() -> None:
    covered = 'hMerge="1"'
    table = (
        f"<a:tbl><a:tr>{table_cell('wide')}{table_cell('', covered)}</a:tr>"
        f"<a:tr>{table_cell('a')}{table_cell('b | c')}</a:tr></a:tbl>"
    )
    shapes = (
        shape("T", "title")
        + frame(table)
        + frame("<c:chart r:id='rId2'/>")
        + frame("<dgm:relIds r:dm='rId3'/>")
    )
    text = read(
        shapes,
        relations={
            1: [
                ("rId1", "notesSlide", "../notesSlides/notesSlide1.xml"),
                ("rId2", "chart", "../charts/chart1.xml"),
                ("rId3", "diagramData", "../diagrams/data1.xml"),
            ]
        },
        parts={
            "ppt/notesSlides/notesSlide1.xml": notes("Say hello.\nThen wait."),
            "ppt/charts/chart1.xml": CHART,
            "ppt/diagrams/data1.xml": DIAGRAM,
        },
    )
    assert text == (
        "## T\n\n| wide |  |\n| --- | --- |\n| a | b \\| c |\n\n"
        f"{CHART_TABLE}\n\n- Report\n- Repair\n\n### Notes\n\nSay hello.\n\nThen wait.\n"
    )


def test_what_cannot_be_read_is_reported_with_its_slide() -> None:
    data = pptx(
        [
            shape("ok")
            + frame("<c:chart r:id='rId9'/>")
            + frame("<p:oleObj/>")
            + frame("<c:chart r:id='rId1'/>"),
            "<p:sp",
            "<p:pic><p:nvPicPr/></p:pic>",
            shape("kept"),
        ],
        relations={1: [("rId1", "chart", "../charts/chart1.xml")]},
        parts={"ppt/charts/chart1.xml": "<broken"},
        attributes={4: 'show="0"'},
    )
    content = extract(data, OPTIONS)
    assert text_of(content) == "## Slide 1\n\nok\n\n## Slide 4\n\nkept\n"
    assert kinds(content) == [
        (WarningKind.UNREAD_CONTENT, 1),
        (WarningKind.UNREAD_CONTENT, 1),
        (WarningKind.DAMAGED_PART, 1),
        (WarningKind.DAMAGED_PAGE, 2),
        (WarningKind.NO_TEXT_LAYER, 3),
        (WarningKind.HIDDEN_CONTENT, 4),
    ]


def test_hidden_shapes_are_left_out() -> None:
    content = extract(pptx([shape("seen") + shape("unseen").replace('id="2"', 'hidden="1"')]), OPTIONS)
    assert "unseen" not in text_of(content)
    assert kinds(content) == [(WarningKind.HIDDEN_CONTENT, 1)]


def test_comments_are_kept_apart() -> None:
    part = f'<p:cmLst xmlns:p="{P}" xmlns:a="{A}"><p:cm><p:text>Too long</p:text></p:cm></p:cmLst>'
    content = extract(
        pptx([shape("x")], {1: [("rId1", "comments", "../c.xml")]}, {"ppt/c.xml": part}), OPTIONS
    )
    assert content.metadata["comments"] == ["slide 1: Too long"]
    assert "Too long" not in text_of(content)


def test_a_slide_that_the_file_lacks_costs_itself() -> None:
    data = pptx([shape("a"), shape("b")])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        kept = {n: archive.read(n) for n in archive.namelist() if n != "ppt/slides/slide1.xml"}
    content = extract(zipped(kept), OPTIONS)
    assert text_of(content) == "## Slide 2\n\nb\n"
    assert kinds(content) == [(WarningKind.DAMAGED_PAGE, 1)]


def test_the_strict_variant_is_read_alike() -> None:
    shapes = shape("T", "title") + frame("<c:chart r:id='rId1'/>")
    data = pptx([shapes], {1: [("rId1", "chart", "../c.xml")]}, {"ppt/c.xml": CHART})
    assert text_of(extract(strict(data), OPTIONS)) == text_of(extract(data, OPTIONS))


def test_a_presentation_without_words_has_no_text() -> None:
    outcome = canonicalise("a.pptx", extract_bytes(pptx(["<p:pic/>"]), PPTX, OPTIONS), OPTIONS)
    assert (outcome.state, outcome.reason) == (DocumentState.FAILED, FailureReason.NO_TEXT)


@pytest.mark.parametrize("depth", [30, 200])
def test_deep_groups_end(depth: int) -> None:
    assert extract_bytes(pptx(["<p:grpSp>" * depth + shape("x") + "</p:grpSp>" * depth]), PPTX, OPTIONS)
