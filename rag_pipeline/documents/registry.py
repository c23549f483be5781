"""The extractors, one object a format: a new one is a module and a line in `EXTRACTORS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module, metadata
from typing import TYPE_CHECKING, cast

from rag_pipeline.documents import media_types

if TYPE_CHECKING:
    from rag_pipeline.documents.config import ExtractionConfig
    from rag_pipeline.documents.extraction import Content

    ExtractFunction = Callable[[bytes, ExtractionConfig], Content]


@dataclass(frozen=True)
class Extractor:
    """How the files of some media types are read.

    `module` holds a function `extract(data, options) -> Content` and the constant `EXTRACTOR_VERSION`, raised
    when the same bytes give another text. `libraries` are the distributions whose release can change the
    text.
    The module imports its libraries only when it extracts, so that the registry costs nothing to look at.
    """

    name: str
    description: str
    media_types: frozenset[str]
    module: str
    libraries: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Names of the extraction settings that decide its text, or whether there is any."""

    @cached_property
    def version(self) -> str:
        """The extractor's own version followed by those of its libraries, e.g. `1 (pypdf 6.0.0)`."""
        own = str(import_module(self.module).EXTRACTOR_VERSION)
        libraries = ", ".join(f"{name} {metadata.version(name)}" for name in self.libraries)
        return f"{own} ({libraries})" if libraries else own

    @property
    def extract(self) -> ExtractFunction:
        """The function that reads a file's bytes; raises ExtractionFailure for what it cannot read."""
        return cast("ExtractFunction", import_module(self.module).extract)


EXTRACTORS: tuple[Extractor, ...] = (
    Extractor(
        name="markdown",
        description="CommonMark text, kept as it is; underlined headings become ATX headings",
        media_types=frozenset({media_types.MARKDOWN}),
        module="rag_pipeline.documents.markdown",
        libraries=("markdown-it-py", "charset-normalizer"),
    ),
    Extractor(
        name="text",
        description="plain text, kept as it is",
        media_types=frozenset({media_types.TEXT}),
        module="rag_pipeline.documents.text",
        libraries=("charset-normalizer",),
    ),
    Extractor(
        name="html",
        description="main text of a page with its headings, lists, tables and code",
        media_types=frozenset({media_types.HTML}),
        module="rag_pipeline.documents.html",
        libraries=("lxml", "trafilatura", "charset-normalizer"),
    ),
    Extractor(
        name="docx",
        description="Word documents: headings, tables and notes, changes accepted, comments apart",
        media_types=frozenset({media_types.DOCX}),
        module="rag_pipeline.documents.docx",
        libraries=("mammoth", "lxml", "charset-normalizer"),
    ),
    Extractor(
        name="pptx",
        description="presentations, slide by slide: titles, text, tables, the data of charts, notes",
        media_types=frozenset({media_types.PPTX}),
        module="rag_pipeline.documents.pptx",
        libraries=("lxml",),
    ),
    Extractor(
        name="workbook",
        description="workbooks, sheet by sheet: every row a table row with its cells' places",
        media_types=frozenset({media_types.XLSX, media_types.XLSB, media_types.XLS, media_types.ODS}),
        module="rag_pipeline.documents.xlsx",
        libraries=("python-calamine", "openpyxl", "lxml"),
    ),
    Extractor(
        name="delimited",
        description="CSV and TSV: every record a table row with its number",
        media_types=frozenset({media_types.CSV, media_types.TSV}),
        module="rag_pipeline.documents.delimited",
        libraries=("charset-normalizer",),
    ),
    Extractor(
        name="captions",
        description="VTT and SRT transcripts: paragraphs by speaker, each cue with its times",
        media_types=frozenset({media_types.VTT, media_types.SRT}),
        module="rag_pipeline.documents.captions",
        libraries=("charset-normalizer",),
    ),
    Extractor(
        name="pdf",
        description="PDF page by page: text layer in reading order, tables, headings; OCR where there is none",
        media_types=frozenset({media_types.PDF}),
        module="rag_pipeline.documents.pdf",
        libraries=("pypdf", "pypdfium2", "fonttools", "rapidocr", "onnxruntime"),
        settings=("ocr", "ocr_max_pages", "max_pages"),
    ),
    Extractor(
        name="image",
        description="scanned pages as PNG, JPEG or TIFF, read by OCR",
        media_types=frozenset({media_types.PNG, media_types.JPEG, media_types.TIFF}),
        module="rag_pipeline.documents.image",
        libraries=("pillow", "rapidocr", "onnxruntime"),
        settings=("ocr", "ocr_max_pages", "max_pages"),
    ),
)

_BY_MEDIA_TYPE = {media_type: extractor for extractor in EXTRACTORS for media_type in extractor.media_types}


def extractor_for(media_type: str | None) -> Extractor | None:
    """Return the extractor of a media type, or None where no format of ours has it."""
    return _BY_MEDIA_TYPE.get(media_type) if media_type else None
