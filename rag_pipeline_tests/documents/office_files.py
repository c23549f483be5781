"""Small Office files for tests, made of the XML that a test is about and the parts that every file has."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
DGM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
WPS = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
WP = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
V = "urn:schemas-microsoft-com:vml"
PACKAGE_RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
CONTENT_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"

Parts = Mapping[str, str | bytes]
Relation = tuple[str, str, str]
"""Id, last word of the type, target."""


NONE: Mapping[Any, Any] = MappingProxyType({})


def zipped(parts: Parts) -> bytes:
    """A ZIP archive of these members."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def relationships(relations: Sequence[Relation], external: Sequence[str] = ()) -> str:
    """The XML of a part's pointers."""
    items = "".join(
        f'<Relationship Id="{identity}" Type="{R}/{kind}" Target="{target}"'
        + (' TargetMode="External"' if identity in external else "")
        + "/>"
        for identity, kind, target in relations
    )
    return f'<Relationships xmlns="{PACKAGE_RELS}">{items}</Relationships>'


def content_types(overrides: Mapping[str, str] = NONE) -> str:
    """The XML that declares the types of the parts."""
    items = "".join(f'<Override PartName="{n}" ContentType="{t}"/>' for n, t in overrides.items())
    return (
        f'<Types xmlns="{CONTENT_TYPES}"><Default Extension="xml" ContentType="application/xml"/>'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f"{items}</Types>"
    )


def docx(
    body: str,
    relations: Sequence[Relation] = (),
    parts: Parts = NONE,
    overrides: Mapping[str, str] = NONE,
) -> bytes:
    """A Word document with this body, pointing at these parts of its folder `word/`."""
    spaces = f'xmlns:w="{W}" xmlns:r="{R}" xmlns:m="{M}" xmlns:mc="{MC}" xmlns:wps="{WPS}" xmlns:v="{V}"'
    spaces += f' xmlns:wp="{WP}" xmlns:a="{A}" xmlns:c="{C}" xmlns:dgm="{DGM}"'
    return zipped(
        {
            "[Content_Types].xml": content_types(overrides),
            "_rels/.rels": relationships([("rId1", "officeDocument", "word/document.xml")]),
            "word/document.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relationships(relations),
            **parts,
        }
    )


def paragraph(text: str, style: str = "", properties: str = "") -> str:
    """A paragraph of a Word document."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f'<w:p><w:pPr>{named}{properties}</w:pPr><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def styles(*items: tuple[str, str, str, str]) -> str:
    """The styles of a Word document: id, name, the style it is based on, and further properties."""
    return (
        f'<w:styles xmlns:w="{W}">'
        + "".join(
            f'<w:style w:type="paragraph" w:styleId="{identity}"><w:name w:val="{name}"/>'
            + (f'<w:basedOn w:val="{base}"/>' if base else "")
            + f"<w:pPr>{properties}</w:pPr></w:style>"
            for identity, name, base, properties in items
        )
        + "</w:styles>"
    )


CHART = f"""<c:chartSpace xmlns:c="{C}" xmlns:a="{A}"><c:chart>
<c:title><c:tx><c:rich><a:p><a:r><a:t>Rides a month</a:t></a:r></a:p></c:rich></c:tx></c:title>
<c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>North</c:v></c:pt></c:strCache>
</c:strRef></c:tx><c:cat><c:strRef><c:strCache><c:pt idx="0"><c:v>May</c:v></c:pt><c:pt idx="1"><c:v>June</c:v></c:pt>
</c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:pt idx="0"><c:v>1200.0</c:v></c:pt>
<c:pt idx="1"><c:v>0.5</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser></c:barChart></c:plotArea></c:chart>
</c:chartSpace>"""
CHART_TABLE = "Rides a month\n\n|  | North |\n| --- | --- |\n| May | 1200 |\n| June | 0.5 |"

DIAGRAM = f"""<dgm:dataModel xmlns:dgm="{DGM}" xmlns:a="{A}"><dgm:ptLst>
<dgm:pt modelId="0" type="doc"><dgm:t><a:p><a:r><a:t>no node</a:t></a:r></a:p></dgm:t></dgm:pt>
<dgm:pt modelId="1"><dgm:t><a:p><a:r><a:t>Report</a:t></a:r></a:p></dgm:t></dgm:pt>
<dgm:pt modelId="2" type="node"><dgm:t><a:p><a:r><a:t>Repair</a:t></a:r></a:p></dgm:t></dgm:pt>
</dgm:ptLst></dgm:dataModel>"""


def shape(text: str, placeholder: str = "", name: str = "sp") -> str:
    """A shape with a paragraph for each line of `text`; `placeholder` is the type of a placeholder."""
    kind = f'<p:ph type="{placeholder}"/>' if placeholder else ""
    paragraphs = "".join(
        line if line.startswith("<a:p>") else f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>"
        for line in text.split("\n")
    )
    return (
        f'<p:{name}><p:nvSpPr><p:cNvPr id="2" name="x"/><p:cNvSpPr/><p:nvPr>{kind}</p:nvPr></p:nvSpPr><p:spPr/>'
        f"<p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:{name}>"
    )


def frame(content: str) -> str:
    """A graphic frame around a table, a chart or a diagram."""
    return (
        f"<p:graphicFrame><p:nvGraphicFramePr/><a:graphic><a:graphicData>{content}</a:graphicData></a:graphic>"
        "</p:graphicFrame>"
    )


def pptx(
    slides: Sequence[str],
    relations: Mapping[int, Sequence[Relation]] = NONE,
    parts: Parts = NONE,
    attributes: Mapping[int, str] = NONE,
) -> bytes:
    """A presentation of slides with these shapes; `relations` and `attributes` by the slide's number from 1."""
    spaces = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}" xmlns:c="{C}" xmlns:dgm="{DGM}" xmlns:mc="{MC}"'
    numbers = range(1, len(slides) + 1)
    order = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in numbers)
    made: dict[str, str | bytes] = {
        "[Content_Types].xml": content_types(),
        "_rels/.rels": relationships([("rId1", "officeDocument", "ppt/presentation.xml")]),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{order}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relationships(
            [(f"rId{n}", "slide", f"slides/slide{n}.xml") for n in numbers]
        ),
    }
    for number, shapes in zip(numbers, slides, strict=True):
        made[f"ppt/slides/slide{number}.xml"] = (
            f"<p:sld {spaces} {attributes.get(number, '')}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
        made[f"ppt/slides/_rels/slide{number}.xml.rels"] = relationships(relations.get(number, ()))
    return zipped({**made, **parts})


def notes(text: str) -> str:
    """The XML of a page of notes."""
    return (
        f'<p:notes xmlns:p="{P}" xmlns:a="{A}"><p:cSld><p:spTree>{shape("7", "sldNum")}{shape(text, "body")}'
        "</p:spTree></p:cSld></p:notes>"
    )


def xlsx(
    sheets: Mapping[str, str],
    states: Mapping[str, str] = NONE,
    relations: Mapping[int, Sequence[Relation]] = NONE,
    parts: Parts = NONE,
) -> bytes:
    """A workbook whose sheets hold this XML inside `sheetData`."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    entries = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"'
        + (f' state="{states[name]}"' if name in states else "")
        + "/>"
        for n, name in enumerate(sheets, 1)
    )
    types = {"/xl/workbook.xml": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"}
    made: dict[str, str | bytes] = {
        "[Content_Types].xml": content_types(types),
        "_rels/.rels": relationships([("rId1", "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{R}"><sheets>{entries}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relationships(
            [(f"rId{n}", "worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)]
        ),
    }
    for number, data in enumerate(sheets.values(), 1):
        made[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData></worksheet>'
        )
        made[f"xl/worksheets/_rels/sheet{number}.xml.rels"] = relationships(relations.get(number, ()))
    return zipped({**made, **parts})


def text_cell(reference: str, text: str) -> str:
    """A cell with a text of its own."""
    return f'<c r="{reference}" t="inlineStr"><is><t>{text}</t></is></c>'


def strict(data: bytes) -> bytes:
    """The same file in the namespaces of ISO/IEC 29500-1 (strict)."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    old, new = b"http://schemas.openxmlformats.org/", b"http://purl.oclc.org/ooxml/"
    return zipped(
        {
            name: part
            if name == "[Content_Types].xml"
            else part.replace(b"/2006/main", b"/main")
            .replace(b"officeDocument/2006/relationships", b"officeDocument/relationships")
            .replace(old, new)
            .replace(new + b"package", old + b"package")
            for name, part in members.items()
        }
    )
