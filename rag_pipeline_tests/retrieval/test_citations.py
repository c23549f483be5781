from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.locators import Locator
from rag_pipeline.retrieval.citations import PLACES, Citation, check_markers, fragment, label, markers, url

PDF = "application/pdf"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@pytest.mark.parametrize(
    ("media_type", "locator", "expected_fragment", "expected_label"),
    [
        ("text/markdown", None, "#char=25873,26272", "S"),
        ("text/plain", Locator(), "#char=25873,26272", "S"),
        (None, {}, "#char=25873,26272", "S"),
        (PDF, Locator(page=12, page_last=12), "#page=12", "S, p. 12"),
        (PDF, {"page": 3, "page_last": None}, "#page=3", "S, p. 3"),
        (PDF, {"page": 3, "page_last": 4}, "#page=3", "S, pp. 3-4"),
        (PPTX, Locator(page=3, page_last=3), "#slide=3", "S, slide 3"),
        (PPTX, Locator(page=3, page_last=5), "#slide=3", "S, slides 3-5"),
        ("text/vtt", Locator(t_start=132.4, t_end=158.9), "#t=132.4,158.9", "S, 02:12-02:39"),
        ("text/vtt", Locator(t_start=0.0, t_end=3725.0), "#t=0,3725", "S, 00:00-1:02:05"),
        ("text/vtt", Locator(t_start=59.9994), "#t=59.999", "S, 00:59"),
        ("text/csv", Locator(row_first=5, row_last=9), "#row=5-9", "S, rows 5-9"),
        ("text/csv", Locator(row_first=5, row_last=5), "#row=5", "S, row 5"),
        (XLSX, Locator(sheet="Stations", range="A1:C9"), "#Stations!A1:C9", "S, Stations!A1:C9"),
        (XLSX, Locator(sheet="Q3 results", range="A1:C9"), "#'Q3 results'!A1:C9", "S, 'Q3 results'!A1:C9"),
        (XLSX, Locator(sheet="Bob's", range="B2"), "#'Bob''s'!B2", "S, 'Bob''s'!B2"),
        (XLSX, Locator(sheet="Q3 results"), "#'Q3 results'!A1", "S, Q3 results"),
    ],
)
def test_places(
    media_type: str | None,
    locator: Locator | dict[str, Any] | None,
    expected_fragment: str,
    expected_label: str,
) -> None:
    assert fragment(media_type, 25873, 26272, locator) == expected_fragment
    assert label("S", media_type, locator) == expected_label
    assert label("", media_type, locator) == expected_label.removeprefix("S").removeprefix(", ")


@pytest.mark.parametrize(
    "sheet", ["A1", "xfd12", "R1C1", "rc", "R", "C", "R5", "2024", "a-b", "a b", "", "Mai!"]
)
def test_sheets_that_excel_would_misread_are_quoted(sheet: str) -> None:
    assert fragment(XLSX, 0, 1, Locator(sheet=sheet, range="A1")) == f"#'{sheet}'!A1"


@pytest.mark.parametrize("sheet", ["Sheet1", "Übersicht", "_x", "a.b", "RC_1", "Quarter1"])
def test_plain_sheets_are_not_quoted(sheet: str) -> None:
    assert fragment(XLSX, 0, 1, Locator(sheet=sheet, range="A1")) == f"#{sheet}!A1"


def test_every_kind_of_place_names_its_source() -> None:
    assert len({place.name for place in PLACES}) == len(PLACES)
    assert all(place.source for place in PLACES)


# --- URLs

TEMPLATE = "https://kb.example/{document_id}"


@pytest.mark.parametrize(
    ("document_id", "where", "media_type", "content", "expected"),
    [
        ("a/b.md", "#char=3,9", "text/markdown", "x", "https://kb.example/a/b.md#char=3,9"),
        (
            "Ü 1/50%#?.pdf",
            "#page=3",
            PDF,
            "",
            "https://kb.example/%C3%9C%201/50%25%23%3F.pdf#page=3",
        ),
        (
            "q.xlsx",
            "#'Q3 results'!A1:C9",
            XLSX,
            "",
            "https://kb.example/q.xlsx#%27Q3%20results%27!A1:C9",
        ),
        (
            "a.html",
            "#char=0,5",
            "text/html",
            "Brake pads",
            "https://kb.example/a.html#char=0,5:~:text=Brake%20pads",
        ),
        ("a.html", "#char=0,5", "text/html", "---", "https://kb.example/a.html#char=0,5"),
        ("caf\udce9.md", "#char=0,5", None, "", "https://kb.example/caf%E9.md#char=0,5"),
    ],
)
def test_url(document_id: str, where: str, media_type: str | None, content: str, expected: str) -> None:
    assert url(TEMPLATE, document_id, where, media_type, content) == expected


def test_no_template_no_url() -> None:
    assert url("", "a.md", "#char=0,1") is None


def test_a_template_without_the_document() -> None:
    assert url("https://kb.example/all", "a.md", "#char=0,1") == "https://kb.example/all#char=0,1"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), st.text(max_size=20))
@settings(deadline=None, max_examples=200)
def test_urls_are_ascii_and_lead_back(document_id: str, sheet: str) -> None:
    sheet = "".join(character for character in sheet if not "\ud800" <= character <= "\udfff")
    where = fragment(XLSX, 0, 1, Locator(sheet=sheet, range="A1"))
    link = url(TEMPLATE, document_id, where, XLSX)
    assert link is not None
    assert link.isascii() and not set(link) & set(" \"'<>()[]")
    parts = urlsplit(link)
    assert unquote(parts.path).removeprefix("/") == document_id
    assert "#" + unquote(parts.fragment) == where


# --- text directives of HTML


@pytest.mark.parametrize(
    ("content", "directive"),
    [
        ("Replace the brake pads.", "text=Replace%20the%20brake%20pads."),
        ("one-way, a & b", "text=one%2Dway%2C%20a%20%26%20b"),
        ("a b c d e f g h i j k", "text=a%20b%20c%20d%20e,g%20h%20i%20j%20k"),
        ("First line\n\nlast line", "text=First%20line,last%20line"),
        ("### Sub\n\n- [x] do *this*\n2. and **that**", "text=Sub,and%20that"),
        ("| code | meaning |\n|---|---|\n| E1 | low **air** |", "text=code,low%20air"),
        ("> quoted [link](http://x/y) ![alt](i.png)", "text=quoted%20link"),
        (
            "`snake_case` keeps snake_case and 2 * 3",
            "text=snake_case%20keeps%20snake_case%20and%202%20%2A%203",
        ),
        ("**_both_** and \\*escaped\\*", "text=both%20and%20%2Aescaped%2A"),
        ("`*a*` and \\\\ or ``b ` c``", "text=%2Aa%2A%20and%20%5C%20or%20b%20%60%20c"),
        ("<b>bold</b> 1 < 2", "text=bold%201%20%3C%202"),
        ("```sh\n# comment\nrun *.md\n```", "text=%23%20comment,run%20%2A.md"),
        ("word " * 500 + "end.", "text=word%20word%20word%20word%20word,word%20word%20word%20word%20end."),
        ("|" + " cell |" * 500 + " last |", "text=cell,last"),
        ("same\nsame", "text=same"),
        ("> | a b | c |", "text=a%20b,c"),
        ("0.50 | rear wheel |\n| BL-1 | front", "text=0.50,front"),
        ("漢" * 130, f"text={'%E6%BC%A2' * 60},{'%E6%BC%A2' * 60}"),
    ],
)
def test_text_directive(content: str, directive: str) -> None:
    link = url(TEMPLATE, "a.html", "#char=0,1", "text/html", content)
    assert link == f"https://kb.example/a.html#char=0,1:~:{directive}"


@given(st.text(max_size=80))
@settings(deadline=None, max_examples=300)
def test_a_directive_has_at_most_two_terms(content: str) -> None:
    content = "".join(character for character in content if not "\ud800" <= character <= "\udfff")
    link = url(TEMPLATE, "a.html", "", "text/html", content) or ""
    directive = link.partition(":~:")[2]
    assert directive.count(",") <= 1
    assert "-" not in directive and "&" not in directive


# --- markers


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("No citation. [a] [ ] [-1] []", []),
        ("Pads wear [1]. Tyres too[2][1].", [1, 2, 1]),
        ("Both [1, 3; 2] and [4-6] and [7–8].", [1, 3, 2, 4, 6, 7, 8]),
        ("Code `x[9]` and\n```\ny[8]\n```\nthen [1]", [1]),
        ("~~~\nz[5]", []),
        ("[00012]", [12]),
    ],
)
def test_markers(answer: str, numbers: list[int]) -> None:
    assert markers(answer) == numbers


@pytest.mark.parametrize(
    ("answer", "n_sources", "unknown"),
    [
        ("Fine [1][2].", 2, []),
        ("Wrong [3], [0], [3] and [2].", 2, [3, 0]),
        ("In a list [1, 4].", 3, [4]),
        ("Anything [1].", 0, [1]),
        ("A tick ` alone\nhides nothing [9] `", 2, [9]),
        ("", 0, []),
    ],
)
def test_check_markers(answer: str, n_sources: int, unknown: list[int]) -> None:
    assert check_markers(answer, n_sources) == unknown


def test_check_markers_wrong_number() -> None:
    with pytest.raises(ValueError, match="n_sources is -1; it must be 0 or more"):
        check_markers("", -1)


def test_citation_to_json() -> None:
    citation = Citation(1, "a/b.md", "b.md", "S", "#char=3,9", None, "quoted", 3, 9, 0, 9, 0.25)
    assert json.loads(json.dumps(citation.to_json())) == {
        "index": 1,
        "document_id": "a/b.md",
        "document_name": "b.md",
        "label": "S",
        "fragment": "#char=3,9",
        "url": None,
        "quote": "quoted",
        "from": 3,
        "to": 9,
        "passage_from": 0,
        "passage_to": 9,
        "cosine_distance": 0.25,
    }
