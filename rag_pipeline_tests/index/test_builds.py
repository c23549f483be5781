"""Builds: the same content is the same build, its files are what the manifest says, its DuckDB file stands alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from rag_pipeline import __version__, steps
from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.errors import DamagedBuildError, InconsistentInputsError, IndexNotFoundError
from rag_pipeline.core.schemas import TABLES, TableSchema, describe
from rag_pipeline.core.storage import Handle, Storage
from rag_pipeline.core.tables import TableWriter, count_rows, read_rows
from rag_pipeline.index import builds
from rag_pipeline.index.builds import (
    DUCKDB,
    MANIFEST,
    STAMP,
    VECTORS,
    Build,
    BuildInputs,
    check_build,
    find_build,
    flatten,
    list_builds,
    make_build,
    verify_build,
)
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import DOCUMENTS, MakeSettings, run_chain


def built(settings: Settings) -> steps.BuiltIndex:
    result = run_chain(settings, until="candidate_index")["candidate_index"].result
    assert isinstance(result, steps.BuiltIndex)
    return result


def published_build(settings: Settings) -> Build:
    (build,) = list_builds(Storage(settings.storage_root))
    return build


def change_document(settings: Settings, name: str, old: str, new: str) -> None:
    path = Path(settings.source.path) / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# -- the id -------------------------------------------------------------------------------------------------


def test_the_same_content_is_the_same_build(
    warm_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = built(warm_settings())
    assert re.fullmatch("[0-9a-f]{16}", first.build.id)
    assert first.new
    created_at = first.build.stamp["created_at"]
    monkeypatch.setattr(builds, "now_rfc3339", lambda: "2099-01-01T00:00:00Z")

    again = built(warm_settings())
    assert (again.build.id, again.new) == (first.build.id, False)
    assert again.build.stamp["created_at"] == created_at, "it is the build of then"

    elsewhere = built(warm_settings(storage={"root": str(tmp_path / "elsewhere")}))
    assert (elsewhere.build.id, elsewhere.new) == (first.build.id, True)
    assert elsewhere.build.stamp["created_at"] == "2099-01-01T00:00:00Z"
    assert len(list_builds(Storage(warm_settings().storage_root))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"chunking": {"strategy": "F"}},
        {"chunking": {"target": 100}},
        {"bm25": {"b": 0.5}},
        {"bm25": {"tokenizer": "reference"}},
        {"embedding": {"model": "other"}},
        {},
    ],
    ids=["strategy", "target", "b", "tokenizer", "encoder", "document"],
)
def test_other_content_is_another_build(
    warm_settings: MakeSettings, other_encoder: Path, change: dict[str, dict[str, Any]]
) -> None:
    first = built(warm_settings()).build
    if "embedding" in change:
        change = {"embedding": {"model": str(other_encoder)}}
    settings = warm_settings(**change)
    if not change:
        change_document(settings, "refunds.md", "three working days", "four working days")
    second = built(settings)
    assert second.new
    assert second.build.id != first.id
    assert find_build(Storage(settings.storage_root), first.id).stamp == first.stamp, "the first stays"


def test_settings_of_serving_are_no_part_of_a_build(warm_settings: MakeSettings) -> None:
    first = built(warm_settings()).build
    second = built(warm_settings(retrieval={"k": 2, "threshold": 0.1}, gate={"alpha": 0.01})).build
    assert second.id == first.id


# -- stamps -------------------------------------------------------------------------------------------------


def test_the_stamp_says_what_made_the_build(published: Settings, tiny_encoder: Path) -> None:
    build = published_build(published)
    stamp = build.stamp
    embedding = stamp["embedding"]
    assert stamp["build"] == build.id
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamp["created_at"])
    assert stamp["pipeline_version"] == __version__
    assert (embedding["name"], embedding["dimensions"], embedding["window"]) == ("tiny-0", 16, 64)
    assert re.fullmatch("[0-9a-f]{16}", embedding["id"])
    assert re.fullmatch("[0-9a-f]{64}", embedding["weights_sha256"])
    assert stamp["model_location"] == str(tiny_encoder)
    assert (stamp["chunking"]["strategy"], stamp["chunking"]["target"]) == ("E", 512)
    assert stamp["chunking"]["version"]
    assert (stamp["bm25"]["tokenizer"], stamp["bm25"]["k1"], stamp["bm25"]["b"]) == ("unicode", 1.2, 0.75)
    assert stamp["bm25"]["tokenizer_version"] and stamp["bm25"]["version"]
    assert stamp["canonical_version"]
    assert list(stamp["extractors"]) == ["markdown"]
    assert stamp["documents"] == {"indexed": 3, "failed": 0, "skipped": 0}
    assert stamp["chunks"] == count_rows(build.table("chunks")) == 7


def test_each_document_is_stamped(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    (Path(settings.source.path) / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (Path(settings.source.path) / "film.xyz").write_bytes(b"\x00\x01\x02")
    build = built(settings).build
    stamp = build.stamp
    rows = {row["document_id"]: row for row in read_rows(build.table("documents"))}
    assert stamp["documents"] == {"indexed": 3, "failed": 1, "skipped": 1}
    assert {i: r["state"] for i, r in rows.items()} == {
        "brakes.md": "indexed",
        "broken.pdf": "failed",
        "docks/power.md": "indexed",
        "film.xyz": "skipped",
        "refunds.md": "indexed",
    }
    counted: dict[str, int] = {}
    for chunk in read_rows(build.table("chunks")):
        counted[chunk["document_id"]] = counted.get(chunk["document_id"], 0) + 1
    for document_id, row in rows.items():
        assert row["chunks"] == counted.get(document_id, 0)
        assert row["embedding_model"] == "tiny-0"
        assert row["embedding_dimensions"] == 16
        assert row["embedding_fingerprint"] == stamp["embedding"]["id"]
        assert row["chunking_strategy"] == "E"
        assert row["chunker_version"] == stamp["chunking"]["version"]
        assert (row["tokenizer"], row["tokenizer_version"]) == ("unicode", stamp["bm25"]["tokenizer_version"])
        assert row["pipeline_version"] == __version__
        assert row["built_at"] == stamp["created_at"]
    for name in DOCUMENTS:
        assert rows[name]["extractor"] == "markdown"
        assert rows[name]["extractor_version"] == stamp["extractors"]["markdown"]
    assert rows["broken.pdf"]["reason"] and rows["broken.pdf"]["message"]
    assert rows["broken.pdf"]["text"] == ""
    assert rows["film.xyz"]["reason"]


def test_counts_are_counted_and_not_believed(warm_settings: MakeSettings) -> None:
    """A table of embeddings that lacks a row is found when the build is made, whatever its handle says."""
    settings = warm_settings()
    done = run_chain(settings, until="bm25_statistics")
    storage = Storage(settings.storage_root)
    embeddings = done["chunk_embeddings"].handle
    with TableWriter(storage, TABLES["chunk_embeddings"]) as writer:
        writer.write(list(read_rows(storage.path(embeddings.files["table"])))[:-1])
    short = replace(embeddings, files={**embeddings.files, "table": storage.relative(writer.path)})
    with pytest.raises(DamagedBuildError, match="counts disagree: chunks holds 7 chunks, chunk_embeddings 6"):
        make_build(storage, inputs(done, embeddings=short), "1")
    assert list_builds(storage) == []


def test_a_corpus_without_a_chunk_is_a_build(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    for name in DOCUMENTS:
        (Path(settings.source.path) / name).write_text("# Only a title\n")
    build = built(settings).build
    verify_build(build)
    assert build.stamp["chunks"] == 0
    assert build.stamp["documents"]["indexed"] + build.stamp["documents"]["failed"] == 3


# -- inputs -------------------------------------------------------------------------------------------------


def inputs(done: dict[str, steps.Step], **changed: Handle) -> BuildInputs:
    handles = {
        "canonical": done["canonical_documents"].handle,
        "chunks": done["chunks"].handle,
        "embeddings": done["chunk_embeddings"].handle,
        "bm25": done["bm25_statistics"].handle,
    }
    return BuildInputs(**{**handles, **changed})


@pytest.mark.parametrize(
    ("role", "asset", "above", "message"),
    [
        (
            "embeddings",
            "chunk_embeddings",
            "chunks",
            r"chunk_embeddings was made from another version of chunks \(old\) .*materialise chunk_embeddings again",
        ),
        (
            "bm25",
            "bm25_statistics",
            "chunks",
            r"bm25_statistics was made from another version of chunks \(old\) .*materialise bm25_statistics again",
        ),
        (
            "chunks",
            "chunks",
            "canonical_documents",
            r"chunks was made from another version of canonical_documents .*materialise chunks again",
        ),
    ],
)
def test_inputs_of_different_versions_are_refused(
    warm_settings: MakeSettings, role: str, asset: str, above: str, message: str
) -> None:
    settings = warm_settings()
    done = run_chain(settings, until="bm25_statistics")
    stale = replace(done[asset].handle, inputs={above: "old"})
    with pytest.raises(InconsistentInputsError, match=message):
        make_build(Storage(settings.storage_root), inputs(done, **{role: stale}), "1")
    assert list_builds(Storage(settings.storage_root)) == []


# -- shared files -------------------------------------------------------------------------------------------


def inodes(build: Build) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in build.folder.iterdir()}


def shared(one: Build, other: Build) -> set[str]:
    first, second = inodes(one), inodes(other)
    return {name for name in first if first[name] == second.get(name)}


CHUNK_FILES = {"chunks.parquet", "sections.parquet", "tie_ranks.npy", "copies.npy"}
VECTOR_FILES = {"chunk_embeddings.parquet", "vectors.npy"}
BM25_FILES = {
    "terms.parquet",
    "postings.parquet",
    "lengths.parquet",
    "posting_rows.npy",
    "posting_frequencies.npy",
    "lengths.npy",
}


def test_unchanged_files_are_shared_with_an_earlier_build(
    warm_settings: MakeSettings, other_encoder: Path
) -> None:
    settings = warm_settings()
    first = built(settings).build
    encoder = built(warm_settings(embedding={"model": str(other_encoder)})).build
    assert shared(first, encoder) == CHUNK_FILES | BM25_FILES
    tokenizer = built(warm_settings(bm25={"tokenizer": "reference"})).build
    assert shared(first, tokenizer) >= CHUNK_FILES | VECTOR_FILES
    # With everything in between made, replaced and pruned: the tables of the steps are gone.
    shutil.rmtree(settings.storage_root / "tables")
    changed = built(warm_settings(bm25={"k1": 0.9})).build
    assert shared(first, changed) >= CHUNK_FILES | VECTOR_FILES
    for build in (first, encoder, tokenizer, changed):
        verify_build(build)


def test_a_changed_document_shares_nothing_that_holds_it(warm_settings: MakeSettings) -> None:
    settings = warm_settings()
    first = built(settings).build
    change_document(settings, "refunds.md", "whole fare", "half fare")
    assert shared(first, built(settings).build) <= {
        "sections.parquet",
        "tie_ranks.npy",
        "lengths.npy",
        "lengths.parquet",
    }


def test_a_damaged_file_is_not_shared(warm_settings: MakeSettings) -> None:
    first = built(warm_settings()).build
    spoil(first.folder / "sections.parquet")
    second = built(warm_settings(bm25={"k1": 0.9})).build
    assert "sections.parquet" not in shared(first, second)
    verify_build(second)


# -- verification -------------------------------------------------------------------------------------------


def spoil(path: Path) -> None:
    """Flip one bit and leave the size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def restamp(path: Path) -> None:
    stamp = json.loads(path.read_text())
    path.write_text(json.dumps({**stamp, "chunks": stamp["chunks"] + 1}))


def backdate(path: Path) -> None:
    """Change what is no part of the hash."""
    stamp = json.loads(path.read_text())
    path.write_text(
        json.dumps({**stamp, "created_at": "2000-01-01T00:00:00Z"}, indent=1, ensure_ascii=False) + "\n"
    )


def rename_rows(path: Path) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "rows": {**manifest["rows"], "chunks": "0" * 16}}))


def reschema(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 0}))


FILES = sorted(
    [
        f"{t}.parquet"
        for t in ("chunks", "chunk_embeddings", "documents", "sections", "terms", "postings", "lengths")
    ]
    + [
        VECTORS,
        DUCKDB,
        STAMP,
        "posting_rows.npy",
        "posting_frequencies.npy",
        "lengths.npy",
        "tie_ranks.npy",
        "copies.npy",
    ]
)


def test_a_build_holds_these_files_and_names_them(published: Settings) -> None:
    build = published_build(published)
    assert sorted(p.name for p in build.folder.iterdir()) == sorted([*FILES, MANIFEST])
    assert sorted(build.manifest["files"]) == FILES
    verify_build(build)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_found(published_copy: Settings, name: str) -> None:
    build = published_build(published_copy)
    if name == STAMP:
        backdate(build.folder / STAMP)
    else:
        spoil(build.folder / name)
    with pytest.raises(
        DamagedBuildError, match=f"build {build.id}: {name} was changed after it was built: index"
    ):
        verify_build(build)


@pytest.mark.parametrize("name", [n for n in FILES if n != STAMP])
def test_a_missing_or_truncated_file_is_found_at_once(published_copy: Settings, name: str) -> None:
    build = published_build(published_copy)
    for damage, what in ((truncate, "was changed after it was built"), (Path.unlink, "is missing")):
        damage(build.folder / name)
        for check in (check_build, verify_build):
            with pytest.raises(DamagedBuildError, match=f"build {build.id}: {name} {what}: index again"):
                check(build)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (STAMP, restamp, "its id is not the hash of its tables and stamp"),
        (MANIFEST, rename_rows, "its id is not the hash of its tables and stamp"),
        (MANIFEST, reschema, "schema version 0, this release reads 1: index again"),
        (STAMP, Path.unlink, r"stamp\.json is missing"),
        (STAMP, lambda path: path.write_text("{half"), r"stamp\.json: not valid JSON"),
        (MANIFEST, Path.unlink, r"manifest\.json is missing"),
        (MANIFEST, lambda path: path.write_text("{half"), r"manifest\.json: not valid JSON"),
    ],
)
@pytest.mark.parametrize("check", [check_build, verify_build])
def test_a_changed_stamp_or_manifest_is_found(
    published_copy: Settings,
    name: str,
    damage: Callable[[Path], object],
    message: str,
    check: Callable[[Build], None],
) -> None:
    build = published_build(published_copy)
    damage(build.folder / name)
    with pytest.raises(DamagedBuildError, match=f"build {build.id}: .*{message}"):
        check(build)


def test_a_build_under_another_name_is_found(published_copy: Settings) -> None:
    build = published_build(published_copy)
    folder = build.folder.rename(build.folder.with_name("0" * 16))
    with pytest.raises(DamagedBuildError, match=r"build 0{16}: its id is not the hash"):
        verify_build(Build("0" * 16, folder))


@pytest.mark.parametrize("name", [VECTORS, "sections.parquet", STAMP])
def test_indexing_again_repairs_a_damaged_build(warm_settings: MakeSettings, name: str) -> None:
    settings = warm_settings()
    done = run_chain(settings)
    build = done["candidate_index"].result.build
    spoil(build.folder / name)
    with pytest.raises(DamagedBuildError):
        verify_build(build)
    again = run_chain(settings)
    assert again["candidate_index"].result == steps.BuiltIndex(build, new=True)
    verify_build(build)
    assert again["published_index"].result.published.build == build.id


# -- looking builds up --------------------------------------------------------------------------------------


def test_builds_are_listed_newest_first(warm_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for day in (1, 3, 2):
        monkeypatch.setattr(builds, "now_rfc3339", lambda day=day: f"2030-01-0{day}T00:00:00Z")
        ids.append(built(warm_settings(bm25={"k1": float(day)})).build.id)
    storage = Storage(warm_settings().storage_root)
    assert [b.id for b in list_builds(storage)] == [ids[1], ids[2], ids[0]]
    (storage.root / "builds" / ids[1] / STAMP).unlink()
    assert [b.id for b in list_builds(storage)] == [ids[2], ids[0], ids[1]], "a damaged one comes last"
    assert list_builds(Storage(storage.root / "nothing")) == []


def test_a_build_is_found_by_the_start_of_its_id(published_copy: Settings) -> None:
    storage = Storage(published_copy.storage_root)
    build = published_build(published_copy)
    assert find_build(storage, build.id) == find_build(storage, build.id[:4]) == build
    shutil.copytree(build.folder, build.folder.with_name(build.id[:4] + "0" * 12))
    with pytest.raises(
        IndexNotFoundError, match=rf"build '{build.id[:4]}' is ambiguous in .*: there are .*{build.id}"
    ):
        find_build(storage, build.id[:4])
    assert find_build(storage, build.id) == build
    shutil.copytree(build.folder, build.folder.with_name(build.id + "0"))
    assert find_build(storage, build.id) == build, "a whole id is not a start"


@pytest.mark.parametrize("name", ["", "nothing", "*", "?" * 16, "../builds", "/etc", "."])
def test_a_build_that_does_not_exist(published: Settings, name: str) -> None:
    storage = Storage(published.storage_root)
    known = published_build(published).id
    with pytest.raises(
        IndexNotFoundError, match=rf"^build {re.escape(repr(name))} does not exist .*: there are {known}"
    ):
        find_build(storage, name)
    with pytest.raises(IndexNotFoundError, match="there are none"):
        find_build(Storage(published.storage_root / "nothing"), name)


# -- the DuckDB file ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connection(published: Settings, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The published build's DuckDB file alone, copied to another folder."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "kb.duckdb"
    shutil.copyfile(published_build(published).folder / DUCKDB, elsewhere)
    with duckdb.connect(str(elsewhere), read_only=True) as opened:
        yield opened


def rows_of(connection: Any, table: str, order: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f'SELECT * FROM "{table}" ORDER BY {order}')
    names = [d[0] for d in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


COPIED = ("documents", "sections", "terms", "postings", "lengths", "chunks")


@pytest.mark.parametrize("name", COPIED)
def test_the_tables_of_duckdb_are_those_of_parquet(published: Settings, connection: Any, name: str) -> None:
    table: TableSchema = TABLES[name]
    order = ", ".join(table.key)
    found = rows_of(connection, name, order)
    expected = list(read_rows(published_build(published).table(name)))
    if name == "chunks":
        assert [row.pop("row") for row in found] == list(range(len(expected)))
    assert found == expected
    assert expected


def test_the_vectors_of_duckdb_are_those_of_the_array(published: Settings, connection: Any) -> None:
    build = published_build(published)
    found = rows_of(connection, "embeddings", "row")
    assert np.array_equal(
        np.array([r["vector"] for r in found], dtype=np.float32), open_array(build.folder / VECTORS)
    )
    expected = list(read_rows(build.table("chunk_embeddings")))
    columns = ("row", "chunk_id", "text_sha256", "pieces", "header_pieces", "covered")
    assert [{c: r[c] for c in columns} for r in found] == [{c: r[c] for c in columns} for r in expected]
    # The type that DuckDB's own distance functions take.
    (nearest,) = connection.execute(
        "SELECT b.row FROM embeddings a, embeddings b WHERE a.row = 3 "
        "ORDER BY array_cosine_distance(a.vector, b.vector) LIMIT 1"
    ).fetchone()
    assert nearest == 3


def test_the_stamp_of_duckdb_is_the_builds(published: Settings, connection: Any) -> None:
    stamp = published_build(published).stamp
    found = dict(connection.execute("SELECT key, value FROM stamp").fetchall())
    assert found == {k: v if isinstance(v, str) else json.dumps(v) for k, v in flatten(stamp)}
    assert found["embedding.name"] == "tiny-0"
    assert found["documents.indexed"] == "3"


def test_sql_finds_its_way_from_a_term_to_a_passage(connection: Any) -> None:
    found = connection.execute(
        'SELECT d.document_id, substring(d.text, c.start + 1, c."end" - c.start) = c.content '
        "FROM terms t JOIN postings p USING (term_id) JOIN chunks c USING (row) JOIN documents d USING (document_id) "
        "WHERE t.term = 'parking'"
    ).fetchall()
    assert found == [("refunds.md", True)]


def test_every_table_and_column_of_duckdb_is_described(connection: Any) -> None:
    tables = dict(connection.execute("SELECT table_name, comment FROM duckdb_tables()").fetchall())
    assert sorted(tables) == sorted([*COPIED, "embeddings", "stamp"])
    columns = connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    ).fetchall()
    assert all(tables.values())
    assert not [(table, column) for table, column, comment in columns if not comment]
    comments = {(table, column): comment for table, column, comment in columns}
    for name in COPIED:
        assert tables[name] == TABLES[name].description
        for field in TABLES[name].schema:
            assert comments[name, field.name] == describe(field)
