from __future__ import annotations

import io
import zipfile

import pytest

from rag_pipeline.documents import office_package
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import ExtractionFailure, extract_bytes
from rag_pipeline.documents.media_types import DOCX, PPTX, XLSX
from rag_pipeline.documents.office_package import open_package, resolved
from rag_pipeline.documents.states import FailureReason
from rag_pipeline_tests.documents.office_files import (
    docx,
    paragraph,
    pptx,
    relationships,
    shape,
    xlsx,
    zipped,
)

OPTIONS = ExtractionConfig()
OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
FILES = {
    DOCX: docx(paragraph("x")),
    PPTX: pptx([shape("x")]),
    XLSX: xlsx({"S": "<row r='1'><c r='A1'><v>1</v></c></row>"}),
}


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("media_type", FILES)
@pytest.mark.parametrize(
    ("stream", "reason", "message"),
    [
        ("EncryptedPackage", FailureReason.ENCRYPTED, "asks for a password"),
        ("WordDocument", FailureReason.WRONG_TYPE, "holds a Word 97-2003 document"),
        ("Workbook", FailureReason.WRONG_TYPE, "holds an Excel 97-2003 workbook"),
        ("PowerPoint Document", FailureReason.WRONG_TYPE, "holds a PowerPoint 97-2003 presentation"),
        ("Contents", FailureReason.WRONG_TYPE, "holds an OLE2 file"),
    ],
)
def test_the_old_formats_and_encrypted_files_are_named(
    media_type: str, stream: str, reason: FailureReason, message: str
) -> None:
    with pytest.raises(ExtractionFailure, match=message) as failure:
        open_package(OLE2 + stream.encode("utf-16-le"), media_type)
    assert failure.value.reason is reason


@pytest.mark.parametrize("named", FILES)
@pytest.mark.parametrize("holds", FILES)
def test_one_format_under_the_name_of_another_is_a_wrong_type(named: str, holds: str) -> None:
    outcome = extract_bytes(FILES[holds], named, OPTIONS)
    assert outcome.reason is (None if named == holds else FailureReason.WRONG_TYPE)


@pytest.mark.parametrize("media_type", FILES)
def test_a_whole_archive_and_an_office_document_are_needed(media_type: str) -> None:
    for data in (
        FILES[media_type][:200],
        FILES[media_type][:-30],
        zipped({"readme.txt": "x"}),
        b"PK\x03\x04",
    ):
        outcome = extract_bytes(data, media_type, OPTIONS)
        assert outcome.reason is FailureReason.CORRUPT, outcome.message


@pytest.mark.parametrize("media_type", FILES)
def test_entities_are_refused_before_they_are_read(media_type: str) -> None:
    for name, part in members(FILES[media_type]).items():
        data = zipped({**members(FILES[media_type]), name: LAUGHS.encode() + part})
        outcome = extract_bytes(data, media_type, OPTIONS)
        assert outcome.reason is FailureReason.UNSAFE, name
        assert "declares XML entities" in (outcome.message or "")


@pytest.mark.parametrize("name", ["../evil.xml", "word/../../evil.xml", "C:/evil.xml", "..\\evil.xml"])
def test_members_that_leave_the_root_are_refused(name: str) -> None:
    outcome = extract_bytes(zipped({**members(FILES[DOCX]), name: "x"}), DOCX, OPTIONS)
    assert outcome.reason is FailureReason.UNSAFE
    assert "outside of its folder" in (outcome.message or "")


def test_a_bomb_is_too_large_and_never_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped({**members(FILES[XLSX]), "xl/media/image1.png": b"\0" * (65 << 20)})
    assert len(bomb) < 1 << 20
    outcome = extract_bytes(bomb, XLSX, OPTIONS)
    assert outcome.reason is FailureReason.TOO_LARGE
    assert "unpacks to" in (outcome.message or "")
    monkeypatch.setattr(office_package, "MAX_MEMBERS", 3)
    assert extract_bytes(FILES[XLSX], XLSX, OPTIONS).reason is FailureReason.TOO_LARGE


def test_names_are_found_without_case_and_with_a_leading_slash() -> None:
    parts = members(FILES[DOCX])
    parts["_rels/.rels"] = relationships([("rId1", "officeDocument", "/Word/Document.xml")]).encode()
    assert extract_bytes(zipped(parts), DOCX, OPTIONS).reason is None


def test_a_file_without_pointers_is_found_by_its_usual_names() -> None:
    parts = {name: part for name, part in members(FILES[PPTX]).items() if name != "_rels/.rels"}
    assert open_package(zipped(parts), PPTX).main_part == "ppt/presentation.xml"


@pytest.mark.parametrize(
    ("folder", "target", "name"),
    [
        ("word", "media/a.png", "word/media/a.png"),
        ("ppt/slides", "../charts/chart%201.xml", "ppt/charts/chart 1.xml"),
        ("word", "/word/a.xml", "word/a.xml"),
        ("word", "a.xml#part", "word/a.xml"),
        ("word", "..\\x.xml", "x.xml"),
        ("word", "#here", "word"),
    ],
)
def test_targets_are_resolved(folder: str, target: str, name: str) -> None:
    assert resolved(folder, target).rstrip("/") == name


def test_repacked_keeps_xml_and_drops_pictures_and_dead_pointers() -> None:
    data = docx(
        paragraph("x"),
        [
            ("rId1", "image", "media/a.png"),
            ("rId2", "image", "media/none.png"),
            ("rId3", "hyperlink", "NULL"),
        ],
        {"word/media/a.png": b"\x89PNG"},
    )
    again = members(open_package(data, DOCX).repacked({"word/document.xml": b"<new/>"}).getvalue())
    assert again["word/document.xml"] == b"<new/>"
    assert again["word/media/a.png"] == b""
    assert again["word/_rels/document.xml.rels"].count(b"Target=") == 1


def test_properties() -> None:
    core = (
        '<cp:coreProperties xmlns:cp="x" xmlns:dc="y"><dc:title> The  title </dc:title><dc:creator>A. B.</dc:creator>'
        "<cp:keywords/></cp:coreProperties>"
    )
    parts = members(FILES[DOCX])
    parts["docProps/core.xml"] = core.encode()
    parts["_rels/.rels"] = relationships(
        [("rId1", "officeDocument", "word/document.xml"), ("rId2", "core-properties", "docProps/core.xml")]
    ).encode()
    assert open_package(zipped(parts), DOCX).properties() == ("The title", {"author": "A. B."})
