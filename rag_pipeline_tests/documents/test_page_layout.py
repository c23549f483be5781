from __future__ import annotations

import pytest

from rag_pipeline.documents import page_layout
from rag_pipeline.documents.markdown_structure import headings
from rag_pipeline.documents.page_layout import PageBlock, Piece, TextLine

NONE: frozenset[str] = frozenset()


def line(
    text: str, y: float, *, x: float = 50.0, size: float = 10.0, bold: bool = False, monospace: bool = False
) -> TextLine:
    width = page_layout.estimated_width(text, size, monospace=monospace)
    return TextLine((Piece(text, x, x + width, y, size, bold, monospace),))


def row(y: float, *cells: tuple[float, str]) -> TextLine:
    return TextLine(tuple(Piece(text, x, x + 5.0 * len(text), y, 10.0) for x, text in cells))


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
    ],
)
def test_hyphens_at_line_ends(first: str, second: str, compounds: frozenset[str], whole: str) -> None:
    assert page_layout.joined([first, second], compounds) == whole


def test_soft_hyphens_inside_words_vanish() -> None:
    assert page_layout.joined(["main\u00adtenance"], NONE) == "maintenance"


def test_ligatures_are_taken_apart_and_nothing_else_is_folded() -> None:
    assert page_layout.fold_ligatures("e\ufb03cient \ufb02ow, x² ½ Å") == "efficient flow, x² ½ Å"


WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


def test_running_lines_go_and_the_text_stays() -> None:
    pages = [
        [
            line("Depot rules, edition 7", 800),
            line("Part 2", 790, x=400),
            *(line(f"{page} {word}", 700 - 12 * k) for k, word in enumerate(WORDS)),
            line(f"- {number} of 40 -", 30 + number % 2),
        ]
        for number, page in enumerate(WORDS[:5], 11)
    ]
    kept = page_layout.without_running_lines(pages)
    assert [item.text for item in kept[2]] == [f"gamma {word}" for word in WORDS]


@pytest.mark.parametrize(
    "pages",
    [
        # Twice is no repetition.
        [[line("Title", 800), line("a", 700)], [line("Title", 800), line("b", 700)]],
        # The same words with numbers that do not count with the pages: a value, not a page number.
        [
            [line(f"Torque: {value} Nm", 800), line(name, 700)]
            for value, name in zip((25, 9, 42, 38), "abcd", strict=True)
        ],
        # The same words at other heights.
        [[line("Note", 800 - 50 * n), line("abcde"[n], 300)] for n in range(5)],
        # Three of twenty pages, spread out.
        [[line("Annex" if n % 7 == 0 else f"{'abcdefghijklmnopqrst'[n]}", 800)] for n in range(20)],
    ],
)
def test_lines_without_enough_repetition_stay(pages: list[list[TextLine]]) -> None:
    assert page_layout.without_running_lines(pages) == pages


def test_headers_of_a_chapter_go_although_most_pages_have_another() -> None:
    chapters = ["Alpha"] * 4 + ["Beta"] * 4 + ["Gamma"] * 4
    pages = [
        [line(name, 800), *(line(f"{word} {page}", 600 - 40 * k) for k, word in enumerate(WORDS))]
        for page, name in zip("abcdefghijkl", chapters, strict=True)
    ]
    assert all(lines[0].text.startswith("alpha ") for lines in page_layout.without_running_lines(pages))


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


def test_a_page_without_lines_has_no_block() -> None:
    assert blocks([]) == []
