"""The gate: what a build must hold to be published. Declared objects in a registry, decided one by one.

A gate looks at an evaluation (and at the published build's, where there is one) and returns a value, its
limit and a decision. A failed gate either blocks publication or warns; a blocked build stays inspectable.
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_pipeline.evaluation.gate_model import (
    DocumentCounts,
    Finding,
    Gate,
    GateContext,
    GateDecision,
    GateResult,
    Severity,
)
from rag_pipeline.evaluation.significance import paired_comparison

__all__ = [
    "GATES",
    "DocumentCounts",
    "Finding",
    "Gate",
    "GateContext",
    "GateDecision",
    "GateResult",
    "Severity",
    "decide_gates",
]


def decide_gates(context: GateContext) -> GateDecision:
    """Return the decision of every gate of `GATES`, in its order."""
    results = tuple(gate.decide(context) for gate in GATES.values())
    return GateDecision(not any(result.blocks for result in results), results)


def _ground_truth_valid(context: GateContext) -> Finding:
    # A needle that extraction lost is no fault of the question; it has a gate, and a limit, of its own.
    broken = [
        truth for truth in context.evaluation.ground_truth if not truth.valid and not truth.lost_in_extraction
    ]
    total = context.evaluation.questions
    if not broken:
        return Finding(True, 0, 0, f"Each of the {total} questions agrees with the corpus.")
    reasons = [f"{truth.question.id}: {truth.problem}" for truth in broken]
    return Finding(
        False, len(broken), 0, f"{len(broken)} of {total} questions are invalid. {_some(reasons, '; ')}."
    )


def _destroyed_answers(context: GateContext) -> Finding:
    ids, limit = context.evaluation.destroyed, context.config.max_destroyed
    present = sum(truth.in_canonical for truth in context.evaluation.ground_truth)
    message = f"{len(ids)} of {present} needles in the canonical text lie inside no chunk's passage"
    return Finding(len(ids) <= limit, len(ids), limit, f"{message}{_listed(ids)}.")


def _lost_in_extraction(context: GateContext) -> Finding:
    lost = [truth for truth in context.evaluation.ground_truth if truth.lost_in_extraction]
    limit = context.config.max_lost_in_extraction
    message = f"{len(lost)} of {context.evaluation.questions} needles were lost in extraction."
    if lost:
        message += f" {_some([f'{truth.question.id}: {truth.problem}' for truth in lost], '; ')}."
    return Finding(len(lost) <= limit, len(lost), limit, message)


def _recall_floor(context: GateContext) -> Finding:
    evaluation, config = context.evaluation, context.config
    recall = evaluation.recall(evaluation.served.mode, config.recall_k)
    assert recall.low is not None and recall.high is not None and recall.value is not None
    message = (
        f"Recall@{config.recall_k} of {evaluation.served.mode} is {recall.value:.3f} [{recall.low:.3f}, "
        f"{recall.high:.3f}] over {recall.n} queries"
    )
    if config.min_recall is None:
        return Finding(True, recall.low, None, f"{message}; no floor is set.")
    passed = recall.low >= config.min_recall
    verb = "reaches" if passed else "stays below"
    return Finding(
        passed,
        recall.low,
        config.min_recall,
        f"{message}; its lower end {verb} the floor {config.min_recall:g}.",
    )


def _no_significant_loss(context: GateContext) -> Finding:
    config = context.config
    if context.baseline is None:
        return Finding(True, None, config.alpha, _nothing_to_compare(context), config.block_on_loss)
    comparison = paired_comparison(
        context.baseline.found(config.comparison_k), context.evaluation.found(config.comparison_k)
    )
    if not comparison.common:
        return Finding(True, None, config.alpha, comparison.sentence(), config.block_on_loss)
    return Finding(
        passed=not comparison.significant_loss(config.alpha),
        value=comparison.p_value,
        limit=config.alpha,
        message=comparison.sentence(config.alpha, done=f"found in the first {config.comparison_k} chunks"),
        blocks=config.block_on_loss,
    )


def _bluffs(context: GateContext) -> Finding:
    config = context.config
    figures = context.evaluation.refusal()
    total = context.evaluation.out_of_domain_count()
    if not total:
        return Finding(True, None, config.max_bluffs, "Nothing to judge: there are no out-of-domain queries.")
    message = (
        f"{figures.bluffs} of {total} out-of-domain queries pass the threshold {figures.threshold:g} "
        f"({figures.bluffs_near} near, {figures.bluffs_far} far)"
    )
    if config.max_bluffs is not None and figures.bluffs > config.max_bluffs:
        return Finding(
            False, figures.bluffs, config.max_bluffs, f"{message}; the ceiling is {config.max_bluffs}."
        )
    if context.baseline is None:
        return Finding(True, figures.bluffs, config.max_bluffs, f"{message}. {_nothing_to_compare(context)}")
    rise = paired_comparison(context.baseline.held_back(), context.evaluation.held_back())
    compared = rise.sentence(config.alpha, done="held back", queries="out-of-domain queries")
    return Finding(
        passed=not rise.significant_loss(config.alpha),
        value=figures.bluffs,
        limit=config.max_bluffs,
        message=f"{message}. {compared}",
        blocks=config.block_on_bluffs,
    )


def _vanished_documents(context: GateContext) -> Finding:
    documents, limit = context.documents, context.config.max_vanished_share
    if not documents.published:
        return Finding(True, 0.0, limit, "Nothing to compare with: no published build has documents.")
    share = len(documents.vanished) / documents.published
    message = (
        f"{len(documents.vanished)} of the published build's {documents.published} documents are gone "
        f"({share:.1%}, limit {limit:.1%}){_listed(documents.vanished)}."
    )
    return Finding(share <= limit, share, limit, message)


def _failed_documents(context: GateContext) -> Finding:
    documents, limit = context.documents, context.config.max_failed_share
    tried = documents.indexed + documents.failed
    share = documents.failed / tried if tried else 0.0
    message = f"{documents.failed} of {tried} documents failed ({share:.1%}, limit {limit:.1%})."
    return Finding(not documents.failed, share, limit, message, blocks=share > limit)


def _structure(context: GateContext) -> Finding:
    problems = context.structure
    if not problems:
        return Finding(True, 0, 0, "Vectors, counts and slices agree with each other and with the stamp.")
    return Finding(False, len(problems), 0, f"{len(problems)} problems. {_some(problems, ' ')}")


def _encoder_window(context: GateContext) -> Finding:
    evaluation = context.evaluation
    beyond = evaluation.beyond_window
    if evaluation.window is None:
        return Finding(True, evaluation.chunks_over_window, 0, "The encoder reads every chunk whole.")
    message = (
        f"{evaluation.chunks_over_window} of {evaluation.chunks} chunks are longer than the encoder's "
        f"{evaluation.window} pieces, {len(beyond)} needles lie beyond it{_listed(beyond)}."
    )
    passed = not evaluation.chunks_over_window and not beyond
    return Finding(passed, evaluation.chunks_over_window, 0, message)


def _questions_present(context: GateContext) -> Finding:
    evaluation, required = context.evaluation, context.config.require_questions
    if evaluation.scored:
        message = f"{evaluation.questions} questions in {evaluation.queries} phrasings score this build."
        return Finding(True, evaluation.questions, 1, message, required)
    message = "No question scores this build: only its structure was checked" + (
        ", and gate.require_questions is set." if required else "; it is published as unscored."
    )
    return Finding(False, 0, 1, message, required)


def _nothing_to_compare(context: GateContext) -> str:
    if context.published_build is None:
        return "Nothing to compare with: no build is published."
    return f"Nothing to compare with: the published build {context.published_build} has no evaluation."


def _listed(ids: Sequence[str]) -> str:
    return f": {_some(ids, ', ')}" if ids else ""


def _some(items: Sequence[str], separator: str, most: int = 10) -> str:
    shown = separator.join(items[:most])
    return f"{shown}{separator}and {len(items) - most} more" if len(items) > most else shown


GATES: dict[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate(
            "ground_truth_valid",
            "Ground truth valid",
            "Every question's needle stands exactly once in the corpus, in the named document, in no "
            "heading.",
            "Repair the listed questions, or the documents they name: a question must not leave the test "
            "by being broken.",
            blocking=True,
            needs_questions=True,
            find=_ground_truth_valid,
        ),
        Gate(
            "destroyed_answers",
            "Destroyed answers",
            "Every needle of the canonical text lies whole inside the passage of some chunk.",
            "Choose a strategy that keeps paragraphs whole (C, E) or adds an overlap (B, D, F); no "
            "retriever can find what no chunk holds.",
            blocking=True,
            needs_questions=True,
            find=_destroyed_answers,
        ),
        Gate(
            "lost_in_extraction",
            "Lost in extraction",
            "Every needle that the source holds reaches the canonical text.",
            "Look at the named document's state, reason and warnings; repair the file or its extraction, "
            "then index again.",
            blocking=True,
            needs_questions=True,
            find=_lost_in_extraction,
        ),
        Gate(
            "recall_floor",
            "Recall floor",
            "The lower end of the 95 % interval of recall in the served mode reaches gate.min_recall.",
            "Read the verdicts of the lost queries to see where they were lost; more queries narrow the "
            "interval.",
            blocking=True,
            needs_questions=True,
            find=_recall_floor,
        ),
        Gate(
            "no_significant_loss",
            "No significant loss",
            "On the queries both were asked, this build finds no significantly fewer answers than the "
            "published one.",
            "Compare the lost queries with the published build's; undo the change that lost them, or "
            "accept the loss with gate.block_on_loss = false.",
            blocking=True,
            needs_questions=True,
            find=_no_significant_loss,
        ),
        Gate(
            "bluffs",
            "Bluffs",
            "The threshold lets no significantly more out-of-domain queries through than in the published "
            "build, and no more than gate.max_bluffs.",
            "Look at the sweep for a threshold with fewer bluffs, and at the answers it would cost.",
            blocking=True,
            needs_questions=False,
            find=_bluffs,
        ),
        Gate(
            "vanished_documents",
            "Vanished documents",
            "The published build's documents are still in the source, up to gate.max_vanished_share.",
            "Check that source.path is the right and complete folder. If they were removed on purpose, "
            "raise gate.max_vanished_share for one run.",
            blocking=True,
            needs_questions=False,
            find=_vanished_documents,
        ),
        Gate(
            "failed_documents",
            "Failed documents",
            "No document failed; more than gate.max_failed_share of them blocks.",
            "Read the reasons in the table of documents, repair the files, and run the retry job.",
            blocking=True,
            needs_questions=False,
            find=_failed_documents,
        ),
        Gate(
            "structure",
            "Structure",
            "Vectors are finite and of unit length, one fingerprint made them, counts agree, contents are "
            "slices.",
            "The tables contradict each other: build again; if it stays, the storage is damaged or this is "
            "a defect.",
            blocking=True,
            needs_questions=False,
            find=_structure,
        ),
        Gate(
            "encoder_window",
            "Encoder window",
            "Every chunk fits into the encoder's window, which truncates silently.",
            "Lower chunking.target, or choose an encoder with a longer window.",
            blocking=False,
            needs_questions=False,
            find=_encoder_window,
        ),
        Gate(
            "questions_present",
            "Questions present",
            "There are questions to score the build with; gate.require_questions makes their absence block.",
            "Name a question file in evaluation.questions.",
            blocking=False,
            needs_questions=False,
            find=_questions_present,
        ),
    )
}
