"""What extraction gives for some files, outside the chain: the command `rag-pipeline extract`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted
from rag_pipeline.documents.isolation import ExtractionJob, extract_isolated
from rag_pipeline.documents.locators import LocatorSpan
from rag_pipeline.documents.source import describe_file, scan_source
from rag_pipeline.documents.states import DocumentState


def extract_paths(paths: Iterable[Path], options: ExtractionConfig) -> Iterator[dict[str, Any]]:
    """Yield a JSON-able report for each file below these paths, as the chain would extract it.

    Files of a folder are named relative to it, single files by their name; they come as their extraction ends.
    Raises `SourceError` for a path that does not exist.
    """
    for path in paths:
        root, listed = (path, scan_source(path)) if path.is_dir() else (path.parent, [describe_file(path)])
        for document in listed:
            if document.state is DocumentState.SKIPPED:
                reason = document.reason.value if document.reason else None
                yield _report(document.document_id, Extracted.skipped(reason), options)
        jobs = [ExtractionJob.of(d) for d in listed if d.state is DocumentState.LISTED]
        for job, outcome in extract_isolated(jobs, options, root):
            yield _report(job.document_id, outcome, options)


def _report(document_id: str, extracted: Extracted, options: ExtractionConfig) -> dict[str, Any]:
    canonical = canonicalise(document_id, extracted, options)
    return {
        "document_id": document_id,
        "status": canonical.state.value,
        "reason": canonical.reason.value if canonical.reason else None,
        "message": canonical.message,
        "title": canonical.title,
        "text": canonical.text,
        "locators": [_locator(span) for span in canonical.locators],
        "warnings": [_warning(w.kind.value, w.message, w.page) for w in canonical.warnings],
        "pages": [_page(p.page, p.ocr, p.confidence) for p in canonical.pages],
        "metadata": dict(canonical.metadata),
        "removed": dict(canonical.removed),
        "extractor": canonical.extractor,
        "extractor_version": canonical.extractor_version,
        "seconds": round(extracted.seconds or 0.0, 4),
    }


def _warning(kind: str, message: str, page: int | None) -> dict[str, Any]:
    return {"kind": kind, "message": message} | ({"page": page} if page is not None else {})


def _page(page: int, ocr: bool, confidence: float | None) -> dict[str, Any]:
    return {"page": page, "ocr": ocr} | ({"confidence": confidence} if confidence is not None else {})


def _locator(span: LocatorSpan) -> dict[str, Any]:
    place = span.locator
    result: dict[str, Any] = {"from": span.start, "to": span.end}
    if place.page is not None:
        result["page"] = place.page
    if place.t_start is not None:
        result["t"] = [place.t_start, place.t_end]
    if place.sheet is not None:
        result |= {"sheet": place.sheet, "range": place.range}
    if place.row_first is not None:
        result["row"] = [place.row_first, place.row_last]
    return result
