from __future__ import annotations

import pyarrow as pa

from rag_pipeline.core.schemas import LOCATOR_FIELDS, LOCATOR_SPAN
from rag_pipeline.documents.locators import Locator, LocatorSpan, resolve

PAGES = [LocatorSpan(page * 10, page * 10 + 10, Locator.of_page(page + 1)) for page in range(3)]


def test_fields_are_those_of_the_table_schema() -> None:
    assert list(Locator().to_dict()) == [field.name for field in LOCATOR_FIELDS]
    span = LocatorSpan(3, 7, Locator(sheet="Q3", range="A1:B2"))
    table = pa.array([span.to_dict()], type=LOCATOR_SPAN)
    assert LocatorSpan.from_dict(table[0].as_py()) == span


def test_a_place_within_one_span_is_that_of_the_span() -> None:
    assert resolve(PAGES, 10, 20) == Locator(page=2, page_last=2)
    assert resolve(PAGES, 9, 10) == Locator(page=1, page_last=1)


def test_a_place_over_several_pages_names_the_first_and_the_last() -> None:
    assert resolve(PAGES, 9, 11) == Locator(page=1, page_last=2)
    assert resolve(PAGES, 0, 30) == Locator(page=1, page_last=3)


def test_an_empty_range_has_the_place_of_its_character() -> None:
    assert resolve(PAGES, 20, 20) == Locator(page=3, page_last=3)


def test_without_spans_there_is_no_place() -> None:
    assert resolve([], 0, 5).is_null
    assert resolve(PAGES, 100, 120).is_null


def test_times_run_from_the_earliest_start_to_the_latest_end() -> None:
    cues = [
        LocatorSpan(0, 5, Locator(t_start=4.0, t_end=9.5)),
        LocatorSpan(5, 9, Locator(t_start=3.5, t_end=6.0)),
    ]
    assert resolve(cues, 2, 7) == Locator(t_start=3.5, t_end=9.5)


def test_cells_are_those_of_the_first_sheet() -> None:
    rows = [
        LocatorSpan(0, 5, Locator(sheet="Q3", range="A2:C2")),
        LocatorSpan(5, 9, Locator(sheet="Q3", range="A3:D3")),
        LocatorSpan(9, 12, Locator(sheet="Q4", range="A1:Z9")),
    ]
    assert resolve(rows, 0, 12) == Locator(sheet="Q3", range="A2:D3")


def test_rows_run_from_the_first_to_the_last() -> None:
    rows = [
        LocatorSpan(0, 5, Locator(row_first=1, row_last=1)),
        LocatorSpan(5, 9, Locator(row_first=2, row_last=4)),
    ]
    assert resolve(rows, 0, 9) == Locator(row_first=1, row_last=4)
