"""Lines of a page for the tests of the rules that work on them."""

from __future__ import annotations

from rag_pipeline.documents import page_lines
from rag_pipeline.documents.page_lines import Piece, TextLine


def line(
    text: str, y: float, *, x: float = 50.0, size: float = 10.0, bold: bool = False, monospace: bool = False
) -> TextLine:
    width = page_lines.estimated_width(text, size, monospace=monospace)
    return TextLine((Piece(text, x, x + width, y, size, bold, monospace),))


def row(y: float, *cells: tuple[float, str]) -> TextLine:
    return TextLine(tuple(Piece(text, x, x + 5.0 * len(text), y, 10.0) for x, text in cells))
