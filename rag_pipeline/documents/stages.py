"""The document stages of the chain as functions on stored tables: list, extract, make canonical.

What was done before for the same bytes and the same extractor is taken from the memo; failures are remembered
like results. Rows stand in the order of the document ids, so that equal content gives equal tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rag_pipeline.core.memo import Memo
from rag_pipeline.core.schemas import CANONICAL_DOCUMENTS, EXTRACTED_DOCUMENTS, SOURCE_DOCUMENTS
from rag_pipeline.core.storage import Storage, canonical_json, sha256_text, version_of
from rag_pipeline.core.tables import TableWriter, read_rows
from rag_pipeline.documents.canonical import CANONICAL_VERSION, canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, extractor_versions
from rag_pipeline.documents.isolation import ExtractionJob, extract_isolated
from rag_pipeline.documents.registry import EXTRACTORS, extractor_for
from rag_pipeline.documents.source import SourceDocument, scan_source
from rag_pipeline.documents.states import RETRYABLE, DocumentState

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StageResult:
    """A written table, and how much work it took, counted after it was written."""

    table: Path
    rows: int
    data_version: str
    worked: int = 0
    """Documents this run did the work for."""
    remembered: int = 0
    """Documents whose result was known."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows by state."""


def list_source(
    root: Path, storage: Storage, progress: Callable[[int, str], None] | None = None
) -> StageResult:
    """Write the manifest of the source folder; its data version is the hash of what lies there."""
    documents = scan_source(root, progress)
    with TableWriter(storage, SOURCE_DOCUMENTS) as writer:
        writer.write(document.to_row() for document in documents)
    return StageResult(
        writer.path, writer.rows, writer.data_version, counts=_count(d.state.value for d in documents)
    )


def extraction_version(options: ExtractionConfig) -> dict[str, Any]:
    """Return what decides extracted text besides the files: versions and settings of the extractors.

    Limits of time and memory do not: what they end is tried again.
    """
    settings = {name: getattr(options, name) for extractor in EXTRACTORS for name in extractor.settings}
    return {**extractor_versions(), **settings}


def canonical_version(options: ExtractionConfig) -> dict[str, Any]:
    """Return what decides canonical text besides the extracted documents."""
    return {
        "version": CANONICAL_VERSION,
        "remove_references": options.remove_references,
        "remove_front_matter": options.remove_front_matter,
    }


def _extraction_namespace(media_type: str | None, options: ExtractionConfig) -> str:
    extractor = extractor_for(media_type)
    if extractor is None:
        return f"extraction/none/{version_of('0', media_type)}"
    settings = {name: getattr(options, name) for name in extractor.settings}
    return f"extraction/{extractor.name}/{version_of(extractor.version, media_type, settings)}"


def extract_documents(
    sources: Path,
    root: Path,
    storage: Storage,
    memo: Memo,
    options: ExtractionConfig,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> StageResult:
    """Extract every listed document and write the table of what came out.

    Identical files are extracted once. Each document that needs work runs in a worker process of its own; a
    document that fails keeps its reason and leaves the others alone. A failure is tried again when its reason may
    pass (time-out, memory, crash), its extractor's version changed, or with `retry_failed`.
    """
    jobs: dict[tuple[str, str], ExtractionJob] = {}
    fresh: set[tuple[str, str]] = set()
    listed = 0
    for source in _sources(sources):
        if source.state is not DocumentState.LISTED or source.sha256 is None:
            continue
        listed += 1
        key = (_extraction_namespace(source.media_type, options), source.sha256)
        if key in jobs or key in fresh:
            continue
        if _needs_work(memo.get(*key), retry_failed):
            jobs[key] = ExtractionJob.of(source)
        else:
            fresh.add(key)
    for done, (job, outcome) in enumerate(extract_isolated(list(jobs.values()), options, root), 1):
        memo.put(
            _extraction_namespace(job.media_type, options),
            job.sha256,
            canonical_json(_to_memo(outcome)).encode(),
        )
        if progress is not None:
            progress(done, len(jobs))
    states: list[str] = []
    with TableWriter(storage, EXTRACTED_DOCUMENTS) as writer:
        for source in _sources(sources):
            if source.state is not DocumentState.LISTED or source.sha256 is None:
                outcome = Extracted.skipped(source.reason.value if source.reason else None)
            else:
                value = memo.get(_extraction_namespace(source.media_type, options), source.sha256)
                assert value is not None, source.document_id
                outcome = _from_memo(value)
            states.append(outcome.state.value)
            writer.write([outcome.to_row(source)])
    return StageResult(
        writer.path, writer.rows, writer.data_version, len(jobs), listed - len(jobs), _count(states)
    )


def canonicalise_documents(
    extracted: Path,
    storage: Storage,
    memo: Memo,
    options: ExtractionConfig,
    progress: Progress | None = None,
) -> StageResult:
    """Write every document's final state and canonical text, remembered by what was extracted and its name."""
    namespace = f"canonical/{version_of(canonical_version(options))}"
    worked = remembered = 0
    states: list[str] = []
    with TableWriter(storage, CANONICAL_DOCUMENTS) as writer:
        for row in read_rows(extracted, batch_rows=16):
            stable = {k: v for k, v in row.items() if k != "seconds"}
            key = sha256_text(canonical_json(stable))
            known = memo.get(namespace, key)
            if known is None:
                outcome = canonicalise(row["document_id"], Extracted.from_row(row), options)
                source = SourceDocument(
                    row["document_id"], row["size"], row["sha256"], row["media_type"], DocumentState.LISTED
                )
                result = outcome.to_row(source)
                memo.put(namespace, key, canonical_json(result).encode())
                worked += 1
            else:
                result = json.loads(known)
                remembered += 1
            states.append(result["state"])
            writer.write([result])
            if progress is not None:
                progress(len(states), 0)
    return StageResult(writer.path, writer.rows, writer.data_version, worked, remembered, _count(states))


def used_extractors(canonical: Path) -> dict[str, str]:
    """Return name and version of every extractor that made an indexed document of the table."""
    columns = ("state", "extractor", "extractor_version")
    return {
        str(row["extractor"]): str(row["extractor_version"])
        for row in read_rows(canonical, columns=columns)
        if row["state"] == DocumentState.INDEXED.value
    }


def _sources(table: Path) -> Iterator[SourceDocument]:
    return (SourceDocument.from_row(row) for row in read_rows(table))


def _needs_work(known: bytes | None, retry_failed: bool) -> bool:
    if known is None:
        return True
    outcome = _from_memo(known)
    if outcome.state is not DocumentState.FAILED:
        return False
    return retry_failed or outcome.reason in RETRYABLE


_NOWHERE = SourceDocument("", 0, None, None, DocumentState.LISTED)
_OF_SOURCE = frozenset(asdict(_NOWHERE)) - {"state", "reason"}


def _to_memo(outcome: Extracted) -> dict[str, Any]:
    return {k: v for k, v in outcome.to_row(_NOWHERE).items() if k not in _OF_SOURCE}


def _from_memo(value: bytes) -> Extracted:
    return Extracted.from_row(json.loads(value))


def _count(states: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts
