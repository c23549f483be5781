"""Lines of a page as whatever reads it hands them over: pieces of text with their place, and drawn rules.

Knows no PDF library. Coordinates are points with y growing upwards, as in PDF user space, turned so that the text
of a line runs to the right.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from rag_pipeline.documents import markdown_writer

# The gap between two pieces of a line, in ems, that separates two cells.
CELL_GAP_EMS = 0.9
# Widths of characters in ems in common sans-serif type, for libraries that do not tell where a piece ends.
_NARROW = frozenset("iljtfrI.,:;'!|()[]/ -‘’·")
_WIDE = frozenset("mwMW@%—…")
_BOLD = ("bold", "black", "heavy", "semibold", "demi")
_MONOSPACE = ("courier", "mono", "consolas", "menlo", "typewriter", "cmtt", "fixed")


@dataclass(frozen=True)
class Ruling:
    """A drawn line, level or upright, from its lower left end to its upper right one."""

    x: float
    y: float
    x_end: float
    y_end: float

    @property
    def is_level(self) -> bool:
        """True for a line that runs across."""
        return self.x_end - self.x >= self.y_end - self.y


@dataclass(frozen=True)
class Piece:
    """A run of text in one font: where it starts and ends, its baseline, its size, the look of its font.

    `starts_cell` is set where it is known that a gap, not a space, stands before it.
    """

    text: str
    x: float
    x_end: float
    y: float
    size: float
    bold: bool = False
    monospace: bool = False
    starts_cell: bool = False


@dataclass(frozen=True)
class TextLine:
    """One line of a page: its pieces from left to right.

    `turn` tells lines written in another direction from the others: quarter turns anticlockwise, 4 for a slant.
    """

    pieces: tuple[Piece, ...]
    turn: int = 0

    @cached_property
    def text(self) -> str:
        """The line's words, single-spaced."""
        return markdown_writer.one_line("".join(piece.text for piece in self.pieces))

    @property
    def x(self) -> float:
        """Where the line starts."""
        return min(piece.x for piece in self.pieces)

    @property
    def x_end(self) -> float:
        """Where the line ends."""
        return max(piece.x_end for piece in self.pieces)

    @property
    def y(self) -> float:
        """The line's baseline."""
        return self.pieces[0].y

    @cached_property
    def size(self) -> float:
        """The font size of most of the line's characters, to half a point."""
        sizes: Counter[float] = Counter()
        for piece in self.pieces:
            sizes[round(piece.size * 2) / 2] += len(piece.text.strip())
        return sizes.most_common(1)[0][0]

    @property
    def bold(self) -> bool:
        """True where the whole line is bold."""
        return all(piece.bold for piece in self.pieces if piece.text.strip())

    @property
    def monospace(self) -> bool:
        """True where the whole line is set in a font of fixed width."""
        return all(piece.monospace for piece in self.pieces if piece.text.strip())

    @cached_property
    def cells(self) -> tuple[Piece, ...]:
        """The pieces with those that touch made one: the cells of a table row."""
        cells: list[Piece] = []
        for piece in sorted(
            (piece for piece in self.pieces if piece.text.strip()), key=lambda piece: piece.x
        ):
            touches = bool(cells) and piece.x - cells[-1].x_end < CELL_GAP_EMS * piece.size
            if touches and not piece.starts_cell:
                last = cells[-1]
                cells[-1] = Piece(
                    last.text + " " + piece.text, last.x, piece.x_end, last.y, last.size, last.bold
                )
            else:
                cells.append(piece)
        return tuple(cells)


def estimated_width(text: str, size: float, *, monospace: bool) -> float:
    """Return about how wide `text` is when set in type of `size`, in the unit of `size`."""
    if monospace:
        return 0.6 * size * len(text)
    ems = 0.0
    for character in text:
        if character in _NARROW:
            ems += 0.29
        elif character in _WIDE:
            ems += 0.87
        elif character.isupper() or unicodedata.east_asian_width(character) in "WF":
            ems += 0.69
        else:
            ems += 0.54
    return ems * size


def fold_ligatures(text: str) -> str:
    """Return `text` with ligature characters (U+FB00 to U+FB17) taken apart; nothing else changes."""
    if text.isascii():
        return text
    return "".join(
        unicodedata.normalize("NFKC", character) if "\ufb00" <= character <= "\ufb17" else character
        for character in text
    )


def is_bold(font: str) -> bool:
    """Return True for the name of a bold font."""
    name = font.lower()
    return any(word in name for word in _BOLD)


def is_monospace(font: str) -> bool:
    """Return True for the name of a font of fixed width."""
    name = font.lower()
    return any(word in name for word in _MONOSPACE)
