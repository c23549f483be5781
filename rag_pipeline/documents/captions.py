"""Transcripts with times: WebVTT (W3C) and SubRip (SRT), read as a person would.

A cue whose times are damaged keeps its words, with the times of its neighbours, and is reported. Cues are joined to
paragraphs, since a sentence runs over several of them; each keeps its own times. What a speaker says opens with the
speaker's name. Lines that rolling captions show twice are kept once. Notes, styles and regions are left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, ExtractionFailure, ExtractionWarning, Segment
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.states import FailureReason, WarningKind

EXTRACTOR_VERSION = "1"

# Hours may be missing (VTT) or long; the fraction is three digits by both formats and any number in the wild.
_TIME = r"(?:(\d+):)?(\d{1,3}):(\d{1,2})(?:[.,](\d+))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-{{1,2}}>\s*{_TIME}(?:\s.*)?$")
_START = re.compile(rf"\s*{_TIME}\s*-{{1,2}}>")
_END = re.compile(rf".*-{{1,2}}>\s*{_TIME}(?:\s.*)?$")
_ARROW = re.compile(r"-{1,2}>")
_SETTINGS = re.compile(r"(?:WEBVTT|Kind:|Language:|X-TIMESTAMP-MAP)", re.IGNORECASE)
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?(?:[ \t]+([^>]*))?>")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d[\d:.,]*>|</?>|\{\\[^{}]*\}")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")

# A paragraph ends where nobody speaks for so many seconds, and at the first sentence end beyond so many characters.
_PAUSE = 3.0
_PARAGRAPH = 350
_PARAGRAPH_AT_MOST = 480
# From how many repetitions, and which share of all cues, captions are taken for rolling ones.
_ROLLING_PAIRS = 3
_ROLLING_SHARE = 0.3


@dataclass(frozen=True)
class Cue:
    """Words with their times in seconds (None where the file's are damaged) and who says them ('' unknown)."""

    start: float | None
    end: float | None
    lines: tuple[str, ...]
    speaker: str = ""


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return a transcript's paragraphs, a segment a cue; the place of a cue is its time range in seconds."""
    decoded = decode(data)
    text = decoded.text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    cues, damaged = parsed(text)
    is_declared = text.lstrip("\ufeff").startswith("WEBVTT")
    if text.strip() and not is_declared and all(cue.start is None for cue in cues):
        raise ExtractionFailure(
            FailureReason.WRONG_TYPE, "the file is named as a transcript and holds no time", decoded.warnings
        )
    warnings = list(decoded.warnings)
    if damaged:
        warnings.append(
            ExtractionWarning(
                WarningKind.REPAIRED,
                f"{len(damaged)} cues have damaged times and stand with those of their neighbours: "
                + "; ".join(repr(line[:60]) for line in damaged[:3]),
            )
        )
    metadata = dict(_header(text))
    return Content(
        tuple(_segments(_rolled_up(_timed(cues)))),
        raw_text=text,
        metadata=metadata,
        warnings=tuple(warnings),
    )


def parsed(text: str) -> tuple[list[Cue], list[str]]:
    """Return the cues of a transcript (line ends `\\n`), and the first line of each whose times are damaged."""
    cues: list[Cue] = []
    damaged: list[str] = []
    for position, block in enumerate(re.split(r"\n[ \t]*\n", text.lstrip("\ufeff"))):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines or (position == 0 and _SETTINGS.match(lines[0])):
            # A cue may follow the header without the blank line that belongs there.
            lines = lines[next((n for n, line in enumerate(lines) if _ARROW.search(line)), len(lines)) :]
        if not lines or re.match(r"(?:NOTE|STYLE|REGION)(?:[ \t]|$)", lines[0]):
            continue
        cues += _cues(lines, damaged)
    return cues, damaged


def _cues(lines: list[str], damaged: list[str]) -> Iterator[Cue]:
    """Yield the cues of a block: one, or several where the blank lines between them are missing."""
    timings = [number for number, line in enumerate(lines) if _ARROW.search(line) and _START.match(line)]
    timings = timings or [number for number, line in enumerate(lines[:2]) if _ARROW.search(line)]
    if not timings:
        words = lines[1:] if len(lines) > 1 and lines[0].strip().isdecimal() else lines
        damaged.append(lines[0])
        yield from _voices(None, None, words)
        return
    start: float | None
    end: float | None
    for number, at in enumerate(timings):
        until = len(lines)
        if number + 1 < len(timings):
            until = timings[number + 1]
            until -= lines[until - 1].strip().isdecimal() and until - 1 > at
        match = _TIMES.match(lines[at])
        if match:
            start, end = _seconds(match.groups()[:4]), _seconds(match.groups()[4:])
        else:
            damaged.append(lines[at])
            first, last = _START.match(lines[at]), _END.match(lines[at])
            start = _seconds(first.groups()) if first else None
            end = _seconds(last.groups()) if last else None
        yield from _voices(start, end, lines[at + 1 : until])


def _seconds(groups: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = groups
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return round(whole + float(f"0.{fraction or 0}"), 3)


def _voices(start: float | None, end: float | None, lines: list[str]) -> Iterator[Cue]:
    """Yield the words of a cue by who says them."""
    speaker = ""
    said: list[str] = []
    for line in lines:
        position = 0
        for voice in _VOICE.finditer(line):
            said.append(line[position : voice.start()])
            name = markdown_writer.one_line(html.unescape(voice[1] or ""))
            if name != speaker:
                yield from _cue(start, end, said, speaker)
                said = []
            speaker = name
            position = voice.end()
        said.append(line[position:])
    yield from _cue(start, end, said, speaker)


def _cue(start: float | None, end: float | None, said: list[str], speaker: str) -> Iterator[Cue]:
    lines = tuple(
        filter(None, (markdown_writer.one_line(html.unescape(_TAG.sub("", line))) for line in said))
    )
    if lines:
        yield Cue(start, end, lines, speaker)


def _timed(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues with a time for each: what is damaged lies between the cue before and the cue after."""
    following: list[float | None] = []
    after: float | None = None
    for cue in reversed(cues):
        following.append(after)
        after = cue.start if cue.start is not None else after
    following.reverse()
    timed: list[Cue] = []
    before = 0.0
    for cue, next_start in zip(cues, following, strict=True):
        start = cue.start if cue.start is not None else before
        end = cue.end if cue.end is not None else next_start
        if end is None or end < start:
            end = start
        timed.append(replace(cue, start=start, end=end))
        before = end
    return timed


def _rolled_up(cues: list[Cue]) -> list[Cue]:
    """Return the cues without the lines that rolling captions repeat from one cue to the next."""
    repeated = [_overlap(one.lines, two.lines) for one, two in pairwise(cues)]
    pairs = sum(overlap > 0 for overlap in repeated)
    if pairs < _ROLLING_PAIRS or pairs < _ROLLING_SHARE * len(cues):
        return cues
    rolled: list[Cue] = []
    shown: tuple[str, ...] = ()
    for cue in cues:
        new = cue.lines[_overlap(shown, cue.lines) :]
        shown = cue.lines
        if new:
            rolled.append(replace(cue, lines=new))
        elif rolled:
            rolled[-1] = replace(rolled[-1], end=max(rolled[-1].end or 0.0, cue.end or 0.0))
    return rolled


def _overlap(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines at the end of `before` open `after`."""
    return next(
        (
            count
            for count in range(min(len(before), len(after)), 0, -1)
            if list(before[-count:]) == list(after[:count])
        ),
        0,
    )


def _segments(cues: Sequence[Cue]) -> Iterator[Segment]:
    """Yield a segment a cue; what stands between two cues belongs to the first."""
    pending: tuple[str, Locator] | None = None
    length = 0
    last: Cue | None = None
    for cue in cues:
        words = " ".join(cue.lines)
        opens = last is None or _opens_paragraph(last, cue, length, len(words))
        text = words
        if opens:
            text = markdown_writer.paragraph(f"{cue.speaker}: {words}" if cue.speaker else words)
            length = 0
        if pending is not None:
            yield Segment(pending[0] + ("\n\n" if opens else " "), pending[1])
        pending = (text, Locator(t_start=cue.start, t_end=cue.end))
        length += len(text) + 1
        last = cue
    if pending is not None:
        yield Segment(pending[0] + "\n", pending[1])


def _opens_paragraph(last: Cue, cue: Cue, length: int, growth: int) -> bool:
    if cue.speaker != last.speaker or (cue.start or 0.0) - (last.end or 0.0) >= _PAUSE:
        return True
    ended = _SENTENCE_END.search(last.lines[-1]) is not None
    return (ended and length >= _PARAGRAPH) or length + growth > _PARAGRAPH_AT_MOST


def _header(text: str) -> Iterator[tuple[str, str]]:
    """Yield what the header of a VTT file says of it, such as its language."""
    block = text.lstrip("\ufeff").split("\n\n", 1)[0]
    if block.startswith("WEBVTT"):
        for line in block.split("\n")[1:]:
            key, colon, value = line.partition(":")
            if colon and key.strip().lower() in ("kind", "language") and value.strip():
                yield key.strip().lower(), value.strip()
