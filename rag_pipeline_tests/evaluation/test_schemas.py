from __future__ import annotations

from rag_pipeline.core.schemas import describe
from rag_pipeline.evaluation.questions import OutOfDomainKind, OutOfDomainQuery
from rag_pipeline.evaluation.run import evaluate
from rag_pipeline.evaluation.schemas import (
    GROUND_TRUTH,
    OUT_OF_DOMAIN_OUTCOMES,
    RETRIEVAL_OUTCOMES,
    TABLES,
    ground_truth_from_table,
    ground_truth_table,
    out_of_domain_table,
    outcomes_table,
)
from rag_pipeline_tests.evaluation.fakes import Chunk, FakeIndex, evaluation, truth


def test_outcomes_become_rows_with_their_schema() -> None:
    index = FakeIndex([Chunk(0, "a.md", 0, 30, 0)], {"dense": {"one?": [(0, 0.25)]}})
    strangers = [OutOfDomainQuery("o1", "far?", OutOfDomainKind.FAR)]
    result = evaluate(index, [truth()], strangers, retrieval=evaluation().served)
    table = outcomes_table(result)
    assert table.schema.equals(RETRIEVAL_OUTCOMES.schema, check_metadata=True)
    assert table.num_rows == 3
    assert table.to_pylist()[0] == {
        "question_id": "q1",
        "query": "one?",
        "needle": "the needle",
        "mode": "dense",
        "rank": 1,
        "distance": 0.25,
        "nearest": 0.25,
        "answered": True,
        "verdict": "answered",
    }
    assert table.to_pylist()[1]["rank"] is None
    assert out_of_domain_table(result).schema.equals(OUT_OF_DOMAIN_OUTCOMES.schema)
    assert out_of_domain_table(result).to_pylist()[0] == {
        "id": "o1",
        "query": "far?",
        "kind": "far",
        "mode": "dense",
        "nearest": None,
        "bluff": False,
    }


def test_ground_truth_reads_back() -> None:
    truths = [truth(), truth("q2", ["a?", "b?"], places=[], valid=False, in_source=False, in_canonical=False)]
    table = ground_truth_table(truths)
    assert table.schema.equals(GROUND_TRUTH.schema)
    assert ground_truth_from_table(table) == truths


def test_no_rows_keep_the_schema() -> None:
    assert ground_truth_table([]).schema.equals(GROUND_TRUTH.schema)
    assert outcomes_table(evaluation()).schema.equals(RETRIEVAL_OUTCOMES.schema)


def test_every_field_is_described_and_keys_exist() -> None:
    for name, table in TABLES.items():
        assert table.name == name
        assert set(table.key) <= set(table.schema.names)
        assert all(describe(field) for field in table.schema)
