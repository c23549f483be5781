"""Whether a build holds together: every check is shown failing on a build that was spoilt in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rag_pipeline.core.schemas import TABLES
from rag_pipeline.core.storage import Storage, sha256_text
from rag_pipeline.index.builds import Build, list_builds
from rag_pipeline.index.structure import structure_problems
from rag_pipeline.settings import Settings

Rows = list[dict[str, Any]]


@pytest.fixture
def build(published_copy: Settings) -> Build:
    (build,) = list_builds(Storage(published_copy.storage_root))
    return build


def rewrite(build: Build, table: str, change: Callable[[Rows], Rows | None]) -> Rows:
    """Write a table of the build again with changed rows."""
    path = build.table(table)
    rows = pq.read_table(path).to_pylist()
    changed = change(rows)
    rows = rows if changed is None else changed
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[table].schema), path)
    return rows


def rewrite_array(build: Build, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    path = build.folder / name
    np.save(path, change(np.load(path)))


def restamp(build: Build, **values: Any) -> None:
    (build.folder / "stamp.json").write_text(json.dumps({**build.stamp, **values}))


def execute(build: Build, sql: str) -> None:
    with duckdb.connect(str(build.folder / "index.duckdb")) as connection:
        connection.execute(sql)


def rows_of(build: Build, table: str) -> Rows:
    return pq.read_table(build.table(table)).to_pylist()


def test_a_sound_build_has_no_problems(build: Build) -> None:
    assert structure_problems(build) == []


# -- slices -------------------------------------------------------------------------------------------------


def test_a_content_that_is_no_slice(build: Build) -> None:
    first, *_ = rewrite(
        build, "chunks", lambda rows: rows[0].update(content="How the workshop keeps brakes sound.")
    )
    assert structure_problems(build) == [
        f"chunk {first['chunk_id']} of brakes.md: content is not canonical[{first['start']}:{first['end']}]"
    ]


def test_offsets_that_are_off_by_one(build: Build) -> None:
    def shift(rows: Rows) -> None:
        for name in ("start", "end", "lead_start"):
            rows[1][name] += 1

    rewrite(build, "chunks", shift)
    (problem,) = structure_problems(build)
    assert "of brakes.md: content is not canonical[71:261]" in problem


@pytest.mark.parametrize(
    "offsets",
    [
        {"lead_start": -1},
        {"lead_start": 19},
        {"start": 53},
        {"end": 100_000},
    ],
    ids=["negative", "lead after start", "empty", "beyond the end"],
)
def test_offsets_that_lie_in_no_text(build: Build, offsets: dict[str, int]) -> None:
    first = rows_of(build, "chunks")[0]
    assert (first["start"], first["end"], first["lead_start"]) == (18, 53, 18)
    rewrite(build, "chunks", lambda rows: rows[0].update(offsets))
    (problem,) = structure_problems(build)
    assert f"chunk {first['chunk_id']} of brakes.md: offsets " in problem
    assert "do not lie in a text of 339 characters" in problem


def test_a_text_that_is_not_header_and_passage(build: Build) -> None:
    def change(rows: Rows) -> None:
        rows[2]["text"] += " And more."
        rows[2]["text_sha256"] = sha256_text(rows[2]["text"])

    chunk = rewrite(build, "chunks", change)[2]
    problems = structure_problems(build)
    assert problems[0] == (
        f"chunk {chunk['chunk_id']} of brakes.md: text is not its header and "
        f"canonical[{chunk['lead_start']}:{chunk['end']}]"
    )
    assert problems[1].startswith("row 2: the vector belongs to"), "and its vector is of another text"


def test_a_text_that_is_not_the_one_that_was_embedded(build: Build) -> None:
    def change(rows: Rows) -> None:
        rows[2]["text"] = "[Another header]\n" + rows[2]["text"][rows[2]["header_length"] :]
        rows[2]["header_length"] = len("[Another header]\n")

    chunk = rewrite(build, "chunks", change)[2]
    assert structure_problems(build) == [
        f"chunk {chunk['chunk_id']} of brakes.md: text_sha256 is not the hash of text"
    ]


def test_a_chunk_of_a_document_that_is_not_there(build: Build) -> None:
    rewrite(build, "chunks", lambda rows: rows[-1].update(document_id="zebra.md"))
    (problem,) = structure_problems(build)
    assert problem.endswith("its document zebra.md is not in the build")


def test_a_changed_canonical_text(build: Build) -> None:
    rewrite(build, "documents", lambda rows: rows[2].update(text=" " + rows[2]["text"]))
    problems = structure_problems(build)
    assert len(problems) == 2
    assert all("of refunds.md: content is not canonical[" in problem for problem in problems)


# -- vectors ------------------------------------------------------------------------------------------------


def put(row: int, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(vectors: np.ndarray) -> np.ndarray:
        vectors[row] = value
        return vectors

    return change


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0.0, "vector 3 has length 0.0000, not 1"),
        (0.5, "vector 3 has length 2.0000, not 1"),
        (0.25 * 1.001, "vector 3 has length 1.0010, not 1"),
        (np.nan, "vector 3 is not finite"),
        (np.inf, "vector 3 is not finite"),
    ],
)
def test_a_vector_that_is_not_of_unit_length(build: Build, value: float, problem: str) -> None:
    rewrite_array(build, "vectors.npy", put(3, np.float32(value)))
    assert structure_problems(build) == [problem]


def test_one_entry_that_is_not_finite(build: Build) -> None:
    rewrite_array(build, "vectors.npy", put((5, 2), np.nan))
    assert structure_problems(build) == ["vector 5 is not finite"]


def test_float_noise_is_no_problem(build: Build) -> None:
    rewrite_array(build, "vectors.npy", lambda v: v * np.float32(1.00001))
    assert structure_problems(build) == []


def test_vectors_of_another_size_than_stamped(build: Build) -> None:
    rewrite_array(build, "vectors.npy", lambda v: np.hstack([v, np.zeros_like(v)]))
    assert structure_problems(build) == ["vectors have shape (7, 32), the stamp says 16 dimensions"]


def test_many_problems_of_a_kind_are_cut_short(build: Build) -> None:
    rewrite_array(build, "vectors.npy", lambda v: 2 * v)
    assert structure_problems(build) == [
        *(f"vector {row} has length 2.0000, not 1" for row in range(5)),
        "... and 2 more of the kind",
    ]


# -- fingerprints and order ---------------------------------------------------------------------------------


def test_a_document_of_another_encoder(build: Build) -> None:
    rewrite(build, "documents", lambda rows: rows[1].update(embedding_fingerprint="0" * 16))
    stamped = build.stamp["embedding"]["id"]
    assert structure_problems(build) == [
        f"document docks/power.md is stamped with encoder {'0' * 16}, the build with {stamped}"
    ]


def swap(rows: Rows) -> None:
    rows[2], rows[4] = rows[4], rows[2]


def swap_ids(rows: Rows) -> None:
    for name in ("chunk_id", "text_sha256"):
        rows[2][name], rows[4][name] = rows[4][name], rows[2][name]


@pytest.mark.parametrize("change", [swap, swap_ids])
def test_vectors_in_another_order_than_chunks(build: Build, change: Callable[[Rows], None]) -> None:
    ids = [row["chunk_id"] for row in rows_of(build, "chunks")]
    rewrite(build, "chunk_embeddings", change)
    assert structure_problems(build) == [
        f"row 2: the vector belongs to chunk {ids[4]}, the chunk is {ids[2]}",
        f"row 4: the vector belongs to chunk {ids[2]}, the chunk is {ids[4]}",
    ]


def test_a_vector_of_an_older_text_of_its_chunk(build: Build) -> None:
    rewrite(build, "chunk_embeddings", lambda rows: rows[3].update(text_sha256="0" * 64))
    (problem,) = structure_problems(build)
    assert problem.startswith("row 3: the vector belongs to chunk")


def test_chunk_ids_that_stand_twice(build: Build) -> None:
    rewrite_array(build, "tie_ranks.npy", put(1, 0))
    rewrite_array(build, "tie_ranks.npy", put(2, 0))
    assert structure_problems(build) == ["tie ranks are not a permutation: chunk ids are not unique"]


# -- counts -------------------------------------------------------------------------------------------------


def without_last(rows: Rows) -> Rows:
    return rows[:-1]


COUNTS: dict[str, tuple[Callable[[Build], object], str]] = {
    "stamp": (lambda b: restamp(b, chunks=8), "chunks holds 7 chunks, the stamp 8"),
    "embeddings": (
        lambda b: rewrite(b, "chunk_embeddings", without_last),
        "chunks holds 7 chunks, chunk_embeddings 6",
    ),
    "lengths": (lambda b: rewrite(b, "lengths", without_last), "chunks holds 7 chunks, lengths 6"),
    "vectors": (
        lambda b: rewrite_array(b, "vectors.npy", lambda v: v[:-1]),
        "chunks holds 7 chunks, vectors.npy 6",
    ),
    "length array": (
        lambda b: rewrite_array(b, "lengths.npy", lambda v: v[:-1]),
        "chunks holds 7 chunks, lengths.npy 6",
    ),
    "tie ranks": (
        lambda b: rewrite_array(b, "tie_ranks.npy", lambda v: v[:-1]),
        "chunks holds 7 chunks, tie_ranks.npy 6",
    ),
    "chunks in DuckDB": (
        lambda b: execute(b, "INSERT INTO chunks SELECT * REPLACE (7 AS row) FROM chunks WHERE row = 6"),
        "chunks holds 7 chunks, DuckDB's chunks 8",
    ),
    "embeddings in DuckDB": (
        lambda b: execute(b, "DELETE FROM embeddings WHERE row = 6"),
        "chunks holds 7 chunks, DuckDB's embeddings 6",
    ),
    "lengths in DuckDB": (
        lambda b: execute(b, "DELETE FROM lengths WHERE row = 6"),
        "chunks holds 7 chunks, DuckDB's lengths 6",
    ),
    "postings": (
        lambda b: rewrite_array(b, "posting_rows.npy", lambda v: v[:-1]),
        "postings, posting_rows.npy ",
    ),
    "frequencies": (
        lambda b: rewrite_array(b, "posting_frequencies.npy", lambda v: v[:-1]),
        "postings, posting_frequencies.npy ",
    ),
    "postings in DuckDB": (
        lambda b: execute(b, "DELETE FROM postings WHERE term_id = 0"),
        "postings, DuckDB's postings ",
    ),
    "terms in DuckDB": (
        lambda b: execute(b, "DELETE FROM terms WHERE term_id = 0"),
        "terms, DuckDB's terms ",
    ),
    "documents in the stamp": (
        lambda b: restamp(b, documents={"indexed": 3, "failed": 1, "skipped": 0}),
        "documents holds 3 documents, the stamp 4",
    ),
    "documents in DuckDB": (
        lambda b: execute(b, "DELETE FROM documents WHERE document_id = 'refunds.md'"),
        "documents holds 3 documents, DuckDB's documents 2",
    ),
    "sections in DuckDB": (
        lambda b: execute(b, "DELETE FROM sections WHERE document_id = 'refunds.md' AND ordinal = 0"),
        "sections, DuckDB's sections ",
    ),
}


@pytest.mark.parametrize("place", COUNTS)
def test_counts_that_disagree(build: Build, place: str) -> None:
    damage, expected = COUNTS[place]
    damage(build)
    problems = structure_problems(build)
    assert len([p for p in problems if expected in p]) == 1, problems


def test_a_document_that_declares_more_chunks_than_it_has(build: Build) -> None:
    """The sum is right: one declares 400 and holds 40, the other makes up for it."""
    execute(
        build,
        "UPDATE documents SET chunks = chunks + CASE document_id WHEN 'brakes.md' THEN 1 "
        "WHEN 'refunds.md' THEN -1 ELSE 0 END",
    )
    assert structure_problems(build) == [
        "document brakes.md is stamped with 4 chunks and has 3",
        "document refunds.md is stamped with 1 chunks and has 2",
    ]


def test_chunks_that_are_gone_everywhere_but_in_their_documents_stamp(build: Build) -> None:
    rewrite(build, "chunks", without_last)
    problems = structure_problems(build)
    assert "chunks holds 6 chunks, the stamp 7" in problems
    assert "chunks holds 6 chunks, vectors.npy 7" in problems


def test_files_stay_as_they_are(build: Build) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in folder.iterdir()}

    before = contents(build.folder)
    structure_problems(build)
    assert contents(build.folder) == before
