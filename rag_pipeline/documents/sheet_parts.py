"""What a sheet's XML tells beyond the values of its cells."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_pipeline.documents.a1 import column_letters, column_number
from rag_pipeline.documents.cell_values import value_text
from rag_pipeline.documents.extraction import ExtractionFailure
from rag_pipeline.documents.office_drawings import child, paragraph_texts, relation
from rag_pipeline.documents.office_package import OfficePackage, local_name
from rag_pipeline.documents.states import FailureReason

if TYPE_CHECKING:
    from lxml.etree import _Element

# Formats of percentages that every workbook has (ECMA-376, part 1, 18.8.30), and those it may declare.
_PERCENT_FORMATS = {"9": 0, "10": 2}
_PERCENT_CODE = re.compile(r"[0#?](?:\.([0#?]+))?\s*%")
_QUOTED = re.compile(r"\"[^\"]*\"|\\.")
# A cell that holds something: the element does not end itself. Formatted empty cells are legion, and no parser
# passes over millions of them as quickly as a pattern does.
_CELL = re.compile(rb"<((?:\w+:)?)c(\s[^>]*)(?<!/)>(.*?)</\1c\s*>", re.DOTALL)
_CELL_REFERENCE = re.compile(rb"\sr\s*=\s*[\"']([A-Z]{1,3})([1-9][0-9]{0,6})[\"']")
_ATTRIBUTE = re.compile(rb"\s(s|t)\s*=\s*[\"']([^\"']*)[\"']")
_FORMULA = re.compile(rb"<(?:\w+:)?f((?:\s[^>]*)?)(?:/>|>(.*?)</(?:\w+:)?f\s*>)", re.DOTALL)
_VALUE = re.compile(rb"<(?:\w+:)?v(?:\s[^>]*)?(?:/>|>(.*?)</(?:\w+:)?v\s*>)", re.DOTALL)
_SHARED = re.compile(rb"\ssi\s*=\s*[\"'](\d+)[\"']")

Position = tuple[int, int]
"""Row and column of a cell, both from 1."""


@dataclass
class SheetNotes:
    """What stands on a sheet beside its values."""

    texts: dict[Position, str] = field(default_factory=dict)
    """Formulas that have no value, with their `=`, and values that are errors, such as `#N/A`."""
    formulas: list[Position] = field(default_factory=list)
    """The cells of the formulas among them."""
    percents: dict[Position, int] = field(default_factory=dict)
    """Cells that show their number as a percentage, with the decimal places it is shown with."""
    last_row: int = 0
    """The last row in which a cell holds something; what a sheet declares (`dimension`) is wrong in many files."""
    last_column: int = 0
    comments: list[str] = field(default_factory=list)
    shapes: list[tuple[str, str]] = field(default_factory=list)
    """Texts of drawn shapes, each with the cell it is anchored to."""
    damaged: str = ""


def sheet_parts(package: OfficePackage) -> dict[str, str]:
    """Return the part of every sheet by its name; sheets whose part the file lacks are left out."""
    relationships = package.relationships(package.main_part)
    parts = {}
    for sheet in package.xml(package.main_part).iter():
        if local_name(sheet) == "sheet":
            found = relationships.get(relation(sheet, "id"))
            if found is not None and not found.external:
                parts[sheet.get("name") or ""] = found.target
    return parts


def stray_rows(data: bytes, name: str) -> Iterator[tuple[int, dict[int, str]]]:
    """Yield the rows of a sheet whose cells lie far apart: slower by the cell, and without the space between."""
    import openpyxl

    try:
        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        sheet = workbook[name]
        sheet.reset_dimensions()
        for row in sheet.iter_rows():
            cells = {cell.column: text for cell in row if (text := value_text(cell.value)).strip()}
            if cells:
                yield next(cell.row for cell in row if cell.value is not None), cells
    except (KeyError, ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"the sheet {name!r} cannot be read: {error}"
        ) from error


def percent_styles(package: OfficePackage) -> dict[str, int]:
    """Return the decimal places of every cell style of a workbook that shows numbers as percentages."""
    places = dict(_PERCENT_FORMATS)
    found: dict[str, int] = {}
    for part in package.related(package.main_part, "styles"):
        try:
            root = package.xml(part)
        except ExtractionFailure as failure:
            if failure.reason is not FailureReason.CORRUPT:
                raise
            continue
        for element in root.iter():
            if local_name(element) == "numFmt":
                match = _PERCENT_CODE.search(_QUOTED.sub("", element.get("formatCode") or ""))
                if match:
                    places[element.get("numFmtId") or ""] = len(match[1] or "")
        styles = child(root, "cellXfs")
        for number, style in enumerate(styles if styles is not None else ()):
            if (style.get("numFmtId") or "") in places:
                found[str(number)] = places[style.get("numFmtId") or ""]
    return found


def sheet_notes(package: OfficePackage, part: str, percents: Mapping[str, int]) -> SheetNotes:
    """Return what stands on a sheet beside its values; parts that are damaged are named, not raised.

    `percents` are the styles of percentages (`percent_styles`).
    """
    notes = SheetNotes()
    _read_cells(package.read(part), percents, notes)
    for relationship in package.relationships(part).values():
        if relationship.external:
            continue
        reader = _READERS.get(relationship.type)
        if reader is None:
            continue
        try:
            reader(package.xml(relationship.target), notes)
        except ExtractionFailure as failure:
            if failure.reason is not FailureReason.CORRUPT:
                raise
            notes.damaged = failure.message
    return notes


def _read_cells(data: bytes, percents: Mapping[str, int], notes: SheetNotes) -> None:
    shared: dict[bytes, tuple[str, str]] = {}
    columns: dict[bytes, int] = {}
    styles = {style.encode(): places for style, places in percents.items()}
    for match in _CELL.finditer(data):
        attributes, content = match[2], match[3]
        reference = _CELL_REFERENCE.search(attributes)
        if reference is None:
            continue
        letters = reference[1]
        if letters not in columns:
            columns[letters] = column_number(letters.decode())
        position = (int(reference[2]), columns[letters])
        notes.last_row = max(notes.last_row, position[0])
        has_formula = b"f" in content and _FORMULA.search(content) is not None
        if has_formula or styles or b'"e"' in attributes or b"'e'" in attributes:
            _read_cell(position, attributes, content, shared, styles, notes)
    notes.last_column = max(columns.values(), default=0)


def _read_cell(
    position: Position,
    attributes: bytes,
    content: bytes,
    shared: dict[bytes, tuple[str, str]],
    styles: Mapping[bytes, int],
    notes: SheetNotes,
) -> None:
    found = dict(_ATTRIBUTE.findall(attributes))
    kind = found.get(b"t", b"n")
    formula, value = _FORMULA.search(content), _VALUE.search(content)
    text = _unescaped(value[1]) if value is not None else ""
    if kind == b"e" and text:
        notes.texts[position] = text
    elif kind == b"n" and text and found.get(b"s") in styles:
        notes.percents[position] = styles[found[b"s"]]
    if formula is None:
        return
    reference = f"{column_letters(position[1])}{position[0]}"
    written = _unescaped(formula[2])
    number = _SHARED.search(formula[1] or b"")
    if number is not None and written:
        shared[number[1]] = (written, reference)
    # A formula whose result is the empty text has a value, and it is empty.
    if text or (kind == b"str" and value is not None):
        return
    if not written and number is not None and number[1] in shared:
        written = _moved(*shared[number[1]], reference)
    notes.texts[position] = f"={written}"
    notes.formulas.append(position)


def _unescaped(text: bytes | None) -> str:
    return html.unescape((text or b"").decode("utf-8", "replace")).strip()


def _moved(formula: str, origin: str, reference: str) -> str:
    """Return a shared formula as it reads in another cell than the one it is written in."""
    from openpyxl.formula.translate import Translator, TranslatorError

    try:
        moved = Translator(f"={formula}", origin=origin).translate_formula(reference)
    except TranslatorError:
        return formula
    return str(moved).removeprefix("=")


def _read_comments(root: _Element, notes: SheetNotes) -> None:
    for comment in root.iter():
        if local_name(comment) in ("comment", "threadedComment"):
            pieces = (node.text or "" for node in comment.iter() if local_name(node) in ("t", "text"))
            words = " ".join("".join(pieces).split())
            # Word for word what a threaded comment says stands in the old form too, with a note for old readers.
            if words and not words.startswith("[Threaded comment]"):
                notes.comments.append(f"{comment.get('ref')}: {words}")


def _read_shapes(root: _Element, notes: SheetNotes) -> None:
    for anchor in root:
        text = " ".join(filter(None, paragraph_texts(anchor)))
        if text:
            corner = child(anchor, "from")
            column, row = (child(corner, name) for name in ("col", "row"))
            place = [int(node.text or 0) if node is not None else 0 for node in (column, row)]
            notes.shapes.append((f"{column_letters(place[0] + 1)}{place[1] + 1}", text))


_READERS = {"comments": _read_comments, "threadedComment": _read_comments, "drawing": _read_shapes}
