"""Citations: where a chunk's words stand, as a person reads it and as a link says it.

The model writes `[1]`, never a link; what stands here is attached afterwards from the document and its
offsets, so that there is nothing for a model to invent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rag_pipeline.documents.locators import Locator
from rag_pipeline.retrieval.text_fragments import text_directive

LocatorLike = Locator | Mapping[str, Any] | None

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})

# RFC 3986, section 3.5: what a fragment may hold unescaped, without the quote and the brackets that would end
# a link in HTML or Markdown.
_FRAGMENT_SAFE = "!$&*+,;=:@/?"


@dataclass(frozen=True)
class Citation:
    """What the marker `[index]` of an answer stands for; offsets are code points of the canonical text.

    `quote` is the chunk's content, `canonical[start:end]`; the passage that the model was given is
    `canonical[passage_start:passage_end]`.
    """

    index: int
    document_id: str
    document_name: str
    label: str
    fragment: str
    url: str | None
    quote: str
    start: int
    end: int
    passage_start: int
    passage_end: int
    cosine_distance: float

    def to_json(self) -> dict[str, Any]:
        """Return the citation as a JSON object, offsets named `from` and `to`."""
        return {
            "index": self.index,
            "document_id": self.document_id,
            "document_name": self.document_name,
            "label": self.label,
            "fragment": self.fragment,
            "url": self.url,
            "quote": self.quote,
            "from": self.start,
            "to": self.end,
            "passage_from": self.passage_start,
            "passage_to": self.passage_end,
            "cosine_distance": self.cosine_distance,
        }


@dataclass(frozen=True)
class Place:
    """A kind of place in an original file: when a locator names one, and how it is written.

    `fragment` gives the part after `#`, `label` what a person reads; `source` is the standard of the
    fragment.
    """

    name: str
    source: str
    applies: Callable[[str, Locator], bool]
    fragment: Callable[[Locator], str]
    label: Callable[[Locator], str]


def fragment(media_type: str | None, start: int, end: int, locator: LocatorLike = None) -> str:
    """Return the fragment, with its `#`, of the characters `[start, end)` of a document.

    It names the place in the original file where the locator knows one (`PLACES`), else the characters of the
    canonical text (`#char=25873,26272`, RFC 5147). A sheet's name is quoted as Excel does, not
    percent-encoded.
    """
    found = _locator(locator)
    place = _place(media_type, found)
    return f"#{place.fragment(found)}" if place else f"#char={start},{end}"


def label(section: str, media_type: str | None, locator: LocatorLike = None) -> str:
    """Return how a person names the place: section, then page, slide, cells, rows or time, as far as known.

    For example `Brakes`, `p. 3`, `Brakes, pp. 3-4`, `02:12-02:39`; '' where neither is known.
    """
    found = _locator(locator)
    place = _place(media_type, found)
    return ", ".join(part for part in (section, place.label(found) if place else "") if part)


def url(
    url_template: str, document_id: str, fragment: str, media_type: str | None = None, content: str = ""
) -> str | None:
    """Return the link to a cited place, or None where `url_template` is empty.

    `{document_id}` in the template becomes the percent-encoded id, its `/` kept; the fragment is
    percent-encoded and appended. For HTML the link also carries a text directive of the content's first and
    last words, which browsers scroll to (WICG, URL Fragment Text Directives).
    """
    if not url_template:
        return None
    # A file name that is not valid UTF-8 has its own bytes in the link.
    path = quote(document_id.encode("utf-8", "surrogateescape"), safe="/")
    link = url_template.replace("{document_id}", path)
    link += quote(fragment, safe="#" + _FRAGMENT_SAFE)
    directive = text_directive(content) if media_type in _HTML_TYPES else ""
    return f"{link}:~:{directive}" if directive else link


_FENCED_CODE = r"^ {0,3}(?P<fence>```+|~~~+).*?(?:^ {0,3}(?P=fence)|\Z)"
_CODE_SPAN = r"(?<!`)(?P<ticks>`+)(?!`)[^`\n]+(?P=ticks)(?!`)"
_CODE = re.compile(f"{_FENCED_CODE}|{_CODE_SPAN}", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"\[\s*[0-9]{1,18}(?:\s*[,;\-–]\s*[0-9]{1,18})*\s*\]")


def markers(answer: str) -> list[int]:
    """Return the source numbers an answer writes, in order, repeats included.

    Read are `[1]`, and lists and ranges inside one pair of brackets: `[1, 2]`, `[1-3]` (its ends). Code is
    left out: `a[0]` in it is no citation.
    """
    prose = _CODE.sub(" ", answer)
    return [int(number) for marker in _MARKER.findall(prose) for number in re.findall("[0-9]+", marker)]


def check_markers(answer: str, n_sources: int) -> list[int]:
    """Return the numbers in an answer that match no source of `1` to `n_sources`, each once, in order.

    An answer with any is in error: report it, do not render it as a citation.
    """
    if n_sources < 0:
        raise ValueError(f"n_sources is {n_sources}; it must be 0 or more")
    return list(dict.fromkeys(number for number in markers(answer) if not 1 <= number <= n_sources))


def _locator(value: LocatorLike) -> Locator:
    if isinstance(value, Locator):
        return value
    return Locator.from_dict(value or {})


def _place(media_type: str | None, locator: Locator) -> Place | None:
    return next((place for place in PLACES if place.applies(media_type or "", locator)), None)


def _span(first: object, last: object) -> str:
    return f"{first}" if last is None or last == first else f"{first}-{last}"


# A name that Excel reads without quotes: a word that is no cell reference, in neither of its two styles.
_PLAIN_SHEET = re.compile(r"(?![A-Za-z]{1,3}[0-9]+$)(?![Rr][0-9]*([Cc][0-9]*)?$)(?![Cc][0-9]*$)[^\W\d][\w.]*")


def _cells(locator: Locator) -> str:
    sheet = locator.sheet or ""
    if not _PLAIN_SHEET.fullmatch(sheet):
        sheet = "'" + sheet.replace("'", "''") + "'"
    return f"{sheet}!{locator.range or 'A1'}"


def _cells_label(locator: Locator) -> str:
    return _cells(locator) if locator.range else locator.sheet or ""


def _seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute:02}:{second:02}"


def _time_fragment(locator: Locator) -> str:
    times = [time for time in (locator.t_start, locator.t_end) if time is not None]
    return "t=" + ",".join(_seconds(time) for time in times)


def _time_label(locator: Locator) -> str:
    first = _clock(math.floor(locator.t_start or 0))
    # The last second that has begun belongs to the range.
    return _span(first, None if locator.t_end is None else _clock(math.ceil(locator.t_end)))


def _rows_label(locator: Locator) -> str:
    rows = _span(locator.row_first, locator.row_last)
    return f"rows {rows}" if "-" in rows else f"row {rows}"


def _pages_label(locator: Locator) -> str:
    pages = _span(locator.page, locator.page_last)
    return f"pp. {pages}" if "-" in pages else f"p. {pages}"


def _slides_label(locator: Locator) -> str:
    slides = _span(locator.page, locator.page_last)
    return f"slides {slides}" if "-" in slides else f"slide {slides}"


PLACES: tuple[Place, ...] = (
    Place(
        "cells",
        "links of Excel workbooks (#'Sheet name'!A1:C9)",
        lambda media_type, locator: locator.sheet is not None,
        _cells,
        _cells_label,
    ),
    Place(
        "time",
        "W3C Media Fragments URI 1.0, section 4.2.1 (normal play time)",
        lambda media_type, locator: locator.t_start is not None,
        _time_fragment,
        _time_label,
    ),
    Place(
        "rows",
        "RFC 7111, section 2.1",
        lambda media_type, locator: locator.row_first is not None,
        lambda locator: f"row={_span(locator.row_first, locator.row_last)}",
        _rows_label,
    ),
    Place(
        "slide",
        "slide number from 1; no standard names slides",
        lambda media_type, locator: locator.page is not None and "presentation" in media_type,
        lambda locator: f"slide={locator.page}",
        _slides_label,
    ),
    Place(
        "page",
        "PDF Open Parameters (RFC 8118, section 3)",
        lambda media_type, locator: locator.page is not None,
        lambda locator: f"page={locator.page}",
        _pages_label,
    ),
)
"""Kinds of places, the first that applies counts; a document over several pages or slides is opened at the
first."""
