"""PDF files made for the tests: by reportlab, and object by object where the file must be broken."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any

HELVETICA = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
HELLO = b"BT /F 12 Tf 72 700 Td (Hello, mended world.) Tj ET"


def drawn(*pages: list[tuple[float, float, str]], font: str = "Helvetica", **settings: Any) -> bytes:
    """A PDF with lines of text at given places, a list a page."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    target = BytesIO()
    canvas = Canvas(target, pagesize=A4, invariant=1, **settings)
    for lines in pages:
        canvas.setFont(font, 10)
        for x, y, text in lines:
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def painted(paint: Any, pages: int = 1, size: tuple[float, float] = (595.0, 842.0)) -> bytes:
    """A PDF whose pages `paint(canvas, number)` draws."""
    from reportlab.pdfgen.canvas import Canvas

    target = BytesIO()
    canvas = Canvas(target, pagesize=size, invariant=1)
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica", 10)
        paint(canvas, number)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def assembled(objects: Mapping[int, bytes]) -> bytes:
    """A PDF of these objects, the first of which is its catalogue."""
    output = bytearray(b"%PDF-1.7\n")
    offsets: dict[int, int] = {}
    for number, body in objects.items():
        offsets[number] = len(output)
        output += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start, size = len(output), max(objects) + 1
    output += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        output += b"%010d 00000 n \n" % offsets.get(number, 0)
    output += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, start)
    return bytes(output)


def stream(data: bytes, extra: bytes = b"", *, packed: bool = False) -> bytes:
    """The body of a stream object."""
    if packed:
        data, extra = zlib.compress(data, 9), extra + b"/Filter/FlateDecode"
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(data), extra, data)


def page(contents: int, resources: bytes = b"/Font<</F 4 0 R>>", box: bytes = b"0 0 595 842") -> bytes:
    """The body of a page object below the page tree in object 2."""
    return b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents %d 0 R/Resources<<%s>>>>" % (
        box,
        contents,
        resources,
    )


def one_page(contents: bytes, **others: bytes) -> bytes:
    """A PDF of one page (object 3) with this content stream (5) and font (4); `o6=...` adds object 6."""
    return assembled(
        {
            1: b"<</Type/Catalog/Pages 2 0 R>>",
            2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            3: page(5),
            4: HELVETICA,
            5: stream(contents),
            **{int(name[1:]): body for name, body in others.items()},
        }
    )
