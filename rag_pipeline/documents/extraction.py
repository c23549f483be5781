"""From the bytes of one file to its text in pieces with their places, or to a named failure.

`extract_file` is the one door: the pipeline (through `isolation`), the command line and the tests use it.
Formats are objects in `registry`, one module each; they take bytes and return a `Content` or raise
`ExtractionFailure`. They do not know the file's name: two files of the same bytes give the same outcome, and
it can be remembered by content.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.media_types import contradiction
from rag_pipeline.documents.registry import EXTRACTORS, extractor_for
from rag_pipeline.documents.states import DocumentState, FailureReason, SkipReason, WarningKind

if TYPE_CHECKING:
    from rag_pipeline.documents.config import ExtractionConfig
    from rag_pipeline.documents.source import SourceDocument


@dataclass(frozen=True)
class Segment:
    """A piece of a document's Markdown text, with its separators, and its place in the file.

    The texts of a document's segments, one after the other, are its text: nothing is put between them.
    """

    text: str
    locator: Locator = field(default_factory=Locator)


@dataclass(frozen=True)
class ExtractionWarning:
    """What was seen while reading and what it means for the text; `page` counts from 1."""

    kind: WarningKind
    message: str
    page: int | None = None


@dataclass(frozen=True)
class PageInfo:
    """A page or slide, from 1; `confidence` is the mean OCR confidence in [0, 1], None without OCR."""

    page: int
    ocr: bool = False
    confidence: float | None = None


@dataclass(frozen=True)
class Content:
    """What an extractor gives for a file it could read."""

    segments: tuple[Segment, ...]
    raw_text: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[ExtractionWarning, ...] = ()
    pages: tuple[PageInfo, ...] = ()


class ExtractionFailure(Exception):
    """Raised by an extractor for a file it cannot read; carries what was noticed before it gave up."""

    def __init__(
        self, reason: FailureReason, message: str, warnings: tuple[ExtractionWarning, ...] = ()
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.warnings = warnings


@dataclass(frozen=True)
class Extracted:
    """What became of one file: extracted with its pieces, failed with a reason, or skipped with a reason."""

    state: DocumentState
    reason: FailureReason | SkipReason | None = None
    message: str | None = None
    extractor: str | None = None
    extractor_version: str | None = None
    seconds: float | None = None
    warnings: tuple[ExtractionWarning, ...] = ()
    pages: tuple[PageInfo, ...] = ()
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    raw_text: str = ""

    @classmethod
    def failed(
        cls,
        reason: FailureReason,
        message: str,
        *,
        media_type: str | None = None,
        seconds: float | None = None,
    ) -> Extracted:
        """Return a failure; with a media type it names the extractor that was to read the file."""
        extractor = extractor_for(media_type)
        return cls(
            DocumentState.FAILED,
            reason,
            message,
            extractor=extractor.name if extractor else None,
            extractor_version=extractor.version if extractor else None,
            seconds=seconds,
        )

    @classmethod
    def skipped(cls, reason: str | None) -> Extracted:
        """Return the outcome of an entry that the listing skipped for `reason`."""
        return cls(DocumentState.SKIPPED, SkipReason(reason) if reason else None)

    @property
    def characters(self) -> int:
        """Code points that this outcome holds: its text and its raw text."""
        return len(self.raw_text) + sum(len(segment.text) for segment in self.segments)

    def to_row(self, source: SourceDocument) -> dict[str, Any]:
        """Return the row of the table `extracted_documents` for the listed document `source`."""
        return {
            "document_id": source.document_id,
            "sha256": source.sha256,
            "size": source.size,
            "media_type": source.media_type,
            "state": self.state.value,
            "reason": self.reason.value if self.reason else None,
            "message": encodable(self.message),
            "extractor": self.extractor,
            "extractor_version": self.extractor_version,
            "seconds": self.seconds,
            "warnings": warning_rows(self.warnings),
            "pages": [asdict(page) for page in self.pages],
            "title": encodable(self.title),
            "metadata": metadata_json(self.metadata),
            "segments": [
                {"text": encodable(segment.text), **segment.locator.to_dict()} for segment in self.segments
            ],
            "raw_text": encodable(self.raw_text),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Extracted:
        """Return the outcome that a row of the table `extracted_documents` holds."""
        state = DocumentState(row["state"])
        return cls(
            state=state,
            reason=reason_of(state, row["reason"]),
            message=row["message"],
            extractor=row["extractor"],
            extractor_version=row["extractor_version"],
            seconds=row["seconds"],
            warnings=warnings_of(row["warnings"]),
            pages=tuple(PageInfo(**page) for page in row["pages"]),
            title=row["title"],
            metadata=json.loads(row["metadata"]),
            segments=tuple(
                Segment(segment["text"], Locator.from_dict(segment)) for segment in row["segments"]
            ),
            raw_text=row["raw_text"],
        )


def extract_file(path: Path, media_type: str | None, options: ExtractionConfig) -> Extracted:
    """Return what extraction gives for the file at `path`, read in this process and without limits.

    Bad input never raises: it ends as `failed` with a reason. See `isolation.extract_isolated` for limits on
    time and memory.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        return Extracted.failed(
            FailureReason.UNREADABLE,
            f"the file cannot be opened: {error.strerror or error}",
            media_type=media_type,
        )
    try:
        return extract_bytes(data, media_type, options)
    except MemoryError:
        return Extracted.failed(
            FailureReason.OUT_OF_MEMORY, "there was not enough memory to read the file", media_type=media_type
        )


def extract_bytes(data: bytes, media_type: str | None, options: ExtractionConfig) -> Extracted:
    """Return what extraction gives for the bytes of a file of this media type.

    Bad input never raises; only MemoryError passes, since the process it happened in should not go on.
    """
    started = time.perf_counter()
    extractor = extractor_for(media_type)
    try:
        if not data:
            raise ExtractionFailure(FailureReason.EMPTY, "the file has no bytes")
        if extractor is None:
            raise ExtractionFailure(
                FailureReason.UNSUPPORTED, f"no extractor reads {media_type or 'files of this kind'}"
            )
        other = contradiction(media_type, data)
        if other is not None:
            raise ExtractionFailure(
                FailureReason.WRONG_TYPE, f"the file is named as {media_type} and holds {other}"
            )
        content = extractor.extract(data, options)
        outcome = _succeeded(content, options)
    except ExtractionFailure as failure:
        outcome = Extracted(DocumentState.FAILED, failure.reason, failure.message, warnings=failure.warnings)
    except MemoryError:
        raise
    except RecursionError:
        outcome = Extracted(
            DocumentState.FAILED, FailureReason.CORRUPT, "the file is nested too deeply to be read"
        )
    except Exception as error:  # noqa: BLE001 - parsers fed with damaged bytes raise anything; it is recorded
        outcome = Extracted(
            DocumentState.FAILED,
            FailureReason.CORRUPT,
            f"the file cannot be read: {type(error).__name__}: {error}"[:500],
        )
    return replace(
        outcome,
        extractor=extractor.name if extractor else None,
        extractor_version=extractor.version if extractor else None,
        seconds=time.perf_counter() - started,
    )


def _succeeded(content: Content, options: ExtractionConfig) -> Extracted:
    outcome = Extracted(
        DocumentState.EXTRACTED,
        warnings=content.warnings,
        pages=content.pages,
        title=content.title,
        metadata=content.metadata,
        segments=content.segments,
        raw_text=content.raw_text,
    )
    # UTF-8 takes at least a byte a code point, so this never refuses what would have fitted by half.
    if outcome.characters > options.max_output_mb * 2**20:
        raise ExtractionFailure(
            FailureReason.TOO_LARGE,
            f"the file gives more than {options.max_output_mb} MiB of text; "
            "raise extraction.max_output_mb to keep it",
            content.warnings,
        )
    return outcome


def extractor_versions() -> dict[str, str]:
    """Return the version of every extractor by its name, with the libraries it uses; imports none of them."""
    return {extractor.name: extractor.version for extractor in EXTRACTORS}


# Helpers that the canonical table shares.


def encodable(text: str | None) -> Any:
    """Return `text` as UTF-8 can hold it: half characters (lone surrogates) become U+FFFD."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """Return `metadata` as a JSON object with sorted keys."""
    return json.dumps(dict(metadata), ensure_ascii=True, sort_keys=True, allow_nan=False)


def warning_rows(warnings: tuple[ExtractionWarning, ...]) -> list[dict[str, Any]]:
    """Return warnings as the Arrow struct `WARNING` wants them."""
    return [
        {"kind": warning.kind.value, "message": encodable(warning.message), "page": warning.page}
        for warning in warnings
    ]


def warnings_of(rows: list[Mapping[str, Any]]) -> tuple[ExtractionWarning, ...]:
    """Return the warnings that `warning_rows` wrote."""
    return tuple(ExtractionWarning(WarningKind(row["kind"]), row["message"], row["page"]) for row in rows)


def reason_of(state: DocumentState, word: str | None) -> FailureReason | SkipReason | None:
    """Return the reason a table's word stands for; the enumeration depends on the state."""
    if word is None:
        return None
    return SkipReason(word) if state is DocumentState.SKIPPED else FailureReason(word)
