"""Writing Markdown from other formats: headings, paragraphs, tables, code.

Words stay as the reader sees them. No inline marks are written (no `**`, no backticks, no links): the quote
of a citation is then what stands on the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_BACKTICKS = re.compile(r"`{3,}")
# A line of running text that Markdown would take for a heading or for the start of fenced code.
_STRUCTURAL = re.compile(r"^(?= {0,3}(?:#{1,6}(?:[ \t]|$)|`{3,}|~{3,}))", re.MULTILINE)
_SPACES = re.compile(r"[ \t\n\r\f\v\xa0]+")


def one_line(text: str) -> str:
    """Return `text` with every run of white space (no-break spaces too) as one space, trimmed.

    Soft hyphens, which only tell where a word may be broken, are left out.
    """
    if text.isalnum():  # most cells of a long table
        return text
    return _SPACES.sub(" ", text.replace("\xad", "")).strip(" ")


def heading(level: int, text: str) -> str:
    """Return an ATX heading line, '' for an empty title; levels below 6 become 6."""
    title = one_line(text)
    return f"{'#' * min(level, 6)} {title}" if title else ""


def paragraph(text: str) -> str:
    """Return running text in which no line can be taken for a heading or a fence."""
    return _STRUCTURAL.sub(r"\\", text)


def code_block(code: str, language: str = "") -> str:
    """Return `code` in a fence that is longer than any run of backticks inside."""
    body = code.strip("\n").rstrip()
    if not body:
        return ""
    longest = max((len(run) for run in _BACKTICKS.findall(body)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def table_rows(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return the lines of table rows of `columns` cells each; missing cells are empty."""
    lines = []
    for row in rows:
        cells = [one_line(cell).replace("|", "\\|") for cell in row]
        cells += [""] * (columns - len(cells))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def table_rule(columns: int) -> str:
    """Return the line between a table's header and its body."""
    return "|" + " --- |" * columns


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows`, the first of them the header, as a Markdown table; '' where every cell is empty."""
    columns = max((len(row) for row in rows), default=0)
    if not any(one_line(cell) for row in rows for cell in row):
        return ""
    header, *body = table_rows(rows, columns)
    return "\n".join([header, table_rule(columns), *body])
