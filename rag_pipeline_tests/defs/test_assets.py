"""The asset functions called directly, as plain functions from handles to a result."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from rag_pipeline.core.errors import BuildBlockedError
from rag_pipeline.core.storage import Handle
from rag_pipeline.defs.assets import build_assets
from rag_pipeline.defs.names import Names
from rag_pipeline.steps import Session, open_session
from rag_pipeline_tests.defs.pipelines import CHAIN, Pipeline


@pytest.fixture
def assets(small: Pipeline) -> dict[str, dg.AssetsDefinition]:
    return {asset.key.to_user_string(): asset for asset in build_assets(small.settings, Names())}


@pytest.fixture
def session(small: Pipeline) -> Iterator[Session]:
    with open_session(small.settings, "a test") as opened:
        yield opened


@pytest.fixture
def context(small: Pipeline, session: Session) -> Iterator[dg.AssetExecutionContext]:
    with dg.build_asset_context(
        resources={"session": session, "handles": None}, instance=small.instance
    ) as opened:
        yield opened


def test_the_chain_is_complete(assets: dict[str, dg.AssetsDefinition]) -> None:
    assert tuple(assets) == CHAIN


@pytest.mark.parametrize("asset", ["canonical_documents", "chunks", "chunk_embeddings", "bm25_statistics"])
def test_an_asset_returns_its_handle_and_the_handle_s_data_version(
    small: Pipeline, assets: dict[str, dg.AssetsDefinition], context: dg.AssetExecutionContext, asset: str
) -> None:
    above = [small.handle(key.path[-1]) for key in assets[asset].keys_by_input_name.values()]
    result = assets[asset](context, *above)
    assert isinstance(result, dg.MaterializeResult) and isinstance(result.value, Handle)
    # The content is what it was, so the data version is, and whatever stands below stays fresh.
    assert result.value == small.handle(asset)
    assert result.data_version == dg.DataVersion(result.value.data_version)
    assert result.metadata is not None and result.metadata["dagster/row_count"] == result.value.rows


def test_the_evaluation_returns_a_result_for_every_check(
    small: Pipeline, assets: dict[str, dg.AssetsDefinition], context: dg.AssetExecutionContext
) -> None:
    result = assets["retrieval_evaluation"](
        context, small.handle("candidate_index"), small.handle("ground_truth")
    )
    assert isinstance(result, dg.MaterializeResult)
    specs = [spec.name for spec in assets["retrieval_evaluation"].check_specs]
    assert [check.check_name for check in result.check_results] == specs
    passed = {check.check_name: check.passed for check in result.check_results}
    assert [name for name, good in passed.items() if not good] == ["encoder_window"]


def test_publication_refuses_an_evaluation_of_another_build(
    small: Pipeline, assets: dict[str, dg.AssetsDefinition], context: dg.AssetExecutionContext
) -> None:
    evaluation = small.handle("retrieval_evaluation")
    other = Handle(evaluation.asset, evaluation.data_version, 1, evaluation.files, {}, {"build": "0" * 16})
    with pytest.raises(BuildBlockedError, match="has no receipt: materialise retrieval_evaluation first"):
        assets["published_index"](context, small.handle("candidate_index"), other)
