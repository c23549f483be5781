"""Values of cells as their readers see them: whole numbers without `.0`, every digit kept, dates by ISO 8601."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

# Spreadsheets calculate with doubles and show 15 digits of them: 0.1 + 0.2 is 0.3 to their readers.
_SIGNIFICANT = 15


def value_text(value: object) -> str:
    """Return a cell's value as text; '' for an empty cell.

    Dates are written `2024-01-31`, with a time `2024-01-31 08:30:00`, durations `26:30:00` (hours, minutes,
    seconds), truth values `TRUE` and `FALSE`.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, datetime.datetime):
        return _whole_second(value).isoformat(" ")
    if isinstance(value, datetime.time):
        return value.replace(microsecond=0).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return _duration_text(value)
    return str(value)


def percent_text(value: float, places: int) -> str:
    """Return a number as the percentage that a cell shows, with no fewer than `places` decimals and all digits."""
    text = _float_text(round(value * 100, 12))
    whole, _, decimals = text.partition(".")
    decimals = decimals.ljust(places, "0")
    return f"{whole}.{decimals}%" if decimals else f"{whole}%"


def number_text(text: str) -> str:
    """Return a number that a file stores as text in the form of `value_text`, and any other text as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    if text.strip("+-").isdecimal() or not math.isfinite(value):
        return text
    return _float_text(value)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value.is_integer():
        return str(int(value))
    short = format(value, f".{_SIGNIFICANT}g")
    return format(Decimal(short), "f") if "e" in short else short


def _whole_second(value: datetime.datetime) -> datetime.datetime:
    # A time of day is a fraction of a day, and most seconds are no exact one.
    try:
        return (value + datetime.timedelta(microseconds=500_000)).replace(microsecond=0)
    except OverflowError:
        return value.replace(microsecond=0)


def _duration_text(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{sign}{hour}:{minute:02}:{second:02}"
