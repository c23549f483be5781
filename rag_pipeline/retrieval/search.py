"""Search over an open build: hits with citations, or an honest refusal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_pipeline.core.errors import DamagedBuildError, QueryError
from rag_pipeline.index.builds import Build
from rag_pipeline.retrieval.citations import Citation, fragment, label, url
from rag_pipeline.retrieval.filters import SearchFilter
from rag_pipeline.retrieval.prompt import Source, build_prompt
from rag_pipeline.retrieval.rankers import RETRIEVERS, QueryContext, Ranking, Reranker
from rag_pipeline.retrieval.reader import BuildReader, ChunkPlace, StoredChunk

_SURROGATE = re.compile("[\ud800-\udfff]")

EncodeQuery = Callable[[str], NDArray[np.float32]]


@dataclass(frozen=True)
class Serving:
    """What readers are served with: the values that were gated."""

    mode: str
    k: int
    threshold: float
    reranker: str = ""
    reranker_fingerprint: str = ""
    """Identity of the cross-encoder that was gated; '' where none was."""


@dataclass(frozen=True)
class Hit:
    """One chunk that answers a query, with everything its citation needs."""

    rank: int
    """Place in the retriever's ranking, from 1, before the threshold."""
    chunk_id: str
    document_id: str
    document_name: str
    section: str
    label: str
    fragment: str
    url: str | None
    start: int
    """Start of the quote in the canonical text, in code points."""
    end: int
    lead_start: int
    """Start of the passage."""
    quote: str
    passage: str
    cosine_distance: float
    bm25_score: float | None
    """BM25 score, or None where the mode does not compute it."""
    score: float | None
    """The score the mode ranked by."""
    copies: tuple[Hit, ...] = ()
    """The same place in identical documents: one hit, more citations."""

    def to_json(self) -> dict[str, Any]:
        """Return the hit as a JSON object, offsets named `from` and `to`."""
        return {
            "rank": self.rank,
            "document_id": self.document_id,
            "document_name": self.document_name,
            "section": self.section,
            "label": self.label,
            "fragment": self.fragment,
            "url": self.url,
            "from": self.start,
            "to": self.end,
            "passage_from": self.lead_start,
            "quote": self.quote,
            "passage": self.passage,
            "cosine_distance": self.cosine_distance,
            "bm25_score": self.bm25_score,
            "score": self.score,
            "chunk_id": self.chunk_id,
            "copies": [
                {
                    "document_id": copy.document_id,
                    "document_name": copy.document_name,
                    "label": copy.label,
                    "fragment": copy.fragment,
                    "url": copy.url,
                }
                for copy in self.copies
            ],
        }


@dataclass(frozen=True)
class SearchResult:
    """Hits, or a refusal with its reason."""

    query: str
    mode: str
    k: int
    threshold: float
    build: str
    hits: tuple[Hit, ...]
    reason: str | None
    """Why nothing is returned; None where there are hits."""

    @property
    def refused(self) -> bool:
        """Whether the answer is a refusal: nothing lies below the threshold."""
        return not self.hits

    def to_json(self) -> dict[str, Any]:
        """Return the result as the JSON object that `rag-pipeline search --json` prints."""
        return {
            "query": self.query,
            "mode": self.mode,
            "refused": self.refused,
            "reason": self.reason,
            "threshold": self.threshold,
            "build": self.build,
            "hits": [hit.to_json() for hit in self.hits],
        }


@dataclass(frozen=True)
class Context:
    """What a generator gets: the prompt and the citations its markers stand for. Empty on a refusal."""

    query: str
    refused: bool
    reason: str | None
    prompt: str
    tokens: int
    """Length of the prompt in word pieces of the encoder's own tokenizer."""
    citations: tuple[Citation, ...]
    build: str

    def to_json(self) -> dict[str, Any]:
        """Return the context as a JSON object."""
        return {
            "query": self.query,
            "refused": self.refused,
            "reason": self.reason,
            "prompt": self.prompt,
            "tokens": self.tokens,
            "citations": [citation.to_json() for citation in self.citations],
            "build": self.build,
        }


class SearchIndex:
    """An open build that answers queries. Close it, or use it as a context manager; safe for several threads.

    What it returns is plain values; a build that is pruned or replaced while this is open goes on answering.
    """

    def __init__(
        self,
        build: Build,
        serving: Serving,
        encode: EncodeQuery,
        *,
        count_tokens: Callable[[str], int],
        reranker: Reranker | None = None,
        url_template: str = "",
        stamp: dict[str, Any] | None = None,
    ) -> None:
        self._reader = BuildReader(build)
        self._encode = encode
        self._count_tokens = count_tokens
        self._reranker = reranker
        self._url_template = url_template
        self._last: QueryContext | None = None
        self.serving = serving
        self.stamp: dict[str, Any] = {**self._reader.stamp, **(stamp or {})}
        """What made the build, and how it is served."""

    @property
    def build(self) -> str:
        """Id of the build."""
        return self._reader.build.id

    @property
    def modes(self) -> tuple[str, ...]:
        """Retrievers this index can answer with."""
        return tuple(n for n, r in RETRIEVERS.items() if self._reranker is not None or not r.needs_reranker)

    def search(
        self,
        query: str,
        mode: str | None = None,
        k: int | None = None,
        threshold: float | None = None,
        where: SearchFilter | None = None,
    ) -> SearchResult:
        """Return the hits of a query, or a refusal.

        `where` restricts the answer to some documents; figures of the evaluation are without any filter.

        Takes the first `k` chunks of the mode's ranking and keeps those whose cosine distance lies strictly below
        `threshold`; each is what was gated at publication unless given. Raises `QueryError` for an empty query, an
        unknown mode, a k that is no whole number from 1, or a threshold outside [0, 2].
        """
        mode = self.serving.mode if mode is None else mode
        k = self.serving.k if k is None else k
        threshold = self.serving.threshold if threshold is None else threshold
        _check_query(query, k, threshold)
        k, threshold = int(k), float(threshold)  # NumPy's numbers do not serialise
        retriever = RETRIEVERS[self._check_mode(mode)]
        context = self._context(query, where)
        ranking = retriever.rank(context, k)
        kept = [place for place in range(len(ranking.rows)) if ranking.distances[place] < threshold]
        chunks = self._reader.chunks([int(ranking.rows[place]) for place in kept])

        def hit(chunk: StoredChunk, place: int) -> Hit:
            bm25 = context.bm25_score(chunk.row) if retriever.uses_bm25 else None
            return self._hit(chunk, place, ranking, bm25)

        hits = tuple(
            replace(
                hit(chunk, place),
                copies=tuple(hit(copy, place) for copy in self._reader.chunks(context.copies_of(chunk.row))),
            )
            for place, chunk in zip(kept, chunks, strict=True)
        )
        reason = None if hits else _refusal(query, threshold, ranking, where)
        return SearchResult(query, mode, k, threshold, self.build, hits, reason)

    def context(
        self,
        query: str,
        mode: str | None = None,
        k: int | None = None,
        threshold: float | None = None,
        where: SearchFilter | None = None,
    ) -> Context:
        """Return the prompt for a generator and the citations for its markers; an empty prompt on a refusal.

        On a refusal no generator is to be called: the reason is the answer.
        """
        result = self.search(query, mode, k, threshold, where)
        if result.refused:
            return Context(query, True, result.reason, "", 0, (), self.build)
        prompt = build_prompt(query, [Source(h.document_name, h.label, h.passage) for h in result.hits])
        citations = tuple(
            citation_of(place, index)
            for index, hit in enumerate(result.hits, 1)
            for place in (hit, *hit.copies)
        )
        return Context(query, False, None, prompt, self._count_tokens(prompt), citations, self.build)

    def rank(self, mode: str, query: str) -> Ranking:
        """Return a mode's full ranking before any threshold, for evaluation."""
        return RETRIEVERS[self._check_mode(mode)].rank(self._context(query), None)

    def iter_chunks(self) -> Iterator[ChunkPlace]:
        """Yield every chunk's place, for evaluation."""
        return self._reader.places()

    def close(self) -> None:
        """Close the build's files."""
        self._reader.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_mode(self, mode: str) -> str:
        if mode not in RETRIEVERS:
            raise QueryError(f"mode {mode!r} is unknown: allowed are {', '.join(RETRIEVERS)}")
        if mode not in self.modes:
            raise QueryError(f"mode {mode!r} needs a cross-encoder: set retrieval.reranker")
        return mode

    def _context(self, query: str, where: SearchFilter | None = None) -> QueryContext:
        if where:
            allowed = self._reader.allowed_rows(where)
            return QueryContext(self._reader, query, self._encode, self._reranker, allowed)
        # Evaluation asks for the same query once a mode; its vector and scores are the same for each.
        last = self._last
        if last is None or last.query != query:
            last = QueryContext(self._reader, query, self._encode, self._reranker)
            self._last = last
        return last

    def _hit(self, chunk: StoredChunk, place: int, ranking: Ranking, bm25: float | None) -> Hit:
        score = float(ranking.scores[place])
        where = fragment(chunk.media_type, chunk.start, chunk.end, chunk.locator)
        return Hit(
            rank=place + 1,
            chunk_id=chunk.chunk_id,
            document_id=chunk.document_id,
            document_name=chunk.document_name,
            section=chunk.section,
            label=label(chunk.section or chunk.document_title, chunk.media_type, chunk.locator),
            fragment=where,
            url=url(self._url_template, chunk.document_id, where, chunk.media_type, chunk.content)
            if self._url_template
            else None,
            start=chunk.start,
            end=chunk.end,
            lead_start=chunk.lead_start,
            quote=chunk.content,
            passage=chunk.passage,
            cosine_distance=float(ranking.distances[place]),
            bm25_score=bm25,
            score=score if math.isfinite(score) else None,
        )


def citation_of(hit: Hit, index: int) -> Citation:
    """Return the citation that marker ``[index]`` stands for."""
    return Citation(
        index=index,
        document_id=hit.document_id,
        document_name=hit.document_name,
        label=hit.label,
        fragment=hit.fragment,
        url=hit.url,
        quote=hit.quote,
        start=hit.start,
        end=hit.end,
        passage_start=hit.lead_start,
        passage_end=hit.end,
        cosine_distance=hit.cosine_distance,
    )


def _check_query(query: Any, k: Any, threshold: Any) -> None:
    """Refuse what cannot be asked, in words; callers over HTTP or a tool protocol pass what users send."""
    if not isinstance(query, str):
        raise QueryError(f"the query is {query!r}: must be text")
    if not query.strip():
        raise QueryError("the query is empty: ask for something")
    if _SURROGATE.search(query):
        raise QueryError(f"the query {query!r} holds lone surrogates: it is no valid Unicode text")
    if not _is_number(k, Integral) or k < 1:
        raise QueryError(f"k = {k!r}: must be a whole number, 1 or more")
    if not _is_number(threshold, Real) or not 0 <= threshold <= 2:
        raise QueryError(f"threshold = {threshold!r}: a cosine distance is a number between 0 and 2")


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _refusal(query: str, threshold: float, ranking: Ranking, where: SearchFilter | None) -> str:
    among = f" among documents with {where.words()}" if where else ""
    if not len(ranking.rows):
        return f"refused: no chunk{among} matches {query!r} at all (threshold {threshold:g})"
    nearest = float(np.min(ranking.distances))
    return (
        f"refused: no chunk{among} lies below the distance threshold {threshold:g} for {query!r} "
        f"(the nearest of the first {len(ranking.rows)} lies at {nearest:.3f})"
    )


def check_encoder(stamp: dict[str, Any], words: str, fingerprint_id: str) -> None:
    """Raise `EncoderMismatchError` unless the encoder's fingerprint is the stamped one."""
    from rag_pipeline.core.errors import EncoderMismatchError
    from rag_pipeline.embedding.fingerprint import Fingerprint

    stamped = Fingerprint.from_json(stamp["embedding"])
    if stamped.id != stamp["embedding"]["id"]:
        raise DamagedBuildError(
            f"build {stamp['build']}: the stamped fingerprint is not the hash of its parts"
        )
    if stamped.id != fingerprint_id:
        raise EncoderMismatchError(
            f"build {stamp['build']} was made with {stamped.words()}, the query encoder is {words}: vectors of two "
            "encoders are not comparable. Set embedding.model to the former, or index again with the latter"
        )


__all__ = ["Context", "EncodeQuery", "Hit", "SearchIndex", "SearchResult", "Serving", "citation_of"]
