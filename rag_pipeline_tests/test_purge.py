"""Purging a document: its text leaves memo, tables, builds and evaluations, and readers go on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from rag_pipeline import open_index, steps
from rag_pipeline.core.errors import IndexNotFoundError, SourceError
from rag_pipeline.core.memo import Memo
from rag_pipeline.index.publish import published as read_published
from rag_pipeline.index.publish import read_receipt
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain

SECRET = "Parking fines are never refunded"


def purge(settings: Settings, document_id: str) -> steps.Purge:
    with steps.open_session(settings, "a test") as session:
        return steps.purge_document(session, document_id)


def texts_on_disk(root: Path) -> Iterator[str]:
    """Everything a storage root holds, as text: JSON files, Parquet and DuckDB tables, the memo."""
    for path in root.rglob("*"):
        if path.suffix in (".json", ".jsonl"):
            yield path.read_text(encoding="utf-8")
        elif path.suffix == ".parquet":
            yield str(pq.read_table(path).to_pylist())
        elif path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    yield str(connection.execute(f'SELECT * FROM "{name}"').fetchall())
        elif path.name == "memo.sqlite":
            with Memo(path) as memo:
                yield str([(namespace, key, value) for namespace, key, value in memo.items()])


def test_the_text_is_found_nowhere_after_a_purge(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings()
    run_chain(settings)
    # A second build that holds the document, published later: both are kept.
    source = Path(settings.source.path)
    (source / "brakes.md").write_text((source / "brakes.md").read_text() + "\nMore about brakes.\n")
    run_chain(settings)
    root = settings.storage_root
    assert any(SECRET in text for text in texts_on_disk(root))

    (source / "refunds.md").unlink()
    report = purge(settings, "refunds.md")

    assert not [text[:200] for text in texts_on_disk(root) if SECRET in text]
    raw = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert SECRET.encode() not in raw
    assert zlib.compress(SECRET.encode(), 1) not in raw
    assert len(report.builds_removed) == 2
    assert report.memo_entries > 0
    assert report.table_files > 0
    with open_index(settings) as index:
        assert index.build == report.published
        assert index.search("brakes", mode="bm25").hits
        assert not [h for h in index.search("refunded", k=50).hits if h.document_id == "refunds.md"]

    # The replacement is what indexing the source without the document gives.
    fresh = make_settings(storage={"root": str(tmp_path / "fresh" / "storage")})
    assert (
        run_chain(fresh, until="candidate_index")["candidate_index"].handle.info["build"] == report.published
    )


def test_the_receipt_says_that_a_purge_published_it(make_settings: MakeSettings) -> None:
    settings = make_settings(gate={"max_vanished_share": 0.0})
    run_chain(settings)
    (Path(settings.source.path) / "refunds.md").unlink()
    report = purge(settings, "refunds.md")
    assert [reason.split(":")[0] for reason in report.gate] == ["vanished_documents"]
    with steps.open_session(settings, "a test") as session:
        now = read_published(session.storage)
        assert now is not None
        receipt = read_receipt(session.storage, now.build, now.evaluation)
    assert receipt is not None
    assert receipt.passed
    assert receipt.note == "published by the purge of refunds.md"


def test_the_next_run_goes_on_from_a_purge(make_settings: MakeSettings) -> None:
    settings = make_settings(
        gate={"max_vanished_share": 1.0}, evaluation={"questions": "", "out_of_domain": ""}
    )
    run_chain(settings)
    (Path(settings.source.path) / "refunds.md").unlink()
    report = purge(settings, "refunds.md")
    done = run_chain(settings)
    assert done["candidate_index"].handle.info["build"] == report.published
    assert done["extracted_documents"].result.worked == 0


def test_identical_copies_are_reported(make_settings: MakeSettings) -> None:
    settings = make_settings(evaluation={"questions": "", "out_of_domain": ""})
    source = Path(settings.source.path)
    (source / "copy.md").write_text((source / "refunds.md").read_text())
    run_chain(settings)
    (source / "refunds.md").unlink()
    assert purge(settings, "refunds.md").copies == ("copy.md",)


def test_a_document_that_is_still_in_the_source_is_refused(published_copy: Settings) -> None:
    with pytest.raises(
        SourceError, match=r"refunds\.md is still in the source folder .*delete it there first"
    ):
        purge(published_copy, "refunds.md")
    with open_index(published_copy) as index:
        assert index.search("refunded", mode="bm25").hits


def test_an_unknown_document_is_named(published_copy: Settings) -> None:
    with pytest.raises(IndexNotFoundError, match=r"no trace of document 'nothing\.md'"):
        purge(published_copy, "nothing.md")
