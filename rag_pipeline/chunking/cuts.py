"""Where a text is cut: blindly every so many characters, or at the boundaries of paragraphs and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Span = tuple[int, int]

# No blank line inside, no newline at either end: the newline before the next heading is no part of a
# paragraph, or a paragraph of exactly the target's length would be cut for a character that nobody sees.
_PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]+)*")
_SENTENCE = re.compile(r"[^.!?]*[.!?]*\s*")


def blind_cuts(text: str, target: int) -> Iterator[Span]:
    """Yield trimmed spans cut every `target` characters over the whole of `text`; blank ones are dropped."""
    return _trimmed(text, ((start, min(start + target, len(text))) for start in range(0, len(text), target)))


def boundary_cuts(text: str, start: int, end: int, target: int) -> Iterator[Span]:
    """Yield trimmed spans of the paragraphs of `text[start:end]`, packed greedily up to `target` characters.

    A paragraph longer than `target` is packed by sentences instead, alone; a sentence longer than `target`
    stays whole (SPEC 3.4, rules 2 to 5). Offsets come from matches in `text`, none is added up.
    """
    return _trimmed(text, _packed_paragraphs(text, start, end, target))


def _packed_paragraphs(text: str, start: int, end: int, target: int) -> Iterator[Span]:
    fitting: list[Span] = []
    for paragraph in _PARAGRAPH.finditer(text, start, end):
        if paragraph.end() - paragraph.start() <= target:
            fitting.append(paragraph.span())
            continue
        yield from _pack(fitting, target)
        fitting.clear()
        sentences = (match.span() for match in _SENTENCE.finditer(text, *paragraph.span()) if match[0])
        yield from _pack(sentences, target)
    yield from _pack(fitting, target)


def _pack(spans: Iterable[Span], target: int) -> Iterator[Span]:
    """Join neighbours while the whole, with what lies between them, is at most `target` long."""
    opened: Span | None = None
    for start, end in spans:
        if opened is not None and end - opened[0] <= target:
            opened = (opened[0], end)
            continue
        if opened is not None:
            yield opened
        opened = (start, end)
    if opened is not None:
        yield opened


def _trimmed(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    for start, end in spans:
        piece = text[start:end]
        content = piece.strip()
        if content:
            first = start + len(piece) - len(piece.lstrip())
            yield first, first + len(content)
