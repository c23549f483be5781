"""What Dagster itself marks stale, after a change of settings, of code or of content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline.steps import code_versions
from rag_pipeline_tests.defs.pipelines import CHAIN, Pipeline

EVALUATION = {"retrieval_evaluation", "published_index"}
INDEX = {"candidate_index", *EVALUATION}
EMBEDDINGS = {"chunk_embeddings", *INDEX}
LEXICAL = {"bm25_statistics", *INDEX}
CHUNKS = {"chunks", *EMBEDDINGS, *LEXICAL}
CANONICAL = {"canonical_documents", "ground_truth", *CHUNKS}

CHANGES: list[tuple[dict[str, dict[str, Any]], set[str]]] = [
    ({"retrieval": {"threshold": 0.5}}, EVALUATION),
    ({"retrieval": {"mode": "dense"}}, EVALUATION),
    ({"retrieval": {"k": 2}}, EVALUATION),
    ({"retrieval": {"reranker": "cross-encoder/some"}}, EVALUATION),
    ({"evaluation": {"ks": (1, 5)}}, EVALUATION),
    ({"gate": {"max_bluffs": 7}}, EVALUATION),
    ({"gate": {"min_recall": 0.1}}, EVALUATION),
    ({"gate": {"require_questions": True}}, EVALUATION),
    ({"evaluation": {"questions": ""}}, {"ground_truth", *EVALUATION}),
    ({"bm25": {"k1": 0.9}}, LEXICAL),
    ({"bm25": {"tokenizer": "reference"}}, LEXICAL),
    ({"chunking": {"strategy": "C"}}, CHUNKS),
    ({"chunking": {"target": 300}}, CHUNKS),
    ({"extraction": {"remove_references": False}}, CANONICAL),
    ({"source": {"path": "elsewhere"}}, set(CHAIN)),
    # What decides no content marks nothing: strategy E has no overlap, limits and batches change no text.
    ({"chunking": {"overlap": 32}}, set()),
    ({"embedding": {"batch_size": 2}}, set()),
    ({"extraction": {"workers": 2, "timeout": 9.0}}, set()),
    ({"publication": {"keep": 1}}, set()),
    ({"storage": {"lock_timeout": 1}}, set()),
    ({"schedule": {"cron": "0 4 * * *", "watch": True}}, set()),
    ({"source": {"url_template": "https://kb.example.com/{document_id}"}}, set()),
]


def test_another_encoder_marks_the_embeddings_and_what_follows(built: Pipeline, other_encoder: Path) -> None:
    assert built.stale() == set()
    assert built.stale(embedding={"model": str(other_encoder)}) == EMBEDDINGS


@pytest.mark.parametrize(("sections", "expected"), CHANGES, ids=[str(c[0]) for c in CHANGES])
def test_a_changed_setting_marks_just_what_it_decides(
    built: Pipeline, sections: dict[str, dict[str, Any]], expected: set[str]
) -> None:
    assert built.stale(**sections) == expected


def test_the_release_number_is_no_part_of_a_code_version(
    built: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = code_versions(built.settings)
    for module in ("rag_pipeline", "rag_pipeline.steps", "rag_pipeline.defs.presentation"):
        monkeypatch.setattr(f"{module}.__version__", "99.0.0")
    assert code_versions(built.settings) == before
    assert built.stale() == set()


def test_nothing_is_fresh_before_the_first_run(fresh: Pipeline) -> None:
    assert fresh.stale() == set(CHAIN)


def test_running_again_with_the_same_content_marks_nothing(small: Pipeline) -> None:
    small.published_run()
    assert small.stale() == set()
    for path in small.source.rglob("*.md"):
        os.utime(path, (1, 1))  # touched, not changed
    small.published_run()
    assert small.stale() == set()
    # One asset alone, in the order of the chain and after publication: equal content is equal data.
    for asset in CHAIN:
        assert small.materialise(asset).success
        assert small.stale() == set(), asset


def test_making_the_stale_ones_anew_makes_everything_fresh(small: Pipeline, other_encoder: Path) -> None:
    small.published_run()
    changed: dict[str, dict[str, Any]] = {"embedding": {"model": str(other_encoder)}}
    stale = small.stale(**changed)
    run = small.materialise(*stale, **changed)
    assert run.success, run.error
    assert set(run.materialised) == EMBEDDINGS
    assert small.stale(**changed) == set()


def test_a_changed_document_marks_what_reads_the_new_listing(small: Pipeline) -> None:
    small.published_run()
    small.edit("refunds.md", "three working days", "four working days")
    assert small.stale() == set()  # Dagster has not looked at the folder
    small.materialise("source_documents")
    assert small.stale() == {"extracted_documents"}
    small.published_run()
    assert small.stale() == set()


def test_a_changed_question_marks_what_reads_the_new_ground_truth(small: Pipeline) -> None:
    small.published_run()
    questions = Path(small.settings.evaluation.questions)
    questions.write_text(questions.read_text("utf-8").replace("When is a", "At what point is a"), "utf-8")
    small.materialise("ground_truth")
    assert small.stale() == {"retrieval_evaluation"}
    strangers = Path(small.settings.evaluation.out_of_domain)
    assert small.materialise(*EVALUATION).success
    assert small.stale() == set()
    strangers.write_text(strangers.read_text("utf-8").replace("helmets", "gloves"), "utf-8")
    small.materialise("ground_truth")
    assert small.stale() == {"retrieval_evaluation"}


def test_a_blocked_evaluation_marks_publication_until_it_passes(small: Pipeline) -> None:
    small.published_run()
    refuse: dict[str, dict[str, Any]] = {"gate": {"min_recall": 1.0}}
    assert not small.run(**refuse).success
    assert small.stale(**refuse) == {"published_index"}
    small.published_run()
    assert small.stale() == set()
