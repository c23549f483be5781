"""A small build that is ranked by lists: what the tests of the room share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.evaluation.ground_truth import GroundTruth
from rag_pipeline.evaluation.outcomes import OutOfDomainOutcome, QueryOutcome
from rag_pipeline.evaluation.questions import OutOfDomainKind, Question
from rag_pipeline.evaluation.result import Evaluation, Served
from rag_pipeline.evaluation.verdicts import Verdict


@dataclass(frozen=True)
class Document:
    document_id: str
    text: str = ""
    raw_text: str | None = None
    state: str = "indexed"
    sha256: str | None = None


@dataclass(frozen=True)
class Chunk:
    row: int
    document_id: str
    start: int
    end: int
    lead_start: int
    pieces: int = 10
    header_pieces: int = 2
    window: int | None = 256
    window_end: int = 10**9

    @property
    def chunk_id(self) -> str:
        return f"{self.row:032x}"


class Ranked(NamedTuple):
    rows: NDArray[np.int64]
    distances: NDArray[np.float64]


Hits = Sequence[tuple[int, float]]


@dataclass
class FakeIndex:
    """Rankings are (row, distance) pairs by mode and query; a query that is not given ranks nothing."""

    chunks: Sequence[Chunk] = ()
    rankings: Mapping[str, Mapping[str, Hits]] = field(default_factory=dict)
    modes: tuple[str, ...] = ("dense", "bm25", "hybrid")
    build: str = "b1"

    def iter_chunks(self) -> Iterator[Chunk]:
        return iter(self.chunks)

    def rank(self, mode: str, query: str) -> Ranked:
        hits = self.rankings.get(mode, {}).get(query, ())
        return Ranked(
            np.array([row for row, _ in hits], dtype=np.int64),
            np.array([distance for _, distance in hits], dtype=np.float64),
        )


def truth(
    question: str = "q1",
    queries: Sequence[str] = ("one?",),
    *,
    needle: str = "the needle",
    places: Sequence[tuple[str, int, int]] = (("a.md", 10, 20),),
    valid: bool = True,
    in_source: bool = True,
    in_canonical: bool = True,
    problem: str = "",
) -> GroundTruth:
    return GroundTruth(
        question=Question(question, needle, "a.md", tuple(queries)),
        valid=valid,
        problem=problem or ("" if valid else "broken"),
        in_source=in_source,
        in_canonical=in_canonical,
        occurrences=tuple(places),
    )


def evaluation(
    ranks: Sequence[int | None] = (),
    nearest: Sequence[float] = (),
    *,
    ground_truth: Sequence[GroundTruth] | None = None,
    destroyed: Sequence[str] = (),
    beyond_window: Sequence[str] = (),
    chunks_over_window: int = 0,
    window: int | None = 256,
    mode: str = "dense",
    build: str = "b1",
) -> Evaluation:
    """An evaluation with one query a rank (questions q0, q1, ...) and one out-of-domain query a distance."""
    truths = [truth(f"q{at}", (f"query {at}?",)) for at in range(len(ranks))]
    return Evaluation(
        build=build,
        served=Served(mode, 4, 0.675),
        modes=(mode,),
        ks=(1, 4, 8, 20),
        chunks=100,
        chunks_over_window=chunks_over_window,
        window=window,
        embedded_tokens=1000,
        header_tokens=200,
        ground_truth=tuple(truths if ground_truth is None else ground_truth),
        destroyed=tuple(destroyed),
        beyond_window=tuple(beyond_window),
        outcomes=tuple(
            QueryOutcome(
                question_id=f"q{at}",
                query=f"query {at}?",
                needle="the needle",
                mode=mode,
                rank=rank,
                distance=0.5 if rank is not None and rank <= 4 else None,
                nearest=0.4,
                answered=rank is not None and rank <= 4,
                verdict=Verdict.ANSWERED if rank is not None and rank <= 4 else Verdict.NOT_RETRIEVED,
            )
            for at, rank in enumerate(ranks)
        ),
        out_of_domain=tuple(
            OutOfDomainOutcome(
                id=f"o{at}",
                query=f"elsewhere {at}?",
                kind=OutOfDomainKind.NEAR if at % 2 == 0 else OutOfDomainKind.FAR,
                mode=mode,
                nearest=distance,
                bluff=distance < 0.675,
            )
            for at, distance in enumerate(nearest)
        ),
        milliseconds={mode: 1.5},
    )
