"""Word documents: through HTML, with headings by outline level, tables, notes after the body, and no comments.

Read as Word shows the document with all changes accepted: insertions are kept and deletions dropped. Footnotes
and endnotes stand after the body and keep their marks (`[1]`); a text box stands once, after the paragraph it is
anchored in; headers and footers, which repeat on every page, are left out. Comments are kept apart, as metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_pipeline.documents import markdown_writer
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.docx_parts import (
    Insert,
    note_ids,
    outline_levels,
    placeholder_number,
    prepare,
    texts,
)
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, ExtractionFailure, ExtractionWarning, Segment
from rag_pipeline.documents.html_blocks import Block, blocks_of
from rag_pipeline.documents.media_types import DOCX
from rag_pipeline.documents.office_drawings import chart, diagram_lines
from rag_pipeline.documents.office_package import OfficePackage, local_name, open_package
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    from lxml.html import HtmlElement

EXTRACTOR_VERSION = "1"

_W_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
# Parts beside the body that the converter reads, and what stands for one that is damaged.
_SIDE_PARTS = {
    "styles": "styles",
    "numbering": "numbering",
    "footnotes": "footnotes",
    "endnotes": "endnotes",
    "comments": "comments",
}
_NOTE_PARTS = ("footnotes", "endnotes")
_MAX_IMPORT_DEPTH = 3
_NO_TYPES = b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
_STYLE_MAP = "\n".join(f"p.Heading{level} => h{level}:fresh" for level in range(1, 7))


@dataclass
class _Document:
    """A document on its way to HTML, and what was noticed."""

    package: OfficePackage
    depth: int = 0
    inserts: list[Insert] = field(default_factory=list)
    warnings: list[ExtractionWarning] = field(default_factory=list)

    def warn(self, kind: WarningKind, message: str) -> None:
        warning = ExtractionWarning(kind, message)
        if warning not in self.warnings:
            self.warnings.append(warning)


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a Word document in one segment; comments are in the metadata."""
    document = _Document(open_package(data, DOCX))
    body = _html(document)
    notes = _take_notes(body)
    blocks = blocks_of(body)
    text = "\n\n".join([*(block.text for block in blocks), *_note_texts(notes, blocks)])
    title, metadata = document.package.properties()
    comments = list(_comments(document.package))
    if comments:
        document.warn(
            WarningKind.COMMENTS_LEFT_OUT,
            f"{len(comments)} comments are no part of the text; they are in the metadata",
        )
    return Content(
        (Segment(text + "\n" if text else ""),),
        raw_text="\n".join(_raw(document.package)),
        title=title,
        metadata={**metadata, **({"comments": comments} if comments else {})},
        warnings=tuple(document.warnings),
    )


def _html(document: _Document) -> HtmlElement:
    """Return the document as an HTML element that holds its blocks."""
    import mammoth
    from lxml import html

    package = document.package
    main = package.main_part
    # The converter wants the types of pictures, which are not read; the file's own list may be damaged.
    replaced = {"[Content_Types].xml": _NO_TYPES, **dict(_damaged_side_parts(document))}
    try:
        levels = outline_levels(package, main)
    except ExtractionFailure as failure:
        _pass_on(failure)
        levels = {f"Heading{number}": number for number in range(1, 10)}
    note_parts = [part for kind in _NOTE_PARTS for part in package.related(main, kind)]
    parts = [part for part in (main, *note_parts) if part not in replaced]
    notes = {note for part in parts[1:] for note in note_ids(package, part)}
    hidden = embedded = 0
    for part in parts:
        prepared = prepare(package, part, levels, notes, len(document.inserts))
        document.inserts += prepared.inserts
        replaced[part] = prepared.xml
        hidden += prepared.hidden_characters
        embedded += prepared.embedded_objects
    if hidden:
        document.warn(WarningKind.HIDDEN_CONTENT, f"{hidden} characters of hidden text were left out")
    if embedded:
        document.warn(WarningKind.UNREAD_CONTENT, f"{embedded} embedded objects were not read")
    converted = mammoth.convert_to_html(
        package.repacked(replaced),
        convert_image=lambda image: [],
        style_map=_STYLE_MAP,
        include_embedded_style_map=False,
    )
    # A paragraph is opened where the converter gave none, so that the parser finds an element.
    body = html.fragment_fromstring(converted.value, create_parent="body", parser=_parser())
    _fill_placeholders(document, body)
    for table in body.iter("table"):
        if max((len(row) for row in table.iter("tr")), default=0) > 1:
            table.set("role", "table")
    return body


def _parser() -> object:
    from lxml import html

    return html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)


def _pass_on(failure: ExtractionFailure) -> None:
    """Raise what stops the whole document; a damaged part beside the body does not."""
    if failure.reason is not FailureReason.CORRUPT:
        raise failure


def _damaged_side_parts(document: _Document) -> Iterator[tuple[str, bytes]]:
    package = document.package
    for kind, root in _SIDE_PARTS.items():
        for part in package.related(package.main_part, kind):
            try:
                package.xml(part)
            except ExtractionFailure as failure:
                _pass_on(failure)
                document.warn(
                    WarningKind.DAMAGED_PART, f"the {kind} cannot be read and are missing: {failure.message}"
                )
                yield part, f'<w:{root} xmlns:w="{_W_NAMESPACE}"/>'.encode()


def _fill_placeholders(document: _Document, body: HtmlElement) -> None:
    for paragraph in list(body.iter("p")):
        number = placeholder_number("".join(paragraph.itertext()))
        parent = paragraph.getparent()
        if number is None or number >= len(document.inserts) or parent is None:
            continue
        insert = document.inserts[number]
        try:
            made = _inserted(document, insert)
        except ExtractionFailure as failure:
            _pass_on(failure)
            made = None
            document.warn(WarningKind.DAMAGED_PART, f"a {insert.kind} cannot be read: {failure.message}")
        if made is None:
            parent.remove(paragraph)
        else:
            made.tail = paragraph.tail
            parent.replace(paragraph, made)
    for insert in document.inserts:
        if insert.kind == "subdocument":
            document.warn(WarningKind.UNREAD_CONTENT, "a subdocument in a file of its own was not read")


def _inserted(document: _Document, insert: Insert) -> HtmlElement | None:
    if insert.part is None:
        document.warn(WarningKind.UNREAD_CONTENT, f"a {insert.kind} is not in the file")
        return None
    if insert.kind == "chart":
        return _chart_element(document.package, insert.part)
    if insert.kind == "diagram":
        return _element(
            "ul", *(_element("li", line) for line in diagram_lines(document.package, insert.part))
        )
    return _imported(document, insert.part)


def _chart_element(package: OfficePackage, part: str) -> HtmlElement:
    found = chart(package, part)
    rows = [
        _element("tr", *(_element("th" if position == 0 else "td", cell) for cell in row))
        for position, row in enumerate(found.rows)
    ]
    return _element("div", _element("p", found.title), _element("table", *rows))


def _element(tag: str, *content: HtmlElement | str) -> HtmlElement:
    from lxml import html

    element = html.Element(tag)
    for item in content:
        if isinstance(item, str):
            element.text = item
        else:
            element.append(item)
    return element


def _imported(document: _Document, part: str) -> HtmlElement | None:
    """Return what an imported chunk (`altChunk`) holds, which Word merges in when it opens the document."""
    from lxml import html

    content_type = document.package.content_types.get(part.lower(), "")
    suffix = part.rsplit(".", 1)[-1].lower()
    data = document.package.read(part)
    if data.startswith(b"PK") and document.depth < _MAX_IMPORT_DEPTH:
        inner = _Document(open_package(data, DOCX), document.depth + 1)
        body = _html(inner)
        document.warnings += inner.warnings
        body.tag = "div"
        return body
    page = _web_page(data, content_type, suffix)
    if page is not None:
        if not page.strip():
            return None
        tree = html.document_fromstring(page.encode("utf-8", "replace"), parser=_parser())
        found = tree.find("body")
        found = tree if found is None else found
        found.tag = "div"
        return found
    if content_type.startswith("text/plain") or suffix == "txt":
        return _element("div", *(_element("p", line) for line in decode(data).text.splitlines()))
    document.warn(
        WarningKind.UNREAD_CONTENT,
        f"an imported chunk of type {content_type or suffix} was not read ({len(data)} bytes)",
    )
    return None


def _web_page(data: bytes, content_type: str, suffix: str) -> str | None:
    """Return the HTML of a chunk that is a page, or a page packed as a message (MHTML, RFC 2557)."""
    if "rfc822" in content_type or suffix in ("mht", "mhtml"):
        from email import message_from_bytes, policy

        for part in message_from_bytes(data, policy=policy.default).walk():
            if part.get_content_type() == "text/html":
                payload = part.get_payload(decode=True)
                if isinstance(payload, bytes):
                    return decode(payload, part.get_content_charset()).text
        return None
    is_page = "html" in content_type or suffix in ("html", "htm", "xhtml")
    return decode(data).text if is_page else None


def _take_notes(body: HtmlElement) -> list[HtmlElement]:
    """Take the list of notes, which the converter puts last, out of the body and return its items."""
    items = [
        item
        for item in body.iter("li")
        if (item.get("id") or "").startswith(("footnote-", "endnote-"))
        and not (item.get("id") or "").startswith(("footnote-ref-", "endnote-ref-"))
    ]
    for item in items:
        for link in list(item.iter("a")):
            if (link.get("href") or "").startswith(("#footnote-ref-", "#endnote-ref-")):
                link.drop_tree()
        parent = item.getparent()
        if parent is not None:
            parent.remove(item)
    return items


def _note_texts(notes: list[HtmlElement], blocks: list[Block]) -> Iterator[str]:
    """Yield the notes as blocks, under a heading of their own where the document has headings.

    Without it they would count to the last section, and leave the text with it where that is a list of references.
    """
    levels = [len(block.text) - len(block.text.lstrip("#")) for block in blocks if block.kind == "heading"]
    written = [text for note in notes if (text := "\n\n".join(block.text for block in blocks_of(note)))]
    if written and levels:
        # A heading of level 1 that is not the title opens the last section, and one of level 2 would not end it.
        sections = [level for level in levels[1:] if level <= 2]
        yield markdown_writer.heading(sections[-1] if sections else 2, "Notes")
    for number, text in enumerate(written, 1):
        yield f"[{number}] {text}"


def _comments(package: OfficePackage) -> Iterator[str]:
    for part in package.related(package.main_part, "comments"):
        try:
            root = package.xml(part)
        except ExtractionFailure as failure:
            _pass_on(failure)
            continue
        for comment in root:
            if local_name(comment) == "comment":
                author = " ".join((comment.get(f"{{{_W_NAMESPACE}}}author") or "").split())
                words = " ".join(" ".join(texts(comment)).split())
                if words:
                    yield f"{author}: {words}" if author else words


def _raw(package: OfficePackage) -> Iterator[str]:
    kinds = ("header", "footer", "footnotes", "endnotes", "comments")
    main = package.main_part
    for part in [main, *(part for kind in kinds for part in package.related(main, kind))]:
        try:
            yield from texts(package.xml(part))
        except ExtractionFailure as failure:
            _pass_on(failure)
