"""Fingerprints: what identifies an encoder, and that nothing that changes its vectors leaves it the same."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline.core.errors import EncoderNotFoundError
from rag_pipeline.core.storage import Storage, sha256_file
from rag_pipeline.embedding import fingerprint as fingerprint_module
from rag_pipeline.embedding.config import DEFAULT_MODEL
from rag_pipeline.embedding.fingerprint import Fingerprint, fingerprint_of, unresolved_id
from rag_pipeline.embedding.models import ModelFiles, find_model


def fingerprint(folder: Path, storage: Storage | None = None, **options: Any) -> Fingerprint:
    return fingerprint_of(ModelFiles("tiny", folder), "torch", storage, **options)


@pytest.fixture
def copy(tiny_encoder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be changed."""
    folder = tmp_path / "model" / "tiny"
    shutil.copytree(tiny_encoder, folder)
    return folder


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def change_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_what_a_fingerprint_holds(tiny_encoder: Path) -> None:
    found = fingerprint(tiny_encoder)
    assert dataclasses.asdict(found) == {
        "name": "tiny",
        "weights_sha256": sha256_file(tiny_encoder / "model.safetensors"),
        "configuration_sha256": found.configuration_sha256,
        "dimensions": 16,
        "pooling": "mean",
        "normalisation": "l2",
        "window": 64,
        "precision": "float32",
        "runtime": "torch",
        "truncation": "end",
    }
    assert re.fullmatch("[0-9a-f]{16}", found.id)
    assert Fingerprint.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.to_json()["id"] == found.id
    for part in ("tiny", found.weights_sha256[:8], "16 dimensions", "window 64", "float32/torch", found.id):
        assert part in found.words()


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Fingerprint)])
def test_each_field_is_part_of_the_id(tiny_encoder: Path, field: str) -> None:
    found = fingerprint(tiny_encoder)
    value = getattr(found, field)
    other = dataclasses.replace(found, **{field: value + 1 if isinstance(value, int) else value + "x"})
    assert other.id != found.id


CHANGES: dict[str, Callable[[Path], None]] = {
    "weights": change_weights,
    "the transformer's configuration": lambda f: change_json(f / "config.json", layer_norm_eps=1e-3),
    "pooling": lambda f: change_json(f / "1_Pooling" / "config.json", pooling_mode="cls"),
    "window": lambda f: change_json(f / "tokenizer_config.json", model_max_length=32),
    "tokenizer": lambda f: (f / "tokenizer.json").write_text((f / "tokenizer.json").read_text() + "\n"),
    "modules": lambda f: (f / "modules.json").write_text((f / "modules.json").read_text() + "\n"),
    "prompts": lambda f: change_json(f / "config_sentence_transformers.json", default_prompt_name="query"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_vectors_changes_the_fingerprint(copy: Path, what: str) -> None:
    before = fingerprint(copy)
    CHANGES[what](copy)
    assert fingerprint(copy).id != before.id


def test_a_copy_elsewhere_is_the_same_encoder(tiny_encoder: Path, copy: Path) -> None:
    (copy / "README.md").write_text("other words")
    (copy / "onnx").mkdir()
    (copy / "onnx" / "config.json").write_text("{}")
    os.utime(copy / "model.safetensors", (1, 1))
    assert fingerprint(copy) == fingerprint(tiny_encoder)


def test_window_and_pooling_are_read(copy: Path) -> None:
    change_json(copy / "tokenizer_config.json", model_max_length=32)
    assert fingerprint(copy).window == 32
    change_json(copy / "tokenizer_config.json", model_max_length=10**30)  # "no limit"
    assert fingerprint(copy).window == 64, "the transformer has so many positions"
    change_json(copy / "sentence_bert_config.json", max_seq_length=48)
    assert fingerprint(copy).window == 48
    change_json(copy / "1_Pooling" / "config.json", pooling_mode="cls")
    assert fingerprint(copy).pooling == "cls"
    # As older releases wrote it: a flag for each mode, and vectors of several modes side by side.
    (copy / "1_Pooling" / "config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": 16,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
                "include_prompt": True,
            }
        )
    )
    found = fingerprint(copy)
    assert (found.pooling, found.dimensions) == ("cls+mean", 32)


def test_a_model_that_says_nothing_of_its_window(copy: Path) -> None:
    (copy / "tokenizer_config.json").unlink()
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if k != "max_position_embeddings"})
    )
    assert fingerprint(copy).window == 512


def test_weights_of_later_modules_count(copy: Path) -> None:
    modules = json.loads((copy / "modules.json").read_text())
    modules.insert(
        2, {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    )
    (copy / "modules.json").write_text(json.dumps(modules))
    (copy / "3_Dense").mkdir()
    (copy / "3_Dense" / "config.json").write_text('{"in_features": 16, "out_features": 8}')
    (copy / "3_Dense" / "model.safetensors").write_bytes(b"one")
    one = fingerprint(copy)
    assert one.dimensions == 8
    (copy / "3_Dense" / "model.safetensors").write_bytes(b"two")
    two = fingerprint(copy)
    assert two.weights_sha256 != one.weights_sha256
    assert two.configuration_sha256 == one.configuration_sha256


def test_the_transformers_files_may_lie_in_a_folder_of_their_own(tiny_encoder: Path, copy: Path) -> None:
    (copy / "0_Transformer").mkdir()
    for file in [p for p in copy.iterdir() if p.is_file() and p.name != "modules.json"]:
        file.rename(copy / "0_Transformer" / file.name)
    modules = json.loads((copy / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (copy / "modules.json").write_text(json.dumps(modules))
    found = fingerprint(copy)
    assert (found.dimensions, found.window, found.pooling) == (16, 64, "mean")
    assert found.weights_sha256 == fingerprint(tiny_encoder).weights_sha256


# -- the packaged model -------------------------------------------------------------------------------------


def test_the_packaged_model_is_verified() -> None:
    found = find_model(DEFAULT_MODEL)
    assert found is not None
    real = fingerprint_of(found, "torch")
    assert (real.name, real.dimensions, real.pooling, real.window) == (DEFAULT_MODEL, 384, "mean", 256)
    tampered = dataclasses.replace(found, expected_weights_sha256="0" * 64)
    with pytest.raises(
        EncoderNotFoundError,
        match=rf"the packaged weights have sha256 {real.weights_sha256}, expected 0{{64}}: reinstall",
    ):
        fingerprint_of(tampered, "torch")


# -- remembered hashes --------------------------------------------------------------------------------------


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the weight files that were hashed, as they are hashed."""
    names: list[str] = []

    def count(path: Path) -> str:
        if path.suffix == ".safetensors":
            names.append(path.name)
        return sha256_file(path)

    monkeypatch.setattr(fingerprint_module, "sha256_file", count)
    return names


def test_weights_are_hashed_once(copy: Path, tmp_path: Path, hashed: list[str]) -> None:
    storage = Storage.create(tmp_path / "root")
    first = fingerprint(copy, storage)
    assert fingerprint(copy, Storage(storage.root)) == first
    assert fingerprint(copy, storage, remember=False) == first
    assert len(hashed) == 1
    os.utime(copy / "model.safetensors", (1, 1))
    assert fingerprint(copy, storage) == first
    assert len(hashed) == 2, "another time may be another file"
    change_weights(copy)
    os.utime(copy / "model.safetensors", (2, 2))
    assert fingerprint(copy, storage) != first
    assert len(hashed) == 3
    moved = copy.parent / "moved"
    shutil.copytree(copy, moved)
    fingerprint(moved, storage)
    assert len(hashed) == 4, "another path"
    assert len(json.loads((storage.root / "weights.json").read_text())) == 2, "one entry a file"


def test_readers_remember_nothing(copy: Path, tmp_path: Path, hashed: list[str]) -> None:
    storage = Storage.create(tmp_path / "root")
    for _ in range(2):
        fingerprint(copy, storage, remember=False)
    assert len(hashed) == 2
    assert not (storage.root / "weights.json").exists()
    fingerprint(copy)
    assert len(hashed) == 3


def test_a_memory_that_cannot_be_written_stops_nobody(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rag_pipeline.core.errors import StorageError

    def full(*_: Any) -> None:
        raise StorageError("the file system is read-only")

    storage = Storage.create(tmp_path / "root")
    monkeypatch.setattr(Storage, "write_json", full)
    assert fingerprint(copy, storage) == fingerprint(copy)


# -- errors -------------------------------------------------------------------------------------------------


def test_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(EncoderNotFoundError, match=r"embedding\.model: .* holds no weights \(model\.safeten"):
        fingerprint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "1_Pooling/config.json"])
def test_a_configuration_that_is_damaged(copy: Path, name: str) -> None:
    (copy / name).write_text("{half")
    with pytest.raises(EncoderNotFoundError, match=rf"{re.escape(name)} is not valid JSON"):
        fingerprint(copy)


def test_an_encoder_that_is_not_here_yet_has_an_id_by_name() -> None:
    ids = {unresolved_id(name, runtime) for name in ("a", "b") for runtime in ("torch", "onnx")}
    assert len(ids) == 4
    assert unresolved_id("a", "torch") in ids
