"""Embedding a chunk table: rows, counts, and that a text is encoded once for each encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rag_pipeline.core.arrays import open_array
from rag_pipeline.core.errors import DamagedBuildError
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import CHUNKS
from rag_pipeline.core.storage import Storage, sha256_text
from rag_pipeline.core.tables import TableWriter, read_rows
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.embed import BATCH, EmbeddedChunks, MemoisedEncoder, embed_chunks
from rag_pipeline.embedding.encoder import SentenceTransformerEncoder, Vectors, open_encoder
from rag_pipeline.embedding.fingerprint import Fingerprint

HEADER = "[Brakes]\n"
TEXTS = ["A pad wears out.", "The lever is stuck.", "Grease the cable."]


class Counting:
    """An encoder that tells which texts it encoded."""

    def __init__(self, encoder: SentenceTransformerEncoder) -> None:
        self._encoder = encoder
        self.fingerprint = encoder.fingerprint
        self.pieces = encoder.pieces
        self.count_plain = encoder.count_plain
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += texts
        return self._encoder.encode(texts)


@pytest.fixture(scope="module")
def model(tiny_encoder: Path) -> SentenceTransformerEncoder:
    return open_encoder(EmbeddingConfig(model=str(tiny_encoder)))


@pytest.fixture
def encoder(model: SentenceTransformerEncoder) -> Counting:
    return Counting(model)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.create(tmp_path / "root")


@pytest.fixture
def memo(storage: Storage) -> Iterator[Memo]:
    with Memo(storage.memo_path) as memo:
        yield memo


def chunk_table(storage: Storage, texts: Sequence[str], header: str = HEADER) -> Path:
    with TableWriter(storage, CHUNKS) as writer:
        for ordinal, content in enumerate(texts):
            text = header + content
            writer.write(
                [
                    {
                        "chunk_id": f"{ordinal:032x}",
                        "document_id": "a.md",
                        "ordinal": ordinal,
                        "section": "",
                        "start": 0,
                        "end": len(content),
                        "lead_start": 0,
                        "content": content,
                        "text": text,
                        "header_length": len(header),
                        "text_sha256": sha256_text(text),
                        "locator": {},
                    }
                ]
            )
    return writer.path


def test_rows_and_vectors_stand_in_the_order_of_the_chunks(
    storage: Storage, memo: Memo, encoder: Counting, model: SentenceTransformerEncoder
) -> None:
    told: list[tuple[int, int]] = []
    result = embed_chunks(
        chunk_table(storage, TEXTS), encoder, storage, memo, lambda done, total: told.append((done, total))
    )
    vectors = open_array(result.vectors)
    assert vectors.dtype == np.float32 and vectors.shape == (3, 16)
    assert np.abs(vectors - model.encode([HEADER + t for t in TEXTS])).max() < 1e-6
    rows = list(read_rows(result.table))
    assert [r["row"] for r in rows] == [0, 1, 2]
    assert [r["chunk_id"] for r in rows] == [f"{i:032x}" for i in range(3)]
    assert [r["text_sha256"] for r in rows] == [sha256_text(HEADER + t) for t in TEXTS]
    assert [r["norm"] for r in rows] == pytest.approx([1.0] * 3, abs=1e-6)
    assert told == [(3, 3)]


def test_pieces_are_counted_and_the_headers_share_of_them(
    storage: Storage, memo: Memo, encoder: Counting
) -> None:
    long = "x " * 70
    result = embed_chunks(chunk_table(storage, ["pad", long]), encoder, storage, memo)
    rows = list(read_rows(result.table))
    header = len("[]brakes")
    assert [r["header_pieces"] for r in rows] == [header, header]
    assert [r["pieces"] for r in rows] == [2 + header + 3, 2 + header + 70]
    assert [r["covered"] for r in rows] == [len(HEADER + "pad"), len(HEADER) + 2 * (62 - header) - 1]
    assert (result.pieces, result.header_pieces, result.over_window) == (
        sum(r["pieces"] for r in rows),
        2 * header,
        1,
    )


def test_without_a_header_its_share_is_none(storage: Storage, memo: Memo, encoder: Counting) -> None:
    result = embed_chunks(chunk_table(storage, TEXTS, header=""), encoder, storage, memo)
    assert result.header_pieces == 0


def test_an_empty_table(storage: Storage, memo: Memo, encoder: Counting) -> None:
    result = embed_chunks(chunk_table(storage, []), encoder, storage, memo)
    assert (result.rows, result.encoded, result.pieces) == (0, 0, 0)
    assert open_array(result.vectors).shape == (0, 16)


def test_a_known_text_is_not_encoded_again(
    storage: Storage, memo: Memo, encoder: Counting, model: SentenceTransformerEncoder
) -> None:
    first = embed_chunks(chunk_table(storage, TEXTS), encoder, storage, memo)
    assert (first.encoded, first.remembered) == (3, 0)
    vectors = np.array(open_array(first.vectors))
    encoder.encoded.clear()

    second = embed_chunks(chunk_table(storage, TEXTS), encoder, storage, memo)
    assert (second.encoded, second.remembered) == (0, 3)
    assert encoder.encoded == []
    assert np.array_equal(open_array(second.vectors), vectors), "bit for bit"
    assert counts(second) == counts(first)
    assert (second.data_version, second.table, second.vectors) == (
        first.data_version,
        first.table,
        first.vectors,
    )

    changed = [TEXTS[0], "The lever is free.", TEXTS[2]]
    third = embed_chunks(chunk_table(storage, changed), encoder, storage, memo)
    assert (third.encoded, third.remembered) == (1, 2)
    assert encoder.encoded == [HEADER + "The lever is free."]
    assert third.data_version != first.data_version
    after = open_array(third.vectors)
    assert np.array_equal(after[[0, 2]], vectors[[0, 2]])
    assert np.abs(after[1] - model.encode([HEADER + changed[1]])[0]).max() < 1e-6


def counts(result: EmbeddedChunks) -> tuple[int, ...]:
    return result.rows, result.pieces, result.header_pieces, result.over_window


def test_a_text_that_stands_twice_is_encoded_once(storage: Storage, memo: Memo, encoder: Counting) -> None:
    result = embed_chunks(chunk_table(storage, ["same", "same", "other"]), encoder, storage, memo)
    assert (result.rows, result.encoded) == (3, 2)
    vectors = open_array(result.vectors)
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_another_encoder_knows_none_of_it(
    storage: Storage, memo: Memo, encoder: Counting, other_encoder: Path
) -> None:
    first = embed_chunks(chunk_table(storage, TEXTS), encoder, storage, memo)
    other = open_encoder(EmbeddingConfig(model=str(other_encoder)))
    second = embed_chunks(chunk_table(storage, TEXTS), other, storage, memo)
    assert second.encoded == 3
    assert second.data_version != first.data_version
    assert not np.allclose(open_array(first.vectors), open_array(second.vectors), atol=1e-3)


def test_a_table_of_several_batches(storage: Storage, memo: Memo, encoder: Counting) -> None:
    number = 2 * BATCH + 3
    told: list[int] = []
    texts = [f"number {i}" for i in range(number)]
    result = embed_chunks(
        chunk_table(storage, texts), encoder, storage, memo, lambda done, _: told.append(done)
    )
    assert told == [BATCH, 2 * BATCH, number]
    vectors = open_array(result.vectors)
    assert vectors.shape == (number, 16)
    for row in (0, BATCH - 1, BATCH, number - 1):
        assert np.abs(vectors[row] - encoder.encode([HEADER + texts[row]])[0]).max() < 1e-6


# -- what an encoder may give -------------------------------------------------------------------------------


class Fake(Counting):
    """An encoder that forgot to normalise."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        return 3 * super().encode(texts)


def test_an_encoder_whose_vectors_are_not_of_unit_length(
    storage: Storage, memo: Memo, model: SentenceTransformerEncoder
) -> None:
    table = chunk_table(storage, TEXTS)
    with pytest.raises(DamagedBuildError, match=r"tiny-0 .* gave 3 vectors that are not of unit length"):
        embed_chunks(table, Fake(model), storage, memo)
    assert memo.count("embedding/") == 0, "nothing of it is remembered"
    assert not list((storage.root / "tables" / "chunk_embeddings").glob("*"))


def test_an_encoder_that_gives_too_few_vectors(
    storage: Storage, memo: Memo, model: SentenceTransformerEncoder
) -> None:
    class Short(Counting):
        def encode(self, texts: Sequence[str]) -> Vectors:
            return super().encode(texts)[1:]

    with pytest.raises(ValueError, match=r"zip\(\)"):
        embed_chunks(chunk_table(storage, TEXTS), Short(model), storage, memo)
    assert memo.count("embedding/") == 0


# -- queries of an evaluation -------------------------------------------------------------------------------


def test_queries_are_encoded_once(memo: Memo, encoder: Counting, model: SentenceTransformerEncoder) -> None:
    remembering = MemoisedEncoder(encoder, memo)
    assert remembering.fingerprint == model.fingerprint
    queries = ["where?", "when?", "where?"]
    first = remembering.encode(queries)
    assert first.shape == (3, 16) and first.dtype == np.float32
    assert np.abs(first - model.encode(queries)).max() < 1e-6
    assert sorted(encoder.encoded) == ["when?", "where?"]
    assert np.array_equal(remembering.encode(queries), first)
    assert len(encoder.encoded) == 2
    assert remembering.encode([]).shape == (0, 16)
    assert remembering.pieces(queries) == model.pieces(queries)


def test_a_fingerprint_is_its_memos_name(memo: Memo, encoder: Counting) -> None:
    MemoisedEncoder(encoder, memo).encode(["where?"])
    # The same model with another window gives other vectors: nothing of the first may be found.
    other = Counting.__new__(Counting)
    other.__dict__.update(encoder.__dict__, encoded=[])
    changed: Fingerprint = replace(encoder.fingerprint, window=32)
    other.fingerprint = changed
    MemoisedEncoder(other, memo).encode(["where?"])
    assert other.encoded == ["where?"]
