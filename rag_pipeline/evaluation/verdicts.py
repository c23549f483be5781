"""Verdicts: for every query and retriever, the place where an answer was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

# Retrievers that never look at a vector: what lies beyond the encoder's window is not hidden from them.
MODES_WITHOUT_ENCODER = frozenset({"bm25"})


class Verdict(StrEnum):
    """Where a query's answer was lost, or that it was not."""

    NOT_IN_SOURCE = "not in the source"
    LOST_IN_EXTRACTION = "lost in extraction"
    DESTROYED = "destroyed by chunking"
    BEYOND_WINDOW = "beyond the encoder window"
    NOT_RETRIEVED = "not retrieved at k"
    REFUSED = "refused by the threshold"
    ANSWERED = "answered"


@dataclass(frozen=True)
class Case:
    """What is known about one query under one retriever.

    `retrieved`: a chunk whose passage holds the needle is among the first k. `passed`: one of those lies
    strictly below the threshold. A needle whose ground truth is invalid is never retrieved.
    """

    mode: str
    in_source: bool
    in_canonical: bool
    destroyed: bool
    beyond_window: bool
    retrieved: bool
    passed: bool


@dataclass(frozen=True)
class Rule:
    """A verdict, when it applies, and what it says to someone who wants to repair it."""

    verdict: Verdict
    applies: Callable[[Case], bool]
    meaning: str


RULES: tuple[Rule, ...] = (
    Rule(
        Verdict.NOT_IN_SOURCE,
        lambda case: not case.in_source,
        "The named document does not hold the needle, not even in its raw text. Repair the question or the "
        "source.",
    ),
    Rule(
        Verdict.LOST_IN_EXTRACTION,
        lambda case: not case.in_canonical,
        "The file holds the needle, its canonical text does not. Look at the document's state and warnings.",
    ),
    Rule(
        Verdict.DESTROYED,
        lambda case: case.destroyed,
        "No chunk's passage holds the whole needle. Choose another strategy, or an overlap.",
    ),
    Rule(
        Verdict.BEYOND_WINDOW,
        lambda case: case.beyond_window and case.mode not in MODES_WITHOUT_ENCODER,
        "Every chunk that holds the needle has it beyond what the encoder reads. Use smaller chunks or a "
        "longer window.",
    ),
    Rule(
        Verdict.NOT_RETRIEVED,
        lambda case: not case.retrieved,
        "Other chunks were ranked before it. This is the retriever's to repair.",
    ),
    Rule(
        Verdict.REFUSED,
        lambda case: not case.passed,
        "It was among the first k and the threshold dropped it. Look at the sweep.",
    ),
    Rule(Verdict.ANSWERED, lambda case: True, "A reader receives the whole needle."),
)


def verdict_of(case: Case) -> Verdict:
    """Return the first verdict of `RULES` that applies; the last one always does."""
    return next(rule.verdict for rule in RULES if rule.applies(case))
