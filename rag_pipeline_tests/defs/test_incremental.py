"""A re-run costs what changed: the work is counted from the metadata of the runs' own materialisations."""

from __future__ import annotations

from rag_pipeline import open_index
from rag_pipeline.core.tables import read_rows
from rag_pipeline_tests.conftest import DOCUMENTS
from rag_pipeline_tests.defs.pipelines import SPARE, Pipeline

NOTHING = {"extracted": 0, "canonical": 0, "cut": 0, "encoded": 0}


def test_the_first_run_does_all_the_work(fresh: Pipeline) -> None:
    run = fresh.published_run()
    # Seven sections or preambles with text: the brake handbook's preamble, and two sections each.
    assert run.work == {"extracted": 3, "canonical": 3, "cut": 3, "encoded": 7}
    assert run.metadata("candidate_index")["made anew"] is True
    assert run.metadata("published_index")["published anew"] is True


def test_a_second_run_does_nothing_anew(small: Pipeline) -> None:
    before = small.pointer
    run = small.published_run()
    assert run.work == NOTHING
    assert run.metadata("extracted_documents")["remembered"] == 3
    assert run.metadata("chunk_embeddings")["texts remembered"] == 7
    assert run.metadata("candidate_index")["made anew"] is False
    assert run.metadata("published_index")["published anew"] is False
    assert small.pointer == before


def test_a_changed_document_costs_that_document(small: Pipeline) -> None:
    first = small.candidate.id
    small.edit("refunds.md", "three working days", "four working days")
    run = small.published_run()
    # Only one of its two sections reads differently.
    assert run.work == {"extracted": 1, "canonical": 1, "cut": 1, "encoded": 1}
    assert run.metadata("published_index")["published anew"] is True
    assert small.candidate.id != first


def test_a_changed_title_costs_the_headers_of_that_document(small: Pipeline) -> None:
    small.edit("refunds.md", "# Refunds", "# Money back")
    # Both sections' texts begin with the new title.
    assert small.index().work == {"extracted": 1, "canonical": 1, "cut": 1, "encoded": 2}


def test_a_change_taken_back_costs_nothing_and_gives_the_same_build(small: Pipeline) -> None:
    first = small.candidate.id
    small.edit("refunds.md", "three working days", "four working days")
    small.index()
    small.edit("refunds.md", "four working days", "three working days")
    run = small.published_run()
    assert run.work == NOTHING
    assert run.metadata("candidate_index")["made anew"] is False
    assert small.candidate.id == first
    with open_index(small.settings) as index:
        assert index.stamp["build"] == first


def test_a_new_document_costs_itself(small: Pipeline) -> None:
    small.write("helmets.md", "# Helmets\n\n## Lending\n\nHelmets are lent at the kiosk.\n")
    assert small.index().work == {"extracted": 1, "canonical": 1, "cut": 1, "encoded": 1}
    assert "helmets.md" in small.chunk_documents()


def test_a_deleted_document_leaves_the_index(library: Pipeline) -> None:
    gone = f"{SPARE[0]}.md"
    assert gone in library.indexed()
    (library.source / gone).unlink()
    run = library.published_run()
    assert run.work == NOTHING
    assert gone not in library.indexed()
    assert gone not in library.chunk_documents()
    with open_index(library.settings) as index:
        assert index.search(SPARE[0]).to_json()["hits"] == []


def test_a_renamed_document_moves_in_the_index(library: Pipeline) -> None:
    old, new = f"{SPARE[0]}.md", "archive/doors.md"
    chunks = len(list(read_rows(library.candidate.table("chunks"))))
    (library.source / "archive").mkdir()
    (library.source / old).rename(library.source / new)
    run = library.published_run()
    # Its title stands in the text, so that no header changes; its canonical row names the new path.
    assert run.work == {"extracted": 0, "canonical": 1, "cut": 0, "encoded": 0}
    assert old not in library.indexed()
    assert library.indexed()[new] == "indexed"
    assert new in library.chunk_documents() and old not in library.chunk_documents()
    assert len(list(read_rows(library.candidate.table("chunks")))) == chunks
    with open_index(library.settings) as index:
        assert [hit["document_id"] for hit in index.search(SPARE[0]).to_json()["hits"]] == [new]


def test_a_renamed_document_whose_name_is_its_title_costs_its_headers(library: Pipeline) -> None:
    library.write("plain.txt", "No heading stands here: the file gives its name as title.\n")
    library.index()
    (library.source / "plain.txt").rename(library.source / "simple.txt")
    assert library.index().work == {"extracted": 0, "canonical": 1, "cut": 1, "encoded": 1}


def test_identical_copies_are_extracted_and_encoded_once(small: Pipeline) -> None:
    text = "# Helmets\n\n## Lending\n\nHelmets are lent at the kiosk.\n"
    small.write("helmets.md", text)
    small.write("copies/helmets.md", text)
    run = small.index()
    assert run.work == {"extracted": 1, "canonical": 2, "cut": 1, "encoded": 1}
    assert {"helmets.md", "copies/helmets.md"} <= small.chunk_documents()
    # A copy of a known document is no work at all, and its needle still counts once.
    small.write("copies/refunds.md", DOCUMENTS["refunds.md"])
    run = small.published_run()
    assert run.work == {"extracted": 0, "canonical": 1, "cut": 0, "encoded": 0}
    assert run.checks["ground_truth_valid"].passed


def test_another_strategy_cuts_anew_and_encodes_new_texts_alone(small: Pipeline) -> None:
    # C is E without headers: every text is another one. Back to E everything is remembered.
    assert small.index(chunking={"strategy": "C"}).work == {**NOTHING, "cut": 3, "encoded": 7}
    assert small.index().work == NOTHING


def test_another_encoder_encodes_anew_and_cuts_nothing(small: Pipeline, other_encoder: object) -> None:
    run = small.index(embedding={"model": str(other_encoder)})
    assert run.work == {**NOTHING, "encoded": 7}
