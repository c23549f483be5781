"""The Dagster UI as a person uses it, in headless Chromium: materialise, break, see the block, repair, publish."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_pipeline import open_index
from rag_pipeline.settings import Settings
from rag_pipeline_tests.conftest import MakeSettings

pytestmark = pytest.mark.slow

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RUN_SECONDS = 180


@dataclass(frozen=True)
class Ui:
    """A running UI: its address, the settings it serves, and a page."""

    address: str
    settings: Settings
    page: Any

    def graphql(self, query: str) -> Any:
        request = urllib.request.Request(
            f"{self.address}/graphql",
            json.dumps({"query": query}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]

    def runs(self) -> list[dict[str, str]]:
        found = self.graphql("{runsOrError{... on Runs{results{runId status}}}}")
        return list(found["runsOrError"]["results"])

    def materialise_all(self) -> str:
        """Press the button of the lineage page, wait for the run to end, and return its status."""
        before = {run["runId"] for run in self.runs()}
        self.page.goto(f"{self.address}/asset-groups")
        self.page.get_by_role("button", name="Materialize all").click(timeout=60_000)

        def ended() -> str | None:
            new = [run for run in self.runs() if run["runId"] not in before]
            return (
                new[0]["status"] if new and new[0]["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None
            )

        return str(wait_for(ended, "the run to end"))

    def text(self, path: str, *wanted: str) -> str:
        """Open a page, wait until it shows the words, and return all its text."""
        self.page.goto(f"{self.address}{path}")
        for words in wanted:
            self.page.get_by_text(words).first.wait_for(timeout=60_000)
        return str(self.page.inner_text("body"))


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(1)
    raise AssertionError(f"waited {RUN_SECONDS} s for {what}")


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the UI as Ctrl-C does, and whatever of its processes has not gone after a while."""
    server.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(timeout=30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait(timeout=30)


def write_toml(path: Path, settings: Settings) -> None:
    lines = []
    for section, keys in {
        "source": {"path": settings.source.path},
        "storage": {"root": settings.storage.root},
        "embedding": {"model": settings.embedding.model},
        "evaluation": {
            "questions": settings.evaluation.questions,
            "out_of_domain": settings.evaluation.out_of_domain,
        },
    }.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    path.write_text("\n".join([*lines, "[retrieval]", "threshold = 2.0"]) + "\n")


@pytest.fixture
def ui(make_settings: MakeSettings, tmp_path: Path) -> Iterator[Ui]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    settings = make_settings()
    write_toml(tmp_path / "rag_pipeline.toml", settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = (tmp_path / "ui.log").open("wb")
    # The command that users run; it becomes `dagster dev`, with webserver and daemon.
    server = subprocess.Popen(
        [sys.executable, "-m", "rag_pipeline.cli", "ui", "--port", str(port)],
        cwd=tmp_path,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )

    def answers() -> bool:
        assert server.poll() is None, (tmp_path / "ui.log").read_text()[-3000:]
        try:
            urllib.request.urlopen(f"{address}/server_info", timeout=2).close()
        except OSError:
            return False
        return True

    try:
        wait_for(answers, "the webserver")
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield Ui(address, settings, browser.new_page(viewport={"width": 1600, "height": 1400}))
            browser.close()
    finally:
        stop(server)
        log.close()


def test_break_block_repair_publish(ui: Ui) -> None:
    # Materialise all; the evaluation shows what one wants to see.
    assert ui.materialise_all() == "SUCCESS"
    page = ui.text("/assets/retrieval_evaluation", "threshold plot", "recall plot")
    for words in ("gate decisions", "lost questions", "comparison with the published build", "MRR (hybrid)"):
        assert words in page
    row = ui.page.locator("tr", has_text="recall plot").first
    row.get_by_text("Show Markdown").click()
    image = ui.page.locator("img[alt='Recall by retriever with intervals']")
    image.wait_for(timeout=30_000)
    assert image.evaluate("image => image.complete && image.naturalWidth > 100")
    ui.page.keyboard.press("Escape")
    with open_index(ui.settings.storage_root) as index:
        first = index.build

    # Delete a question's sentence: the check blocks, readers keep the build.
    document = Path(ui.settings.source.path) / "refunds.md"
    whole = document.read_text()
    document.write_text(
        whole.replace("Parking fines are never refunded, whatever the weather was.", "Ask us.")
    )
    assert ui.materialise_all() == "FAILURE"
    checks = ui.text("/assets/retrieval_evaluation?view=checks", "ground_truth_valid")
    assert "ground_truth_valid" in checks
    ui.page.get_by_text("ground_truth_valid").first.click()
    ui.page.get_by_text("1 of 3 questions are invalid").first.wait_for(timeout=60_000)
    assert "Repair the listed questions" in ui.page.inner_text("body")
    with open_index(ui.settings.storage_root) as index:
        assert index.build == first
        assert (
            index.search("Are parking fines refunded?", mode="bm25", k=1).hits[0].document_id == "refunds.md"
        )

    # Repair it, with a sentence more: it publishes.
    document.write_text(whole + "\n## Vouchers\n\nA voucher is good for one year.\n")
    assert ui.materialise_all() == "SUCCESS"
    with open_index(ui.settings.storage_root) as index:
        second = index.build
    assert second != first
    assert second in ui.text("/assets/published_index", "published anew", second)
