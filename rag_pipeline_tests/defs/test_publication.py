"""Publication on its own: what it refuses, what it accepts, and what a rollback's hold does to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rag_pipeline import open_index
from rag_pipeline.index.publish import evaluation_folder, published, release_hold, rollback
from rag_pipeline_tests.defs.pipelines import CHAIN, UP_TO_CANDIDATE, Pipeline


@pytest.fixture
def elsewhere(small: Pipeline) -> Iterator[Pipeline]:
    """The same pipeline seen from a Dagster home that knows none of its runs."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Pipeline(small.settings, instance)


def change(pipeline: Pipeline) -> None:
    pipeline.edit("refunds.md", "three working days", "four working days")


def refused(pipeline: Pipeline, **sections: dict[str, object]) -> str:
    """Materialise publication alone; return why it was refused. What is published must not move."""
    path = pipeline.settings.storage_root / "published.json"
    before = path.read_bytes() if path.exists() else None
    run = pipeline.materialise("published_index", **sections)
    assert not run.success
    assert run.materialised == {}
    assert (path.read_bytes() if path.exists() else None) == before
    return run.error


def test_nothing_to_publish(fresh: Pipeline) -> None:
    assert "candidate_index was never materialised" in refused(fresh)


def test_a_build_that_was_never_evaluated(fresh: Pipeline) -> None:
    fresh.index()
    assert "retrieval_evaluation was never materialised" in refused(fresh)


def test_a_receipt_that_is_gone(small: Pipeline) -> None:
    receipt = small.receipt
    (evaluation_folder(small.storage, receipt.build, receipt.evaluation) / "receipt.json").unlink()
    assert f"build {receipt.build} has no receipt: materialise retrieval_evaluation" in refused(small)


def test_a_receipt_of_another_build(small: Pipeline) -> None:
    change(small)
    small.index()
    assert f"build {small.candidate.id} has no receipt" in refused(small)


def test_an_evaluation_of_an_older_ground_truth(small: Pipeline) -> None:
    change(small)
    small.index()
    run = small.materialise("retrieval_evaluation")
    assert not run.success
    assert "materialise ground_truth and candidate_index again" in run.error


def test_a_half_migrated_index_is_not_built(small: Pipeline) -> None:
    change(small)
    assert small.materialise(*CHAIN[:4]).success
    run = small.materialise("candidate_index")
    assert "chunk_embeddings was made from another version of chunks" in run.error
    assert run.materialised == {}


def test_a_build_of_another_encoder_is_not_evaluated(small: Pipeline, other_encoder: Path) -> None:
    run = small.materialise("retrieval_evaluation", embedding={"model": str(other_encoder)})
    assert "EncoderMismatchError" in run.error
    assert "tiny-0" in run.error and "tiny-1" in run.error
    assert run.materialised == {}


def test_a_blocked_receipt(small: Pipeline, elsewhere: Pipeline) -> None:
    refuse: dict[str, dict[str, object]] = {"gate": {"min_recall": 1.0}}
    assert not small.materialise("retrieval_evaluation", **refuse).success
    # The home that ran it knows the failed check; any other home has the receipt to go by.
    assert "checks of retrieval_evaluation that failed in run" in refused(small, **refuse)
    assert "is blocked by the gate: recall_floor: Recall@4" in refused(elsewhere, **refuse)


def test_a_receipt_edited_by_hand(small: Pipeline) -> None:
    refuse: dict[str, dict[str, object]] = {"gate": {"min_recall": 1.0}}
    assert not small.materialise("retrieval_evaluation", **refuse).success
    receipt = small.receipt
    path = evaluation_folder(small.storage, receipt.build, receipt.evaluation) / "receipt.json"
    path.write_text(json.dumps({**receipt.to_json(), "passed": True, "gates": []}), "utf-8")
    assert "recall_floor: Recall@4" in refused(small, **refuse)


def test_an_evaluation_edited_by_hand(small: Pipeline) -> None:
    receipt = small.receipt
    path = evaluation_folder(small.storage, receipt.build, receipt.evaluation) / "evaluation.json"
    path.write_text(path.read_text("utf-8").replace('"destroyed": []', '"destroyed": ["q1"]'), "utf-8")
    assert "was changed after its receipt was written" in refused(small)


@pytest.mark.parametrize(
    "sections",
    [{"gate": {"max_bluffs": 9}}, {"retrieval": {"threshold": 0.5}}],
    ids=["gate", "threshold"],
)
def test_other_settings_than_were_gated(small: Pipeline, sections: dict[str, dict[str, object]]) -> None:
    assert "gated under other retrieval or gate settings" in refused(small, **sections)
    assert small.materialise("retrieval_evaluation", "published_index", **sections).success


def test_a_passing_receipt_is_published_alone(small: Pipeline, elsewhere: Pipeline) -> None:
    before = published(small.storage)
    change(small)
    assert small.materialise(*UP_TO_CANDIDATE, "ground_truth", "retrieval_evaluation").success
    assert published(small.storage) == before
    run = elsewhere.materialise("published_index")
    assert run.success, run.error
    assert set(run.materialised) == {"published_index"}
    now = published(small.storage)
    assert now is not None and now.build == small.candidate.id
    assert before is not None and now.history[0]["build"] == before.build
    # Once more is no new publication.
    assert small.materialise("published_index").metadata("published_index")["published anew"] is False


def test_a_hold_fails_the_run_and_says_how_to_release_it(small: Pipeline) -> None:
    first = small.candidate.id
    change(small)
    small.published_run()
    second = small.candidate.id
    assert rollback(small.storage).build == first
    held = small.pointer
    for attempt in (small.run(), small.materialise("published_index")):
        assert not attempt.success
        assert "PublicationHeldError" in attempt.error
        assert (
            f"held since {json.loads((small.storage.root / 'hold.json').read_text())['since']}"
            in attempt.error
        )
        assert "release it with `rag-pipeline rollback --release`, then index again" in attempt.error
        assert small.pointer == held
    with open_index(small.settings) as index:
        assert index.stamp["build"] == first
    assert release_hold(small.storage)
    run = small.published_run()
    assert run.metadata("published_index")["held"] is False
    with open_index(small.settings) as index:
        assert index.stamp["build"] == second


def test_without_question_files_it_is_published_as_unscored(fresh: Pipeline) -> None:
    run = fresh.published_run(evaluation={"questions": "", "out_of_domain": ""})
    assert run.metadata("published_index")["status"] == "unscored"
    assert run.metadata("retrieval_evaluation")["scored"] is False
    assert "recall" not in run.metadata("retrieval_evaluation")
    assert run.failed_checks(dg.AssetCheckSeverity.ERROR) == set()
    assert "questions_present" in run.failed_checks(dg.AssetCheckSeverity.WARN)
    with open_index(fresh.settings.storage_root) as index:
        assert index.stamp["status"] == "unscored"
        assert index.search("brake pads").hits
    # Questions added later score the same build.
    build = fresh.candidate.id
    assert fresh.published_run().metadata("published_index")["status"] == "scored"
    assert fresh.candidate.id == build


def test_out_of_domain_queries_alone_are_judged(fresh: Pipeline) -> None:
    run = fresh.published_run(evaluation={"questions": ""})
    assert run.metadata("published_index")["status"] == "unscored"
    assert run.metadata("retrieval_evaluation")["bluffs"] == 2
    refused_run = fresh.run(evaluation={"questions": ""}, gate={"max_bluffs": 1})
    assert refused_run.failed_checks(dg.AssetCheckSeverity.ERROR) == {"bluffs"}


def test_what_was_gated_is_what_is_served(small: Pipeline) -> None:
    serve = {"mode": "bm25", "k": 2, "threshold": 1.5}
    run = small.materialise("retrieval_evaluation", "published_index", retrieval=serve)
    assert "bm25" in run.metadata("published_index")["served"]
    # The reader's own settings ask for hybrid, 4 and 2.0; it gets what was published.
    with open_index(small.settings) as index:
        assert index.stamp["serving"] == {"mode": "bm25", "k": 2, "threshold": 1.5, "reranker": ""}
        result = index.search("brake pads")
    assert (result.mode, result.k, result.threshold) == ("bm25", 2, 1.5)
