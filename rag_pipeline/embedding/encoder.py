"""Encoders: texts to unit vectors, and the pieces a text falls into.

The default runs sentence-transformers. torch is imported when the first text is encoded, not before: counting
pieces needs only the model's own tokenizer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rag_pipeline.core.errors import DamagedBuildError, EncoderNotFoundError
from rag_pipeline.core.storage import Storage
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.fingerprint import Fingerprint, fingerprint_of
from rag_pipeline.embedding.models import ModelFiles, download_model, find_model, transformer_folder

Vectors = npt.NDArray[np.float32]

# Raised when the same text and model would give another vector by this module's doing (preprocessing, order).
EMBEDDING_VERSION = "1"

# Float noise between batch shapes and machines is about 1e-7; a vector further off is not of unit length.
UNIT_NORM_TOLERANCE = 1e-4


class Encoder(Protocol):
    """Anything that turns texts into unit vectors and says who it is."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the encoder."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return float32 vectors of unit length, shape [len(texts), dimensions]."""

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Return how each text falls into word pieces."""


@dataclass(frozen=True)
class Pieces:
    """How one text falls into word pieces."""

    count: int
    """Word pieces, special tokens included."""
    covered: int
    """Code points from the start of the text that lie within the encoder's window."""


class PieceCounter:
    """Counts word pieces with the model's own tokenizer, without torch.

    `folder` is the transformer's own; `window` its word pieces, special tokens included.
    """

    def __init__(self, folder: Path, window: int) -> None:
        self._folder = folder
        self._window = window

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        file = self._folder / "tokenizer.json"
        try:
            if file.is_file():
                tokenizer = Tokenizer.from_file(str(file))
            else:
                from transformers import AutoTokenizer

                tokenizer = AutoTokenizer.from_pretrained(str(self._folder), use_fast=True).backend_tokenizer
        except Exception as error:  # the tokenizers library raises no class of its own
            raise EncoderNotFoundError(
                f"embedding.model: the tokenizer in {self._folder} cannot be read: {error}"
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Return the pieces of each text."""
        result = []
        specials = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        for text, encoding in zip(texts, self._tokenizer.encode_batch(list(texts)), strict=True):
            count = len(encoding.ids)
            covered = len(text)
            if count > self._window:
                ends = [
                    end
                    for (_, end), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
                    if not special
                ]
                kept = ends[: max(0, self._window - specials)]
                covered = max(kept, default=0)
            result.append(Pieces(count, covered))
        return result

    def count_plain(self, texts: Sequence[str]) -> list[int]:
        """Return the word pieces of each text, without special tokens."""
        return [len(e.ids) for e in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]


class SentenceTransformerEncoder:
    """A sentence-transformers model, run by torch in float32. May be shared between threads."""

    def __init__(self, files: ModelFiles, fingerprint: Fingerprint, batch_size: int) -> None:
        self._files = files
        self._fingerprint = fingerprint
        self._batch_size = batch_size
        self._counter = PieceCounter(transformer_folder(files.folder), fingerprint.window)
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the encoder."""
        return self._fingerprint

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(str(self._files.folder), local_files_only=True)
        except Exception as error:  # each file format fails with errors of its own
            raise EncoderNotFoundError(
                f"embedding.model: {self._files.folder} cannot be loaded as a sentence-transformers model: {error}"
            ) from error
        window = self._fingerprint.window
        if model.max_seq_length is not None and model.max_seq_length < window:
            raise EncoderNotFoundError(
                f"embedding.model: {self._files.folder} reads {model.max_seq_length} pieces, its configuration says "
                f"{window}: set max_seq_length in its sentence_bert_config.json"
            )
        model.max_seq_length = window
        return model.float().eval()

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape [len(texts), dimensions].

        Raises `DamagedBuildError` where the model gives a vector that is not finite or of another size than its
        configuration says.
        """
        if not texts:
            return np.zeros((0, self._fingerprint.dimensions), dtype=np.float32)
        # The model is loaded once, and its tokenizer cannot be used by two threads at once.
        with self._lock:
            vectors = np.asarray(
                self._model.encode(
                    list(texts),
                    batch_size=self._batch_size,
                    normalize_embeddings=True,
                    convert_to_numpy=True,
                    show_progress_bar=False,
                ),
                dtype=np.float32,
            )
        check_vectors(vectors, self._fingerprint)
        return vectors

    def pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """Return how each text falls into word pieces."""
        return self._counter.pieces(texts)

    def count_plain(self, texts: Sequence[str]) -> list[int]:
        """Return the word pieces of each text, without special tokens."""
        return self._counter.count_plain(texts)


def check_vectors(vectors: Vectors, fingerprint: Fingerprint) -> None:
    """Raise `DamagedBuildError` unless the vectors are finite, of unit length and of the encoder's dimensions."""
    if vectors.ndim != 2 or vectors.shape[1] != fingerprint.dimensions:
        raise DamagedBuildError(
            f"{fingerprint.words()} gave vectors of shape {vectors.shape}: its configuration says "
            f"{fingerprint.dimensions} dimensions"
        )
    norms = np.linalg.norm(vectors, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms) | (np.abs(norms - 1.0) > UNIT_NORM_TOLERANCE))
    if bad.size:
        raise DamagedBuildError(
            f"{fingerprint.words()} gave {bad.size} vectors that are not of unit length (the first of length "
            f"{norms[bad[0]]}): a threshold means nothing on them"
        )


def open_encoder(
    config: EmbeddingConfig,
    storage: Storage | None = None,
    *,
    download: bool = False,
    remember: bool = True,
) -> SentenceTransformerEncoder:
    """Return the encoder that the settings name; its weights are read when the first text is encoded.

    `storage` remembers the weights' hash (`remember=False`: it is only looked up). Raises `EncoderNotFoundError`
    where the encoder is not on this machine (and, with `download`, cannot be fetched).
    """
    files = download_model(config.model) if download else find_model(config.model)
    if files is None:
        raise EncoderNotFoundError(
            f"embedding.model = {config.model!r} is not on this machine: run `rag-pipeline index`, which downloads "
            "it, or name a model folder"
        )
    fingerprint = fingerprint_of(files, config.runtime, storage, remember=remember)
    return SentenceTransformerEncoder(files, fingerprint, config.batch_size)
