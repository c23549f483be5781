from __future__ import annotations

import pytest

from rag_pipeline.documents.media_types import (
    DOCX,
    FORMATS,
    HTML,
    ODS,
    PDF,
    PPTX,
    TEXT,
    XLS,
    XLSX,
    contradiction,
    detect,
)

JPEG_HEAD = b"\xff\xd8\xff\xe0\x00\x10JFIF"
OLE2_HEAD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@pytest.mark.parametrize(
    ("name", "head", "media_type"),
    [
        ("a.md", b"# x", "text/markdown"),
        ("A.PDF", b"%PDF-1.7", PDF),
        ("scan.pdf", JPEG_HEAD, PDF),
        ("no_suffix", b"%PDF-1.4", PDF),
        ("odd.bin", b"junk\n%PDF-1.4", PDF),
        ("page", b"<!DOCTYPE html><html>", HTML),
        ("page.php", b"\n<!-- x --><HTML>", HTML),
        ("README", "Grüße".encode(), TEXT),
        ("README", b"a" * 4095 + "ü".encode()[:1], TEXT),
        ("letter", b"PK\x03\x04....[Content_Types].xml....word/document.xml", DOCX),
        ("sheet.bak", b"PK\x03\x04....xl/workbook.xml", XLSX),
        ("slides.ppsx", b"PK\x03\x04", PPTX),
        ("macros.xlsm", b"PK\x03\x04", XLSX),
        ("old.xls", OLE2_HEAD, XLS),
        ("open", b"PK\x03\x04....mimetype" + ODS.encode(), ODS),
        ("photo", JPEG_HEAD, "image/jpeg"),
        ("archive.zip", b"PK\x03\x04....readme", None),
        ("script.py", b"print()", None),
        ("blob", b"\x00\x01", None),
        ("empty", b"", None),
        ("empty.md", b"", "text/markdown"),
    ],
)
def test_the_suffix_declares_and_the_content_speaks_where_there_is_none(
    name: str, head: bytes, media_type: str | None
) -> None:
    assert detect(name, head) == media_type


@pytest.mark.parametrize(
    ("media_type", "data", "found"),
    [
        (PDF, JPEG_HEAD, "a JPEG image"),
        (PDF, b"<html><p>404</p></html>", "an HTML page"),
        (PDF, b"Not found\n", "plain text"),
        (PDF, b"\x01\x02garbage", None),
        (PDF, b"\xef\xbb\xbf%PDF-1.4", None),
        ("text/markdown", b"%PDF-1.4", "a PDF"),
        ("text/markdown", b"The header of such a file is %PDF-1.4", None),
        (TEXT, b"PK\x03\x04", "a ZIP archive"),
        (HTML, b"no tag at all", None),
        (DOCX, OLE2_HEAD, None),
        (DOCX, b"%PDF-1.4", "a PDF"),
        (XLS, b"PK\x03\x04", "a ZIP archive"),
        (XLS, b"<html><table>", "an HTML page"),
        ("image/png", JPEG_HEAD, "a JPEG image"),
        (None, b"x", None),
    ],
)
def test_content_that_contradicts_the_media_type_is_named(
    media_type: str | None, data: bytes, found: str | None
) -> None:
    assert contradiction(media_type, data) == found


def test_no_two_formats_share_a_suffix() -> None:
    suffixes = [suffix for format_ in FORMATS for suffix in format_.suffixes]
    assert len(suffixes) == len(set(suffixes))
