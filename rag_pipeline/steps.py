"""The chain's steps as functions from handles to handles.

Dagster's assets and the command line call the same steps. Each reads what its input handles name, calls one
domain function, and returns the handle of what it wrote together with what it counted. `code_versions` says
which code and settings decide each step's result, cumulatively, so that a change marks just what it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_pipeline import __version__
from rag_pipeline.chunking.stages import ChunkedDocuments, chunk_documents, chunking_version
from rag_pipeline.core.errors import InconsistentInputsError, IndexNotFoundError, SourceError
from rag_pipeline.core.memo import Memo
from rag_pipeline.core.storage import Handle, Storage, sha256_file, version_of
from rag_pipeline.core.tables import read_rows
from rag_pipeline.documents.source import document_path, source_fingerprint
from rag_pipeline.documents.stages import (
    StageResult,
    canonical_version,
    canonicalise_documents,
    extract_documents,
    extraction_version,
    list_source,
    used_extractors,
)
from rag_pipeline.embedding.config import EmbeddingConfig
from rag_pipeline.embedding.embed import EmbeddedChunks, MemoisedEncoder, embed_chunks
from rag_pipeline.embedding.encoder import EMBEDDING_VERSION, open_encoder
from rag_pipeline.embedding.fingerprint import fingerprint_of, unresolved_id
from rag_pipeline.embedding.models import find_model
from rag_pipeline.evaluation.ground_truth import check_ground_truth
from rag_pipeline.evaluation.question_checks import QuestionProblem
from rag_pipeline.evaluation.question_checks import check_questions as find_question_problems
from rag_pipeline.evaluation.questions import load_out_of_domain, load_questions
from rag_pipeline.evaluation.stages import (
    EVALUATION_VERSION,
    GROUND_TRUTH_VERSION,
    Assessment,
    CheckedQuestions,
    assess_build,
    build_documents,
    check_questions,
    gate_rules,
    read_ground_truth,
    serving_values,
    stored_documents,
)
from rag_pipeline.index.builds import INDEX_VERSION, Build, BuildInputs, find_build, make_build
from rag_pipeline.index.publish import (
    Published,
    Receipt,
    check_receipt,
    forget_builds,
    prune,
    publish,
    published,
    read_receipt,
    write_receipt,
)
from rag_pipeline.index.purge import build_without, find_traces, remove_build, remove_tables
from rag_pipeline.lexical.bm25 import BM25, BM25_VERSION
from rag_pipeline.lexical.tables import StoredStatistics, write_statistics
from rag_pipeline.lexical.tokenizer import get_tokenizer
from rag_pipeline.retrieval.opening import open_build, serving_of
from rag_pipeline.retrieval.rerank import CrossEncoderReranker
from rag_pipeline.settings import Settings

SOURCE_VERSION = "1"
PUBLICATION_VERSION = "1"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Session:
    """The storage root, held as its one writer, and its memo."""

    settings: Settings
    storage: Storage
    memo: Memo


@contextmanager
def open_session(
    settings: Settings, holder: str, on_wait: Callable[[str], None] | None = None
) -> Iterator[Session]:
    """Hold the storage root as its one writer; raises `StorageLockedError` naming the holder after a while."""
    storage = Storage.create(settings.storage_root)
    with storage.lock(holder, settings.storage.lock_timeout, on_wait), Memo(storage.memo_path) as memo:
        yield Session(settings, storage, memo)


def _quiet(_done: int, _total: int) -> None:
    pass


# -- what decides each step ---------------------------------------------------------------------------------


def encoder_identity(settings: Settings) -> str:
    """Return the fingerprint id of the configured encoder; no torch, no download.

    An encoder that is not on this machine yet is identified by its name alone, until a run has fetched it.
    """
    files = find_model(settings.embedding.model)
    if files is None:
        return unresolved_id(settings.embedding.model, settings.embedding.runtime)
    storage = Storage.existing(settings.storage_root)
    return fingerprint_of(files, settings.embedding.runtime, storage).id


def bm25_parameters(settings: Settings) -> dict[str, Any]:
    """Return what decides BM25 statistics besides the texts, as the stamp carries it."""
    tokenizer = get_tokenizer(settings.bm25.tokenizer)
    return {
        "k1": settings.bm25.k1,
        "b": settings.bm25.b,
        "tokenizer": tokenizer.name,
        "tokenizer_version": tokenizer.version,
        "version": BM25_VERSION,
    }


def serving_of_settings(settings: Settings) -> dict[str, Any]:
    """Return the serving values that the settings ask to gate and publish."""
    r = settings.retrieval
    fingerprint = CrossEncoderReranker(r.reranker).fingerprint if r.mode == "reranked" else ""
    return serving_values(r.mode, r.k, r.threshold, r.reranker, fingerprint)


def code_versions(settings: Settings) -> dict[str, str]:
    """Return the cumulative code version of every asset: its own code and settings, and those of all above it.

    The release number is no part of it. Computed when definitions load: reads the model's small files, and the
    weights' hash where it is not remembered.
    """
    versions: dict[str, str] = {}
    own: dict[str, tuple[list[str], Any]] = {
        "source_documents": ([], [SOURCE_VERSION, settings.source.path]),
        "extracted_documents": (["source_documents"], extraction_version(settings.extraction)),
        "canonical_documents": (["extracted_documents"], canonical_version(settings.extraction)),
        "chunks": (["canonical_documents"], chunking_version(settings.chunking)),
        "chunk_embeddings": (["chunks"], [EMBEDDING_VERSION, encoder_identity(settings)]),
        "bm25_statistics": (["chunks"], bm25_parameters(settings)),
        "candidate_index": (["chunk_embeddings", "bm25_statistics"], INDEX_VERSION),
        "ground_truth": (
            ["canonical_documents"],
            [GROUND_TRUTH_VERSION, settings.evaluation.questions, settings.evaluation.out_of_domain],
        ),
        "retrieval_evaluation": (
            ["candidate_index", "ground_truth"],
            [
                EVALUATION_VERSION,
                serving_of_settings(settings),
                settings.retrieval.reranker,
                list(settings.evaluation.ks),
                gate_rules(settings.gate),
            ],
        ),
        "published_index": (["retrieval_evaluation"], PUBLICATION_VERSION),
    }
    for name, (above, what) in own.items():
        versions[name] = version_of(name, [versions[a] for a in above], what)
    return versions


# -- the steps ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What a step wrote and counted."""

    handle: Handle
    result: Any


def source_documents(session: Session, progress: Progress = _quiet) -> Step:
    """List the source folder."""
    root = Path(session.settings.source.path)
    result = list_source(root, session.storage, lambda done, _: progress(done, 0))
    info = {"folder_fingerprint": source_fingerprint(root)}
    return Step(_handle(session, "source_documents", result, {}, info), result)


def extracted_documents(
    session: Session, sources: Handle, *, retry_failed: bool = False, progress: Progress = _quiet
) -> Step:
    """Extract what was listed."""
    result = extract_documents(
        session.storage.path(sources.files["table"]),
        Path(session.settings.source.path),
        session.storage,
        session.memo,
        session.settings.extraction,
        retry_failed=retry_failed,
        progress=progress,
    )
    return Step(_handle(session, "extracted_documents", result, _inputs(sources)), result)


def canonical_documents(session: Session, extracted: Handle, progress: Progress = _quiet) -> Step:
    """Make canonical text and locators of what was extracted."""
    options = session.settings.extraction
    result = canonicalise_documents(
        session.storage.path(extracted.files["table"]),
        session.storage,
        session.memo,
        options,
        lambda done, _: progress(done, extracted.rows),
    )
    info = {
        "canonical_version": canonical_version(options)["version"],
        "extractors": used_extractors(result.table),
    }
    return Step(_handle(session, "canonical_documents", result, _inputs(extracted), info), result)


def chunks(session: Session, canonical: Handle, progress: Progress = _quiet) -> Step:
    """Cut canonical texts into chunks."""
    result = chunk_documents(
        session.storage.path(canonical.files["table"]),
        session.storage,
        session.memo,
        session.settings.chunking,
        lambda done: progress(done, canonical.rows),
    )
    info = {"chunking": chunking_version(session.settings.chunking)}
    return Step(_handle(session, "chunks", result, _inputs(canonical), info), result)


def chunk_embeddings(session: Session, chunked: Handle, progress: Progress = _quiet) -> Step:
    """Embed every chunk."""
    embedding = session.settings.embedding
    encoder = open_encoder(embedding, session.storage, download=True)
    result = embed_chunks(
        session.storage.path(chunked.files["table"]), encoder, session.storage, session.memo, progress
    )
    handle = Handle(
        asset="chunk_embeddings",
        data_version=result.data_version,
        rows=result.rows,
        files={
            "table": session.storage.relative(result.table),
            "vectors": session.storage.relative(result.vectors),
        },
        inputs=_inputs(chunked),
        info={"fingerprint": encoder.fingerprint.to_json(), "model_location": embedding.model},
    )
    return Step(handle, result)


def bm25_statistics(session: Session, chunked: Handle) -> Step:
    """Count BM25 statistics over the chunks' texts."""
    config = session.settings.bm25
    texts = (
        row["text"] for row in read_rows(session.storage.path(chunked.files["table"]), columns=("text",))
    )
    scorer = BM25(texts, k1=config.k1, b=config.b, tokenizer=config.tokenizer)
    result = write_statistics(session.storage, scorer.statistics)
    handle = Handle(
        asset="bm25_statistics",
        data_version=version_of(result.data_version, bm25_parameters(session.settings)),
        rows=result.terms,
        files={role: session.storage.relative(path) for role, path in result.files.items()},
        inputs=_inputs(chunked),
        info={"bm25": bm25_parameters(session.settings)},
    )
    return Step(handle, result)


@dataclass(frozen=True)
class BuiltIndex:
    """A build and whether this run made it."""

    build: Build
    new: bool


def candidate_index(
    session: Session,
    canonical: Handle,
    chunked: Handle,
    embeddings: Handle,
    bm25: Handle,
    say: Callable[[str], None] | None = None,
) -> Step:
    """Put one build together; raises `InconsistentInputsError` for inputs that do not belong together."""
    inputs = BuildInputs(canonical=canonical, chunks=chunked, embeddings=embeddings, bm25=bm25)
    build, new = make_build(session.storage, inputs, __version__, say)
    handle = Handle(
        asset="candidate_index",
        data_version=build.id,
        rows=int(build.stamp["chunks"]),
        files={"manifest": session.storage.relative(build.folder / "manifest.json")},
        inputs=_inputs(canonical, chunked, embeddings, bm25),
        info={"build": build.id},
    )
    return Step(handle, BuiltIndex(build, new))


def ground_truth(session: Session, canonical: Handle, extracted: Handle) -> Step:
    """Check the questions against the corpus."""
    result = check_questions(
        session.settings.evaluation,
        session.storage.path(canonical.files["table"]),
        session.storage.path(extracted.files["table"]),
        session.storage,
    )
    # The evaluation reads this file once more: it must be the one that was checked.
    info = {"out_of_domain": _sha256_if_named(session.settings.evaluation.out_of_domain)}
    return Step(_handle(session, "ground_truth", result, _inputs(canonical, extracted), info), result)


def _sha256_if_named(path: str) -> str:
    return sha256_file(Path(path)) if path else ""


def retrieval_evaluation(
    session: Session, candidate: Handle, truth: Handle, progress: Progress = _quiet
) -> Step:
    """Score the candidate and decide the gate."""
    if truth.inputs.get("canonical_documents") != candidate.inputs.get("canonical_documents"):
        raise InconsistentInputsError(
            "ground_truth was checked against other documents than the candidate index holds: "
            "materialise ground_truth and candidate_index again"
        )
    settings = session.settings
    build = find_build(session.storage, candidate.info["build"])
    encoder = MemoisedEncoder(open_encoder(settings.embedding, session.storage, download=True), session.memo)
    serving = serving_of_settings(settings)
    truths = read_ground_truth(session.storage.path(truth.files["table"]))
    path = settings.evaluation.out_of_domain
    strangers = load_out_of_domain(path) if path else []
    if truth.info.get("out_of_domain") != _sha256_if_named(path):
        raise InconsistentInputsError(
            f"evaluation.out_of_domain = {path!r} is not the file that ground_truth was made from: materialise "
            "ground_truth again"
        )
    # All at once: a batch costs less than its texts one by one, and the memo then answers each query.
    encoder.encode([q for t in truths for q in t.question.queries] + [s.query for s in strangers])
    offered = {**serving, "reranker": settings.retrieval.reranker}
    with open_build(build, serving_of(offered), storage=session.storage, encoder=encoder) as index:
        assessment = assess_build(
            session.storage,
            build,
            index,
            truths,
            strangers,
            serving=settings.retrieval,
            serving_json=serving,
            ks=settings.evaluation.ks,
            gate=settings.gate,
            progress=progress,
        )
    report = f"evaluations/{build.id}/{assessment.receipt.evaluation}/evaluation.json"
    handle = Handle(
        asset="retrieval_evaluation",
        data_version=assessment.data_version,
        rows=assessment.evaluation.queries,
        files={"report": report},
        inputs=_inputs(candidate, truth),
        info={"build": build.id, "evaluation": assessment.receipt.evaluation},
    )
    return Step(handle, assessment)


@dataclass(frozen=True)
class Publication:
    """What is published after the step, whether that is new, and which builds were pruned."""

    published: Published
    new: bool
    pruned: list[str] = field(default_factory=list)


def published_index(session: Session, candidate: Handle, evaluation: Handle) -> Step:
    """Publish the candidate if its own receipt lets it; raises `BuildBlockedError` otherwise."""
    storage = session.storage
    build = find_build(storage, candidate.info["build"])
    receipt = None
    if evaluation.info["build"] == build.id:
        receipt = read_receipt(storage, build.id, evaluation.info["evaluation"])
    serving = serving_of_settings(session.settings)
    receipt = check_receipt(storage, build, receipt, serving, gate_rules(session.settings.gate))
    after, new = publish(storage, receipt)
    pruned = prune(storage, session.settings.publication.keep)
    handle = Handle(
        asset="published_index",
        data_version=version_of(receipt.build, receipt.facts),
        rows=candidate.rows,
        files={},
        inputs=_inputs(candidate, evaluation),
        info={"build": receipt.build, "evaluation": receipt.evaluation},
    )
    return Step(handle, Publication(after, new, pruned))


@dataclass(frozen=True)
class Purge:
    """What a purge removed, counted."""

    document_id: str
    memo_entries: int
    table_files: int
    builds_removed: tuple[str, ...]
    published: str | None
    """The build that took the place of the published one; None where that did not hold the document."""
    gate: tuple[str, ...]
    """What the gate would have said against it."""
    copies: tuple[str, ...]
    """Documents with the same bytes, whose text stays."""


def purge_document(session: Session, document_id: str) -> Purge:
    """Remove a document's text from the memo, the tables, every kept build and their evaluations.

    The published build, if it held the document, is replaced by one without it before anything is removed. Raises
    `SourceError` while the file is still in the source folder, `IndexNotFoundError` where there is no trace of it.
    """
    storage = session.storage
    if document_path(Path(session.settings.source.path), document_id).exists():
        raise SourceError(
            f"{document_id} is still in the source folder {session.settings.source.path}: delete it there first, or "
            "the next run brings it back"
        )
    traces = find_traces(storage, session.memo, document_id)
    if not traces.found:
        raise IndexNotFoundError(f"there is no trace of document {document_id!r} in {storage.root}")
    gone = {build.id for build in traces.builds}
    now = published(storage)
    replacement: Receipt | None = None
    against: tuple[str, ...] = ()
    if now is not None and now.build in gone:
        old = next(build for build in traces.builds if build.id == now.build)
        made = build_without(storage, old, document_id)
        replacement, against = _receipt_without(session, made, now, document_id)
    forget_builds(storage, gone, replacement)
    for build in traces.builds:
        remove_build(storage, build)
    return Purge(
        document_id=document_id,
        table_files=remove_tables(storage),
        memo_entries=session.memo.delete(traces.memo_keys),
        builds_removed=tuple(sorted(gone)),
        published=replacement.build if replacement is not None else None,
        gate=against,
        copies=traces.copies,
    )


def _receipt_without(
    session: Session, build: Build, now: Published, document_id: str
) -> tuple[Receipt, tuple[str, ...]]:
    """Score the build that replaces a purged one on the questions that are left, and let it pass whatever they say."""
    storage, settings = session.storage, session.settings
    config = settings.evaluation
    questions = load_questions(config.questions) if config.questions else []
    strangers = load_out_of_domain(config.out_of_domain) if config.out_of_domain else []
    truths = check_ground_truth(
        [question for question in questions if question.document != document_id], build_documents(build)
    )
    model = EmbeddingConfig(model=str(build.stamp["model_location"]))
    encoder = MemoisedEncoder(open_encoder(model, storage), session.memo)
    serving = serving_of(now.serving)
    with open_build(build, serving, storage=storage, encoder=encoder) as index:
        receipt = assess_build(
            storage,
            build,
            index,
            truths,
            strangers,
            serving=serving,
            serving_json=dict(now.serving),
            ks=config.ks,
            gate=settings.gate,
        ).receipt
    against = tuple(receipt.failures())
    if not receipt.passed:
        receipt = replace(receipt, passed=True, note=f"published by the purge of {document_id}")
        write_receipt(storage, receipt)
    return receipt, against


def examine_questions(settings: Settings) -> tuple[list[QuestionProblem], int, int]:
    """Return what is worth mending in the question files, and how many questions and out-of-domain queries there are.

    They are held against the newest canonical documents. Raises `GroundTruthError` for files that cannot be read
    and `IndexNotFoundError` where nothing was indexed yet.
    """
    config = settings.evaluation
    storage = Storage.existing(settings.storage_root)
    canonical = storage.read_handle("canonical_documents") if storage is not None else None
    extracted = storage.read_handle("extracted_documents") if storage is not None else None
    if storage is None or canonical is None or extracted is None:
        raise IndexNotFoundError(
            f"there are no documents to check questions against in {settings.storage_root}: run `rag-pipeline index` "
            "first (it may be blocked: the documents are there all the same)"
        )
    questions = load_questions(config.questions) if config.questions else []
    strangers = load_out_of_domain(config.out_of_domain) if config.out_of_domain else []
    documents = stored_documents(
        storage.path(canonical.files["table"]), storage.path(extracted.files["table"])
    )
    return find_question_problems(questions, strangers, documents), len(questions), len(strangers)


def score_with(session: Session, progress: Progress = _quiet) -> Assessment:
    """Run every step up to the evaluation under the session's settings, leaving assets and publication alone.

    For trying other settings against the published build: no handle is written, so Dagster's assets stay what
    they were; the build stays on disk to be inspected until it is pruned.
    """
    sources = source_documents(session).handle
    extracted = extracted_documents(session, sources, progress=progress).handle
    canonical = canonical_documents(session, extracted).handle
    chunked = chunks(session, canonical).handle
    embedded = chunk_embeddings(session, chunked, progress).handle
    lexical = bm25_statistics(session, chunked).handle
    candidate = candidate_index(session, canonical, chunked, embedded, lexical).handle
    truth = ground_truth(session, canonical, extracted).handle
    assessment = retrieval_evaluation(session, candidate, truth).result
    assert isinstance(assessment, Assessment)
    return assessment


def score_newest(session: Session, progress: Progress = _quiet) -> Assessment:
    """Score the newest candidate with the newest ground truth, leaving assets and publication alone.

    Raises `IndexNotFoundError` where there is no candidate yet.
    """
    candidate = session.storage.read_handle("candidate_index")
    truth = session.storage.read_handle("ground_truth")
    if candidate is None or truth is None:
        raise IndexNotFoundError(
            f"there is no candidate to evaluate in {session.storage.root}: run `rag-pipeline index` first"
        )
    assessment = retrieval_evaluation(session, candidate, truth, progress).result
    assert isinstance(assessment, Assessment)
    return assessment


def _handle(
    session: Session,
    asset: str,
    result: StageResult | ChunkedDocuments | CheckedQuestions,
    inputs: Mapping[str, str],
    info: Mapping[str, Any] | None = None,
) -> Handle:
    return Handle(
        asset=asset,
        data_version=result.data_version,
        rows=result.rows,
        files={"table": session.storage.relative(result.table)},
        inputs=inputs,
        info=info or {},
    )


def _inputs(*handles: Handle) -> dict[str, str]:
    return {handle.asset: handle.data_version for handle in handles}


__all__ = [
    "Assessment",
    "BuiltIndex",
    "EmbeddedChunks",
    "Publication",
    "Session",
    "Step",
    "StoredStatistics",
    "bm25_statistics",
    "candidate_index",
    "canonical_documents",
    "chunk_embeddings",
    "chunks",
    "code_versions",
    "examine_questions",
    "extracted_documents",
    "ground_truth",
    "open_session",
    "published_index",
    "purge_document",
    "retrieval_evaluation",
    "score_newest",
    "score_with",
    "source_documents",
]
