"""Make the Office documents of the sample corpus: a Word document, a presentation and a workbook.

usage: make_sample_office.py [NAME...]      (names without suffix; default: all)

Each `sample_sources/office/NAME.md` becomes a document of the corpus, in the format that `DOCUMENTS` says. The
sources share a small markup: `# ` title, `## ` headings (a section, a slide or a sheet), paragraphs, `- ` lists and
`|` tables. A document has footnotes (`[^1]` and `[^1]: text`); a slide has notes (`> `) and a chart (`= `, first the
title and the names of the series, then the rows); a sheet has a line above its table.

The output is a pure function of the source and of the libraries' releases: archives carry no time of their own, so
that a second run gives the same bytes and `git diff` stays silent.
"""

from __future__ import annotations

import datetime
import io
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

SOURCES = Path(__file__).resolve().parent / "sample_sources" / "office"
CORPUS = Path(__file__).resolve().parents[1] / "rag_pipeline" / "sample" / "corpus"
PUBLISHER = "Plover Cycle Hire"
# Archives cannot say "no time"; this is the first they can say.
EPOCH = (1980, 1, 1, 0, 0, 0)
WRITTEN = datetime.datetime(2025, 3, 1, 9, 0)
_TIMES = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*")


@dataclass
class Section:
    """What stands under one `## ` heading, by kind of line and in order."""

    title: str
    lead: list[str] = field(default_factory=list)
    bullets: list[str] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    chart: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Source:
    """A source: its title, what stands above the first heading, its sections and its footnotes."""

    title: str
    lead: list[str]
    sections: list[Section]
    footnotes: list[str]


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table or a chart."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_source(name: str) -> Source:
    """Return the source `name`."""
    text = (SOURCES / f"{name}.md").read_text(encoding="utf-8")
    source = Source("", [], [], [])
    for line in filter(None, map(str.strip, text.splitlines())):
        section = source.sections[-1] if source.sections else None
        if line.startswith("# "):
            source.title = line[2:]
        elif line.startswith("## "):
            source.sections.append(Section(line[3:]))
        elif match := re.match(r"\[\^\d+\]: (.*)", line):
            source.footnotes.append(match[1])
        elif section is None:
            source.lead.append(line)
        elif line.startswith("|"):
            if not re.fullmatch(r"[|\-: ]+", line):
                section.table.append(cells(line))
        elif line.startswith("- "):
            section.bullets.append(line[2:])
        elif line.startswith("= "):
            section.chart.append(cells(line[2:]))
        elif line.startswith("> "):
            section.notes.append(line[2:])
        else:
            # Where a document's table stands between its paragraphs matters.
            section.lead.append(line)
            if section.table and "\f" not in section.lead:
                section.lead.insert(-1, "\f")
    return source


def archive(members: dict[str, bytes]) -> bytes:
    """Return a ZIP archive of these members that carries no time."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            file.writestr(info, data)
    return target.getvalue()


def timeless(data: bytes) -> bytes:
    """Return an Office file without the times of its writing, nor those of workbooks embedded in it."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    moment = WRITTEN.isoformat().encode() + b"Z"
    for name, part in members.items():
        if name == "docProps/core.xml":
            members[name] = _TIMES.sub(rb"\g<1>" + moment, part)
        elif name.endswith(".xlsx"):
            members[name] = timeless(part)
    return archive(members)


# -- Word -----------------------------------------------------------------------------------------------------

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def word_runs(text: str) -> str:
    """Return a paragraph's runs, with `[^1]` as the mark of a footnote."""
    runs = []
    for part in re.split(r"(\[\^\d+\])", text):
        if match := re.fullmatch(r"\[\^(\d+)\]", part):
            runs.append(
                '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
                f'<w:footnoteReference w:id="{match[1]}"/></w:r>'
            )
        elif part:
            runs.append(f'<w:r><w:t xml:space="preserve">{escape(part)}</w:t></w:r>')
    return "".join(runs)


def word_paragraph(text: str, style: str = "Normal") -> str:
    """Return a paragraph."""
    return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr>{word_runs(text)}</w:p>'


def word_table(rows: list[list[str]]) -> str:
    """Return a ruled table whose first row is its header."""
    sides = "".join(
        f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="808080"/>'
        for side in ("top", "left", "bottom", "right", "insideH", "insideV")
    )
    grid = '<w:gridCol w:w="2250"/>' * len(rows[0])
    lines = []
    for number, row in enumerate(rows):
        head = "<w:trPr><w:tblHeader/></w:trPr>" if number == 0 else ""
        body = "".join(
            f'<w:tc><w:tcPr><w:tcW w:w="2250" w:type="dxa"/></w:tcPr>{word_paragraph(cell)}</w:tc>'
            for cell in row
        )
        lines.append(f"<w:tr>{head}{body}</w:tr>")
    return (
        f"<w:tbl><w:tblPr><w:tblBorders>{sides}</w:tblBorders></w:tblPr><w:tblGrid>{grid}</w:tblGrid>"
        f"{''.join(lines)}</w:tbl>"
    )


def word_styles() -> str:
    """Return the styles part: plain text, a title and one level of headings."""
    looks = {
        "Normal": ("Normal", "", '<w:rPr><w:sz w:val="22"/></w:rPr>'),
        "Title": ("Title", "", '<w:rPr><w:b/><w:sz w:val="36"/></w:rPr>'),
        "Heading1": (
            "heading 1",
            '<w:pPr><w:keepNext/><w:outlineLvl w:val="0"/></w:pPr>',
            '<w:rPr><w:b/><w:sz w:val="28"/></w:rPr>',
        ),
    }
    made = "".join(
        f'<w:style w:type="paragraph" w:styleId="{identity}"><w:name w:val="{name}"/>{paragraph}{run}</w:style>'
        for identity, (name, paragraph, run) in looks.items()
    )
    return f'{XML}<w:styles xmlns:w="{W}">{made}</w:styles>'


def word_document(source: Source) -> bytes:
    """Return the source as a Word document."""
    body = [word_paragraph(source.title, "Title"), *map(word_paragraph, source.lead)]
    for section in source.sections:
        body.append(word_paragraph(section.title, "Heading1"))
        lead = section.lead if "\f" in section.lead or not section.table else [*section.lead, "\f"]
        body += [word_table(section.table) if line == "\f" else word_paragraph(line) for line in lead]
    notes = "".join(
        f'<w:footnote w:id="{number}"><w:p><w:r><w:footnoteRef/></w:r>{word_runs(" " + text)}</w:p></w:footnote>'
        for number, text in enumerate(source.footnotes, 1)
    )
    rules = (
        '<w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
        '<w:footnote w:type="continuationSeparator" w:id="0"><w:p><w:r><w:continuationSeparator/></w:r></w:p>'
        "</w:footnote>"
    )
    parts = {"document": "document.main", "styles": "styles", "footnotes": "footnotes"}
    overrides = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{WORD_TYPE}.{kind}+xml"/>'
        for name, kind in parts.items()
    )
    core = (
        f'<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{escape(source.title)}</dc:title><dc:creator>{PUBLISHER}</dc:creator></cp:coreProperties>"
    )
    members = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{overrides}'
        '<Override PartName="/docProps/core.xml" '
        'ContentType="application/vnd.openxmlformats-package.core-properties+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="word/document.xml"/>'
        f'<Relationship Id="rId2" Type="{PACKAGE}/relationships/metadata/core-properties" '
        'Target="docProps/core.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{OFFICE}/styles" Target="styles.xml"/>'
        f'<Relationship Id="rId2" Type="{OFFICE}/footnotes" Target="footnotes.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{"".join(body)}<w:sectPr/></w:body></w:document>',
        "word/footnotes.xml": f'<w:footnotes xmlns:w="{W}">{rules}{notes}</w:footnotes>',
        "docProps/core.xml": core,
    }
    encoded = {name: (XML + part).encode() for name, part in members.items()}
    return archive({**encoded, "word/styles.xml": word_styles().encode()})


# -- PowerPoint -----------------------------------------------------------------------------------------------


def presentation(source: Source) -> bytes:
    """Return the source as a presentation: a cover, then a slide a section."""
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    show = Presentation()
    cover = show.slides.add_slide(show.slide_layouts[0])
    cover.shapes.title.text = source.title
    cover.placeholders[1].text = "\n".join(source.lead)
    for section in source.sections:
        layout = show.slide_layouts[1 if section.bullets else 5]
        slide = show.slides.add_slide(layout)
        slide.shapes.title.text = section.title
        if section.bullets:
            slide.placeholders[1].text_frame.text = "\n".join(section.bullets)
        if section.table:
            rows = section.table
            shape = slide.shapes.add_table(
                len(rows), len(rows[0]), Inches(0.5), Inches(1.6), Inches(9), Inches(4)
            )
            for row, line in enumerate(rows):
                for column, text in enumerate(line):
                    shape.table.cell(row, column).text = text
        if section.chart:
            (title, *names), *points = section.chart
            data = CategoryChartData()
            data.categories = [point[0] for point in points]
            for number, name in enumerate(names, 1):
                data.add_series(name, [int(point[number]) for point in points])
            frame = slide.shapes.add_chart(
                XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(5), Inches(1.6), Inches(4.5), Inches(4), data
            )
            frame.chart.has_title = True
            frame.chart.chart_title.text_frame.text = title
        if section.notes:
            slide.notes_slide.notes_text_frame.text = "\n".join(section.notes)
    properties = show.core_properties
    properties.title, properties.author, properties.comments = source.title, PUBLISHER, ""
    properties.created = properties.modified = WRITTEN
    file = io.BytesIO()
    show.save(file)
    return timeless(file.getvalue())


# -- Excel ----------------------------------------------------------------------------------------------------


def cell_value(text: str) -> tuple[object, str | None]:
    """Return a cell's text as a number, a date or itself, and the format it is shown with."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return datetime.date.fromisoformat(text), "yyyy-mm-dd"
    if re.fullmatch(r"\d+%", text):
        return int(text[:-1]) / 100, "0%"
    if re.fullmatch(r"\d+", text):
        return int(text), None
    return (float(text), None) if re.fullmatch(r"\d+\.\d+", text) else (text, None)


def workbook(source: Source) -> bytes:
    """Return the source as a workbook, a sheet a section: a line, an empty row and the table."""
    import openpyxl
    from openpyxl.styles import Alignment, Font

    book = openpyxl.Workbook()
    book.remove(book.active)
    for section in source.sections:
        sheet = book.create_sheet(section.title)
        for row, text in enumerate([f"{source.title}: {section.title}", *section.lead], 1):
            sheet.cell(row, 1, text).font = Font(bold=row == 1)
        first = len(section.lead) + 3
        for row, line in enumerate(section.table, first):
            for column, text in enumerate(line, 1):
                value, shown = cell_value(text)
                cell = sheet.cell(row, column, value)
                cell.alignment = Alignment(wrap_text=True, vertical="top")
                cell.font = Font(bold=row == first)
                if shown:
                    cell.number_format = shown
    properties = book.properties
    properties.title, properties.creator = source.title, PUBLISHER
    file = io.BytesIO()
    book.save(file)
    return timeless(file.getvalue())


DOCUMENTS: dict[str, tuple[str, Callable[[Source], bytes]]] = {
    "company-tariffs": (".xlsx", workbook),
    "monthly-performance-may-2024": (".pptx", presentation),
    "rider-advisory-group-minutes": (".docx", word_document),
}


def make_all(names: list[str]) -> Iterator[Path]:
    """Write the named documents, or all of them, and yield their paths."""
    for name in names or sorted(DOCUMENTS):
        suffix, make = DOCUMENTS[name]
        target = CORPUS / f"{name}{suffix}"
        target.write_bytes(make(read_source(name)))
        yield target


def main() -> None:
    """Make the named documents, or all of them."""
    for path in make_all(sys.argv[1:]):
        print(f"{path.relative_to(CORPUS.parents[2])}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
