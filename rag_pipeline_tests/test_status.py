"""The status at a glance: what is published, what is stale, what failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rag_pipeline.core.storage import Storage
from rag_pipeline.settings import Settings
from rag_pipeline.status import read_status, status_text
from rag_pipeline.steps import code_versions
from rag_pipeline_tests.conftest import MakeSettings, run_chain


def stale(settings: Settings) -> dict[str, str]:
    return {item["asset"]: item["reason"] for item in read_status(settings)["stale"]}


def test_nothing_yet(make_settings: MakeSettings) -> None:
    status = read_status(make_settings())
    assert status["published"] is None
    assert status["builds"] == []
    assert "Nothing is published yet" in status_text(status)


def test_a_published_index_at_a_glance(published: Settings) -> None:
    status = read_status(published)
    now = status["published"]
    assert now["documents"] == {"indexed": 3, "failed": 0, "skipped": 0}
    assert now["stamp"]["embedding"]["name"] == "tiny-0"
    assert now["evaluation"]["questions"] == 3
    assert [b["gate"] for b in status["builds"]] == ["passed"]
    assert status["stale"] == []
    text = status_text(status)
    assert f"Published: build {now['build']}" in text
    assert "recall@4" in text
    assert "Stale" not in text


def test_a_changed_folder_is_seen(make_settings: MakeSettings) -> None:
    settings = make_settings()
    run_chain(settings)
    (Path(settings.source.path) / "new.md").write_text("# New\n\nSomething new.\n")
    assert stale(settings) == {"source_documents": "the source folder changed"}


def test_an_asset_behind_the_one_above_is_seen(make_settings: MakeSettings) -> None:
    settings = make_settings()
    run_chain(settings)
    (Path(settings.source.path) / "new.md").write_text("# New\n\nSomething new.\n")
    run_chain(settings, until="source_documents")
    assert stale(settings) == {"extracted_documents": "source_documents changed"}


def test_a_failed_document_is_listed_with_its_reason(make_settings: MakeSettings) -> None:
    settings = make_settings(gate={"max_failed_share": 1.0})
    (Path(settings.source.path) / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing more")
    run_chain(settings)
    status = read_status(settings)
    assert [(f["document_id"], f["reason"]) for f in status["failed_documents"]] == [
        ("broken.pdf", "corrupt")
    ]
    assert "broken.pdf: corrupt" in status_text(status)


def test_changed_settings_are_seen(published_copy: Settings) -> None:
    storage = Storage(published_copy.storage_root)
    for name, version in code_versions(published_copy).items():
        handle = storage.read_handle(name)
        assert handle is not None
        storage.write_handle(replace(handle, code_version=version))
    assert stale(published_copy) == {}
    reason = "settings or code changed"
    assert stale(published_copy.replace(retrieval={"threshold": 1.5})) == {
        "retrieval_evaluation": reason,
        "published_index": reason,
    }


def test_a_damaged_build_does_not_hide_the_others(make_settings: MakeSettings) -> None:
    settings = make_settings(evaluation={"questions": "", "out_of_domain": ""})
    run_chain(settings)
    before = read_status(settings)["published"]["build"]
    (Path(settings.source.path) / "new.md").write_text("# New\n\nSomething new.\n")
    run_chain(settings)
    (settings.storage_root / "builds" / before / "stamp.json").write_text("{half")
    status = read_status(settings)
    assert {b["build"]: b["gate"] for b in status["builds"]} == {
        before: "damaged",
        status["published"]["build"]: "passed",
    }
    assert "stamp.json" in status_text(status)
