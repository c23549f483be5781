from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.locators import Locator, LocatorSpan
from rag_pipeline.documents.spanned_text import Edit, SpannedText, normalised

PIECES = st.lists(
    st.text(
        alphabet=st.sampled_from(
            "ae\u0301\u0308\r\n\x00\t \ufeff\x85\ud800\udc00\u1100\u1161\u11a8한é\u09c7\u09be"
        ),
        max_size=6,
    ),
    max_size=6,
)


def located(pieces: list[str]) -> list[tuple[str, Locator]]:
    return [(piece, Locator.of_page(number)) for number, piece in enumerate(pieces, 1)]


@settings(deadline=None, max_examples=300)
@given(PIECES)
def test_pieces_give_what_the_whole_gives_and_spans_cover_it(pieces: list[str]) -> None:
    content, _ = normalised(located(pieces))
    whole, _ = normalised([("".join(pieces), Locator())])
    assert content.text == whole.text
    assert unicodedata.is_normalized("NFC", content.text)
    assert not any(c in content.text for c in "\r\x00\ufeff\x85\ud800\udc00")
    content.text.encode("utf-8")
    position = 0
    for span in content.spans:
        assert span.start == position < span.end
        position = span.end
    assert position == len(content.text)


@settings(deadline=None, max_examples=100)
@given(PIECES)
def test_normalising_twice_changes_nothing(pieces: list[str]) -> None:
    once, _ = normalised(located(pieces))
    twice, removed = normalised([(once.text, Locator())])
    assert twice.text == once.text
    assert not removed


def test_what_is_removed_is_counted() -> None:
    content, removed = normalised([("\ufeffa\r\nb\x00\x07c\ud800d\fe", Locator())])
    assert content.text == "a\nbcd\ne"
    assert dict(removed) == {
        "byte_order_marks": 1,
        "carriage_returns": 1,
        "control_characters": 2,
        "surrogates": 1,
    }


def test_a_line_end_cut_in_two_by_a_page_break_is_one() -> None:
    content, _ = normalised(located(["a\r", "\nb\r"]))
    assert content.text == "a\nb\n"


def test_neighbours_of_one_place_are_one_span() -> None:
    page = Locator.of_page(1)
    content, _ = normalised([("ab", page), ("", page), ("cd", page)])
    assert content.spans == (LocatorSpan(0, 4, page),)


def test_edits_move_the_spans() -> None:
    one, two = Locator.of_page(1), Locator.of_page(2)
    content = SpannedText("0123456789", (LocatorSpan(0, 5, one), LocatorSpan(5, 10, two)))
    # "3456" goes, and "#" is put before what page 2 starts with after it.
    edited = content.edited([Edit(3, 7), Edit(7, 7, "#")])
    assert edited.text == "012#789"
    assert edited.spans == (LocatorSpan(0, 3, one), LocatorSpan(3, 7, two))


def test_a_span_cut_out_whole_goes() -> None:
    one, two = Locator.of_page(1), Locator.of_page(2)
    content = SpannedText("abcd", (LocatorSpan(0, 2, one), LocatorSpan(2, 4, two)))
    assert content.edited([Edit(2, 4)]).spans == (LocatorSpan(0, 2, one),)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5),
    st.sets(st.integers(0, 19), max_size=6),
    st.text("xy", max_size=2),
)
def test_spans_still_cover_every_character_after_edits(
    pieces: list[str], marks: set[int], replacement: str
) -> None:
    content, _ = normalised(located(pieces))
    cuts = sorted(mark for mark in marks if mark < len(content.text))
    edits = [Edit(a, b, replacement) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    edited = content.edited(edits)
    covered = "".join(edited.text[span.start : span.end] for span in edited.spans)
    assert covered == edited.text
