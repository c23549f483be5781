from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from rag_pipeline.evaluation import figures
from rag_pipeline.evaluation.figures import recall_figure, sweep_figure
from rag_pipeline.evaluation.result import Evaluation
from rag_pipeline_tests.evaluation.fakes import evaluation

RESULT = evaluation([1] * 38 + [None] * 26, [0.5, 0.6, 0.9])
FIGURES = [recall_figure, sweep_figure]


@pytest.mark.parametrize("draw", FIGURES)
def test_images_are_whole_and_the_same_each_time(draw: Callable[..., bytes]) -> None:
    svg = draw(RESULT)
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert draw(RESULT) == svg
    assert draw(RESULT, "png").startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("draw", FIGURES)
def test_an_unscored_evaluation_is_drawn(draw: Callable[[Evaluation], bytes]) -> None:
    assert draw(evaluation())


def test_pyplot_is_left_alone_and_matplotlib_is_imported_late() -> None:
    program = (
        "import sys; import rag_pipeline.evaluation.figures as f; assert 'matplotlib' not in sys.modules; "
        "from rag_pipeline_tests.evaluation.fakes import evaluation; f.recall_figure(evaluation([1])); "
        "assert 'matplotlib.pyplot' not in sys.modules; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("color", [figures.INK, figures.BLUFF, *figures.SERIES])
@pytest.mark.parametrize("ground", ["#ffffff", "#16181c"])
def test_colours_stand_out_on_light_and_dark(color: str, ground: str) -> None:
    lighter, darker = sorted((luminance(color), luminance(ground)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 3
