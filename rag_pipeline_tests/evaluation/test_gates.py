from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.gates import (
    GATES,
    DocumentCounts,
    GateContext,
    GateDecision,
    GateResult,
    Severity,
    decide_gates,
)
from rag_pipeline.evaluation.result import Evaluation
from rag_pipeline_tests.evaluation.fakes import evaluation, truth

GOOD = evaluation([1] * 20, [0.9] * 10)


def decide(
    name: str,
    candidate: Evaluation = GOOD,
    *,
    baseline: Evaluation | None = None,
    documents: DocumentCounts | None = None,
    structure: Sequence[str] = (),
    **config: object,
) -> GateResult:
    context = GateContext(
        candidate,
        GateConfig(**config),  # type: ignore[arg-type]
        documents or DocumentCounts(indexed=10, failed=0),
        baseline,
        structure,
    )
    result = GATES[name].decide(context)
    decision = decide_gates(context)
    assert result in decision.results
    assert decision.passed == (not decision.blocking)
    assert result.advice
    assert not (result.blocks and result.passed)
    return result


def test_a_good_build_passes_every_gate() -> None:
    decision = decide_gates(GateContext(GOOD, GateConfig(), DocumentCounts(indexed=10, failed=0), GOOD))
    assert decision.passed
    assert [result.name for result in decision.results] == [
        "ground_truth_valid",
        "destroyed_answers",
        "lost_in_extraction",
        "recall_floor",
        "no_significant_loss",
        "bluffs",
        "vanished_documents",
        "failed_documents",
        "structure",
        "encoder_window",
        "questions_present",
    ]
    assert decision.warnings == ()
    assert all(result.passed and not result.blocks for result in decision.results)


class TestGroundTruthValid:
    def test_an_invalid_question_blocks_and_is_named(self) -> None:
        candidate = evaluation(
            [1, None], ground_truth=[truth("q0"), truth("q1", valid=False, problem="twice")]
        )
        result = decide("ground_truth_valid", candidate)
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 1, 0)
        assert result.message == "1 of 2 questions are invalid. q1: twice."

    def test_valid_questions_pass(self) -> None:
        assert decide("ground_truth_valid").passed

    def test_what_extraction_lost_is_judged_by_its_own_gate(self) -> None:
        lost = truth("q0", valid=False, in_canonical=False, problem="lost in extraction: scan.pdf is failed")
        candidate = evaluation([None], ground_truth=[lost])
        assert decide("ground_truth_valid", candidate).passed
        assert decide("ground_truth_valid", candidate, max_lost_in_extraction=1).passed

    def test_a_needle_that_left_the_source_blocks(self) -> None:
        gone = truth("q0", valid=False, in_source=False, in_canonical=False, problem="not in a.md")
        assert decide("ground_truth_valid", evaluation([None], ground_truth=[gone])).blocks


class TestDestroyedAnswers:
    def test_one_blocks(self) -> None:
        result = decide("destroyed_answers", evaluation([1, None], destroyed=["q1"]))
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 1, 0)
        assert "1 of 2 needles in the canonical text lie inside no chunk's passage: q1." in result.message

    def test_as_many_as_allowed_pass(self) -> None:
        assert decide("destroyed_answers", evaluation([1, None], destroyed=["q1"]), max_destroyed=1).passed
        assert decide("destroyed_answers").value == 0


class TestLostInExtraction:
    LOST = evaluation(
        [None],
        ground_truth=[truth("q0", valid=False, in_canonical=False, problem="lost: scan.pdf is failed")],
    )

    def test_one_blocks_and_tells_why(self) -> None:
        result = decide("lost_in_extraction", self.LOST)
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 1, 0)
        assert "q0: lost: scan.pdf is failed" in result.message

    def test_as_many_as_allowed_pass(self) -> None:
        assert decide("lost_in_extraction", self.LOST, max_lost_in_extraction=1).passed
        assert decide("lost_in_extraction").passed


class TestRecallFloor:
    # Lower ends at k = 4: 20/20 gives 1 / (1 + 3.8415/20) = 0.8389.
    def test_no_floor_passes_whatever_the_recall(self) -> None:
        result = decide("recall_floor", evaluation([None] * 20))
        assert (result.passed, result.value, result.limit) == (True, 0.0, None)
        assert "no floor is set" in result.message

    def test_the_lower_end_is_held_against_the_floor(self) -> None:
        assert decide("recall_floor", min_recall=0.83).passed
        result = decide("recall_floor", min_recall=0.84)
        assert (result.passed, result.blocks, result.limit) == (False, True, 0.84)
        assert result.value == pytest.approx(0.8389, abs=1e-4)
        assert "stays below the floor 0.84" in result.message

    def test_its_depth_is_configured(self) -> None:
        deep = evaluation([10] * 20)
        assert not decide("recall_floor", deep, min_recall=0.5).passed
        assert decide("recall_floor", deep, min_recall=0.5, recall_k=10).passed


class TestNoSignificantLoss:
    def test_nothing_published_passes(self) -> None:
        result = decide("no_significant_loss")
        assert result.passed
        assert result.message == "Nothing to compare with: no build is published."

    def test_a_published_build_without_evaluation_passes_and_is_named(self) -> None:
        context = GateContext(GOOD, GateConfig(), DocumentCounts(indexed=1, failed=0), published_build="b0")
        result = GATES["no_significant_loss"].decide(context)
        assert result.passed
        assert "the published build b0 has no evaluation" in result.message

    def test_a_significant_loss_blocks(self) -> None:
        # 6 lost, 0 won: p = 2 / 2^6 = 0.03125.
        result = decide("no_significant_loss", evaluation([1] * 14 + [None] * 6), baseline=GOOD)
        assert (result.passed, result.blocks, result.limit) == (False, True, 0.05)
        assert result.value == 0.03125
        assert "the published build is significantly better" in result.message

    def test_a_loss_that_may_be_chance_passes(self) -> None:
        # 5 lost, 0 won: p = 0.0625.
        assert decide("no_significant_loss", evaluation([1] * 15 + [None] * 5), baseline=GOOD).passed

    def test_a_significant_gain_passes(self) -> None:
        assert decide("no_significant_loss", GOOD, baseline=evaluation([None] * 20)).passed

    def test_it_warns_where_the_setting_says_so(self) -> None:
        result = decide("no_significant_loss", evaluation([None] * 20), baseline=GOOD, block_on_loss=False)
        assert (result.passed, result.blocks, result.severity) == (False, False, Severity.WARN)

    def test_a_needle_found_between_k_and_the_depth_of_comparison_is_no_loss(self) -> None:
        assert decide("no_significant_loss", evaluation([8] * 20), baseline=GOOD).passed
        assert decide("no_significant_loss", evaluation([9] * 20), baseline=GOOD).blocks
        assert decide("no_significant_loss", evaluation([8] * 20), baseline=GOOD, comparison_k=4).blocks

    def test_level_is_configured(self) -> None:
        candidate = evaluation([1] * 14 + [None] * 6)
        assert decide("no_significant_loss", candidate, baseline=GOOD, alpha=0.01).passed

    def test_each_build_is_taken_in_the_mode_it_serves(self) -> None:
        candidate = evaluation([None] * 20, mode="hybrid")
        assert decide("no_significant_loss", candidate, baseline=GOOD).blocks

    def test_only_common_queries_count(self) -> None:
        # The published build was asked nothing of the candidate's.
        result = decide("no_significant_loss", evaluation([None] * 20), baseline=evaluation())
        assert result.passed
        assert "Nothing to compare with: no queries in common" in result.message


class TestBluffs:
    def test_a_significant_rise_blocks(self) -> None:
        result = decide("bluffs", evaluation([1], [0.5] * 6 + [0.9] * 4), baseline=GOOD)
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 6, None)
        assert "6 of 10 out-of-domain queries pass the threshold 0.675 (3 near, 3 far)" in result.message

    def test_a_rise_that_may_be_chance_passes(self) -> None:
        assert decide("bluffs", evaluation([1], [0.5] * 5 + [0.9] * 5), baseline=GOOD).passed

    def test_fewer_bluffs_pass(self) -> None:
        assert decide("bluffs", GOOD, baseline=evaluation([1], [0.5] * 10)).passed

    def test_a_rise_warns_where_the_setting_says_so(self) -> None:
        result = decide("bluffs", evaluation([1], [0.5] * 10), baseline=GOOD, block_on_bluffs=False)
        assert (result.passed, result.blocks) == (False, False)

    def test_the_ceiling_blocks_with_and_without_a_published_build(self) -> None:
        bluffing = evaluation([1], [0.5] * 3 + [0.9])
        for baseline in (None, bluffing):
            assert decide("bluffs", bluffing, baseline=baseline, max_bluffs=3).passed
            result = decide("bluffs", bluffing, baseline=baseline, max_bluffs=2, block_on_bluffs=False)
            assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 3, 2)
            assert "the ceiling is 2" in result.message

    def test_without_a_published_build_or_queries_there_is_nothing_to_compare(self) -> None:
        assert "Nothing to compare with" in decide("bluffs", evaluation([1], [0.5] * 10)).message
        assert decide("bluffs", evaluation([1]), max_bluffs=0).passed


class TestVanishedDocuments:
    @staticmethod
    def counts(gone: int) -> DocumentCounts:
        published = [f"{at}.md" for at in range(10)]
        return DocumentCounts.compare(dict.fromkeys(published[gone:], "indexed"), published)

    def test_more_than_the_share_blocks_and_names_them(self) -> None:
        result = decide("vanished_documents", documents=self.counts(3))
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 0.3, 0.2)
        assert "3 of the published build's 10 documents are gone" in result.message
        assert result.message.endswith(": 0.md, 1.md, 2.md.")

    def test_up_to_the_share_passes(self) -> None:
        assert decide("vanished_documents", documents=self.counts(2)).passed

    def test_nothing_published_passes(self) -> None:
        assert "Nothing to compare with" in decide("vanished_documents").message

    def test_a_failed_document_is_not_gone_and_a_skipped_one_is(self) -> None:
        states = {"a": "indexed", "b": "failed", "c": "skipped", "new": "indexed"}
        assert DocumentCounts.compare(states, ["a", "b", "c", "d"]) == DocumentCounts(2, 1, 1, 4, ("c", "d"))


class TestFailedDocuments:
    def test_any_warns(self) -> None:
        result = decide("failed_documents", documents=DocumentCounts(indexed=9, failed=1))
        assert (result.passed, result.blocks, result.severity) == (False, False, Severity.WARN)
        assert (result.value, result.limit) == (0.1, 0.1)

    def test_more_than_the_share_blocks(self) -> None:
        result = decide("failed_documents", documents=DocumentCounts(indexed=8, failed=1))
        assert (result.passed, result.blocks, result.severity) == (False, True, Severity.ERROR)

    def test_none_passes_and_skipped_ones_do_not_count(self) -> None:
        result = decide("failed_documents", documents=DocumentCounts(indexed=1, failed=0, skipped=50))
        assert (result.passed, result.value) == (True, 0.0)
        assert decide("failed_documents", documents=DocumentCounts(indexed=0, failed=0)).passed


class TestStructure:
    def test_a_problem_blocks(self) -> None:
        result = decide("structure", structure=["Row 3 has norm 0.9.", "Two fingerprints."])
        assert (result.passed, result.blocks, result.value, result.limit) == (False, True, 2, 0)
        assert "Row 3 has norm 0.9. Two fingerprints." in result.message

    def test_no_problem_passes(self) -> None:
        assert decide("structure").passed

    def test_a_long_list_is_cut(self) -> None:
        result = decide("structure", structure=[f"Problem {at}." for at in range(500)])
        assert result.message.endswith("Problem 9. and 490 more")


class TestEncoderWindow:
    def test_a_chunk_over_it_warns_and_never_blocks(self) -> None:
        result = decide("encoder_window", evaluation([1], chunks_over_window=3))
        assert (result.passed, result.blocks, result.severity) == (False, False, Severity.WARN)
        assert (result.value, result.limit) == (3, 0)

    def test_a_needle_beyond_it_is_named(self) -> None:
        result = decide("encoder_window", evaluation([1], beyond_window=["q0"], chunks_over_window=1))
        assert "1 needles lie beyond it: q0." in result.message
        assert not result.blocks

    def test_chunks_within_it_pass(self) -> None:
        assert decide("encoder_window").passed
        assert decide("encoder_window", evaluation([1], window=None)).passed


class TestQuestionsPresent:
    def test_their_absence_warns(self) -> None:
        result = decide("questions_present", evaluation())
        assert (result.passed, result.blocks, result.severity) == (False, False, Severity.WARN)
        assert "published as unscored" in result.message

    def test_it_blocks_where_they_are_required(self) -> None:
        result = decide("questions_present", evaluation(), require_questions=True)
        assert (result.passed, result.blocks, result.severity) == (False, True, Severity.ERROR)

    def test_questions_pass(self) -> None:
        assert decide("questions_present", require_questions=True).passed


def test_an_unscored_build_is_held_to_the_structural_gates_alone() -> None:
    unscored = evaluation()
    context = GateContext(
        unscored, GateConfig(min_recall=0.9), DocumentCounts(indexed=5, failed=0), baseline=GOOD
    )
    decision = decide_gates(context)
    assert decision.passed
    assert [result.name for result in decision.warnings] == ["questions_present"]
    broken = decide_gates(
        GateContext(unscored, GateConfig(), DocumentCounts(indexed=5, failed=5), structure=["Row 1 is NaN."])
    )
    assert [result.name for result in broken.blocking] == ["failed_documents", "structure"]


def test_decisions_read_back_from_json() -> None:
    decision = decide_gates(
        GateContext(evaluation([1], destroyed=["q0"]), GateConfig(), DocumentCounts(indexed=1, failed=1))
    )
    assert not decision.passed
    data = json.loads(json.dumps(decision.to_json()))
    assert GateDecision.from_json(data) == decision
    assert set(data) == {"passed", "checks"}
    assert data["checks"][1]["name"] == "destroyed_answers"
    assert data["checks"][1]["severity"] == "error"


def test_every_gate_is_declared_with_what_to_do() -> None:
    for name, gate in GATES.items():
        assert gate.name == name
        assert gate.title and gate.description.endswith(".") and gate.advice.endswith(".")
