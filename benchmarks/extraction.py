"""Text of PDF files: our extractor beside others, on the same files in one run.

usage: extraction.py [FOLDER] [--repeat N]      (default: ../shared/files beside the repository)

FOLDER holds PDF files and `right_values.jsonl`, whose checks name sentences and table rows of a page. A sentence
counts where it is found contiguous (letters and digits only) in what a library gives for the whole document. Pages
a second are those of all these files; OCR is switched off, since the others have none. A library that is not
installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.extraction import extract_bytes
from rag_pipeline.documents.media_types import PDF
from rag_pipeline.documents.states import DocumentState

DEFAULT_FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "files"


@dataclass(frozen=True)
class Contender:
    """A way to read a PDF: its module, and the text it gives for the bytes of a file."""

    name: str
    module: str
    read: Callable[[bytes], str]


@dataclass(frozen=True)
class Sentence:
    """A sentence or a table row that stands in a document."""

    kind: str
    text: str


def ours(data: bytes) -> str:
    """The text of the package's own extractor, without OCR."""
    found = extract_bytes(data, PDF, ExtractionConfig(ocr="off", workers=1))
    if found.state is not DocumentState.EXTRACTED:
        raise ValueError(found.message)
    return "".join(segment.text for segment in found.segments)


def pypdf_plain(data: bytes) -> str:
    """Text in content-stream order by pypdf."""
    from io import BytesIO

    from pypdf import PdfReader

    return "\n".join(page.extract_text() for page in PdfReader(BytesIO(data)).pages)


def pdfium(data: bytes) -> str:
    """Text by pdfium alone."""
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    return "\n".join(page.get_textpage().get_text_range() for page in document)


def plumber(data: bytes) -> str:
    """Text by pdfplumber."""
    from io import BytesIO

    import pdfplumber

    with pdfplumber.open(BytesIO(data)) as document:
        return "\n".join(page.extract_text() or "" for page in document.pages)


def miner(data: bytes) -> str:
    """Text by pdfminer.six."""
    from io import BytesIO

    from pdfminer.high_level import extract_text

    return str(extract_text(BytesIO(data)))


CONTENDERS = (
    Contender("rag_pipeline", "rag_pipeline", ours),
    Contender("pypdf plain", "pypdf", pypdf_plain),
    Contender("pypdfium2", "pypdfium2", pdfium),
    Contender("pdfplumber", "pdfplumber", plumber),
    Contender("pdfminer.six", "pdfminer", miner),
)


def squeeze(text: str) -> str:
    """Return letters and digits alone, compatibility forms folded."""
    folded = unicodedata.normalize("NFKC", text).replace("\u00ad", "").casefold()
    return re.sub(r"[\W_]+", "", folded)


def sentences(folder: Path) -> dict[str, list[Sentence]]:
    """Return the sentences and rows by file, of the PDF files whose text is not a matter of OCR."""
    found: dict[str, list[Sentence]] = {}
    for line in (folder / "right_values.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        checks = [c for c in entry["checks"] if c["check"] in ("contains", "row")]
        if entry["file"].endswith(".pdf") and checks:
            found[entry["file"]] = [Sentence(c["check"], c["text"]) for c in checks]
    return found


def page_count(data: bytes) -> int:
    """Return how many pages pdfium counts."""
    import pypdfium2

    return len(pypdfium2.PdfDocument(data))


@dataclass
class Score:
    """What one contender reached."""

    sentences: int = 0
    rows: int = 0
    failed: int = 0
    seconds: float = 0.0


def measure(
    contender: Contender, files: dict[str, bytes], wanted: dict[str, list[Sentence]], repeat: int
) -> Score:
    """Return the contender's score; its time is the best of `repeat` runs over all files."""
    score = Score(seconds=float("inf"))
    for turn in range(repeat):
        started = time.perf_counter()
        texts: dict[str, str] = {}
        for name, data in files.items():
            try:
                texts[name] = contender.read(data)
            except Exception as error:  # noqa: BLE001 - a peer's failure is a result
                print(f"  {contender.name}: {name}: {type(error).__name__}: {error}"[:150], file=sys.stderr)
                texts[name] = ""
        score.seconds = min(score.seconds, time.perf_counter() - started)
        if turn:
            continue
        score.failed = sum(not text for text in texts.values())
        for name, text in texts.items():
            squeezed = squeeze(text)
            for sentence in wanted[name]:
                if squeeze(sentence.text) in squeezed:
                    score.sentences += sentence.kind == "contains"
                    score.rows += sentence.kind == "row"
    return score


def table(scores: dict[str, Score], wanted: dict[str, list[Sentence]], pages: int) -> Iterator[str]:
    """Yield the lines of the result as a Markdown table."""
    everything = [sentence for group in wanted.values() for sentence in group]
    rows = sum(sentence.kind == "row" for sentence in everything)
    yield "| library | contiguous sentences | table rows | files without text | seconds | pages a second |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, score in scores.items():
        yield (
            f"| {name} | {score.sentences} of {len(everything) - rows} | {score.rows} of {rows} | {score.failed} "
            f"| {score.seconds:.2f} | {pages / score.seconds:.1f} |"
        )


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--repeat", type=int, default=1, help="runs of which the fastest counts")
    arguments = parser.parse_args()
    if not (arguments.folder / "right_values.jsonl").is_file():
        raise SystemExit(f"{arguments.folder} has no right_values.jsonl")
    logging.disable(logging.ERROR)
    wanted = sentences(arguments.folder)
    files = {name: (arguments.folder / name).read_bytes() for name in wanted}
    pages = sum(page_count(data) for data in files.values())
    print(f"{len(files)} files, {pages} pages")
    scores: dict[str, Score] = {}
    for contender in CONTENDERS:
        if importlib.util.find_spec(contender.module) is None:
            print(f"{contender.name} is not installed and left out")
            continue
        scores[contender.name] = measure(contender, files, wanted, max(1, arguments.repeat))
    print("\n".join(table(scores, wanted, pages)))


if __name__ == "__main__":
    main()
