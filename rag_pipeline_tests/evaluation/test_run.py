from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from rag_pipeline.core.errors import DamagedBuildError, SettingsError
from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.gates import DocumentCounts, GateContext, decide_gates
from rag_pipeline.evaluation.outcomes import QueryOutcome
from rag_pipeline.evaluation.questions import OutOfDomainKind, OutOfDomainQuery
from rag_pipeline.evaluation.result import Evaluation, Served
from rag_pipeline.evaluation.run import evaluate
from rag_pipeline.retrieval.config import RetrievalConfig
from rag_pipeline_tests.evaluation.fakes import Chunk, FakeIndex, Ranked, truth

SERVED = Served("dense", 4, 0.675)
# Chunk 1 holds the needle at [10, 20) of a.md; 0 ends inside it, 2 begins inside it.
CHUNKS = [
    Chunk(0, "a.md", 0, 19, 0),
    Chunk(1, "a.md", 10, 20, 10),
    Chunk(2, "a.md", 11, 40, 11),
    Chunk(3, "b.md", 0, 30, 0),
    *(Chunk(row, "c.md", row * 10, row * 10 + 10, row * 10) for row in range(4, 12)),
]


def ranking(*rows: int, distance: float = 0.5) -> list[tuple[int, float]]:
    return [(row, distance) for row in rows]


def run(
    hits: list[tuple[int, float]], *, mode: str = "dense", chunks: list[Chunk] | None = None
) -> QueryOutcome:
    index = FakeIndex(CHUNKS if chunks is None else chunks, {mode: {"one?": hits}})
    result = evaluate(index, [truth()], retrieval=replace(SERVED, mode=mode))
    (outcome,) = result.of_mode(mode)
    return outcome


def test_the_rank_is_that_of_the_first_chunk_whose_passage_holds_the_whole_needle() -> None:
    outcome = run([(0, 0.1), (2, 0.2), (3, 0.3), (1, 0.4)])
    assert (outcome.rank, outcome.distance, outcome.nearest) == (4, 0.4, 0.1)
    assert (outcome.answered, outcome.verdict) == (True, "answered")


def test_an_overlap_lets_a_passage_hold_what_the_content_does_not() -> None:
    chunks = [*CHUNKS[:1], *CHUNKS[2:], Chunk(1, "a.md", 11, 40, 9)]
    assert run(ranking(0, 1), chunks=chunks).rank == 2


def test_a_copy_of_the_document_holds_the_needle_too() -> None:
    index = FakeIndex(CHUNKS, {"dense": {"one?": ranking(0, 3, 1)}})
    copied = truth(places=[("a.md", 10, 20), ("b.md", 10, 20)])
    assert evaluate(index, [copied], retrieval=SERVED).of_mode("dense")[0].rank == 2


def test_a_needle_below_k_is_not_retrieved_and_keeps_its_rank() -> None:
    outcome = run(ranking(0, 2, 3, 4, 1))
    assert (outcome.rank, outcome.distance, outcome.answered) == (5, None, False)
    assert outcome.verdict == "not retrieved at k"


def test_a_needle_that_the_threshold_drops_is_refused_though_others_pass() -> None:
    outcome = run([(0, 0.2), (1, 0.675)])
    assert (outcome.rank, outcome.distance, outcome.nearest, outcome.answered) == (2, 0.675, 0.2, False)
    assert outcome.verdict == "refused by the threshold"


def test_a_second_holding_chunk_may_answer_where_the_first_is_dropped() -> None:
    chunks = [*CHUNKS, Chunk(12, "a.md", 5, 25, 5)]
    outcome = run([(1, 0.9), (12, 0.5)], chunks=chunks)
    assert (outcome.rank, outcome.distance, outcome.verdict) == (1, 0.5, "answered")


def test_a_needle_in_no_passage_is_destroyed() -> None:
    index = FakeIndex([chunk for chunk in CHUNKS if chunk.row != 1], {"dense": {"one?": ranking(0, 2)}})
    result = evaluate(index, [truth()], retrieval=SERVED)
    assert result.destroyed == ("q1",)
    assert {outcome.verdict.value for outcome in result.outcomes} == {"destroyed by chunking"}
    assert {outcome.rank for outcome in result.outcomes} == {None}


def test_an_invalid_needle_stays_in_every_denominator_as_a_miss() -> None:
    index = FakeIndex(CHUNKS, {"dense": {"one?": ranking(1), "two?": ranking(1)}})
    truths = [truth(valid=False), truth("q2", ["two?"])]
    result = evaluate(index, truths, retrieval=SERVED)
    assert (result.recall("dense", 1).hits, result.recall("dense", 1).n) == (1, 2)
    assert result.mean_reciprocal_rank("dense").value == 0.5
    assert [outcome.verdict.value for outcome in result.of_mode("dense")] == [
        "not retrieved at k",
        "answered",
    ]
    refusal = result.refusal()
    assert (refusal.answered, refusal.wrong, refusal.refused) == (1, 1, 0)


def test_absent_needles_tell_source_from_extraction() -> None:
    index = FakeIndex(CHUNKS, {"dense": {"one?": ranking(1), "two?": ranking(1)}})
    truths = [
        truth(places=[], valid=False, in_source=False, in_canonical=False),
        truth("q2", ["two?"], places=[], valid=False, in_canonical=False),
    ]
    result = evaluate(index, truths, retrieval=SERVED)
    verdicts = [outcome.verdict.value for outcome in result.of_mode("dense")]
    assert verdicts == ["not in the source", "lost in extraction"]
    # What never reached the canonical text was not destroyed by chunking.
    assert result.destroyed == ()
    assert result.lost_in_extraction == ("q2",)


def test_a_needle_beyond_the_window_in_every_holding_chunk_is_hidden_from_encoders() -> None:
    cut = replace(CHUNKS[1], pieces=300, window_end=19)
    hits = {mode: {"one?": ranking(1)} for mode in ("dense", "bm25", "hybrid")}
    result = evaluate(FakeIndex([cut], hits), [truth()], retrieval=SERVED)
    assert result.beyond_window == ("q1",)
    assert result.chunks_over_window == 1
    assert [outcome.verdict.value for outcome in result.outcomes] == [
        "beyond the encoder window",
        "answered",
        "beyond the encoder window",
    ]
    whole = replace(CHUNKS[1], row=12, window_end=20)
    assert evaluate(FakeIndex([cut, whole], hits), [truth()], retrieval=SERVED).beyond_window == ()


def test_chunks_are_counted() -> None:
    chunks = [
        replace(CHUNKS[0], pieces=256, header_pieces=5),
        replace(CHUNKS[1], pieces=257, header_pieces=7),
    ]
    result = evaluate(FakeIndex(chunks), [truth()], retrieval=SERVED)
    assert (result.chunks, result.chunks_over_window, result.window) == (2, 1, 256)
    assert (result.embedded_tokens, result.header_tokens) == (513, 12)
    assert result.header_share == 12 / 513


def test_an_encoder_without_a_limit_has_no_chunk_over_it() -> None:
    chunks = [replace(CHUNKS[1], pieces=9999, window=None)]
    assert evaluate(FakeIndex(chunks), [truth()], retrieval=SERVED).chunks_over_window == 0


def test_bluffs_are_what_passes_among_the_first_k_of_each_retriever() -> None:
    strangers = [
        OutOfDomainQuery("o1", "near?", OutOfDomainKind.NEAR),
        OutOfDomainQuery("o2", "far?", OutOfDomainKind.FAR),
        OutOfDomainQuery("o3", "deep?", OutOfDomainKind.FAR),
    ]
    index = FakeIndex(
        CHUNKS,
        {
            "dense": {
                "near?": [(0, 0.6), (1, 0.5)],
                "far?": [(0, 0.675)],
                "deep?": [*ranking(0, 1, 2, 3, distance=0.9), (4, 0.1)],
            },
            "bm25": {"far?": [(0, 0.3)]},
        },
    )
    result = evaluate(index, [truth()], strangers, retrieval=SERVED)
    assert [(o.nearest, o.bluff) for o in result.out_of_domain_of_mode("dense")] == [
        (0.5, True),
        (0.675, False),
        (0.9, False),
    ]
    assert (result.refusal().bluffs_near, result.refusal().bluffs_far, result.refusal().bluffs) == (1, 0, 1)
    assert result.refusal("bm25").bluffs_far == 1
    # BM25 ranks nothing that shares no term: a refusal, not an error.
    assert result.out_of_domain_of_mode("bm25")[0].nearest is None


def test_a_distance_that_is_no_number_passes_no_threshold() -> None:
    outcome = run([(1, float("nan")), (0, 0.9)])
    assert (outcome.distance, outcome.nearest, outcome.verdict) == (None, 0.9, "refused by the threshold")


def test_an_index_without_questions_is_unscored_and_has_figures() -> None:
    result = evaluate(FakeIndex(CHUNKS), [], retrieval=SERVED)
    assert (result.scored, result.questions, result.queries) == (False, 0, 0)
    report = result.to_json()
    assert report["scored"] is False
    assert report["retrievers"]["dense"]["recall"]["4"] == {
        "hits": 0,
        "n": 0,
        "value": None,
        "low": 0.0,
        "high": 1.0,
    }
    assert report["retrievers"]["dense"]["mrr"] is None
    assert report["refusal"]["answered"] == 0
    assert Evaluation.from_json(json.loads(json.dumps(report))) == result
    assert evaluate(FakeIndex(), [], retrieval=SERVED).to_json()["header_share"] is None


def test_progress_is_told_after_every_query() -> None:
    seen: list[tuple[int, int]] = []
    strangers = [OutOfDomainQuery("o1", "far?", OutOfDomainKind.FAR)]
    evaluate(
        FakeIndex(CHUNKS),
        [truth(queries=["a?", "b?"])],
        strangers,
        retrieval=SERVED,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_report_has_the_contract_and_reads_back() -> None:
    index = FakeIndex(
        CHUNKS, {"dense": {"one?": ranking(1), "two?": ranking(0, 1)}, "hybrid": {"two?": ranking(1)}}
    )
    result = evaluate(
        index,
        [truth(queries=["one?", "two?"])],
        [OutOfDomainQuery("o1", "far?", OutOfDomainKind.FAR)],
        retrieval=RetrievalConfig(mode="hybrid"),
        ks=(4, 1, 4),
    )
    decision = decide_gates(GateContext(result, GateConfig(), DocumentCounts(indexed=1, failed=0)))
    report = json.loads(json.dumps(result.to_json(decision), allow_nan=False))
    assert {
        "build",
        "questions",
        "queries",
        "destroyed",
        "chunks",
        "chunks_over_window",
        "needles_beyond_window",
        "embedded_tokens",
        "header_tokens",
        "retrievers",
        "refusal",
        "sweep",
        "verdicts",
        "gate",
    } <= set(report)
    assert (report["build"], report["questions"], report["queries"], report["chunks"]) == ("b1", 1, 2, 12)
    assert list(report["retrievers"]) == ["dense", "bm25", "hybrid"]
    assert list(report["retrievers"]["dense"]["recall"]) == ["1", "4"]
    recall = report["retrievers"]["dense"]["recall"]["1"]
    assert (recall["hits"], recall["n"], recall["value"]) == (1, 2, 0.5)
    assert report["retrievers"]["dense"]["mrr"] == 0.75
    assert set(report["refusal"]) == {
        "threshold",
        "answered",
        "wrong",
        "refused",
        "bluffs",
        "bluffs_near",
        "bluffs_far",
    }
    assert report["refusal"] in report["sweep"]
    assert report["verdicts"][1] == {
        "id": "q1",
        "query": "two?",
        "verdict": "answered",
        "rank": {"dense": 2, "bm25": None, "hybrid": 1},
        "verdicts": {"dense": "answered", "bm25": "not retrieved at k", "hybrid": "answered"},
        "valid": True,
    }
    assert report["gate"]["passed"] is True
    assert Evaluation.from_json(report) == result
    assert Evaluation.from_json(report).to_json(decision) == result.to_json(decision)


def test_reports_without_timings_are_equal_for_equal_builds() -> None:
    first, second = (evaluate(FakeIndex(CHUNKS), [truth()], retrieval=SERVED) for _ in range(2))
    assert first.to_json(timings=False) == second.to_json(timings=False)
    assert set(first.to_json()["timings"]["milliseconds"]) == {"dense", "bm25", "hybrid"}


def test_a_mode_that_the_index_does_not_have_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"retrieval.mode is 'reranked'.*dense, bm25.*retrieval.reranker"):
        evaluate(FakeIndex(), [], retrieval=replace(SERVED, mode="reranked"))


@pytest.mark.parametrize("ks", [(), (0, 4)])
def test_depths_below_one_are_refused(ks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ks must hold one or more depths of 1 or more"):
        evaluate(FakeIndex(), [], retrieval=SERVED, ks=ks)


def test_rows_without_their_distances_are_refused() -> None:
    class Torn(FakeIndex):
        def rank(self, mode: str, query: str) -> Ranked:
            return Ranked(np.array([1, 2], dtype=np.int64), np.array([0.5]))

    with pytest.raises(
        DamagedBuildError, match=r"build b1: dense ranked 2 chunks and gave 1 distances for 'one.'"
    ):
        evaluate(Torn(CHUNKS), [truth()], retrieval=SERVED)
