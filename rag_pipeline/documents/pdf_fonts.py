"""What a PDF's fonts say about their characters, and what their own tables say: contradictions are repaired.

A viewer draws glyphs; which character a glyph is stands in the font's ToUnicode map, and producers get it wrong in
two ways that cost words. Ligatures are missing from it ("defined" comes out as "deined"), and fonts that number
their glyphs have no map at all ("7KH TXLFN" for "The quick"). The names of the glyphs (ISO 32000-1, 9.6.6; Adobe
Glyph List) and the font program's own table of characters often know better. Glyphs that nothing knows are mapped to
U+FFFD, so that whoever reads the text can count them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PdfReader

_UNKNOWN = "\ufffd"
_MAX_FORM_DEPTH = 8
_MAX_FONTS = 2000
_MAX_PROGRAM_BYTES = 64 * 2**20
# Orderings of character collections that every reader has maps for (ISO 32000-1, 9.7.5.2).
_KNOWN_ORDERINGS = frozenset({"Japan1", "Japan2", "GB1", "CNS1", "Korea1", "KR"})
_LIGATURE_NAMES = frozenset({"ff", "fi", "fl", "ffi", "ffl", "ft", "longst", "st"})
_BY_LAST_LETTER = {"f": ("ff",), "i": ("fi", "ffi"), "l": ("fl", "ffl")}
_TYPE1_ENCODING = re.compile(rb"dup\s+(\d{1,3})\s*/([^\s/]+)\s+put")
_HEX = re.compile(rb"<\s*([0-9A-Fa-f\s]*)>")


@dataclass(frozen=True)
class FontRepairs:
    """The PDF with its maps repaired (None: nothing to repair) and what was done, by the first page it shows on."""

    data: bytes | None = None
    ligatures: Mapping[int, str] = field(default_factory=dict)
    """Page -> name of a font whose ligatures were missing or contradicted."""
    decoded: Mapping[int, str] = field(default_factory=dict)
    """Page -> name of a font without a map that was read by its own tables."""


@dataclass(frozen=True)
class _Fix:
    page: int
    name: str
    width: int
    characters: dict[int, str]
    is_ligature: bool


def repair(reader: PdfReader, page_count: int) -> FontRepairs:
    """Return the file of `reader` with the maps of its fonts repaired where their glyphs are known better.

    Fonts that cannot be understood stay as they are. Raises nothing for a damaged file, except MemoryError.
    """
    fixes: dict[int, _Fix] = {}
    try:
        for number, (page, font) in enumerate(_fonts(reader, page_count)):
            fix = _fix_of(font, page)
            if fix is not None:
                fixes[number] = fix
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a damaged structure raises anything; what was found before it stays
        pass
    if not fixes:
        return FontRepairs()
    try:
        data = _rewritten(reader, page_count, fixes)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a file that cannot be written again is read as it is
        return FontRepairs()
    return FontRepairs(
        data,
        {fix.page: fix.name for fix in reversed(fixes.values()) if fix.is_ligature},
        {fix.page: fix.name for fix in reversed(fixes.values()) if not fix.is_ligature},
    )


def rewritten(reader: PdfReader) -> bytes:
    """Return the file of `reader` written anew, without encryption; raises anything for a damaged file."""
    from pypdf import PdfWriter

    target = BytesIO()
    PdfWriter(clone_from=reader).write(target)
    return target.getvalue()


def _rewritten(reader: PdfReader, page_count: int, fixes: Mapping[int, _Fix]) -> bytes:
    from pypdf import PdfWriter
    from pypdf.generic import NameObject, StreamObject

    writer = PdfWriter(clone_from=reader)
    for number, (_, font) in enumerate(_fonts(writer, page_count)):
        fix = fixes.get(number)
        if fix is not None:
            stream = StreamObject()
            stream.set_data(_to_unicode(fix.characters, fix.width))
            font[NameObject("/ToUnicode")] = writer._add_object(stream)
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def _fonts(document: Any, page_count: int) -> Iterator[tuple[int, Any]]:
    """Yield every font of the document once, with the first page that uses it, in an order that is always the same."""
    seen: set[Any] = set()
    found = 0
    for number in range(page_count):
        try:
            page = document.pages[number]
            fonts = list(_fonts_of(page.get("/Resources"), seen, 0))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - a damaged page costs itself
            continue
        for font in fonts:
            found += 1
            if found > _MAX_FONTS:
                return
            yield number + 1, font


def _fonts_of(resources: Any, seen: set[Any], depth: int) -> Iterator[Any]:
    if resources is None or depth > _MAX_FORM_DEPTH or not _first_visit(resources, seen):
        return
    resources = resources.get_object()
    fonts = resources.get("/Font")
    if fonts is not None:
        for raw in dict.values(fonts.get_object()):
            if _first_visit(raw, seen):
                font = raw.get_object()
                if isinstance(font, dict):
                    yield font
    forms = resources.get("/XObject")
    if forms is not None:
        for raw in dict.values(forms.get_object()):
            if not _first_visit(raw, seen):
                continue
            form = raw.get_object()
            if isinstance(form, dict) and form.get("/Subtype") == "/Form":
                yield from _fonts_of(dict.get(form, "/Resources"), seen, depth + 1)


def _first_visit(value: Any, seen: set[Any]) -> bool:
    reference = getattr(value, "idnum", None)
    if reference is None:
        return True
    key = (reference, value.generation)
    if key in seen:
        return False
    seen.add(key)
    return True


# One font.


def _fix_of(font: Any, page: int) -> _Fix | None:
    try:
        if font.get("/Subtype") == "/Type0":
            return _composite_fix(font, page)
        if font.get("/Subtype") in ("/Type1", "/MMType1", "/TrueType"):
            return _simple_fix(font, page)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a font that cannot be understood is left as it is
        return None
    return None


def _simple_fix(font: Any, page: int) -> _Fix | None:
    """Ligatures of a font with codes of one byte."""
    known = _map_of(font)
    names = _names_by_code(font)
    wrong = _wide_letters(known, _simple_widths(font)) | {
        code: text
        for code, name in names.items()
        if (text := _ligature(name)) is not None
        and not _same(known.get(code), text)
        # Readers know the ligatures that have a character of their own, where the map is silent.
        and not (code not in known and not font.get("/ToUnicode") and name in ("fi", "fl"))
    }
    if not wrong:
        return None
    return _Fix(page, _name_of(font), 1, {**_characters(names, known), **wrong}, True)


def _characters(names: Mapping[int, str], known: Mapping[int, str]) -> dict[int, str]:
    """Return a whole map: a font that gets one where it had none must not lose its other characters."""
    derived = {code: text for code, name in names.items() if (text := _text_of(name))}
    return {**derived, **known}


def _composite_fix(font: Any, page: int) -> _Fix | None:
    """Ligatures, or all characters, of a font with codes of two bytes that number its glyphs."""
    if font.get("/Encoding") not in ("/Identity-H", "/Identity-V"):
        return None
    descendant = font["/DescendantFonts"][0].get_object()
    information = descendant.get("/CIDSystemInfo")
    ordering = str(information.get_object().get("/Ordering", "")) if information is not None else ""
    has_map = font.get("/ToUnicode") is not None
    if not has_map and ordering in _KNOWN_ORDERINGS:
        return None
    known = _map_of(font)
    glyphs = _glyphs_of(descendant)
    if known:
        wrong = _wide_letters(known, dict(_composite_widths(descendant))) | {
            code: text
            for code, (name, _) in glyphs.items()
            if (text := _ligature(name)) is not None and not _same(known.get(code), text)
        }
        return _Fix(page, _name_of(font), 2, {**known, **wrong}, True) if wrong else None
    derived = {code: text for code, (name, mapped) in glyphs.items() if (text := mapped or _text_of(name))}
    count = max([*glyphs, *(code for code, _ in _composite_widths(descendant)), 0]) + 1
    everything = {code: derived.get(code, _UNKNOWN) for code in range(min(count, 0x10000))}
    return _Fix(page, _name_of(font), 2, everything, False)


def _wide_letters(known: Mapping[int, str], widths: Mapping[int, float]) -> dict[int, str]:
    """Return the codes that are mapped to the last letter of a ligature and are as wide as the whole of it.

    A font has one glyph for a plain `i`; a second one that is as wide as `f` and `i` together is drawn as "fi",
    whatever the map says.
    """
    by_letter: dict[str, list[int]] = {}
    for code, text in known.items():
        if text in ("f", "i", "l") and widths.get(code):
            by_letter.setdefault(text, []).append(code)
    if "f" not in by_letter:
        return {}
    plain = {letter: min(widths[code] for code in codes) for letter, codes in by_letter.items()}
    found: dict[int, str] = {}
    for letter, codes in by_letter.items():
        for code in codes:
            for ligature in _BY_LAST_LETTER[letter]:
                whole = plain["f"] * (len(ligature) - 1) + plain[letter]
                if widths[code] > 1.3 * plain[letter] and 0.85 * whole <= widths[code] <= 1.05 * whole:
                    found[code] = ligature
                    break
    return found


def _simple_widths(font: Any) -> dict[int, float]:
    widths = font.get("/Widths")
    first = int(font.get("/FirstChar", 0))
    items = list(widths.get_object()) if widths is not None else []
    return {first + offset: float(item.get_object()) for offset, item in enumerate(items)}


def _composite_widths(descendant: Any) -> Iterator[tuple[int, float]]:
    """Yield the codes that have a width of their own, and that width (ISO 32000-1, 9.7.4.3)."""
    widths = descendant.get("/W")
    items = list(widths.get_object()) if widths is not None else []
    position = 0
    while position + 1 < len(items):
        first, second = int(items[position].get_object()), items[position + 1].get_object()
        if isinstance(second, list):
            for offset, item in enumerate(second):
                yield first + offset, float(item.get_object())
            position += 2
        elif position + 2 < len(items):
            width = float(items[position + 2].get_object())
            for code in range(first, min(int(second), first + 0xFFFF) + 1):
                yield code, width
            position += 3
        else:
            return


def _name_of(font: Any) -> str:
    return str(font.get("/BaseFont", "a font")).lstrip("/")


def _same(known: str | None, text: str) -> bool:
    return known is not None and unicodedata.normalize("NFKC", known) == text


def _ligature(name: str) -> str | None:
    """Return the letters of a glyph that is a ligature by its name, else None."""
    base = name.split(".")[0]
    if base not in _LIGATURE_NAMES and "_" not in base.strip("_"):
        return None
    text = unicodedata.normalize("NFKC", _text_of(name)).replace("ſ", "s" if base != "longst" else "ſ")
    return text if len(text) > 1 and text.isalpha() else None


def _text_of(name: str) -> str:
    """Return the characters that a glyph's name stands for ('' where it is just a name)."""
    from fontTools.agl import toUnicode

    if name in (".notdef", "nonmarkingreturn", ".null"):
        return ""
    text = str(toUnicode(name))
    if text:
        return text
    # Names such as `f_t` whose parts the list knows, and names it lacks.
    return name if name in _LIGATURE_NAMES else ""


def _names_by_code(font: Any) -> dict[int, str]:
    """Return the glyph names of a simple font by code: of its encoding, else of the font program's own."""
    encoding = font.get("/Encoding")
    encoding = encoding.get_object() if encoding is not None else None
    names: dict[int, str] = {}
    base = encoding.get("/BaseEncoding") if isinstance(encoding, dict) else encoding
    if base is None:
        names.update(_builtin_names(font))
    elif base in ("/WinAnsiEncoding", "/MacRomanEncoding"):
        codec = "cp1252" if base == "/WinAnsiEncoding" else "mac_roman"
        names.update(_standard_names(codec))
    if isinstance(encoding, dict) and "/Differences" in encoding:
        code = 0
        for item in encoding["/Differences"].get_object():
            value = item.get_object()
            if isinstance(value, int):
                code = int(value)
            else:
                names[code] = str(value).lstrip("/")
                code += 1
    return names


def _standard_names(codec: str) -> dict[int, str]:
    from fontTools.agl import UV2AGL

    names = {}
    for code in range(32, 256):
        try:
            character = bytes([code]).decode(codec)
        except UnicodeDecodeError:
            continue
        if ord(character) in UV2AGL:
            names[code] = UV2AGL[ord(character)]
    return names


def _program(descriptor_owner: Any) -> tuple[str, bytes] | None:
    """Return the key and the bytes of an embedded font program."""
    descriptor = descriptor_owner.get("/FontDescriptor")
    descriptor = descriptor.get_object() if descriptor is not None else None
    if not isinstance(descriptor, dict):
        return None
    for key in ("/FontFile", "/FontFile2", "/FontFile3"):
        stream = descriptor.get(key)
        if stream is not None:
            data = stream.get_object().get_data()
            return (key, data) if len(data) <= _MAX_PROGRAM_BYTES else None
    return None


def _builtin_names(font: Any) -> dict[int, str]:
    program = _program(font)
    if program is None:
        return {}
    key, data = program
    if key == "/FontFile":
        head = data[: data.find(b"eexec")]
        return {int(code): name.decode("latin-1") for code, name in _TYPE1_ENCODING.findall(head)}
    if key == "/FontFile2" or data[:4] in (b"\x00\x01\x00\x00", b"true", b"OTTO"):
        return _truetype_names(data)
    top = _compact_font(data)
    encoding = getattr(top, "Encoding", None)
    if not isinstance(encoding, list):
        return {}
    return {code: name for code, name in enumerate(encoding) if name != ".notdef"}


def _truetype_names(data: bytes) -> dict[int, str]:
    """Return glyph names by code of a TrueType font without an encoding (ISO 32000-1, 9.6.6.4)."""
    font = _sfnt(data)
    names: dict[int, str] = {}
    if font is None or "cmap" not in font:
        return names
    for table in font["cmap"].tables:
        if (table.platformID, table.platEncID) == (1, 0) or table.platformID == 3:
            for code, name in table.cmap.items():
                if code < 256 or 0xF000 <= code <= 0xF0FF:
                    names.setdefault(code & 0xFF, name)
    return names


def _glyphs_of(descendant: Any) -> dict[int, tuple[str, str]]:
    """Return, by code of two bytes, the name of the glyph and the text that the font's own table gives it."""
    program = _program(descendant)
    if program is None:
        return {}
    key, data = program
    if key == "/FontFile3" and data[:4] not in (b"OTTO", b"\x00\x01\x00\x00"):
        top = _compact_font(data)
        if top is None or hasattr(top, "ROS"):
            return {}
        return {code: (name, "") for code, name in enumerate(top.charset)}
    font = _sfnt(data)
    if font is None:
        return {}
    order = font.getGlyphOrder()
    mapped: dict[str, str] = {}
    if "cmap" in font:
        best = font.getBestCmap() or {}
        for code, name in best.items():
            if not 0xE000 <= code <= 0xF8FF:
                mapped.setdefault(name, chr(code))
    # Names that the library made up for a font that has none say nothing.
    real = "post" in font and getattr(font["post"], "formatType", 3.0) != 3.0
    by_glyph = {index: (name if real else "", mapped.get(name, "")) for index, name in enumerate(order)}
    to_glyph = descendant.get("/CIDToGIDMap")
    to_glyph = to_glyph.get_object() if to_glyph is not None else None
    if to_glyph is None or to_glyph == "/Identity":
        return by_glyph
    table = to_glyph.get_data()
    return {
        code: by_glyph[glyph]
        for code in range(len(table) // 2)
        if (glyph := int.from_bytes(table[2 * code : 2 * code + 2], "big")) in by_glyph and glyph
    }


def _sfnt(data: bytes) -> Any:
    from fontTools.ttLib import TTFont

    return TTFont(BytesIO(data), lazy=True, fontNumber=0)


def _compact_font(data: bytes) -> Any:
    from fontTools.cffLib import CFFFontSet

    fonts = CFFFontSet()
    fonts.decompile(BytesIO(data), None)
    return fonts[0] if len(fonts) else None


# ToUnicode maps (ISO 32000-1, 9.10.3).


def _map_of(font: Any) -> dict[int, str]:
    stream = font.get("/ToUnicode")
    stream = stream.get_object() if stream is not None else None
    if stream is None or not hasattr(stream, "get_data"):
        return {}
    data = stream.get_data()
    known: dict[int, str] = {}
    for block in re.findall(rb"beginbfchar(.*?)endbfchar", data, re.DOTALL):
        values = [_bytes(item) for item in _HEX.findall(block)]
        for source, target in zip(values[::2], values[1::2], strict=False):
            known[int.from_bytes(source, "big")] = _text(target)
    for block in re.findall(rb"beginbfrange(.*?)endbfrange", data, re.DOTALL):
        for low, high, target in re.findall(
            rb"<([0-9A-Fa-f\s]+)>\s*<([0-9A-Fa-f\s]+)>\s*(\[[^\]]*\]|<[0-9A-Fa-f\s]*>)", block
        ):
            first, last = int.from_bytes(_bytes(low), "big"), int.from_bytes(_bytes(high), "big")
            last = min(last, first + 0xFFFF)
            if target.startswith(b"["):
                for offset, item in enumerate(_HEX.findall(target)[: last - first + 1]):
                    known[first + offset] = _text(_bytes(item))
                continue
            text = _text(_bytes(target.strip(b"<>")))
            for code in range(first, last + 1) if text else ():
                final = ord(text[-1]) + code - first
                known[code] = text[:-1] + chr(final) if final < 0x110000 else _UNKNOWN
    return known


def _bytes(digits: bytes) -> bytes:
    clean = re.sub(rb"\s", b"", digits)
    return bytes.fromhex((clean + b"0" * (len(clean) % 2)).decode("ascii"))


def _text(data: bytes) -> str:
    return data.decode("utf-16-be", "replace") if len(data) > 1 else data.decode("latin-1")


def _to_unicode(characters: Mapping[int, str], width: int) -> bytes:
    lines = [
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap",
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def",
        "/CMapName /Repaired def /CMapType 2 def 1 begincodespacerange",
        f"<{'00' * width}> <{'FF' * width}>",
        "endcodespacerange",
    ]
    items = sorted((code, text) for code, text in characters.items() if text)
    for start in range(0, len(items), 100):
        chunk = items[start : start + 100]
        lines.append(f"{len(chunk)} beginbfchar")
        lines += [
            f"<{code:0{2 * width}X}> <{text.encode('utf-16-be', 'replace').hex().upper()}>"
            for code, text in chunk
        ]
        lines.append("endbfchar")
    lines.append("endcmap CMapName currentdict /CMap defineresource pop end end")
    return "\n".join(lines).encode("ascii")
