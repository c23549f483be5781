"""The words for what became of a document: states, reasons and kinds of warning, each one enumeration."""

from __future__ import annotations

from enum import StrEnum


class DocumentState(StrEnum):
    """Where a document stands. The last three are final; the first two belong to the tables before them."""

    LISTED = "listed"
    EXTRACTED = "extracted"
    INDEXED = "indexed"
    FAILED = "failed"
    SKIPPED = "skipped"


class FailureReason(StrEnum):
    """Why a document could not be read."""

    ENCRYPTED = "encrypted"
    CORRUPT = "corrupt"
    EMPTY = "empty"
    NO_TEXT = "no_text"
    WRONG_TYPE = "wrong_type"
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TOO_LARGE = "too_large"
    UNSAFE = "unsafe"
    CHANGED = "changed"
    UNREADABLE = "unreadable"


# What may end differently next time although file and extractor are the same: a normal run tries it again.
RETRYABLE: frozenset[FailureReason] = frozenset(
    {
        FailureReason.TIMEOUT,
        FailureReason.OUT_OF_MEMORY,
        FailureReason.CRASHED,
        FailureReason.CHANGED,
        FailureReason.UNREADABLE,
    }
)


class SkipReason(StrEnum):
    """Why an entry of the source folder is listed but not read."""

    HIDDEN = "hidden"
    OUTSIDE_ROOT = "outside_root"
    LINKED_FOLDER = "linked_folder"
    BROKEN_LINK = "broken_link"
    UNKNOWN_TYPE = "unknown_type"
    NOT_A_FILE = "not_a_file"
    UNREADABLE = "unreadable"


class WarningKind(StrEnum):
    """What was noticed while reading a document that is indexed all the same (or failed in the end)."""

    ENCODING_GUESSED = "encoding_guessed"
    UNDECODABLE_BYTES = "undecodable_bytes"
    FRONT_MATTER_UNREADABLE = "front_matter_unreadable"
    MAIN_TEXT_UNCERTAIN = "main_text_uncertain"
    REPAIRED = "repaired"
    DAMAGED_PAGE = "damaged_page"
    NO_TEXT_LAYER = "no_text_layer"
    UNMAPPED_GLYPHS = "unmapped_glyphs"
    LIGATURES_REPAIRED = "ligatures_repaired"
    LOW_CONFIDENCE = "low_confidence"
    OCR_SKIPPED = "ocr_skipped"
    OPENED_WITHOUT_PASSWORD = "opened_without_password"
    EXTRACTION_NOT_PERMITTED = "extraction_not_permitted"
    HIDDEN_CONTENT = "hidden_content"
    COMMENTS_LEFT_OUT = "comments_left_out"
    UNREAD_CONTENT = "unread_content"
    FORMULA_WITHOUT_VALUE = "formula_without_value"
    DAMAGED_PART = "damaged_part"
