"""Pages that pdfium cannot read, by pypdf: lines in the order of the content stream, their widths estimated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents import page_lines
from rag_pipeline.documents.page_lines import Piece, TextLine

if TYPE_CHECKING:
    from pypdf import PageObject

# Code 127 of WinAnsiEncoding is a bullet (ISO 32000-1, table D.2, note 3); pypdf gives the control character.
_BULLET = str.maketrans({"\x7f": "•"})


def read_page(page: PageObject) -> tuple[list[TextLine], str]:
    """Return the page's lines in stream order, and its text as pypdf gives it; raises anything for a damaged page."""
    lines: list[TextLine] = []
    pieces: list[Piece] = []

    def visit(text: str, cm: Any, tm: Any, font: Any, size: Any) -> None:
        for position, part in enumerate(text.split("\n")):
            if position:
                _end_line(lines, pieces)
            if part.strip():
                folded = page_lines.fold_ligatures(part.translate(_BULLET))
                pieces.append(_piece(folded, cm, tm, font, float(size or 0.0)))
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
    name = str((font or {}).get("/BaseFont", ""))
    width = page_lines.estimated_width(text.strip(), scaled, monospace=page_lines.is_monospace(name))
    return Piece(text, x, x + width, y, scaled, page_lines.is_bold(name), page_lines.is_monospace(name))
