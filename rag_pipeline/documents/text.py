"""Plain text: decoded and kept as it is."""

from __future__ import annotations

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, Segment

EXTRACTOR_VERSION = "1"


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a plain-text file in one segment."""
    decoded = decode(data)
    return Content((Segment(decoded.text),), decoded.text, warnings=decoded.warnings)
