"""The six named strategies: each a combination of three independent ingredients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """One way to cut a document.

    `boundaries` packs whole paragraphs inside a section (blind cuts otherwise), `header` prefixes the
    document's and the section's title to the indexed text, `overlap` lets the passage begin before the
    chunk's own words.
    """

    letter: str
    description: str
    boundaries: bool
    header: bool
    overlap: bool


STRATEGIES: dict[str, Strategy] = {
    strategy.letter: strategy
    for strategy in (
        Strategy("A", "blind cuts", boundaries=False, header=False, overlap=False),
        Strategy("B", "blind cuts + overlap", boundaries=False, header=False, overlap=True),
        Strategy("C", "paragraph boundaries", boundaries=True, header=False, overlap=False),
        Strategy("D", "paragraph boundaries + overlap", boundaries=True, header=False, overlap=True),
        Strategy("E", "paragraph boundaries + header", boundaries=True, header=True, overlap=False),
        Strategy("F", "paragraph boundaries + header + overlap", boundaries=True, header=True, overlap=True),
    )
}
