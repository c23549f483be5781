"""Every gate failing in a real run: nothing is published, and the blocked build stays open to inspection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from rag_pipeline import open_index
from rag_pipeline.evaluation.gates import GATES
from rag_pipeline_tests.conftest import write_lines
from rag_pipeline_tests.defs.pipelines import (
    ANIMALS,
    CHAIN,
    PDF_ANIMAL,
    SPARE,
    STRANGERS,
    Pipeline,
    Run,
    animal_document,
    pdf_of,
)

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
CORRUPT = b"%PDF-1.7\nno object follows"
Sections = dict[str, dict[str, Any]]


def nothing(_: Pipeline) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """A fault that makes just one gate block: on which corpus, what is done to it, under which settings."""

    name: str
    gate: str
    prepare: Callable[[Pipeline], None] = nothing
    settings: Sections = field(default_factory=dict)
    corpus: str = "small"
    assets: tuple[str, ...] = ()
    """What is materialised; empty: the whole job."""


def double_a_needle(pipeline: Pipeline) -> None:
    pipeline.edit(
        "refunds.md",
        "## What is not",
        "A pad thinner than two millimetres is replaced on the spot.\n\n## What is not",
    )


def make_a_needle_a_heading(pipeline: Pipeline) -> None:
    pipeline.edit("brakes.md", "A pad thinner", "### A pad thinner")


def encrypt_a_document(pipeline: Pipeline) -> None:
    pipeline.write(animal_document(PDF_ANIMAL), pdf_of("The keepers alone may read this.", password="secret"))


def corrupt_a_document(pipeline: Pipeline) -> None:
    pipeline.write(animal_document(PDF_ANIMAL), CORRUPT)


def bury_every_answer(pipeline: Pipeline) -> None:
    """Add nine chunks a question that hold its word more often than the answer does."""
    sections = [f"## Note\n\n{' '.join([animal] * 6)} {n}\n" for animal in ANIMALS for n in range(9)]
    pipeline.write("decoys.md", "# Notes\n\n" + "\n".join(sections))


def publish_what_refuses_everything(pipeline: Pipeline) -> None:
    write_lines(Path(pipeline.settings.evaluation.out_of_domain), STRANGERS)
    run = pipeline.materialise(*CHAIN[-3:], retrieval={"threshold": 0.0})
    assert run.success, run.error
    assert run.metadata("retrieval_evaluation")["bluffs"] == 0


def delete_a_quarter(pipeline: Pipeline) -> None:
    for name in SPARE:
        (pipeline.source / f"{name}.md").unlink()


def corrupt_two_of_sixteen(pipeline: Pipeline) -> None:
    for name in SPARE[:2]:
        pipeline.write(f"{name}.md", CORRUPT)


def stretch_a_vector(pipeline: Pipeline) -> None:
    """Change a file of the candidate after it was built and before it is evaluated."""
    pipeline.edit("refunds.md", "three working days", "four working days")
    pipeline.index()
    assert pipeline.materialise("ground_truth").success
    path = pipeline.candidate.folder / "vectors.npy"
    vectors = np.load(path)
    vectors[0] *= 2
    path.unlink()  # the file is shared by a hard link with the table it came from
    np.save(path, vectors)


FAULTS = [
    Fault("a needle stands twice", "ground_truth_valid", double_a_needle),
    Fault("a needle is a heading", "ground_truth_valid", make_a_needle_a_heading),
    # Cut every 240 characters, the first needle of brakes.md lies across two chunks, the others do not.
    Fault("a needle is cut", "destroyed_answers", settings={"chunking": {"strategy": "A", "target": 240}}),
    Fault("an encrypted document", "lost_in_extraction", encrypt_a_document, corpus="library"),
    Fault("a corrupt document", "lost_in_extraction", corrupt_a_document, corpus="library"),
    # No lower end of an interval over finitely many queries is 1.
    Fault("a floor of 1", "recall_floor", settings={"gate": {"min_recall": 1.0}}),
    Fault("buried answers", "no_significant_loss", bury_every_answer, corpus="library"),
    Fault("a ceiling of 0", "bluffs", settings={"gate": {"max_bluffs": 0}}),
    Fault("eight bluffs more", "bluffs", publish_what_refuses_everything),
    Fault("4 of 16 are gone", "vanished_documents", delete_a_quarter, corpus="library"),
    Fault("2 of 16 failed", "failed_documents", corrupt_two_of_sixteen, corpus="library"),
    Fault(
        "a vector of length 2",
        "structure",
        stretch_a_vector,
        assets=("retrieval_evaluation", "published_index"),
    ),
    Fault(
        "no questions",
        "questions_present",
        settings={"gate": {"require_questions": True}, "evaluation": {"questions": ""}},
    ),
]


def test_every_gate_that_can_block_has_a_fault() -> None:
    assert {fault.gate for fault in FAULTS} == set(GATES) - {"encoder_window"}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.gate}: {fault.name}" for fault in FAULTS])
def test_a_failing_gate_blocks_publication(fault: Fault, request: pytest.FixtureRequest) -> None:
    pipeline: Pipeline = request.getfixturevalue(fault.corpus)
    fault.prepare(pipeline)
    published = pipeline.pointer
    with open_index(pipeline.settings.storage_root) as index:
        served = index.stamp["build"]

    if fault.assets:
        run = pipeline.materialise(*fault.assets, **fault.settings)
    else:
        run = pipeline.run(**fault.settings)

    assert not run.success
    assert "DagsterAssetCheckFailedError" in run.error and fault.gate in run.error
    assert run.failed_checks(ERROR) == {fault.gate}
    assert set(run.checks) == set(GATES)
    # The evaluation is there to be read; publication was not even tried.
    assert run.metadata("retrieval_evaluation")["gate"] == f"blocked: {GATES[fault.gate].title}"
    assert "published_index" not in run.started
    assert_unpublished(pipeline, run, fault, published, served)


def assert_unpublished(pipeline: Pipeline, run: Run, fault: Fault, published: bytes, served: str) -> None:
    assert pipeline.pointer == published
    receipt = pipeline.receipt
    assert not receipt.passed
    assert [gate["name"] for gate in receipt.gates if gate["blocks"]] == [fault.gate]
    with open_index(pipeline.settings.storage_root) as index:
        assert index.stamp["build"] == served
    with open_index(pipeline.candidate.folder) as index:
        assert index.stamp["build"] == pipeline.candidate.id == receipt.build
        assert index.search("brake pad quokka", threshold=2.0).hits
    # Published alone, in a run that has no check of its own, it is refused as well.
    alone = pipeline.materialise("published_index", **fault.settings)
    assert not alone.success
    assert "BuildBlockedError" in alone.error and f"{fault.gate}: " in alone.error
    assert pipeline.pointer == published


def test_what_the_check_says_and_advises(small: Pipeline) -> None:
    run = small.materialise("retrieval_evaluation", gate={"max_bluffs": 0})
    check = run.checks["bluffs"]
    assert "2 of 2 out-of-domain queries pass the threshold 2" in (check.description or "")
    assert GATES["bluffs"].advice in (check.description or "")
    metadata = {key: value.value for key, value in check.metadata.items()}
    assert metadata["value"] == 2.0 and metadata["limit"] == 0.0
    assert metadata["what to do"] == GATES["bluffs"].advice
    assert check.blocking


def test_warnings_are_shown_and_do_not_block(library: Pipeline) -> None:
    library.write(f"{SPARE[0]}.md", CORRUPT)  # one of sixteen, below the limit of 10 %
    library.write(
        "long.md", "# Long\n\n## Rules\n\n" + "The window of the tiny encoder ends before this does. " * 4
    )
    run = library.published_run()
    assert run.failed_checks(WARN) == {"failed_documents", "encoder_window"}
    assert run.failed_checks(ERROR) == set()
    assert "1 of 17 documents failed" in (run.checks["failed_documents"].description or "")
    assert "longer than the encoder's 64 pieces" in (run.checks["encoder_window"].description or "")
    assert run.metadata("published_index")["published anew"] is True


@pytest.mark.parametrize(
    ("fault", "allow", "gate"),
    [
        (bury_every_answer, {"block_on_loss": False}, "no_significant_loss"),
        (delete_a_quarter, {"max_vanished_share": 0.25}, None),
        (corrupt_two_of_sixteen, {"max_failed_share": 0.125}, "failed_documents"),
    ],
    ids=["loss", "vanished", "failed"],
)
def test_a_gate_opened_by_its_setting_lets_the_build_pass(
    library: Pipeline, fault: Callable[[Pipeline], None], allow: dict[str, Any], gate: str | None
) -> None:
    fault(library)
    run = library.published_run(gate=allow)
    assert run.failed_checks(ERROR) == set()
    assert run.failed_checks(WARN) - {"encoder_window"} == ({gate} if gate else set())
    assert run.metadata("published_index")["published anew"] is True


def test_a_repaired_source_publishes_again(small: Pipeline) -> None:
    before = small.candidate.id
    double_a_needle(small)
    assert not small.run().success
    blocked = small.candidate.id
    text = (small.source / "refunds.md").read_text("utf-8")
    needle = "A pad thinner than two millimetres is replaced on the spot.\n\n"
    small.write("refunds.md", text.replace(needle, ""))
    small.published_run()
    assert small.candidate.id == before != blocked
    with open_index(small.settings) as index:
        assert index.stamp["build"] == before
