"""Office files as what they are: a ZIP archive of XML parts that point at each other (ECMA-376, part 2).

Everything that an archive can do to its reader is decided here, before a library sees it: what it takes when it
is unpacked, where its members would be written, and what entities its XML declares. Files of the strict variant
(ISO/IEC 29500-1) are given the namespaces of the usual one, which is the only one that libraries know.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rag_pipeline.documents import media_types
from rag_pipeline.documents.extraction import ExtractionFailure
from rag_pipeline.documents.states import FailureReason

if TYPE_CHECKING:
    from lxml.etree import _Element

# What all members together may take when they are unpacked, and how much of it the archive must hold: text in
# XML shrinks to a tenth, repeated cells to a hundredth, and only a bomb to a thousandth.
MAX_UNPACKED_BYTES = 2 << 30
_MAX_RATIO = 400
_RATIO_FROM_BYTES = 64 << 20
MAX_MEMBERS = 50_000
_PROLOGUE_BYTES = 4096

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_DRIVE = re.compile(r"[A-Za-z]:")
# What declares entities, in UTF-8 and in both orders of UTF-16.
_DECLARATIONS = tuple(
    word.encode(encoding)
    for word in ("<!DOCTYPE", "<!ENTITY")
    for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)

# The folder of the main part, by which the three formats are told apart.
_FOLDERS = {"word": media_types.DOCX, "ppt": media_types.PPTX, "xl": media_types.XLSX}
_OLE2_STREAMS = (
    ("EncryptedPackage", "an encrypted Office document"),
    ("WordDocument", "a Word 97-2003 document"),
    ("PowerPoint Document", "a PowerPoint 97-2003 presentation"),
    ("Workbook", "an Excel 97-2003 workbook"),
    ("Book", "an Excel 5 workbook"),
)


@dataclass(frozen=True)
class Relationship:
    """A pointer from one part to another: its id, the last word of its type, and the part or address meant."""

    id: str
    type: str
    target: str
    external: bool = False


class OfficePackage:
    """The parts of an Office file, read one by one and checked."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        # Names are compared without case (part 2, 6.2.2.3), and some writers start them with a slash.
        self._names = {info.filename.lstrip("/").lower(): info for info in archive.infolist()}

    @property
    def names(self) -> list[str]:
        """The names of all parts."""
        return [info.filename.lstrip("/") for info in self._names.values()]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._names

    def read(self, name: str) -> bytes:
        """Return a part as it stands in the archive; ExtractionFailure where it is missing or damaged."""
        info = self._names.get(name.lower())
        if info is None:
            raise ExtractionFailure(FailureReason.CORRUPT, f"the file has no part {name}")
        try:
            return self._archive.read(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
            raise ExtractionFailure(
                FailureReason.CORRUPT, f"its part {name} cannot be unpacked: {error}"
            ) from error
        except RuntimeError as error:  # what zipfile raises for a member with a password
            raise ExtractionFailure(
                FailureReason.ENCRYPTED, f"its part {name} is encrypted: {error}"
            ) from error

    def read_xml(self, name: str) -> bytes:
        """Return an XML part in the namespaces of the transitional variant, once it is known to be harmless."""
        data = self.read(name)
        if _declares_entities(data):
            raise _entities(name)
        return _STRICT.sub(_TRANSITIONAL, data) if b"purl.oclc.org/ooxml" in data else data

    def check_prologues(self) -> None:
        """Raise ExtractionFailure (`unsafe`) where an XML part opens with a declaration of entities."""
        for name, info in self._names.items():
            if not name.endswith((".xml", ".rels", ".vml")):
                continue
            try:
                with self._archive.open(info) as part:
                    head = part.read(_PROLOGUE_BYTES)
            except (
                zipfile.BadZipFile,
                zlib.error,
                EOFError,
                OSError,
                ValueError,
                NotImplementedError,
                RuntimeError,
            ):
                continue  # whoever needs the part will say so
            if _declares_entities(head):
                raise _entities(info.filename)

    def xml(self, name: str) -> _Element:
        """Return the root element of an XML part; ExtractionFailure where it is missing or not well-formed."""
        return parse_xml(self.read_xml(name), name)

    def relationships(self, name: str) -> dict[str, Relationship]:
        """Return the pointers of a part ('' for those of the package itself) by their ids.

        Those to parts that the file does not have are left out.
        """
        folder, base = posixpath.split(name)
        path = posixpath.join(folder, "_rels", f"{base}.rels")
        if path not in self:
            return {}
        found = {}
        for element in self.xml(path):
            if not isinstance(element.tag, str):
                continue
            external = element.get("TargetMode") == "External"
            target = element.get("Target") or ""
            if not external:
                target = resolved(folder, target)
                if target not in self:
                    continue
            kind = (element.get("Type") or "").rsplit("/", 1)[-1]
            identity = element.get("Id") or ""
            found[identity] = Relationship(identity, kind, target, external)
        return found

    def related(self, name: str, kind: str) -> Iterator[str]:
        """Yield the parts that a part points at by a relationship of this type."""
        for relationship in self.relationships(name).values():
            if relationship.type == kind and not relationship.external:
                yield relationship.target

    @cached_property
    def main_part(self) -> str:
        """The name of the part that the file is about: the document, the workbook, the presentation."""
        part = next(self.related("", "officeDocument"), None)
        if part is None:
            usual = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml", "xl/workbook.bin")
            part = next((name for name in usual if name in self), None)
        if part is None:
            raise ExtractionFailure(FailureReason.CORRUPT, "the archive holds no Office document")
        return part

    @cached_property
    def media_type(self) -> str | None:
        """Which of the formats the file is, by its main part."""
        if self.main_part.lower().endswith(".bin"):
            return media_types.XLSB
        return _FOLDERS.get(self.main_part.split("/", 1)[0].lower())

    @cached_property
    def is_strict(self) -> bool:
        """Whether the file is of the strict variant, by the namespace of its main part."""
        return _STRICT.search(self.read(self.main_part)[:4096]) is not None

    @cached_property
    def content_types(self) -> dict[str, str]:
        """The declared content type of every part that declares one of its own, by its lower-cased name."""
        if "[Content_Types].xml" not in self:
            return {}
        return {
            (element.get("PartName") or "").lstrip("/").lower(): element.get("ContentType") or ""
            for element in self.xml("[Content_Types].xml")
            if isinstance(element.tag, str) and element.tag.endswith("}Override")
        }

    def properties(self) -> tuple[str | None, dict[str, str]]:
        """Return the title and the other properties of the document, as far as they are set."""
        values: dict[str, str] = {}
        for part in self.related("", "core-properties"):
            try:
                root = self.xml(part)
            except ExtractionFailure:
                continue
            for element in root:
                if isinstance(element.tag, str):
                    name = element.tag.rsplit("}", 1)[-1]
                    values[name] = " ".join((element.text or "").split())
        wanted = {
            "author": "creator",
            "subject": "subject",
            "keywords": "keywords",
            "description": "description",
            "language": "language",
            "created": "created",
            "modified": "modified",
        }
        metadata = {key: values[name] for key, name in wanted.items() if values.get(name)}
        return values.get("title") or None, metadata

    def repacked(self, replaced: Mapping[str, bytes]) -> io.BytesIO:
        """Return the file as a new archive of harmless parts, some of them replaced.

        Every XML part has been looked at, is of the transitional variant, and points at no part that is
        missing. Parts that cannot be unpacked are left out, and so is everything that is neither XML nor
        pointed at by text: pictures, sound, fonts.
        """
        target = io.BytesIO()
        lowered = {name.lower(): data for name, data in replaced.items()}
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for name in self.names:
                if name.lower() in lowered:
                    archive.writestr(name, lowered[name.lower()])
                elif name.lower().endswith(".rels"):
                    archive.writestr(name, self._whole_relationships(name))
                elif name.lower().endswith((".xml", ".vml")):
                    try:
                        archive.writestr(name, self.read_xml(name))
                    except ExtractionFailure as failure:
                        if failure.reason is not FailureReason.CORRUPT:
                            raise
                elif not name.endswith("/"):
                    # An empty picture is a picture nobody needs to unpack, and its pointers stay whole.
                    archive.writestr(name, b"")
        target.seek(0)
        return target

    def _whole_relationships(self, name: str) -> bytes:
        from lxml import etree

        try:
            root = self.xml(name)
        except ExtractionFailure as failure:
            if failure.reason is not FailureReason.CORRUPT:
                raise
            return b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"/>'
        folder = posixpath.dirname(posixpath.dirname(name))
        for element in list(root):
            if not isinstance(element.tag, str) or element.get("TargetMode") == "External":
                continue
            if resolved(folder, element.get("Target") or "") not in self:
                root.remove(element)
        return bytes(etree.tostring(root))


def open_package(data: bytes, media_type: str) -> OfficePackage:
    """Return the parts of an Office file of this media type.

    Raises ExtractionFailure: `encrypted` for a file behind a password, `wrong_type` for one of the old binary
    formats or of another Office format, `unsafe` for members that would be written outside of the folder they
    are unpacked in, `too_large` for what would unpack to gigabytes, `corrupt` for anything else.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise _ole2(data, media_type)
    package = OfficePackage(_archive(data))
    package.check_prologues()
    found = package.media_type
    if found is None:
        raise ExtractionFailure(FailureReason.CORRUPT, "the archive holds no Office document")
    if found != media_type:
        raise ExtractionFailure(
            FailureReason.WRONG_TYPE, f"the file is named as {media_type} and holds {found}"
        )
    return package


def check_archive(data: bytes) -> list[str]:
    """Return the names of the members of a ZIP archive that does no harm to who unpacks it.

    Raises ExtractionFailure as `open_package` does.
    """
    return _archive(data).namelist()


def _archive(data: bytes) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, zlib.error) as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"the file is no whole ZIP archive: {error}"
        ) from error
    _check_members(archive.infolist())
    return archive


def _declares_entities(data: bytes) -> bool:
    return any(declaration in data for declaration in _DECLARATIONS)


def _entities(name: str) -> ExtractionFailure:
    return ExtractionFailure(
        FailureReason.UNSAFE, f"its part {name} declares XML entities, which no Office file may do"
    )


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_MEMBERS:
        raise ExtractionFailure(
            FailureReason.TOO_LARGE, f"the archive has {len(members)} members, more than {MAX_MEMBERS}"
        )
    for member in members:
        name = member.filename.replace("\\", "/")
        if ".." in name.split("/") or _DRIVE.match(name):
            raise ExtractionFailure(
                FailureReason.UNSAFE,
                f"the archive's member {member.filename!r} would be unpacked outside of its folder",
            )
    # Reading a member ends at its declared size, so that what is declared is what it can take.
    unpacked = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members) or 1
    if unpacked > MAX_UNPACKED_BYTES or (unpacked > _RATIO_FROM_BYTES and unpacked > _MAX_RATIO * packed):
        raise ExtractionFailure(
            FailureReason.TOO_LARGE,
            f"the archive of {packed} bytes unpacks to {unpacked} bytes, which no document needs",
        )


def _ole2(data: bytes, media_type: str) -> ExtractionFailure:
    # Stream names stand in the directory as UTF-16; the first that is there tells what the file is.
    for stream, what in _OLE2_STREAMS:
        if stream.encode("utf-16-le") in data:
            if stream == "EncryptedPackage":
                return ExtractionFailure(FailureReason.ENCRYPTED, "the file asks for a password")
            return ExtractionFailure(
                FailureReason.WRONG_TYPE, f"the file is named as {media_type} and holds {what}"
            )
    return ExtractionFailure(
        FailureReason.WRONG_TYPE, f"the file is named as {media_type} and holds an OLE2 file"
    )


def parse_xml(data: bytes, name: str) -> _Element:
    """Return the root of an XML document that declares no entities; ExtractionFailure where it is damaged."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"its part {name} is no well-formed XML: {error}"
        ) from error
    if root is None:
        raise ExtractionFailure(FailureReason.CORRUPT, f"its part {name} is empty")
    return root


def resolved(folder: str, target: str) -> str:
    """Return the name of the part that `target` means, seen from a part in `folder`."""
    target = unquote(target.split("#", 1)[0]).replace("\\", "/")
    path = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
    return posixpath.normpath(path).lstrip("/") if path else ""


def local_name(element: _Element) -> str:
    """Return the name of an element without its namespace; '' for a comment or an instruction."""
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""
