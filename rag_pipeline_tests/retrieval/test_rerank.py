from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_pipeline.core.errors import EncoderNotFoundError
from rag_pipeline.retrieval.rerank import CrossEncoderReranker

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "brake", "pad", "tyre", "air"]


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def build_cross_encoder(folder: Path, labels: int = 1, bias: float = 0.0) -> Path:
    """Write a two-layer BERT cross-encoder with random weights and nine word pieces."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY))
    BertTokenizerFast(str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        num_labels=labels,
        initializer_range=0.5,
    )
    model = BertForSequenceClassification(config)
    torch.nn.init.constant_(model.classifier.bias, bias)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


def logit(folder: Path, query: str, passage: str) -> float:
    """The model's output by transformers alone."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    encoded = AutoTokenizer.from_pretrained(folder)(query, passage, return_tensors="pt")
    with torch.no_grad():
        return float(model(**encoded).logits[0, 0])


def test_scores_are_the_models_raw_outputs(model_folder: Path) -> None:
    passages = ["pad air", "tyre", "brake pad brake pad air tyre"]
    scores = CrossEncoderReranker(str(model_folder)).scores("brake pad", passages)
    assert scores.dtype == np.float64
    expected = [logit(model_folder, "brake pad", passage) for passage in passages]
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    assert len(set(np.round(scores, 4))) == 3


def test_outputs_beyond_the_range_of_a_sigmoid_do_not_tie(tmp_path: Path) -> None:
    folder = build_cross_encoder(tmp_path / "sure", bias=40.0)
    scores = CrossEncoderReranker(str(folder)).scores("brake", ["pad air", "tyre"])
    assert scores.min() > 30
    assert scores[0] != scores[1]


def test_scores_do_not_depend_on_the_batch(model_folder: Path) -> None:
    passages = ["pad", "air air air air air", "tyre brake"]
    one, many = (CrossEncoderReranker(str(model_folder), batch_size=size) for size in (1, 8))
    assert one.scores("brake", passages) == pytest.approx(many.scores("brake", passages), abs=1e-5)


def test_no_passages_need_no_model() -> None:
    scores = CrossEncoderReranker("no/such-model").scores("q", [])
    assert scores.shape == (0,) and scores.dtype == np.float64


def test_the_fingerprint_is_of_what_decides_the_scores(model_folder: Path, tmp_path: Path) -> None:
    original = CrossEncoderReranker(str(model_folder)).fingerprint
    assert len(original) == 16

    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy)
    (copy / "README.md").write_text("another name and a text")
    assert CrossEncoderReranker(str(copy)).fingerprint == original

    tokenizer = copy / "tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert CrossEncoderReranker(str(copy)).fingerprint != original

    other = build_cross_encoder(tmp_path / "other", bias=1.0)
    assert CrossEncoderReranker(str(other)).fingerprint != original


@pytest.mark.parametrize("name", ["cross-encoder/no-such-model", "/no/such/folder", "./none", "a b?c"])
@pytest.mark.parametrize(
    "use", [lambda r: r.scores("q", ["p"]), lambda r: r.fingerprint], ids=["scores", "fingerprint"]
)
def test_a_model_that_is_not_there(name: str, use: Any) -> None:
    reranker = CrossEncoderReranker(name)
    with pytest.raises(EncoderNotFoundError, match=r"retrieval\.reranker = .*: neither a folder nor in the"):
        use(reranker)


def test_a_model_without_a_trained_head(model_folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(model_folder, bare)
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    with pytest.raises(
        EncoderNotFoundError, match=r"retrieval\.reranker = .* is no cross-encoder.*BertModel"
    ):
        CrossEncoderReranker(str(bare)).scores("q", ["p"])


def test_a_model_with_several_outputs(tmp_path: Path) -> None:
    folder = build_cross_encoder(tmp_path / "three", labels=3)
    with pytest.raises(EncoderNotFoundError, match=r"retrieval\.reranker = .* gives 3 numbers for a passage"):
        CrossEncoderReranker(str(folder)).scores("q", ["p"])


def test_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(EncoderNotFoundError, match=r"retrieval\.reranker = .*config\.json cannot be read"):
        CrossEncoderReranker(str(tmp_path)).scores("q", ["p"])


def test_damaged_weights(model_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model_folder, broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(EncoderNotFoundError, match=r"retrieval\.reranker = .* cannot be loaded"):
        CrossEncoderReranker(str(broken)).scores("q", ["p"])


def test_importing_loads_no_torch() -> None:
    code = (
        "import sys; import rag_pipeline.retrieval.rerank, rag_pipeline.retrieval.citations, "
        "rag_pipeline.retrieval.prompt, rag_pipeline.lexical, rag_pipeline.chunking; "
        "from rag_pipeline.retrieval import reciprocal_rank_fusion; "
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'duckdb', 'scipy', 'dagster'}; "
        "sys.exit(repr(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
