"""A whole pipeline in a folder of its own, run through Dagster, and what a test asks about its runs."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.definitions.temporal_context import TemporalContext
from dagster._time import get_current_datetime

from rag_pipeline.core.storage import Handle, Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.defs.factory import build_definitions
from rag_pipeline.index.builds import Build, find_build
from rag_pipeline.index.publish import Receipt, newest_receipt
from rag_pipeline.settings import Settings

CHAIN = (
    "source_documents",
    "extracted_documents",
    "canonical_documents",
    "chunks",
    "chunk_embeddings",
    "bm25_statistics",
    "candidate_index",
    "ground_truth",
    "retrieval_evaluation",
    "published_index",
)
UP_TO_CANDIDATE = CHAIN[: CHAIN.index("candidate_index") + 1]

# A corpus big enough for shares and sign tests: one chunk and one word of its own a document.
ANIMALS = (
    "quokka numbat bilby potoroo dunnart wombat bettong glider kowari ningaui phascogale mulgara".split()
)
SPARE = ("gates", "paths", "tickets", "toilets")
STRANGERS = [
    {"id": f"o{number}", "query": f"How is {what} done?", "kind": "far"}
    for number, what in enumerate("glazing baking welding sailing weaving brewing fencing mining".split())
]


PDF_ANIMAL = ANIMALS[-1]


def animal_document(animal: str) -> str:
    return f"animals/{animal}.{'pdf' if animal == PDF_ANIMAL else 'md'}"


def pdf_of(text: str, password: str | None = None) -> bytes:
    """Return a PDF of one page with one line of text."""
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    file = io.BytesIO()
    encryption = StandardEncryption(password, ownerPassword="owner") if password else None
    canvas = Canvas(file, invariant=1, encrypt=encryption)
    canvas.drawString(72, 720, text)
    canvas.save()
    return file.getvalue()


def write_library(folder: Path) -> list[dict[str, Any]]:
    """Write sixteen documents, twelve of which a question of one word asks for; return the questions."""
    for number, animal in enumerate(ANIMALS):
        path = folder / animal_document(animal)
        path.parent.mkdir(parents=True, exist_ok=True)
        needle = f"The {animal} lives in enclosure {number}."
        if animal == PDF_ANIMAL:
            path.write_bytes(pdf_of(needle))
        else:
            path.write_text(f"# Record {number:02}\n\n## Enclosure\n\n{needle}\n", "utf-8")
    for name in SPARE:
        (folder / f"{name}.md").write_text(
            f"# About {name}\n\n## Rules\n\nThe {name} close at six.\n", "utf-8"
        )
    return [
        {
            "id": animal,
            "needle": f"The {animal} lives in enclosure {number}.",
            "document": animal_document(animal),
            "queries": [animal],
        }
        for number, animal in enumerate(ANIMALS)
    ]


def stale_assets(definitions: dg.Definitions, instance: dg.DagsterInstance) -> set[str]:
    """Return the assets that Dagster's UI would mark stale (or missing), by the last part of their key.

    Asks the resolver behind the UI's `staleStatus`, on the graph of these definitions.
    """
    graph = definitions.resolve_asset_graph()
    view = AssetGraphView(
        temporal_context=TemporalContext(effective_dt=get_current_datetime(), last_event_id=None),
        instance=instance,
        asset_graph=graph,
    )
    resolver = CachingStaleStatusResolver(instance=instance, asset_graph=graph, loading_context=view)
    return {key.path[-1] for key in graph.get_all_asset_keys() if resolver.get_status(key).value != "FRESH"}


@dataclass(frozen=True)
class Run:
    """One finished run, read from Dagster's event log."""

    instance: dg.DagsterInstance
    run_id: str
    success: bool

    @cached_property
    def events(self) -> list[dg.DagsterEvent]:
        records = self.instance.all_logs(self.run_id)
        return [record.dagster_event for record in records if record.dagster_event is not None]

    @property
    def log(self) -> str:
        """Everything that was logged, a line a record."""
        return "\n".join(record.user_message for record in self.instance.all_logs(self.run_id))

    @property
    def started(self) -> set[str]:
        """The assets whose step began."""
        return {str(e.step_key).split("__")[-1] for e in self.events if e.event_type_value == "STEP_START"}

    @property
    def materialised(self) -> dict[str, dg.AssetMaterialization]:
        """Materialisations by the last part of the asset's key."""
        return {
            e.asset_key.path[-1]: e.step_materialization_data.materialization
            for e in self.events
            if e.event_type_value == "ASSET_MATERIALIZATION" and e.asset_key is not None
        }

    def metadata(self, asset: str) -> dict[str, Any]:
        """Return the plain values of a materialisation's metadata."""
        return {k: v.value for k, v in self.materialised[asset].metadata.items()}

    @property
    def work(self) -> dict[str, int]:
        """What was done anew rather than remembered, as the materialisations count it."""
        return {
            "extracted": self.metadata("extracted_documents")["worked anew"],
            "canonical": self.metadata("canonical_documents")["worked anew"],
            "cut": self.metadata("chunks")["worked anew"],
            "encoded": self.metadata("chunk_embeddings")["texts encoded anew"],
        }

    @property
    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        """Check results by name."""
        found = [
            e.asset_check_evaluation_data
            for e in self.events
            if e.event_type_value == "ASSET_CHECK_EVALUATION"
        ]
        return {check.check_name: check for check in found}

    def failed_checks(self, severity: dg.AssetCheckSeverity) -> set[str]:
        """Return the checks that failed with this severity."""
        return {n for n, c in self.checks.items() if not c.passed and c.severity is severity}

    @property
    def error(self) -> str:
        """The first error with its causes, outermost first."""
        for event in self.events:
            data = getattr(event.event_specific_data, "error", None)
            if data is not None:
                lines = []
                while data is not None:
                    lines.append(data.message.strip())
                    data = data.cause
                return "\n".join(lines)
        return ""


class Pipeline:
    """Settings, a Dagster instance and a storage root."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance, prefix: Sequence[str] = ()) -> None:
        self.settings = settings
        self.instance = instance
        self.prefix = prefix
        self.runs: list[Run] = []

    @property
    def last(self) -> Run:
        """The newest run."""
        return self.runs[-1]

    def definitions(self, **sections: dict[str, Any]) -> dg.Definitions:
        """Return the definitions, with some settings changed."""
        return build_definitions(self.settings.replace(**sections), self.prefix)

    def run(self, job: str = "reindex", /, **sections: dict[str, Any]) -> Run:
        """Run a job to its end, whatever that is."""
        result = (
            self.definitions(**sections)
            .resolve_job_def(job)
            .execute_in_process(instance=self.instance, raise_on_error=False)
        )
        self.runs.append(Run(self.instance, result.run_id, result.success))
        return self.last

    def published_run(self, job: str = "reindex", /, **sections: dict[str, Any]) -> Run:
        """Run a job that has to succeed."""
        run = self.run(job, **sections)
        assert run.success, run.error
        return run

    def materialise(self, *assets: str, **sections: dict[str, Any]) -> Run:
        """Materialise these assets alone, as from the UI."""
        definitions = self.definitions(**sections)
        result = dg.materialize(
            list(definitions.assets or ()),  # type: ignore[arg-type]
            selection=[dg.AssetKey([*self.prefix, asset]) for asset in assets],
            instance=self.instance,
            resources=definitions.resources,
            raise_on_error=False,
        )
        self.runs.append(Run(self.instance, result.run_id, result.success))
        return self.last

    def index(self, **sections: dict[str, Any]) -> Run:
        """Materialise everything up to the candidate index, which has to succeed."""
        run = self.materialise(*UP_TO_CANDIDATE, **sections)
        assert run.success, run.error
        return run

    def stale(self, **sections: dict[str, Any]) -> set[str]:
        """Return what the UI marks stale under these settings."""
        return stale_assets(self.definitions(**sections), self.instance)

    # -- the source -------------------------------------------------------------------------------------------

    @property
    def source(self) -> Path:
        return Path(self.settings.source.path)

    def write(self, document: str, text: str | bytes) -> Path:
        """Write a document of the source."""
        path = self.source / document
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def edit(self, document: str, old: str, new: str) -> None:
        """Replace a text that stands once in a document."""
        path = self.source / document
        text = path.read_text("utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), "utf-8")

    # -- the storage ------------------------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        storage = Storage.existing(self.settings.storage_root)
        assert storage is not None
        return storage

    @property
    def pointer(self) -> bytes:
        """The bytes of the file that says what readers get."""
        return (self.settings.storage_root / "published.json").read_bytes()

    def handle(self, asset: str) -> Handle:
        handle = self.storage.read_handle(asset)
        assert handle is not None
        return handle

    @property
    def candidate(self) -> Build:
        return find_build(self.storage, self.handle("candidate_index").info["build"])

    @property
    def receipt(self) -> Receipt:
        """The newest receipt of the candidate."""
        receipt = newest_receipt(self.storage, self.candidate.id)
        assert receipt is not None
        return receipt

    def indexed(self) -> dict[str, str]:
        """Return the state of every document of the candidate, by id."""
        return {row["document_id"]: row["state"] for row in read_rows(self.candidate.table("documents"))}

    def chunk_documents(self) -> set[str]:
        """Return the documents that have chunks in the candidate."""
        return {row["document_id"] for row in read_rows(self.candidate.table("chunks"))}


def copy_of(built: Settings, settings: Settings, instance: dg.DagsterInstance) -> Pipeline:
    """Return a pipeline whose index is published already, with an event log that is empty.

    A storage root holds no absolute path, so that it serves other folders of the same content.
    """
    shutil.copytree(built.storage_root, settings.storage_root)
    return Pipeline(settings, instance)
