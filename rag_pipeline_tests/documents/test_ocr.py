from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rag_pipeline.documents import ocr
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.ocr import Engine, OcrPage, Word
from rag_pipeline.documents.states import WarningKind

OPTIONS = ExtractionConfig(workers=1)
PAGE = np.full((1000, 800, 3), 255, dtype=np.uint8)


def word(text: str, left: float, top: float, confidence: float = 0.99, height: float = 20) -> Word:
    return Word(text, confidence, left, top, left + 10 * len(text), top + height)


def engine(*readings: list[Word], on_its_head: bool | None = False) -> Engine:
    """An engine that gives these readings one after the other, and what it was shown."""
    remaining = list(readings)

    def read(image: Any, threads: int) -> list[Word]:
        shapes.append(image.shape)
        return remaining.pop(0)

    shapes: list[tuple[int, ...]] = []
    made = Engine("fake", "a fake", lambda: "1", lambda: True, read, lambda crop, threads: on_its_head)
    made.read.shapes = shapes  # type: ignore[attr-defined]
    return made


def texts(page: OcrPage) -> list[str]:
    return [line.text for line in page.lines]


def test_columns_are_cut_before_lines_are_sorted() -> None:
    left = [word(f"left column of words {n}", 50, 100 + 30 * n) for n in range(6)]
    right = [word(f"right column of words {n}", 420, 105 + 30 * n) for n in range(6)]
    shuffled = sorted(left + right, key=lambda item: item.text[::-1])
    page = ocr.read_image(PAGE, engine(shuffled), OPTIONS)
    assert texts(page) == [item.text for item in left + right]


def test_confidence_is_weighted_by_length_and_the_least_sure_line_is_kept() -> None:
    page = ocr.read_image(PAGE, engine([word("abcdefghi", 50, 100, 1.0), word("j", 50, 150, 0.5)]), OPTIONS)
    assert page.confidence == pytest.approx((9 * 1.0 + 0.5) / 10)
    assert page.lowest == 0.5


def test_smudges_are_left_out_and_reported() -> None:
    page = ocr.read_image(PAGE, engine([word("words", 50, 100), word("%~", 50, 150, 0.2)]), OPTIONS)
    assert texts(page) == ["words"]
    assert page.dropped == 1
    assert ocr.read_image(PAGE, engine([]), OPTIONS).lines == ()


@pytest.mark.parametrize(
    ("confidence", "lowest", "dropped", "messages"),
    [
        (0.95, 0.8, 0, []),
        (0.89, 0.8, 0, ["mean confidence 0.89"]),
        (0.95, 0.59, 0, ["confidence 0.59"]),
        (0.95, 0.8, 3, ["3 pieces"]),
    ],
)
def test_what_is_said_of_a_page(confidence: float, lowest: float, dropped: int, messages: list[str]) -> None:
    lines = ocr.read_image(PAGE, engine([word("words", 50, 100)]), OPTIONS).lines
    warnings = ocr.warnings_of(OcrPage(lines, confidence, lowest, dropped), 7)
    assert len(warnings) == len(messages)
    for warning, message in zip(warnings, messages, strict=True):
        assert (warning.kind, warning.page) == (WarningKind.LOW_CONFIDENCE, 7)
        assert message in warning.message


def test_a_page_on_its_side_is_turned_and_read_again() -> None:
    on_side = [Word("words that run up", 0.9, 100, 100, 120, 300)]
    upright = [word("words that run up", 50, 100)]
    fake = engine(on_side, upright)
    page = ocr.read_image(PAGE, fake, OPTIONS)
    assert fake.read.shapes == [(1000, 800, 3), (800, 1000, 3)]  # type: ignore[attr-defined]
    assert texts(page) == ["words that run up"]


def test_a_page_on_its_head_is_turned_and_read_again() -> None:
    fake = engine([word("sdrow", 50, 100)], [word("words", 50, 100)], on_its_head=True)
    assert texts(ocr.read_image(PAGE, fake, OPTIONS)) == ["words"]


def test_an_engine_that_cannot_tell_reads_once() -> None:
    assert texts(ocr.read_image(PAGE, engine([word("words", 50, 100)], on_its_head=None), OPTIONS)) == [
        "words"
    ]


def test_a_narrow_image_is_padded_and_a_hair_is_not_read() -> None:
    fake = engine([word("words", 5, 10)])
    ocr.read_image(np.zeros((20, 1600, 3), dtype=np.uint8), fake, OPTIONS)
    assert fake.read.shapes == [(400, 1600, 3)]  # type: ignore[attr-defined]
    assert ocr.read_image(np.zeros((2, 1600, 3), dtype=np.uint8), engine(), OPTIONS).lines == ()


def test_places_are_in_points_from_below() -> None:
    (line,) = ocr.read_image(PAGE, engine([word("words", 100, 900)]), OPTIONS, points_per_pixel=0.5).lines
    assert (line.x, line.x_end) == (50.0, 75.0)
    assert 40 < line.y < 50


def test_chance_differences_of_size_are_evened_out() -> None:
    heights = [20, 24, 17, 20, 50]
    words = [word(f"words of line {n}", 50, 100 + 60 * n, height=height) for n, height in enumerate(heights)]
    sizes = [
        line.pieces[0].size
        for line in ocr.with_even_sizes(ocr.read_image(PAGE, engine(words), OPTIONS).lines)
    ]
    assert len(set(sizes[:4])) == 1
    assert ocr.with_even_sizes([]) == []


def test_the_budget_counts_pages_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    budget = ocr.Budget(replace(OPTIONS, ocr_max_pages=2))
    assert budget.refusal() is None
    budget.spend(1.0)
    budget.spend(1.0)
    assert budget.refusal() == "extraction.ocr_max_pages is 2"
    budget = ocr.Budget(replace(OPTIONS, timeout=100.0))
    budget.spend(30.0)
    now[0] = 49.0
    assert budget.refusal() is None
    now[0] = 51.0  # another page of thirty seconds would end after eighty
    assert "extraction.timeout" in (budget.refusal() or "")


def test_an_engine_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(ocr.ENGINES["tesseract"], is_installed=lambda: False)
    monkeypatch.setitem(ocr.ENGINES, "tesseract", absent)
    with pytest.raises(
        ocr.OcrUnavailableError, match=r"extraction\.ocr is tesseract, which is not installed"
    ):
        ocr.engine_of(replace(OPTIONS, ocr="tesseract"))
    assert ocr.engine_of(replace(OPTIONS, ocr="off")) is None


def test_tesseract_lines_are_its_words_with_their_mean_confidence() -> None:
    table = (
        "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n"
        "1\t1\t0\t0\t0\t0\t0\t0\t800\t1000\t-1\t\n"
        "5\t1\t1\t1\t1\t1\t50\t100\t60\t20\t96.0\tone\n"
        '5\t1\t1\t1\t1\t2\t120\t98\t60\t24\t90.0\t"two\n'
        "5\t1\t1\t1\t2\t1\t50\t130\t60\t20\t80.0\tthree\n"
    )
    assert ocr.words_of_tsv(table) == [
        Word('one "two', pytest.approx(0.93), 50, 98, 180, 122),  # type: ignore[arg-type]
        Word("three", pytest.approx(0.8), 50, 130, 110, 150),  # type: ignore[arg-type]
    ]


def printed(turns: int = 0) -> Any:
    """An image of three printed lines, turned anticlockwise."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (1000, 600), "white")
    font = ImageFont.load_default(40)
    for number, text in enumerate(("The first line of the page", "the second one", "and the third of them")):
        ImageDraw.Draw(image).text((60, 80 + 90 * number), text, fill="black", font=font)
    return np.ascontiguousarray(np.rot90(np.asarray(image), turns))


@pytest.mark.slow
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_rapidocr_reads_a_page_whichever_way_it_lies(turns: int) -> None:
    found = ocr.engine_of(OPTIONS)
    assert found is not None
    page = ocr.read_image(printed(turns), found, OPTIONS)
    assert [text.casefold() for text in texts(page)] == [
        "the first line of the page",
        "the second one",
        "and the third of them",
    ]
    assert page.confidence > 0.9
