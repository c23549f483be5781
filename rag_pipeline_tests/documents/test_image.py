from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from rag_pipeline.documents import image, ocr
from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import ExtractionFailure, extract_bytes
from rag_pipeline.documents.media_types import PNG, TIFF
from rag_pipeline.documents.ocr import OcrPage, Word
from rag_pipeline.documents.states import DocumentState, FailureReason, WarningKind
from rag_pipeline_tests.documents.conftest import text_of

OPTIONS = ExtractionConfig(workers=1)


def saved(*pictures: Any, form: str = "PNG", **settings: Any) -> bytes:
    target = BytesIO()
    more = {"save_all": True, "append_images": pictures[1:]} if len(pictures) > 1 else {}
    pictures[0].save(target, format=form, **more, **settings)
    return target.getvalue()


def plain(width: int = 300, height: int = 200, colour: Any = "white", mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.new(mode, (width, height), colour)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the OCR engine was shown; it reads the number of the image."""
    images: list[Any] = []

    def read(picture: Any, threads: int) -> list[Word]:
        images.append(picture)
        return [Word(f"page number {len(images)}.", 0.7, 10, 10, 200, 30)]

    fake = replace(ocr.ENGINES["rapidocr"], read=read, upside_down=lambda crop, threads: None)
    monkeypatch.setitem(ocr.ENGINES, "rapidocr", fake)
    return images


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_an_image_is_a_page_read_by_ocr(form: str, shown: list[Any]) -> None:
    content = image.extract(saved(plain(), form=form), OPTIONS)
    assert text_of(content) == "page number 1.\n"
    assert [(page.page, page.ocr, page.confidence) for page in content.pages] == [(1, True, 0.7)]
    assert [(warning.kind, warning.page) for warning in content.warnings] == [(WarningKind.LOW_CONFIDENCE, 1)]
    assert shown[0].shape == (200, 300, 3)


def test_every_page_of_a_tiff_has_its_place(shown: list[Any]) -> None:
    data = saved(plain(), plain(), plain(), form="TIFF")
    document = canonicalise("scan.tif", extract_bytes(data, TIFF, OPTIONS), OPTIONS)
    assert document.text == "page number 1.\n\npage number 2.\n\npage number 3.\n"
    assert [span.locator.page for span in document.locators] == [1, 2, 3]


def test_large_images_are_made_smaller_and_turned_ones_upright(shown: list[Any]) -> None:
    from PIL import Image

    sideways = plain(4000, 1000)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter clockwise
    image.extract(saved(sideways, form="JPEG", exif=exif), OPTIONS)
    height, width, _ = shown[0].shape
    assert height == ocr.LONG_SIDE
    assert width == ocr.LONG_SIDE // 4


@pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "P", "1", "CMYK"])
def test_every_kind_of_image_is_seen_on_white_paper(mode: str, shown: list[Any]) -> None:
    form = "TIFF" if mode in ("CMYK", "I;16") else "PNG"
    picture = plain(mode="RGB").convert(mode) if mode != "I;16" else plain(mode="I;16", colour=700)
    if mode in ("RGBA", "LA"):
        picture.putalpha(0)
    image.extract(saved(picture, form=form), OPTIONS)
    assert int(shown[0].min()) == 255


def test_too_many_pixels_or_pages_fail(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "_MAX_PIXELS", 50_000)
    with pytest.raises(ExtractionFailure, match="300 x 200 pixels") as caught:
        image.extract(saved(plain()), OPTIONS)
    assert caught.value.reason is FailureReason.TOO_LARGE
    monkeypatch.undo()
    with pytest.raises(ExtractionFailure, match=r"3 pages; extraction\.max_pages is 2"):
        image.extract(saved(plain(), plain(), plain(), form="TIFF"), replace(OPTIONS, max_pages=2))


def test_pages_beyond_the_limit_are_reported(shown: list[Any]) -> None:
    data = saved(plain(), plain(), form="TIFF")
    content = image.extract(data, replace(OPTIONS, ocr_max_pages=1))
    assert text_of(content) == "page number 1.\n"
    assert content.warnings[-1].kind is WarningKind.OCR_SKIPPED
    assert content.warnings[-1].page == 2


def test_without_ocr_an_image_has_no_text() -> None:
    with pytest.raises(ExtractionFailure, match=r"extraction\.ocr is off") as caught:
        image.extract(saved(plain()), replace(OPTIONS, ocr="off"))
    assert caught.value.reason is FailureReason.NO_TEXT


def test_an_image_without_text_fails_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "read_image", lambda *args, **kwargs: OcrPage((), 0.0, 0.0))
    document = canonicalise("p.png", extract_bytes(saved(plain()), PNG, OPTIONS), OPTIONS)
    assert (document.state, document.reason) == (DocumentState.FAILED, FailureReason.NO_TEXT)
    assert [warning.kind for warning in document.warnings] == [WarningKind.NO_TEXT_LAYER]


def test_damaged_images_are_corrupt(shown: list[Any]) -> None:
    whole = saved(plain(colour="black"))
    for data in (whole[:20], whole[:60], b"\x89PNG\r\n\x1a\n" + bytes(50)):
        with pytest.raises(ExtractionFailure) as caught:
            image.extract(data, OPTIONS)
        assert caught.value.reason is FailureReason.CORRUPT
