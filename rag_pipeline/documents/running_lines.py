"""Headers, footers, page numbers and watermarks: what repeats from page to page at the same place."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from rag_pipeline.documents.page_lines import TextLine

# A line is running matter when it stands at the same height on so many pages, and on so large a share of the
# pages between (a header may hold the chapter's title; left and right pages may differ). A line that is
# nothing but a number which counts with the pages needs no third page.
_RUNNING_PAGES = 3
_RUNNING_SHARE = 0.4
_NUMBER_PAGES = 2
_HEIGHT_TOLERANCE = 3.0
_EXACT_TOLERANCE = 0.5
# A header has few numbers, and short ones: page, pages, year, chapter.
_MAX_NUMBERS = 4
_MAX_DIGITS = 9
# Only the outermost lines of a page can be running matter.
_OUTER_ROWS = 3

_NUMBER = re.compile(r"\d+|\b[ivxlc]{1,7}\b")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_BARE_NUMBER = re.compile(r"\W*(?:page|p\.|seite|página|pagina)?\W*#(?:\s*(?:of|von|de|/)\s*#)?\W*")

_Entry = tuple[float, int, TextLine]


def without_running_lines(
    pages: Sequence[Sequence[TextLine]], labels: Sequence[str | None] = ()
) -> list[list[TextLine]]:
    """Return the pages without headers, footers and page numbers.

    A line goes when it repeats at the same height among the outermost lines of at least `_RUNNING_PAGES` pages,
    and of `_RUNNING_SHARE` of those from the first of them to the last. Its words must be the same; its numbers
    must be the same too, or count up with the pages. Lines on a slant go wherever on the page they repeat.
    In a document of two pages there is no third: a line that both have at exactly one height goes from the second.
    An outermost line that is just the page's label (`labels`, where the document has them) goes by itself. Where
    nothing would be left of the document, everything stays.
    """
    places: dict[tuple[object, ...], list[_Entry]] = defaultdict(list)
    running: set[int] = set()
    for number, lines in enumerate(pages):
        label = labels[number] if number < len(labels) else None
        for line in _outer_lines(lines):
            if label and line.text.strip(" -–—|[]") == label:
                running.add(id(line))
            for key in _repetition_keys(line, number):
                places[key].append((line.y, number, line))
    for key, found in places.items():
        least = _NUMBER_PAGES if _is_page_number(key) else _RUNNING_PAGES
        for group in _at_one_height(found):
            numbers = {number for _, number, _ in group}
            extent = max(numbers) - min(numbers) + 1
            if len(numbers) >= max(least, _RUNNING_SHARE * extent):
                running.update(id(line) for _, _, line in group)
            elif len(pages) == len(numbers) == _NUMBER_PAGES and _is_level(group):
                running.update(id(line) for _, number, line in group if number)
    kept = [[line for line in lines if id(line) not in running] for lines in pages]
    # Where everything repeats (copies of one form), what repeats is the text.
    return kept if any(kept) else [list(lines) for lines in pages]


def _is_page_number(key: tuple[object, ...]) -> bool:
    _, text, *numbers = key
    counts = any(isinstance(number, tuple) and number[0] == "+" for number in numbers)
    return counts and _BARE_NUMBER.fullmatch(str(text)) is not None


def _repetition_keys(line: TextLine, page: int) -> Iterator[tuple[object, ...]]:
    """Yield a key for each way in which the line may repeat: every number as it is, or relative to the page."""
    text = " ".join(line.text.casefold().split())
    numbers = _NUMBER.findall(text)
    if len(numbers) > _MAX_NUMBERS or any(len(number) > _MAX_DIGITS for number in numbers):
        yield (line.turn, text)
        return
    ways = [(("=", number), ("+", _value(number) - page)) for number in numbers]
    for choice in product(*ways):
        yield (line.turn, _NUMBER.sub("#", text), *choice)


def _is_level(group: list[_Entry]) -> bool:
    heights = [height for height, _, _ in group]
    return max(heights) - min(heights) <= _EXACT_TOLERANCE


def _value(number: str) -> int:
    """Return the value of a number in digits or in Roman numerals."""
    if number.isdecimal():
        return int(number)
    values = [_ROMAN[letter] for letter in number]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _at_one_height(found: list[_Entry]) -> Iterator[list[_Entry]]:
    """Yield the entries in groups of about the same height."""
    group: list[_Entry] = []
    for entry in sorted(found, key=lambda entry: entry[:2]):
        if group and entry[0] - group[0][0] > _HEIGHT_TOLERANCE:
            yield group
            group = []
        group.append(entry)
    yield group


def _outer_lines(lines: Sequence[TextLine]) -> Iterator[TextLine]:
    """Yield the lines of the outermost rows of each direction of writing, and all that are on a slant."""
    rows: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        rows[line.turn].add(round(line.y))
    outer: dict[int, set[int]] = {}
    for turn, heights in rows.items():
        ordered = sorted(heights)
        outer[turn] = set(ordered[:_OUTER_ROWS] + ordered[-_OUTER_ROWS:])
    for line in lines:
        if line.turn == 4 or round(line.y) in outer[line.turn]:
            yield line
