"""The chain's steps: what each is made from, what its code version covers, and that a re-run does only what changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import open_index, steps
from rag_pipeline.core.errors import (
    EncoderMismatchError,
    EncoderNotFoundError,
    GroundTruthError,
    InconsistentInputsError,
    IndexNotFoundError,
    SourceError,
    StorageLockedError,
)
from rag_pipeline.core.storage import Handle, Storage
from rag_pipeline.core.tables import count_rows
from rag_pipeline.index.builds import list_builds
from rag_pipeline.index.publish import published as read_published
from rag_pipeline.settings import Settings
from rag_pipeline.steps import Step, code_versions, encoder_identity, open_session, score_newest, score_with
from rag_pipeline_tests.conftest import DOCUMENTS, MakeSettings, run_chain, settings_maker
from rag_pipeline_tests.retrieval.test_rerank import build_cross_encoder

CHAIN = [
    "source_documents",
    "extracted_documents",
    "canonical_documents",
    "chunks",
    "chunk_embeddings",
    "bm25_statistics",
    "candidate_index",
    "ground_truth",
    "retrieval_evaluation",
    "published_index",
]
ABOVE = {
    "source_documents": set(),
    "extracted_documents": {"source_documents"},
    "canonical_documents": {"extracted_documents"},
    "chunks": {"canonical_documents"},
    "chunk_embeddings": {"chunks"},
    "bm25_statistics": {"chunks"},
    "candidate_index": {"canonical_documents", "chunks", "chunk_embeddings", "bm25_statistics"},
    "ground_truth": {"canonical_documents", "extracted_documents"},
    "retrieval_evaluation": {"candidate_index", "ground_truth"},
    "published_index": {"candidate_index", "retrieval_evaluation"},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> tuple[Settings, dict[str, Step]]:
    settings = settings_maker(tmp_path_factory.mktemp("steps"), tiny_encoder)()
    return settings, run_chain(settings)


# -- handles ------------------------------------------------------------------------------------------------


def test_each_step_names_what_it_was_made_from(done: tuple[Settings, dict[str, Step]]) -> None:
    _, made = done
    assert list(made) == CHAIN
    for name, step in made.items():
        assert step.handle.asset == name
        assert step.handle.inputs == {above: made[above].handle.data_version for above in ABOVE[name]}


def test_handles_are_small_and_name_whole_files(done: tuple[Settings, dict[str, Step]]) -> None:
    settings, made = done
    storage = Storage(settings.storage_root)
    for step in made.values():
        assert len(json.dumps(step.handle.to_json())) < 2000
        assert Handle.from_json(json.loads(json.dumps(step.handle.to_json()))) == step.handle
        for file in step.handle.files.values():
            assert storage.path(file).is_file()
            assert not Path(file).is_absolute()
    for name in ("source_documents", "extracted_documents", "canonical_documents", "chunks", "ground_truth"):
        handle = made[name].handle
        assert handle.rows == count_rows(storage.path(handle.files["table"]))
    assert [made[n].handle.rows for n in ("source_documents", "chunks", "chunk_embeddings")] == [3, 7, 7]
    assert made["ground_truth"].handle.rows == 3
    assert made["retrieval_evaluation"].handle.rows == 6
    assert not list((storage.root / "tmp").iterdir()), "no litter"


# -- work ---------------------------------------------------------------------------------------------------


def work(made: dict[str, Step]) -> dict[str, Any]:
    return {
        "extracted": made["extracted_documents"].result.worked,
        "canonical": made["canonical_documents"].result.worked,
        "cut": made["chunks"].result.worked,
        "encoded": made["chunk_embeddings"].result.encoded,
        "build": made["candidate_index"].result.new,
        "evaluation": made["retrieval_evaluation"].result.new,
        "published": made["published_index"].result.new,
    }


NOTHING = {
    "extracted": 0,
    "canonical": 0,
    "cut": 0,
    "encoded": 0,
    "build": False,
    "evaluation": False,
    "published": False,
}


def test_a_run_over_the_same_content_does_nothing(make_settings: MakeSettings) -> None:
    settings = make_settings()
    first = run_chain(settings)
    assert work(first) == {
        "extracted": 3,
        "canonical": 3,
        "cut": 3,
        "encoded": 7,
        "build": True,
        "evaluation": True,
        "published": True,
    }
    second = run_chain(settings)
    assert work(second) == NOTHING
    assert {n: s.handle.data_version for n, s in second.items()} == {
        n: s.handle.data_version for n, s in first.items()
    }


def test_a_changed_document_does_the_work_of_that_document(make_settings: MakeSettings) -> None:
    settings = make_settings()
    first = run_chain(settings)
    path = Path(settings.source.path) / "brakes.md"
    path.write_text(path.read_text().replace("brass gauge", "steel gauge"))
    second = run_chain(settings)
    assert work(second) == {
        "extracted": 1,
        "canonical": 1,
        "cut": 1,
        "encoded": 1,  # of the document's three chunks one has another text
        "build": True,
        "evaluation": True,
        "published": True,
    }
    # Back again: everything is known, and the build is still on disk.
    path.write_text(DOCUMENTS["brakes.md"])
    third = run_chain(settings)
    assert work(third) == {**NOTHING, "evaluation": True, "published": True}
    assert third["candidate_index"].result.build == first["candidate_index"].result.build


def test_a_renamed_document_moves_in_the_index(make_settings: MakeSettings) -> None:
    settings = make_settings(evaluation={"questions": "", "out_of_domain": ""})
    run_chain(settings)
    source = Path(settings.source.path)
    (source / "refunds.md").rename(source / "money.md")
    second = run_chain(settings)
    # The same words under the same title: read and embedded before, cut anew under the new name.
    assert (work(second)["extracted"], work(second)["encoded"]) == (0, 0)
    with open_index(settings) as index:
        (hit,) = index.search("parking", mode="bm25").hits
    assert hit.document_id == "money.md"


def test_a_deleted_document_leaves_the_index(make_settings: MakeSettings) -> None:
    settings = make_settings(
        evaluation={"questions": "", "out_of_domain": ""}, gate={"max_vanished_share": 1.0}
    )
    run_chain(settings)
    (Path(settings.source.path) / "refunds.md").unlink()
    second = run_chain(settings)
    assert {**work(second), "build": 0, "evaluation": 0, "published": 0} == {**NOTHING, "build": 0}
    assert second["candidate_index"].result.build.stamp["documents"]["indexed"] == 2
    with open_index(settings) as index:
        assert index.search("parking", mode="bm25").refused


# -- code versions ------------------------------------------------------------------------------------------


def changed(before: Settings, after: Settings) -> set[str]:
    old, new = code_versions(before), code_versions(after)
    assert list(old) == CHAIN
    return {name for name in CHAIN if old[name] != new[name]}


FROM = {name: set(CHAIN[CHAIN.index(name) :]) for name in CHAIN}
EMBEDDED = FROM["candidate_index"] - {"ground_truth"}
JUDGED = {"retrieval_evaluation", "published_index"}


@pytest.mark.parametrize(
    ("sections", "stale"),
    [
        ({"source": {"path": "/elsewhere"}}, FROM["source_documents"]),
        ({"extraction": {"remove_references": False}}, FROM["canonical_documents"]),
        ({"chunking": {"strategy": "F"}}, FROM["chunks"] - {"ground_truth"}),
        ({"chunking": {"target": 256}}, FROM["chunks"] - {"ground_truth"}),
        ({"chunking": {"overlap": 32}}, set()),  # E has none
        ({"bm25": {"k1": 1.3}}, {"bm25_statistics"} | EMBEDDED),
        ({"bm25": {"tokenizer": "reference"}}, {"bm25_statistics"} | EMBEDDED),
        ({"evaluation": {"questions": "/other.jsonl"}}, {"ground_truth"} | JUDGED),
        ({"evaluation": {"ks": (1, 4)}}, JUDGED),
        ({"retrieval": {"threshold": 0.5}}, JUDGED),
        ({"retrieval": {"mode": "dense"}}, JUDGED),
        ({"retrieval": {"reranker": "a/b"}}, JUDGED),
        ({"gate": {"max_destroyed": 1}}, JUDGED),
        ({"embedding": {"batch_size": 1}}, set()),
        ({"extraction": {"workers": 2, "timeout": 9.0, "memory_limit_mb": 512}}, set()),
        ({"publication": {"keep": 1}}, set()),
        ({"schedule": {"cron": "0 3 * * *"}}, set()),
        ({"source": {"url_template": "https://kb/{document_id}"}}, set()),
        ({"storage": {"lock_timeout": 1.0}}, set()),
    ],
)
def test_a_setting_changes_the_versions_of_what_it_concerns(
    published: Settings, sections: dict[str, dict[str, Any]], stale: set[str]
) -> None:
    assert changed(published, published.replace(**sections)) == stale


def test_another_encoder_changes_embeddings_and_what_follows(
    published: Settings, other_encoder: Path
) -> None:
    after = published.replace(embedding={"model": str(other_encoder)})
    assert changed(published, after) == {"chunk_embeddings"} | EMBEDDED


def test_other_weights_under_the_same_name_are_another_encoder(
    published_copy: Settings, tiny_encoder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "tiny-0"
    shutil.copytree(tiny_encoder, model)
    settings = published_copy.replace(embedding={"model": str(model)})
    assert changed(published_copy, settings) == set()
    before = code_versions(settings)
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    after = code_versions(settings)
    assert {name for name in CHAIN if before[name] != after[name]} == {"chunk_embeddings"} | EMBEDDED


def test_the_release_number_is_no_part_of_a_version(
    published: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = code_versions(published)
    monkeypatch.setattr(steps, "__version__", "99.0")
    assert code_versions(published) == before


def test_an_encoder_that_is_not_here_yet_has_a_version_by_name(published: Settings) -> None:
    one, other = (
        encoder_identity(published.replace(embedding={"model": m})) for m in ("no/such-model", "no/other")
    )
    assert one != other
    assert encoder_identity(published.replace(embedding={"model": "no/such-model"})) == one


def test_versions_are_computed_before_anything_is_there(make_settings: MakeSettings) -> None:
    settings = make_settings()
    assert code_versions(settings) == code_versions(settings)
    assert not settings.storage_root.exists()


# -- one writer ---------------------------------------------------------------------------------------------


def test_a_second_session_names_the_first(make_settings: MakeSettings) -> None:
    settings = make_settings(storage={"lock_timeout": 0.2})
    waited: list[str] = []
    with (
        open_session(settings, "run one"),
        pytest.raises(StorageLockedError, match=r"in use by run one \(process .*raise storage\.lock_timeout"),
        open_session(settings, "run two", waited.append),
    ):
        pass
    assert len(waited) == 1 and waited[0].startswith("run one ")
    with open_session(settings, "run three") as session:
        assert session.memo.count() == 0


# -- steps that do not fit together -------------------------------------------------------------------------


def test_a_candidate_of_other_chunks_is_refused(warm_settings: MakeSettings) -> None:
    """Chunks were made anew with another strategy, the embeddings are of the old ones: no half-migrated index."""
    run_chain(warm_settings())
    settings = warm_settings(chunking={"strategy": "A"})
    made = run_chain(settings, until="chunks")
    storage = Storage(settings.storage_root)
    embeddings, bm25 = (storage.read_handle(n) for n in ("chunk_embeddings", "bm25_statistics"))
    assert embeddings is not None and bm25 is not None
    with (
        open_session(settings, "a test") as session,
        pytest.raises(
            InconsistentInputsError, match="chunk_embeddings was made from another version of chunks"
        ),
    ):
        steps.candidate_index(
            session, made["canonical_documents"].handle, made["chunks"].handle, embeddings, bm25
        )


def test_a_ground_truth_of_other_documents_is_refused(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    made = run_chain(settings, until="ground_truth")
    truth = replace(made["ground_truth"].handle, inputs={"canonical_documents": "old"})
    with (
        open_session(settings, "a test") as session,
        pytest.raises(
            InconsistentInputsError, match="ground_truth was checked against other documents than the"
        ),
    ):
        steps.retrieval_evaluation(session, made["candidate_index"].handle, truth)


def test_out_of_domain_queries_that_changed_since_are_refused(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    made = run_chain(settings, until="ground_truth")
    path = Path(settings.evaluation.out_of_domain)
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with (
        open_session(settings, "a test") as session,
        pytest.raises(
            InconsistentInputsError,
            match=r"evaluation\.out_of_domain = '.*' is not the file that ground_truth was made from: materialise",
        ),
    ):
        steps.retrieval_evaluation(session, made["candidate_index"].handle, made["ground_truth"].handle)
    assert run_chain(settings)["retrieval_evaluation"].result.evaluation.out_of_domain_count() == 1


def test_an_evaluation_with_another_encoder_is_refused(
    warm_settings: MakeSettings, other_encoder: Path
) -> None:
    made = run_chain(warm_settings(), until="ground_truth")
    settings = warm_settings(embedding={"model": str(other_encoder)})
    with (
        open_session(settings, "a test") as session,
        pytest.raises(EncoderMismatchError, match=r"made with tiny-0 .*the query encoder is tiny-1"),
    ):
        steps.retrieval_evaluation(session, made["candidate_index"].handle, made["ground_truth"].handle)


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"source": {"path": "/no/such/folder"}}, SourceError, "/no/such/folder"),
        ({"embedding": {"model": "no/such-model"}}, EncoderNotFoundError, "nor to be downloaded"),
        ({"evaluation": {"questions": "/no/such.jsonl"}}, GroundTruthError, r"/no/such\.jsonl"),
        ({"evaluation": {"out_of_domain": "/no/such.jsonl"}}, GroundTruthError, r"/no/such\.jsonl"),
    ],
)
def test_what_settings_name_and_is_not_there(
    warm_settings: MakeSettings, sections: dict[str, dict[str, Any]], error: type[Exception], message: str
) -> None:
    settings = warm_settings(**sections)
    with pytest.raises(error, match=message):
        run_chain(settings)
    assert read_published(Storage(settings.storage_root)) is None


# -- trying and looking -------------------------------------------------------------------------------------


def test_another_strategy_is_tried_beside_what_is_published(published_copy: Settings) -> None:
    storage = Storage(published_copy.storage_root)
    handles = {p.name: p.read_text() for p in (storage.root / "handles").iterdir()}
    before = read_published(storage)
    with open_session(published_copy.replace(chunking={"strategy": "A"}), "a test") as session:
        assessment = score_with(session)
    assert assessment.evaluation.build != (before.build if before else None)
    assert assessment.published_build == (before.build if before else None)
    assert assessment.baseline is not None, "it is compared with what is published"
    assert {p.name: p.read_text() for p in (storage.root / "handles").iterdir()} == handles
    assert read_published(storage) == before
    assert len(list_builds(storage)) == 2


def test_the_newest_candidate_is_scored_where_that_is_missing(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    with (
        open_session(settings, "a test") as session,
        pytest.raises(
            IndexNotFoundError, match=r"no candidate to evaluate in .*: run `rag-pipeline index` first"
        ),
    ):
        score_newest(session)
    made = run_chain(settings, until="ground_truth")
    told: list[tuple[int, int]] = []
    with open_session(settings, "a test") as session:
        assessment = score_newest(session, lambda done, total: told.append((done, total)))
    assert assessment.evaluation.build == made["candidate_index"].result.build.id
    assert told[-1][0] == told[-1][1]
    assert read_published(Storage(settings.storage_root)) is None
    assert Storage(settings.storage_root).read_handle("retrieval_evaluation") is None


def test_reranked_is_evaluated_where_a_cross_encoder_is_set(
    warm_settings: MakeSettings, tmp_path: Path
) -> None:
    folder = build_cross_encoder(tmp_path / "cross")
    made = run_chain(warm_settings(retrieval={"reranker": str(folder)}))
    report = made["retrieval_evaluation"].result.evaluation.to_json()
    assert sorted(report["retrievers"]) == ["bm25", "dense", "hybrid", "reranked"]
    now = made["published_index"].result.published
    assert now.serving == {"mode": "hybrid", "k": 4, "threshold": 2.0, "reranker": ""}
