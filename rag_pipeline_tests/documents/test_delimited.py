from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.canonical import canonicalise
from rag_pipeline.documents.config import ExtractionConfig
from rag_pipeline.documents.delimited import extract, sniffed_delimiter
from rag_pipeline.documents.extraction import extract_bytes
from rag_pipeline.documents.locators import resolve
from rag_pipeline.documents.media_types import CSV
from rag_pipeline.documents.states import WarningKind
from rag_pipeline.retrieval.citations import fragment, label
from rag_pipeline_tests.documents.conftest import text_of

OPTIONS = ExtractionConfig()


def read(text: str, encoding: str = "utf-8") -> str:
    return text_of(extract(text.encode(encoding), OPTIONS))


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a;b;c\n1,5;2,5;3\n4,5;5,5;6\n", ";"),
        ("a\tb\n1, one\t2\n", "\t"),
        ("a|b\nx, y|z\n", "|"),
        ('"a,b";c\n"d,e";f\n', ";"),
        ("Title, with a comma\na;b;c\n1;2;3\n4;5;6\n", ";"),
        ("one column\nonly\n", ","),
        ("", ","),
    ],
)
def test_the_delimiter_is_the_one_that_makes_records_alike(text: str, delimiter: str) -> None:
    assert sniffed_delimiter(text) == delimiter


def test_records_are_table_rows_with_their_numbers() -> None:
    data = 'name;note\r\n"Old; Quay";"two\r\nlines"\r\n\r\nFellgate;x | y\r\n'.encode("utf-8-sig")
    document = canonicalise("a.csv", extract_bytes(data, CSV, OPTIONS), OPTIONS)
    assert document.text == (
        "| name | note |\n| --- | --- |\n| Old; Quay | two lines |\n| Fellgate | x \\| y |\n"
    )
    at = document.text.index("Old;")
    place = resolve(document.locators, at, at + 4)
    assert fragment(CSV, at, at + 4, place) == "#row=2"
    whole = resolve(document.locators, 0, len(document.text))
    assert (fragment(CSV, 0, 1, whole), label("", CSV, whole)) == ("#row=1-4", "rows 1-4")
    assert (document.locators[0].start, document.locators[-1].end) == (0, len(document.text))


def test_the_hint_of_a_spreadsheet_is_no_record() -> None:
    content = extract(b"sep=|\na|b\n1|2\n", OPTIONS)
    assert text_of(content) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert [segment.locator.row_first for segment in content.segments] == [1, 2]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_encodings(encoding: str) -> None:
    assert (
        read("Straße,Größe\nüber,schön\n", encoding)
        == "| Straße | Größe |\n| --- | --- |\n| über | schön |\n"
    )


def test_a_quotation_mark_that_nobody_closed_does_not_swallow_the_file() -> None:
    content = extract(b'a,b\n1,"oops\n' + b"2,x\n" * 300, OPTIONS)
    assert [warning.kind for warning in content.warnings] == [WarningKind.REPAIRED]
    assert len(content.segments) == 302
    assert content.segments[-1].locator.row_last == 302


def test_uneven_records_and_nul_bytes_are_kept() -> None:
    text = read("a,b\n1\n2,3,4\n\x00x,a longer text\n")
    assert text == "| a | b |  |\n| --- | --- | --- |\n| 1 |  |  |\n| 2 | 3 | 4 |\n| x | a longer text |  |\n"


def test_a_file_without_words_gives_none() -> None:
    assert read(",,\n,,\n") == ""


fields = st.text(alphabet='ab,;"\n |\té', max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(fields, min_size=2, max_size=4), min_size=1, max_size=8))
def test_every_word_of_a_written_file_is_found_in_its_row(rows: list[list[str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["head", "line"], *rows])
    content = extract(f"sep=,\n{file.getvalue()}".encode(), OPTIONS)
    by_row: dict[int, str] = {}
    for segment in content.segments:
        number = segment.locator.row_first
        assert number is not None
        by_row[number] = by_row.get(number, "") + segment.text
    for number, row in enumerate(rows, 2):
        words = " ".join(row).replace("|", "\\|").split()
        assert all(word in by_row.get(number, "") for word in words)
