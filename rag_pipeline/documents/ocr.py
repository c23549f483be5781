"""Text recognition on images of pages: engines in a registry, and their lines as lines of a page.

Engines give boxes with text and a confidence; what makes a page of them (the direction it is turned, columns
before lines, confidence) is the same for all. Nothing is downloaded: RapidOCR's wheel holds its models, Tesseract
is used where it is installed and chosen.
"""

from __future__ import annotations

import csv
import io
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rag_pipeline.core.pool import available_cores
from rag_pipeline.documents import reading_order
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import ExtractionWarning
from rag_pipeline.documents.page_lines import Piece, TextLine, estimated_width
from rag_pipeline.documents.states import WarningKind

if TYPE_CHECKING:
    import numpy as np

    Image = np.ndarray[Any, np.dtype[np.uint8]]

# Raised when the same image gives another text.
OCR_VERSION = "1"

# The longer side of a page in pixels: 10-point type on A4 is 20 pixels high then, and a page takes seconds.
LONG_SIDE = 1700
# Below these confidences a page, or one of its lines, is reported.
PAGE_CONFIDENCE = 0.9
LINE_CONFIDENCE = 0.6
# Less sure than this, a line is a smudge and not text.
_DROPPED_CONFIDENCE = 0.45
# Share of the time limit that a document may spend before no further page is read.
_TIME_SHARE = 0.8
# A box this much higher than wide holds a line that runs up or down.
_UPRIGHT = 1.5
# Crops that are looked at to tell whether a page stands on its head.
_SAMPLE = 8
_LEAST_CROP = 4
# A narrower image holds no line of text, and one this many times as long as wide is padded.
_LEAST_SIDE = 8
_MAX_ASPECT = 4
# The height of a line's box in type sizes.
_BOX_EMS = 1.25


@dataclass(frozen=True)
class Word:
    """A piece of recognised text: its confidence in [0, 1] and its box in pixels, y growing downwards."""

    text: str
    confidence: float
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Engine:
    """An OCR engine: how it reads an upright or turned image, and whether a crop stands on its head."""

    name: str
    description: str
    version: Callable[[], str]
    is_installed: Callable[[], bool]
    read: Callable[[Image, int], list[Word]]
    upside_down: Callable[[Image, int], bool | None]
    """True or False for an image of one line; None where the engine cannot tell."""


@dataclass(frozen=True)
class OcrPage:
    """What was read on one image: lines in reading order, mean confidence (by length) and that of the worst line."""

    lines: tuple[TextLine, ...]
    confidence: float
    lowest: float
    dropped: int = 0

    @property
    def text(self) -> str:
        """The lines as read."""
        return "\n".join(line.text for line in self.lines)


class OcrUnavailableError(Exception):
    """The engine that the settings name is not installed; the message says what to do."""


class Budget:
    """How many pages of a document OCR may still read, by number and by time."""

    def __init__(self, options: ExtractionConfig) -> None:
        self._pages = options.ocr_max_pages
        self._limit = options.ocr_max_pages
        self._ends = time.monotonic() + _TIME_SHARE * options.timeout
        self._slowest = 0.0

    def refusal(self) -> str | None:
        """Return why no further page may be read, or None."""
        if self._pages <= 0:
            return f"extraction.ocr_max_pages is {self._limit}"
        if time.monotonic() + self._slowest > self._ends:
            return "the time of extraction.timeout is nearly over"
        return None

    def spend(self, seconds: float) -> None:
        """Count one page that took so long."""
        self._pages -= 1
        self._slowest = max(self._slowest, seconds)


def engine_of(options: ExtractionConfig) -> Engine | None:
    """Return the engine of the settings, None for `off`; raises OcrUnavailableError where it is not installed."""
    engine = ENGINES.get(options.ocr)
    if engine is None:
        return None
    if not engine.is_installed():
        raise OcrUnavailableError(
            f"extraction.ocr is {options.ocr}, which is not installed; install it, or choose another engine or off"
        )
    return engine


def read_image(
    image: Image, engine: Engine, options: ExtractionConfig, *, points_per_pixel: float = 0.5
) -> OcrPage:
    """Return the text of an RGB image (rows, columns, 3) of one page, which is turned upright first."""
    threads = max(1, available_cores() // (options.workers or available_cores()))
    if min(image.shape[:2]) < _LEAST_SIDE:
        return OcrPage((), 0.0, 0.0)
    image = _padded(image)
    words = engine.read(image, threads)
    quarters = _turns_needed(image, words, engine, threads)
    if quarters:
        image = _rotated(image, quarters)
        words = engine.read(image, threads)
    sure = [word for word in words if word.confidence >= _DROPPED_CONFIDENCE and word.text.strip()]
    dropped = sum(1 for word in words if word.text.strip()) - len(sure)
    if not sure:
        return OcrPage((), 0.0, 0.0, dropped)
    weights = [len(word.text) for word in sure]
    mean = sum(word.confidence * weight for word, weight in zip(sure, weights, strict=True)) / sum(weights)
    lines = [_line_of(word, image.shape[0], points_per_pixel) for word in sure]
    return OcrPage(
        tuple(reading_order.by_columns(lines)), mean, min(word.confidence for word in sure), dropped
    )


def warnings_of(page: OcrPage, number: int) -> list[ExtractionWarning]:
    """Return what has to be said about the confidence of a page."""
    warnings = []
    if page.lines and page.confidence < PAGE_CONFIDENCE:
        warnings.append(
            ExtractionWarning(
                WarningKind.LOW_CONFIDENCE,
                f"OCR is unsure of this page: mean confidence {page.confidence:.2f}",
                number,
            )
        )
    if page.lines and page.lowest < LINE_CONFIDENCE:
        count = sum(1 for _ in page.lines)
        warnings.append(
            ExtractionWarning(
                WarningKind.LOW_CONFIDENCE,
                f"OCR is unsure of a line of this page (of {count}): confidence {page.lowest:.2f}",
                number,
            )
        )
    if page.dropped:
        warnings.append(
            ExtractionWarning(
                WarningKind.LOW_CONFIDENCE,
                f"{page.dropped} pieces that OCR could hardly read were left out",
                number,
            )
        )
    return warnings


def _turns_needed(image: Image, words: Sequence[Word], engine: Engine, threads: int) -> int:
    """Return by how many quarter turns anticlockwise the image must be turned for its text to stand upright."""
    high = [word for word in words if word.bottom - word.top > _UPRIGHT * (word.right - word.left)]
    is_on_side = sum(len(word.text) for word in high) > 0.6 * sum(len(word.text) for word in words)
    quarters = 1 if is_on_side else 0
    sample = high if is_on_side else words
    longest = sorted(sample, key=lambda word: -(word.right - word.left) * (word.bottom - word.top))[:_SAMPLE]
    verdicts = []
    for word in longest:
        rows = slice(max(0, int(word.top)), int(word.bottom) + 1)
        columns = slice(max(0, int(word.left)), int(word.right) + 1)
        crop = _rotated(image[rows, columns], quarters)
        if min(crop.shape[:2]) >= _LEAST_CROP:
            verdicts.append(engine.upside_down(crop, threads))
    known = [verdict for verdict in verdicts if verdict is not None]
    on_its_head = bool(known) and sum(known) > 0.6 * len(known)
    return (quarters + (2 if on_its_head else 0)) % 4


def _padded(image: Image) -> Image:
    """Return the image with white at its right or lower side where it is narrow: engines scale by the shorter side."""
    import numpy as np

    height, width = image.shape[:2]
    least = max(height, width) // _MAX_ASPECT
    missing = (max(0, least - height), max(0, least - width))
    if not any(missing):
        return image
    return np.pad(image, ((0, missing[0]), (0, missing[1]), (0, 0)), constant_values=255)


def _rotated(image: Image, quarters: int) -> Image:
    import numpy as np

    return np.ascontiguousarray(np.rot90(image, quarters))


def _line_of(word: Word, height: int, scale: float) -> TextLine:
    by_height = (word.bottom - word.top) / _BOX_EMS
    # The box of a line with a large initial is as high as that; its width tells the size of its type.
    by_width = (word.right - word.left) / max(estimated_width(word.text, 1.0, monospace=False), 0.1)
    size = max(min(by_height, 1.3 * by_width) * scale, 1.0)
    baseline = (height - word.bottom) * scale + 0.25 * size
    piece = Piece(word.text, word.left * scale, word.right * scale, baseline, size)
    return TextLine((piece,))


def with_even_sizes(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return the lines with sizes that differ by chance made the same.

    The box of a line is as high as its letters reach, so that "on" is set smaller than "gap": sizes within a third of
    the page's median are that median.
    """
    if not lines:
        return []
    usual = median(line.pieces[0].size for line in lines)
    even = []
    for line in lines:
        piece = line.pieces[0]
        size = usual if 0.67 * usual <= piece.size <= 1.33 * usual else piece.size
        even.append(TextLine((Piece(piece.text, piece.x, piece.x_end, piece.y, size),), line.turn))
    return even


# RapidOCR.


@lru_cache(maxsize=1)
def _rapidocr(threads: int) -> Any:
    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(threads)
    return RapidOCR(
        params={
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Global.log_level": "critical",
            "Global.text_score": 0.0,
            "Global.max_side_len": LONG_SIDE,
        }
    )


def _read_with_rapidocr(image: Image, threads: int) -> list[Word]:
    # The models were trained on images as OpenCV has them: blue, green, red.
    result = _rapidocr(threads)(image[:, :, ::-1].copy())
    if result.boxes is None or result.txts is None or result.scores is None:
        return []
    words = []
    for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True):
        xs, ys = [float(x) for x, _ in box], [float(y) for _, y in box]
        words.append(Word(str(text), float(score), min(xs), min(ys), max(xs), max(ys)))
    return words


def _upside_down_by_rapidocr(crop: Image, threads: int) -> bool | None:
    result = _rapidocr(threads)(crop[:, :, ::-1].copy(), use_det=False, use_cls=True, use_rec=False)
    found = getattr(result, "cls_res", None)
    # The engine remembers what it was told to do last.
    _rapidocr(threads).update_params(use_det=True, use_cls=True, use_rec=True)
    if not found:
        return None
    label, _ = found[0]
    return str(label) == "180"


def _has_rapidocr() -> bool:
    try:
        metadata.version("rapidocr")
        metadata.version("onnxruntime")
    except metadata.PackageNotFoundError:
        return False
    return True


# Tesseract.


def _read_with_tesseract(image: Image, threads: int) -> list[Word]:
    """Return the lines that the `tesseract` program reads (automatic page segmentation with orientation)."""
    from PIL import Image as Pillow

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.png"
        Pillow.fromarray(image).save(path)
        done = subprocess.run(
            ["tesseract", str(path), "stdout", "--psm", "3", "tsv"],
            capture_output=True,
            check=False,
            env={"OMP_THREAD_LIMIT": str(threads), "PATH": _path()},
        )
    if done.returncode:
        raise RuntimeError(f"tesseract failed: {done.stderr.decode(errors='replace')[:200]}")
    return words_of_tsv(done.stdout.decode("utf-8", "replace"))


def words_of_tsv(table: str) -> list[Word]:
    """Return the lines in Tesseract's TSV output: its words by line, with their mean confidence."""
    lines: dict[tuple[str, ...], list[Word]] = {}
    for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
        text = (row.get("text") or "").strip()
        confidence = float(row.get("conf") or -1)
        if not text or confidence < 0:
            continue
        left, top = float(row["left"]), float(row["top"])
        key = tuple(row[name] for name in ("page_num", "block_num", "par_num", "line_num"))
        lines.setdefault(key, []).append(
            Word(text, confidence / 100, left, top, left + float(row["width"]), top + float(row["height"]))
        )
    return [
        Word(
            " ".join(word.text for word in words),
            sum(word.confidence for word in words) / len(words),
            min(word.left for word in words),
            min(word.top for word in words),
            max(word.right for word in words),
            max(word.bottom for word in words),
        )
        for words in lines.values()
    ]


def _path() -> str:
    program = shutil.which("tesseract")
    return str(Path(program).parent) if program else "/usr/bin"


def _tesseract_version() -> str:
    done = subprocess.run(["tesseract", "--version"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).split("\n")[0].removeprefix("tesseract").strip()


def _cannot_tell(crop: Image, threads: int) -> bool | None:
    del crop, threads
    return None


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="rapidocr",
            description="PP-OCR models on ONNX Runtime; the models come with the package",
            version=lambda: metadata.version("rapidocr"),
            is_installed=_has_rapidocr,
            read=_read_with_rapidocr,
            upside_down=_upside_down_by_rapidocr,
        ),
        Engine(
            name="tesseract",
            description="the tesseract program, with the languages installed for it",
            version=_tesseract_version,
            is_installed=lambda: shutil.which("tesseract") is not None,
            read=_read_with_tesseract,
            upside_down=_cannot_tell,
        ),
    )
}
