from __future__ import annotations

import pytest

from rag_pipeline.documents.front_matter import FrontMatterError, json_value, parse_front_matter


def test_keys_and_the_offset_of_the_body() -> None:
    text = "---\ntitle: Depot\ntags: [a, b]\nvalid: 2025-03-01\n---\n# Body\n"
    found = parse_front_matter(text)
    assert found is not None
    assert found.values == {"title": "Depot", "tags": ["a", "b"], "valid": "2025-03-01"}
    assert text[found.end :] == "# Body\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Title\n---\nkey: value\n---\n",
        "---\nkey: value\n",
        "---\n\nA paragraph between two rules.\n\n---\n",
        "----\nkey: value\n----\n",
        "---\n---\n",
    ],
)
def test_text_without_front_matter(text: str) -> None:
    assert parse_front_matter(text) is None


@pytest.mark.parametrize(
    "block", ["a: [1, 2", "a: &x [1]\nb: *x", "a: !!python/object:os.system {}", "- a: 1"]
)
def test_unreadable_front_matter_is_an_error(block: str) -> None:
    with pytest.raises(FrontMatterError):
        parse_front_matter(f"---\n{block}\n---\nbody")


def test_values_become_json() -> None:
    assert json_value({1: float("inf"), "s": {"b", "a"}, "n": None, "t": True}) == {
        "1": "inf",
        "s": ["a", "b"],
        "n": None,
        "t": True,
    }
    assert json_value("half \ud800 character") == "half  character"
