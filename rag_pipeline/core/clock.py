"""The time, in the one format that stamps carry."""

from __future__ import annotations

from datetime import UTC, datetime


def now_rfc3339() -> str:
    """Return the current time in UTC as RFC 3339 with whole seconds, e.g. 2026-01-31T09:30:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
