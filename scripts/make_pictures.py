"""Make the pictures of the README from the product itself: the asset graph and one evaluation.

usage: make_pictures.py       (needs playwright and a Chromium; CHROMIUM names it, default /usr/bin/chromium)

The sample corpus is indexed in a folder of its own, the Dagster UI is started on it, and two screenshots are taken.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BIN = Path(sys.executable).parent
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
GROUPS = ["1_source", "2_documents", "3_chunks", "4_statistics", "5_index", "6_evaluation", "7_published"]


def main() -> None:
    """Index the sample in a temporary folder and write both pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        environment.pop("DAGSTER_HOME", None)
        subprocess.run([BIN / "rag-pipeline", "init"], cwd=folder, env=environment, check=True)
        subprocess.run([BIN / "rag-pipeline", "index"], cwd=folder, env=environment, check=True)
        home = Path(folder) / "rag_data" / "dagster_home"
        port = _free_port()
        server = subprocess.Popen(
            [BIN / "dagster-webserver", "-w", home / "workspace.yaml", "-p", str(port)],
            cwd=folder,
            env={**environment, "DAGSTER_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(port)
            _take(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()


def _take(address: str) -> None:
    from playwright.sync_api import sync_playwright

    expanded = "%2C".join(f"global%40global%3A{group}" for group in GROUPS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 2300, "height": 760})
        page.goto(f"{address}/asset-groups?expanded={expanded}")
        page.wait_for_selector("text=published_index")
        page.wait_for_timeout(5000)
        left = 545  # without the navigation and the list of groups
        area = {"x": left, "y": 100, "width": 2300 - left - 5, "height": 650}
        page.screenshot(path=IMAGES / "assets.png", clip=area)
        _evaluation(browser.new_page(viewport={"width": 1250, "height": 1400}), address)
        browser.close()


def _evaluation(page: Any, address: str) -> None:
    page.goto(f"{address}/assets/retrieval_evaluation")
    page.wait_for_selector("text=threshold plot")
    page.wait_for_timeout(3000)
    row = page.locator("tr", has_text="recall plot").first
    row.locator("text=[Show Markdown]").click()
    page.wait_for_timeout(2000)
    page.screenshot(path=IMAGES / "evaluation.png", clip={"x": 0, "y": 0, "width": 1250, "height": 1180})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(120):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2)
        except OSError:
            time.sleep(1)
        else:
            return
    raise RuntimeError("the Dagster webserver did not start")


if __name__ == "__main__":
    main()
