"""The canonical text: the one text of a document that every offset refers to (SPEC 3.3).

The steps, in order, all before any offset exists:
1. normal form C, `\\n` line ends, no byte order mark, control character or surrogate
   (`spanned_text.normalised`);
2. the title is taken: front matter, else the first `# ` line, else the file's name;
3. YAML front matter is removed (its other keys become metadata);
4. reference lists are removed: from a heading of any level whose title is one of `REFERENCE_TITLES` to the
   next heading of the same or a higher level;
5. the payload of base64 data (pictures pasted into a text) is removed;
6. where level-1 headings are several and level-2 ones none, every heading goes one level down.
Everything else stays: runs of blank lines, trailing blanks, the title line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents.extraction import (
    Extracted,
    ExtractionWarning,
    PageInfo,
    encodable,
    metadata_json,
    reason_of,
    warning_rows,
    warnings_of,
)
from rag_pipeline.documents.front_matter import FrontMatter, FrontMatterError, parse_front_matter
from rag_pipeline.documents.locators import Locator, LocatorSpan
from rag_pipeline.documents.markdown_structure import Heading, headings
from rag_pipeline.documents.spanned_text import Edit, SpannedText, normalised
from rag_pipeline.documents.states import DocumentState, FailureReason, SkipReason, WarningKind

if TYPE_CHECKING:
    from rag_pipeline.documents.config import ExtractionConfig
    from rag_pipeline.documents.source import SourceDocument

# Raised when the same extraction gives another canonical text.
CANONICAL_VERSION = "2"

# Titles (case folded, without numbering and marks) of sections that list sources and say nothing themselves.
REFERENCE_TITLES = frozenset(
    {
        "references",
        "reference list",
        "references and notes",
        "references cited",
        "bibliography",
        "works cited",
        "literature",
        "literature cited",
        "cited literature",
        "literatur",
        "literaturverzeichnis",
        "références",
        "bibliographie",
        "referencias",
        "bibliografía",
        "riferimenti",
        "bibliografia",
    }
)
_NUMBERING = re.compile(r"^(?:\d+(?:\.\d+)*\.?|[ivxlc]+\.|[a-z]\.)\s+")
_MARKS = " \t#*_:.[]"
_BASE64 = re.compile(r";base64,([A-Za-z0-9+/=]{64,})")
_NOWHERE = Locator()


@dataclass(frozen=True)
class Canonical:
    """A document in its final state; `text` is '' and `text_sha256` None where it is not indexed."""

    document_id: str
    name: str
    title: str
    state: DocumentState
    reason: FailureReason | SkipReason | None = None
    message: str | None = None
    extractor: str | None = None
    extractor_version: str | None = None
    text: str = ""
    text_sha256: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locators: tuple[LocatorSpan, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[ExtractionWarning, ...] = ()
    pages: tuple[PageInfo, ...] = ()

    def to_row(self, source: SourceDocument) -> dict[str, Any]:
        """Return the row of the table `canonical_documents` for the listed document `source`."""
        return {
            "document_id": self.document_id,
            "name": self.name,
            "title": self.title,
            "sha256": source.sha256,
            "size": source.size,
            "media_type": source.media_type,
            "state": self.state.value,
            "reason": self.reason.value if self.reason else None,
            "message": encodable(self.message),
            "extractor": self.extractor,
            "extractor_version": self.extractor_version,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "metadata": metadata_json(self.metadata),
            "locators": [span.to_dict() for span in self.locators],
            "removed": [{"kind": kind, "characters": count} for kind, count in sorted(self.removed.items())],
            "warnings": warning_rows(self.warnings),
            "pages": [asdict(page) for page in self.pages],
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Canonical:
        """Return the document that a row of the table `canonical_documents` holds."""
        state = DocumentState(row["state"])
        return cls(
            document_id=row["document_id"],
            name=row["name"],
            title=row["title"],
            state=state,
            reason=reason_of(state, row["reason"]),
            message=row["message"],
            extractor=row["extractor"],
            extractor_version=row["extractor_version"],
            text=row["text"],
            text_sha256=row["text_sha256"],
            metadata=json.loads(row["metadata"]),
            locators=tuple(LocatorSpan.from_dict(span) for span in row["locators"]),
            removed={item["kind"]: item["characters"] for item in row["removed"]},
            warnings=warnings_of(row["warnings"]),
            pages=tuple(PageInfo(**page) for page in row["pages"]),
        )


def canonicalise(document_id: str, extracted: Extracted, options: ExtractionConfig) -> Canonical:
    """Return the document `document_id` in its final state, with its canonical text where it has one.

    A failed or skipped document keeps its state and reason. A document without a single visible character
    fails as `no_text`.
    """
    name = PurePosixPath(document_id).name
    if extracted.state is not DocumentState.EXTRACTED:
        return _without_text(
            document_id, name, extracted, extracted.state, extracted.reason, extracted.message
        )
    content, removed = normalised((segment.text, segment.locator) for segment in extracted.segments)
    warnings = list(extracted.warnings)
    front_matter = None
    try:
        front_matter = parse_front_matter(content.text)
    except FrontMatterError as error:
        warnings.append(
            ExtractionWarning(
                WarningKind.FRONT_MATTER_UNREADABLE,
                f"the front matter stays in the text since it is not readable YAML: {error}"[:300],
            )
        )
    body_start = front_matter.end if front_matter else 0
    title = _title(front_matter, content.text[body_start:], name)
    if front_matter and options.remove_front_matter:
        content = _cut(content, [(0, body_start)], "front_matter", removed)
    if options.remove_references:
        content = _cut(content, _reference_sections(content.text), "references", removed)
    pictures = [match.span(1) for match in _BASE64.finditer(content.text)]
    content = _cut(content, pictures, "base64", removed)
    content = _with_sections(content)
    if not content.text.strip():
        return _without_text(
            document_id,
            name,
            extracted,
            DocumentState.FAILED,
            FailureReason.NO_TEXT,
            f"{name} was read and holds no text",
        )
    metadata = dict(extracted.metadata)
    if front_matter:
        metadata |= {key: value for key, value in front_matter.values.items() if key != "title"}
    return Canonical(
        document_id=document_id,
        name=name,
        title=title,
        state=DocumentState.INDEXED,
        extractor=extracted.extractor,
        extractor_version=extracted.extractor_version,
        text=content.text,
        text_sha256=hashlib.sha256(content.text.encode()).hexdigest(),
        metadata=metadata,
        locators=content.spans,
        removed=dict(removed),
        warnings=tuple(warnings),
        pages=extracted.pages,
    )


def _without_text(
    document_id: str,
    name: str,
    extracted: Extracted,
    state: DocumentState,
    reason: FailureReason | SkipReason | None,
    message: str | None,
) -> Canonical:
    return Canonical(
        document_id=document_id,
        name=name,
        title=name,
        state=state,
        reason=reason,
        message=message,
        extractor=extracted.extractor,
        extractor_version=extracted.extractor_version,
        metadata=extracted.metadata,
        warnings=extracted.warnings,
        pages=extracted.pages,
    )


def _title(front_matter: FrontMatter | None, body: str, name: str) -> str:
    declared = front_matter.values.get("title") if front_matter else None
    if isinstance(declared, str | int | float) and not isinstance(declared, bool):
        content, _ = normalised([(str(declared), _NOWHERE)])
        one_line = " ".join(content.text.split())
        if one_line:
            return one_line
    first = next((heading for heading in headings(body) if heading.level == 1 and heading.title), None)
    return first.title if first else name


def _reference_sections(text: str) -> list[tuple[int, int]]:
    """Return the extents of the reference lists of `text`.

    A document's own title is never taken for one, or a page called "References" would be left without text.
    """
    extents: list[tuple[int, int]] = []
    open_section: Heading | None = None
    for position, heading in enumerate(headings(text)):
        if open_section and heading.level <= open_section.level:
            extents.append((open_section.start, heading.start))
            open_section = None
        is_title = position == 0 and heading.level == 1
        if open_section is None and not is_title and _is_reference_title(heading.title):
            open_section = heading
    if open_section:
        extents.append((open_section.start, len(text)))
    return extents


def _is_reference_title(title: str) -> bool:
    folded = title.casefold().strip(_MARKS)
    return _NUMBERING.sub("", folded).strip(_MARKS) in REFERENCE_TITLES


def _cut(
    content: SpannedText, extents: list[tuple[int, int]], kind: str, removed: Counter[str]
) -> SpannedText:
    characters = sum(end - start for start, end in extents)
    if characters:
        removed[kind] += characters
    return content.edited([Edit(start, end) for start, end in extents])


def _with_sections(content: SpannedText) -> SpannedText:
    """Move every heading one level down (6 stays) where level 1 occurs several times and level 2 never."""
    found = list(headings(content.text))
    levels = Counter(heading.level for heading in found)
    if levels[1] < 2 or levels[2]:
        return content
    return content.edited([Edit(heading.start, heading.start, "#") for heading in found if heading.level < 6])
