"""Plots of an evaluation as SVG or PNG bytes, on a transparent ground and readable on light and dark pages.

Every colour keeps a contrast of 3:1 or more against both white and near-black (WCAG 2.2, 1.4.11), and no
series is told apart by colour alone. matplotlib is imported when a plot is drawn; pyplot and its global state
never are.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rag_pipeline.evaluation.result import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]

INK = "#7d828a"
SERIES = ("#2f86d6", "#d9660f", "#2a9461", "#b05cc6")
BLUFF = "#e0404a"
MARKERS = ("o", "s", "^", "D")
# Fixed, so that the same evaluation gives the same bytes.
_SALT = "rag_pipeline"


def recall_figure(evaluation: Evaluation, format: Format = "svg") -> bytes:
    """Return recall by retriever at every depth, with 95 % Wilson intervals, as the bytes of an image."""
    figure = _figure(width=1.9 * len(evaluation.ks) + 1.4)
    axes = _axes(figure, f"Recall over {evaluation.queries} queries, 95 % Wilson intervals")
    step = 0.8 / max(1, len(evaluation.modes))
    for at, mode in enumerate(evaluation.modes):
        estimates = [evaluation.recall(mode, k) for k in evaluation.ks]
        places = [depth + (at - (len(evaluation.modes) - 1) / 2) * step for depth in range(len(estimates))]
        values = [estimate.value or 0.0 for estimate in estimates]
        # An interval need not hold a value that is exactly 0 or 1 to the last bit.
        below = [
            max(0.0, value - (estimate.low or 0.0)) for value, estimate in zip(values, estimates, strict=True)
        ]
        above = [
            max(0.0, (estimate.high or 0.0) - value)
            for value, estimate in zip(values, estimates, strict=True)
        ]
        axes.errorbar(
            places,
            values,
            yerr=[below, above],
            fmt=MARKERS[at % len(MARKERS)],
            color=SERIES[at % len(SERIES)],
            capsize=4,
            markersize=7,
            linewidth=2,
            label=f"{mode} (served)" if mode == evaluation.served.mode else mode,
        )
        for place, value, high in zip(places, values, above, strict=True):
            axes.annotate(
                f"{value:.2f}",
                (place, value + high),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=SERIES[at % len(SERIES)],
            )
    axes.set_xticks(range(len(evaluation.ks)), [f"Recall@{k}" for k in evaluation.ks])
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    _legend(axes, columns=len(evaluation.modes))
    return _image(figure, format)


def sweep_figure(evaluation: Evaluation, format: Format = "svg") -> bytes:
    """Return what each threshold gives up (above) and lets through (below), as the bytes of an image."""
    rows = evaluation.sweep()
    thresholds = [row.threshold for row in rows]
    figure = _figure(width=8, height=6.4)
    upper = _axes(figure, f"In-domain queries by threshold ({evaluation.served.mode})", place=(2, 1, 1))
    _steps(upper, thresholds, [row.answered for row in rows], "answered", SERIES[2], "-")
    _steps(upper, thresholds, [row.wrong for row in rows], "wrong passages only", SERIES[1], "--")
    _steps(upper, thresholds, [row.refused for row in rows], "refused", SERIES[0], ":")
    lower = _axes(figure, "Bluffs: out-of-domain queries let through", place=(2, 1, 2))
    _steps(lower, thresholds, [row.bluffs for row in rows], "bluffs", BLUFF, "-")
    _steps(lower, thresholds, [row.bluffs_near for row in rows], "near", SERIES[3], "--")
    _steps(lower, thresholds, [row.bluffs_far for row in rows], "far", SERIES[0], ":")
    for axes, total in ((upper, evaluation.queries), (lower, evaluation.out_of_domain_count())):
        axes.set_ylim(0, max(1, total) * 1.05)
        axes.axvline(evaluation.served.threshold, color=INK, linewidth=1.5, dashes=(4, 2))
        axes.annotate(
            f"served {evaluation.served.threshold:g}",
            (evaluation.served.threshold, max(1, total)),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=10,
            color=INK,
        )
        axes.set_ylabel("queries", color=INK, fontsize=11)
        _legend(axes, columns=3)
    lower.set_xlabel("threshold (cosine distance)", color=INK, fontsize=11)
    return _image(figure, format)


def _figure(width: float, height: float = 4.2) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    FigureCanvasAgg(figure)
    return figure


def _axes(figure: Figure, title: str, place: tuple[int, int, int] = (1, 1, 1)) -> Axes:
    axes: Axes = figure.add_subplot(*place)
    axes.patch.set_alpha(0)
    axes.set_title(title, color=INK, fontsize=12, loc="left", pad=30)
    axes.tick_params(colors=INK, labelsize=11)
    axes.grid(axis="y", color=INK, alpha=0.35, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    return axes


def _steps(
    axes: Axes, thresholds: Sequence[float], counts: Sequence[int], label: str, color: str, style: str
) -> None:
    axes.plot(thresholds, counts, linestyle=style, color=color, linewidth=2.2, label=label)


def _legend(axes: Axes, columns: int) -> None:
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=max(1, columns), frameon=False, fontsize=11
    )
    for text in legend.get_texts():
        text.set_color(INK)


def _image(figure: Figure, format: Format) -> bytes:
    import matplotlib

    metadata: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[format]
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(buffer, format=format, metadata=metadata, transparent=True, dpi=150)
    return buffer.getvalue()
