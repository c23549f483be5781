"""From bytes to text: byte order mark, valid UTF-8, what the file declares, and only then a guess."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from rag_pipeline.documents.extraction import ExtractionFailure, ExtractionWarning
from rag_pipeline.documents.states import FailureReason, WarningKind

# UTF-32 first: its little-endian mark starts with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Above this share of control characters a file is no text in any encoding.
_MAX_CONTROL_SHARE = 0.05
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Letters that Western European text in windows-1252 is made of, beside punctuation.
_WESTERN = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿŒœŠšŽžŸ§°«»£€©®–—‘’“”„…•·²³µ½¼¾×¡¿\xa0"
)

_SYMBOL_IN_WORD = re.compile("[^\\W\\d_][§°«»£€©®…•²³µ½¼¾×¡¿„“”][^\\W\\d_]")


@dataclass(frozen=True)
class Decoded:
    """A file's text, the encoding it was read in, and what to warn of."""

    text: str
    encoding: str
    warnings: tuple[ExtractionWarning, ...] = ()


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Return the text of `data`.

    In this order: a byte order mark; valid UTF-8; UTF-16 without a mark (every other byte is zero); the
    `declared` encoding; a guess, which is reported as a warning. Raises ExtractionFailure (`wrong_type`) for
    bytes that are no text.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _lossy(data[len(mark) :] if encoding == "utf-8" else data, encoding)
    try:
        return _checked(Decoded(data.decode("utf-8"), "utf-8"))
    except UnicodeDecodeError:
        pass
    except ExtractionFailure:
        unmarked = _unmarked_utf16(data)
        if unmarked is None:
            raise
        return _lossy(data, unmarked)
    unmarked = _unmarked_utf16(data)
    if unmarked is not None:
        return _lossy(data, unmarked)
    if declared is not None and (codec := _codec(declared)) is not None:
        return _lossy(data, codec)
    return _guessed(data)


def _lossy(data: bytes, encoding: str) -> Decoded:
    try:
        return _checked(Decoded(data.decode(encoding), encoding))
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
    warning = ExtractionWarning(
        WarningKind.UNDECODABLE_BYTES,
        f"{text.count(chr(0xFFFD))} places are not valid {encoding} and became U+FFFD",
    )
    return _checked(Decoded(text, encoding, (warning,)))


def _codec(label: str) -> str | None:
    """Return Python's codec for a declared label; ISO-8859-1 and ASCII mean windows-1252 (WHATWG
    Encoding).
    """
    try:
        codec = codecs.lookup(label.strip().strip("\"'")).name
        "".encode(codec)  # refuses codecs that are no text encodings, such as rot13 or zip
    except (LookupError, ValueError):
        return None
    # A file that is valid UTF-8 never comes here, so a declaration of it is known to be wrong.
    if codec == "utf-8":
        return None
    return "cp1252" if codec in {"iso8859-1", "ascii"} else codec


def _unmarked_utf16(data: bytes) -> str | None:
    sample = data[:4096]
    half = len(sample) // 2
    if half < 2:
        return None
    for encoding, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[0::2])):
        if zeros.count(0) > 0.7 * half:
            return encoding
    return None


def _guessed(data: bytes) -> Decoded:
    text = _western(data)
    encoding = "cp1252"
    if text is None:
        from charset_normalizer import from_bytes

        best = from_bytes(data).best()
        if best is None:
            raise ExtractionFailure(
                FailureReason.WRONG_TYPE, "the file holds bytes that are no text in any known encoding"
            )
        text, encoding = str(best), best.encoding
    warning = ExtractionWarning(
        WarningKind.ENCODING_GUESSED, f"the file declares no encoding; it was read as {encoding}"
    )
    return _checked(Decoded(text, encoding, (warning,)))


def _western(data: bytes) -> str | None:
    """Return `data` read as windows-1252 where that gives Western European text and nothing else.

    Statistical detection needs more text than a note has; in most other encodings such bytes would give
    symbols in the middle of words.
    """
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    if _SYMBOL_IN_WORD.search(text):
        return None
    foreign = [character for character in text if not character.isascii()]
    letters = sum(character.isalpha() for character in text)
    dense = sum(character.isalpha() for character in foreign) > 0.5 * letters
    return None if dense or not _WESTERN.issuperset(foreign) else text


def _checked(decoded: Decoded) -> Decoded:
    controls = len(_CONTROL.findall(decoded.text))
    if controls > _MAX_CONTROL_SHARE * len(decoded.text):
        raise ExtractionFailure(FailureReason.WRONG_TYPE, "the file holds binary data, not text")
    return decoded
