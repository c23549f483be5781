from __future__ import annotations

from typing import get_args, get_type_hints

from rag_pipeline.chunking import STRATEGIES, chunk_document
from rag_pipeline.chunking.config import ChunkingConfig


def test_the_table_of_the_six_strategies() -> None:
    assert {letter: (s.boundaries, s.header, s.overlap) for letter, s in STRATEGIES.items()} == {
        "A": (False, False, False),
        "B": (False, False, True),
        "C": (True, False, False),
        "D": (True, False, True),
        "E": (True, True, False),
        "F": (True, True, True),
    }
    assert all(letter == s.letter and s.description for letter, s in STRATEGIES.items())


def test_the_setting_allows_exactly_the_registered_strategies() -> None:
    assert get_args(get_type_hints(ChunkingConfig)["strategy"]) == tuple(STRATEGIES)


def test_the_settings_defaults_are_the_functions_defaults() -> None:
    config = ChunkingConfig()
    text = "One. " * 300
    assert chunk_document(text, "T") == chunk_document(
        text, "T", config.strategy, config.target, config.overlap
    )
