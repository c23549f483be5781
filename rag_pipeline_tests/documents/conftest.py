from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rag_pipeline.documents.canonical import Canonical, canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Content, Extracted, Segment
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.states import DocumentState

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


@pytest.fixture
def options() -> ExtractionConfig:
    return ExtractionConfig(workers=1)


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the shared corpora and files are not at {SHARED}")
    return SHARED


def extracted(*pieces: str | tuple[str, Locator]) -> Extracted:
    """An extraction that gave these pieces of text."""
    segments = tuple(Segment(piece) if isinstance(piece, str) else Segment(*piece) for piece in pieces)
    return Extracted(DocumentState.EXTRACTED, segments=segments, raw_text="".join(s.text for s in segments))


def canonical(*pieces: str | tuple[str, Locator], name: str = "a.md", **settings: bool) -> Canonical:
    """The canonical form of a document with these pieces of text."""
    return canonicalise(name, extracted(*pieces), ExtractionConfig(**settings))  # type: ignore[arg-type]


def text_of(content: Content) -> str:
    """The text of all segments of an extraction."""
    return "".join(segment.text for segment in content.segments)


Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write_file
