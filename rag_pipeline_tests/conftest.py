"""Fixtures that several rooms share: a small pipeline with a tiny encoder, and the shared reference data."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Settings of the machine that runs the tests must not leak in.
for name in [n for n in os.environ if n.startswith("RAG_PIPELINE_") or n == "DAGSTER_HOME"]:
    del os.environ[name]

# The environment is set before anything reads it.
from rag_pipeline import steps  # noqa: E402
from rag_pipeline.core.storage import Storage  # noqa: E402
from rag_pipeline.settings import Settings  # noqa: E402
from rag_pipeline.steps import Step  # noqa: E402

SHARED = Path(__file__).resolve().parents[1].parent / "shared"

DOCUMENTS = {
    "brakes.md": (
        "# Brake handbook\n\nHow the workshop keeps brakes safe.\n\n"
        "## Inspection\n\nEvery bicycle has its brakes inspected after four hundred kilometres of use. "
        "The mechanic measures the pads with the brass gauge.\n\n"
        "A pad thinner than two millimetres is replaced on the spot.\n\n"
        "## Fault E-214\n\nFault E-214 means that the rear brake lever switch is stuck.\n"
    ),
    "docks/power.md": (
        "# Dock power\n\n## Supply\n\nEach dock draws its current from a sealed supply under the kerb. "
        "The supply trips when its housing gets warmer than seventy degrees.\n\n"
        "## Reset\n\nPress the green button for six seconds to restart a tripped supply.\n"
    ),
    "refunds.md": (
        "# Refunds\n\n## When money goes back\n\nA rider whose bicycle broke down gets the whole fare back "
        "within three working days.\n\n"
        "## What is not refunded\n\nParking fines are never refunded, whatever the weather was.\n"
    ),
}
QUESTIONS: list[dict[str, Any]] = [
    {
        "id": "q1",
        "needle": "A pad thinner than two millimetres is replaced on the spot.",
        "document": "brakes.md",
        "queries": ["When is a brake pad replaced?", "my pads look really thin, swap them?"],
    },
    {
        "id": "q2",
        "needle": "Press the green button for six seconds to restart a tripped supply.",
        "document": "docks/power.md",
        "queries": ["How do I restart a tripped supply?", "dock is dead, which button?"],
    },
    {
        "id": "q3",
        "needle": "Parking fines are never refunded, whatever the weather was.",
        "document": "refunds.md",
        "queries": ["Are parking fines refunded?", "got fined in a storm, money back?"],
    },
]
OUT_OF_DOMAIN = [
    {"id": "o1", "query": "How long does a passport application take?", "kind": "far"},
    {"id": "o2", "query": "Which helmets does the network lend?", "kind": "near"},
]


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def build_tiny_encoder(folder: Path, *, seed: int = 0, dimensions: int = 16, window: int = 64) -> Path:
    """Make a sentence-transformers model with a word-piece tokenizer and random weights: real code, no size."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    source = folder / "bert"
    source.mkdir(parents=True)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{c}" for c in letters),
        *".,!?-'[]>:;",
    ]
    (source / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=dimensions,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * dimensions,
        max_position_embeddings=max(window, 64),
    )
    BertModel(config).save_pretrained(source)
    BertTokenizerFast(str(source / "vocab.txt"), do_lower_case=True).save_pretrained(source)
    transformer = Transformer(str(source), max_seq_length=window)
    model = SentenceTransformer(
        modules=[transformer, Pooling(dimensions, pooling_mode="mean"), Normalize()], device="cpu"
    )
    target = folder / f"tiny-{seed}"
    model.save(str(target))
    return target


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny sentence-transformers model."""
    return build_tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another tiny model, with other weights."""
    return build_tiny_encoder(tmp_path_factory.mktemp("encoder"), seed=1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; tests that need it are skipped without it."""
    if not SHARED.is_dir():
        pytest.skip(f"the reference data folder {SHARED.name} is not beside the checkout")
    return SHARED


MakeSettings = Callable[..., Settings]


def settings_maker(folder: Path, encoder: Path) -> MakeSettings:
    """Write three small documents and their questions to a folder; return a function that makes settings over them.

    The threshold lets everything through: a tiny random encoder knows no meaning. Sections given by keyword
    change settings.
    """
    source = folder / "documents"
    for name, text in DOCUMENTS.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    questions = write_lines(folder / "questions.jsonl", QUESTIONS)
    strangers = write_lines(folder / "out_of_domain.jsonl", OUT_OF_DOMAIN)

    def make(**sections: dict[str, Any]) -> Settings:
        values: dict[str, dict[str, Any]] = {
            "source": {"path": str(source)},
            "storage": {"root": str(folder / "data" / "storage"), "lock_timeout": 5},
            "embedding": {"model": str(encoder)},
            "evaluation": {"questions": str(questions), "out_of_domain": str(strangers)},
            "retrieval": {"threshold": 2.0},
            "extraction": {"workers": 1},
        }
        for section, keys in sections.items():
            values[section] = {**values.get(section, {}), **keys}
        return Settings.from_values(values)

    return make


@pytest.fixture
def make_settings(tmp_path: Path, tiny_encoder: Path) -> MakeSettings:
    """A function that makes settings over three small documents in a folder of the test's own."""
    return settings_maker(tmp_path, tiny_encoder)


def run_chain(settings: Settings, until: str = "published_index") -> dict[str, Step]:
    """Run the chain's steps without Dagster up to one of them; return each step by its asset's name.

    Handles are written as Dagster's assets write them.
    """
    done: dict[str, Step] = {}
    with steps.open_session(settings, "a test") as session:

        def run(name: str, *inputs: str) -> None:
            if until not in done:
                done[name] = getattr(steps, name)(session, *(done[i].handle for i in inputs))
                session.storage.write_handle(done[name].handle)

        run("source_documents")
        run("extracted_documents", "source_documents")
        run("canonical_documents", "extracted_documents")
        run("chunks", "canonical_documents")
        run("chunk_embeddings", "chunks")
        run("bm25_statistics", "chunks")
        run("candidate_index", "canonical_documents", "chunks", "chunk_embeddings", "bm25_statistics")
        run("ground_truth", "canonical_documents", "extracted_documents")
        run("retrieval_evaluation", "candidate_index", "ground_truth")
        run("published_index", "candidate_index", "retrieval_evaluation")
    return done


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Settings:
    """Settings whose index is published already. For reading only."""
    settings = settings_maker(tmp_path_factory.mktemp("published"), tiny_encoder)()
    run_chain(settings)
    return settings


@pytest.fixture
def published_copy(published: Settings, tmp_path: Path) -> Settings:
    """Settings whose index is published already, in a storage root of the test's own, to be changed or broken."""
    root = tmp_path / "copy" / "storage"
    shutil.copytree(published.storage_root, root)
    return published.replace(storage={"root": str(root)})


@pytest.fixture(scope="session")
def published_large(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Settings:
    """Settings whose published index has 183 chunks, more than fusion joins; three of one text. For reading only."""
    folder = tmp_path_factory.mktemp("large")
    settings = settings_maker(folder, tiny_encoder)(
        evaluation={"questions": "", "out_of_domain": ""}, chunking={"strategy": "F"}
    )
    source = Path(settings.source.path)
    for name in DOCUMENTS:
        (source / name).unlink()
    words = (
        "pad lever cable dock supply kerb fare rider gauge switch tyre chain valve bell saddle spoke".split()
    )
    chance = random.Random(5)
    for number in range(12):
        sections = (
            f"## Part {part}\n\n{' '.join(chance.choices(words, k=9)).capitalize()}.\n" for part in range(15)
        )
        (source / f"d{number:02}.md").write_text(f"# Book {number}\n\n" + "\n".join(sections))
    # The same chunk in three documents that differ only in the blank lines at their end, so that none is a copy.
    for number, name in enumerate(("copy-a.md", "copy-b.md", "copy-c.md"), 1):
        text = "# Copy\n\n## Same\n\nThe lever of the spare saddle rings the bell." + "\n" * number
        (source / name).write_text(text)
    run_chain(settings)
    return settings


@pytest.fixture
def warm_settings(make_settings: MakeSettings, published: Settings) -> MakeSettings:
    """As `make_settings`, with a memo that knows the three documents: a test of builds need not extract them."""
    root = Storage.create(make_settings().storage_root).root
    shutil.copyfile(published.storage_root / "memo.sqlite", root / "memo.sqlite")
    return make_settings
