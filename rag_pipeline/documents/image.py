"""Images of pages (PNG, JPEG, TIFF, also of several pages): their text by OCR."""

from __future__ import annotations

import time
import warnings as python_warnings
from io import BytesIO
from typing import Any

from rag_pipeline.documents import ocr
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import (
    Content,
    ExtractionFailure,
    ExtractionWarning,
    PageInfo,
)
from rag_pipeline.documents.pdf import ReadPage, segments
from rag_pipeline.documents.states import FailureReason, WarningKind

EXTRACTOR_VERSION = f"1, ocr {ocr.OCR_VERSION}"

# An A0 page at 300 dpi has 140 million pixels; three bytes each are what one page may take.
_MAX_PIXELS = 170_000_000
_FORMATS = ("PNG", "JPEG", "TIFF")


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of an image, a page a frame; fails as `no_text` where OCR is off, since it holds none itself."""
    with python_warnings.catch_warnings():
        # Pillow warns of every odd tag; what keeps a page from being read becomes a warning of ours.
        python_warnings.simplefilter("ignore")
        return _extract(data, options)


def _extract(data: bytes, options: ExtractionConfig) -> Content:
    try:
        engine = ocr.engine_of(options)
    except ocr.OcrUnavailableError as error:
        raise ExtractionFailure(FailureReason.NO_TEXT, str(error)) from error
    if engine is None:
        raise ExtractionFailure(
            FailureReason.NO_TEXT, "an image has no text of its own, and extraction.ocr is off"
        )
    budget = ocr.Budget(options)
    warnings: list[ExtractionWarning] = []
    pages: list[ReadPage] = []
    for number in range(1, _frame_count(data, options) + 1):
        page = ReadPage(number)
        pages.append(page)
        refusal = budget.refusal()
        if refusal:
            warnings.append(
                ExtractionWarning(WarningKind.OCR_SKIPPED, f"OCR did not read the page: {refusal}", number)
            )
            continue
        started = time.monotonic()
        try:
            image, points = _frame(data, number)
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            page.damaged = True
            warnings.append(
                ExtractionWarning(
                    WarningKind.DAMAGED_PAGE, f"the image cannot be decoded: {error}"[:300], number
                )
            )
            continue
        found = ocr.read_image(image, engine, options, points_per_pixel=points)
        budget.spend(time.monotonic() - started)
        page.lines = ocr.with_even_sizes(found.lines)
        page.raw = found.text
        page.confidence = found.confidence
        warnings += ocr.warnings_of(found, number)
        if not found.lines:
            warnings.append(
                ExtractionWarning(WarningKind.NO_TEXT_LAYER, "OCR found no text on the page", number)
            )
    if all(page.damaged for page in pages):
        raise ExtractionFailure(FailureReason.CORRUPT, "the image cannot be decoded", tuple(warnings))
    return Content(
        segments(pages),
        raw_text="\n".join(page.raw for page in pages),
        warnings=tuple(warnings),
        pages=tuple(PageInfo(page.number, page.is_ocr, page.confidence) for page in pages),
    )


def _open(data: bytes) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(BytesIO(data), formats=_FORMATS)
    except Image.DecompressionBombError as error:
        raise ExtractionFailure(FailureReason.TOO_LARGE, f"the image is too large: {error}"[:300]) from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ExtractionFailure(
            FailureReason.CORRUPT, f"the image cannot be opened: {error}"[:300]
        ) from error
    _check_size(image)
    return image


def _check_size(image: Any) -> None:
    width, height = image.size
    if width * height > _MAX_PIXELS:
        raise ExtractionFailure(
            FailureReason.TOO_LARGE, f"the image has {width} x {height} pixels; {_MAX_PIXELS} are the limit"
        )


def _frame_count(data: bytes, options: ExtractionConfig) -> int:
    with _open(data) as image:
        if image.format != "TIFF":  # the further pictures of an MPO are previews
            return 1
        try:
            count = int(image.n_frames)
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise ExtractionFailure(
                FailureReason.CORRUPT, f"the pages of the TIFF cannot be listed: {error}"[:300]
            ) from error
    if count > options.max_pages:
        raise ExtractionFailure(
            FailureReason.TOO_LARGE,
            f"the TIFF has {count} pages; extraction.max_pages is {options.max_pages}",
        )
    return count


def _frame(data: bytes, number: int) -> tuple[Any, float]:
    """Return a frame as an upright RGB image no larger than OCR wants it, and the points a pixel (of A4)."""
    import numpy as np
    from PIL import Image, ImageOps

    with _open(data) as image:
        if number > 1:
            image.seek(number - 1)
            _check_size(image)
        if image.format == "JPEG":
            image.draft("RGB", (ocr.LONG_SIDE, ocr.LONG_SIDE))
        upright = ImageOps.exif_transpose(image)
        if upright.mode in ("I;16", "I;16B", "I;16L", "I", "F"):
            upright = _eight_bits(upright)
        if upright.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in upright.info:
            colour = upright.convert("RGBA")
            paper = Image.new("RGBA", colour.size, "white")
            upright = Image.alpha_composite(paper, colour)
        page = upright.convert("RGB")
        page.thumbnail((ocr.LONG_SIDE, ocr.LONG_SIDE), Image.Resampling.LANCZOS)
        return np.asarray(page).copy(), 842.0 / max(page.size)


def _eight_bits(image: Any) -> Any:
    import numpy as np
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) * (255.0 / (high - low)) if high > low else np.full_like(values, 255.0)
    return Image.fromarray(scaled.astype(np.uint8))
