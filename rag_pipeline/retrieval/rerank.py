"""Re-ranking a shortlist with a cross-encoder: query and passage are read together, dear and sharp."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.core.errors import EncoderNotFoundError
from rag_pipeline.core.storage import sha256_file, version_of

# Raised when the same model and texts would give another score by this module's doing.
RERANKER_VERSION = "1"

_HEAD = "ForSequenceClassification"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
# Small files that decide what the weights compute and what pieces a text falls into.
_CONFIGURATION = ("*.json", "vocab.txt", "merges.txt", "*.model")


class CrossEncoderReranker:
    """A sentence-transformers `CrossEncoder` with one output, by its folder or its name in the local cache.

    Nothing is read before it is needed: the files at `fingerprint`, the model at the first `scores`. It is
    never downloaded. May be shared between threads.

    Source of the method: Nogueira and Cho, Passage Re-ranking with BERT, 2019.
    """

    def __init__(self, name_or_path: str, batch_size: int = 32) -> None:
        self.name = name_or_path
        self._batch_size = batch_size
        self._lock = threading.Lock()

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits over the files that decide the scores; the same for a copy elsewhere.

        Raises `EncoderNotFoundError` where the model is not on this machine.
        """
        files = [(file.name, sha256_file(file)) for file in _deciding_files(self._folder)]
        return version_of(RERANKER_VERSION, files)

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float64]:
        """Return the model's raw output for each passage, float64 [len(passages)], the higher the better.

        The output is not squashed into 0 to 1, where the best of a list would tie at 1.0. Scores of two
        queries, or of two models, are not comparable.

        Raises `EncoderNotFoundError` where the model is not on this machine or is no cross-encoder with one
        output.
        """
        if not passages:
            return np.zeros(0, dtype=np.float64)
        # The tokenizer cannot be used by two threads at once.
        with self._lock:
            import torch

            found = self._model.predict(
                [(query, passage) for passage in passages],
                batch_size=self._batch_size,
                activation_fn=torch.nn.Identity(),
                show_progress_bar=False,
            )
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def _folder(self) -> Path:
        folder = _find(self.name)
        if folder is None:
            raise EncoderNotFoundError(
                f"retrieval.reranker = {self.name!r}: neither a folder nor in the local model cache: "
                f"fetch it with `hf download {self.name}`, name a model folder, or leave the setting empty"
            )
        return folder

    @cached_property
    def _model(self) -> Any:
        folder = self._folder
        _check_head(self.name, folder)
        from sentence_transformers import CrossEncoder

        try:
            model = CrossEncoder(str(folder), local_files_only=True)
        except Exception as error:
            raise EncoderNotFoundError(
                f"retrieval.reranker = {self.name!r}: {folder} cannot be loaded as a cross-encoder: {error}"
            ) from error
        if model.num_labels != 1:
            raise EncoderNotFoundError(
                f"retrieval.reranker = {self.name!r} gives {model.num_labels} numbers for a passage: name a "
                "cross-encoder with one output"
            )
        return model


def _find(name: str) -> Path | None:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder.resolve()
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except ValueError:  # a path, or otherwise not a possible name of a model
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _check_head(name: str, folder: Path) -> None:
    """Refuse a model without a trained head: it would load with a random one and rank at random."""
    config = folder / "config.json"
    try:
        architectures = json.loads(config.read_text(encoding="utf-8")).get("architectures") or []
    except (OSError, ValueError) as error:
        raise EncoderNotFoundError(
            f"retrieval.reranker = {name!r}: {config} cannot be read: {error}"
        ) from error
    if not any(str(architecture).endswith(_HEAD) for architecture in architectures):
        raise EncoderNotFoundError(
            f"retrieval.reranker = {name!r} is no cross-encoder: its config.json names {architectures}, "
            f"where a model {_HEAD} is needed"
        )


def _deciding_files(folder: Path) -> Iterator[Path]:
    weights = sorted({file for pattern in _WEIGHTS for file in folder.glob(pattern)})
    # Where both formats lie there, the older one is not read.
    safe = [file for file in weights if file.suffix == ".safetensors"]
    yield from safe or weights
    yield from sorted({file for pattern in _CONFIGURATION for file in folder.glob(pattern)})
