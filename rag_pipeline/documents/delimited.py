"""CSV and TSV (RFC 4180, and what goes under that name): every record a table row with its number.

Records count from 1, the header among them, as in the fragments of RFC 7111; a quoted field may hold line ends,
so a record's number is not that of its line.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, ExtractionWarning, Segment
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.long_tables import Row, table_segments
from rag_pipeline.documents.states import WarningKind

EXTRACTOR_VERSION = "1"

_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE_CHARACTERS = 64_000
_SAMPLE_RECORDS = 200
# Spreadsheets write this line for each other; it is no record.
_HINT = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
# A quoted field over more lines than this was opened by a quotation mark that nobody closed.
_MAX_FIELD_LINES = 200


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the records of a delimited file as a table, a segment a record; its place is its number."""
    decoded = decode(data)
    warnings = list(decoded.warnings)
    text = decoded.text.replace("\x00", "")
    hint = _HINT.match(text)
    delimiter = hint[1] if hint else sniffed_delimiter(text)
    body = text[hint.end() :] if hint else text
    try:
        records = list(_records(body, delimiter, quoting=True))
    except csv.Error as error:
        warnings.append(
            ExtractionWarning(
                WarningKind.REPAIRED,
                f"the file's quotation marks do not pair ({error}); they were read as text",
            )
        )
        records = list(_records(body, delimiter, quoting=False))
    return Content(tuple(_segments(records)), raw_text=decoded.text, warnings=tuple(warnings))


def sniffed_delimiter(text: str) -> str:
    """Return what separates the fields of a text: of the usual four the one by which its records are most alike.

    A comma where nothing speaks for any of them.
    """
    sample = text[:_SAMPLE_CHARACTERS]
    if len(sample) < len(text):  # the last line may be cut
        sample = sample[: sample.rfind("\n") + 1] or sample
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        try:
            records = list(_records(sample, delimiter, quoting=True, limit=_SAMPLE_RECORDS))
        except csv.Error:
            records = list(_records(sample, delimiter, quoting=False, limit=_SAMPLE_RECORDS))
        widths = Counter(len(fields) for _, fields in records)
        if not widths:
            continue
        width, count = max(widths.items(), key=lambda item: (item[1] * (item[0] > 1), item[0]))
        # Records of the same width count, and more so the more fields they have.
        score = count / len(records) * (1 - 1 / width) if width > 1 else 0.0
        if score > best_score + 1e-9:
            best, best_score = delimiter, score
    return best


def _records(
    text: str, delimiter: str, *, quoting: bool, limit: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of every record that has any text; csv.Error for a quote that nobody closed."""
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
        skipinitialspace=True,
    )
    # Lines without any field are no records for the reader, which would not count them.
    for number, fields in enumerate(rows, 1):
        if limit is not None and number > limit:
            return
        if quoting and any(field.count("\n") > _MAX_FIELD_LINES for field in fields):
            raise csv.Error(f"record {number} has a field of more than {_MAX_FIELD_LINES} lines")
        if any(field.strip() for field in fields):
            yield number, fields


def _segments(records: Sequence[tuple[int, list[str]]]) -> Iterator[Segment]:
    rows = [Row(fields, Locator(row_first=number, row_last=number)) for number, fields in records]
    segments = list(table_segments(rows))
    if segments:
        segments[-1] = Segment(segments[-1].text.rstrip("\n") + "\n", segments[-1].locator)
    yield from segments
