"""An evaluation in Markdown, for the command line and for metadata in the Dagster UI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rag_pipeline.evaluation.gate_model import GateDecision, GateResult
from rag_pipeline.evaluation.metrics import Estimate
from rag_pipeline.evaluation.questions import OutOfDomainKind
from rag_pipeline.evaluation.result import Evaluation
from rag_pipeline.evaluation.significance import paired_comparison
from rag_pipeline.evaluation.verdicts import Verdict


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; pipes and line breaks in cells are escaped, columns padded to line up."""
    cells = [[_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(header))]
    lines = [_line(row, widths) for row in cells]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    return "\n".join(lines)


def summary_table(evaluation: Evaluation) -> str:
    """Return the counts of a build: questions, destroyed answers, window, header share."""
    share = evaluation.header_share
    beyond = evaluation.beyond_window
    rows: list[tuple[str, str]] = [
        ("Build", evaluation.build),
        ("Questions", f"{evaluation.questions} in {evaluation.queries} phrasings"),
        ("Out-of-domain queries", _kinds(evaluation)),
        ("Chunks", f"{evaluation.chunks:,}"),
        ("Destroyed answers", _count(evaluation.destroyed)),
        ("Needles lost in extraction", _count(evaluation.lost_in_extraction)),
        (
            "Chunks over the encoder's window",
            f"{evaluation.chunks_over_window}"
            + ("" if evaluation.window is None else f" (over {evaluation.window} pieces)"),
        ),
        ("Needles beyond it", _count(beyond)),
        (
            "Embedded word pieces",
            f"{evaluation.embedded_tokens:,}"
            + ("" if share is None else f", of which headers {evaluation.header_tokens:,} ({share:.1%})"),
        ),
        (
            "Served",
            f"{evaluation.served.mode}, first {evaluation.served.k}, below {evaluation.served.threshold:g}",
        ),
        *(
            (f"Median query, {mode} (local)", f"{milliseconds:.1f} ms")
            for mode, milliseconds in evaluation.milliseconds.items()
        ),
    ]
    return markdown_table(("What", "Figure"), rows)


def recall_table(evaluation: Evaluation) -> str:
    """Return recall by retriever and depth with 95 % Wilson intervals, and the mean reciprocal rank."""
    if not evaluation.scored:
        return "Unscored: there are no questions."
    rows = [
        [
            f"{mode} (served)" if mode == evaluation.served.mode else mode,
            *(_interval(evaluation.recall(mode, k)) for k in evaluation.ks),
            _number(evaluation.mean_reciprocal_rank(mode).value),
        ]
        for mode in evaluation.modes
    ]
    return markdown_table(("Retriever", *(f"Recall@{k}" for k in evaluation.ks), "MRR"), rows)


def sweep_table(evaluation: Evaluation) -> str:
    """Return what each threshold does to the served mode's queries, its bluffs in the last column."""
    configured = evaluation.served.threshold
    rows = [
        [
            f"**{row.threshold:g}** (served)" if row.threshold == configured else f"{row.threshold:.3f}",
            row.answered,
            row.wrong,
            row.refused,
            row.bluffs_near,
            row.bluffs_far,
            row.bluffs,
        ]
        for row in evaluation.sweep()
    ]
    return markdown_table(
        ("Threshold", "Answered", "Wrong", "Refused", "Bluffs, near", "Bluffs, far", "Bluffs"), rows
    )


def verdict_table(evaluation: Evaluation) -> str:
    """Return how many queries of each retriever got each verdict."""
    counts = {mode: [outcome.verdict for outcome in evaluation.of_mode(mode)] for mode in evaluation.modes}
    rows = [
        [verdict.value, *(counts[mode].count(verdict) for mode in evaluation.modes)] for verdict in Verdict
    ]
    return markdown_table(("Verdict", *evaluation.modes), rows)


def lost_table(evaluation: Evaluation, most: int = 100) -> str:
    """Return the served mode's queries that got no answer, with their verdict and every retriever's rank.

    At most `most` rows, and a line that tells how many more there are.
    """
    ranks = {(outcome.key, outcome.mode): outcome.rank for outcome in evaluation.outcomes}
    lost = [
        outcome
        for outcome in evaluation.of_mode(evaluation.served.mode)
        if outcome.verdict is not Verdict.ANSWERED
    ]
    if not lost:
        return "No query was lost." if evaluation.scored else "Unscored: there are no questions."
    rows = [
        [
            outcome.question_id,
            outcome.query,
            outcome.verdict.value,
            *(ranks[outcome.key, mode] or "none" for mode in evaluation.modes),
        ]
        for outcome in lost[:most]
    ]
    header = ("Question", "Query", "Verdict", *(f"Rank, {mode}" for mode in evaluation.modes))
    rest = f"\n\n... and {len(lost) - most} more." if len(lost) > most else ""
    return markdown_table(header, rows) + rest


def gate_table(decision: GateDecision) -> str:
    """Return every gate's value, limit and decision, and what to do about those that failed."""
    rows = [
        [result.title, _number(result.value), _number(result.limit), _decision(result), result.message]
        for result in decision.results
    ]
    advice = [f"- {result.title}: {result.advice}" for result in decision.results if not result.passed]
    table = markdown_table(("Gate", "Value", "Limit", "Decision", "What was seen"), rows)
    return table + ("\n\nWhat to do:\n\n" + "\n".join(advice) if advice else "")


def comparison_in_words(
    evaluation: Evaluation, baseline: Evaluation | None, *, k: int, alpha: float = 0.05
) -> str:
    """Return the paired comparison with the published build in the served modes, one sentence a line."""
    if baseline is None:
        return "Nothing to compare with: no published build has been scored."
    answers = paired_comparison(baseline.found(k), evaluation.found(k))
    sentences = [answers.sentence(alpha, done=f"found in the first {k} chunks")]
    refusals = paired_comparison(baseline.held_back(), evaluation.held_back())
    if refusals.common:
        sentences.append(refusals.sentence(alpha, done="held back", queries="out-of-domain queries"))
    return "\n\n".join(sentences)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _interval(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "none"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _decision(result: GateResult) -> str:
    if result.passed:
        return "passed"
    return "BLOCKS" if result.blocks else "warns"


def _count(ids: Sequence[str]) -> str:
    return f"{len(ids)}: {', '.join(ids)}" if ids else "0"


def _kinds(evaluation: Evaluation) -> str:
    counts = (f"{evaluation.out_of_domain_count(kind)} {kind.value}" for kind in OutOfDomainKind)
    return f"{evaluation.out_of_domain_count()} ({', '.join(counts)})"
