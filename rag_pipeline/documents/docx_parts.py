"""Word documents made ready for conversion: what is in the file, in the form that a converter reads.

The converter (mammoth) reads paragraphs, lists, tables, notes and tracked changes well, and passes over formulas,
fields, text boxes of the new kind, charts, diagrams and imported chunks without a word. Here each of these becomes
ordinary paragraphs, or a placeholder that is exchanged for a table or a list once the document is HTML.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag_pipeline.documents.office_drawings import relation
from rag_pipeline.documents.office_math import linear
from rag_pipeline.documents.office_package import OfficePackage, local_name

if TYPE_CHECKING:
    from lxml.etree import _Element

_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_W = f"{{{_MAIN}}}"
_HEADING_NAME = re.compile(r"heading\s*([1-9])$", re.IGNORECASE)
_TITLE = 0
# Wrappers whose content the converter would drop with them.
_TRANSPARENT = frozenset({f"{_W}fldSimple", f"{_W}dir", f"{_W}bdo", f"{_W}rubyBase"})
_OPEN, _CLOSE = "\ue000", "\ue001"
NoteId = tuple[str, str | None]
"""Kind and id of a note."""
_PLACEHOLDER = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


@dataclass(frozen=True)
class Insert:
    """Something that stands in the document by reference: a chart, a diagram or an imported chunk."""

    kind: str
    part: str | None


@dataclass
class Prepared:
    """A part of the document as XML for the converter, what its placeholders stand for, and what was seen."""

    xml: bytes
    inserts: list[Insert] = field(default_factory=list)
    hidden_characters: int = 0
    embedded_objects: int = 0


def placeholder_number(text: str) -> int | None:
    """Return which insert a paragraph's text stands for, or None for an ordinary paragraph."""
    match = _PLACEHOLDER.fullmatch(text.strip())
    return int(match[1]) if match else None


def prepare(
    package: OfficePackage,
    part: str,
    levels: Mapping[str, int],
    notes: Collection[NoteId],
    first_insert: int = 0,
) -> Prepared:
    """Return the part (the document's body, its footnotes or endnotes) as the converter wants it.

    `levels` are the outline levels of the paragraph styles (`outline_levels`), `notes` the notes that can be
    read (`note_ids`). Placeholders are numbered from `first_insert`. Raises ExtractionFailure where the part is
    damaged.
    """
    from lxml import etree

    root = package.xml(part)
    prepared = Prepared(b"")
    _choose_alternatives(root)
    _unwrap(root)
    prepared.hidden_characters = _drop_hidden(root)
    prepared.embedded_objects = sum(local_name(node) == "OLEObject" for node in root.iter())
    _write_formulas(root)
    _insert_references(package, part, root, prepared, first_insert)
    _drop_dead_pointers(root, set(package.relationships(part)), notes)
    _lift_text_boxes(root)
    _mark_headings(root, levels)
    prepared.xml = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return prepared


def _replace(element: _Element, replacements: list[_Element]) -> None:
    parent = element.getparent()
    if parent is None:
        return
    position = parent.index(element)
    parent.remove(element)
    for offset, replacement in enumerate(replacements):
        parent.insert(position + offset, replacement)


def _choose_alternatives(root: _Element) -> None:
    """Keep of every alternative the first that has words, else the first; never two of them."""
    for element in [node for node in root.iter() if local_name(node) == "AlternateContent"]:
        options = [child for child in element if local_name(child) in ("Choice", "Fallback")]
        worded = [option for option in options if _says_something(option)]
        chosen = (worded or options)[:1]
        _replace(element, list(chosen[0]) if chosen else [])


def _says_something(element: _Element) -> bool:
    return any(
        local_name(node) in ("chart", "relIds") or (local_name(node) == "t" and (node.text or "").strip())
        for node in element.iter()
    )


def _unwrap(root: _Element) -> None:
    for element in list(root.iter(f"{_W}ruby")):
        _replace(element, [child for child in element if child.tag == f"{_W}rubyBase"])
    for element in [node for node in root.iter() if node.tag in _TRANSPARENT]:
        _replace(element, list(element))
    # The base of a ruby text is a run inside a run.
    for inner in [node for node in root.iter(f"{_W}r") if _parent_tag(node) == f"{_W}r"]:
        _replace(inner, list(inner))
    for line_end in root.iter(f"{_W}cr"):
        line_end.tag = f"{_W}br"
    for hyphen in list(root.iter(f"{_W}softHyphen")):
        _replace(hyphen, [])


def _parent_tag(element: _Element) -> object:
    parent = element.getparent()
    return None if parent is None else parent.tag


def _is_on(element: _Element | None) -> bool:
    return element is not None and element.get(f"{_W}val") not in ("0", "false", "off", "none")


def _drop_hidden(root: _Element) -> int:
    characters = 0
    for run in list(root.iter(f"{_W}r")):
        if _is_on(run.find(f"{_W}rPr/{_W}vanish")):
            characters += sum(len(text.text or "") for text in run.iter(f"{_W}t"))
            _replace(run, [])
    return characters


def _run(text: str) -> _Element:
    from lxml import etree

    run = etree.Element(f"{_W}r")
    words = etree.SubElement(run, f"{_W}t")
    words.text = text
    words.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return run


def _paragraph(text: str) -> _Element:
    from lxml import etree

    paragraph = etree.Element(f"{_W}p")
    paragraph.append(_run(text))
    return paragraph


def _write_formulas(root: _Element) -> None:
    for formula in [node for node in root.iter() if local_name(node) == "oMath"]:
        text = " ".join(linear(formula).split())
        target = formula
        parent = formula.getparent()
        if parent is not None and local_name(parent) == "oMathPara" and len(list(parent)) <= 2:
            target = parent
        _replace(target, [_run(text)] if text else [])


def note_ids(package: OfficePackage, part: str) -> Iterator[NoteId]:
    """Yield the kind (`footnote`, `endnote`) and the id of every note in a part of notes.

    Raises ExtractionFailure where the part is damaged.
    """
    for note in package.xml(part):
        identity = note.get(f"{_W}id")
        if identity is not None:
            yield local_name(note), identity


def _drop_dead_pointers(root: _Element, known: Collection[str], notes: Collection[NoteId]) -> None:
    """Take out what points at nothing, at which the converter stops, and pictures, which say nothing."""
    for element in list(root.iter()):
        name = local_name(element)
        is_note = name in ("footnoteReference", "endnoteReference")
        is_dead = is_note and (name.removesuffix("Reference"), element.get(f"{_W}id")) not in notes
        if is_dead or name in ("blip", "imagedata"):
            _replace(element, [])
        elif name == "hyperlink" and relation(element, "id") not in known:
            for attribute in [key for key in element.attrib if str(key).endswith("}id")]:
                del element.attrib[attribute]


def _host(element: _Element) -> _Element | None:
    """Return the paragraph that an element is anchored in."""
    return next(iter(element.iterancestors(f"{_W}p")), None)


def _insert_references(
    package: OfficePackage, part: str, root: _Element, prepared: Prepared, first_insert: int
) -> None:
    relationships = package.relationships(part)
    after: dict[_Element, _Element] = {}

    def placeholder(kind: str, identity: str) -> _Element:
        found = relationships.get(identity)
        target = found.target if found is not None and not found.external else None
        prepared.inserts.append(Insert(kind, target))
        number = first_insert + len(prepared.inserts) - 1
        return _paragraph(f"{_OPEN}{number}{_CLOSE}")

    for element in list(root.iter()):
        name = local_name(element)
        if name == "altChunk":
            _replace(element, [placeholder("chunk", relation(element, "id"))])
        elif name == "subDoc":
            _replace(element, [])
            prepared.inserts.append(Insert("subdocument", None))
        elif name == "relIds" or (name == "chart" and relation(element, "id")):
            host = _host(element)
            if host is None:
                continue
            kind = "diagram" if name == "relIds" else "chart"
            made = placeholder(kind, relation(element, "dm" if name == "relIds" else "id"))
            after.get(host, host).addnext(made)
            after[host] = made


def _lift_text_boxes(root: _Element) -> None:
    """Put the paragraphs of every text box after the paragraph it is anchored in, so that it cuts no sentence."""
    last: dict[_Element, _Element] = {}
    for box in list(root.iter(f"{_W}txbxContent")):
        host = _host(box)
        parent = box.getparent()
        if host is None or parent is None:
            continue
        parent.remove(box)
        for block in list(box):
            last.get(host, host).addnext(block)
            last[host] = block


def outline_levels(package: OfficePackage, part: str) -> dict[str, int]:
    """Return the outline level of every paragraph style that makes a heading, by the style's id: 1 to 9, and 0
    for the style of the document's title.

    A level is the style's own, else that which its name tells (names of built-in styles are English in every
    language's Word), else that of the style it is based on. Raises ExtractionFailure for damaged styles.
    """
    styles: dict[str, tuple[int | None, str]] = {}
    for target in package.related(part, "styles"):
        for style in package.xml(target).iter(f"{_W}style"):
            if style.get(f"{_W}type", "paragraph") != "paragraph":
                continue
            styles[style.get(f"{_W}styleId") or ""] = (_style_level(style), _value(style, "basedOn") or "")
    levels: dict[str, int] = {}
    for identity in styles:
        seen: set[str] = set()
        current = identity
        while current in styles and current not in seen:
            seen.add(current)
            level, based_on = styles[current]
            if level is not None:
                # What is based on the title style is no second title; 10 is body text.
                if level <= 9 and (level != _TITLE or current == identity):
                    levels[identity] = level
                break
            current = based_on
    for number in range(1, 10):
        levels.setdefault(f"Heading{number}", number)
    return levels


def _style_level(style: _Element) -> int | None:
    name = (_value(style, "name") or style.get(f"{_W}styleId") or "").strip()
    if name.casefold() == "title":
        return _TITLE
    written = style.find(f"{_W}pPr/{_W}outlineLvl")
    if written is not None and (written.get(f"{_W}val") or "").isdecimal():
        return int(written.get(f"{_W}val") or 9) + 1
    match = _HEADING_NAME.match(name)
    return int(match[1]) if match else None


def _value(element: _Element, name: str) -> str | None:
    found = element.find(f"{_W}{name}")
    return None if found is None else found.get(f"{_W}val")


def _mark_headings(root: _Element, levels: Mapping[str, int]) -> None:
    """Give every heading the style that the converter knows for its level; a title stands above them all."""
    found: list[tuple[_Element, int]] = []
    for paragraph in root.iter(f"{_W}p"):
        level = _paragraph_level(paragraph, levels)
        if level is not None:
            found.append((paragraph, level))
    shift = int(any(level == _TITLE for _, level in found))
    for paragraph, level in found:
        _set_style(paragraph, f"Heading{min(max(level + shift, 1), 6)}")


def _paragraph_level(paragraph: _Element, levels: Mapping[str, int]) -> int | None:
    if not any((text.text or "").strip() for text in paragraph.iter(f"{_W}t")):
        return None
    written = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
    if written is not None and (written.get(f"{_W}val") or "").isdecimal():
        level = int(written.get(f"{_W}val") or 9) + 1
        return level if level <= 9 else None
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    return None if style is None else levels.get(style.get(f"{_W}val") or "")


def _set_style(paragraph: _Element, style: str) -> None:
    from lxml import etree

    properties = paragraph.find(f"{_W}pPr")
    if properties is None:
        properties = etree.Element(f"{_W}pPr")
        paragraph.insert(0, properties)
    named = properties.find(f"{_W}pStyle")
    if named is None:
        named = etree.Element(f"{_W}pStyle")
        properties.insert(0, named)
    named.set(f"{_W}val", style)


def texts(root: _Element) -> Iterator[str]:
    """Yield the words of every paragraph of a part, tracked deletions too: the crudest reading there is."""
    for paragraph in root.iter(f"{_W}p"):
        words = [
            node.text or ""
            for node in paragraph.iter()
            if local_name(node) in ("t", "delText") and _host_of_text(node) is paragraph
        ]
        if words:
            yield "".join(words)


def _host_of_text(node: _Element) -> _Element | None:
    return next(iter(node.iterancestors(f"{_W}p")), None)
