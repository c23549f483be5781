"""rag_pipeline: from a folder of documents to a retrieval index that can be trusted.

`open_index` is the one door for applications; it needs neither Dagster nor, until the first query, torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag_pipeline.retrieval.search import SearchIndex
    from rag_pipeline.settings import Settings

__version__ = "0.1.0"
__all__ = ["__version__", "open_index"]


def open_index(path_or_settings: str | Path | Settings | None = None) -> SearchIndex:
    """Open the published index for reading; close it, or use it as a context manager.

    `path_or_settings` is a `Settings`, the path of a settings file, of a storage root, of a folder with a
    `rag_pipeline.toml`, or of one build (published or not); None loads the settings of the working directory.
    Given settings, their encoder must be the one the index is stamped with; given a storage root or build, the
    stamped encoder is used.

    Raises `IndexNotFoundError` where nothing is published and `EncoderMismatchError`, naming both, where the
    query encoder did not make the index's vectors.
    """
    from rag_pipeline.retrieval.opening import is_build_folder, open_build_folder, open_published
    from rag_pipeline.settings import CONFIG_NAME, Settings

    if isinstance(path_or_settings, str | Path):
        path = Path(path_or_settings)
        if path.is_dir() and not (path / CONFIG_NAME).is_file():
            return open_build_folder(path) if is_build_folder(path) else open_published(path)
        settings = Settings.load(path / CONFIG_NAME if path.is_dir() else path)
    else:
        settings = path_or_settings if path_or_settings is not None else Settings.load()
    return open_published(
        settings.storage_root, settings.embedding, settings.source.url_template, settings.retrieval.reranker
    )
