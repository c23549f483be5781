from __future__ import annotations

from dataclasses import replace

import pytest

from rag_pipeline.documents import page_layout
from rag_pipeline.documents.markdown_structure import headings
from rag_pipeline.documents.page_layout import PageBlock
from rag_pipeline.documents.page_lines import TextLine
from rag_pipeline_tests.documents.page_fixtures import line, row

NONE: frozenset[str] = frozenset()


def blocks(*pages: list[TextLine]) -> list[PageBlock]:
    style = page_layout.style_of(pages)
    compounds = page_layout.hyphenated_words(pages)
    return [block for lines in pages for block in page_layout.blocks_of(lines, style, compounds)]


def test_wrapped_lines_are_one_paragraph_and_a_gap_starts_the_next() -> None:
    found = blocks([line("one", 700), line("two.", 688), line("three", 660), line("four", 648)])
    assert found == [PageBlock("paragraph", "one two."), PageBlock("paragraph", "three four")]


def test_an_indented_line_after_a_full_stop_starts_a_paragraph() -> None:
    lines = [line("first", 700), line("ends here.", 688), line("Second", 676, x=65), line("goes on", 664)]
    assert [block.text for block in blocks(lines)] == ["first ends here.", "Second goes on"]


def test_a_sentence_goes_on_in_the_next_column() -> None:
    lines = [line("left column", 112), line("has no end", 100), line("before here.", 700, x=300)]
    assert [block.text for block in blocks(lines)] == ["left column has no end before here."]


@pytest.mark.parametrize(
    ("first", "second", "compounds", "whole"),
    [
        ("the mainte-", "nance staff", NONE, "the maintenance staff"),
        ("a well-", "known bike", frozenset({"well-known"}), "a well-known bike"),
        ("the LX-", "40 pack", NONE, "the LX-40 pack"),
        ("Anglo-", "Saxon", NONE, "Anglo-Saxon"),
        ("main\u00ad", "tenance", NONE, "maintenance"),
        ("from 3 -", "five", NONE, "from 3 - five"),
        ("plain", "words", NONE, "plain words"),
        ("吾輩は猫で", "ある。", NONE, "吾輩は猫である。"),
        ("名前は", "Neko", NONE, "名前は Neko"),
        ("우리는", "간다", NONE, "우리는 간다"),
    ],
)
def test_hyphens_at_line_ends(first: str, second: str, compounds: frozenset[str], whole: str) -> None:
    assert page_layout.joined([first, second], compounds) == whole


def test_soft_hyphens_inside_words_vanish() -> None:
    assert page_layout.joined(["main\u00adtenance"], NONE) == "maintenance"


def body(y: float) -> list[TextLine]:
    return [line("running text of the ordinary size goes on", y - 12 * n) for n in range(4)]


def test_levels_follow_sizes() -> None:
    pages = [
        [
            line("Handbook", 780, size=20),
            line("Part", 740, size=14),
            *body(700),
            line("Detail", 640, size=12),
        ],
        [line("Part two", 780, size=14), *body(700), line("More", 600, size=12), *body(560)],
    ]
    text = "\n".join(block.text for block in blocks(*pages) if block.kind == "heading")
    assert [(found.level, found.title) for found in headings(text)] == [
        (1, "Handbook"),
        (2, "Part"),
        (3, "Detail"),
        (2, "Part two"),
        (3, "More"),
    ]


def test_the_first_of_several_headings_of_one_size_is_the_title() -> None:
    pages = [
        [line("Handbook", 780, size=18), line("Part", 740, size=18), *body(700), line("Next", 600, size=18)]
    ]
    assert [block.text for block in blocks(*pages) if block.kind == "heading"] == [
        "# Handbook",
        "## Part",
        "## Next",
    ]


def test_a_wrapped_heading_is_one() -> None:
    pages = [[line("A long title", 780, size=20), line("in two lines", 757, size=20), *body(700)]]
    assert blocks(*pages)[0] == PageBlock("heading", "# A long title in two lines")


def test_a_short_bold_line_is_a_heading_and_a_bold_sentence_is_not() -> None:
    pages = [
        [
            line("Title", 780, size=20),
            *body(740),
            line("Torque", 680, bold=True),
            line("Mind the gap.", 640, bold=True),
            *body(600),
        ]
    ]
    found = blocks(*pages)
    assert PageBlock("heading", "## Torque") in found
    assert PageBlock("paragraph", "Mind the gap.") in found


def test_rows_of_cells_are_a_table() -> None:
    lines = [
        *body(700),
        row(640, (50, "Code"), (150, "Meaning")),
        row(625, (50, "E-1"), (150, "Jam")),
        *body(600),
    ]
    assert blocks(lines)[1] == PageBlock("table", "| Code | Meaning |\n| --- | --- |\n| E-1 | Jam |")


def test_cells_may_have_several_lines() -> None:
    lines = [
        line("Code", 640),
        line("Meaning", 640, x=150),
        line("E-1", 620),
        line("the lock is", 620, x=150),
        line("jam-", 608, x=150),
        line("med", 596, x=150),
        line("E-2", 580),
        line("low", 580, x=150),
    ]
    assert [block.text for block in blocks(lines)] == [
        "| Code | Meaning |\n| --- | --- |\n| E-1 | the lock is jammed |\n| E-2 | low |"
    ]


def test_two_columns_of_text_are_no_table() -> None:
    left = [line(f"left line {n} of a column of text", 700 - 12 * n) for n in range(12)]
    right = [line(f"right line {n} of a column of text", 700 - 12 * n, x=320) for n in range(12)]
    assert {block.kind for block in blocks(left + right)} == {"paragraph"}


def test_type_of_fixed_width_is_code_with_its_indentation() -> None:
    lines = [
        *body(700),
        line("if x:", 640, monospace=True),
        line("# go", 628, x=50 + 2 * 6.0, monospace=True),
        *body(600),
    ]
    assert blocks(lines)[1] == PageBlock("code", "```\nif x:\n  # go\n```")


def test_a_document_typed_in_fixed_width_is_text() -> None:
    assert blocks([line(f"typed line {n}", 700 - 12 * n, monospace=True) for n in range(3)]) == [
        PageBlock("paragraph", "typed line 0 typed line 1 typed line 2")
    ]


def test_bullets_become_items() -> None:
    found = blocks([line("• one", 700), line("and more", 688), line("• two", 676), line("2. three", 664)])
    assert found == [
        PageBlock("list", "- one and more"),
        PageBlock("list", "- two"),
        PageBlock("list", "2. three"),
    ]


def test_running_text_never_becomes_a_heading_by_its_characters() -> None:
    assert blocks([line("# of bikes", 700)]) == [PageBlock("paragraph", "\\# of bikes")]


def test_entries_of_a_table_of_contents_stay_apart_and_are_no_headings() -> None:
    entries = [line("1 Start . . . . . . . 3", 700, size=14), line("1.1 Parts . . . . . . . 4", 686, size=14)]
    found = blocks([*entries, *body(640)])
    assert [block.text for block in found[:2]] == ["1 Start . . . . . . . 3", "1.1 Parts . . . . . . . 4"]
    assert {block.kind for block in found} == {"paragraph"}


def test_small_tables_do_not_make_the_text_a_heading() -> None:
    cells = [row(500 - 12 * n, (50, f"row {n}"), (150, "1,234"), (250, "5,678")) for n in range(20)]
    small = [TextLine(tuple(replace(piece, size=8.0) for piece in item.pieces)) for item in cells]
    found = blocks(
        [
            *(
                line(f"running text that is long enough to be known as such, line {n}", 700 - 12 * n)
                for n in range(6)
            ),
            *small,
        ]
    )
    assert found[0].kind == "paragraph"
    assert [block.kind for block in found].count("table") == 1


def test_titles_of_the_outline_are_headings_at_their_depth() -> None:
    pages = [[line("2.1 Care of the chain", 700), *body(670)]]
    style = page_layout.style_of(pages, {page_layout.outline_key("2.1  Care of the Chain"): 1})
    assert page_layout.blocks_of(pages[0], style, NONE)[0].text == "### 2.1 Care of the chain"


def test_a_paragraph_runs_on_to_a_page_that_starts_in_lower_case_and_not_to_small_capitals() -> None:
    before = PageBlock("paragraph", "although the")
    assert page_layout.continues(before, PageBlock("paragraph", "text goes on"))
    assert not page_layout.continues(before, PageBlock("paragraph", "tABLE 3 shows"))
    assert not page_layout.continues(PageBlock("paragraph", "It is over."), PageBlock("paragraph", "text"))


def test_a_page_without_lines_has_no_block() -> None:
    assert blocks([]) == []
