"""Markdown: kept as it is, character by character, but for headings that are not written as `## Title` lines.

Underlined (setext) headings, and ATX headings that are indented or use a tab, become plain ATX lines, since
sections are found by those. What a heading is decides a CommonMark parser, not a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.encoding import decode
from rag_pipeline.documents.extraction import Content, Segment
from rag_pipeline.documents.front_matter import FrontMatterError, parse_front_matter

EXTRACTOR_VERSION = "1"

_PLAIN_ATX = re.compile(r"#{1,6} ")
# Without a line like these there is nothing to rewrite and no need to parse.
_SUSPECT = re.compile(r"^(?: {1,3}#{1,6}[ \t]|#{1,6}\t| {0,3}(?:=+|-+)[ \t]*$)", re.MULTILINE)


def extract(data: bytes, options: ExtractionConfig) -> Content:
    """Return the text of a Markdown file in one segment; its front matter is taken out later."""
    decoded = decode(data)
    return Content((Segment(with_atx_headings(decoded.text)),), decoded.text, warnings=decoded.warnings)


def with_atx_headings(text: str) -> str:
    """Return `text` with every top-level heading as a line `## Title`; nothing else is touched.

    Line ends stay as they are. Front matter, whose closing line would underline its last key, is passed over.
    """
    if not _SUSPECT.search(text.replace("\r\n", "\n").replace("\r", "\n")):
        return text
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    plain = [line.rstrip("\r\n") for line in lines]
    skipped = _front_matter_lines(plain)
    for first, last, level in _headings("\n".join(plain[skipped:])):
        start, end = skipped + first, skipped + last
        if end - start == 1 and _PLAIN_ATX.match(plain[start]):
            continue
        if end - start == 1:
            title = plain[start].strip().lstrip("#")
        else:
            title = " ".join(line.strip() for line in plain[start : end - 1])
        line_end = lines[end - 1][len(plain[end - 1]) :]
        lines[start:end] = [f"{'#' * level} {title.strip()}{line_end}", *([""] * (end - start - 1))]
    return "".join(lines)


def _front_matter_lines(plain: list[str]) -> int:
    text = "\n".join(plain)
    try:
        front_matter = parse_front_matter(text)
    except FrontMatterError:
        return 0
    return text.count("\n", 0, front_matter.end) if front_matter else 0


def _headings(text: str) -> Iterator[tuple[int, int, int]]:
    """Yield first line, line after the last, and level of every heading that lies in no list or quotation."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    parser.disable("inline")  # blocks are all that is needed, and inline parsing is most of the time
    for token in parser.parse(text):
        if token.type == "heading_open" and token.level == 0 and token.map:
            yield token.map[0], token.map[1], int(token.tag[1])
