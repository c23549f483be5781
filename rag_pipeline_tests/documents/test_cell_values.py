from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_pipeline.documents.cell_values import number_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", ""),
        (" as it is ", " as it is "),
        (True, "TRUE"),
        (False, "FALSE"),
        (7, "7"),
        (7.0, "7"),
        (-0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (1e-7, "0.0000001"),
        (2.0**53 - 1, "9007199254740991"),
        (1234.5678, "1234.5678"),
        (float("inf"), "inf"),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.datetime(2024, 2, 29, 23, 59, 59, 999_600), "2024-03-01 00:00:00"),
        (dt.datetime.max, "9999-12-31 23:59:59"),
        (dt.time(1, 2, 3, 400_000), "01:02:03"),
        (dt.timedelta(days=1, hours=2, seconds=5), "26:00:05"),
        (dt.timedelta(seconds=-90), "-0:01:30"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("stored", "text"),
    [("1200.0", "1200"), ("007", "007"), ("0.5", "0.5"), ("May", "May"), ("nan", "nan"), ("", "")],
)
def test_numbers_stored_as_text(stored: str, text: str) -> None:
    assert number_text(stored) == text


@settings(deadline=None, max_examples=100)
@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_keep_every_digit(number: int) -> None:
    assert value_text(float(number)) == str(number)
