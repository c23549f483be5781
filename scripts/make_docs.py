"""Write the pages of docs/ that are generated from the code: settings.md and tables.md.

usage: make_docs.py [--check]     (with --check nothing is written; exit 1 where a page is out of date)
"""

from __future__ import annotations

import sys
from pathlib import Path

from rag_pipeline.core.schemas import TABLES, describe
from rag_pipeline.evaluation.schemas import TABLES as EVALUATION_TABLES
from rag_pipeline.settings import describe_settings, section_type

DOCS = Path(__file__).resolve().parents[1] / "docs"


def settings_page() -> str:
    """Return docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Generated from the code by `scripts/make_docs.py`.",
        "",
        "Settings come from `rag_pipeline.toml` in the working directory, or from the file given by `--config FILE` or",
        "`RAG_PIPELINE_CONFIG`. Each key can also be set as `RAG_PIPELINE_<SECTION>__<KEY>`, which wins.",
        "Relative paths count from the settings file (from the working directory for environment variables);",
        "`{sample}` at the start of a path is the folder of the sample corpus. Unknown keys are errors.",
    ]
    section = ""
    for setting in describe_settings():
        if setting.section != section:
            section = setting.section
            about = (section_type(section).__doc__ or "").split(": ", 1)[-1].strip()
            lines += ["", f"## {section}", "", about[:1].upper() + about[1:], ""]
            lines += ["| key | allowed | default | what it does |", "|---|---|---|---|"]
        default = "unset" if setting.default is None else f"`{_toml(setting.default)}`"
        lines.append(
            f"| `{setting.key}` | {_cell(setting.type)} | {default} | {_cell(setting.description)} |"
        )
    return "\n".join(lines) + "\n"


def tables_page() -> str:
    """Return docs/tables.md."""
    lines = [
        "# Tables",
        "",
        "Generated from the code by `scripts/make_docs.py`.",
        "",
        "Parquet is the truth of every table; a build's `index.duckdb` holds `documents`, `sections`, `chunks`,",
        "`embeddings`, `terms`, `postings`, `lengths` and `stamp` as real tables with the same columns (chunks with",
        "their `row`, embeddings with their `vector`).",
    ]
    for table in {**TABLES, **EVALUATION_TABLES}.values():
        lines += [
            "",
            f"## {table.name}",
            "",
            f"One row: {table.description}. Key: {', '.join(table.key)}.",
            "",
        ]
        lines += ["| column | type | null | what it is |", "|---|---|---|---|"]
        lines += [
            f"| `{column.name}` | {_type(column.type)} | {'yes' if column.nullable else ''} | "
            f"{_cell(describe(column))} |"
            for column in table.schema
        ]
    return "\n".join(lines) + "\n"


def _type(type_: object) -> str:
    text = str(type_)
    if text.startswith("list<"):
        return "list of structs" if "struct<" in text else "list"
    return "struct" if text.startswith("struct<") else text


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"settings.md": settings_page, "tables.md": tables_page}


def main() -> int:
    """Write the pages, or with --check compare them."""
    stale = []
    for name, page in PAGES.items():
        path = DOCS / name
        if "--check" not in sys.argv:
            path.write_text(page(), encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != page():
            stale.append(name)
    if stale:
        print(f"out of date: {', '.join(stale)}; run scripts/make_docs.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
