from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.captions import extract
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Content, ExtractionFailure, extract_bytes
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.media_types import VTT
from rag_pipeline.documents.states import FailureReason, WarningKind
from rag_pipeline.retrieval.citations import fragment, label
from rag_pipeline_tests.documents.conftest import text_of

OPTIONS = ExtractionConfig()


def content_of(text: str) -> Content:
    return extract(text.encode(), OPTIONS)


def read(text: str) -> str:
    return text_of(content_of(text))


def times(content: Content) -> list[tuple[float | None, float | None]]:
    return [(segment.locator.t_start, segment.locator.t_end) for segment in content.segments]


VOICES = """WEBVTT - Training
Kind: captions
Language: en-GB

NOTE
made by hand

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.500 align:start
<v Mara Ines>Lift the <b>latch</b>
first.</v>

2
00:00:02.500 --> 00:00:04.000
<v Mara Ines>Then pull &amp; turn.

00:00:04.000 --> 01:00:05.000
<v.loud Tom>Like <00:00:04.500><c>this</c>?
"""


def test_cues_become_paragraphs_by_speaker_with_their_times() -> None:
    content = content_of(VOICES)
    assert text_of(content) == "Mara Ines: Lift the latch first. Then pull & turn.\n\nTom: Like this?\n"
    assert times(content) == [(1.0, 2.5), (2.5, 4.0), (4.0, 3605.0)]
    assert content.metadata == {"kind": "captions", "language": "en-GB"}
    assert content.warnings == ()


def test_a_cue_is_cited_by_its_seconds() -> None:
    document = canonicalise("a.vtt", extract_bytes(VOICES.encode(), VTT, OPTIONS), OPTIONS)
    at = document.text.index("Then")
    place = resolve(document.locators, at, at + 4)
    assert fragment(VTT, at, at + 4, place) == "#t=2.5,4"
    assert label("", VTT, resolve(document.locators, 0, at + 4)) == "00:01-00:04"
    assert (document.locators[0].start, document.locators[-1].end) == (0, len(document.text))


def test_two_voices_in_a_cue_are_two_paragraphs() -> None:
    assert read("WEBVTT\n\n00:01.0 --> 00:02.0\n<v A>Yes?</v> <v B>No.</v>\n") == "A: Yes?\n\nB: No.\n"


SRT = """1
00:00:00,500 --> 00:00:07,000
<i>One.</i> {\\an8}

2
Two.

3
0:0:11,89 -> 00:00:16,320 X1:1
Three
"""


def test_srt_with_a_cue_that_lost_its_times() -> None:
    content = content_of(SRT)
    assert text_of(content) == "One. Two. Three\n"
    assert times(content) == [(0.5, 7.0), (7.0, 11.89), (11.89, 16.32)]
    assert [(w.kind, w.message[:23]) for w in content.warnings] == [
        (WarningKind.REPAIRED, "1 cues have damaged tim")
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("00:00:07.000 --> 00:00:1d.890", (7.0, 11.0)),
        ("00:00:x7.000 --> 00:00:08.000", (2.0, 8.0)),
        ("--> 00:00:09.000", (2.0, 9.0)),
        ("00:00:07.000 --> ", (7.0, 11.0)),
    ],
)
def test_damaged_times_are_filled_from_the_neighbours(line: str, expected: tuple[float, float]) -> None:
    content = content_of(
        f"WEBVTT\n\n00:01.000 --> 00:02.000\nBefore\n\n{line}\nWords\n\n00:11.000 --> 00:12.000\nAfter\n"
    )
    assert times(content)[1] == expected
    assert "Words" in text_of(content)
    assert "00:" not in text_of(content)
    assert content.warnings[0].kind is WarningKind.REPAIRED


def test_missing_blank_lines_between_cues() -> None:
    content = content_of("1\n00:00:01,000 --> 00:00:02,000\nOne\n2\n00:00:02,000 --> 00:00:03,000\nTwo 2\n")
    assert text_of(content) == "One Two 2\n"
    assert times(content) == [(1.0, 2.0), (2.0, 3.0)]


def test_a_cue_right_below_the_header() -> None:
    assert read("WEBVTT\n00:01.000 --> 00:02.000\nOne\n") == "One\n"


def test_rolling_captions_say_everything_once() -> None:
    said = ["we open", "the lid and", "lift the", "pack out", "of the bike"]
    cues, shown = [], ""
    for number, line in enumerate(said):
        cues.append(f"00:0{number}.000 --> 00:0{number}.900\n{shown}{line}\n")
        cues.append(f"00:0{number}.900 --> 00:0{number + 1}.000\n{line}\n")
        shown = f"{line}\n"
    content = content_of("WEBVTT\n\n" + "\n".join(cues))
    assert text_of(content) == " ".join(said) + "\n"
    assert [round(start or 0, 1) for start, _ in times(content)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert times(content)[0] == (0.0, 1.0)


def test_a_word_said_twice_is_kept_twice() -> None:
    cues = ["Yes.", "Yes.", "No?", "Well.", "So.", "Done."]
    text = "\n".join(f"00:0{n}.000 --> 00:0{n + 1}.000\n{words}\n" for n, words in enumerate(cues))
    assert read(f"WEBVTT\n\n{text}") == "Yes. Yes. No? Well. So. Done.\n"


def test_paragraphs_end_at_pauses_and_before_they_are_long() -> None:
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n\n00:09.000 --> 00:10.000\nTwo.\n"
    assert read(text) == "One.\n\nTwo.\n"
    long = "\n".join(
        f"{n // 60:02}:{n % 60:02}.000 --> {(n + 1) // 60:02}:{(n + 1) % 60:02}.000\nword {n} goes on and on\n"
        for n in range(100)
    )
    paragraphs = read(f"WEBVTT\n\n{long}").strip().split("\n\n")
    assert len(paragraphs) > 3
    assert all(len(paragraph) <= 480 for paragraph in paragraphs)


def test_words_that_look_like_structure_are_escaped() -> None:
    assert read("WEBVTT\n\n00:01.000 --> 00:02.000\n# not a heading\n") == "\\# not a heading\n"


def test_text_without_times_is_no_transcript() -> None:
    with pytest.raises(ExtractionFailure, match="holds no time"):
        content_of("Just some words.\n\nAnd more.\n")
    assert read("WEBVTT\n") == ""


@settings(deadline=None, max_examples=80)
@given(st.text(alphabet="01:.,-> \nab<v/WEBVTTNOTE", max_size=80))
def test_anything_ends_in_text_with_places_or_a_named_failure(text: str) -> None:
    outcome = extract_bytes(text.encode(), VTT, OPTIONS)
    assert outcome.reason in (None, FailureReason.WRONG_TYPE, FailureReason.EMPTY), outcome.message
    for segment in outcome.segments:
        assert segment.locator.t_start is not None
        assert segment.locator.t_end is not None
        assert segment.locator.t_start <= segment.locator.t_end
