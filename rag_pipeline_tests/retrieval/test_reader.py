"""Reading a build: rows in the order asked, places, and files that stay readable until they are closed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.errors import DamagedBuildError, RagPipelineError
from rag_pipeline.core.storage import Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.index.builds import Build, list_builds
from rag_pipeline.retrieval.reader import BuildReader, ChunkPlace
from rag_pipeline.settings import Settings


def build_of(settings: Settings) -> Build:
    (build,) = list_builds(Storage(settings.storage_root))
    return build


@pytest.fixture(scope="module")
def build(published_large: Settings) -> Build:
    return build_of(published_large)


@pytest.fixture(scope="module")
def reader(build: Build) -> Iterator[BuildReader]:
    opened = BuildReader(build)
    yield opened
    opened.close()


def test_chunks_come_in_the_order_asked(build: Build, reader: BuildReader) -> None:
    stored = list(read_rows(build.table("chunks")))
    titles = {r["document_id"]: r["title"] for r in read_rows(build.table("documents"))}
    rows = [170, 0, 33, 32, 182]
    found = reader.chunks(rows)
    assert [chunk.row for chunk in found] == rows
    for row, chunk in zip(rows, found, strict=True):
        expected = stored[row]
        assert (chunk.chunk_id, chunk.document_id, chunk.section, chunk.content, chunk.text) == tuple(
            expected[name] for name in ("chunk_id", "document_id", "section", "content", "text")
        )
        assert (chunk.start, chunk.end, chunk.lead_start) == tuple(
            expected[name] for name in ("start", "end", "lead_start")
        )
        assert chunk.locator == expected["locator"]
        assert chunk.document_title == titles[chunk.document_id]
        assert chunk.document_name == chunk.document_id
        assert chunk.media_type == "text/markdown"
        assert chunk.passage == chunk.text[chunk.header_length :]
        assert not chunk.passage.startswith("[")
    assert reader.chunks([]) == []
    assert reader.chunks([np.int64(3)])[0].row == 3  # type: ignore[list-item]


def test_places_are_every_chunks(build: Build, reader: BuildReader) -> None:
    chunks = list(read_rows(build.table("chunks")))
    embedded = list(read_rows(build.table("chunk_embeddings")))
    window = build.stamp["embedding"]["window"]
    expected = []
    for row, (chunk, vector) in enumerate(zip(chunks, embedded, strict=True)):
        read = chunk["text"][: vector["covered"]]
        # What the encoder reads of the passage, found in the text instead of counted.
        passage_read = read[chunk["header_length"] :]
        expected.append(
            ChunkPlace(
                row=row,
                chunk_id=chunk["chunk_id"],
                document_id=chunk["document_id"],
                start=chunk["start"],
                end=chunk["end"],
                lead_start=chunk["lead_start"],
                pieces=vector["pieces"],
                header_pieces=vector["header_pieces"],
                window=window,
                window_end=chunk["lead_start"] + len(passage_read),
            )
        )
    places = list(reader.places())
    assert places == expected
    over = [place for place in places if place.pieces > window]
    assert over, "the test needs chunks that are longer than the window"
    assert all(place.window_end < place.end for place in over)
    assert all(place.window_end == place.end for place in places if place.pieces <= window)


def test_vectors_are_mapped_not_read(build: Build, reader: BuildReader) -> None:
    assert isinstance(reader.vectors.base, np.memmap) or isinstance(reader.vectors, np.memmap)
    assert np.array_equal(reader.vectors, np.load(build.folder / "vectors.npy"))
    assert reader.chunk_count == len(reader.vectors) == 183


def test_a_build_stays_readable_until_it_is_closed(published_copy: Settings) -> None:
    build = build_of(published_copy)
    opened = BuildReader(build)
    chunks, places = opened.chunks([0, 6]), list(opened.places())
    vectors = np.array(opened.vectors)
    shutil.rmtree(build.folder)
    assert opened.chunks([0, 6]) == chunks
    assert list(opened.places()) == places
    assert np.array_equal(opened.vectors, vectors)
    opened.close()
    opened.close()
    with pytest.raises(RagPipelineError, match=f"the index of build {build.id} is closed: open it again"):
        opened.chunks([0])
    with pytest.raises(RagPipelineError, match="is closed"):
        list(opened.places())


@pytest.mark.parametrize(
    "name",
    ["vectors.npy", "tie_ranks.npy", "terms.parquet", "posting_rows.npy", "lengths.npy", "index.duckdb"],
)
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_files_that_cannot_be_read(published_copy: Settings, name: str, damage: str) -> None:
    build = build_of(published_copy)
    path = build.folder / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: min(path.stat().st_size // 2, 20_000)])
    with pytest.raises(
        DamagedBuildError, match=f"(?s)build {build.id} in .* cannot be read: .*: index again, or roll"
    ):
        BuildReader(build).chunks(range(7))  # a DuckDB file is not read whole when it is opened


def test_threads_share_a_reader(reader: BuildReader) -> None:
    expected = reader.chunks(range(183))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for at in range(number, 183, 6):
                assert reader.chunks([at, 182 - at]) == [expected[at], expected[182 - at]]
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_an_empty_array_is_read(tmp_path: Path) -> None:
    """NumPy cannot map a file without data."""
    for name, array in (("a.npy", np.zeros((0, 4), np.float32)), ("b.npy", np.zeros(0, np.int64))):
        np.save(tmp_path / name, array)
        assert open_array(tmp_path / name).shape == array.shape
