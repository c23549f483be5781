"""Places in the original file, and the map from the canonical text to them.

A document whose format has places (pages, times, cells, rows) carries a sorted list of spans in which every
character of its canonical text lies exactly once. A chunk's place is resolved from the spans it touches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rag_pipeline.documents import a1


@dataclass(frozen=True)
class Locator:
    """A place in the original file; only the fields of the document's kind are set.

    Pages and slides, and rows of a CSV file, count from 1 and both ends are inclusive; times are seconds.
    """

    page: int | None = None
    page_last: int | None = None
    t_start: float | None = None
    t_end: float | None = None
    sheet: str | None = None
    range: str | None = None
    row_first: int | None = None
    row_last: int | None = None

    @classmethod
    def of_page(cls, page: int) -> Locator:
        """Return the place of one page or slide."""
        return cls(page=page, page_last=page)

    @property
    def is_null(self) -> bool:
        """True where no place is known."""
        return self == _NOWHERE

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as the Arrow struct `LOCATOR` wants them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Locator:
        """Return the locator whose fields stand in `values`; other keys are left alone."""
        return cls(**{name: values.get(name) for name in _FIELDS})


_FIELDS = tuple(field.name for field in fields(Locator))
_NOWHERE = Locator()


@dataclass(frozen=True)
class LocatorSpan:
    """The characters `[start, end)` of the canonical text and their place."""

    start: int
    end: int
    locator: Locator

    def to_dict(self) -> dict[str, Any]:
        """Return the span as the Arrow struct `LOCATOR_SPAN` wants it."""
        return {"from": self.start, "to": self.end, **self.locator.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LocatorSpan:
        """Return the span that `to_dict` gave."""
        return cls(int(values["from"]), int(values["to"]), Locator.from_dict(values))


def resolve(spans: Sequence[LocatorSpan], start: int, end: int) -> Locator:
    """Return the place of the characters `[start, end)`: the union of the places of the spans they touch.

    `spans` is sorted and free of overlaps. Pages, rows and times run from the first to the last. Cells are
    those of the first sheet touched, since no reference names cells of two sheets. Without spans the locator
    is null. An empty range has the place of the character at `start`.
    """
    end = max(end, start + 1)
    touched: list[Locator] = []
    for span in spans[bisect_right(spans, start, key=lambda span: span.end) :]:
        if span.start >= end:
            break
        touched.append(span.locator)
    if len(touched) == 1:
        return touched[0]
    pages = [page for place in touched for page in (place.page, place.page_last) if page is not None]
    times = [time for place in touched for time in (place.t_start, place.t_end) if time is not None]
    rows = [row for place in touched for row in (place.row_first, place.row_last) if row is not None]
    sheet = next((place.sheet for place in touched if place.sheet is not None), None)
    cells = [
        a1.parse_range(place.range) for place in touched if place.sheet == sheet and place.range is not None
    ]
    return Locator(
        page=min(pages, default=None),
        page_last=max(pages, default=None),
        t_start=min(times, default=None),
        t_end=max(times, default=None),
        sheet=sheet,
        range=str(a1.union(cells)) if cells else None,
        row_first=min(rows, default=None),
        row_last=max(rows, default=None),
    )
