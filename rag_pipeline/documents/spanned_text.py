"""A text together with the places of its characters, kept in step while the text is normalised.

Every step of canonicalisation goes through this module, so that the locator map is exact whatever is removed,
replaced or inserted.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rag_pipeline.documents.locators import Locator, LocatorSpan

# Line ends other than the line feed (Unicode Standard, 5.8): vertical tab, form feed, carriage return,
# next line.
_LINE_ENDS = str.maketrans({"\v": "\n", "\f": "\n", "\r": "\n", "\x85": "\n"})
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Edit:
    """Replace the characters `[start, end)` by `replacement`; `start == end` inserts before `start`."""

    start: int
    end: int
    replacement: str = ""


@dataclass(frozen=True)
class SpannedText:
    """A text and the sorted spans of it whose place is known."""

    text: str
    spans: tuple[LocatorSpan, ...] = ()

    def edited(self, edits: Sequence[Edit]) -> SpannedText:
        """Return the text with `edits` (sorted, not overlapping) applied and the spans moved accordingly.

        Inserted characters belong to the span of the character they are put before. A span left empty goes.
        """
        if not edits:
            return self
        pieces: list[str] = []
        position = 0
        for edit in edits:
            pieces += (self.text[position : edit.start], edit.replacement)
            position = edit.end
        pieces.append(self.text[position:])
        text = "".join(pieces)
        starts = [edit.start for edit in edits]
        growth = [0, *accumulate(len(edit.replacement) - (edit.end - edit.start) for edit in edits)]

        def moved(offset: int) -> int:
            count = bisect_left(starts, offset)  # edits that begin before the offset
            if count and edits[count - 1].end > offset:
                inside = edits[count - 1]
                return inside.start + growth[count - 1] + min(offset - inside.start, len(inside.replacement))
            return offset + growth[count]

        return SpannedText(
            text, _joined((moved(span.start), moved(span.end), span.locator) for span in self.spans)
        )


def normalised(pieces: Iterable[tuple[str, Locator]]) -> tuple[SpannedText, Counter[str]]:
    """Concatenate `pieces` into one text in normal form C that holds nothing a reader cannot see.

    Line ends become `\\n`; byte order marks, control characters (other than newline and tab) and surrogates
    are removed. Returns the text with the places of its characters, and how many code points of each kind
    were removed. The text equals what normalising the concatenation as a whole gives: a piece that starts
    with a combining character hands it to the piece before.
    """
    removed: Counter[str] = Counter()
    chunks: list[tuple[str, Locator]] = []
    pending: Locator | None = None  # the place of a carriage return whose line feed may start the next piece
    for raw, locator in pieces:
        if not raw:
            continue
        text = raw
        if pending is not None and text.startswith("\n"):
            text = "\r" + text
        elif pending is not None:
            chunks.append(("\n", pending))
        pending = locator if text.endswith("\r") else None
        text = _cleaned(text.removesuffix("\r"), removed)
        head = _composing_prefix(text)
        if head and chunks:
            before, place = chunks[-1]
            chunks[-1] = (before + text[:head], place)
            text = text[head:]
        if text:
            chunks.append((text, locator))
    if pending is not None:
        chunks.append(("\n", pending))
    offset = 0
    parts: list[str] = []
    bounds: list[tuple[int, int, Locator]] = []
    for text, locator in chunks:
        part = unicodedata.normalize("NFC", text)
        parts.append(part)
        if not locator.is_null:
            bounds.append((offset, offset + len(part), locator))
        offset += len(part)
    return SpannedText("".join(parts), _joined(bounds)), removed


def _cleaned(text: str, removed: Counter[str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    short = text.replace("\r\n", "\n")
    _count(removed, "carriage_returns", len(text) - len(short))
    text = short.translate(_LINE_ENDS)
    if not text.isascii():
        short = text.replace(_BYTE_ORDER_MARK, "")
        _count(removed, "byte_order_marks", len(text) - len(short))
        text = short.encode("utf-8", "ignore").decode()
        _count(removed, "surrogates", len(short) - len(text))
    short = text.translate(_CONTROL_CHARACTERS)
    _count(removed, "control_characters", len(text) - len(short))
    return short


_CONTROL_CHARACTERS = dict.fromkeys(
    code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
)


def _count(removed: Counter[str], kind: str, characters: int) -> None:
    if characters:
        removed[kind] += characters


def _composing_prefix(text: str) -> int:
    """Return how many characters at the start of `text` may compose with what stands before them."""
    length = 0
    for character in text:
        is_jamo = "\u1160" <= character <= "\u11ff"
        if not is_jamo and not unicodedata.category(character).startswith("M"):
            break
        length += 1
    return length


def _joined(bounds: Iterable[tuple[int, int, Locator]]) -> tuple[LocatorSpan, ...]:
    """Return the non-empty spans, neighbours of the same place made one."""
    spans: list[LocatorSpan] = []
    for start, end, locator in bounds:
        if start >= end:
            continue
        if spans and spans[-1].end == start and spans[-1].locator == locator:
            spans[-1] = LocatorSpan(spans[-1].start, end, locator)
        else:
            spans.append(LocatorSpan(start, end, locator))
    return tuple(spans)
