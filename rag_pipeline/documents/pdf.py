"""PDF with a text layer: read by pypdf page by page, in the order of the content stream.

That order is nearly always the reading order. A page that cannot be read costs itself, not the document.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents import page_layout
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import (
    Content,
    ExtractionFailure,
    ExtractionWarning,
    PageInfo,
    Segment,
)
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.page_layout import PageBlock, Piece, TextLine
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    from pypdf import PageObject, PdfReader

EXTRACTOR_VERSION = "1"

# Code 127 of WinAnsiEncoding is a bullet (ISO 32000-1, table D.2, note 3); pypdf gives the control character.
_BULLET = str.maketrans({"\x7f": "•"})
_INFO_KEYS = {"/Author": "author", "/Subject": "subject", "/Keywords": "keywords", "/CreationDate": "created"}


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a PDF, a segment a page with its page number; `title` is that of its properties."""
    warnings: list[ExtractionWarning] = []
    reader = _open(data, warnings)
    page_count = _page_count(reader)
    pages: list[list[TextLine]] = []
    raw: list[str] = []
    for number in range(1, page_count + 1):
        lines, text = _read_page(reader, number, warnings)
        pages.append(lines)
        raw.append(text)
    if (
        page_count
        and all(warning.kind is WarningKind.DAMAGED_PAGE for warning in warnings[-page_count:])
        and not any(pages)
    ):
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"none of its {page_count} pages can be read", tuple(warnings)
        )
    title, metadata = _properties(reader)
    return Content(
        segments(pages),
        raw_text="\n".join(raw),
        title=title,
        metadata=metadata,
        warnings=tuple(warnings),
        pages=tuple(PageInfo(number) for number in range(1, page_count + 1)),
    )


def segments(pages: Sequence[Sequence[TextLine]]) -> tuple[Segment, ...]:
    """Return the Markdown of the pages, a segment a page that has any, with the separators between them.

    A paragraph that runs over the page's end goes on after a line end, or at once where a hyphen broke it.
    """
    kept = page_layout.without_running_lines(pages)
    style = page_layout.style_of(kept)
    compounds = page_layout.hyphenated_words(kept)
    blocks = [page_layout.blocks_of(lines, style, compounds) for lines in kept]
    filled = [(number, page) for number, page in enumerate(blocks, 1) if page]
    output = []
    for position, (number, page) in enumerate(filled):
        text = "\n\n".join(block.text for block in page)
        following = filled[position + 1][1][0] if position + 1 < len(filled) else None
        output.append(Segment(_with_separator(text, page[-1], following, compounds), Locator.of_page(number)))
    return tuple(output)


def _with_separator(
    text: str, last: PageBlock, following: PageBlock | None, compounds: frozenset[str]
) -> str:
    if following is None:
        return text + "\n"
    if not page_layout.continues(last, following):
        return text + "\n\n"
    run_on = page_layout.join(text, following.text, compounds)
    before = run_on[: len(run_on) - len(following.text)]
    return before[:-1] + "\n" if before.endswith(" ") else before


def _open(data: bytes, warnings: list[ExtractionWarning]) -> PdfReader:
    # pypdf reports every oddity it repairs through logging; what matters of it becomes a warning of ours.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    from pypdf import PasswordType, PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    try:
        reader = PdfReader(BytesIO(data), strict=False)
        if not reader.is_encrypted:
            return reader
        opened = reader.decrypt("")
    except (DependencyError, FileNotDecryptedError, NotImplementedError) as error:
        raise ExtractionFailure(
            FailureReason.ENCRYPTED, f"the PDF is encrypted in a way that cannot be opened: {error}"
        ) from error
    except PyPdfError as error:
        raise ExtractionFailure(FailureReason.CORRUPT, f"the PDF cannot be opened: {error}") from error
    if opened == PasswordType.NOT_DECRYPTED:
        raise ExtractionFailure(FailureReason.ENCRYPTED, "the PDF asks for a password")
    warnings.append(
        ExtractionWarning(
            WarningKind.OPENED_WITHOUT_PASSWORD, "the PDF is encrypted and opened with the empty password"
        )
    )
    permissions = reader.user_access_permissions
    if permissions is not None and not permissions.EXTRACT & permissions:
        warnings.append(
            ExtractionWarning(
                WarningKind.EXTRACTION_NOT_PERMITTED,
                "the PDF's author does not permit its text to be extracted",
            )
        )
    return reader


def _page_count(reader: PdfReader) -> int:
    from pypdf.errors import PyPdfError

    try:
        count = len(reader.pages)
    except (PyPdfError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"the PDF's pages cannot be listed: {error}"
        ) from error
    if not count:
        raise ExtractionFailure(FailureReason.CORRUPT, "the PDF has no page")
    return count


def _read_page(
    reader: PdfReader, number: int, warnings: list[ExtractionWarning]
) -> tuple[list[TextLine], str]:
    try:
        lines, text = _lines_of(reader.pages[number - 1])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged page raises anything, and costs itself
        warnings.append(
            ExtractionWarning(
                WarningKind.DAMAGED_PAGE,
                f"the page cannot be read: {type(error).__name__}: {error}"[:300],
                number,
            )
        )
        return [], ""
    if not lines:
        warnings.append(
            ExtractionWarning(
                WarningKind.NO_TEXT_LAYER, "the page has no text layer (a scan or a drawing)", number
            )
        )
    return lines, text


def _lines_of(page: PageObject) -> tuple[list[TextLine], str]:
    """Return the page's lines in stream order, and its text as pypdf gives it."""
    lines: list[TextLine] = []
    pieces: list[Piece] = []

    def visit(text: str, cm: Any, tm: Any, font: Any, size: Any) -> None:
        for position, part in enumerate(text.split("\n")):
            if position:
                _end_line(lines, pieces)
            if part.strip():
                pieces.append(
                    _piece(
                        page_layout.fold_ligatures(part.translate(_BULLET)), cm, tm, font, float(size or 0.0)
                    )
                )
            elif part and pieces:
                last = pieces[-1]
                pieces[-1] = Piece(
                    last.text + " ", last.x, last.x_end, last.y, last.size, last.bold, last.monospace
                )

    text = page.extract_text(visitor_text=visit)
    _end_line(lines, pieces)
    return lines, text


def _end_line(lines: list[TextLine], pieces: list[Piece]) -> None:
    if pieces:
        lines.append(TextLine(tuple(pieces)))
        pieces.clear()


def _piece(text: str, cm: Any, tm: Any, font: Any, size: float) -> Piece:
    a, b, c, d, e, f = tm
    x = e * cm[0] + f * cm[2] + cm[4]
    y = e * cm[1] + f * cm[3] + cm[5]
    determinant = abs((a * d - b * c) * (cm[0] * cm[3] - cm[1] * cm[2]))
    scaled = size * math.sqrt(determinant)
    name = str((font or {}).get("/BaseFont", "")).lower()
    monospace = any(word in name for word in ("courier", "mono", "consolas", "menlo", "typewriter", "cmtt"))
    width = page_layout.estimated_width(text.strip(), scaled, monospace=monospace)
    bold = any(word in name for word in ("bold", "black", "heavy", "semibold", "demi"))
    return Piece(text, x, x + width, y, scaled, bold, monospace)


def _properties(reader: PdfReader) -> tuple[str | None, dict[str, str]]:
    try:
        info = dict(reader.metadata or {})
        values = {key: " ".join(str(info[key]).split()) for key in ("/Title", *_INFO_KEYS) if info.get(key)}
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - damaged properties must not cost the text
        return None, {}
    return values.pop("/Title", None) or None, {
        _INFO_KEYS[key]: value for key, value in values.items() if value
    }
