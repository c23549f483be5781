"""The tables an evaluation writes, one row a query and retriever, and their rows as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from rag_pipeline.core.schemas import TableSchema, field
from rag_pipeline.evaluation.ground_truth import GroundTruth
from rag_pipeline.evaluation.result import Evaluation

OCCURRENCE = pa.struct(
    [
        field("document_id", pa.string(), "document whose canonical text has the needle"),
        field("start", pa.int64(), "start of the needle in it"),
        field("end", pa.int64(), "end of the needle in it, exclusive"),
    ]
)

GROUND_TRUTH = TableSchema(
    "ground_truth",
    "one question, checked against the corpus",
    ("question_id",),
    pa.schema(
        [
            field("question_id", pa.string(), "question"),
            field("needle", pa.string(), "sentence that answers it, verbatim in the canonical text"),
            field("document_id", pa.string(), "document the question names"),
            field("queries", pa.list_(pa.string()), "phrasings of the question"),
            field(
                "valid",
                pa.bool_(),
                "true where the needle stands exactly once, in that document, in no heading",
            ),
            field("problem", pa.string(), "what is wrong with it; '' where valid"),
            field("in_source", pa.bool_(), "true where the document's raw text has it, or could not be read"),
            field("in_canonical", pa.bool_(), "true where the document's canonical text has it"),
            field(
                "occurrences", pa.list_(OCCURRENCE), "every place in the corpus, identical copies included"
            ),
        ]
    ),
)

RETRIEVAL_OUTCOMES = TableSchema(
    "retrieval_outcomes",
    "one in-domain query under one retriever",
    ("question_id", "query", "mode"),
    pa.schema(
        [
            field("question_id", pa.string(), "question"),
            field("query", pa.string(), "phrasing"),
            field("needle", pa.string(), "sentence that answers it"),
            field("mode", pa.string(), "retriever"),
            field(
                "rank",
                pa.int64(),
                "rank of the first chunk that holds the needle, from 1; null if none",
                nullable=True,
            ),
            field(
                "distance",
                pa.float64(),
                "smallest cosine distance of a chunk among the first k that holds the needle",
                nullable=True,
            ),
            field(
                "nearest",
                pa.float64(),
                "smallest cosine distance of a chunk among the first k",
                nullable=True,
            ),
            field(
                "answered", pa.bool_(), "true where a holding chunk of the first k lies below the threshold"
            ),
            field("verdict", pa.string(), "where the answer was lost, or `answered`"),
        ]
    ),
)

OUT_OF_DOMAIN_OUTCOMES = TableSchema(
    "out_of_domain_outcomes",
    "one out-of-domain query under one retriever",
    ("id", "mode"),
    pa.schema(
        [
            field("id", pa.string(), "out-of-domain query"),
            field("query", pa.string(), "its words"),
            field("kind", pa.string(), "near (a neighbouring topic) or far"),
            field("mode", pa.string(), "retriever"),
            field(
                "nearest",
                pa.float64(),
                "smallest cosine distance of a chunk among the first k",
                nullable=True,
            ),
            field("bluff", pa.bool_(), "true where the threshold lets it through"),
        ]
    ),
)

TABLES: dict[str, TableSchema] = {
    table.name: table for table in (GROUND_TRUTH, RETRIEVAL_OUTCOMES, OUT_OF_DOMAIN_OUTCOMES)
}


def ground_truth_table(ground_truth: Iterable[GroundTruth]) -> pa.Table:
    """Return the checked questions as a table of schema `GROUND_TRUTH`, in the given order."""
    return _table(
        GROUND_TRUTH,
        [
            {
                "question_id": truth.question.id,
                "needle": truth.question.needle,
                "document_id": truth.question.document,
                "queries": list(truth.question.queries),
                "valid": truth.valid,
                "problem": truth.problem,
                "in_source": truth.in_source,
                "in_canonical": truth.in_canonical,
                "occurrences": [
                    {"document_id": document_id, "start": start, "end": end}
                    for document_id, start, end in truth.occurrences
                ],
            }
            for truth in ground_truth
        ],
    )


def ground_truth_from_table(table: pa.Table) -> list[GroundTruth]:
    """Return the checked questions that `ground_truth_table` wrote."""
    return [
        GroundTruth.from_json(
            {
                **row,
                "id": row["question_id"],
                "document": row["document_id"],
                "occurrences": [
                    (place["document_id"], place["start"], place["end"]) for place in row["occurrences"]
                ],
            }
        )
        for row in table.to_pylist()
    ]


def outcomes_table(evaluation: Evaluation) -> pa.Table:
    """Return the in-domain outcomes as a table of schema `RETRIEVAL_OUTCOMES`."""
    return _table(
        RETRIEVAL_OUTCOMES,
        [
            {
                "question_id": outcome.question_id,
                "query": outcome.query,
                "needle": outcome.needle,
                "mode": outcome.mode,
                "rank": outcome.rank,
                "distance": outcome.distance,
                "nearest": outcome.nearest,
                "answered": outcome.answered,
                "verdict": outcome.verdict.value,
            }
            for outcome in evaluation.outcomes
        ],
    )


def out_of_domain_table(evaluation: Evaluation) -> pa.Table:
    """Return the out-of-domain outcomes as a table of schema `OUT_OF_DOMAIN_OUTCOMES`."""
    return _table(
        OUT_OF_DOMAIN_OUTCOMES,
        [
            {
                "id": outcome.id,
                "query": outcome.query,
                "kind": outcome.kind.value,
                "mode": outcome.mode,
                "nearest": outcome.nearest,
                "bluff": outcome.bluff,
            }
            for outcome in evaluation.out_of_domain
        ],
    )


def _table(table: TableSchema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=table.schema)
