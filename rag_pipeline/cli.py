"""The command line. Thin: it reads settings, calls one function, prints. Results go to standard output, everything
else to standard error. Exit codes: 0 done, 1 failed, 2 wrong use or settings, 3 build blocked by the gate."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rag_pipeline import __version__
from rag_pipeline.core.errors import (
    BuildBlockedError,
    GroundTruthError,
    IndexNotFoundError,
    QueryError,
    RagPipelineError,
    SettingsError,
)
from rag_pipeline.settings import CONFIG_NAME, CONFIG_VARIABLE, Settings

DONE, FAILED, WRONG_USE, BLOCKED = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Readers and encoders work from local files; progress bars of libraries are not for users.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except (SettingsError, QueryError, GroundTruthError) as error:
        return _fail(error, WRONG_USE)
    except BuildBlockedError as error:
        return _fail(error, BLOCKED)
    except RagPipelineError as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        _say("interrupted; what is published is whole")
        return 130
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; the interpreter must not trip over it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _fail(error: Exception, code: int) -> int:
    _say(f"rag-pipeline: {error}")
    return code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


@dataclass(frozen=True)
class Command:
    """One command: its name, what it does, its arguments and its function."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], int]
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="rag-pipeline",
        description="From a folder of documents to a retrieval index that can be trusted.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong use or settings, 3 build blocked by the gate.",
    )
    parser.add_argument("--config", metavar="FILE", help=f"settings file (default: {CONFIG_NAME} here)")
    parser.add_argument("--version", action="version", version=f"rag-pipeline {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(command.name, help=command.help, description=command.help)
        sub.add_argument("--json", action="store_true", help="print JSON on standard output")
        command.arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    return Settings.load(options.config)


# -- index --------------------------------------------------------------------------------------------------


def _index_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retry-failed", action="store_true", help="try every failed document again")


def _index(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.core.storage import Storage
    from rag_pipeline.defs.run import open_instance, run_job
    from rag_pipeline.index.publish import newest_receipt, published

    Storage.create(settings.storage_root)
    with open_instance(settings) as instance:
        outcome = run_job(settings, retry_failed=options.retry_failed, instance=instance)
        work = _work_done(instance, outcome.run_id)
    storage = Storage.create(settings.storage_root)
    if not outcome.success:
        candidate = storage.read_handle("candidate_index")
        blocked = outcome.error_class == "DagsterAssetCheckFailedError"
        if blocked and candidate is not None:
            receipt = newest_receipt(storage, str(candidate.info["build"]))
            assert receipt is not None
            reasons = receipt.failures()
            _say(
                f"\nrag-pipeline: build {receipt.build} is blocked by the gate; what is published stays as it was"
            )
            for reason in reasons:
                _say(f"  - {reason}")
            _say("See it whole with `rag-pipeline evaluate`.")
            if options.json:
                _print_json({"published": False, "build": receipt.build, "blocked_by": reasons, "work": work})
            return BLOCKED
        _say(f"\nrag-pipeline: {outcome.error}")
        codes = {
            "SettingsError": WRONG_USE,
            "GroundTruthError": WRONG_USE,
            "BuildBlockedError": BLOCKED,
        }
        return codes.get(outcome.error_class or "", FAILED)
    now = published(storage)
    assert now is not None
    if options.json:
        _print_json(
            {
                "published": True,
                "build": now.build,
                "new": work["published"],
                "work": work,
                "seconds": {k: round(v, 3) for k, v in outcome.seconds.items()},
            }
        )
        return DONE
    from rag_pipeline.evaluation.stages import load_evaluation
    from rag_pipeline.evaluation.tables import recall_table

    print()
    if not any(work.values()):
        print(f"Nothing new: no document, text or build changed. Build {now.build} stays published.")
    else:
        print(
            f"Published build {now.build}"
            f"{'' if work['published'] else ' (it was published already)'}: {work['extracted']} documents extracted, "
            f"{work['cut']} cut and {work['encoded']} texts encoded anew; the rest was remembered."
        )
    evaluation = load_evaluation(storage, now.build, now.evaluation)
    if evaluation is not None:
        print()
        print(recall_table(evaluation))
    print()
    print(f"storage      {settings.storage_root}")
    print(f"DuckDB file  {storage.root / 'builds' / now.build / 'index.duckdb'}")
    print(f"Dagster home {settings.dagster_home()}  (`rag-pipeline ui` shows it)")
    print("seconds      " + ", ".join(f"{step} {took:.1f}" for step, took in outcome.seconds.items()))
    return DONE


def _work_done(instance: Any, run_id: str) -> dict[str, Any]:
    """Return what the run did anew, from the metadata of its own materialisations."""
    work = {"extracted": 0, "cut": 0, "encoded": 0, "built": False, "published": False}
    keys = {
        "extracted_documents": ("extracted", "worked anew"),
        "chunks": ("cut", "worked anew"),
        "chunk_embeddings": ("encoded", "texts encoded anew"),
        "candidate_index": ("built", "made anew"),
        "published_index": ("published", "published anew"),
    }
    for record in instance.all_logs(run_id):
        event = record.dagster_event
        if event is None or event.event_type_value != "ASSET_MATERIALIZATION" or event.asset_key is None:
            continue
        found = keys.get(event.asset_key.path[-1])
        if found is not None:
            name, key = found
            work[name] = event.materialization.metadata[key].value
    return work


# -- search -------------------------------------------------------------------------------------------------


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument("--mode", metavar="M", help="dense, bm25, hybrid or reranked (default: as published)")
    parser.add_argument(
        "--k", type=int, metavar="N", help="chunks taken before the threshold (default: as published)"
    )
    parser.add_argument(
        "--threshold", type=float, metavar="D", help="cosine distance (default: as published)"
    )
    parser.add_argument(
        "--path", action="append", metavar="PATTERN", help="answer only from documents whose path matches"
    )
    parser.add_argument(
        "--meta", action="append", metavar="KEY=VALUE", help="answer only from documents with this metadata"
    )


def _where(options: argparse.Namespace) -> Any:
    from rag_pipeline.retrieval.filters import SearchFilter

    return SearchFilter.parse(options.path, options.meta)


def _search(options: argparse.Namespace) -> int:
    from rag_pipeline import open_index

    with open_index(_settings(options)) as index:
        result = index.search(options.query, options.mode, options.k, options.threshold, _where(options))
    if options.json:
        _print_json(result.to_json())
        return DONE
    if result.refused:
        print(result.reason)
        return DONE
    for hit in result.hits:
        print(f"[{hit.rank}] {hit.document_name}, {hit.label}  (distance {hit.cosine_distance:.3f})")
        for place in (hit, *hit.copies):
            print(f"    {place.url or place.document_id + place.fragment}")
        for line in hit.quote.splitlines():
            print(f"    | {line}")
        print()
    return DONE


def _context(options: argparse.Namespace) -> int:
    from rag_pipeline import open_index

    with open_index(_settings(options)) as index:
        context = index.context(options.query, options.mode, options.k, options.threshold, _where(options))
    if options.json:
        _print_json(context.to_json())
    elif context.refused:
        print(context.reason)
    else:
        print(context.prompt)
        print()
        for citation in context.citations:
            where = citation.url or citation.document_id + citation.fragment
            print(f"[{citation.index}] {citation.document_name}, {citation.label}: {where}")
        _say(f"{context.tokens} tokens")
    return DONE


# -- status and evaluation ----------------------------------------------------------------------------------


def _status(options: argparse.Namespace) -> int:
    from rag_pipeline.status import read_status, status_text

    status = read_status(_settings(options))
    if options.json:
        _print_json(status)
    else:
        print(status_text(status))
    return DONE


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strategy",
        choices=list("ABCDEF"),
        help="score another chunking strategy against what is published; assets and publication stay as they are",
    )


def _evaluate(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.core.storage import Storage
    from rag_pipeline.evaluation.stages import load_evaluation, load_report
    from rag_pipeline.evaluation.tables import comparison_in_words
    from rag_pipeline.index.publish import newest_receipt, published
    from rag_pipeline.steps import open_session, score_newest, score_with

    waiting = "waiting for the storage root: in use by {}".format

    def on_wait(holder: str) -> None:
        _say(waiting(holder))

    storage = Storage.existing(settings.storage_root)
    if options.strategy:
        chosen = settings.replace(chunking={"strategy": options.strategy})
        with open_session(chosen, f"evaluate --strategy {options.strategy}", on_wait) as session:
            receipt = score_with(session, _progress).receipt
    else:
        candidate = storage.read_handle("candidate_index") if storage is not None else None
        if storage is None or candidate is None:
            raise IndexNotFoundError(
                f"there is no build in {settings.storage_root}: run `rag-pipeline index` first"
            )
        known = newest_receipt(storage, str(candidate.info["build"]))
        if known is None:
            with open_session(settings, "evaluate", on_wait) as session:
                known = score_newest(session, _progress).receipt
        receipt = known
    storage = Storage.create(settings.storage_root)
    report = load_report(storage, receipt.build, receipt.evaluation)
    evaluation = load_evaluation(storage, receipt.build, receipt.evaluation)
    assert report is not None and evaluation is not None
    if options.json:
        _print_json(report)
        return DONE
    print(_report_text(evaluation, report))
    now = published(storage)
    if now is not None and now.build != receipt.build:
        baseline = load_evaluation(storage, now.build, now.evaluation)
        print(f"\n## Against the published build {now.build}\n")
        print(
            comparison_in_words(evaluation, baseline, k=settings.gate.comparison_k, alpha=settings.gate.alpha)
        )
    return DONE


def _report_text(evaluation: Any, report: dict[str, Any]) -> str:
    from rag_pipeline.evaluation import tables
    from rag_pipeline.evaluation.gates import GateDecision

    parts = [
        f"# Evaluation of build {evaluation.build}",
        tables.summary_table(evaluation),
        "## Recall before the threshold, with 95 % intervals",
        tables.recall_table(evaluation),
        "## Threshold sweep in the served mode",
        tables.sweep_table(evaluation),
        "## Verdicts",
        tables.verdict_table(evaluation),
        "## Lost queries of the served mode",
        tables.lost_table(evaluation),
        "## Gate",
        tables.gate_table(GateDecision.from_json(report["gate"])),
    ]
    return "\n\n".join(parts)


def _progress(done: int, total: int) -> None:
    if total and (done == total or done % max(1, total // 10) == 0):
        _say(f"{done:,} of {total:,}")


# -- extract ------------------------------------------------------------------------------------------------


def _extract_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", type=Path, help="file or folder")


def _extract(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.documents.inspection import extract_paths

    failed = files = 0
    for report in extract_paths(options.paths, settings.extraction):
        files += 1
        failed += report["status"] == "failed"
        if options.json:
            print(json.dumps(report, ensure_ascii=False), flush=True)
            continue
        reason = f" ({report['reason']})" if report["reason"] else ""
        print(f"## {report['document_id']}: {report['status']}{reason}, {report['seconds']:.2f} s")
        for warning in report["warnings"]:
            page = f" (page {warning['page']})" if warning.get("page") else ""
            print(f"! {warning['kind']}{page}: {warning['message']}")
        if report["message"]:
            print(f"! {report['message']}")
        if report["text"]:
            print(f"\n{report['text']}")
        print(flush=True)
    if failed:
        # A file that cannot be read is a finding, not a failure of the command.
        _say(f"{failed} of {files} files failed")
    return DONE


# -- rollback -----------------------------------------------------------------------------------------------


def _rollback_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "build", nargs="?", metavar="BUILD", help="build to go back to (default: the one before)"
    )
    parser.add_argument("--release", action="store_true", help="let publication go on after a rollback")


def _rollback(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.core.storage import Storage
    from rag_pipeline.index.publish import published, release_hold, rollback
    from rag_pipeline.steps import open_session

    if options.release and options.build:
        raise SettingsError("rollback: give a BUILD or --release, not both")
    if Storage.existing(settings.storage_root) is None:
        raise IndexNotFoundError(
            f"nothing is published in {settings.storage_root}: there is nothing to roll back"
        )
    with open_session(settings, "rollback", lambda holder: _say(f"waiting: in use by {holder}")) as session:
        storage = session.storage
        if options.release:
            released = release_hold(storage)
            text = "publication goes on: the hold is released" if released else "there was no hold to release"
            value: dict[str, Any] = {"released": released}
        else:
            before = published(storage)
            now = rollback(storage, options.build)
            was = before.build if before else None
            text = (
                f"published: build {now.build} (before: {was}). Publication is held; release it with "
                "`rag-pipeline rollback --release`"
            )
            value = {"published": now.build, "before": was, "held": True}
    if options.json:
        _print_json(value)
    else:
        print(text)
    return DONE


# -- prune, purge, questions --------------------------------------------------------------------------------


def _prune(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.core.storage import Storage
    from rag_pipeline.index.publish import prune

    # Without the memo, which cannot be opened on a disk that is full: pruning is the way out of just that.
    storage = Storage.create(settings.storage_root)
    timeout = settings.storage.lock_timeout
    with storage.lock("prune", timeout, lambda holder: _say(f"waiting: in use by {holder}")):
        before = storage.size()
        gone = prune(storage, settings.publication.keep)
        freed = before - storage.size()
    if options.json:
        _print_json({"pruned": gone, "bytes_freed": freed, "keep": settings.publication.keep})
    else:
        print(f"removed {len(gone)} builds{''.join(f' {b}' for b in gone)}; {freed:,} bytes freed")
    return DONE


def _purge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "document", metavar="DOCUMENT", help="document id: path relative to the source folder"
    )


def _purge(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.defs.history import forget_quoting_runs
    from rag_pipeline.defs.run import open_instance
    from rag_pipeline.steps import open_session, purge_document

    with open_session(settings, "purge", lambda holder: _say(f"waiting: in use by {holder}")) as session:
        purge = purge_document(session, options.document)
    with open_instance(settings) as instance:
        runs = forget_quoting_runs(instance, options.document)
    if options.json:
        _print_json({**asdict(purge), "dagster_runs": runs})
        return DONE
    print(f"purged {purge.document_id}:")
    print(f"  {purge.memo_entries} entries of the memo")
    print(f"  {purge.table_files} table files (the next run makes them anew)")
    print(
        f"  {len(purge.builds_removed)} builds and their evaluations: {', '.join(purge.builds_removed) or 'none'}"
    )
    print(f"  {runs} Dagster runs whose metadata quoted it")
    if purge.published:
        print(f"published instead: build {purge.published}, the same without the document")
    for reason in purge.gate:
        print(f"  the gate would have said: {reason}")
    if purge.copies:
        print(f"identical copies remain under other names: {', '.join(purge.copies)}")
    print(
        "not reached: question files, your backups, and indexes that readers have open until they close them"
    )
    return DONE


def _questions_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["check"], help="hold the question files against the documents")


def _questions(options: argparse.Namespace) -> int:
    settings = _settings(options)
    from rag_pipeline.steps import examine_questions

    problems, questions, strangers = examine_questions(settings)
    if options.json:
        found = [asdict(problem) for problem in problems]
        _print_json({"questions": questions, "out_of_domain": strangers, "problems": found})
    else:
        for problem in problems:
            print(f"{problem.subject}: {problem.message}  [{problem.check}]")
        print(f"{questions} questions and {strangers} out-of-domain queries: {len(problems)} problems")
    return FAILED if problems else DONE


# -- init, ui -----------------------------------------------------------------------------------------------


def _init(options: argparse.Namespace) -> int:
    from rag_pipeline.defs.run import TEMPLATES, prepare_home

    target = Path(options.config or CONFIG_NAME)
    if target.exists():
        raise SettingsError(f"{target} exists already: change it, or name another with --config")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(TEMPLATES / "rag_pipeline.toml", target)
    settings = Settings.load(target)
    home = prepare_home(settings.dagster_home())
    if options.json:
        _print_json({"settings": str(target), "dagster_home": str(home)})
    else:
        print(f"wrote {target} (it indexes the sample corpus; set source.path to your folder)")
        print(f"wrote {home / 'dagster.yaml'}")
        print("next: rag-pipeline index")
    return DONE


def _ui_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default="3000")


def _ui(options: argparse.Namespace) -> int:
    from rag_pipeline.defs.run import prepare_home

    settings = _settings(options)
    home = prepare_home(settings.dagster_home())
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    if options.config:
        environment[CONFIG_VARIABLE] = str(Path(options.config).absolute())
    workspace = str(home / "workspace.yaml")
    dagster = [sys.executable, "-m", "dagster", "dev"]
    command = [*dagster, "-w", workspace, "-h", options.host, "-p", options.port]
    _say(f"Dagster on http://{options.host}:{options.port}, home {home}")
    os.execve(sys.executable, command, environment)


COMMANDS: tuple[Command, ...] = (
    Command("init", f"write a starter {CONFIG_NAME} and Dagster's default settings", _init),
    Command(
        "index",
        "run every step through Dagster and publish the index if the gate lets it",
        _index,
        _index_arguments,
    ),
    Command(
        "search", "search the published index: hits with citations, or a refusal", _search, _search_arguments
    ),
    Command(
        "context",
        "print the prompt for a generator with numbered sources and their citations",
        _context,
        _search_arguments,
    ),
    Command("status", "show what is published, its scores, and which documents failed", _status),
    Command(
        "evaluate", "show the evaluation of the newest build, blocked or not", _evaluate, _evaluate_arguments
    ),
    Command("extract", "print what extraction gives for files or folders", _extract, _extract_arguments),
    Command(
        "rollback", "publish an earlier build again and hold publication", _rollback, _rollback_arguments
    ),
    Command("prune", "remove builds and tables that nothing needs", _prune),
    Command(
        "purge", "remove a document's text from memo, tables and every kept build", _purge, _purge_arguments
    ),
    Command("questions", "check the question files against the documents", _questions, _questions_arguments),
    Command("ui", "open the Dagster UI on the same home", _ui, _ui_arguments),
)


if __name__ == "__main__":
    sys.exit(main())
