"""Search filters: path patterns and metadata."""

from __future__ import annotations

import json

import pytest

from rag_pipeline import open_index
from rag_pipeline.core.errors import QueryError
from rag_pipeline.retrieval.filters import SearchFilter
from rag_pipeline.settings import Settings

METADATA = json.dumps({"owner": "Platform", "tags": ["api", "web"], "version": 2, "draft": False})


@pytest.mark.parametrize(
    ("paths", "admitted"),
    [
        (["*.md"], True),
        (["docs/*"], True),
        (["docs/?.md"], True),
        (["*.pdf"], False),
        (["*.pdf", "docs/*"], True),
    ],
)
def test_a_path_must_match_one_pattern(paths: list[str], admitted: bool) -> None:
    assert SearchFilter(paths).admits("docs/a.md", METADATA) is admitted


@pytest.mark.parametrize(
    ("metadata", "admitted"),
    [
        ({"owner": "Platform"}, True),
        ({"owner": "platform"}, False),
        ({"tags": "web"}, True),
        ({"tags": "we"}, False),
        ({"version": "2"}, True),
        ({"draft": "false"}, True),
        ({"missing": ""}, False),
        ({"owner": "Platform", "tags": "none"}, False),
    ],
)
def test_metadata_must_have_every_value(metadata: dict[str, str], admitted: bool) -> None:
    assert SearchFilter(metadata=metadata).admits("docs/a.md", METADATA) is admitted


def test_options_are_parsed() -> None:
    assert SearchFilter.parse(None, None) is None
    assert SearchFilter.parse(["a*"], ["k=v=w"]) == SearchFilter(("a*",), {"k": "v=w"})
    with pytest.raises(QueryError, match=r"--meta 'k': must be KEY=VALUE"):
        SearchFilter.parse(None, ["k"])


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_a_search_answers_only_from_admitted_documents(published: Settings, mode: str) -> None:
    with open_index(published) as index:
        everywhere = index.search("brake supply refunded", mode=mode, k=20)
        docks = index.search("brake supply refunded", mode=mode, k=20, where=SearchFilter(["docks/*"]))
        nowhere = index.search("brake supply", mode=mode, where=SearchFilter(["*.pdf"]))
    assert {h.document_id for h in everywhere.hits} > {"docks/power.md"}
    assert {h.document_id for h in docks.hits} == {"docks/power.md"}
    assert [h.rank for h in docks.hits] == list(range(1, len(docks.hits) + 1))
    assert nowhere.refused
    assert "among documents with path *.pdf" in str(nowhere.reason)
