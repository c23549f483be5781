"""Settings of the source folder and of extraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, MinLen
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Section `source`: the folder of documents."""

    path: Annotated[str, MinLen(1), Doc("Folder to index, read recursively.")] = "documents"
    url_template: Annotated[
        str,
        Doc(
            "URL of a cited document; `{document_id}` is replaced by its percent-encoded path, "
            "and the fragment is appended. Empty: citations carry no URL."
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class ExtractionConfig:
    """Section `extraction`: limits of one document's extraction and what is taken out of its text."""

    timeout: Annotated[float, Gt(0), Doc("Seconds one document may take before it fails as `timeout`.")] = (
        300.0
    )
    memory_limit_mb: Annotated[
        int, Ge(128), Doc("MiB of memory one worker may take before its document fails as `out_of_memory`.")
    ] = 4096
    max_output_mb: Annotated[
        int, Ge(1), Doc("MiB of text one document may give before it fails as `too_large`.")
    ] = 256
    workers: Annotated[int, Ge(0), Doc("Worker processes for extraction; 0 means one a core.")] = 0
    max_pages: Annotated[
        int, Ge(1), Doc("Pages a document may have; one with more fails as `too_large`.")
    ] = 5000
    ocr: Annotated[
        Literal["rapidocr", "tesseract", "off"],
        Doc(
            "What reads scanned pages and images: the engine that is installed with us, Tesseract, or nothing."
        ),
    ] = "rapidocr"
    ocr_max_pages: Annotated[
        int, Ge(0), Doc("Pages of one document that OCR reads; the pages after them are reported as unread.")
    ] = 200
    remove_references: Annotated[
        bool, Doc("Leave reference lists (sections headed References, Bibliography, ...) out of the text.")
    ] = True
    remove_front_matter: Annotated[
        bool, Doc("Leave YAML front matter out of the text; its keys are kept as metadata either way.")
    ] = True
