"""The rooms of the house: who may import whom, who may read the environment, and what an import may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rag_pipeline
from rag_pipeline.settings import Settings

PACKAGE = Path(rag_pipeline.__file__).parent

# One direction of travel: a room imports only from itself and from rooms above it.
DOMAIN = ("core", "documents", "chunking", "embedding", "lexical", "index", "retrieval", "evaluation")
ROOMS = (*DOMAIN, "settings", "steps", "status", "defs", "definitions", "cli")
# Reached by name alone, whatever the room: the package's front door and its version.
FRONT = "__init__"
# Only these import Dagster; the command line reaches `defs` when a command needs it.
DAGSTER_ROOMS = {"defs", "definitions"}
LATE_ONLY = {"cli": {"defs"}}
# What takes long to import, or may be missing where an index is only read: never at import time.
HEAVY = {
    "torch",
    "sentence_transformers",
    "transformers",
    "matplotlib",
    "scipy",
    "trafilatura",
    "duckdb",
    "huggingface_hub",
}
# The environment is read in settings.py. The command line alone touches it besides: it quietens libraries, and hands
# it on to the process it becomes.
ENVIRONMENT = {"settings"}
ENVIRONMENT_EXCEPTIONS = {
    "cli": (
        "os.environ.setdefault('HF_HUB_DISABLE_PROGRESS_BARS',",
        "os.environ.setdefault('TOKENIZERS_PARALLELISM',",
        "{**os.environ,",
    )
}


def room_of(file: str) -> str:
    return Path(file).parts[0].removesuffix(".py")


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, ast.stmt]]:
    """Yield every imported module in full, wherever it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            for name in node.names:
                yield f"{module}.{name.name}", node


def at_import_time(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes that run when the module is imported; TYPE_CHECKING blocks do not."""
    found: set[ast.AST] = set()

    def visit(node: ast.AST) -> None:
        found.add(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            visit(child)

    visit(tree)
    return found


def violations(file: str, source: str) -> list[str]:
    """Return in words what a module of the package does that its room may not. `file` is relative to the package."""
    tree = ast.parse(source)
    room = room_of(file)
    package = ".".join(["rag_pipeline", *Path(file).parts[:-1]])
    early = at_import_time(tree)
    found = []
    for name, node in imports(tree, package):
        place = f"{file}:{node.lineno}"
        top, _, rest = name.partition(".")
        if top == "dagster" or top.startswith("dagster_"):
            if room not in DAGSTER_ROOMS:
                found.append(f"{place}: {room} imports dagster")
        elif top in HEAVY and node in early:
            found.append(f"{place}: {top} is imported when the module is")
        elif top == "rag_pipeline_tests":
            found.append(f"{place}: {room} imports the tests")
        elif top == "rag_pipeline" and room != FRONT:
            other = rest.split(".")[0]
            if other not in ROOMS:
                if room in DOMAIN:
                    found.append(f"{place}: {room} imports the front door")
            elif ROOMS.index(other) > ROOMS.index(room):
                found.append(f"{place}: {room} imports from {other}, which stands below it")
            elif other in LATE_ONLY.get(room, ()) and node in early:
                found.append(f"{place}: {room} imports {other} before it is needed")
        elif top == "rag_pipeline" and node in early:
            found.append(f"{place}: the front door imports {rest} when it is imported")
    if room not in ENVIRONMENT:
        allowed = ENVIRONMENT_EXCEPTIONS.get(room, ())
        for number, line in environment_uses(tree):
            if not any(text in line for text in allowed):
                found.append(f"{file}:{number}: reads the environment")
    return found


def environment_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
            continue
        for node in ast.walk(statement):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if name in ("os.environ", "os.getenv", "os.environb", "os.putenv") or (
                isinstance(node, ast.alias) and node.name in ("environ", "getenv")
            ):
                yield statement.lineno, ast.unparse(statement)
                break


def modules() -> list[str]:
    return sorted(
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "sample" not in path.relative_to(PACKAGE).parts
    )


@pytest.mark.parametrize("file", modules())
def test_a_module_keeps_to_its_room(file: str) -> None:
    assert violations(file, (PACKAGE / file).read_text(encoding="utf-8")) == []


def test_every_module_has_a_room() -> None:
    assert {room_of(file) for file in modules()} == {*ROOMS, FRONT}


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        (
            "core/a.py",
            "from rag_pipeline.documents.pdf import x",
            "core imports from documents, which stands below",
        ),
        ("core/a.py", "import rag_pipeline.index", "core imports from index, which stands below it"),
        (
            "index/a.py",
            "def f():\n    from rag_pipeline.retrieval import reader",
            "a.py:2: index imports from retriev",
        ),
        ("index/a.py", "from ..retrieval import reader", "index imports from retrieval"),
        ("index/a.py", "from ..retrieval.reader import BuildReader", "index imports from retrieval"),
        ("retrieval/a.py", "from rag_pipeline.settings import Settings", "retrieval imports from settings"),
        ("retrieval/a.py", "from rag_pipeline import settings", "retrieval imports from settings"),
        ("evaluation/a.py", "from rag_pipeline import __version__", "evaluation imports the front door"),
        ("evaluation/a.py", "import dagster as dg", "evaluation imports dagster"),
        ("steps.py", "from dagster import asset", "steps imports dagster"),
        ("steps.py", "from rag_pipeline.defs.run import run_job", "steps imports from defs"),
        ("cli.py", "def f():\n    import dagster", "cli imports dagster"),
        ("cli.py", "from rag_pipeline.defs.run import run_job", "cli imports defs before it is needed"),
        ("embedding/a.py", "import torch", "torch is imported when the module is"),
        ("embedding/a.py", "class A:\n    from torch import nn", "torch is imported when the module is"),
        ("defs/a.py", "if True:\n    import matplotlib.pyplot", "matplotlib is imported when the module is"),
        ("core/a.py", "import os\nx = os.environ['A']", "core/a.py:2: reads the environment"),
        (
            "core/a.py",
            "import os\ndef f():\n    if True:\n        return os.getenv('A')",
            "a.py:4: reads the env",
        ),
        ("defs/a.py", "from os import environ", "defs/a.py:1: reads the environment"),
        ("cli.py", "import os\nos.environ['A'] = '1'", "cli.py:2: reads the environment"),
        ("cli.py", "from rag_pipeline_tests import conftest", "cli imports the tests"),
        (
            "__init__.py",
            "from rag_pipeline.retrieval.search import SearchIndex",
            "the front door imports retrieval",
        ),
    ],
)
def test_the_check_finds(file: str, source: str, expected: str) -> None:
    (found,) = violations(file, source)
    assert expected in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("retrieval/a.py", "from rag_pipeline.index.builds import Build\nfrom .fusion import x"),
        ("embedding/a.py", "def f():\n    import torch"),
        ("embedding/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("steps.py", "from rag_pipeline import __version__\nfrom rag_pipeline.settings import Settings"),
        ("defs/a.py", "import dagster as dg\nfrom rag_pipeline import steps"),
        ("cli.py", "def f():\n    from rag_pipeline.defs.run import run_job"),
        ("cli.py", "import os\nos.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')"),
        ("settings.py", "import os\nx = os.environ"),
        ("core/a.py", "import os\nx = os.fspath('a')\ndef f(environ): return environ"),
        ("__init__.py", "def f():\n    from rag_pipeline.settings import Settings"),
    ],
)
def test_the_check_allows(file: str, source: str) -> None:
    assert violations(file, source) == []


# -- the weight of an import --------------------------------------------------------------------------------


def loaded_by(code: str, *arguments: str, watched: set[str]) -> set[str]:
    """Return which of the watched modules are loaded in a fresh process after it ran the code."""
    script = f"import sys\n{code}\nprint('loaded:', *({watched!r} & sys.modules.keys()), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=Path("/"), timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("loaded:")[2].split())


MODELS = {"torch", "sentence_transformers", "transformers"}


def test_the_contracts_import_without_models_and_dagster() -> None:
    code = (
        "import rag_pipeline.chunking, rag_pipeline.evaluation, rag_pipeline.retrieval, rag_pipeline.lexical\n"
        "import rag_pipeline\n"
        "from rag_pipeline.chunking import chunk_document\n"
        "from rag_pipeline.evaluation import wilson_interval, sign_test\n"
        "from rag_pipeline.retrieval import reciprocal_rank_fusion\n"
        "from rag_pipeline.lexical import BM25\n"
        "from rag_pipeline import open_index\n"
        "assert chunk_document('# A\\n\\nText.', 'A')[0].content == 'Text.'\n"
        "assert wilson_interval(38, 64)[0] < 0.5 < sign_test(8, 6)\n"
        "assert BM25(['a pad']).scores('pad')[0] > 0"
    )
    assert loaded_by(code, watched={*MODELS, "dagster", "matplotlib", "trafilatura", "duckdb"}) == set()


def test_an_index_opens_without_torch_and_dagster(published: Settings) -> None:
    code = (
        "from rag_pipeline import open_index\n"
        "with open_index(sys.argv[1]) as index:\n"
        "    assert index.stamp['embedding']['name'] == 'tiny-0'\n"
        "    assert index.modes == ('dense', 'bm25', 'hybrid')"
    )
    watched = {*MODELS, "dagster", "matplotlib", "scipy", "trafilatura"}
    assert loaded_by(code, str(published.storage_root), watched=watched) == set()


def test_the_command_line_loads_neither_dagster_nor_torch_for_a_status(tmp_path: Path) -> None:
    file = tmp_path / "rag_pipeline.toml"
    file.write_text("[storage]\nroot = 'none'\n")
    code = (
        "from rag_pipeline.cli import main\nassert main(['--config', sys.argv[1], 'status', '--json']) == 0"
    )
    assert loaded_by(code, str(file), watched={*MODELS, "dagster", "matplotlib", "duckdb"}) == set()


def test_definitions_load_without_torch() -> None:
    code = "import rag_pipeline.definitions as d\nd.defs()"
    assert loaded_by(code, watched={*MODELS, "dagster", "matplotlib"}) == {"dagster"}
