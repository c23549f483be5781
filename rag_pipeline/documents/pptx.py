"""Presentations, slide by slide: title, text, tables, the data of charts, the texts of diagrams, speaker's notes.

The slides' XML is read as it is, shape by shape, since what a shape is called matters little for what it says:
a kind of shape that nobody has heard of costs nothing. Running lines (footers, dates, slide numbers) and what
stands on layouts and masters are left out. The place of every character is its slide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import (
    Content,
    ExtractionFailure,
    ExtractionWarning,
    PageInfo,
    Segment,
)
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.media_types import PPTX
from rag_pipeline.documents.office_drawings import chart, child, diagram_lines, paragraph_texts, relation
from rag_pipeline.documents.office_package import OfficePackage, Relationship, local_name, open_package
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    from lxml.etree import _Element

EXTRACTOR_VERSION = "1"

_TITLES = frozenset({"title", "ctrTitle"})
_RUNNING = frozenset({"ftr", "dt", "sldNum", "hdr", "sldImg"})
# Placeholders whose paragraphs are list items unless they say otherwise.
_BULLETED = frozenset({"body", "obj"})
# A marker that somebody typed in front of the item.
_TYPED_MARKER = re.compile(r"(?:\d{1,3}[.)]|[-*•–]) ")
# Containers of a shape tree; everything else that holds no text body is drawn and says nothing.
_MAX_DEPTH = 40


@dataclass
class _Slide:
    """What a slide says: its title, its blocks in the order of the shapes, and what was noticed."""

    number: int
    title: str = ""
    is_cover: bool = False
    blocks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: int = 0
    warnings: list[ExtractionWarning] = field(default_factory=list)

    def warn(self, kind: WarningKind, message: str) -> None:
        self.warnings.append(ExtractionWarning(kind, message, self.number))


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a presentation, one segment a slide; the place of a slide is its number from 1."""
    package = open_package(data, PPTX)
    slides: list[_Slide] = []
    comments: list[str] = []
    raw: list[str] = []
    for number, part in enumerate(_slide_parts(package), 1):
        slide = _Slide(number)
        slides.append(slide)
        if part is None:
            slide.warn(WarningKind.DAMAGED_PAGE, "the slide is not in the file")
            continue
        try:
            root = package.xml(part)
            relationships = package.relationships(part)
        except ExtractionFailure as failure:
            if failure.reason is not FailureReason.CORRUPT:
                raise
            slide.warn(WarningKind.DAMAGED_PAGE, f"the slide cannot be read: {failure.message}")
            continue
        raw += paragraph_texts(root)
        _Reader(package, relationships, slide).read(root)
        comments += _comments(package, relationships, number)
    segments = []
    for slide in slides:
        blocks = _written(slide)
        if blocks:
            segments.append(Segment("\n\n".join(blocks) + "\n\n", Locator.of_page(slide.number)))
        elif slide.pictures:
            slide.warn(WarningKind.NO_TEXT_LAYER, "the slide holds pictures and no text")
        raw += slide.notes
    if segments:
        segments[-1] = Segment(segments[-1].text[:-1], segments[-1].locator)
    warnings = [warning for slide in slides for warning in slide.warnings]
    if comments:
        warnings.append(
            ExtractionWarning(
                WarningKind.COMMENTS_LEFT_OUT,
                f"{len(comments)} comments are no part of the text; they are in the metadata",
            )
        )
    title, metadata = package.properties()
    return Content(
        tuple(segments),
        raw_text="\n".join([*raw, *comments]),
        title=title,
        metadata={**metadata, **({"comments": comments} if comments else {})},
        warnings=tuple(warnings),
        pages=tuple(PageInfo(slide.number) for slide in slides),
    )


def _slide_parts(package: OfficePackage) -> Iterator[str | None]:
    """Yield the part of every slide in the order of the show; None for one that the file lacks."""
    main = package.main_part
    relationships = package.relationships(main)
    order = [node for node in package.xml(main).iter() if local_name(node) == "sldId"]
    for node in order:
        found = relationships.get(relation(node, "id"))
        yield found.target if found is not None else None
    if not order:
        yield from sorted(
            (r.target for r in relationships.values() if r.type == "slide"),
            key=lambda name: (len(name), name),
        )


class _Reader:
    """One walk over a slide's shapes, which adds to the slide."""

    def __init__(self, package: OfficePackage, relationships: dict[str, Relationship], slide: _Slide) -> None:
        self._package = package
        self._relationships = relationships
        self._slide = slide

    def read(self, root: _Element) -> None:
        if root.get("show") in ("0", "false"):
            self._slide.warn(WarningKind.HIDDEN_CONTENT, "the slide is hidden in the show; its text is kept")
        tree = child(child(root, "cSld"), "spTree")
        for shape in tree if tree is not None else ():
            self._shape(shape, 0)
        for relationship in self._relationships.values():
            if relationship.type == "notesSlide":
                self._notes(relationship.target)

    def _shape(self, shape: _Element, depth: int) -> None:
        name = local_name(shape)
        if not name or depth > _MAX_DEPTH:
            return
        if name == "AlternateContent":
            for inner in _alternative(shape):
                self._shape(inner, depth + 1)
            return
        properties = child(shape, "nvSpPr", "nvGrpSpPr", "nvGraphicFramePr", "nvPicPr", "nvCxnSpPr")
        if _is_hidden(properties):
            self._slide.warn(WarningKind.HIDDEN_CONTENT, "a hidden shape was left out")
            return
        body = child(shape, "txBody")
        if name == "graphicFrame":
            self._graphic(shape, depth)
        elif body is not None:
            self._text(body, _placeholder(properties))
        elif name == "pic":
            self._slide.pictures += 1
        else:
            for inner in shape:
                if local_name(inner) not in ("spPr", "grpSpPr", "style", "extLst"):
                    self._shape(inner, depth + 1)

    def _text(self, body: _Element, placeholder: str | None) -> None:
        if placeholder in _RUNNING:
            return
        if placeholder in _TITLES and not self._slide.title:
            self._slide.title = " ".join(filter(None, paragraph_texts(body)))
            self._slide.is_cover = placeholder == "ctrTitle"
            return
        self._add(_text_block(body, placeholder in _BULLETED))

    def _graphic(self, frame: _Element, depth: int) -> None:
        for node in frame.iter():
            name = local_name(node)
            if name == "tbl":
                self._add(markdown_writer.table(_table_rows(node)))
                return
            if name == "chart" and relation(node, "id"):
                self._chart(relation(node, "id"))
                return
            if name == "relIds":
                self._diagram(relation(node, "dm"))
                return
            if name == "oleObj":
                self._slide.warn(WarningKind.UNREAD_CONTENT, "an embedded object was not read")
                return
        for node in frame.iter():
            if node is not frame and local_name(node) in ("sp", "pic"):
                self._shape(node, depth + 1)

    def _part(self, identity: str, what: str) -> str | None:
        found = self._relationships.get(identity)
        if found is None or found.external:
            self._slide.warn(WarningKind.UNREAD_CONTENT, f"a {what} is not in the file")
            return None
        return found.target

    def _chart(self, identity: str) -> None:
        part = self._part(identity, "chart")
        if part is None:
            return
        try:
            found = chart(self._package, part)
        except ExtractionFailure as failure:
            self._damaged("chart", failure)
            return
        self._add(markdown_writer.paragraph(found.title))
        self._add(markdown_writer.table(found.rows))
        if not found.rows:
            self._slide.warn(WarningKind.UNREAD_CONTENT, "a chart holds no data that can be read")

    def _diagram(self, identity: str) -> None:
        part = self._part(identity, "diagram")
        if part is None:
            return
        try:
            lines = diagram_lines(self._package, part)
        except ExtractionFailure as failure:
            self._damaged("diagram", failure)
            return
        self._add("\n".join(f"- {line}" for line in lines))

    def _notes(self, part: str) -> None:
        try:
            root = self._package.xml(part)
        except ExtractionFailure as failure:
            self._damaged("page of notes", failure)
            return
        for shape in root.iter():
            if local_name(shape) == "sp":
                body = child(shape, "txBody")
                if body is not None and _placeholder(child(shape, "nvSpPr")) not in _RUNNING:
                    self._slide.notes += filter(None, [_text_block(body, bulleted=False)])

    def _damaged(self, what: str, failure: ExtractionFailure) -> None:
        if failure.reason is not FailureReason.CORRUPT:
            raise failure
        self._slide.warn(WarningKind.DAMAGED_PART, f"a {what} cannot be read: {failure.message}")

    def _add(self, block: str) -> None:
        if block:
            self._slide.blocks.append(block)


def _alternative(element: _Element) -> Iterator[_Element]:
    """Yield the shapes of the first alternative that has any words, else of the first."""
    options = [option for option in element if local_name(option) in ("Choice", "Fallback")]
    worded = [
        option
        for option in options
        if any(local_name(node) in ("t", "chart", "relIds", "tbl") for node in option.iter())
    ]
    for option in (worded or options)[:1]:
        yield from option


def _placeholder(properties: _Element | None) -> str | None:
    """Return the type of a placeholder (`obj` where it names none), or None for any other shape."""
    found = child(child(properties, "nvPr"), "ph")
    return None if found is None else found.get("type", "obj")


def _is_hidden(properties: _Element | None) -> bool:
    named = child(properties, "cNvPr")
    return named is not None and named.get("hidden") in ("1", "true")


def _text_block(body: _Element, bulleted: bool) -> str:
    """Return a text body: list items as a list, other paragraphs as paragraphs."""
    pieces: list[tuple[bool, str]] = []
    numbers: dict[int, int] = {}
    paragraphs = [node for node in body if local_name(node) == "p"]
    for paragraph in paragraphs:
        text = next(paragraph_texts(paragraph), "")
        if not text:
            continue
        properties = child(paragraph, "pPr")
        level = int(properties.get("lvl", "0")) if properties is not None else 0
        kinds = {local_name(node) for node in properties} if properties is not None else set()
        is_item = bool(kinds & {"buChar", "buAutoNum", "buBlip"}) or (bulleted and "buNone" not in kinds)
        if not is_item:
            numbers.clear()
            pieces.append((False, markdown_writer.paragraph(text)))
            continue
        numbers = {deep: count for deep, count in numbers.items() if deep <= level}
        numbers[level] = numbers.get(level, 0) + 1
        marker = f"{numbers[level]}. " if "buAutoNum" in kinds else "- "
        if _TYPED_MARKER.match(text):
            marker = ""
        pieces.append((True, "  " * level + marker + text))
    if bulleted and len(pieces) == 1:  # one paragraph in a box for lists is no list
        return pieces[0][1].strip().removeprefix("- ")
    written = ""
    for position, (is_item, text) in enumerate(pieces):
        gap = "\n" if position and is_item and pieces[position - 1][0] else "\n\n"
        written += (gap if position else "") + text
    return written


def _table_rows(table: _Element) -> list[list[str]]:
    """Return the cells' texts; a merged cell's text stands in its first field alone."""
    rows = []
    for row in table:
        if local_name(row) != "tr":
            continue
        cells = []
        for cell in row:
            if local_name(cell) != "tc":
                continue
            is_covered = any(cell.get(merge) in ("1", "true") for merge in ("hMerge", "vMerge"))
            cells.append("" if is_covered else " ".join(filter(None, paragraph_texts(cell))))
        rows.append(cells)
    return rows


def _written(slide: _Slide) -> list[str]:
    """Return the slide's blocks under its title; a slide without one is named by its number.

    Without a heading of its own its text would count to the slide before.
    """
    blocks = [*slide.blocks, *(["### Notes", *slide.notes] if slide.notes else [])]
    if slide.title:
        level = 1 if slide.is_cover and slide.number == 1 else 2
        return [markdown_writer.heading(level, slide.title), *blocks]
    return [markdown_writer.heading(2, f"Slide {slide.number}"), *blocks] if blocks else []


def _comments(package: OfficePackage, relationships: dict[str, Relationship], number: int) -> Iterator[str]:
    for relationship in relationships.values():
        if relationship.type != "comments" or relationship.external:
            continue
        try:
            root = package.xml(relationship.target)
        except ExtractionFailure:
            continue
        for comment in root.iter():
            if local_name(comment) == "cm":
                written = child(comment, "text")
                words = written.text if written is not None else " ".join(paragraph_texts(comment))
                if words and words.strip():
                    yield f"slide {number}: {' '.join(words.split())}"
