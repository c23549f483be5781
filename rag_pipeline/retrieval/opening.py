"""The one door to an index: what is published, opened with an encoder that matches its stamp."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rag_pipeline.core.errors import DamagedBuildError, EncoderMismatchError, IndexNotFoundError
from rag_pipeline.core.storage import Storage
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.encoder import Encoder, open_encoder
from rag_pipeline.index.builds import MANIFEST, Build, check_build, find_build
from rag_pipeline.index.publish import newest_receipt, published
from rag_pipeline.retrieval.config import RetrievalConfig
from rag_pipeline.retrieval.rerank import CrossEncoderReranker
from rag_pipeline.retrieval.search import SearchIndex, Serving, check_encoder

# A pruned build vanishes between reading the pointer and opening it at most this often in a row.
_ATTEMPTS = 10


def serving_of(values: Any) -> Serving:
    """Return serving values from the mapping that a receipt or a pointer holds."""
    return Serving(
        mode=str(values["mode"]),
        k=int(values["k"]),
        threshold=float(values["threshold"]),
        reranker=str(values.get("reranker", "")),
        reranker_fingerprint=str(values.get("reranker_fingerprint", "")),
    )


def open_published(
    root: Path, embedding: EmbeddingConfig | None = None, url_template: str = "", reranker: str = ""
) -> SearchIndex:
    """Open the published index of a storage root.

    `embedding` names the query encoder; None takes the one the index is stamped with. Mode, k and threshold come
    from the publication: what was gated is what is served. `reranker` lets readers ask for mode `reranked` where
    another mode is published. Raises `IndexNotFoundError` where nothing is published, `EncoderMismatchError` where
    encoder and stamp differ, `DamagedBuildError` where files of the build are missing or do not fit its manifest.
    """
    storage = Storage.existing(root)
    if storage is None:
        raise IndexNotFoundError(
            f"{root} is not a storage root: run `rag-pipeline index`, or check storage.root"
        )
    for attempt in range(_ATTEMPTS):
        now = published(storage)
        if now is None:
            raise IndexNotFoundError(
                f"nothing is published in {root}: run `rag-pipeline index` (`rag-pipeline status` tells more)"
            )
        try:
            build = find_build(storage, now.build)
            serving = serving_of({**now.serving, "reranker": now.serving.get("reranker") or reranker})
            stamp = {
                "published_at": now.published_at,
                "scored": now.scored,
                "status": "scored" if now.scored else "unscored",
                "serving": dict(now.serving),
            }
            return open_build(build, serving, embedding, url_template, storage, stamp)
        except (IndexNotFoundError, DamagedBuildError) as error:
            # Another build was published and this one pruned in between: the pointer names the new one.
            if attempt < _ATTEMPTS - 1 and published(storage) != now:
                continue
            if isinstance(error, IndexNotFoundError):
                raise IndexNotFoundError(
                    f"{error}. It is the published one: index again, or roll back"
                ) from None
            raise
    raise AssertionError("unreachable")


def open_build_folder(
    folder: Path, embedding: EmbeddingConfig | None = None, url_template: str = ""
) -> SearchIndex:
    """Open one build by its folder, published or not, e.g. to inspect a blocked one or a copy.

    It is served as its newest receipt says, where it lies in its storage root, else by the default settings.
    """
    folder = folder.resolve()
    build = Build(str(Build(folder.name, folder).manifest.get("build")), folder)
    storage = Storage.existing(folder.parent.parent)
    receipt = newest_receipt(storage, build.id) if storage is not None else None
    serving = serving_of(receipt.serving) if receipt is not None else _default_serving()
    return open_build(build, serving, embedding, url_template, storage, {"serving": vars(serving)})


def _default_serving() -> Serving:
    config = RetrievalConfig()
    return Serving(config.mode, config.k, config.threshold, config.reranker)


def is_build_folder(path: Path) -> bool:
    """Return whether a folder is a build."""
    return (path / MANIFEST).is_file()


def open_build(
    build: Build,
    serving: Serving,
    embedding: EmbeddingConfig | None = None,
    url_template: str = "",
    storage: Storage | None = None,
    stamp: dict[str, Any] | None = None,
    encoder: Encoder | None = None,
) -> SearchIndex:
    """Open a build with an encoder whose fingerprint is the stamped one.

    The check reads files and hashes alone; the encoder itself is loaded at the first query. Raises as
    `open_published`.
    """
    check_build(build)
    made_with = build.stamp
    if encoder is None:
        config = embedding or EmbeddingConfig(model=str(made_with["embedding"]["name"]))
        location = made_with.get("model_location")
        if embedding is None and location:
            config = replace(config, model=str(location))
        encoder = open_encoder(config, storage, remember=False)
    check_encoder(made_with, encoder.fingerprint.words(), encoder.fingerprint.id)
    opened = encoder
    reranker = CrossEncoderReranker(serving.reranker) if serving.reranker else None
    gated = serving.reranker_fingerprint
    if reranker is not None and gated and reranker.fingerprint != gated:
        raise EncoderMismatchError(
            f"build {build.id} was gated with the cross-encoder {serving.reranker!r} of fingerprint {gated}, "
            f"the one on this machine has {reranker.fingerprint}: put the former back, or index again"
        )
    return SearchIndex(
        build,
        serving,
        encode=lambda query: opened.encode([query])[0],
        count_tokens=lambda text: opened.pieces([text])[0].count,
        reranker=reranker,
        url_template=url_template,
        stamp=stamp,
    )
