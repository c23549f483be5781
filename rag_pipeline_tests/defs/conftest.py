from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain, settings_maker, write_lines
from rag_pipeline_tests.defs.pipelines import STRANGERS, Pipeline, copy_of, write_library


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def fresh(make_settings: MakeSettings, instance: dg.DagsterInstance) -> Pipeline:
    """The three small documents, nothing built yet."""
    return Pipeline(make_settings(), instance)


@pytest.fixture
def small(published: Settings, make_settings: MakeSettings, instance: dg.DagsterInstance) -> Pipeline:
    """The three small documents, published; to be changed by the test."""
    return copy_of(published, make_settings(), instance)


def library_settings(folder: Path, encoder: Path) -> Settings:
    """Write sixteen documents of one chunk each; return settings that serve them by BM25."""
    source = folder / "library"
    questions = write_library(source)
    return settings_maker(folder, encoder)(
        source={"path": str(source)},
        retrieval={"mode": "bm25"},
        evaluation={
            "questions": str(write_lines(folder / "library.jsonl", questions)),
            "out_of_domain": str(write_lines(folder / "strangers.jsonl", STRANGERS)),
        },
    )


@pytest.fixture(scope="session")
def published_library(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Settings:
    """The sixteen documents, published. For reading only."""
    settings = library_settings(tmp_path_factory.mktemp("library"), tiny_encoder)
    run_chain(settings)
    return settings


@pytest.fixture
def library(
    published_library: Settings, tiny_encoder: Path, tmp_path: Path, instance: dg.DagsterInstance
) -> Pipeline:
    """The sixteen documents, published; to be changed by the test."""
    return copy_of(published_library, library_settings(tmp_path, tiny_encoder), instance)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Iterator[Pipeline]:
    """The three small documents after one full run, event log included. For reading only."""
    settings = settings_maker(tmp_path_factory.mktemp("built"), tiny_encoder)()
    with dg.DagsterInstance.ephemeral() as instance:
        pipeline = Pipeline(settings, instance)
        pipeline.published_run()
        yield pipeline
