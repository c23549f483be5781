"""Whole corpora with the real encoder, through Dagster: the shipped one, and the reference one beside the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import open_index
from rag_pipeline.cli import BLOCKED, DONE, main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


def settings_file(folder: Path, source: str, questions: str, strangers: str, strategy: str = "E") -> str:
    path = folder / f"{strategy}.toml"
    path.write_text(
        f'[source]\npath = "{source}"\n'
        f'[storage]\nroot = "storage"\n'
        f'[evaluation]\nquestions = "{questions}"\nout_of_domain = "{strangers}"\n'
        f'[chunking]\nstrategy = "{strategy}"\n'
    )
    return str(path)


def evaluation(config: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["--config", config, "evaluate", "--json", *options]) == DONE
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def test_the_sample_corpus_holds_what_it_promises() -> None:
    script = ROOT / "scripts" / "check_sample.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_sample_publishes_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = settings_file(
        tmp_path, "{sample}/corpus", "{sample}/questions.jsonl", "{sample}/out_of_domain.jsonl"
    )
    assert main(["--config", config, "index"]) == DONE
    report = evaluation(config, capsys)
    assert report["questions"] == 39
    assert report["destroyed"] == []
    assert report["gate"]["passed"]
    ranks = [v["rank"] for v in report["verdicts"]]
    # Hard enough to tell retrievers apart: each finds at rank 1 what the other does not, and neither finds all.
    assert any(r["dense"] == 1 and r["bm25"] != 1 for r in ranks)
    assert any(r["bm25"] == 1 and r["dense"] != 1 for r in ranks)
    assert any(r["hybrid"] != 1 for r in ranks)
    assert evaluation(config, capsys, "--strategy", "A")["destroyed"]

    questions = [
        json.loads(line)
        for line in (ROOT / "rag_pipeline" / "sample" / "questions.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ]
    kinds = {".xlsx": "!A", ".pptx": "#slide=", ".csv": "#row=", ".vtt": "#t=", ".pdf": "#page="}
    seen = set()
    with open_index(config) as index:
        for question in questions:
            suffix = Path(question["document"]).suffix
            for hit in index.search(question["queries"][0], k=50, threshold=2.0).hits:
                if question["needle"] in hit.passage:
                    assert kinds.get(suffix, "#char=") in hit.fragment
                    seen.add(suffix)
                    break
    assert set(kinds) <= seen


def test_the_course_gives_what_was_measured_independently(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    course = shared / "corpora" / "course"
    files = (str(course / "corpus"), str(course / "questions.jsonl"), str(course / "out_of_domain.jsonl"))
    baseline = json.loads((course / "baseline.json").read_text())["strategies"]
    config = settings_file(tmp_path, *files)
    assert main(["--config", config, "index"]) == DONE
    published = evaluation(config, capsys)
    assert published["chunks"] == 1062
    assert published["destroyed"] == []
    assert published["chunks_over_window"] == baseline["E"]["chunks_over_256_pieces"]
    dense = published["retrievers"]["dense"]["recall"]
    expected = baseline["E"]["retrieval"]["dense"]["all"]
    for k in ("1", "4", "8", "20"):
        assert dense[k]["value"] == pytest.approx(expected[f"R@{k}"], abs=0.02)

    blind = settings_file(tmp_path, *files, strategy="A")
    capsys.readouterr()
    assert main(["--config", blind, "index", "--json"]) == BLOCKED
    assert any("destroyed_answers" in reason for reason in json.loads(capsys.readouterr().out)["blocked_by"])
    assert evaluation(blind, capsys)["destroyed"] == baseline["A"]["destroyed_ids"]
    with open_index(config) as index:
        assert index.build == published["build"]
