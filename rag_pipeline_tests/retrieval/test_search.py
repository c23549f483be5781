"""Searching an index: hits that quote their document to the character, or a refusal that says why."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_pipeline import open_index
from rag_pipeline.core.errors import EncoderMismatchError, QueryError
from rag_pipeline.core.storage import Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.encoder import open_encoder
from rag_pipeline.index.builds import list_builds
from rag_pipeline.retrieval.filters import SearchFilter
from rag_pipeline.retrieval.search import SearchIndex, SearchResult, citation_of
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings, run_chain
from rag_pipeline_tests.retrieval.test_rerank import build_cross_encoder

MODES = ["dense", "bm25", "hybrid"]


@pytest.fixture(scope="module")
def index(published: Settings) -> Iterator[SearchIndex]:
    with open_index(published) as opened:
        yield opened


@pytest.fixture(scope="module")
def large(published_large: Settings) -> Iterator[SearchIndex]:
    with open_index(published_large) as opened:
        yield opened


def canonical_texts(settings: Settings) -> dict[str, str]:
    (build,) = list_builds(Storage(settings.storage_root))
    return {row["document_id"]: row["text"] for row in read_rows(build.table("documents"))}


# -- hits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_quote_stands_where_it_says(published_large: Settings, large: SearchIndex, mode: str) -> None:
    texts = canonical_texts(published_large)
    result = large.search("lever of the spare saddle", mode=mode, k=183)
    assert len(result.hits) >= 100
    overlapping = 0
    for hit in result.hits:
        text = texts[hit.document_id]
        assert hit.quote == text[hit.start : hit.end]
        assert hit.passage == text[hit.lead_start : hit.end]
        assert hit.passage.endswith(hit.quote)
        assert hit.quote == hit.quote.strip()
        assert not hit.passage.startswith("["), "no header is ever shown"
        assert f"\n## {hit.section}\n" in text[: hit.start], "its section stands above it"
        assert hit.fragment == f"#char={hit.start},{hit.end}"
        assert hit.label == hit.section
        overlapping += hit.lead_start < hit.start
        value = hit.to_json()
        assert (value["from"], value["to"], value["passage_from"]) == (hit.start, hit.end, hit.lead_start)
    assert [hit.rank for hit in result.hits] == list(range(1, len(result.hits) + 1))


def test_a_passage_with_overlap_begins_before_its_quote(make_settings: MakeSettings) -> None:
    settings = make_settings(
        chunking={"strategy": "B", "target": 60, "overlap": 20},
        evaluation={"questions": "", "out_of_domain": ""},
    )
    run_chain(settings)
    texts = canonical_texts(settings)
    with open_index(settings) as opened:
        hits = opened.search("pads", mode="dense", k=100).hits
    assert sum(hit.lead_start < hit.start for hit in hits) > 5
    for hit in hits:
        assert hit.quote == texts[hit.document_id][hit.start : hit.end]
        assert hit.passage == texts[hit.document_id][hit.lead_start : hit.end]


def test_distances_are_the_encoders(index: SearchIndex, published: Settings, tiny_encoder: Path) -> None:
    encoder = open_encoder(EmbeddingConfig(model=str(tiny_encoder)))
    (build,) = list_builds(Storage(published.storage_root))
    texts = {c["chunk_id"]: c["text"] for c in read_rows(build.table("chunks"))}
    query = encoder.encode(["my pads look thin"])[0]
    for mode in MODES:
        for hit in index.search("my pads look thin", mode=mode, k=7).hits:
            vector = encoder.encode([texts[hit.chunk_id]])[0]
            assert hit.cosine_distance == pytest.approx(1 - float(vector @ query), abs=2e-6)
            assert hit.cosine_distance == round(hit.cosine_distance, 6)


def test_scores_that_a_mode_does_not_compute_are_null(index: SearchIndex) -> None:
    dense, bm25, hybrid = (index.search("green button", mode=mode, k=7) for mode in MODES)
    assert [hit.bm25_score for hit in dense.hits] == [None] * 7
    assert [hit.score for hit in dense.hits] == pytest.approx([1 - h.cosine_distance for h in dense.hits])
    assert len(bm25.hits) == 1, "no other chunk holds a word of the query"
    assert bm25.hits[0].bm25_score == bm25.hits[0].score
    by_id = {hit.chunk_id: hit for hit in hybrid.hits}
    assert len(by_id) == 7
    assert by_id[bm25.hits[0].chunk_id].bm25_score == bm25.hits[0].bm25_score
    assert [h.bm25_score for h in hybrid.hits if h.chunk_id != bm25.hits[0].chunk_id] == [0.0] * 6
    ranks = {hit.chunk_id: hit.rank for hit in dense.hits}
    for hit in hybrid.hits:
        expected = 1 / (60 + ranks[hit.chunk_id]) + (1 / 61 if hit.bm25_score else 0)
        assert hit.score == pytest.approx(expected, abs=1e-15)


def test_the_label_of_a_preamble_is_the_documents_title(index: SearchIndex) -> None:
    (hit,) = index.search("workshop", mode="bm25").hits
    assert (hit.section, hit.label) == ("", "Brake handbook")


def test_links_follow_the_template(published: Settings, index: SearchIndex) -> None:
    assert {hit.url for hit in index.search("tripped supply").hits} == {None}
    settings = published.replace(source={"url_template": "https://kb/view?doc={document_id}"})
    with open_index(settings) as linked:
        hit = linked.search("green button", mode="bm25").hits[0]
        assert hit.url == f"https://kb/view?doc=docks/power.md#char={hit.start},{hit.end}"
        assert linked.context("green button", mode="bm25").citations[0].url == hit.url


# -- what is served -----------------------------------------------------------------------------------------


def test_mode_k_and_threshold_are_the_published_ones(
    make_settings: MakeSettings, published: Settings
) -> None:
    """What was gated is what is served, whatever the reader's settings say."""
    settings = make_settings(retrieval={"mode": "dense", "k": 3, "threshold": 1.5})
    run_chain(settings)
    with open_index(settings.replace(retrieval={"mode": "bm25", "k": 1, "threshold": 0.1})) as opened:
        result = opened.search("pads")
        assert (result.mode, result.k, result.threshold, len(result.hits)) == ("dense", 3, 1.5, 3)
        assert opened.stamp["serving"] == {"mode": "dense", "k": 3, "threshold": 1.5, "reranker": ""}
        asked = opened.search("pads", mode="bm25", k=1, threshold=2)
        assert (asked.mode, asked.k, asked.threshold, len(asked.hits)) == ("bm25", 1, 2.0, 1)
        assert opened.context("pads").citations == tuple(
            citation_of(hit, n) for n, hit in enumerate(result.hits, 1)
        )


@pytest.mark.parametrize("mode", MODES)
def test_the_threshold_keeps_what_lies_strictly_below(index: SearchIndex, mode: str) -> None:
    everything = index.search("brakes and pads of the supply", mode=mode, k=4).hits
    distances = [hit.cosine_distance for hit in everything]
    for at in sorted(distances):
        kept = index.search("brakes and pads of the supply", mode=mode, k=4, threshold=at)
        assert [h.chunk_id for h in kept.hits] == [h.chunk_id for h in everything if h.cosine_distance < at]
        assert [h.rank for h in kept.hits] == [h.rank for h in everything if h.cosine_distance < at], (
            "as ranked"
        )
        above = index.search("brakes and pads of the supply", mode=mode, k=4, threshold=math.nextafter(at, 2))
        assert [h.chunk_id for h in above.hits] == [h.chunk_id for h in everything if h.cosine_distance <= at]


def test_the_threshold_does_not_reach_beyond_k(index: SearchIndex) -> None:
    """A nearer chunk at rank 5 does not step in for a farther one at rank 4."""
    ranked = index.search("parking supply pads", mode="bm25", k=7).hits
    distances = [hit.cosine_distance for hit in ranked]
    nearest = distances.index(min(distances))
    assert nearest > 0, "the test needs a query whose first hit is not its nearest"
    assert index.search(
        "parking supply pads", mode="bm25", k=nearest, threshold=min(distances[:nearest])
    ).refused


def test_k_beyond_the_index_gives_what_there_is(index: SearchIndex) -> None:
    assert len(index.search("pads", k=10**12).hits) == 7


# -- refusals -----------------------------------------------------------------------------------------------


def test_a_refusal_names_the_threshold_and_the_query(index: SearchIndex) -> None:
    nearest = min(hit.cosine_distance for hit in index.search("passports?").hits)
    result = index.search("passports?", threshold=0.001)
    assert result.refused and result.hits == ()
    assert result.reason == (
        "refused: no chunk lies below the distance threshold 0.001 for 'passports?' "
        f"(the nearest of the first 4 lies at {nearest:.3f})"
    )
    assert not index.search("passports?").refused
    assert index.search("passports?").reason is None


def test_a_query_that_matches_no_word(index: SearchIndex) -> None:
    result = index.search("xyzzy", mode="bm25", threshold=0.675)
    assert result.reason == "refused: no chunk matches 'xyzzy' at all (threshold 0.675)"


def test_a_refused_context_calls_nothing(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("called on a refusal")

    monkeypatch.setattr("rag_pipeline.retrieval.search.build_prompt", never)
    monkeypatch.setattr(index, "_count_tokens", never)
    context = index.context("passports?", threshold=0)
    assert (context.refused, context.prompt, context.tokens, context.citations) == (True, "", 0, ())
    assert context.reason == index.search("passports?", threshold=0).reason
    with pytest.raises(AssertionError, match="called on a refusal"):
        index.context("passports?")


# -- what cannot be asked -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": ""}, "the query is empty: ask for something"),
        ({"query": " \n\t"}, "the query is empty"),
        ({"query": None}, "the query is None: must be text"),
        ({"query": 3}, "the query is 3: must be text"),
        ({"query": "brake \udcff"}, r"the query 'brake \\udcff' holds lone surrogates"),
        ({"mode": "sparse"}, "mode 'sparse' is unknown: allowed are dense, bm25, hybrid, reranked"),
        ({"mode": ""}, "mode '' is unknown"),
        ({"mode": "reranked"}, r"mode 'reranked' needs a cross-encoder: set retrieval\.reranker"),
        ({"k": 0}, "k = 0: must be a whole number, 1 or more"),
        ({"k": -1}, "k = -1: must be"),
        ({"k": 2.0}, r"k = 2\.0: must be"),
        ({"k": "4"}, "k = '4': must be"),
        ({"k": True}, "k = True: must be"),
        ({"threshold": -0.1}, r"threshold = -0\.1: a cosine distance is a number between 0 and 2"),
        ({"threshold": 2.01}, r"threshold = 2\.01: a cosine"),
        ({"threshold": float("nan")}, "threshold = nan: a cosine"),
        ({"threshold": "0.5"}, r"threshold = '0\.5': a cosine"),
        ({"threshold": False}, "threshold = False: a cosine"),
    ],
)
def test_a_bad_argument_is_named(index: SearchIndex, arguments: dict[str, Any], message: str) -> None:
    for ask in (index.search, index.context):
        with pytest.raises(QueryError, match=message):
            ask(**{"query": "pads", **arguments})


def test_numbers_of_numpy_are_numbers(index: SearchIndex) -> None:
    result = index.search("pads", k=np.int64(2), threshold=np.float32(1.5))  # type: ignore[arg-type]
    assert (result.k, result.threshold, len(result.hits)) == (2, 1.5, 2)
    json.dumps(result.to_json())


@pytest.mark.parametrize("query", ["pads\0thin", "😀", "٣ مفتاح", "x " * 5000, "' OR 1=1; --", "%"])
def test_any_text_can_be_asked(index: SearchIndex, query: str) -> None:
    assert len(index.search(query, mode="dense").hits) == 4
    json.dumps(index.search(query).to_json(), ensure_ascii=False).encode()


# -- shapes -------------------------------------------------------------------------------------------------

# SPEC 6, and what is added to it: a link, the start of the passage, the chunk.
RESULT_KEYS = ["query", "mode", "refused", "reason", "threshold", "build", "hits"]
HIT_KEYS = (
    "rank document_id document_name section label fragment from to quote passage cosine_distance bm25_score score"
).split()
ADDED = ["url", "passage_from", "chunk_id", "copies"]


def test_the_json_of_a_result(index: SearchIndex, published: Settings) -> None:
    value = json.loads(json.dumps(index.search("green button", mode="bm25").to_json()))
    assert list(value) == RESULT_KEYS
    (hit,) = value["hits"]
    assert sorted(hit) == sorted(HIT_KEYS + ADDED)
    text = canonical_texts(published)["docks/power.md"]
    start = text.index("Press the green")
    assert {
        k: v for k, v in hit.items() if k not in ("chunk_id", "bm25_score", "score", "cosine_distance")
    } == {
        "rank": 1,
        "document_id": "docks/power.md",
        "document_name": "power.md",
        "section": "Reset",
        "label": "Reset",
        "fragment": f"#char={start},{start + 67}",
        "url": None,
        "from": start,
        "to": start + 67,
        "passage_from": start,
        "quote": "Press the green button for six seconds to restart a tripped supply.",
        "passage": "Press the green button for six seconds to restart a tripped supply.",
        "copies": [],
    }
    assert (value["query"], value["mode"], value["refused"], value["reason"], value["threshold"]) == (
        "green button",
        "bm25",
        False,
        None,
        2.0,
    )
    assert value["build"] == index.build
    refused = index.search("green button", threshold=0).to_json()
    assert list(refused) == RESULT_KEYS
    assert (refused["refused"], refused["hits"]) == (True, [])
    dense = json.loads(json.dumps(index.search("green button", mode="dense").to_json()))
    assert [hit["bm25_score"] for hit in dense["hits"]] == [None] * 4


def test_a_context_is_the_passages_and_their_citations(index: SearchIndex) -> None:
    query = "How do I restart a tripped supply?"
    context, result = index.context(query), index.search(query)
    assert not context.refused and context.reason is None
    assert [c.index for c in context.citations] == [1, 2, 3, 4]
    for citation, hit in zip(context.citations, result.hits, strict=True):
        assert (citation.document_id, citation.document_name, citation.label) == (
            hit.document_id,
            hit.document_name,
            hit.label,
        )
        assert (citation.quote, citation.start, citation.end) == (hit.quote, hit.start, hit.end)
        assert (citation.passage_start, citation.passage_end) == (hit.lead_start, hit.end)
        assert citation.cosine_distance == hit.cosine_distance
        assert citation.fragment == hit.fragment
        assert hit.passage in context.prompt
        assert f"[{citation.index}]" in context.prompt
    assert context.prompt.endswith(f"Question: {query}")
    value = json.loads(json.dumps(context.to_json()))
    assert list(value) == ["query", "refused", "reason", "prompt", "tokens", "citations", "build"]
    assert (
        list(value["citations"][0])
        == (
            "index document_id document_name label fragment url quote from to passage_from passage_to cosine_distance"
        ).split()
    )


def test_the_prompts_length_is_in_pieces_of_the_encoder(index: SearchIndex, tiny_encoder: Path) -> None:
    context = index.context("Are parking fines refunded?", k=1)
    encoder = open_encoder(EmbeddingConfig(model=str(tiny_encoder)))
    assert context.tokens == encoder.pieces([context.prompt])[0].count > 100


# -- re-ranking ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("cross-encoder") / "tiny")


def test_reranked_can_be_asked_for_where_a_cross_encoder_is_set(
    published: Settings, cross_encoder: Path
) -> None:
    """Published is hybrid; the reader's settings name a cross-encoder."""
    from rag_pipeline.retrieval.rerank import CrossEncoderReranker

    with open_index(published.replace(retrieval={"reranker": str(cross_encoder)})) as opened:
        assert opened.modes == ("dense", "bm25", "hybrid", "reranked")
        assert opened.search("brake pad").mode == "hybrid"
        result = opened.search("brake pad", mode="reranked", k=7)
        texts = {c.chunk_id: c.text for c in opened._reader.chunks(range(7))}
        scores = CrossEncoderReranker(str(cross_encoder)).scores(
            "brake pad", [texts[hit.chunk_id] for hit in result.hits]
        )
        assert [hit.score for hit in result.hits] == pytest.approx(list(scores), abs=1e-5)
        assert list(scores) == sorted(scores, reverse=True)
        hybrid = opened.search("brake pad", mode="hybrid", k=7)
        assert {h.chunk_id: h.bm25_score for h in result.hits} == {
            h.chunk_id: h.bm25_score for h in hybrid.hits
        }
        assert all(hit.bm25_score is not None for hit in result.hits)


def test_a_published_cross_encoder_is_the_one_that_serves(
    make_settings: MakeSettings, cross_encoder: Path
) -> None:
    settings = make_settings(retrieval={"mode": "reranked", "reranker": str(cross_encoder)})
    run_chain(settings)
    with open_index(settings.replace(retrieval={"reranker": "/no/such/model"})) as opened:
        assert opened.serving.reranker == str(cross_encoder)
        result = opened.search("brake pad")
        assert result.mode == "reranked"
        assert len(result.hits) == 4
        json.dumps(result.to_json())


def test_another_cross_encoder_under_the_gated_name_is_refused(
    make_settings: MakeSettings, cross_encoder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(cross_encoder, tmp_path / "cross-encoder")
    settings = make_settings(retrieval={"mode": "reranked", "reranker": str(copy)})
    run_chain(settings)
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(
        EncoderMismatchError, match=r"was gated with the cross-encoder .* put the former back"
    ):
        open_index(settings)


def test_beyond_the_shortlist_a_hit_has_no_score(published_large: Settings, cross_encoder: Path) -> None:
    with open_index(published_large.replace(retrieval={"reranker": str(cross_encoder)})) as opened:
        hits = opened.search("lever", mode="reranked", k=30).hits
    assert [hit.score is None for hit in hits] == [False] * 25 + [True] * 5


# -- several at once ----------------------------------------------------------------------------------------


def test_threads_share_an_index(published_large: Settings) -> None:
    questions = [
        ("lever bell", "hybrid"),
        ("rider of the dock", "dense"),
        ("saddle", "bm25"),
        ("kerb fare", "hybrid"),
    ]
    with open_index(published_large) as opened:
        expected = {q: opened.search(*q, k=20) for q in questions}
    found: list[tuple[tuple[str, str], SearchResult]] = []
    errors: list[BaseException] = []

    with open_index(published_large) as opened:  # anew: the first queries load the encoder

        def work(number: int) -> None:
            try:
                for turn in range(12):
                    question = questions[(number + turn) % len(questions)]
                    found.append((question, opened.search(*question, k=20)))
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert len(found) == 60
    assert all(result == expected[question] for question, result in found)


def test_a_result_outlives_its_index(published: Settings) -> None:
    with open_index(published) as opened:
        result = opened.search("pads")
    assert result.hits[0].passage
    assert replace(result, k=1).build == result.build


def test_the_full_ranking_is_before_any_threshold(index: SearchIndex) -> None:
    assert len(index.rank("dense", "passports").rows) == 7
    with pytest.raises(QueryError, match="mode 'sparse' is unknown"):
        index.rank("sparse", "passports")
    assert len(list(index.iter_chunks())) == 7


# -- identical documents ------------------------------------------------------------------------------------


@pytest.fixture
def with_a_copy(make_settings: MakeSettings) -> Settings:
    """The published corpus with a second copy of one document under another name."""
    settings = make_settings(evaluation={"questions": "", "out_of_domain": ""})
    source = Path(settings.source.path)
    (source / "archive").mkdir()
    shutil.copyfile(source / "refunds.md", source / "archive" / "old-refunds.md")
    assert run_chain(settings)["extracted_documents"].result.worked == 3
    return settings


@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_identical_documents_are_one_hit_with_two_citations(with_a_copy: Settings, mode: str) -> None:
    query = "Parking fines are never refunded"
    with open_index(with_a_copy) as opened:
        hits = opened.search(query, mode=mode, k=50).hits
        assert len({(h.quote, h.section) for h in hits}) == len(hits)
        fines = next(h for h in hits if "Parking fines" in h.quote)
        both = {fines.document_id, *(copy.document_id for copy in fines.copies)}
        assert both == {"refunds.md", "archive/old-refunds.md"}
        assert fines.copies[0].quote == fines.quote
        assert [h.rank for h in hits] == list(range(1, len(hits) + 1))
        assert fines.to_json()["copies"][0]["fragment"] == fines.fragment
        assert opened.search(query, mode=mode, k=2).hits == hits[:2]
        assert len(opened.rank(mode, query).rows) == len(hits)

        context = opened.context(query, mode=mode, k=50)
        cited = [c for c in context.citations if c.index == fines.rank]
        assert {c.document_id for c in cited} == both
        assert len({c.quote for c in cited}) == 1

        alone = opened.search(query, mode=mode, k=50, where=SearchFilter(["archive/*"])).hits
        assert {h.document_id for h in alone} == {"archive/old-refunds.md"}
        assert all(h.copies == () for h in alone)


def test_without_identical_documents_no_hit_has_copies(published: Settings) -> None:
    with open_index(published) as opened:
        assert all(h.copies == () for h in opened.search("brake", k=50).hits)
