"""Where an encoder's files are found: the package, a folder, the local cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rag_pipeline.core.errors import EncoderNotFoundError
from rag_pipeline.embedding.config import DEFAULT_MODEL
from rag_pipeline.embedding.models import (
    PACKAGED_WEIGHTS_SHA256,
    ModelFiles,
    download_model,
    find_model,
    read_modules,
    transformer_folder,
    weight_files,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the model hub."""
    import huggingface_hub.constants

    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


def put_into_cache(cache: Path, repository: str, files: Path) -> Path:
    """Lay a model's files where the hub's client would have put them."""
    place = cache / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("abc123")
    snapshot = place / "snapshots" / "abc123"
    shutil.copytree(files, snapshot)
    return snapshot


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "all-MiniLM-L6-v2"])
def test_the_default_model_comes_with_a_package(name: str) -> None:
    found = find_model(name)
    assert found is not None
    assert found.name == "sentence-transformers/all-MiniLM-L6-v2"
    assert found.expected_weights_sha256 == PACKAGED_WEIGHTS_SHA256
    assert (found.folder / "model.safetensors").is_file()


def test_a_folder_is_named_by_its_last_part(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_model(str(tiny_encoder)) == ModelFiles("tiny-0", tiny_encoder)
    monkeypatch.chdir(tiny_encoder.parent)
    assert find_model("tiny-0") == find_model("./tiny-0") == ModelFiles("tiny-0", tiny_encoder)
    assert find_model(f"../{tiny_encoder.parent.name}/tiny-0") == ModelFiles("tiny-0", tiny_encoder)


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "../none", "~/no-such-model"])
def test_a_folder_that_is_missing(name: str) -> None:
    with pytest.raises(EncoderNotFoundError, match=rf"embedding\.model = '{name}': no such folder"):
        find_model(name)


@pytest.mark.parametrize("name", ["no/such-model", "none", "no possible name?", "a/b/c"])
def test_a_name_that_is_not_on_this_machine(name: str, cache: Path) -> None:
    assert find_model(name) is None


@pytest.mark.parametrize("name", ["someone/tiny", "no possible name?"])
def test_what_can_not_be_downloaded(name: str, cache: Path) -> None:
    with pytest.raises(
        EncoderNotFoundError,
        match=r"embedding\.model = '.*': neither a folder, nor in the local model cache, nor to be downloaded "
        r"\(.+\): name a model folder, or 'sentence-transformers/all-MiniLM-L6-v2'",
    ):
        download_model(name)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("someone/tiny", "someone/tiny"),
        ("tiny", "sentence-transformers/tiny"),
    ],
)
def test_a_model_of_the_local_cache(asked: str, stored: str, tiny_encoder: Path, cache: Path) -> None:
    snapshot = put_into_cache(cache, stored, tiny_encoder)
    assert find_model(asked) == download_model(asked) == ModelFiles(stored, snapshot)


def test_a_cached_configuration_without_weights_is_no_model(tiny_encoder: Path, cache: Path) -> None:
    snapshot = put_into_cache(cache, "someone/tiny", tiny_encoder)
    (snapshot / "model.safetensors").unlink()
    assert find_model("someone/tiny") is None


# -- the files of a model -----------------------------------------------------------------------------------


def test_the_modules_of_a_model(tiny_encoder: Path) -> None:
    assert [(m.kind, m.folder) for m in read_modules(tiny_encoder)] == [
        ("Transformer", tiny_encoder),
        ("Pooling", tiny_encoder / "1_Pooling"),
        ("Normalize", tiny_encoder / "2_Normalize"),
    ]
    plain = tiny_encoder.parent / "bert"
    assert [(m.kind, m.folder) for m in read_modules(plain)] == [("Transformer", plain)]


def test_the_transformer_may_lie_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"},'
        ' {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]'
    )
    for name in ("0_Transformer/model.safetensors", "2_Dense/pytorch_model.bin", "onnx/model.safetensors"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert transformer_folder(tmp_path) == tmp_path / "0_Transformer"
    assert weight_files(tmp_path) == [
        tmp_path / "0_Transformer" / "model.safetensors",
        tmp_path / "2_Dense" / "pytorch_model.bin",
    ]


def test_the_older_format_is_read_only_without_the_newer(tmp_path: Path) -> None:
    assert weight_files(tmp_path) == []
    (tmp_path / "pytorch_model.bin").touch()
    assert weight_files(tmp_path) == [tmp_path / "pytorch_model.bin"]
    for shard in ("model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"):
        (tmp_path / shard).touch()
    assert [p.name for p in weight_files(tmp_path)] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_a_list_of_modules_that_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[{")
    with pytest.raises(EncoderNotFoundError, match=r"embedding\.model: .*modules\.json is not valid JSON"):
        read_modules(tmp_path)
