"""What Office files draw and yet say in words: the data of charts, the texts of diagrams (SmartArt)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag_pipeline.documents.cell_values import number_text
from rag_pipeline.documents.office_package import OfficePackage, local_name

if TYPE_CHECKING:
    from lxml.etree import _Element

# Points of a chart beyond this many are measurements, not words; nobody looks for one of them.
MAX_CHART_ROWS = 2000
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"


@dataclass(frozen=True)
class Chart:
    """A chart's title and its data: a row of the series' names, then one row a category."""

    title: str
    rows: list[list[str]]


def chart(package: OfficePackage, part: str) -> Chart:
    """Return title and data of a chart part, as they were when the file was saved.

    Raises ExtractionFailure where the part is missing or damaged.
    """
    root = package.xml(part)
    series = [element for element in root.iter() if local_name(element) == "ser"]
    title = next((element for element in root.iter() if local_name(element) == "title"), None)
    names = [drawing_text(child(one, "tx")) for one in series]
    categories: dict[int, str] = {}
    columns: list[dict[int, str]] = []
    for one in series:
        # A category axis, or the first axis of a scatter or bubble chart.
        for position, value in _points(child(one, "cat", "xVal")).items():
            categories.setdefault(position, value)
        columns.append(_points(child(one, "val", "yVal", "bubbleSize")))
    positions = sorted({*categories, *(position for column in columns for position in column)})
    rows = [["", *names]]
    rows += [
        [categories.get(position, str(position + 1)), *(column.get(position, "") for column in columns)]
        for position in positions[:MAX_CHART_ROWS]
    ]
    return Chart(drawing_text(title), rows if positions else [])


def child(element: _Element | None, *names: str) -> _Element | None:
    """Return the first child of an element that has one of these local names."""
    if element is None:
        return None
    return next((found for name in names for found in element if local_name(found) == name), None)


def _points(element: _Element | None) -> dict[int, str]:
    """Return the values that a chart remembers of a range of cells, by their positions."""
    if element is None:
        return {}
    levels = [found for found in element.iter() if local_name(found) == "lvl"]
    if levels:  # categories of several levels stand innermost first
        merged: dict[int, str] = {}
        for level in reversed(levels):
            for position, value in _level(level).items():
                merged[position] = f"{merged[position]} {value}" if position in merged else value
        return merged
    return _level(element)


def _level(element: _Element) -> dict[int, str]:
    points = {}
    for point in element.iter():
        if local_name(point) == "pt" and (point.get("idx") or "").isdecimal():
            value = child(point, "v")
            text = (value.text or "").strip() if value is not None else ""
            points[int(point.get("idx") or 0)] = number_text(text)
    return points


def drawing_text(element: _Element | None) -> str:
    """Return the words of a title or a series' name on one line: those written there, else those remembered."""
    if element is None:
        return ""
    written = [part.text or "" for part in element.iter() if local_name(part) == "t"]
    if not written:
        written = [part.text or "" for part in element.iter() if local_name(part) == "v"]
    return " ".join("".join(written).split())


def diagram_lines(package: OfficePackage, part: str) -> list[str]:
    """Return the texts of a diagram's data part, one a node, in the order of the file.

    Raises ExtractionFailure where the part is missing or damaged.
    """
    lines = []
    for point in package.xml(part).iter():
        if local_name(point) == "pt" and point.get("type", "node") in ("node", "asst"):
            text = " ".join(filter(None, paragraph_texts(point)))
            if text:
                lines.append(text)
    return lines


def paragraph_texts(element: _Element) -> Iterator[str]:
    """Yield the text of every paragraph (`a:p`) below an element, line breaks as spaces."""
    for paragraph in element.iter():
        if local_name(paragraph) != "p":
            continue
        pieces = []
        for node in paragraph.iter():
            name = local_name(node)
            if name == "t":
                pieces.append(node.text or "")
            elif name in ("br", "tab"):
                pieces.append(" ")
        yield " ".join("".join(pieces).split())


def relation(element: _Element, *names: str) -> str:
    """Return the id of the part that an element points at by one of its attributes `r:NAME`; '' for none."""
    return next((value for name in names if (value := element.get(f"{_RELATION}{name}"))), "")
