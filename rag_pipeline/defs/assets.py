"""The chain as software-defined assets, from the source folder to the published index.

Each asset reads the handles above it, calls one step, and returns its own handle with an explicit data version
from its content, so that equal content leaves everything below it fresh.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from rag_pipeline import steps
from rag_pipeline.core.schemas import (
    BM25_TERMS,
    CANONICAL_DOCUMENTS,
    CHUNK_EMBEDDINGS,
    CHUNKS,
    EXTRACTED_DOCUMENTS,
    SOURCE_DOCUMENTS,
    TableSchema,
)
from rag_pipeline.core.storage import Handle
from rag_pipeline.defs import presentation
from rag_pipeline.defs.checks import build_check_specs, check_results, refuse_failed_checks
from rag_pipeline.defs.names import Names
from rag_pipeline.evaluation.schemas import GROUND_TRUTH, RETRIEVAL_OUTCOMES
from rag_pipeline.settings import Settings
from rag_pipeline.steps import Session, Step, code_versions

RETRY_TAG = "rag_pipeline/retry_failed"

Result = dg.MaterializeResult[Handle]


@dataclass(frozen=True)
class _Family:
    """What the assets of one pipeline share: settings, versions and names."""

    settings: Settings
    versions: Mapping[str, str]
    names: Names

    def arguments(
        self,
        name: str,
        *,
        group: str,
        kinds: set[str],
        table: TableSchema,
        description: str,
        inputs: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return what every `@asset` of the chain declares in the same way."""
        return {
            "key": self.names.key(name),
            "ins": {
                i: dg.AssetIn(key=self.names.key(i), input_manager_key=self.names.handles) for i in inputs
            },
            "group_name": self.names.group(group),
            "kinds": kinds,
            "description": description,
            "code_version": self.versions[name],
            "io_manager_key": self.names.handles,
            "required_resource_keys": {self.names.session},
            "tags": presentation.asset_tags(name, self.settings),
            "metadata": {"dagster/column_schema": presentation.column_schema(table)},
            "owners": ["team:knowledge-base"],
        }


def build_assets(settings: Settings, names: Names) -> list[dg.AssetsDefinition]:
    """Return the chain's assets for these settings, under these names."""
    family = _Family(settings, code_versions(settings), names)

    def session(context: dg.AssetExecutionContext) -> Session:
        opened = getattr(context.resources, names.session)
        assert isinstance(opened, Session)
        return opened

    @dg.asset(
        **family.arguments(
            "source_documents",
            group="1_source",
            kinds={"file", "parquet"},
            table=SOURCE_DOCUMENTS,
            description="Manifest of the source folder: every file with size, sha256 and media type, listed or "
            "skipped with a reason. Extraction reads this listing, so both see the same folder.",
        )
    )
    def source_documents(context: dg.AssetExecutionContext) -> Result:
        began = time.monotonic()
        step = steps.source_documents(session(context), _progress(context, "files listed"))
        return _result(step, began, presentation.source_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "extracted_documents",
            inputs=["source_documents"],
            group="2_documents",
            kinds={"python", "parquet"},
            table=EXTRACTED_DOCUMENTS,
            description="Text and places of every listed document, each read in a worker process of its own. A "
            "document that cannot be read ends as failed with its reason and leaves the others alone.",
        )
    )
    def extracted_documents(context: dg.AssetExecutionContext, source_documents: Handle) -> Result:
        began = time.monotonic()
        step = steps.extracted_documents(
            session(context),
            source_documents,
            retry_failed=context.run.tags.get(RETRY_TAG) == "true",
            progress=_progress(context, "documents extracted"),
        )
        return _result(step, began, presentation.extraction_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "canonical_documents",
            inputs=["extracted_documents"],
            group="2_documents",
            kinds={"python", "parquet"},
            table=CANONICAL_DOCUMENTS,
            description="The one text of each document that every offset refers to, normalised once, with the map "
            "from its characters to pages, times or cells of the file.",
        )
    )
    def canonical_documents(context: dg.AssetExecutionContext, extracted_documents: Handle) -> Result:
        began = time.monotonic()
        step = steps.canonical_documents(
            session(context), extracted_documents, _progress(context, "documents made canonical")
        )
        return _result(step, began, presentation.canonical_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "chunks",
            inputs=["canonical_documents"],
            group="3_chunks",
            kinds={"python", "parquet"},
            table=CHUNKS,
            description="Chunks of the canonical texts. `content` is a slice of the document and all that may be "
            "quoted; `text` (header, overlap, content) is what is embedded and indexed.",
        )
    )
    def chunks(context: dg.AssetExecutionContext, canonical_documents: Handle) -> Result:
        began = time.monotonic()
        step = steps.chunks(session(context), canonical_documents, _progress(context, "documents cut"))
        return _result(step, began, presentation.chunk_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "chunk_embeddings",
            inputs=["chunks"],
            group="4_statistics",
            kinds={"huggingface", "numpy"},
            table=CHUNK_EMBEDDINGS,
            description="A unit vector for every chunk, remembered by text and encoder fingerprint, with the word "
            "pieces of its text and how much of it the encoder's window holds.",
        )
    )
    def chunk_embeddings(context: dg.AssetExecutionContext, chunks: Handle) -> Result:
        began = time.monotonic()
        step = steps.chunk_embeddings(session(context), chunks, _progress(context, "chunks embedded"))
        return _result(
            step, began, presentation.embedding_metadata(session(context), step, time.monotonic() - began)
        )

    @dg.asset(
        **family.arguments(
            "bm25_statistics",
            inputs=["chunks"],
            group="4_statistics",
            kinds={"python", "parquet"},
            table=BM25_TERMS,
            description="BM25 vocabulary, postings and lengths over the chunks' texts.",
        )
    )
    def bm25_statistics(context: dg.AssetExecutionContext, chunks: Handle) -> Result:
        began = time.monotonic()
        step = steps.bm25_statistics(session(context), chunks)
        return _result(step, began, presentation.bm25_metadata(step))

    @dg.asset(
        **family.arguments(
            "candidate_index",
            inputs=["canonical_documents", "chunks", "chunk_embeddings", "bm25_statistics"],
            group="5_index",
            kinds={"duckdb", "parquet"},
            table=CHUNKS,
            description="One complete, immutable build: Parquet tables, vectors, a DuckDB file with real tables, "
            "a stamp of every model and extractor that made it, and a manifest. Its id is the hash of its content.",
        )
    )
    def candidate_index(
        context: dg.AssetExecutionContext,
        canonical_documents: Handle,
        chunks: Handle,
        chunk_embeddings: Handle,
        bm25_statistics: Handle,
    ) -> Result:
        began = time.monotonic()
        step = steps.candidate_index(
            session(context),
            canonical_documents,
            chunks,
            chunk_embeddings,
            bm25_statistics,
            context.log.info,
        )
        return _result(step, began, presentation.build_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "ground_truth",
            inputs=["canonical_documents", "extracted_documents"],
            group="6_evaluation",
            kinds={"python", "parquet"},
            table=GROUND_TRUTH,
            description="The questions, checked against the corpus: each needle verbatim in the named document, "
            "once in the corpus, in no heading. A broken question stays in every denominator as a miss.",
        )
    )
    def ground_truth(
        context: dg.AssetExecutionContext, canonical_documents: Handle, extracted_documents: Handle
    ) -> Result:
        began = time.monotonic()
        step = steps.ground_truth(session(context), canonical_documents, extracted_documents)
        return _result(step, began, presentation.ground_truth_metadata(session(context), step))

    @dg.asset(
        **family.arguments(
            "retrieval_evaluation",
            inputs=["candidate_index", "ground_truth"],
            group="6_evaluation",
            kinds={"python", "parquet"},
            table=RETRIEVAL_OUTCOMES,
            description="Every question through every retriever, without a generator: recall with intervals, "
            "refusals and bluffs, a verdict for each query, and the gate as blocking checks. Its receipt is what "
            "publication asks for.",
        ),
        check_specs=build_check_specs(names.key("retrieval_evaluation"), settings.gate),
    )
    def retrieval_evaluation(
        context: dg.AssetExecutionContext, candidate_index: Handle, ground_truth: Handle
    ):  # Dagster takes no result annotation with checks and a value
        began = time.monotonic()
        step = steps.retrieval_evaluation(
            session(context), candidate_index, ground_truth, _progress(context, "queries judged")
        )
        metadata = presentation.evaluation_metadata(step.result)
        return _result(step, began, metadata, check_results(step.result))

    @dg.asset(
        **family.arguments(
            "published_index",
            inputs=["candidate_index", "retrieval_evaluation"],
            group="7_published",
            kinds={"duckdb"},
            table=CHUNKS,
            description="The build that readers get. Published only with a passing receipt of exactly this build's "
            "files, also when it is materialised alone; switched atomically, earlier builds kept for rollback.",
        )
    )
    def published_index(
        context: dg.AssetExecutionContext, candidate_index: Handle, retrieval_evaluation: Handle
    ) -> Result:
        began = time.monotonic()
        refuse_failed_checks(
            context.instance, names.key("retrieval_evaluation"), retrieval_evaluation.data_version
        )
        step = steps.published_index(session(context), candidate_index, retrieval_evaluation)
        return _result(step, began, presentation.publication_metadata(session(context), step))

    return [
        source_documents,
        extracted_documents,
        canonical_documents,
        chunks,
        chunk_embeddings,
        bm25_statistics,
        candidate_index,
        ground_truth,
        retrieval_evaluation,
        published_index,
    ]


def _result(
    step: Step,
    began: float,
    metadata: Mapping[str, Any],
    checks: Sequence[dg.AssetCheckResult] = (),
) -> Result:
    return dg.MaterializeResult(
        value=step.handle,
        data_version=dg.DataVersion(step.handle.data_version),
        metadata={
            "dagster/row_count": step.handle.rows,
            "seconds": round(time.monotonic() - began, 3),
            **metadata,
        },
        check_results=list(checks),
    )


def _progress(context: dg.AssetExecutionContext, what: str) -> steps.Progress:
    """Return a progress callback that logs at most every two seconds, and the last one."""
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 2 or (total and done == total):
            last = now
            context.log.info(f"{done:,} of {total:,} {what}" if total else f"{done:,} {what}")

    return report
