from __future__ import annotations

from dataclasses import replace

from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.gates import DocumentCounts, GateContext, decide_gates
from rag_pipeline.evaluation.tables import (
    comparison_in_words,
    gate_table,
    lost_table,
    markdown_table,
    recall_table,
    summary_table,
    sweep_table,
    verdict_table,
)
from rag_pipeline_tests.evaluation.fakes import evaluation

RESULT = evaluation([1] * 38 + [None] * 26, [0.5, 0.9])


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_cells_cannot_break_the_table() -> None:
    table = markdown_table(("a", "b"), [["x|y", "two\nlines"]])
    assert table.splitlines() == ["| a    | b         |", "| ---- | --------- |", "| x\\|y | two lines |"]


def test_recall_has_its_interval() -> None:
    table = cells(recall_table(RESULT))
    assert table[0] == ["Retriever", "Recall@1", "Recall@4", "Recall@8", "Recall@20", "MRR"]
    assert table[2] == ["dense (served)", *["0.594 [0.471, 0.705]"] * 4, "0.594"]


def test_sweep_ends_with_the_bluffs_and_marks_the_served_threshold() -> None:
    table = cells(sweep_table(RESULT))
    assert table[0][-1] == "Bluffs"
    (served,) = [row for row in table if "served" in row[0]]
    assert served == ["**0.675** (served)", "38", "26", "0", "1", "0", "1"]


def test_lost_queries_show_verdict_and_rank() -> None:
    table = cells(lost_table(evaluation([1, 7, None])))
    assert [row[0] for row in table[2:]] == ["q1", "q2"]
    assert table[2] == ["q1", "query 1?", "not retrieved at k", "7"]
    assert table[3][-1] == "none"
    assert lost_table(evaluation([1])) == "No query was lost."
    assert lost_table(evaluation([None] * 5), most=2).endswith("... and 3 more.")


def test_verdicts_are_counted() -> None:
    table = dict(cells(verdict_table(RESULT))[2:])
    assert (table["answered"], table["not retrieved at k"], table["destroyed by chunking"]) == (
        "38",
        "26",
        "0",
    )


def test_summary_tells_destroyed_answers_and_header_share() -> None:
    table = dict(cells(summary_table(replace(RESULT, destroyed=("q3",))))[2:])
    assert table["Destroyed answers"] == "1: q3"
    assert table["Embedded word pieces"] == "1,000, of which headers 200 (20.0%)"
    assert table["Out-of-domain queries"] == "2 (1 near, 1 far)"
    assert table["Median query, dense (local)"] == "1.5 ms"


def test_gate_shows_value_limit_decision_and_what_to_do() -> None:
    candidate = evaluation([1], destroyed=["q0"], chunks_over_window=2)
    text = gate_table(decide_gates(GateContext(candidate, GateConfig(), DocumentCounts(indexed=1, failed=0))))
    rows = {row[0]: row[1:4] for row in cells(text)}
    assert rows["Destroyed answers"] == ["1", "0", "BLOCKS"]
    assert rows["Encoder window"] == ["2", "0", "warns"]
    assert rows["Structure"] == ["0", "0", "passed"]
    assert "- Destroyed answers: Choose a strategy" in text
    assert "- Structure:" not in text


def test_comparison_in_words() -> None:
    assert "Nothing to compare with" in comparison_in_words(RESULT, None, k=8)
    words = comparison_in_words(evaluation([None] * 6, [0.5]), evaluation([1] * 6, [0.9]), k=8)
    assert words.splitlines() == [
        "Of 6 common queries, 0 are found in the first 8 chunks by this build alone and 6 by the published "
        "build "
        "alone (0 alike); two-sided sign test p = 0.031: the published build is significantly better at "
        "0.05.",
        "",
        "Of 1 common out-of-domain queries, 0 are held back by this build alone and 1 by the published build "
        "alone (0 alike); two-sided sign test p = 1.00: not distinguishable at 0.05.",
    ]


def test_an_unscored_evaluation_has_tables() -> None:
    unscored = evaluation()
    assert recall_table(unscored) == lost_table(unscored) == "Unscored: there are no questions."
    assert summary_table(unscored) and sweep_table(unscored) and verdict_table(unscored)
