"""Scores a build: one pass over its chunks, then every query through every retriever."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.core.errors import DamagedBuildError, SettingsError
from rag_pipeline.evaluation.ground_truth import GroundTruth
from rag_pipeline.evaluation.outcomes import OutOfDomainOutcome, QueryOutcome, below
from rag_pipeline.evaluation.protocols import ChunkView, RankedIndex, Ranking, Serving
from rag_pipeline.evaluation.questions import OutOfDomainQuery
from rag_pipeline.evaluation.result import Evaluation, Served
from rag_pipeline.evaluation.verdicts import Case, verdict_of

Progress = Callable[[int, int], None]


def evaluate(
    index: RankedIndex,
    ground_truth: Sequence[GroundTruth],
    out_of_domain: Sequence[OutOfDomainQuery] = (),
    *,
    retrieval: Serving,
    ks: Iterable[int] = (1, 4, 8, 20),
    progress: Progress | None = None,
) -> Evaluation:
    """Return the evaluation of a build under every retriever it has.

    Ranks are taken over the full ranking before the threshold; verdicts, refusals and bluffs at the served k
    and threshold. An invalid needle is a miss for every retriever. Without questions the evaluation is
    unscored. `progress(done, total)` is called after each query. Memory grows with the questions, not with
    the chunks.

    Raises SettingsError where the served mode is none of the index's, ValueError for a depth below 1, and
    DamagedBuildError where a ranking's rows and distances do not pair up.
    """
    depths = tuple(sorted(set(ks)))
    if not depths or depths[0] < 1:
        raise ValueError(f"ks must hold one or more depths of 1 or more, got {depths}")
    if retrieval.mode not in index.modes:
        raise SettingsError(
            f"retrieval.mode is {retrieval.mode!r}, which this index does not rank; it has "
            f"{', '.join(index.modes)}"
            + (" (set retrieval.reranker to have it)" if retrieval.mode == "reranked" else "")
        )
    served = Served(retrieval.mode, retrieval.k, float(retrieval.threshold))
    survey = _survey(index.iter_chunks(), ground_truth)
    seconds: dict[str, list[float]] = {mode: [] for mode in index.modes}
    total = sum(len(truth.question.queries) for truth in ground_truth) + len(out_of_domain)
    done = 0

    def ranked(mode: str, query: str) -> Ranking:
        began = time.perf_counter()
        ranking = index.rank(mode, query)
        seconds[mode].append(time.perf_counter() - began)
        if len(ranking.rows) != len(ranking.distances):
            raise DamagedBuildError(
                f"build {index.build}: {mode} ranked {len(ranking.rows)} chunks and gave "
                f"{len(ranking.distances)} distances for {query!r}"
            )
        return ranking

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    outcomes: list[QueryOutcome] = []
    for truth in ground_truth:
        holders = survey.holders[truth.question.id]
        for query in truth.question.queries:
            outcomes.extend(
                _outcome(truth, query, mode, ranked(mode, query), holders, served) for mode in index.modes
            )
            advance()
    bluffs: list[OutOfDomainOutcome] = []
    for item in out_of_domain:
        for mode in index.modes:
            nearest = _smallest(ranked(mode, item.query).distances[: served.k])
            bluffs.append(
                OutOfDomainOutcome(
                    item.id, item.query, item.kind, mode, nearest, below(nearest, served.threshold)
                )
            )
        advance()

    return Evaluation(
        build=index.build,
        served=served,
        modes=tuple(index.modes),
        ks=depths,
        chunks=survey.chunks,
        chunks_over_window=survey.over_window,
        window=survey.window,
        embedded_tokens=survey.pieces,
        header_tokens=survey.header_pieces,
        ground_truth=tuple(ground_truth),
        destroyed=_ids(
            ground_truth, lambda truth: truth.valid and survey.holders[truth.question.id].destroyed
        ),
        beyond_window=_ids(
            ground_truth, lambda truth: truth.valid and survey.holders[truth.question.id].hidden
        ),
        outcomes=tuple(outcomes),
        out_of_domain=tuple(bluffs),
        milliseconds={mode: 1000 * statistics.median(times) for mode, times in seconds.items() if times},
    )


@dataclass
class _Holders:
    """The chunks whose passage holds a needle, and those of them in which the encoder reads it to its end."""

    rows: list[int] = field(default_factory=list)
    read: int = 0

    @property
    def destroyed(self) -> bool:
        return not self.rows

    @property
    def hidden(self) -> bool:
        return bool(self.rows) and not self.read


@dataclass
class _Survey:
    """What one pass over the chunks counts."""

    holders: Mapping[str, _Holders]
    chunks: int = 0
    over_window: int = 0
    pieces: int = 0
    header_pieces: int = 0
    window: int | None = None


def _survey(chunks: Iterable[ChunkView], ground_truth: Sequence[GroundTruth]) -> _Survey:
    survey = _Survey({truth.question.id: _Holders() for truth in ground_truth})
    places: dict[str, list[tuple[int, int, _Holders]]] = {}
    for truth in ground_truth:
        for document_id, start, end in truth.occurrences:
            places.setdefault(document_id, []).append((start, end, survey.holders[truth.question.id]))
    for chunk in chunks:
        survey.chunks += 1
        survey.pieces += chunk.pieces
        survey.header_pieces += chunk.header_pieces
        survey.window = chunk.window
        survey.over_window += chunk.window is not None and chunk.pieces > chunk.window
        for start, end, holders in places.get(chunk.document_id, ()):
            if chunk.lead_start <= start and end <= chunk.end:
                holders.rows.append(chunk.row)
                holders.read += end <= chunk.window_end
    return survey


def _outcome(
    truth: GroundTruth, query: str, mode: str, ranking: Ranking, holders: _Holders, served: Served
) -> QueryOutcome:
    holds = np.isin(ranking.rows, holders.rows) if truth.valid else np.zeros(len(ranking.rows), dtype=bool)
    at = np.flatnonzero(holds)
    rank = int(at[0]) + 1 if at.size else None
    head = ranking.distances[: served.k]
    distance = _smallest(head[holds[: served.k]])
    answered = below(distance, served.threshold)
    case = Case(
        mode=mode,
        in_source=truth.in_source,
        in_canonical=truth.in_canonical,
        destroyed=holders.destroyed,
        beyond_window=holders.hidden,
        retrieved=rank is not None and rank <= served.k,
        passed=answered,
    )
    return QueryOutcome(
        question_id=truth.question.id,
        query=query,
        needle=truth.question.needle,
        mode=mode,
        rank=rank,
        distance=distance,
        nearest=_smallest(head),
        answered=answered,
        verdict=verdict_of(case),
    )


def _smallest(distances: NDArray[np.float64]) -> float | None:
    """Return the smallest finite distance; None without one (a NaN is below no threshold)."""
    return min((float(distance) for distance in distances if math.isfinite(distance)), default=None)


def _ids(ground_truth: Collection[GroundTruth], keep: Callable[[GroundTruth], bool]) -> tuple[str, ...]:
    return tuple(truth.question.id for truth in ground_truth if keep(truth))
