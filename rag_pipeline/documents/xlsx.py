"""Workbooks: XLSX, and XLSB, XLS and ODS by the same reader. Every row a table row with the place of its cells.

Values are those that were saved with the file, formulas by their last result. What a reader of values does not see
is read from the sheet's XML beside it (XLSX only): formulas that were never calculated, errors, comments, text in
drawn shapes, and how far the cells reach. Hidden sheets are left out and reported.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents import markdown_writer, media_types
from rag_pipeline.documents.a1 import CellRange, column_letters
from rag_pipeline.documents.cell_values import percent_text, value_text
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Content, ExtractionFailure, ExtractionWarning, Segment
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.long_tables import Row, table_segments
from rag_pipeline.documents.office_package import OfficePackage, check_archive, open_package
from rag_pipeline.documents.sheet_parts import (
    SheetNotes,
    percent_styles,
    sheet_notes,
    sheet_parts,
    stray_rows,
)
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

EXTRACTOR_VERSION = "1"

# Fields of the rectangle that a sheet's cells span: beyond this the reader of values, which fills the whole
# rectangle, would take gigabytes for a stray cell in the last row.
_MAX_FIELDS = 20_000_000
_NAMED_CELLS = 5

SheetRow = tuple[int, dict[int, str]]
"""A row's number from 1, and the texts of its cells by their column from 1."""


@dataclass
class _Reading:
    """A workbook being read: what came out so far."""

    limit: int
    segments: list[Segment] = field(default_factory=list)
    warnings: list[ExtractionWarning] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    characters: int = 0

    def warn(self, kind: WarningKind, message: str) -> None:
        self.warnings.append(ExtractionWarning(kind, message))

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.characters += len(segment.text)
        if self.characters > self.limit:
            raise ExtractionFailure(
                FailureReason.TOO_LARGE,
                f"the workbook gives more than {self.limit >> 20} MiB of text; "
                "raise extraction.max_output_mb to keep it",
                tuple(self.warnings),
            )


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the sheets of a workbook, each under a heading with its name, a segment a row."""
    package: OfficePackage | None = None
    if data.startswith(b"PK") or not _is_xls(data):
        package = _package(data)
    reading = _Reading(options.max_output_mb << 20)
    source = io.BytesIO(data)
    if package is not None and package.is_strict:
        source = package.repacked({})
    with _refusals():
        from python_calamine import CalamineWorkbook

        workbook = CalamineWorkbook.from_filelike(source)
        _read_sheets(workbook, package, data, reading)
    if reading.segments:
        last = reading.segments[-1]
        reading.segments[-1] = Segment(last.text.rstrip("\n") + "\n", last.locator)
    title, metadata = package.properties() if package is not None else (None, {})
    if reading.comments:
        reading.warn(
            WarningKind.COMMENTS_LEFT_OUT,
            f"{len(reading.comments)} comments are no part of the text; they are in the metadata",
        )
    return Content(
        tuple(reading.segments),
        raw_text="\n".join([*reading.raw, *reading.comments]),
        title=title,
        metadata={**metadata, **({"comments": reading.comments} if reading.comments else {})},
        warnings=tuple(reading.warnings),
    )


def _is_xls(data: bytes) -> bool:
    """Return whether an OLE2 file holds a workbook of 1997 (and no encrypted package)."""
    return data.startswith(b"\xd0\xcf\x11\xe0") and "EncryptedPackage".encode("utf-16-le") not in data


def _package(data: bytes) -> OfficePackage | None:
    """Return the parts of an XLSX file; None for the other kinds of archive, which are checked as such."""
    if data.startswith(b"PK"):
        names = check_archive(data)
        if "mimetype" in names or any(name.endswith("workbook.bin") for name in names):
            return None
    return open_package(data, media_types.XLSX)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what the reader of values raises for a bad file into our failures."""
    from python_calamine import CalamineError, PasswordError

    try:
        yield
    except PasswordError as error:
        raise ExtractionFailure(FailureReason.ENCRYPTED, "the workbook asks for a password") from error
    except CalamineError as error:
        raise ExtractionFailure(FailureReason.CORRUPT, f"the workbook cannot be read: {error}") from error
    except BaseException as error:
        # A panic of its Rust code is no Exception in Python.
        if type(error).__name__ != "PanicException":
            raise
        raise ExtractionFailure(FailureReason.CORRUPT, f"the workbook cannot be read: {error}") from error


def _read_sheets(
    workbook: CalamineWorkbook, package: OfficePackage | None, data: bytes, reading: _Reading
) -> None:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    parts = sheet_parts(package) if package is not None else {}
    percents = percent_styles(package) if package is not None else {}
    damaged: list[ExtractionFailure] = []
    for sheet in workbook.sheets_metadata:
        if sheet.visible != SheetVisibleEnum.Visible:
            reading.warn(WarningKind.HIDDEN_CONTENT, f"the sheet {sheet.name!r} is hidden and was left out")
            continue
        if sheet.typ != SheetTypeEnum.WorkSheet:
            if (
                sheet.typ != SheetTypeEnum.ChartSheet
            ):  # what a chart shows stands in the cells it is made from
                reading.warn(WarningKind.UNREAD_CONTENT, f"the sheet {sheet.name!r} is no table")
            continue
        notes = SheetNotes()
        part = parts.get(sheet.name)
        if package is not None and part is not None:
            notes = sheet_notes(package, part, percents)
        try:
            with _refusals():
                _write_sheet(sheet.name, _rows(workbook, sheet.name, data, notes), notes, reading)
        except ExtractionFailure as failure:
            if failure.reason is not FailureReason.CORRUPT:
                raise
            damaged.append(failure)
            reading.warn(
                WarningKind.DAMAGED_PART, f"the sheet {sheet.name!r} cannot be read: {failure.message}"
            )
    if damaged and not reading.segments:
        raise damaged[0]


def _rows(workbook: CalamineWorkbook, name: str, data: bytes, notes: SheetNotes) -> Iterator[SheetRow]:
    """Yield the rows of a sheet that have any text, uncalculated formulas and errors among their cells."""
    extra: dict[int, dict[int, str]] = {}
    for (row, column), text in notes.texts.items():
        extra.setdefault(row, {})[column] = text
    for number, cells in _values(workbook, name, data, notes):
        missing = extra.pop(number, {})
        for column, text in missing.items():
            cells.setdefault(column, text)
        if cells:
            yield number, cells
    # Cells outside of the rectangle of values, which ends with the last value.
    yield from sorted(extra.items())


def _values(
    workbook: CalamineWorkbook,
    name: str,
    data: bytes,
    notes: SheetNotes,
) -> Iterator[SheetRow]:
    if notes.last_row * notes.last_column > _MAX_FIELDS:
        yield from stray_rows(data, name)
        return
    sheet = workbook.get_sheet_by_name(name)
    first_row, first_column = sheet.start or (0, 0)
    rows: Sequence[Sequence[Any]] = sheet.to_python(skip_empty_area=True)
    for number, values in enumerate(rows, first_row + 1):
        texts = {column: value_text(value) for column, value in enumerate(values, first_column + 1)}
        if notes.percents:
            for column, value in enumerate(values, first_column + 1):
                places = notes.percents.get((number, column))
                if places is not None and isinstance(value, float):
                    texts[column] = percent_text(value, places)
        yield number, {column: text for column, text in texts.items() if text.strip()}


def _write_sheet(name: str, rows: Iterator[SheetRow], notes: SheetNotes, reading: _Reading) -> None:
    found = sorted(rows, key=lambda row: row[0])
    reading.comments += [f"{name}!{comment}" for comment in notes.comments]
    if notes.damaged:
        reading.warn(
            WarningKind.DAMAGED_PART, f"a part of the sheet {name!r} cannot be read: {notes.damaged}"
        )
    if notes.formulas:
        cells = [f"{column_letters(column)}{row}" for row, column in notes.formulas[:_NAMED_CELLS]]
        more = ", ..." if len(notes.formulas) > _NAMED_CELLS else ""
        reading.warn(
            WarningKind.FORMULA_WITHOUT_VALUE,
            f"{len(notes.formulas)} formulas of the sheet {name!r} were saved without a value and stand as "
            f"formulas: {', '.join(cells)}{more}",
        )
    if not found and not notes.shapes:
        return
    first = _place(name, *found[0]) if found else Locator(sheet=name, range=notes.shapes[0][0])
    reading.add(Segment(markdown_writer.heading(2, name) + "\n\n", first))
    for region in _regions(found):
        left = min(min(cells) for _, cells in region)
        right = max(max(cells) for _, cells in region)
        used = sorted({column for _, cells in region for column in cells})
        lines = [
            Row([cells.get(column, "") for column in used], _span(name, number, left, right))
            for number, cells in region
        ]
        for segment in table_segments(lines):
            reading.add(segment)
        reading.raw += ["\t".join(cells.values()) for _, cells in region]
    for reference, text in notes.shapes:
        reading.add(Segment(markdown_writer.paragraph(text) + "\n\n", Locator(sheet=name, range=reference)))
        reading.raw.append(text)


def _regions(rows: Sequence[SheetRow]) -> Iterator[list[SheetRow]]:
    """Yield runs of rows without an empty row between them: the tables of a sheet."""
    region: list[SheetRow] = []
    for number, cells in rows:
        if region and number != region[-1][0] + 1:
            yield region
            region = []
        region.append((number, cells))
    if region:
        yield region


def _place(sheet: str, number: int, cells: Mapping[int, str]) -> Locator:
    return _span(sheet, number, min(cells), max(cells))


def _span(sheet: str, row: int, left: int, right: int) -> Locator:
    return Locator(sheet=sheet, range=str(CellRange(left, row, right, row)))
