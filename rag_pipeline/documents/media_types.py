"""The formats we know: a table of media types, suffixes and the signatures of their first bytes.

A suffix declares a type and the content confirms or contradicts it: a contradiction is found when the file is
extracted (`wrong_type`), so that the document stays visible as failed. A file without a known suffix is known
by its content alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

MARKDOWN = "text/markdown"
TEXT = "text/plain"
HTML = "text/html"
CSV = "text/csv"
TSV = "text/tab-separated-values"
VTT = "text/vtt"
SRT = "application/x-subrip"
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
XLS = "application/vnd.ms-excel"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"

# How many bytes from the start of a file `detect` and `contradiction` look at.
HEAD_BYTES = 4096

# PDF readers accept a header within the first kilobyte (ISO 32000-1, annex H, note 13).
_PDF_HEADER_WITHIN = 1024
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Format:
    """A media type, the suffixes that declare it and the signatures (see `Signature.name`) it may carry.

    An empty tuple of signatures means text, which has none.
    """

    media_type: str
    suffixes: tuple[str, ...]
    signatures: tuple[str, ...] = ()


FORMATS: tuple[Format, ...] = (
    Format(MARKDOWN, (".md", ".markdown", ".mdown", ".mkd")),
    Format(TEXT, (".txt", ".text")),
    Format(HTML, (".html", ".htm", ".xhtml")),
    Format(CSV, (".csv",)),
    Format(TSV, (".tsv", ".tab")),
    Format(VTT, (".vtt",)),
    Format(SRT, (".srt",)),
    Format(PDF, (".pdf",), ("a PDF",)),
    # Behind a password an Office file is an OLE2 file, which its extractor tells from the formats of 1997.
    Format(DOCX, (".docx", ".docm", ".dotx", ".dotm"), ("a ZIP archive", "an OLE2 file")),
    Format(PPTX, (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"), ("a ZIP archive", "an OLE2 file")),
    Format(XLSX, (".xlsx", ".xlsm", ".xltx", ".xltm"), ("a ZIP archive", "an OLE2 file")),
    Format(XLSB, (".xlsb",), ("a ZIP archive", "an OLE2 file")),
    Format(XLS, (".xls",), ("an OLE2 file",)),
    Format(ODS, (".ods",), ("a ZIP archive",)),
    Format(PNG, (".png",), ("a PNG image",)),
    Format(JPEG, (".jpg", ".jpeg"), ("a JPEG image",)),
    Format(TIFF, (".tif", ".tiff"), ("a TIFF image",)),
)


@dataclass(frozen=True)
class Signature:
    """First bytes that only one kind of file has, what to call it, and the media type they prove."""

    name: str
    starts: tuple[bytes, ...]
    media_type: str | None = None


SIGNATURES: tuple[Signature, ...] = (
    Signature("a PDF", (b"%PDF-",), PDF),
    Signature("a PNG image", (b"\x89PNG\r\n\x1a\n",), PNG),
    Signature("a JPEG image", (b"\xff\xd8\xff",), JPEG),
    Signature("a TIFF image", (b"II*\x00", b"MM\x00*"), TIFF),
    Signature("a GIF image", (b"GIF87a", b"GIF89a")),
    Signature("a ZIP archive", (b"PK\x03\x04", b"PK\x05\x06")),
    Signature("an OLE2 file", (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",)),
    Signature("a gzip archive", (b"\x1f\x8b",)),
    Signature("an RTF document", (b"{\\rtf",)),
    Signature("an ELF program", (b"\x7fELF",)),
)

# Members that tell the Office formats apart; they stand in the first local headers of the archive.
_OFFICE_MEMBERS = ((b"mimetype" + ODS.encode(), ODS), (b"word/", DOCX), (b"ppt/", PPTX), (b"xl/", XLSX))

_BY_SUFFIX = {suffix: format_.media_type for format_ in FORMATS for suffix in format_.suffixes}
_BY_MEDIA_TYPE = {format_.media_type: format_ for format_ in FORMATS}


def signature_of(head: bytes) -> Signature | None:
    """Return the signature that the first bytes of a file carry, or None (text, or a kind unknown to us)."""
    for signature in SIGNATURES:
        if head.startswith(signature.starts):
            return signature
    # Some producers put a few bytes before the header, and readers accept them.
    if b"%PDF-" in head[:_PDF_HEADER_WITHIN] and not _HTML_START.match(head):
        return SIGNATURES[0]
    return None


def detect(name: str, head: bytes) -> str | None:
    """Return the media type of a file by its name and its first `HEAD_BYTES`, or None if it is unknown.

    A known suffix decides; `contradiction` tells whether the content agrees. Otherwise the content decides:
    a signature, an HTML start, or, for a name without any suffix (README), text.
    """
    suffix = PurePosixPath(name).suffix.lower()
    declared = _BY_SUFFIX.get(suffix)
    if declared is not None:
        return declared
    signature = signature_of(head)
    if signature is not None:
        if signature.name == "a ZIP archive":
            return next((media_type for member, media_type in _OFFICE_MEMBERS if member in head), None)
        return signature.media_type
    if _HTML_START.match(head):
        return HTML
    return TEXT if not suffix and _looks_like_text(head) else None


def contradiction(media_type: str | None, data: bytes) -> str | None:
    """Return what a file of this media type holds instead ("a JPEG image"), or None where nothing speaks
    against it.

    `data` is the file, or at least its first `HEAD_BYTES`.
    """
    format_ = _BY_MEDIA_TYPE.get(media_type or "")
    if format_ is None:
        return None
    head = data[:HEAD_BYTES]
    signature = signature_of(head)
    if signature is not None and not format_.signatures:
        # Text that merely mentions a header further down is text.
        return signature.name if head.startswith(signature.starts) else None
    if signature is not None:
        return None if signature.name in format_.signatures else signature.name
    if format_.signatures and _HTML_START.match(head):
        return "an HTML page"
    if format_.signatures and _looks_like_text(head):
        return "plain text"
    return None


def _looks_like_text(head: bytes) -> bool:
    if not head or b"\x00" in head:
        return False
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end inside a character.
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return not any(ord(character) < 32 and character not in "\t\n\r\f\v\x1b" for character in text)
