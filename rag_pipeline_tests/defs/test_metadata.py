"""What a person sees in the UI: counted from what was written, complete, and small."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dagster as dg
import pyarrow.parquet as pq
import pytest

from rag_pipeline.core.errors import RagPipelineError
from rag_pipeline.evaluation.gates import GATES
from rag_pipeline.evaluation.stages import load_evaluation
from rag_pipeline.index.publish import evaluation_folder
from rag_pipeline_tests.conftest import DOCUMENTS, write_lines
from rag_pipeline_tests.defs.pipelines import ANIMALS, CHAIN, SPARE, Pipeline, animal_document

LIMIT = 300_000
SVG = re.compile(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)")


def size_of(metadata: dict[str, Any]) -> int:
    return sum(len(key) + len(str(value)) for key, value in metadata.items())


def table_of(pipeline: Pipeline, asset: str) -> Path:
    """Return the Parquet file that the asset's column schema describes."""
    receipt = pipeline.receipt
    files = pipeline.storage.read_handle(asset)
    assert files is not None
    by_asset = {
        "bm25_statistics": lambda: pipeline.storage.path(files.files["terms"]),
        "candidate_index": lambda: pipeline.candidate.table("chunks"),
        "published_index": lambda: pipeline.candidate.table("chunks"),
        "retrieval_evaluation": lambda: (
            evaluation_folder(pipeline.storage, receipt.build, receipt.evaluation)
            / "retrieval_outcomes.parquet"
        ),
    }
    return by_asset.get(asset, lambda: pipeline.storage.path(files.files["table"]))()


@pytest.mark.parametrize("asset", CHAIN)
def test_every_materialisation_tells_rows_and_seconds(built: Pipeline, asset: str) -> None:
    metadata = built.last.metadata(asset)
    table = pq.ParquetFile(table_of(built, asset))
    assert metadata["dagster/row_count"] == table.metadata.num_rows > 0
    assert isinstance(metadata["seconds"], float) and metadata["seconds"] >= 0
    node = built.definitions().resolve_asset_graph().get(dg.AssetKey(asset))
    columns = node.metadata["dagster/column_schema"].columns
    assert [column.name for column in columns] == table.schema_arrow.names
    assert size_of(metadata) < LIMIT


def test_the_evaluation_is_shown_as_numbers(built: Pipeline) -> None:
    metadata = built.last.metadata("retrieval_evaluation")
    evaluation = load_evaluation(built.storage, built.receipt.build, built.receipt.evaluation)
    assert evaluation is not None
    for k in (1, 4, 8, 20):
        assert metadata[f"recall@{k} (hybrid)"] == pytest.approx(evaluation.recall("hybrid", k).value)
    assert metadata["MRR (hybrid)"] == pytest.approx(evaluation.mean_reciprocal_rank("hybrid").value)
    assert metadata["queries"] == 6
    assert metadata["destroyed answers"] == 0
    assert metadata["documents failed"] == 0
    assert metadata["refused"] == 0 and metadata["bluffs"] == 2  # nothing is refused at a threshold of 2
    assert metadata["chunks"] == 7
    assert metadata["gate"] == "passed"
    numbers = [
        v for v in built.last.materialised["retrieval_evaluation"].metadata.values() if hasattr(v, "value")
    ]
    assert sum(isinstance(v, dg.IntMetadataValue | dg.FloatMetadataValue) for v in numbers) >= 12


def test_the_evaluation_is_shown_as_tables(built: Pipeline) -> None:
    metadata = built.last.metadata("retrieval_evaluation")
    tables = {
        "gate decisions": "| Gate ",
        "summary": "| What ",
        "recall": "| Retriever ",
        "threshold sweep": "| Threshold ",
        "verdicts": "| Verdict ",
    }
    for name, head in tables.items():
        lines = metadata[name].splitlines()
        assert lines[0].startswith(head), name
        assert re.fullmatch(r"[|\- ]+", lines[1]), name
    assert all(gate.title in metadata["gate decisions"] for gate in GATES.values())
    assert "hybrid (served)" in metadata["recall"]
    assert metadata["threshold sweep"].splitlines()[0].rstrip(" |").endswith("Bluffs")


def test_a_build_is_not_compared_with_itself(small: Pipeline) -> None:
    metadata = small.materialise("retrieval_evaluation").metadata("retrieval_evaluation")
    words = metadata["comparison with the published build"]
    assert words == f"The published build is this build ({small.candidate.id})."


@pytest.mark.parametrize("plot", ["recall plot", "threshold plot"])
def test_plots_are_valid_images(built: Pipeline, plot: str) -> None:
    match = SVG.fullmatch(built.last.metadata("retrieval_evaluation")[plot])
    assert match is not None
    root = ElementTree.fromstring(base64.b64decode(match[1], validate=True))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall(".//{http://www.w3.org/2000/svg}path")) > 10


def test_chunks_are_shown_with_header_and_content_apart(built: Pipeline) -> None:
    metadata = built.last.metadata("chunks")
    assert metadata["chunks"] == 7 and metadata["documents cut"] == 3
    assert re.search(r"header: `\[(Brake handbook|Dock power|Refunds)( > [^\]]+)?\]`", metadata["examples"])
    quoted = [line[2:] for line in metadata["examples"].splitlines() if line.startswith("> ")]
    assert quoted and all(any(line in text for text in DOCUMENTS.values()) for line in quoted)
    assert "| strategy | E " in metadata["strategy"]


def test_failed_documents_stand_first_with_their_reason(library: Pipeline) -> None:
    library.write(f"{SPARE[-1]}.md", b"%PDF-1.7 | and a pipe")
    library.write(".hidden.md", "hidden")
    metadata = library.materialise(*CHAIN[:2]).metadata("extracted_documents")
    rows = metadata["documents"].splitlines()[2:]
    assert rows[0].startswith(f"| {SPARE[-1]}.md ") and "| failed " in rows[0] and "| wrong_type " in rows[0]
    assert "| skipped " in rows[1] and "| hidden " in rows[1]
    assert len(rows) == 17
    assert metadata["documents failed"] == 1 and metadata["documents skipped"] == 1


def test_the_comparison_is_made_at_the_gate_s_depth_and_level(small: Pipeline) -> None:
    small.edit("refunds.md", "three working days", "four working days")
    run = small.published_run(gate={"comparison_k": 3, "alpha": 0.2})
    words = run.metadata("retrieval_evaluation")["comparison with the published build"]
    assert "found in the first 3 chunks" in words and "not distinguishable at 0.2" in words
    # The check and the text next to it must not contradict each other.
    assert (run.checks["no_significant_loss"].description or "") in words


def test_metadata_stays_small_whatever_the_documents(fresh: Pipeline, tmp_path: Path) -> None:
    source = tmp_path / "hostile"
    source.mkdir()
    endless = "word " * 40_000  # 200 kB without a place to cut
    sections = "".join(f"## Section {n}\n\n{endless}\n\n" for n in range(4))
    (source / "000endless.md").write_text(f"# {'Title ' * 60_000}\n\n{sections}", "utf-8")
    for number in range(60):
        (source / f"{number:02}{'n' * 200}.pdf").write_bytes(b"%PDF-1.7 broken")
    run = fresh.materialise(*CHAIN[:4], source={"path": str(source)})
    assert run.success, run.error
    for asset in CHAIN[:4]:
        assert size_of(run.metadata(asset)) < 60_000, asset
    assert "... and 11 more." in run.metadata("extracted_documents")["documents"]
    # What is cut says how long it was.
    assert "word word ... (199,999 characters)" in run.metadata("chunks")["examples"]
    assert "Title Ti ... (359,999 characters)" in run.metadata("canonical_documents")["documents"]


def test_long_queries_are_cut_at_whole_rows(library: Pipeline) -> None:
    questions = [
        {
            "id": animal,
            "needle": f"The {animal} lives in enclosure {number}.",
            "document": animal_document(animal),
            "queries": [f"{animal} {'please ' * 700}"],
        }
        for number, animal in enumerate(ANIMALS)
    ]
    write_lines(Path(library.settings.evaluation.questions), questions)
    # At a threshold of 0 every query is refused, so that the table of lost ones holds them all.
    run = library.materialise(
        "ground_truth", "retrieval_evaluation", retrieval={"threshold": 0.0, "mode": "bm25"}
    )
    lost = run.metadata("retrieval_evaluation")["lost questions"]
    assert len(lost) < 21_000
    *rows, blank, more = lost.splitlines()
    assert all(row.startswith("| ") and row.endswith(" |") for row in rows) and len(rows) > 3
    assert blank == "" and re.fullmatch(r"\.\.\. and [0-9,]+ more characters\.", more)


def test_an_asset_hands_on_a_handle_or_fails(fresh: Pipeline) -> None:
    @dg.asset(io_manager_key="handles")
    def stray() -> int:
        return 1

    done = dg.materialize([stray], resources=fresh.definitions().resources, raise_on_error=False)
    assert not done.success
    with pytest.raises(RagPipelineError, match="asset stray returned no handle: 1"):
        dg.materialize([stray], resources=fresh.definitions().resources)
