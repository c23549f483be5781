"""How things look in the Dagster UI: metadata, tags and column schemas. Every figure is counted from what was
written, and kept small: metadata lies in Dagster's event log for ever."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from rag_pipeline import __version__
from rag_pipeline.core.schemas import TableSchema, describe
from rag_pipeline.core.tables import read_rows
from rag_pipeline.documents.extraction import extractor_versions
from rag_pipeline.evaluation import figures, tables
from rag_pipeline.evaluation.stages import Assessment
from rag_pipeline.index.publish import read_hold
from rag_pipeline.settings import Settings
from rag_pipeline.steps import Session, Step

Metadata = Mapping[str, Any]

_MAX_ROWS = 50
_MAX_CELL = 200
_MAX_QUOTE = 1_000
_MAX_TEXT = 20_000
_EXAMPLES = 3
_TAG = re.compile(r"[^A-Za-z0-9_.-]+")


def column_schema(table: TableSchema) -> dg.TableSchema:
    """Return the column schema that the UI shows for a table."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                type=str(column.type) if not pa.types.is_nested(column.type) else _nested(column.type),
                description=describe(column),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in table.schema
        ]
    )


def _nested(type_: pa.DataType) -> str:
    return (
        "list of structs"
        if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type)
        else (f"list of {type_.value_type}" if pa.types.is_list(type_) else "struct")
    )


def asset_tags(name: str, settings: Settings) -> dict[str, str]:
    """Return the tags of an asset: the models, extractors and strategies that decide what it holds."""
    embedding = {"rag_pipeline/embedding_model": settings.embedding.model}
    chunking: dict[str, str] = {"rag_pipeline/chunking_strategy": settings.chunking.strategy}
    tokenizer = {"rag_pipeline/tokenizer": settings.bm25.tokenizer}
    serving = {"rag_pipeline/served_mode": settings.retrieval.mode}
    extractors = {
        f"rag_pipeline/extractor_{extractor}": version.split(" ", 1)[0]
        + ("" if "(" not in version else "_" + version.split("(", 1)[1])
        for extractor, version in extractor_versions().items()
    }
    everything = {**chunking, **embedding, **tokenizer}
    by_asset: dict[str, dict[str, str]] = {
        "extracted_documents": extractors,
        "chunks": chunking,
        "chunk_embeddings": {**chunking, **embedding},
        "bm25_statistics": {**chunking, **tokenizer},
        "candidate_index": everything,
        "retrieval_evaluation": {**everything, **serving},
        "published_index": {**everything, **serving},
    }
    return {key: _tag(value) for key, value in by_asset.get(name, {}).items()}


def _tag(value: str) -> str:
    """Return a value that Dagster takes as a tag: few characters, 63 at most."""
    return _TAG.sub("_", value.rstrip("/").rsplit("/", 1)[-1]).strip("_.-")[:63].strip("_.-")


def _md(text: str) -> dg.MetadataValue:
    if len(text) > _MAX_TEXT:
        # Whole lines, so that a table stays one.
        end = text.rfind("\n", 0, _MAX_TEXT)
        kept = text[: end if end > 0 else _MAX_TEXT]
        text = f"{kept}\n\n... and {len(text) - len(kept):,} more characters."
    return dg.MetadataValue.md(text)


def _image(svg: bytes, alt: str) -> dg.MetadataValue:
    return dg.MetadataValue.md(f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg).decode()})")


def _short(value: object, most: int = _MAX_CELL) -> str:
    """Return the value's text, cut where it is long: a title or a name may be as long as a document."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most].rstrip()} ... ({len(text):,} characters)"


def _limited(rows: Iterable[Sequence[object]], header: Sequence[str], total: int) -> str:
    shown = [[_short(cell) for cell in row] for row in itertools.islice(rows, _MAX_ROWS)]
    more = f"\n\n... and {total - len(shown):,} more." if total > len(shown) else ""
    return tables.markdown_table(header, shown) + more if shown else "none"


def _work(step: Step) -> Metadata:
    result = step.result
    return {"worked anew": result.worked, "remembered": result.remembered}


def source_metadata(session: Session, step: Step) -> Metadata:
    """Return what the manifest's materialisation shows."""
    path = session.storage.path(step.handle.files["table"])
    counts = step.result.counts
    skipped = [
        (row["document_id"], row["reason"])
        for row in read_rows(path, columns=("document_id", "state", "reason"))
        if row["state"] == "skipped"
    ]
    types: dict[str, int] = {}
    size = 0
    for row in read_rows(path, columns=("state", "media_type", "size")):
        if row["state"] == "listed":
            types[row["media_type"]] = types.get(row["media_type"], 0) + 1
            size += row["size"]
    return {
        "folder": dg.MetadataValue.path(session.settings.source.path),
        "documents listed": counts.get("listed", 0),
        "files skipped": counts.get("skipped", 0),
        "bytes": size,
        "media types": _md(_limited(sorted(types.items()), ("media type", "documents"), len(types))),
        "skipped": _md(_limited(skipped, ("file", "reason"), len(skipped))),
    }


def extraction_metadata(session: Session, step: Step) -> Metadata:
    """Return the table of documents with state, reason, pages and seconds."""
    path = session.storage.path(step.handle.files["table"])
    columns = "document_id state reason message extractor seconds warnings pages".split()
    rows = []
    for row in read_rows(path, columns=columns):
        read_by_ocr = [p["confidence"] for p in row["pages"] if p["ocr"]]
        lowest = min((c for c in read_by_ocr if c is not None), default=None)
        rows.append(
            (
                row["document_id"],
                row["state"],
                row["reason"] or "",
                len(row["pages"]) or "",
                f"{len(read_by_ocr)}" if read_by_ocr else "",
                f"{lowest:.2f}" if lowest is not None else "",
                f"{row['seconds']:.2f}" if row["seconds"] is not None else "",
                row["message"] or "; ".join(w["message"] for w in row["warnings"][:2]),
            )
        )
    # Failures first: they are what one looks for.
    order = {"failed": 0, "skipped": 1}
    rows.sort(key=lambda r: (order.get(str(r[1]), 2), r[0]))
    header = (
        "document",
        "state",
        "reason",
        "pages",
        "OCR pages",
        "lowest confidence",
        "seconds",
        "what was seen",
    )
    counts = step.result.counts
    return {
        "documents extracted": counts.get("extracted", 0),
        "documents failed": counts.get("failed", 0),
        "documents skipped": counts.get("skipped", 0),
        **_work(step),
        "documents": _md(_limited(rows, header, len(rows))),
        "extractors": _md(
            tables.markdown_table(("extractor", "version"), sorted(extractor_versions().items()))
        ),
    }


def canonical_metadata(session: Session, step: Step) -> Metadata:
    """Return states, sizes and what normalisation removed."""
    path = session.storage.path(step.handle.files["table"])
    characters = 0
    removed: dict[str, int] = {}
    rows: list[tuple[object, ...]] = []
    for row in read_rows(
        path, columns=("document_id", "title", "state", "text", "removed", "metadata"), batch_rows=16
    ):
        characters += len(row["text"])
        for item in row["removed"]:
            removed[item["kind"]] = removed.get(item["kind"], 0) + item["characters"]
        if len(rows) < _MAX_ROWS:
            rows.append((row["document_id"], row["title"], row["state"], f"{len(row['text']):,}"))
    counts = step.result.counts
    return {
        "documents indexed": counts.get("indexed", 0),
        "documents failed": counts.get("failed", 0),
        "documents skipped": counts.get("skipped", 0),
        "characters": characters,
        **_work(step),
        "removed": _md(_limited(sorted(removed.items()), ("what", "characters"), len(removed))),
        "documents": _md(_limited(rows, ("document", "title", "state", "characters"), step.handle.rows)),
    }


def chunk_metadata(session: Session, step: Step) -> Metadata:
    """Return chunk sizes and some examples with header and content apart."""
    path = session.storage.path(step.handle.files["table"])
    lengths: list[int] = []
    examples: list[dict[str, Any]] = []
    wanted = {step.handle.rows * part // (_EXAMPLES + 1) for part in range(1, _EXAMPLES + 1)}
    columns = "document_id start end lead_start content text header_length".split()
    for at, row in enumerate(read_rows(path, columns=columns)):
        lengths.append(len(row["content"]))
        if at in wanted:
            examples.append(row)
    return {
        "chunks": step.handle.rows,
        "documents cut": step.result.documents,
        **_work(step),
        "mean characters": round(sum(lengths) / len(lengths), 1) if lengths else 0.0,
        "longest": max(lengths, default=0),
        "strategy": _md(tables.markdown_table(("setting", "value"), step.handle.info["chunking"].items())),
        "examples": _md("\n\n".join(_example(row) for row in examples) or "none"),
    }


def _example(row: Mapping[str, Any]) -> str:
    header = row["text"][: row["header_length"]].strip()
    lead = row["text"][row["header_length"] : len(row["text"]) - len(row["content"])]
    parts = [
        f"**{_short(row['document_id'])}** `[{row['start']}, {row['end']})`",
        f"header: `{_short(header) or 'none'}`",
    ]
    if lead.strip():
        parts.append(f"overlap: {_quoted(lead)}")
    parts.append(f"content:\n\n{_quoted(row['content'])}")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in _short(text.strip(), _MAX_QUOTE).splitlines())


def embedding_metadata(session: Session, step: Step, seconds: float) -> Metadata:
    """Return the encoder, the work done and how the texts fit its window."""
    result = step.result
    fingerprint = step.handle.info["fingerprint"]
    return {
        "model": fingerprint["name"],
        "fingerprint": fingerprint["id"],
        "dimensions": fingerprint["dimensions"],
        "texts encoded anew": result.encoded,
        "texts remembered": result.remembered,
        "milliseconds a chunk encoded": round(1000 * seconds / result.encoded, 2) if result.encoded else 0.0,
        "word pieces": result.pieces,
        "header share of pieces": round(result.header_pieces / result.pieces, 4) if result.pieces else 0.0,
        "chunks over the window": result.over_window,
        "encoder": _md(tables.markdown_table(("part", "value"), fingerprint.items())),
        "vectors": dg.MetadataValue.path(str(session.storage.path(step.handle.files["vectors"]))),
    }


def bm25_metadata(step: Step) -> Metadata:
    """Return the size of the vocabulary and the parameters."""
    return {
        "terms": step.result.terms,
        "postings": step.result.postings,
        "parameters": _md(tables.markdown_table(("parameter", "value"), step.handle.info["bm25"].items())),
    }


def build_metadata(session: Session, step: Step) -> Metadata:
    """Return the build's id, counts, stamp and where its DuckDB file lies."""
    from rag_pipeline.index.builds import DUCKDB, flatten

    build = step.result.build
    stamp = build.stamp
    size = sum(int(f["size"]) for f in build.manifest["files"].values())
    return {
        "build": build.id,
        "made anew": step.result.new,
        "chunks": stamp["chunks"],
        **{f"documents {state}": number for state, number in stamp["documents"].items()},
        "bytes": size,
        "pipeline version": __version__,
        "DuckDB file": dg.MetadataValue.path(str(build.folder / DUCKDB)),
        "stamp": _md(tables.markdown_table(("what", "value"), flatten(stamp))),
    }


def ground_truth_metadata(session: Session, step: Step) -> Metadata:
    """Return how many questions there are and what is wrong with the broken ones."""
    path = session.storage.path(step.handle.files["table"])
    broken = [
        (row["question_id"], row["document_id"], row["problem"])
        for row in read_rows(path, columns=("question_id", "document_id", "valid", "problem"))
        if not row["valid"]
    ]
    return {
        "questions": step.result.rows,
        "queries": step.result.queries,
        "out-of-domain queries": step.result.out_of_domain,
        "invalid questions": step.result.invalid,
        "problems": _md(_limited(broken, ("question", "document", "problem"), len(broken))),
    }


def evaluation_metadata(assessment: Assessment) -> Metadata:
    """Return the figures as tables, plots and numbers that Dagster plots over time."""
    evaluation, decision = assessment.evaluation, assessment.decision
    served = evaluation.served.mode
    metadata: dict[str, Any] = {
        # The table holds a row for each query and retriever.
        "dagster/row_count": len(evaluation.outcomes),
        "queries": evaluation.queries,
        "build": evaluation.build,
        "gate": "passed" if decision.passed else "blocked: " + ", ".join(r.title for r in decision.blocking),
        "scored": evaluation.scored,
        "gate decisions": _md(tables.gate_table(decision)),
        "summary": _md(tables.summary_table(evaluation)),
        "chunks": evaluation.chunks,
        "chunks over the window": evaluation.chunks_over_window,
        "documents failed": assessment.documents.failed,
        "destroyed answers": len(evaluation.destroyed),
    }
    if evaluation.scored:
        metadata |= {
            "recall": _md(tables.recall_table(evaluation)),
            "recall plot": _image(figures.recall_figure(evaluation), "Recall by retriever with intervals"),
            "comparison with the published build": _md(_comparison(assessment)),
            "lost questions": _md(tables.lost_table(evaluation, most=_MAX_ROWS)),
            "verdicts": _md(tables.verdict_table(evaluation)),
        }
        for k in evaluation.ks:
            value = evaluation.recall(served, k).value
            metadata[f"recall@{k} ({served})"] = float(value) if value is not None else 0.0
        mrr = evaluation.mean_reciprocal_rank(served).value
        metadata[f"MRR ({served})"] = float(mrr) if mrr is not None else 0.0
    if evaluation.scored or evaluation.out_of_domain:
        refusal = evaluation.refusal()
        metadata |= {
            "refused": refusal.refused,
            "bluffs": refusal.bluffs,
            "threshold sweep": _md(tables.sweep_table(evaluation)),
            "threshold plot": _image(figures.sweep_figure(evaluation), "Answers and bluffs by threshold"),
        }
    return metadata


def _comparison(assessment: Assessment) -> str:
    if assessment.published_build == assessment.evaluation.build:
        return f"The published build is this build ({assessment.published_build})."
    rules = assessment.receipt.rules
    return tables.comparison_in_words(
        assessment.evaluation, assessment.baseline, k=rules["comparison_k"], alpha=rules["alpha"]
    )


def publication_metadata(session: Session, step: Step) -> Metadata:
    """Return what is published, how it is served and which builds are kept."""
    result = step.result
    published = result.published
    return {
        "build": published.build,
        "published anew": result.new,
        "published at": published.published_at,
        "status": "scored" if published.scored else "unscored",
        "held": read_hold(session.storage) is not None,
        "builds pruned": len(result.pruned),
        "served": _md(tables.markdown_table(("what", "value"), published.serving.items())),
        "history": _md(
            _limited(
                ((h["build"], h["published_at"]) for h in published.history),
                ("build", "published at"),
                len(published.history),
            )
        ),
    }
