"""Files made to do harm, and small files damaged at random: every one of them ends in a named state."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from rag_pipeline.documents import ocr
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import Extracted, extract_bytes
from rag_pipeline.documents.isolation import ExtractionJob, extract_isolated
from rag_pipeline.documents.media_types import JPEG, PDF, PNG, TIFF
from rag_pipeline.documents.ocr import Word
from rag_pipeline.documents.source import scan_source
from rag_pipeline.documents.states import DocumentState, FailureReason
from rag_pipeline_tests.documents.pdf_files import HELLO, HELVETICA, assembled, drawn, one_page, page, stream

pytestmark = pytest.mark.slow

OPTIONS = ExtractionConfig(workers=1, timeout=120.0, memory_limit_mb=1024, ocr="off")


def of_tree(tree: bytes, **others: bytes) -> bytes:
    objects = {1: b"<</Type/Catalog/Pages 2 0 R>>", 2: tree, 3: page(5), 4: HELVETICA, 5: stream(HELLO)}
    return assembled(objects | {int(name[1:]): body for name, body in others.items()})


def many_pages(count: int) -> bytes:
    kids = b" ".join(b"%d 0 R" % number for number in range(10, 10 + count))
    pages = {f"o{number}": page(5) for number in range(10, 10 + count)}
    return of_tree(b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, count), **pages)


def packed(block: bytes, times: int, start: bytes = b"") -> bytes:
    """A stream that unpacks to `times` blocks."""
    packer = zlib.compressobj(9)
    data = packer.compress(start) + b"".join(packer.compress(block) for _ in range(times)) + packer.flush()
    return stream(data, b"/Filter/FlateDecode")


def forms_in_forms() -> bytes:
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 600 900]/Resources<</XObject<</X %d 0 R>>/Font<</F 4 0 R>>>>"
    forms = {f"o{n}": stream(b"/X Do " * 10 if n < 19 else HELLO, form % (n + 1)) for n in range(10, 20)}
    data = one_page(b"/X Do", **forms)
    return data.replace(b"/Resources<</Font<</F 4 0 R>>>>", b"/Resources<</XObject<</X 10 0 R>>>>", 1)


def picture_of(width: int, height: int) -> bytes:
    image = packed(bytes(2**20), width * height // 8 // 2**20)
    image = image.replace(
        b"<<",
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent 1/ColorSpace/DeviceGray"
        % (width, height),
        1,
    )
    data = one_page(b"q 595 0 0 842 0 0 cm /X Do Q", o6=image)
    return data.replace(b"/Font<</F 4 0 R>>", b"/XObject<</X 6 0 R>>", 1)


HOSTILE: dict[str, tuple[Callable[[], bytes], set[FailureReason | None]]] = {
    "kids that are their own parent": (lambda: of_tree(b"<</Type/Pages/Kids[2 0 R 3 0 R]/Count 2>>"), {None}),
    "a page that is its own parent": (
        lambda: of_tree(
            b"<</Type/Pages/Kids[3 0 R]/Count 1/Parent 2 0 R>>", o3=b"<</Type/Page/Parent 3 0 R>>"
        ),
        {FailureReason.CORRUPT, FailureReason.NO_TEXT},
    ),
    "a count that lies": (lambda: of_tree(b"<</Type/Pages/Kids[3 0 R]/Count 2000000000>>"), {None}),
    "ten thousand pages": (lambda: many_pages(10_000), {FailureReason.TOO_LARGE}),
    "arrays in arrays": (
        lambda: of_tree(b"<</Type/Pages/Kids[3 0 R]/Count 1>>", o3=b"[" * 100_000 + b"]" * 100_000),
        {FailureReason.CORRUPT},
    ),
    "a form ten times in a form, ten times over": (
        forms_in_forms,
        {FailureReason.OUT_OF_MEMORY, FailureReason.TIMEOUT, FailureReason.CRASHED},
    ),
    "a stream of blanks": (
        lambda: one_page(b"").replace(stream(b""), packed(b" " * 2**20, 2048)),
        {FailureReason.CORRUPT, FailureReason.OUT_OF_MEMORY, FailureReason.NO_TEXT, FailureReason.TIMEOUT},
    ),
    "a stream of text": (
        lambda: one_page(b"").replace(
            stream(b""), packed(b"(aaaaaaaaaaaaaaaaaaaaaaaa) Tj 0 -1 Td\n" * 20_000, 150, b"BT /F 1 Tf ")
        ),
        {FailureReason.OUT_OF_MEMORY, FailureReason.TIMEOUT, FailureReason.TOO_LARGE, FailureReason.CRASHED},
    ),
    "a picture of more than two thousand million dots": (
        lambda: picture_of(50_000, 48_000),
        {None, FailureReason.NO_TEXT},
    ),
    "a page as wide as a country": (
        lambda: of_tree(b"<</Type/Pages/Kids[3 0 R]/Count 1>>", o3=page(5, box=b"0 0 1000000000 1000000000")),
        {None},
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_within_the_limits(name: str, tmp_path: Path) -> None:
    make, allowed = HOSTILE[name]
    (tmp_path / "hostile.pdf").write_bytes(make())
    jobs = [ExtractionJob.of(d) for d in scan_source(tmp_path) if d.state is DocumentState.LISTED]
    ((_, found),) = list(extract_isolated(jobs, OPTIONS, tmp_path))
    assert named(found)
    no_text = found.state is DocumentState.EXTRACTED and not any(s.text.strip() for s in found.segments)
    assert (FailureReason.NO_TEXT if no_text else found.reason) in allowed


def named(found: Extracted) -> bool:
    if found.state is DocumentState.EXTRACTED:
        return found.reason is None
    return (
        found.state is DocumentState.FAILED
        and isinstance(found.reason, FailureReason)
        and bool(found.message)
    )


def two_columns() -> bytes:
    return drawn(
        [
            (50 + 270 * (n % 2), 700 - 12 * (n // 2), f"words of line {n} in a page of two columns")
            for n in range(40)
        ],
        [(50, 700, "The second page, which holds a short text.")],
    )


def image(form: str) -> bytes:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (200, 80), "white")
    ImageDraw.Draw(picture).text((10, 30), "a few words", fill="black")
    target = BytesIO()
    more = {"save_all": True, "append_images": [picture]} if form == "TIFF" else {}
    picture.save(target, format=form, **more)
    return target.getvalue()


SEEDS = {
    "pdf": (PDF, two_columns),
    "png": (PNG, lambda: image("PNG")),
    "jpeg": (JPEG, lambda: image("JPEG")),
    "tiff": (TIFF, lambda: image("TIFF")),
}


@pytest.mark.parametrize("kind", SEEDS)
def test_damaged_files_end_in_a_named_state(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What OCR would read does not matter here, only that what it is shown is an image.
    fake = replace(
        ocr.ENGINES["rapidocr"],
        read=lambda picture, threads: [Word("words", 0.9, 0.0, 0.0, float(picture.shape[1]), 20.0)],
        upside_down=lambda crop, threads: None,
    )
    monkeypatch.setitem(ocr.ENGINES, "rapidocr", fake)
    media_type, make = SEEDS[kind]
    whole = make()
    generator = random.Random(20)
    options = replace(OPTIONS, ocr="rapidocr")
    for _ in range(120):
        data = bytearray(whole)
        if generator.random() < 0.4:
            del data[generator.randrange(8, len(data)) :]
        if generator.random() < 0.3:
            start = generator.randrange(8, len(data)) if len(data) > 8 else len(data)
            data[start:start] = data[: generator.randrange(200)]
        for _ in range(generator.choice([0, 1, 3, 30])):
            data[generator.randrange(len(data))] = generator.randrange(256)
        assert named(extract_bytes(bytes(data), media_type, options))
