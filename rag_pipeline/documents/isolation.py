"""Extraction of many documents, each where it can do no harm: in a worker process with limits of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_pipeline.core.pool import Limits, TaskFailure, run_isolated
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, extract_bytes
from rag_pipeline.documents.source import Progress, SourceDocument, document_path
from rag_pipeline.documents.states import FailureReason

_REASONS = {
    TaskFailure.TIMEOUT: FailureReason.TIMEOUT,
    TaskFailure.OUT_OF_MEMORY: FailureReason.OUT_OF_MEMORY,
    TaskFailure.CRASHED: FailureReason.CRASHED,
}
_SETTINGS = {
    TaskFailure.TIMEOUT: "; extraction.timeout gives it more",
    TaskFailure.OUT_OF_MEMORY: "; extraction.memory_limit_mb gives it more",
    TaskFailure.CRASHED: "",
}


@dataclass(frozen=True)
class ExtractionJob:
    """A document to extract: its id, the sha256 that its bytes had when it was listed, and its media type."""

    document_id: str
    sha256: str
    media_type: str | None

    @classmethod
    def of(cls, source: SourceDocument) -> ExtractionJob:
        """Return the job of a listed document; ValueError for a skipped one, which has no content to read."""
        if source.sha256 is None:
            raise ValueError(f"{source.document_id} was skipped and cannot be extracted")
        return cls(source.document_id, source.sha256, source.media_type)


@dataclass(frozen=True)
class _Task:
    job: ExtractionJob
    path: Path
    options: ExtractionConfig


def extract_isolated(
    jobs: Iterable[ExtractionJob],
    options: ExtractionConfig,
    root: Path,
    progress: Progress | None = None,
) -> Iterator[tuple[ExtractionJob, Extracted]]:
    """Extract the documents of `jobs`, which lie below `root`; yield each with its outcome as it ends.

    The order is that in which documents end. A document that crashes its worker, takes more than
    `options.timeout` seconds or `options.memory_limit_mb` of memory ends as failed, and so does one whose
    bytes are no longer those that were listed (`changed`). Jobs are drawn as workers become free.
    """
    tasks = (_Task(job, document_path(root, job.document_id), options) for job in jobs)
    limits = Limits(options.timeout, options.memory_limit_mb * 2**20)
    for done, outcome in enumerate(run_isolated(_extract, tasks, limits=limits, workers=options.workers), 1):
        job = outcome.job.job
        if outcome.result is not None:
            extracted = outcome.result
        else:
            failure = outcome.failure or TaskFailure.CRASHED
            extracted = Extracted.failed(
                _REASONS[failure],
                f"extraction was ended: {outcome.message}{_SETTINGS[failure]}",
                media_type=job.media_type,
                seconds=options.timeout if failure is TaskFailure.TIMEOUT else None,
            )
        if progress is not None:
            progress(done, job.document_id)
        yield job, extracted


def _extract(task: _Task) -> Extracted:
    """Runs in the worker. Reads the file once, so that what was checked is what is extracted."""
    media_type = task.job.media_type
    try:
        data = task.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Extracted.failed(
            FailureReason.CHANGED, "the file vanished after it was listed", media_type=media_type
        )
    except OSError as error:
        return Extracted.failed(
            FailureReason.UNREADABLE,
            f"the file cannot be opened: {error.strerror or error}",
            media_type=media_type,
        )
    if hashlib.sha256(data).hexdigest() != task.job.sha256:
        return Extracted.failed(
            FailureReason.CHANGED, "the file changed after it was listed", media_type=media_type
        )
    return extract_bytes(data, media_type, task.options)
