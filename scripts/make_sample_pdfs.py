"""Make the PDF documents of the sample corpus.

usage: make_sample_pdfs.py [NAME...]      (names without suffix; default: all)

Each source becomes `rag_pipeline/sample/corpus/NAME.pdf`: `sample_sources/NAME.md` a manual,
`sample_sources/newsletter/NAME.md` a newsletter in two columns, and `sample_sources/scanned/NAME.txt` a letter that
is a picture, as a scanner gives it. The sources use a small markup: `# ` title, `> ` the line under it, `## ` and
`### ` headings, paragraphs, `- ` and `1. ` lists, `|` tables and `= ` for a formula on a line of its own; that of a
letter is set line by line.

The output is a pure function of the source and of the libraries' releases: no time stamps and no random ids, so
that a second run gives the same bytes and `git diff` stays silent.
"""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import reportlab
from reportlab.lib import colors
from reportlab.lib.enums import TA_CENTER, TA_JUSTIFY
from reportlab.lib.pagesizes import A4, A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    ListFlowable,
    ListItem,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

SOURCES = Path(__file__).resolve().parent / "sample_sources"
CORPUS = Path(__file__).resolve().parents[1] / "rag_pipeline" / "sample" / "corpus"
PUBLISHER = "Plover Cycle Hire"
MARGIN = 24 * mm

BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=11, leading=15.5, spaceAfter=7)
CELL = ParagraphStyle("cell", parent=BODY, fontSize=9, leading=11, spaceAfter=0)
HEAD_CELL = ParagraphStyle("head cell", parent=CELL, fontName="Times-Bold")
LEAD = ParagraphStyle("lead", parent=BODY, fontName="Times-Italic", spaceAfter=12)
FORMULA = ParagraphStyle("formula", parent=BODY, fontName="Times-Italic", alignment=TA_CENTER, spaceBefore=4)
TITLE = ParagraphStyle("title", fontName="Helvetica-Bold", fontSize=20, leading=25, spaceAfter=8)
SECTION = ParagraphStyle(
    "section",
    fontName="Helvetica-Bold",
    fontSize=14,
    leading=18,
    spaceBefore=12,
    spaceAfter=6,
    keepWithNext=1,
)
SUBSECTION = ParagraphStyle(
    "subsection", parent=SECTION, fontSize=11.5, leading=15, spaceBefore=8, spaceAfter=4
)
HEADINGS = {"#": TITLE, "##": SECTION, "###": SUBSECTION}


@dataclass(frozen=True)
class Block:
    """A piece of a source: its kind and its lines."""

    kind: str
    lines: list[str]


def kind_of(line: str) -> str:
    """Return the kind of block that `line` belongs to."""
    if match := re.match(r"(#{1,3}) ", line):
        return match.group(1)
    if re.match(r"\d+\. ", line):
        return "numbers"
    return {"> ": "lead", "- ": "bullets", "= ": "formula"}.get(
        line[:2], "table" if line[0] == "|" else "body"
    )


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a source: runs of lines between blank lines, headings and lead lines alone."""
    for run in re.split(r"\n\s*\n", text.strip()):
        lines = run.split("\n")
        while lines and kind_of(lines[0]) in {*HEADINGS, "lead"}:
            yield Block(kind_of(lines[0]), [lines.pop(0)])
        if lines:
            yield Block(kind_of(lines[0]), lines)


def inline(text: str) -> str:
    """Return `text` as reportlab's paragraph markup, with `**bold**` and `` `code` `` set as such."""
    marked = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
    return re.sub(r"`(.+?)`", r'<font name="Courier">\1</font>', marked)


def table(lines: list[str], width: float) -> Table:
    """Return a ruled table; the columns share `width` (points) by the square root of their longest cell."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head, body = rows[0], rows[2:]
    # The square root keeps a column of long sentences from starving the narrow ones.
    weights = [max(len(row[i]) for row in [head, *body]) ** 0.5 for i in range(len(head))]
    grid = [[Paragraph(inline(cell), HEAD_CELL) for cell in head]]
    grid += [[Paragraph(inline(cell), CELL) for cell in row] for row in body]
    made = Table(grid, colWidths=[width * w / sum(weights) for w in weights], repeatRows=1, spaceAfter=8)
    made.setStyle(
        TableStyle(
            [
                ("GRID", (0, 0), (-1, -1), 0.5, colors.HexColor("#8a9a9d")),
                ("BACKGROUND", (0, 0), (-1, 0), colors.HexColor("#e4ecec")),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ]
        )
    )
    return made


def flowables(text: str, width: float) -> Iterator[Flowable]:
    """Yield what the page template lays out, in reading order."""
    for block in blocks(text):
        if block.kind in HEADINGS:
            yield Paragraph(inline(block.lines[0].lstrip("# ")), HEADINGS[block.kind])
        elif block.kind == "table":
            yield table(block.lines, width)
        elif block.kind in {"bullets", "numbers"}:
            items = [Paragraph(inline(re.sub(r"^(- |\d+\. )", "", line)), BODY) for line in block.lines]
            yield ListFlowable(
                [ListItem(item, leftIndent=18) for item in items],
                bulletType="1" if block.kind == "numbers" else "bullet",
                bulletFormat="%s." if block.kind == "numbers" else None,
                bulletFontSize=11,
                start=None if block.kind == "numbers" else "bulletchar",
            )
            yield Spacer(0, 4)
        else:
            style = {"lead": LEAD, "formula": FORMULA}.get(block.kind, BODY)
            yield Paragraph(inline(re.sub(r"^[>=] ", "", " ".join(block.lines))), style)


def make_manual(source: Path, target: Path) -> None:
    """Write a manual: one column, with a line at the head and one at the foot of each page."""
    text = source.read_text(encoding="utf-8")
    title = text.split("\n", 1)[0].removeprefix("# ")

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.saveState()
        canvas.setFont("Helvetica", 8)
        canvas.setFillColor(colors.HexColor("#56666a"))
        canvas.drawString(MARGIN, A4[1] - 14 * mm, PUBLISHER)
        canvas.drawRightString(A4[0] - MARGIN, A4[1] - 14 * mm, title)
        canvas.drawCentredString(A4[0] / 2, 12 * mm, f"Page {document.page}")
        canvas.restoreState()

    document = BaseDocTemplate(
        str(target),
        pagesize=A4,
        title=title,
        author=PUBLISHER,
        lang="en-GB",
        invariant=1,
    )
    frame = Frame(MARGIN, MARGIN, A4[0] - 2 * MARGIN, A4[1] - 2 * MARGIN, 0, 0, 0, 0)
    document.addPageTemplates(PageTemplate("page", [frame], onPage=furniture))
    document.build(list(flowables(text, frame.width)))


def make_newsletter(source: Path, target: Path) -> None:
    """Write a newsletter: two columns on A5, with a running head at the outer edge of each page."""
    text = source.read_text(encoding="utf-8")
    title, issue = (line.lstrip("#> ") for line in text.split("\n", 2)[:2])
    width, height = A5
    margin, gap = 17 * mm, 7 * mm

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.saveState()
        canvas.setFont("Helvetica-Oblique", 7.5)
        head = f"{title}, {issue[0].lower()}{issue[1:]}"
        # The outer edge: right on odd pages, left on even ones.
        if document.page % 2:
            canvas.drawRightString(width - margin, height - 9 * mm, head)
        else:
            canvas.drawString(margin, height - 9 * mm, head)
        canvas.drawCentredString(width / 2, 7 * mm, f"- {document.page} -")
        canvas.restoreState()

    document = BaseDocTemplate(
        str(target), pagesize=A5, title=title, author=PUBLISHER, lang="en-GB", invariant=1
    )
    column = (width - 2 * margin - gap) / 2
    frames = [
        Frame(margin + number * (column + gap), margin, column, height - 2 * margin, 0, 0, 0, 0)
        for number in range(2)
    ]
    document.addPageTemplates(PageTemplate("page", frames, onPage=furniture))
    small = {"#": (17, 21), "##": (11.5, 14.5)}
    styles = {
        kind: ParagraphStyle(f"news {kind}", parent=HEADINGS[kind], fontSize=size, leading=leading)
        for kind, (size, leading) in small.items()
    }
    body = ParagraphStyle("news", parent=BODY, fontSize=10, leading=13.5, spaceAfter=6, alignment=TA_JUSTIFY)
    lead = ParagraphStyle("news lead", parent=LEAD, fontSize=10, leading=13, spaceAfter=8)
    document.build(
        [
            Paragraph(
                inline(re.sub(r"^(#+|>) ", "", " ".join(block.lines))),
                {**styles, "lead": lead}.get(block.kind, body),
            )
            for block in blocks(text)
        ]
    )


def make_scan(source: Path, target: Path) -> None:
    """Write a letter as a picture without a text layer: grey, 200 dots an inch, a little askew, with specks."""
    from PIL import Image, ImageDraw, ImageFont

    dots = 200 / 72
    width, height = round(A4[0] * dots), round(A4[1] * dots)
    page = Image.new("L", (width, height), 250)
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf", round(11 * dots))
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines()):
        draw.text((round(70 * dots), round((70 + 16.5 * number) * dots)), line, fill=35, font=font)
    chance = random.Random(source.stem)
    for _ in range(160):
        at = (chance.randrange(width), chance.randrange(height))
        draw.point(at, fill=chance.randrange(90, 200))
    page = page.rotate(0.2, resample=Image.Resampling.BICUBIC, fillcolor=250)
    picture = io.BytesIO()
    page.quantize(6).save(picture, "PNG")
    canvas = Canvas(str(target), pagesize=A4, invariant=1)
    canvas.setTitle("Scan")
    canvas.drawImage(ImageReader(picture), 0, 0, A4[0], A4[1])
    canvas.save()


KINDS: tuple[tuple[str, Callable[[Path, Path], None]], ...] = (
    ("*.md", make_manual),
    ("newsletter/*.md", make_newsletter),
    ("scanned/*.txt", make_scan),
)


def main() -> None:
    """Make the named documents, or all of them."""
    found = {path.stem: (path, make) for pattern, make in KINDS for path in SOURCES.glob(pattern)}
    for name in sys.argv[1:] or sorted(found):
        source, make = found[name]
        target = CORPUS / f"{name}.pdf"
        make(source, target)
        print(f"{target.relative_to(CORPUS.parents[2])}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
