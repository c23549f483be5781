"""Positioned characters of a PDF page, read by pdfium, as lines in the order of the content stream.

pdfium decodes the characters and puts right-to-left words into logical order; where words, cells and lines begin and
end is decided here, from the geometry, since what is a word space for one page is kerning on the next.
Every direction of writing has its own upright coordinates: text that runs up the page is laid out like any other.
"""

from __future__ import annotations

import ctypes
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents.page_lines import (
    Piece,
    Ruling,
    TextLine,
    fold_ligatures,
    is_bold,
    is_monospace,
)

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

# What a font repair puts in the place of a glyph whose character nobody knows.
UNMAPPED = "\ufffd"

# A gap of so many ems between two glyphs is a word space; between the two thresholds pdfium's own guess
# decides.
_SPACE_EMS = 0.22
_NO_SPACE_EMS = 0.08
# A gap of so many ems ends a cell. Justified lines stretch their spaces: where a space character stands in
# the gap, it must also be so many times as wide as the line's narrow ones, unless it is wider than any
# stretched space.
_CELL_EMS = 1.0
_CELL_SPACES = 2.5
_WIDEST_SPACE_EMS = 2.4
_WIDEST_WORD_SPACE_EMS = 0.95
_BASELINE_EMS = 0.5
_BACKWARD_EMS = 0.6
# Glyphs from the end of a line in which its full size shows, if it ends raised or lowered.
_MAX_SCRIPT = 8
# The same character drawn again within so many ems is the same one in false bold.
_DOUBLE_EMS = 0.12
# The side of the squares by which drawn glyphs are remembered (points).
_CELL = 4.0
# Text further off a right angle than this (radians) is a watermark or a label of a drawing.
_SKEW = 0.09
# A rule is a drawn shape no thicker than this, and at least so long (points).
_RULE_THICKNESS = 2.0
_RULE_LENGTH = 12.0
_MAX_RULINGS = 4000
_MAX_SEGMENTS = 64
_MAX_OBJECTS = 200_000
_MAX_DEPTH = 12
_MAX_ANNOTATIONS = 2000

# Characters of symbol fonts that stand for a bullet (private use area, as Wingdings and Symbol are mapped).
_PRIVATE_BULLETS = frozenset("\uf0b7\uf0a7\uf0a8\uf076\uf0d8\uf0fc\uf06e\uf0e0")


@dataclass(frozen=True)
class PageText:
    """What a page holds: its lines in stream order, its raw text, its rules, and how it is made."""

    lines: tuple[TextLine, ...]
    raw: str
    rulings: tuple[Ruling, ...]
    glyphs: int
    unmapped: int
    image_share: float
    has_drawing: bool
    unseen: float = 0.0
    """Share of the page's text objects that gave no character: blanks, or text in a font that pdfium has not got."""

    @property
    def letters(self) -> int:
        """Letters and digits of the text layer."""
        return sum(1 for line in self.lines for character in line.text if character.isalnum())


@dataclass(frozen=True)
class _Style:
    size: float
    bold: bool
    monospace: bool
    quarter: int
    angle: float
    skewed: bool
    order: int


@dataclass(slots=True)
class _Glyph:
    text: str
    x: float
    x_end: float
    y: float
    style: _Style
    space_before: bool
    """A space stands before it, if only in pdfium's opinion."""
    spaced: bool
    """A space character stands before it."""
    origin: tuple[float, float]

    @property
    def is_rtl(self) -> bool:
        return unicodedata.bidirectional(self.text[0]) in ("R", "AL")

    @property
    def is_mark(self) -> bool:
        return unicodedata.combining(self.text[0]) != 0


def read_page(page: PdfPage) -> PageText:
    """Return the text and the rules of an open page of pdfium."""
    objects = _Objects(page)
    text_page = page.get_textpage()
    try:
        glyph_lines, raw, unmapped = _glyphs(text_page, objects)
    finally:
        text_page.close()
    orders = {glyph.style.order for glyphs in glyph_lines for glyph in glyphs}
    _drop_doubles(glyph_lines)
    lines = [line for glyphs in _rejoined(glyph_lines) for line in _lines_of(glyphs)]
    count = sum(len(glyphs) for glyphs in glyph_lines)
    width, height = page.get_size()
    share = min(1.0, objects.image_area / max(width * height, 1.0))
    turn, upright = _main_direction(lines)
    return PageText(
        tuple(upright),
        raw,
        tuple(_turned_ruling(rule, turn % 4) for rule in objects.rulings),
        count + unmapped,
        unmapped,
        share,
        objects.drawings > 0 or objects.images > 0,
        1.0 - len(orders & set(objects.order.values())) / len(objects.order) if objects.order else 0.0,
    )


def read_page_with_forms(document: PdfDocument, index: int) -> tuple[PdfPage, PageText]:
    """Return the page opened and what it holds, with the values of its form fields and the text typed on top of it.

    Those are annotations with a look of their own; each is put behind the line that it stands beside or below. Notes,
    which open in a window, are no part of the page.
    """
    import pypdfium2.raw as pdfium

    page = document[index]
    text = read_page(page)
    if not _has_typed_text(page):
        return page, text
    if pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return page, text
    page.close()
    page = document[index]
    flat = read_page(page)
    known = {(line.text, round(line.x), round(line.y)) for line in text.lines}
    lines = list(text.lines)
    for line in flat.lines:
        if (line.text, round(line.x), round(line.y)) not in known:
            lines.insert(_place_of(line, lines), line)
    return page, replace(flat, lines=tuple(lines), rulings=text.rulings)


def _has_typed_text(page: PdfPage) -> bool:
    import pypdfium2.raw as pdfium

    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        pdfium.FPDFPage_CloseAnnot(annotation)
        if kind in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT):
            return True
    return False


def _place_of(line: TextLine, lines: Sequence[TextLine]) -> int:
    """Return where a line belongs that is in no order: behind its neighbour on the left, else the one above."""
    best, place = math.inf, len(lines)
    for index, other in enumerate(lines):
        if other.turn != line.turn or other.y < line.y - line.size:
            continue
        beside = abs(other.y - line.y) <= line.size and other.x <= line.x
        distance = line.x - other.x_end if beside else 1000 + (other.y - line.y) * 10 + abs(other.x - line.x)
        if distance < best:
            best, place = distance, index + 1
    return place


def _main_direction(lines: list[TextLine]) -> tuple[int, list[TextLine]]:
    """Return the direction most text is written in, and the lines with those of other directions put last."""
    counts: Counter[int] = Counter()
    for line in lines:
        counts[line.turn] += len(line.text)
    main = counts.most_common(1)[0][0] if counts else 0
    return main, sorted(lines, key=lambda line: line.turn != main)


class _Objects:
    """The objects of a page in drawing order: the place of each text object, images, rules and drawings."""

    def __init__(self, page: PdfPage) -> None:
        import pypdfium2.raw as pdfium

        self.order: dict[bytes, int] = {}
        """The address of a text object, as bytes, and its rank in the stream."""
        self.images = 0
        self.drawings = 0
        self.image_area = 0.0
        self.rulings: list[Ruling] = []
        self._pdfium = pdfium
        self._seen = 0
        left, bottom, right, top = page.get_bbox()
        self._box = (left, bottom, right, top)
        self._walk(
            page.raw,
            pdfium.FPDFPage_CountObjects,
            pdfium.FPDFPage_GetObject,
            (1.0, 0.0, 0.0, 1.0, 0.0, 0.0),
            0,
        )

    def _walk(self, holder: Any, count: Any, get: Any, matrix: tuple[float, ...], depth: int) -> None:
        pdfium = self._pdfium
        for index in range(count(holder)):
            self._seen += 1
            if self._seen > _MAX_OBJECTS:
                return
            item = get(holder, index)
            kind = pdfium.FPDFPageObj_GetType(item)
            if kind == pdfium.FPDF_PAGEOBJ_TEXT:
                self.order.setdefault(bytes(item), len(self.order))
            elif kind == pdfium.FPDF_PAGEOBJ_FORM:
                if depth < _MAX_DEPTH:
                    inner = pdfium.FS_MATRIX()
                    pdfium.FPDFPageObj_GetMatrix(item, inner)
                    own = (inner.a, inner.b, inner.c, inner.d, inner.e, inner.f)
                    self._walk(
                        item,
                        pdfium.FPDFFormObj_CountObjects,
                        pdfium.FPDFFormObj_GetObject,
                        _product(own, matrix),
                        depth + 1,
                    )
            elif kind == pdfium.FPDF_PAGEOBJ_IMAGE:
                self.images += 1
                box = self._bounds(item, matrix)
                if box:
                    x, y, x_end, y_end = _clipped(box, self._box)
                    self.image_area += max(0.0, x_end - x) * max(0.0, y_end - y)
            else:
                self.drawings += 1
                if kind == pdfium.FPDF_PAGEOBJ_PATH and len(self.rulings) < _MAX_RULINGS:
                    self._add_rules(item, matrix)

    def _bounds(self, item: Any, matrix: tuple[float, ...]) -> tuple[float, float, float, float] | None:
        values = [ctypes.c_float() for _ in range(4)]
        if not self._pdfium.FPDFPageObj_GetBounds(item, *values):
            return None
        left, bottom, right, top = (value.value for value in values)
        corners = [_applied(matrix, x, y) for x in (left, right) for y in (bottom, top)]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        return min(xs), min(ys), max(xs), max(ys)

    def _add_rules(self, item: Any, matrix: tuple[float, ...]) -> None:
        """Add the lines of a stroked path, or a filled shape that is as thin as a line."""
        pdfium = self._pdfium
        mode, stroke = ctypes.c_int(), ctypes.c_int()
        pdfium.FPDFPath_GetDrawMode(item, mode, stroke)
        count = pdfium.FPDFPath_CountSegments(item)
        if stroke.value and 2 <= count <= _MAX_SEGMENTS:
            self._add_strokes(item, matrix, count)
            return
        box = self._bounds(item, matrix)
        if box is None:
            return
        x, y, x_end, y_end = box
        wide, high = x_end - x, y_end - y
        if high <= _RULE_THICKNESS and wide >= _RULE_LENGTH:
            self.rulings.append(Ruling(x, (y + y_end) / 2, x_end, (y + y_end) / 2))
        elif wide <= _RULE_THICKNESS and high >= _RULE_LENGTH:
            self.rulings.append(Ruling((x + x_end) / 2, y, (x + x_end) / 2, y_end))

    def _add_strokes(self, item: Any, matrix: tuple[float, ...], count: int) -> None:
        """Add the level and upright lines of a stroked path: frames of cells are drawn as rectangles."""
        pdfium = self._pdfium
        own = pdfium.FS_MATRIX()
        pdfium.FPDFPageObj_GetMatrix(item, own)
        whole = _product((own.a, own.b, own.c, own.d, own.e, own.f), matrix)
        x, y = ctypes.c_float(), ctypes.c_float()
        start = before = (0.0, 0.0)
        for index in range(count):
            segment = pdfium.FPDFPath_GetPathSegment(item, index)
            kind = pdfium.FPDFPathSegment_GetType(segment)
            if not pdfium.FPDFPathSegment_GetPoint(segment, x, y):
                return
            here = _applied(whole, x.value, y.value)
            if kind == pdfium.FPDF_SEGMENT_LINETO:
                self._add_stroke(before, here)
            elif kind == pdfium.FPDF_SEGMENT_MOVETO:
                start = here
            before = here
            if pdfium.FPDFPathSegment_GetClose(segment):
                self._add_stroke(here, start)
                before = start

    def _add_stroke(self, first: tuple[float, float], second: tuple[float, float]) -> None:
        x, x_end = sorted((first[0], second[0]))
        y, y_end = sorted((first[1], second[1]))
        wide, high = x_end - x, y_end - y
        if max(wide, high) >= _RULE_LENGTH / 2 and min(wide, high) < 0.5 and len(self.rulings) < _MAX_RULINGS:
            self.rulings.append(Ruling(x, y, x_end, y_end))


def _product(first: tuple[float, ...], second: tuple[float, ...]) -> tuple[float, ...]:
    a, b, c, d, e, f = first
    p, q, r, s, t, u = second
    return (a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u)


def _applied(matrix: tuple[float, ...], x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _clipped(
    box: tuple[float, float, float, float], page: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    return max(box[0], page[0]), max(box[1], page[1]), min(box[2], page[2]), min(box[3], page[3])


def _turned(x: float, y: float, quarter: int) -> tuple[float, float]:
    """Return a point in the coordinates in which text that runs `quarter` turns anticlockwise runs right."""
    return ((x, y), (y, -x), (-x, -y), (-y, x))[quarter]


def _turned_ruling(rule: Ruling, quarter: int) -> Ruling:
    first, second = _turned(rule.x, rule.y, quarter), _turned(rule.x_end, rule.y_end, quarter)
    return Ruling(
        min(first[0], second[0]),
        min(first[1], second[1]),
        max(first[0], second[0]),
        max(first[1], second[1]),
    )


def _glyphs(text_page: Any, objects: _Objects) -> tuple[list[list[_Glyph]], str, int]:
    """Return the glyphs by pdfium's lines, in stream order; the raw text; how many glyphs have no character."""
    import pypdfium2.raw as pdfium

    # One call a glyph and value: what can be bound outside the loop is.
    raw_page = text_page.raw
    box, x, y = pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    box_, x_, y_ = ctypes.byref(box), ctypes.byref(x), ctypes.byref(y)
    unicode_of, is_generated = pdfium.FPDFText_GetUnicode, pdfium.FPDFText_IsGenerated
    object_of = pdfium.FPDFText_GetTextObject
    box_of, origin_of = pdfium.FPDFText_GetLooseCharBox, pdfium.FPDFText_GetCharOrigin
    styles: dict[bytes, _Style] = {}
    characters: dict[int, str] = {}
    lines: list[list[_Glyph]] = [[]]
    raw: list[str] = []
    unmapped = 0
    space = spaced = False
    high = 0
    for index in range(pdfium.FPDFText_CountChars(raw_page)):
        code = unicode_of(raw_page, index)
        if code <= 32 and is_generated(raw_page, index) == 1:
            if code in (10, 13):
                if lines[-1]:
                    lines.append([])
                raw.append("\n")
            else:
                raw.append(" ")
            space = True
            continue
        if 0xD800 <= code < 0xE000:
            if code < 0xDC00:
                high = code
                continue
            code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00) if high else 0xFFFD
        high = 0
        character = characters.get(code)
        if character is None:
            character = characters[code] = _character(code)
        if character == " ":
            space = spaced = True
            raw.append(" ")
            continue
        if character in ("", UNMAPPED):
            unmapped += 1
            space = True
            continue
        raw.append(character)
        item = object_of(raw_page, index)
        address = bytes(item)
        style = styles.get(address)
        if style is None:
            order = objects.order.get(address, len(objects.order))
            style = styles[address] = _style_of(raw_page, index, item, order)
        box_of(raw_page, index, box_)
        origin_of(raw_page, index, x_, y_)
        origin = (x.value, y.value)
        if style.skewed:
            cosine, sine = math.cos(style.angle), math.sin(style.angle)
            start, base = origin[0] * cosine + origin[1] * sine, origin[1] * cosine - origin[0] * sine
            end = start + 0.5 * style.size
        elif style.quarter == 0:
            start, end, base = box.left, box.right, origin[1]
        else:
            _, base = _turned(*origin, style.quarter)
            first = _turned(box.left, box.bottom, style.quarter)[0]
            second = _turned(box.right, box.top, style.quarter)[0]
            start, end = min(first, second), max(first, second)
        lines[-1].append(_Glyph(character, start, end, base, style, space, spaced, origin))
        space = spaced = False
    filled = [line for line in lines if line]
    for line in filled:
        _close_skewed(line)
    # pdfium sorts the lines of turned pages; the order of the objects is that of the stream.
    filled.sort(key=lambda line: min(glyph.style.order for glyph in line))
    return filled, "".join(raw), unmapped


def _close_skewed(line: Sequence[_Glyph]) -> None:
    """Let each glyph of a slanted word reach to the next: boxes are upright and do not tell its advance."""
    for glyph, following in pairwise(line):
        advance = following.x - glyph.x
        if glyph.style.skewed and not following.spaced and 0 < advance < 1.1 * glyph.style.size:
            glyph.x_end = following.x


def _character(code: int) -> str:
    """Return the character of a code; '' where it stands for none."""
    if code in (0x02, 0xFFFE):  # pdfium's marks for a hyphen at a line's end
        return "-"
    if code == 0x7F:  # a bullet in WinAnsiEncoding (ISO 32000-1, table D.2, note 3)
        return "•"
    if code in (9, 10, 12, 13, 0x85) or (code < 0x110000 and chr(code).isspace()):
        return " "
    if code < 32 or 0x80 <= code < 0xA0 or code >= 0x110000:
        return ""
    character = chr(code)
    if character in _PRIVATE_BULLETS:
        return "•"
    if 0xF020 <= code <= 0xF07E and chr(code - 0xF000) in "()+-/<=>[]{}|.,":
        return chr(code - 0xF000)
    if 0xE000 <= code <= 0xF8FF or code >= 0xF0000:
        return ""
    return fold_ligatures(character)


def _style_of(text_page: Any, index: int, item: Any, order: int) -> _Style:
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFText_GetMatrix(text_page, index, matrix)
    scale = math.hypot(matrix.c, matrix.d) or math.hypot(matrix.a, matrix.b) or 1.0
    size = abs(pdfium.FPDFText_GetFontSize(text_page, index)) * scale
    angle = math.atan2(matrix.b, matrix.a) if (matrix.a or matrix.b) else 0.0
    quarter = round(angle / (math.pi / 2)) % 4
    away = abs(math.remainder(angle, math.pi / 2))
    name = ""
    if item:
        font = pdfium.FPDFTextObj_GetFont(item)
        if font:
            buffer = ctypes.create_string_buffer(256)
            length = pdfium.FPDFFont_GetBaseFontName(font, buffer, 256)
            if 0 < length <= 256:
                name = buffer.value.decode("utf-8", "replace")
    bold, monospace = is_bold(name), is_monospace(name)
    return _Style(size or 1.0, bold, monospace, quarter, angle, away > _SKEW, order)


def _drop_doubles(lines: list[list[_Glyph]]) -> None:
    """Remove glyphs that are drawn a second time at almost the same place."""
    places: dict[tuple[str, int, int], list[_Glyph]] = {}
    for glyphs in lines:
        kept = []
        for glyph in glyphs:
            text, (x, y) = glyph.text, glyph.origin
            reach = min(_DOUBLE_EMS * glyph.style.size, 0.4 * max(glyph.x_end - glyph.x, 0.1))
            columns = range(int((x - reach) // _CELL), int((x + reach) // _CELL) + 1)
            rows = range(int((y - reach) // _CELL), int((y + reach) // _CELL) + 1)
            is_double = False
            for column in columns:
                for row in rows:
                    for other in places.get((text, column, row), ()):
                        is_double = is_double or _is_double(glyph, other, reach)
            if not is_double:
                places.setdefault((text, int(x // _CELL), int(y // _CELL)), []).append(glyph)
                kept.append(glyph)
        glyphs[:] = kept
    lines[:] = [glyphs for glyphs in lines if glyphs]


def _is_double(glyph: _Glyph, other: _Glyph, reach: float) -> bool:
    return (
        abs(glyph.origin[0] - other.origin[0]) <= reach
        and abs(glyph.origin[1] - other.origin[1]) <= reach
        # Several characters of one glyph (a ligature) share its origin.
        and glyph.style is not other.style
    )


def _rejoined(lines: Sequence[list[_Glyph]]) -> list[list[_Glyph]]:
    """Return the lines with those made one that pdfium parted inside a word: at a fraction, a raised mark."""
    joined: list[list[_Glyph]] = []
    for glyphs in lines:
        if joined and _touches(joined[-1], glyphs[0]):
            joined[-1] += glyphs
        else:
            joined.append(list(glyphs))
    return joined


def _touches(line: Sequence[_Glyph], glyph: _Glyph) -> bool:
    last = line[-1]
    size = max(other.style.size for other in line[-_MAX_SCRIPT:])
    return (
        last.style.quarter == glyph.style.quarter
        and not last.style.skewed
        and not glyph.is_rtl
        and not last.is_rtl
        and abs(last.y - glyph.y) < 0.75 * size
        and -0.4 * size < glyph.x - last.x_end < 0.35 * size
    )


def _lines_of(glyphs: Sequence[_Glyph]) -> Iterator[TextLine]:
    """Yield the lines that one line of pdfium's falls into."""
    if any(glyph.is_rtl for glyph in glyphs):
        yield from _rtl_lines(glyphs)
        return
    segment: list[_Glyph] = []
    starts_cell = False
    widest = _widest_space(glyphs)
    main = glyphs[0]
    for glyph in glyphs:
        if segment:
            verdict = _break_between(main, segment[-1], glyph, widest)
            if verdict:
                yield _line(segment, starts_cell)
                segment, starts_cell, main = [], verdict == "cell", glyph
        segment.append(glyph)
        # The largest type tells where the line stands: parts of a fraction are further from each other.
        if glyph.style.size > main.style.size:
            main = glyph
    if segment:
        yield _line(segment, starts_cell)


def _widest_space(glyphs: Sequence[_Glyph]) -> float:
    """Return, in ems, how wide a space of this line may be that is no gap between cells."""
    gaps = (
        (after.x - before.x_end) / after.style.size
        for before, after in pairwise(glyphs)
        if after.spaced and after.x - before.x_end > _SPACE_EMS * after.style.size
    )
    narrow = min(gaps, default=0.0)
    if narrow > _WIDEST_WORD_SPACE_EMS:  # there is no word space in the line, only gaps
        return _CELL_EMS
    return min(max(_CELL_EMS, _CELL_SPACES * narrow), _WIDEST_SPACE_EMS)


def _break_between(main: _Glyph, before: _Glyph, after: _Glyph, widest: float) -> str:
    """Return 'line' or 'cell' where a new line or cell starts with `after`, else ''."""
    if before.style.quarter != after.style.quarter or before.style.skewed != after.style.skewed:
        return "line"
    size = max(before.style.size, after.style.size)
    if abs(main.y - after.y) > _BASELINE_EMS * max(main.style.size, after.style.size):
        return "line"
    gap = after.x - before.x_end
    if after.x < before.x - _BACKWARD_EMS * size:
        return "line"
    if before.style.monospace and after.space_before and gap < 40 * size:
        return ""
    return "cell" if gap > (widest if after.spaced else _CELL_EMS) * size else ""


def _line(glyphs: Sequence[_Glyph], starts_cell: bool) -> TextLine:
    pieces: list[Piece] = []
    run: list[str] = []
    first = glyphs[0]
    previous: _Glyph | None = None

    def close(last: _Glyph) -> None:
        pieces.append(
            Piece(
                "".join(run),
                first.x,
                last.x_end,
                first.y,
                first.style.size,
                first.style.bold,
                first.style.monospace,
                starts_cell and not pieces,
            )
        )

    for glyph in glyphs:
        if previous is not None:
            spaces = _spaces_between(previous, glyph)
            if _looks_different(first, glyph):
                run.append(spaces)
                close(previous)
                run, first = [], glyph
            else:
                run.append(spaces)
        run.append(glyph.text)
        previous = glyph
    assert previous is not None
    close(previous)
    style = glyphs[0].style
    return TextLine(tuple(pieces), 4 if style.skewed else style.quarter)


def _looks_different(first: _Glyph, other: _Glyph) -> bool:
    one, two = first.style, other.style
    return (
        (one is not two and abs(one.size - two.size) > 0.05)
        or one.bold != two.bold
        or one.monospace != two.monospace
    )


def _spaces_between(before: _Glyph, after: _Glyph) -> str:
    size = min(before.style.size, after.style.size)
    gap = after.x - before.x_end
    if after.style.monospace and before.style.monospace and after.space_before:
        width = max(after.x_end - after.x, 0.3 * size)
        return " " * max(1, round(gap / width))
    if gap > _SPACE_EMS * size or after.spaced or (after.space_before and gap > _NO_SPACE_EMS * size):
        return " "
    return ""


# Right-to-left lines.


def _rtl_lines(glyphs: Sequence[_Glyph]) -> Iterator[TextLine]:
    """Yield the line in logical order; spaces stand where the line as it is seen has gaps."""
    ordered = _marks_after_bases(_unfolded(list(glyphs)))
    solid = [glyph for glyph in ordered if not glyph.is_mark]
    if not solid:
        return
    seen = sorted(range(len(solid)), key=lambda index: solid[index].x)
    place = {index: rank for rank, index in enumerate(seen)}
    runs: list[list[int]] = []
    direction: bool | None = None
    for index, glyph in enumerate(solid):
        strong = glyph.is_rtl or glyph.text[0].isalpha()
        if runs and (not strong or direction is None or glyph.is_rtl == direction):
            runs[-1].append(index)
        else:
            runs.append([index])
        if strong:
            direction = glyph.is_rtl

    def gap(left: int, right: int) -> bool:
        one, two = solid[seen[left]], solid[seen[right]]
        return two.x - one.x_end > _NO_SPACE_EMS * 1.5 * min(one.style.size, two.style.size)

    spaced: set[int] = set()
    for number, run in enumerate(runs):
        for before, after in pairwise(run):
            one, two = sorted((place[before], place[after]))
            if (two - one == 1 and gap(one, two)) or (two - one > 1 and solid[after].space_before):
                spaced.add(after)
        if number:
            earlier = {place[index] for index in runs[number - 1]}
            here = {place[index] for index in run}
            pairs = [(one, one + 1) for one in earlier if one + 1 in here]
            pairs += [(one, one + 1) for one in here if one + 1 in earlier]
            if any(gap(*pair) for pair in pairs) or (not pairs and solid[run[0]].space_before):
                spaced.add(run[0])
    parts: list[str] = []
    position = -1
    for glyph in ordered:
        if not glyph.is_mark:
            position += 1
            if position in spaced:
                parts.append(" ")
        parts.append(glyph.text)
    first = solid[0]
    left = min(glyph.x for glyph in solid)
    right = max(glyph.x_end for glyph in solid)
    style = first.style
    yield TextLine(
        (Piece("".join(parts), left, right, first.y, style.size, style.bold, style.monospace),),
        4 if style.skewed else style.quarter,
    )


def _unfolded(glyphs: list[_Glyph]) -> list[_Glyph]:
    """Return the glyphs with the letters of one ligature, which pdfium turns round with the line, set right."""
    output: list[_Glyph] = []
    start = 0
    while start < len(glyphs):
        end = start + 1
        while (
            end < len(glyphs)
            and glyphs[end].origin == glyphs[start].origin
            and glyphs[end].is_rtl
            and glyphs[start].is_rtl
        ):
            end += 1
        output += reversed(glyphs[start:end])
        start = end
    return output


def _marks_after_bases(glyphs: list[_Glyph]) -> list[_Glyph]:
    """Return the glyphs with a vowel sign that was put before the letter it stands on behind that letter."""
    output = list(glyphs)
    for index in range(len(output) - 1):
        mark, base = output[index], output[index + 1]
        if not mark.is_mark or base.is_mark:
            continue
        middle = (mark.x + mark.x_end) / 2
        if base.x <= middle <= base.x_end and not (
            index and output[index - 1].x <= middle <= output[index - 1].x_end
        ):
            output[index], output[index + 1] = base, mark
    return output
