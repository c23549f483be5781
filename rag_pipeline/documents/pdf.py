"""PDF: the text layer page by page in reading order, or OCR where a page has none that can be used.

pypdf opens the file, decrypts it, reads its properties and repairs the maps of its fonts; pdfium gives positioned
characters and renders pages. Where one of them fails the other steps in. A page that cannot be read costs itself, not
the document.
"""

from __future__ import annotations

import logging
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from rag_pipeline.documents import ocr, page_layout, pdf_fallback, pdf_fonts, pdf_text, reading_order
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import (
    Content,
    ExtractionFailure,
    ExtractionWarning,
    PageInfo,
    Segment,
)
from rag_pipeline.documents.locators import Locator
from rag_pipeline.documents.page_layout import PageBlock
from rag_pipeline.documents.page_lines import Ruling, TextLine
from rag_pipeline.documents.running_lines import without_running_lines
from rag_pipeline.documents.states import FailureReason, WarningKind

if TYPE_CHECKING:
    import pypdfium2
    from pypdf import PdfReader

# The version of this module and of those it is made of (pdf_*, page_*, reading_order, running_lines, ocr).
EXTRACTOR_VERSION = f"2, ocr {ocr.OCR_VERSION}"

# A page with fewer letters than this on a picture of its whole is a scan with a stamp on it.
_STAMP_LETTERS = 40
_SCAN_SHARE = 0.6
# With a larger share of glyphs without a character, a text layer cannot be used.
_UNMAPPED_SHARE = 0.2
_UNMAPPED_REPORTED_SHARE = 0.02
# With a larger share of text objects without a character the other library is asked, and believed if it sees so many
# times as many letters.
_UNSEEN_SHARE = 0.2
_MORE_LETTERS = 1.2
_MAX_DPI = 300
# Fewer vowels than this share, in so many letters, are no language: English has 40 %, and none written with these
# letters fewer than 30 %.
_LEAST_VOWELS = 0.16
_GARBLED_LETTERS = 200
_GARBLED_SAMPLE = 4096
_GARBLED_SHARE = 0.3
_INFO_KEYS = {"/Author": "author", "/Subject": "subject", "/Keywords": "keywords", "/CreationDate": "created"}


@dataclass
class ReadPage:
    """What was read of a page."""

    number: int
    lines: list[TextLine] = field(default_factory=list)
    rulings: tuple[Ruling, ...] = ()
    raw: str = ""
    damaged: bool = False
    confidence: float | None = None

    @property
    def is_ocr(self) -> bool:
        """True where the page was read by OCR."""
        return self.confidence is not None


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a PDF, segments with their page numbers; `title` is that of its properties."""
    warnings: list[ExtractionWarning] = []
    with _Source.of(data, options, warnings) as source:
        pages = list(_pages(source, options, warnings))
        if pages and all(page.damaged for page in pages):
            raise ExtractionFailure(
                FailureReason.CORRUPT, f"none of its {len(pages)} pages can be read", tuple(warnings)
            )
        title, metadata = source.properties()
        return Content(
            segments(pages, source.labels(), source.outline()),
            raw_text="\n".join(page.raw for page in pages),
            title=title,
            metadata=metadata,
            warnings=tuple(warnings),
            pages=tuple(PageInfo(page.number, page.is_ocr, page.confidence) for page in pages),
        )


# From pages to segments.


def segments(
    pages: Sequence[ReadPage], labels: Sequence[str | None] = (), outline: Mapping[str, int] | None = None
) -> tuple[Segment, ...]:
    """Return the Markdown of the pages as segments with their page, and the separators between them.

    A paragraph that runs over the page's end goes on after a line end, or at once where a hyphen broke it; the notes
    at the foot of its first page follow it then.
    """
    kept = without_running_lines([page.lines for page in pages], labels)
    style = page_layout.style_of(kept, outline or {})
    compounds = page_layout.hyphenated_words(kept)
    flow: list[tuple[int, PageBlock]] = []
    pending: list[tuple[int, PageBlock]] = []
    last: PageBlock | None = None
    for page, lines in zip(pages, kept, strict=True):
        body, notes = (lines, []) if page.is_ocr else reading_order.notes_last(lines)
        blocks = [
            (page.number, block) for block in page_layout.blocks_of(body, style, compounds, page.rulings)
        ]
        if pending and blocks and last is not None and page_layout.continues(last, blocks[0][1]):
            flow += [blocks[0], *pending, *blocks[1:]]
        else:
            flow += [*pending, *blocks]
        pending = [(page.number, block) for block in page_layout.blocks_of(notes, style, compounds)]
        last = blocks[-1][1] if blocks else None
    return tuple(_segments_of(flow + pending, compounds))


def _segments_of(flow: Sequence[tuple[int, PageBlock]], compounds: frozenset[str]) -> Iterator[Segment]:
    text = ""
    for position, (page, block) in enumerate(flow):
        text += block.text
        following = flow[position + 1] if position + 1 < len(flow) else None
        if following is None:
            yield Segment(text + "\n", Locator.of_page(page))
        elif following[0] == page:
            text += "\n\n"
        else:
            yield Segment(_with_separator(text, block, following[1], compounds), Locator.of_page(page))
            text = ""


def _with_separator(text: str, last: PageBlock, following: PageBlock, compounds: frozenset[str]) -> str:
    if not page_layout.continues(last, following):
        return text + "\n\n"
    run_on = page_layout.join(text, following.text, compounds)
    before = run_on[: len(run_on) - len(following.text)]
    return before[:-1] + "\n" if before.endswith(" ") else before


# From the file to pages.


@dataclass
class _Source:
    """A PDF opened by both libraries, as far as each can."""

    reader: PdfReader | None
    document: pypdfium2.PdfDocument | None
    page_count: int

    @classmethod
    def of(cls, data: bytes, options: ExtractionConfig, warnings: list[ExtractionWarning]) -> _Source:
        """Return the file opened; raises ExtractionFailure for one that neither library opens, or with a password."""
        reader, error = _open_with_pypdf(data, warnings)
        document = _open_with_pdfium(data)
        if reader is None and document is None:
            raise ExtractionFailure(
                FailureReason.CORRUPT, f"the PDF cannot be opened: {error}", tuple(warnings)
            )
        if reader is None:
            warnings.append(
                ExtractionWarning(
                    WarningKind.REPAIRED, f"the PDF is damaged and was opened all the same: {error}"
                )
            )
        count = len(document) if document is not None else _count_with_pypdf(reader)
        if count > options.max_pages:
            raise ExtractionFailure(
                FailureReason.TOO_LARGE,
                f"the PDF has {count} pages; extraction.max_pages is {options.max_pages}",
                tuple(warnings),
            )
        if not count:
            raise ExtractionFailure(FailureReason.CORRUPT, "the PDF has no page", tuple(warnings))
        if reader is not None:
            document = _repaired(reader, document, count, warnings)
            if document is None:
                warnings.append(
                    ExtractionWarning(
                        WarningKind.REPAIRED,
                        "one of two libraries refuses the PDF; its text comes from the other, without columns",
                    )
                )
        return cls(reader, document, count)

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *error: object) -> None:
        if self.document is not None:
            self.document.close()

    def properties(self) -> tuple[str | None, dict[str, str]]:
        """Return the title and the other properties that the file declares."""
        values: dict[str, str] = {}
        with _harmless():
            info = dict(self.reader.metadata or {}) if self.reader else {}
            values = {
                key: " ".join(str(info[key]).split()) for key in ("/Title", *_INFO_KEYS) if info.get(key)
            }
        title = values.pop("/Title", None) or None
        return title, {_INFO_KEYS[key]: value for key, value in values.items() if value}

    def labels(self) -> list[str | None]:
        """Return the labels of the pages, where the document gives them."""
        with _harmless():
            if self.reader and "/PageLabels" in self.reader.root_object:
                return list(self.reader.page_labels)
        return []

    def outline(self) -> dict[str, int]:
        """Return the titles of the outline (letters and digits only, case folded) with their depth from 0."""
        found: dict[str, int] = {}
        with _harmless():
            if self.document is not None:
                for item in self.document.get_toc(max_depth=6):
                    title = page_layout.outline_key(item.get_title() or "")
                    if title:
                        found.setdefault(title, int(item.level))
        return found


class _harmless(suppress):
    """Suppress whatever a damaged structure raises, where what it would have given is no part of the text."""

    def __init__(self) -> None:
        super().__init__(Exception)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return not isinstance(error, MemoryError) and bool(super().__exit__(kind, error, trace))


def _open_with_pypdf(data: bytes, warnings: list[ExtractionWarning]) -> tuple[PdfReader | None, str]:
    """Return the reader, or None and why; raises for a file that asks for a password."""
    # pypdf reports every oddity it repairs through logging; what matters of it becomes a warning of ours.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    from pypdf import PasswordType, PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    try:
        reader = PdfReader(BytesIO(data), strict=False)
        if not reader.is_encrypted:
            return reader, ""
        opened = reader.decrypt("")
    except (DependencyError, FileNotDecryptedError, NotImplementedError) as error:
        raise ExtractionFailure(
            FailureReason.ENCRYPTED, f"the PDF is encrypted in a way that cannot be opened: {error}"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file raises anything, and the other library may open it
        return None, f"{type(error).__name__}: {error}"[:300]
    if opened == PasswordType.NOT_DECRYPTED:
        raise ExtractionFailure(FailureReason.ENCRYPTED, "the PDF asks for a password")
    warnings.append(
        ExtractionWarning(
            WarningKind.OPENED_WITHOUT_PASSWORD, "the PDF is encrypted and opened with the empty password"
        )
    )
    permissions = reader.user_access_permissions
    if permissions is not None and not permissions.EXTRACT & permissions:
        warnings.append(
            ExtractionWarning(
                WarningKind.EXTRACTION_NOT_PERMITTED,
                "the PDF's author does not permit its text to be extracted",
            )
        )
    return reader, ""


def _open_with_pdfium(data: bytes) -> pypdfium2.PdfDocument | None:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError:
        return None


def _count_with_pypdf(reader: PdfReader | None) -> int:
    try:
        return len(reader.pages) if reader else 0
    except MemoryError:
        raise
    except Exception as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"the PDF's pages cannot be listed: {error}"
        ) from error


def _repaired(
    reader: PdfReader, document: pypdfium2.PdfDocument | None, count: int, warnings: list[ExtractionWarning]
) -> pypdfium2.PdfDocument | None:
    """Return the document with its font maps repaired, or written anew by pypdf where pdfium refused it."""
    repairs = pdf_fonts.repair(reader, count)
    data = repairs.data
    if data is None and document is None:
        with _harmless():
            data = pdf_fonts.rewritten(reader)
    if data is None:
        return document
    repaired = _open_with_pdfium(data)
    if repaired is None or len(repaired) != count:
        return document
    if document is not None:
        document.close()
    for page, name in repairs.ligatures.items():
        warnings.append(
            ExtractionWarning(
                WarningKind.LIGATURES_REPAIRED,
                f"the font {name} maps its ligatures wrongly; they were read from its glyphs",
                page,
            )
        )
    for page, name in repairs.decoded.items():
        warnings.append(
            ExtractionWarning(
                WarningKind.UNMAPPED_GLYPHS,
                f"the font {name} does not say which characters its glyphs are; "
                "they were read from the tables of the font program, as far as it has any",
                page,
            )
        )
    return repaired


def _pages(
    source: _Source, options: ExtractionConfig, warnings: list[ExtractionWarning]
) -> Iterator[ReadPage]:
    recogniser = _Recogniser(options, warnings)
    scattered: list[int] = []
    for number in range(1, source.page_count + 1):
        page = ReadPage(number)
        try:
            if source.document is None:
                _read_with_pypdf(source.reader, page)
            else:
                _read_with_pdfium(source, page, recogniser, scattered)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a damaged page raises anything, and costs itself
            _read_after_failure(source, page, error, warnings)
        if not page.lines and not page.damaged and not page.raw.strip():
            page.damaged = _is_garbled(source.reader, page)
            if page.damaged:
                message = "the page cannot be read: its drawing instructions are damaged"
                warnings.append(ExtractionWarning(WarningKind.DAMAGED_PAGE, message, number))
            else:
                recogniser.explain(page)
        yield page
    if scattered:
        warnings.append(
            ExtractionWarning(
                WarningKind.UNMAPPED_GLYPHS,
                f"glyphs without a character were left out: {sum(scattered)}, on pages: {len(scattered)}",
            )
        )


def _is_garbled(reader: PdfReader | None, page: ReadPage) -> bool:
    """True for a page without text whose content stream is no text either, as operators and operands are."""
    with _harmless():
        contents = reader.pages[page.number - 1].get_contents() if reader else None
        data = contents.get_data()[:_GARBLED_SAMPLE] if contents is not None else b""
        strange = sum(1 for byte in data if byte > 126 or (byte < 32 and byte not in b"\t\n\f\r\0"))
        return strange > _GARBLED_SHARE * len(data)
    return False


def _read_after_failure(
    source: _Source, page: ReadPage, error: Exception, warnings: list[ExtractionWarning]
) -> None:
    with _harmless():
        _read_with_pypdf(source.reader if source.document is not None else None, page)
    if not page.lines:
        page.damaged = True
        warnings.append(
            ExtractionWarning(
                WarningKind.DAMAGED_PAGE,
                f"the page cannot be read: {type(error).__name__}: {error}"[:300],
                page.number,
            )
        )


def _read_with_pypdf(reader: PdfReader | None, page: ReadPage) -> None:
    if reader is not None:
        page.lines, page.raw = pdf_fallback.read_page(reader.pages[page.number - 1])


def _read_with_pdfium(source: _Source, page: ReadPage, recogniser: _Recogniser, scattered: list[int]) -> None:
    """Read the page's text layer, or the page by OCR."""
    assert source.document is not None
    opened, layer = pdf_text.read_page_with_forms(source.document, page.number - 1)
    try:
        page.raw = layer.raw
        page.rulings = layer.rulings
        page.lines = reading_order.in_reading_order(layer.lines)
        if not layer.unmapped and (layer.unseen > _UNSEEN_SHARE or not (layer.glyphs or layer.has_drawing)):
            _take_what_pypdf_sees(source.reader, page)
        share = layer.unmapped / layer.glyphs if layer.glyphs else 0.0
        is_stamped = layer.letters < _STAMP_LETTERS and layer.image_share > _SCAN_SHARE
        garbled = _is_garbled_text(page.raw)
        if (not page.lines and layer.has_drawing) or share > _UNMAPPED_SHARE or is_stamped or garbled:
            recogniser.read(opened, page, instead=garbled)
        if page.is_ocr:
            return
        if garbled:
            page.lines = []
            recogniser.report_garbled(page)
        if share > _UNMAPPED_REPORTED_SHARE:
            recogniser.report_unmapped(page, layer.unmapped, layer.glyphs)
        elif layer.unmapped:
            scattered.append(layer.unmapped)
    finally:
        opened.close()


def _is_garbled_text(text: str) -> bool:
    """True for a page of Latin letters that have next to no vowels among them, as no language writes them.

    That is how the glyph numbers of a font look when they are taken for characters ("7KH TXLFN EURZQ").
    """
    letters = [c for c in unicodedata.normalize("NFD", text.casefold()) if "a" <= c <= "z"]
    if len(letters) < _GARBLED_LETTERS or len(letters) < 0.5 * sum(map(str.isalpha, text)):
        return False
    return sum(letter in "aeiouy" for letter in letters) < _LEAST_VOWELS * len(letters)


def _take_what_pypdf_sees(reader: PdfReader | None, page: ReadPage) -> None:
    """Read the page by pypdf where that gives more: pdfium leaves out text in a font that the system has not got."""
    other = ReadPage(page.number)
    with _harmless():
        _read_with_pypdf(reader, other)
    letters, others = (sum(map(str.isalnum, read.raw)) for read in (page, other))
    if others > _MORE_LETTERS * letters:
        page.lines, page.raw, page.rulings = other.lines, other.raw, ()


class _Recogniser:
    """Reads pages by OCR as long as the engine and the document's budget allow, and says where they did not."""

    def __init__(self, options: ExtractionConfig, warnings: list[ExtractionWarning]) -> None:
        self._options = options
        self._warnings = warnings
        self._budget = ocr.Budget(options)
        self._refusals: dict[int, str] = {}

    def read(self, opened: pypdfium2.PdfPage, page: ReadPage, *, instead: bool = False) -> None:
        """Read the page by OCR into `page`, unless its text layer holds more (and is to be believed)."""
        refusal = "extraction.ocr is off"
        try:
            engine = ocr.engine_of(self._options)
        except ocr.OcrUnavailableError as error:
            engine, refusal = None, str(error)
        if engine is not None:
            refusal = self._budget.refusal() or ""
        if engine is None or refusal:
            self._refusals[page.number] = refusal
            return
        started = time.monotonic()
        image, points = _rendered(opened)
        if _is_blank(image):
            self._refusals[page.number] = "it is blank"
            return
        found = ocr.read_image(image, engine, self._options, points_per_pixel=points)
        self._budget.spend(time.monotonic() - started)
        least = 0 if instead else sum(len(line.text) for line in page.lines)
        if sum(len(line.text) for line in found.lines) <= least:
            self._refusals[page.number] = "OCR found no more on it"
            return
        page.lines = ocr.with_even_sizes(found.lines)
        page.rulings = ()
        page.raw = found.text
        page.confidence = found.confidence
        self._warnings += ocr.warnings_of(found, page.number)

    def explain(self, page: ReadPage) -> None:
        """Warn of a page without text, and say why it was not read by OCR."""
        refusal = self._refusals.get(page.number)
        kind = WarningKind.NO_TEXT_LAYER
        if refusal is None or refusal == "it is blank":
            message = "the page has no text layer and nothing on it that could be read"
        else:
            message = f"the page has no text layer (a scan or a drawing), and OCR did not read it: {refusal}"
            kind = WarningKind.OCR_SKIPPED if "ocr_max_pages" in refusal or "timeout" in refusal else kind
        self._warnings.append(ExtractionWarning(kind, message, page.number))

    def report_garbled(self, page: ReadPage) -> None:
        """Warn of a text layer that is no language."""
        self._warnings.append(
            ExtractionWarning(
                WarningKind.UNMAPPED_GLYPHS,
                "the text layer is no language (its font maps glyphs to wrong characters) and was left out; "
                f"OCR did not read the page: {self._refusals.get(page.number)}",
                page.number,
            )
        )

    def report_unmapped(self, page: ReadPage, unmapped: int, glyphs: int) -> None:
        """Warn of glyphs without a character on a page."""
        refusal = self._refusals.get(page.number)
        self._warnings.append(
            ExtractionWarning(
                WarningKind.UNMAPPED_GLYPHS,
                f"{unmapped} of {glyphs} glyphs have no character and were left out"
                + (f"; OCR did not read the page: {refusal}" if refusal else ""),
                page.number,
            )
        )


def _rendered(opened: pypdfium2.PdfPage) -> tuple[Any, float]:
    """Return the page as an RGB image with its longer side as OCR wants it, and the points a pixel."""
    width, height = opened.get_size()
    scale = min(ocr.LONG_SIDE / max(width, height, 1.0), _MAX_DPI / 72)
    bitmap = opened.render(scale=scale, rev_byteorder=True, may_draw_forms=False)
    try:
        image = bitmap.to_numpy()
        if image.ndim == 2:
            image = image[:, :, None]
        if image.shape[2] == 1:
            image = image.repeat(3, axis=2)
        return image[:, :, :3].copy(), 1 / scale
    finally:
        bitmap.close()


def _is_blank(image: Any) -> bool:
    return bool(int(image.max()) - int(image.min()) < 24)
