"""The fixed Arrow schemas of every table the pipeline writes.

Each field carries its description as Arrow metadata (key ``description``); Parquet files keep it, Dagster shows
it, and the documentation is generated from it. Offsets count Unicode code points and are half-open.

Units: sizes in bytes, lengths and offsets in code points, times in seconds, pages and slides from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

# Raised when files already written could not be read by the new code. A storage root of another version is refused.
STORAGE_SCHEMA_VERSION = 1


def field(name: str, type_: pa.DataType, description: str, *, nullable: bool = False) -> pa.Field:
    """Return an Arrow field that carries its description in its metadata."""
    return pa.field(name, type_, nullable=nullable, metadata={"description": description})


def describe(field_: pa.Field) -> str:
    """Return the description of a field made by `field` ('' where there is none)."""
    return ((field_.metadata or {}).get(b"description") or b"").decode()


@dataclass(frozen=True)
class TableSchema:
    """A table: its name, what one row is, its key columns and its Arrow schema."""

    name: str
    description: str
    key: tuple[str, ...]
    schema: pa.Schema
    volatile: frozenset[str] = frozenset()
    """Columns that differ from run to run without a change of content; no part of the data version."""


# A place in the original file. Every field is null but the ones of the document's kind.
LOCATOR_FIELDS = [
    field("page", pa.int32(), "first page (PDF) or slide (PPTX), from 1", nullable=True),
    field(
        "page_last",
        pa.int32(),
        "last page or slide, from 1; equals page for a place on one page",
        nullable=True,
    ),
    field("t_start", pa.float64(), "start of the time range in seconds (VTT, SRT)", nullable=True),
    field("t_end", pa.float64(), "end of the time range in seconds", nullable=True),
    field("sheet", pa.string(), "sheet name (XLSX)", nullable=True),
    field("range", pa.string(), "A1 cell range on that sheet, e.g. A1:C9", nullable=True),
    field("row_first", pa.int64(), "first row, from 1 (CSV, RFC 7111)", nullable=True),
    field("row_last", pa.int64(), "last row, from 1, inclusive", nullable=True),
]
LOCATOR = pa.struct(LOCATOR_FIELDS)
LOCATOR_SPAN = pa.struct(
    [
        field("from", pa.int64(), "start offset in the canonical text"),
        field("to", pa.int64(), "end offset in the canonical text, exclusive"),
        *LOCATOR_FIELDS,
    ]
)
WARNING = pa.struct(
    [
        field("kind", pa.string(), "warning word from one enumeration"),
        field("message", pa.string(), "what was seen and what it means for the text"),
        field("page", pa.int32(), "page it concerns, from 1", nullable=True),
    ]
)
PAGE = pa.struct(
    [
        field("page", pa.int32(), "page or slide, from 1"),
        field("ocr", pa.bool_(), "true where the page's text was read by OCR"),
        field("confidence", pa.float64(), "mean OCR confidence in [0, 1]; null without OCR", nullable=True),
    ]
)
REMOVED = pa.struct(
    [
        field("kind", pa.string(), "what was removed: front_matter, references, control_characters, ..."),
        field("characters", pa.int64(), "how many code points were removed"),
    ]
)
SEGMENT = pa.struct(
    [field("text", pa.string(), "Markdown text of this piece, not yet normalised"), *LOCATOR_FIELDS]
)

SOURCE_DOCUMENTS = TableSchema(
    "source_documents",
    "one file of the source folder, listed or skipped",
    ("document_id",),
    pa.schema(
        [
            field("document_id", pa.string(), "path relative to the source root, with /"),
            field("size", pa.int64(), "bytes"),
            field("sha256", pa.string(), "sha256 of the file's bytes; null for skipped files", nullable=True),
            field(
                "media_type", pa.string(), "media type by content and suffix; null if unknown", nullable=True
            ),
            field("state", pa.string(), "listed or skipped"),
            field("reason", pa.string(), "why it was skipped", nullable=True),
        ]
    ),
)

EXTRACTED_DOCUMENTS = TableSchema(
    "extracted_documents",
    "one source document with what extraction gave",
    ("document_id",),
    pa.schema(
        [
            field("document_id", pa.string(), "path relative to the source root, with /"),
            field("sha256", pa.string(), "sha256 of the file's bytes", nullable=True),
            field("size", pa.int64(), "bytes"),
            field("media_type", pa.string(), "media type the extractor was chosen by", nullable=True),
            field("state", pa.string(), "extracted, failed or skipped"),
            field("reason", pa.string(), "reason word where not extracted", nullable=True),
            field("message", pa.string(), "what went wrong, for a person", nullable=True),
            field("extractor", pa.string(), "extractor that read it", nullable=True),
            field("extractor_version", pa.string(), "its version", nullable=True),
            field("seconds", pa.float64(), "wall time extraction took when it was done", nullable=True),
            field("warnings", pa.list_(WARNING), "what was noticed while reading"),
            field("pages", pa.list_(PAGE), "pages or slides, where the format has them"),
            field("title", pa.string(), "title the file itself declares", nullable=True),
            field("metadata", pa.string(), "front-matter and document properties, a JSON object"),
            field("segments", pa.list_(SEGMENT), "pieces in reading order, each with its place in the file"),
            field(
                "raw_text",
                pa.string(),
                "crudest text of the file, to tell 'lost in extraction' from 'not in the source'",
            ),
        ]
    ),
    volatile=frozenset({"seconds"}),
)

CANONICAL_DOCUMENTS = TableSchema(
    "canonical_documents",
    "one source document in its final state, with its canonical text",
    ("document_id",),
    pa.schema(
        [
            field("document_id", pa.string(), "path relative to the source root, with /"),
            field("name", pa.string(), "file name"),
            field("title", pa.string(), "front matter, else first level-1 heading, else file name"),
            field("sha256", pa.string(), "sha256 of the file's bytes", nullable=True),
            field("size", pa.int64(), "bytes"),
            field("media_type", pa.string(), "media type", nullable=True),
            field("state", pa.string(), "indexed, failed or skipped"),
            field("reason", pa.string(), "reason word where not indexed", nullable=True),
            field("message", pa.string(), "what went wrong, for a person", nullable=True),
            field("extractor", pa.string(), "extractor that read it", nullable=True),
            field("extractor_version", pa.string(), "its version", nullable=True),
            field(
                "text",
                pa.string(),
                "canonical text: the one text every offset refers to; '' where not indexed",
            ),
            field("text_sha256", pa.string(), "sha256 of the canonical text in UTF-8", nullable=True),
            field("metadata", pa.string(), "front-matter and document properties, a JSON object"),
            field("locators", pa.list_(LOCATOR_SPAN), "spans of the text and their places in the file"),
            field("removed", pa.list_(REMOVED), "what normalisation took out, counted"),
            field("warnings", pa.list_(WARNING), "what was noticed while reading"),
            field("pages", pa.list_(PAGE), "pages or slides, where the format has them"),
        ]
    ),
)

CHUNKS = TableSchema(
    "chunks",
    "one chunk of a document",
    ("document_id", "ordinal"),
    pa.schema(
        [
            field(
                "chunk_id", pa.string(), "hash of document id, start, end and text (32 hexadecimal digits)"
            ),
            field("document_id", pa.string(), "document the chunk is cut from"),
            field("ordinal", pa.int32(), "position in the document, from 0"),
            field("section", pa.string(), "title of the section that holds it; '' in the preamble"),
            field("start", pa.int64(), "start of content in the canonical text"),
            field("end", pa.int64(), "end of content in the canonical text, exclusive"),
            field("lead_start", pa.int64(), "start of the passage: start minus the overlap"),
            field("content", pa.string(), "canonical[start:end], the chunk's own words"),
            field("text", pa.string(), "header + canonical[lead_start:end]: what is embedded and indexed"),
            field("header_length", pa.int32(), "length of the contextual header at the start of text"),
            field("text_sha256", pa.string(), "sha256 of text in UTF-8"),
            field("locator", LOCATOR, "place in the original file"),
        ]
    ),
)

CHUNK_EMBEDDINGS = TableSchema(
    "chunk_embeddings",
    "one chunk's vector; the vectors lie beside it as a raw float32 array in the same row order",
    ("row",),
    pa.schema(
        [
            field("row", pa.int64(), "row of the vector array, and of the chunks table"),
            field("chunk_id", pa.string(), "chunk"),
            field("text_sha256", pa.string(), "sha256 of the embedded text"),
            field("pieces", pa.int32(), "word pieces of text, special tokens included"),
            field("header_pieces", pa.int32(), "word pieces of the contextual header alone"),
            field("covered", pa.int32(), "code points of text that lie within the encoder's window"),
            field("norm", pa.float32(), "Euclidean length of the vector"),
        ]
    ),
    volatile=frozenset({"norm"}),
)

BM25_TERMS = TableSchema(
    "terms",
    "one term of the BM25 vocabulary",
    ("term_id",),
    pa.schema(
        [
            field("term_id", pa.int64(), "number of the term, in code point order of the terms, from 0"),
            field("term", pa.string(), "token as the tokenizer gives it"),
            field("document_frequency", pa.int64(), "chunks that hold it"),
            field("inverse_document_frequency", pa.float64(), "ln(1 + (N - n + 0.5) / (n + 0.5))"),
            field("posting_start", pa.int64(), "first row of its postings"),
            field("posting_end", pa.int64(), "row after its last posting"),
        ]
    ),
)

BM25_POSTINGS = TableSchema(
    "postings",
    "one term in one chunk",
    ("term_id", "row"),
    pa.schema(
        [
            field("term_id", pa.int64(), "term"),
            field("row", pa.int64(), "row of the chunk in the chunks table"),
            field("frequency", pa.int32(), "times the term occurs in the chunk's text"),
        ]
    ),
)

BM25_LENGTHS = TableSchema(
    "lengths",
    "one chunk's length in tokens",
    ("row",),
    pa.schema(
        [
            field("row", pa.int64(), "row of the chunk in the chunks table"),
            field("length", pa.int32(), "tokens of the chunk's text"),
        ]
    ),
)

DOCUMENTS = TableSchema(
    "documents",
    "one source document of a build, with everything that made its chunks",
    ("document_id",),
    pa.schema(
        [
            field("document_id", pa.string(), "path relative to the source root, with /"),
            field("name", pa.string(), "file name"),
            field("title", pa.string(), "title"),
            field("sha256", pa.string(), "sha256 of the file's bytes", nullable=True),
            field("size", pa.int64(), "bytes"),
            field("media_type", pa.string(), "media type", nullable=True),
            field("state", pa.string(), "indexed, failed or skipped"),
            field("reason", pa.string(), "reason word where not indexed", nullable=True),
            field("message", pa.string(), "what went wrong, for a person", nullable=True),
            field("text", pa.string(), "canonical text"),
            field("text_sha256", pa.string(), "sha256 of the canonical text in UTF-8", nullable=True),
            field("metadata", pa.string(), "front-matter and document properties, a JSON object"),
            field("warnings", pa.list_(WARNING), "what was noticed while reading"),
            field("pages", pa.list_(PAGE), "pages or slides, where the format has them"),
            field("chunks", pa.int64(), "number of chunks, counted after they were written"),
            field("extractor", pa.string(), "extractor", nullable=True),
            field("extractor_version", pa.string(), "its version", nullable=True),
            field("embedding_model", pa.string(), "embedding model"),
            field("embedding_dimensions", pa.int32(), "dimensions of its vectors"),
            field("embedding_fingerprint", pa.string(), "fingerprint of the encoder"),
            field("chunking_strategy", pa.string(), "chunking strategy"),
            field("chunker_version", pa.string(), "version of the chunker"),
            field("tokenizer", pa.string(), "BM25 tokenizer"),
            field("tokenizer_version", pa.string(), "its version"),
            field("pipeline_version", pa.string(), "release of the pipeline"),
            field("built_at", pa.string(), "time of the build, RFC 3339 in UTC (outside the build's hash)"),
        ]
    ),
    volatile=frozenset({"built_at"}),
)

SECTIONS = TableSchema(
    "sections",
    "one section of a document's canonical text",
    ("document_id", "ordinal"),
    pa.schema(
        [
            field("document_id", pa.string(), "document"),
            field("ordinal", pa.int32(), "position in the document, from 0"),
            field("title", pa.string(), "section title; '' for the preamble"),
            field("start", pa.int64(), "start of the section's body"),
            field("end", pa.int64(), "end of the section's body, exclusive"),
        ]
    ),
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        SOURCE_DOCUMENTS,
        EXTRACTED_DOCUMENTS,
        CANONICAL_DOCUMENTS,
        CHUNKS,
        CHUNK_EMBEDDINGS,
        BM25_TERMS,
        BM25_POSTINGS,
        BM25_LENGTHS,
        DOCUMENTS,
        SECTIONS,
    )
}
