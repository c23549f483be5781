"""Encoders: unit vectors that depend on the text alone, and how much of a text the window holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.core.errors import DamagedBuildError, EncoderNotFoundError
from rag_pipeline.embedding.config import DEFAULT_MODEL, EmbeddingConfig
from rag_pipeline.embedding.encoder import (
    PieceCounter,
    Pieces,
    SentenceTransformerEncoder,
    check_vectors,
    open_encoder,
)
from rag_pipeline_tests.conftest import DOCUMENTS

TEXTS = [
    "a pad",
    "The mechanic measures the pads with the brass gauge.",
    "",
    "x " * 200,
    "Ωμέγα 日本語 🚲",
    *DOCUMENTS.values(),
]


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Path) -> SentenceTransformerEncoder:
    return open_encoder(EmbeddingConfig(model=str(tiny_encoder), batch_size=3))


def test_vectors_are_of_unit_length(encoder: SentenceTransformerEncoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 16)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
    assert len(np.unique(np.round(vectors, 5), axis=0)) == len(TEXTS)


def test_no_texts_give_no_vectors(encoder: SentenceTransformerEncoder) -> None:
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.pieces([]) == encoder.count_plain([]) == []


def test_a_vector_does_not_depend_on_its_batch(
    encoder: SentenceTransformerEncoder, tiny_encoder: Path
) -> None:
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    for size in (1, 2, 32):
        batched = open_encoder(EmbeddingConfig(model=str(tiny_encoder), batch_size=size)).encode(TEXTS)
        assert np.abs(batched - alone).max() < 1e-6
    assert np.abs(encoder.encode(TEXTS[::-1])[::-1] - alone).max() < 1e-6


def test_what_lies_beyond_the_window_is_not_read(encoder: SentenceTransformerEncoder) -> None:
    text = "x " * 200
    (pieces,) = encoder.pieces([text])
    assert pieces == Pieces(count=202, covered=123), (
        "62 pieces of 'x ', the last without its blank, and two special"
    )
    same, other = text[: pieces.covered] + " something else", text[: pieces.covered - 1] + "y"
    vectors = encoder.encode([text, same, other])
    assert np.abs(vectors[0] - vectors[1]).max() < 1e-6
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-4


# -- pieces -------------------------------------------------------------------------------------------------


def tokenizer_of(folder: Path) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def test_pieces_are_counted_with_the_models_own_tokenizer(
    encoder: SentenceTransformerEncoder, tiny_encoder: Path
) -> None:
    assert encoder.pieces(["pad 2.", "", "pad [SEP] 2"]) == [
        Pieces(count=3 + 1 + 1 + 2, covered=6),  # p ##a ##d 2 . and [CLS], [SEP]
        Pieces(count=2, covered=0),
        Pieces(count=3 + 1 + 1 + 2, covered=11),
    ]
    assert encoder.count_plain(["pad 2.", ""]) == [5, 0]
    tokenizer = tokenizer_of(tiny_encoder)
    assert [p.count for p in encoder.pieces(TEXTS)] == [len(tokenizer.encode(t).ids) for t in TEXTS]


@settings(deadline=None, max_examples=150)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.lists(
        st.sampled_from(["pad", "é", "e\u0301", " ", "\n", "日本", "🚲", "[SEP]", "x" * 30]), max_size=60
    ).map("".join),
    window=st.integers(2, 40),
)
def test_what_is_covered_is_a_prefix_that_fits_the_window(tiny_encoder: Path, text: str, window: int) -> None:
    tokenizer = tokenizer_of(tiny_encoder)
    (pieces,) = PieceCounter(tiny_encoder, window).pieces([text])
    assert 0 <= pieces.covered <= len(text)
    assert pieces.count == len(tokenizer.encode(text).ids)
    if pieces.count <= window:
        assert pieces.covered == len(text)
        return
    # Exactly what the encoder reads: the tokenizer, told to truncate, ends its last piece there.
    tokenizer.enable_truncation(window)
    read = tokenizer.encode(text)
    ends = [
        end for (_, end), special in zip(read.offsets, read.special_tokens_mask, strict=True) if not special
    ]
    assert pieces.covered == max(ends, default=0)
    tokenizer.no_truncation()
    assert len(tokenizer.encode(text[: pieces.covered]).ids) <= window


def test_counting_pieces_loads_no_torch(tiny_encoder: Path) -> None:
    code = (
        "import sys; from rag_pipeline.embedding.encoder import open_encoder; "
        "from rag_pipeline.embedding.config import EmbeddingConfig; "
        "encoder = open_encoder(EmbeddingConfig(model=sys.argv[1])); "
        "assert encoder.pieces(['pad'])[0].count == 5; assert encoder.fingerprint.window == 64; "
        "heavy = {'torch', 'sentence_transformers', 'transformers'} & set(sys.modules); "
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tiny_encoder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- the check of unit length -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            [2.0] + [0.0] * 15,
            r"gave 1 vectors that are not of unit length \(the first of length 2\.0\): a thresh",
        ),
        ([0.0] * 16, "not of unit length"),
        ([1.001] + [0.0] * 15, "not of unit length"),
        ([float("nan")] * 16, "not of unit length"),
        ([float("inf")] * 16, "not of unit length"),
        ([1.0], r"gave vectors of shape \(2, 1\): its configuration says 16 dimensions"),
    ],
)
def test_vectors_that_a_threshold_means_nothing_on(
    encoder: SentenceTransformerEncoder, row: list[float], message: str
) -> None:
    good = [1.0] + [0.0] * (len(row) - 1)
    with pytest.raises(DamagedBuildError, match=f"tiny-0 .*{message}"):
        check_vectors(np.array([good, row], dtype=np.float32), encoder.fingerprint)


def test_float_noise_is_of_unit_length(encoder: SentenceTransformerEncoder) -> None:
    check_vectors(np.array([[1.00001] + [0.0] * 15], dtype=np.float32), encoder.fingerprint)


def test_a_model_that_contradicts_its_configuration(tiny_encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny_encoder, folder)
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "embedding_dimension": 8}))
    encoder = open_encoder(EmbeddingConfig(model=str(folder)))
    with pytest.raises(
        DamagedBuildError, match=r"gave vectors of shape \(1, 16\): its configuration says 8 dimen"
    ):
        encoder.encode(["a pad"])


# -- opening ------------------------------------------------------------------------------------------------


def test_an_encoder_that_is_not_on_this_machine() -> None:
    with pytest.raises(
        EncoderNotFoundError,
        match=r"embedding\.model = 'no/such-model' is not on this machine: run `rag-pipeline index`",
    ):
        open_encoder(EmbeddingConfig(model="no/such-model"))


def broken(source: Path, target: Path, name: str, data: bytes | None) -> EmbeddingConfig:
    shutil.copytree(source, target)
    if data is None:
        (target / name).unlink()
    else:
        (target / name).write_bytes(data)
    return EmbeddingConfig(model=str(target))


def test_weights_that_cannot_be_read(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = open_encoder(broken(tiny_encoder, tmp_path / "tiny", "model.safetensors", b"half"))
    with pytest.raises(
        EncoderNotFoundError,
        match=r"embedding\.model: .*tiny cannot be loaded as a sentence-transformers model",
    ):
        encoder.encode(["a pad"])


def test_a_tokenizer_that_cannot_be_read(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = open_encoder(broken(tiny_encoder, tmp_path / "tiny", "tokenizer.json", b"{}"))
    with pytest.raises(
        EncoderNotFoundError, match=r"embedding\.model: the tokenizer in .*tiny cannot be read"
    ):
        encoder.pieces(["a pad"])


def test_a_vocabulary_without_a_tokenizer_file(
    encoder: SentenceTransformerEncoder, tiny_encoder: Path
) -> None:
    """An older model has only its vocabulary."""
    plain = tiny_encoder.parent / "bert"
    folder = tiny_encoder.parent / "old"
    shutil.copytree(plain, folder, ignore=shutil.ignore_patterns("tokenizer.json"), dirs_exist_ok=True)
    assert open_encoder(EmbeddingConfig(model=str(folder))).pieces(TEXTS) == encoder.pieces(TEXTS)


def test_a_window_that_the_model_does_not_have(tiny_encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny_encoder, folder)
    encoder = open_encoder(EmbeddingConfig(model=str(folder)))
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_max_length": 32}))
    # The files were changed between reading the fingerprint and loading the model.
    with pytest.raises(EncoderNotFoundError, match="reads 32 pieces, its configuration says 64"):
        encoder.encode(["a pad"])


def test_several_threads_share_an_encoder(tiny_encoder: Path) -> None:
    shared = open_encoder(EmbeddingConfig(model=str(tiny_encoder)))
    expected = open_encoder(EmbeddingConfig(model=str(tiny_encoder))).encode(TEXTS)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = shared.encode(TEXTS)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(np.abs(vectors - expected).max() < 1e-6 for vectors in found.values())


# -- the default model --------------------------------------------------------------------------------------


def test_the_default_model() -> None:
    encoder = open_encoder(EmbeddingConfig())
    assert encoder.fingerprint.name == DEFAULT_MODEL
    assert encoder.fingerprint.window == 256
    text = "word " * 300
    vectors = encoder.encode(
        [
            "Brake pads wear out.",
            "The pads of the brakes are worn.",
            "Tickets cost two euros.",
            text,
            text[:1000],
        ]
    )
    assert vectors.shape == (5, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
    for a in vectors:
        for b in vectors:
            # On unit vectors cosine distance is half the squared Euclidean distance.
            assert 1 - float(a @ b) == pytest.approx(float(np.sum((a - b) ** 2)) / 2, abs=1e-6)
    near, far = float(vectors[0] @ vectors[1]), float(vectors[0] @ vectors[2])
    assert near > 0.6 > 0.3 > far
    # 254 words of five characters and two special pieces fill the window.
    assert encoder.pieces([text]) == [Pieces(count=302, covered=254 * 5 - 1)]
    cut, beyond = encoder.encode([text[: 254 * 5], text[: 254 * 5] + "brakes"])
    assert np.abs(cut - vectors[3]).max() < 1e-6
    assert np.abs(beyond - vectors[3]).max() < 1e-6
