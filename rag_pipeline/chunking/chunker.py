"""Canonical text -> chunks, by one of the named strategies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from rag_pipeline.chunking.cuts import blind_cuts, boundary_cuts
from rag_pipeline.chunking.sections import sections, title_at
from rag_pipeline.chunking.strategies import STRATEGIES

# Raised with every change that gives another chunk for the same text and settings.
CHUNKER_VERSION = "1"


@dataclass(frozen=True)
class Chunk:
    """A chunk of a canonical text; offsets count code points, half-open.

    `content == canonical[start:end]` is the chunk's own words and all that may be quoted. `text` is what is
    embedded and indexed: a contextual header of `header_length` characters, then the passage
    `canonical[lead_start:end]`. `section` is the title of the section that holds it, '' in the preamble.
    """

    section: str
    content: str
    text: str
    start: int
    end: int
    lead_start: int
    header_length: int


def chunk_document(
    text: str, title: str, strategy: str = "E", target: int = 512, overlap: int = 64
) -> list[Chunk]:
    """Return the chunks of a canonical text in order of their offsets (SPEC 3.4).

    `target` is the length in characters that packing aims for; a longer sentence stays whole. `overlap` is
    how many characters before its start a chunk's passage takes in, within its section's body (the document
    for blind cuts); strategies without overlap ignore it. A blank text gives no chunk.

    Raises `ValueError` for an unknown strategy, a target below 1 or an overlap below 0.
    """
    chosen = STRATEGIES.get(strategy)
    if chosen is None:
        raise ValueError(f"strategy is {strategy!r}; known strategies are {', '.join(STRATEGIES)}")
    if not _is_integer(target) or target < 1:
        raise ValueError(f"target is {target!r}; it must be an integer of 1 or more (characters)")
    if not _is_integer(overlap) or overlap < 0:
        raise ValueError(f"overlap is {overlap!r}; it must be an integer of 0 or more (characters)")

    lead = overlap if chosen.overlap else 0
    cuts = _boundary_pieces(text, target) if chosen.boundaries else _blind_pieces(text, target)
    chunks = []
    for section, earliest, start, end in cuts:
        header = contextual_header(title, section) if chosen.header else ""
        lead_start = max(start - lead, earliest)
        chunks.append(
            Chunk(
                section=section,
                content=text[start:end],
                text=header + text[lead_start:end],
                start=start,
                end=end,
                lead_start=lead_start,
                header_length=len(header),
            )
        )
    return chunks


def contextual_header(title: str, section: str) -> str:
    """Return `[title > section]` and a newline; an empty part is left out, with both empty it is ''."""
    parts = " > ".join(part for part in (title, section) if part)
    return f"[{parts}]\n" if parts else ""


def chunk_id(document_id: str, start: int, end: int, text: str) -> str:
    """Return a chunk's id: 32 hexadecimal digits (128 bits) of SHA-256 over its document, place and text.

    Each part is preceded by its length in bytes, so that no two different quadruples give the same input.
    """
    digest = hashlib.sha256()
    for part in (document_id, str(start), str(end), text):
        # A file name that is not valid UTF-8 reaches Python with lone surrogates; it must have an id too.
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


# (section title, earliest start of the passage, start, end) of each piece.
_Piece = tuple[str, int, int, int]


def _boundary_pieces(text: str, target: int) -> Iterator[_Piece]:
    for section in sections(text):
        for start, end in boundary_cuts(text, section.start, section.end, target):
            yield section.title, section.start, start, end


def _blind_pieces(text: str, target: int) -> Iterator[_Piece]:
    found = sections(text)
    for start, end in blind_cuts(text, target):
        yield title_at(found, start), 0, start, end


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
