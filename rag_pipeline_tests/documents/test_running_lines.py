from __future__ import annotations

import pytest

from rag_pipeline.documents import running_lines
from rag_pipeline.documents.page_lines import TextLine
from rag_pipeline_tests.documents.page_fixtures import line

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
    kept = running_lines.without_running_lines(pages)
    assert [item.text for item in kept[2]] == [f"gamma {word}" for word in WORDS]


@pytest.mark.parametrize(
    "pages",
    [
        # Twice is no repetition where there are more pages.
        [[line("Title", 800), line("a", 700)], [line("Title", 800), line("b", 700)], [line("c", 700)]],
        # Nor is it one at two heights.
        [[line("Title", 800), line("a", 700)], [line("Title", 802), line("b", 700)]],
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
    assert running_lines.without_running_lines(pages) == pages


def test_headers_of_a_chapter_go_although_most_pages_have_another() -> None:
    chapters = ["Alpha"] * 4 + ["Beta"] * 4 + ["Gamma"] * 4
    pages = [
        [line(name, 800), *(line(f"{word} {page}", 600 - 40 * k) for k, word in enumerate(WORDS))]
        for page, name in zip("abcdefghijkl", chapters, strict=True)
    ]
    assert all(lines[0].text.startswith("alpha ") for lines in running_lines.without_running_lines(pages))


def numbered(texts: list[str], y: float = 30.0) -> list[list[TextLine]]:
    """Pages with three lines of text of their own and one more at the height `y`."""
    return [
        [*(line(f"{word} {page}", 700 - 12 * k) for k, word in enumerate(WORDS[:3])), line(text, y, x=300)]
        for page, text in zip("abcdefgh", texts, strict=False)
    ]


def left_over(pages: list[list[TextLine]], labels: list[str | None] | None = None) -> list[str]:
    kept = running_lines.without_running_lines(pages, labels or [])
    return [item.text for lines in kept for item in lines if item.x == 300]


@pytest.mark.parametrize(
    ("texts", "rest"),
    [
        (["iii", "iv", "v", "vi"], []),
        (["5", "6"], []),
        (["Page 5 of 9", "Page 6 of 9"], []),
        # Two pages are enough for a bare number only; other words stay once where there is no third page.
        (["Annex 5", "Annex 6"], ["Annex 5"]),
        (["5", "9"], ["5", "9"]),
        (["LEFT", "right", "LEFT", "right", "LEFT", "right"], []),
    ],
)
def test_numbers_that_count_with_the_pages(texts: list[str], rest: list[str]) -> None:
    assert left_over(numbered(texts)) == rest


def test_a_line_that_is_the_label_of_its_page_goes() -> None:
    assert left_over(numbered(["A-5"]), ["A-5"]) == []
    assert left_over(numbered(["A-5"]), ["A-6"]) == ["A-5"]


def test_a_watermark_goes_wherever_it_stands() -> None:
    slanted = [
        [
            *(line(f"{word} {page}", 700 - 12 * k) for k, word in enumerate(WORDS)),
            TextLine(line("DRAFT", 655, x=300).pieces, turn=4),
        ]
        for page in "abc"
    ]
    assert left_over(slanted) == []


def test_a_document_in_which_everything_repeats_stays_as_it_is() -> None:
    pages = [[line("Notice", 700)] for _ in range(4)]
    assert running_lines.without_running_lines(pages) == pages


def test_three_headers_on_one_baseline_hide_no_line_behind_them() -> None:
    pages = [
        [
            *(line(text, 800, x=x) for text, x in (("Left", 50), ("Middle", 250), ("Right", 450))),
            line("Second row", 788, x=300),
            *(line(f"{word} {page}", 700 - 12 * k) for k, word in enumerate(WORDS)),
        ]
        for page in "abc"
    ]
    assert left_over(pages) == []
