"""BM25 statistics on disk: what is read back scores as what was written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_pipeline.core.storage import Storage
from rag_pipeline.core.tables import read_rows
from rag_pipeline.lexical import candidates
from rag_pipeline.lexical.bm25 import BM25
from rag_pipeline.lexical.statistics import score
from rag_pipeline.lexical.tables import MappedStatistics, StoredStatistics, open_statistics, write_statistics

TEXTS = ["The pad wears, the pad breaks.", "Grease the lever.", "", "Äpfel 日本語 🚲"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.create(tmp_path / "root")


def stored(storage: Storage, texts: Sequence[str], k1: float = 1.2, b: float = 0.75) -> StoredStatistics:
    return write_statistics(storage, BM25(texts, k1=k1, b=b).statistics)


def opened(found: StoredStatistics, k1: float = 1.2, b: float = 0.75) -> MappedStatistics:
    files = found.files
    return open_statistics(
        files["terms"], files["posting_rows"], files["posting_frequencies"], files["length_array"], k1, b
    )


def test_the_tables_hold_what_was_counted(storage: Storage) -> None:
    found = stored(storage, TEXTS)
    terms = list(read_rows(found.files["terms"]))
    words = ["breaks", "grease", "lever", "pad", "the", "wears", "äpfel", "日本", "本語"]
    assert [row["term"] for row in terms] == words, "in code point order"
    assert [row["term_id"] for row in terms] == list(range(9))
    by_word = {row["term"]: row for row in terms}
    assert by_word["the"]["document_frequency"] == 2
    assert by_word["the"]["inverse_document_frequency"] == pytest.approx(math.log(1 + 2.5 / 2.5), abs=1e-12)
    postings = list(read_rows(found.files["postings"]))
    assert found.terms == 9 and found.postings == len(postings) == 10
    of_the = postings[by_word["the"]["posting_start"] : by_word["the"]["posting_end"]]
    assert [(p["row"], p["frequency"]) for p in of_the] == [(0, 2), (1, 1)]
    assert [(p["term_id"], p["row"]) for p in postings] == sorted((p["term_id"], p["row"]) for p in postings)
    assert list(read_rows(found.files["lengths"])) == [
        {"row": 0, "length": 6},
        {"row": 1, "length": 3},
        {"row": 2, "length": 0},
        {"row": 3, "length": 3},
    ]
    assert np.load(found.files["length_array"]).tolist() == [6, 3, 0, 3]
    assert np.load(found.files["posting_rows"]).tolist() == [p["row"] for p in postings]
    assert np.load(found.files["posting_frequencies"]).tolist() == [p["frequency"] for p in postings]


def test_arrays_are_mapped_and_read_only(storage: Storage) -> None:
    mapped = opened(stored(storage, TEXTS))
    for array in (mapped.posting_rows, mapped.posting_frequencies, mapped.lengths):
        assert isinstance(array.base, np.memmap) or isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


def test_the_vocabulary_is_a_sequence(storage: Storage) -> None:
    terms = opened(stored(storage, TEXTS)).terms
    assert len(terms) == 9
    assert (terms[0], terms[8], terms[-1]) == ("breaks", "本語", "本語")
    assert list(terms[1:3]) == ["grease", "lever"]
    assert list(terms[::-4]) == ["本語", "the", "breaks"]
    assert "pad" in terms and "pads" not in terms
    with pytest.raises(IndexError):
        terms[9]


WORDS = st.sampled_from(["pad", "lever", "the", "E-214", "Äpfel", "日本語", "x", "🚲", "ﬁne", "\U00010400"])
CORPUS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=8)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=CORPUS, query=st.lists(WORDS, max_size=5).map(" ".join), k1=st.floats(0, 3), b=st.floats(0, 1))
def test_scores_are_those_of_memory(
    storage: Storage, texts: list[str], query: str, k1: float, b: float
) -> None:
    scorer = BM25(texts, k1=k1, b=b)
    mapped = opened(write_statistics(storage, scorer.statistics), k1, b)
    tokens = scorer.tokenizer(query)
    assert np.array_equal(score(mapped, tokens), scorer.scores(query)), "bit for bit"
    rows, scores = candidates(mapped, tokens)
    assert np.array_equal(rows, np.flatnonzero(scorer.scores(query) > 0))
    assert np.array_equal(scores, scorer.scores(query)[rows])


@pytest.mark.parametrize("texts", [[], ["", "", ""]], ids=["no texts", "texts without a token"])
def test_a_corpus_without_a_term(storage: Storage, texts: list[str]) -> None:
    mapped = opened(stored(storage, texts))
    assert len(mapped.terms) == 0
    assert mapped.average_length == 0
    assert score(mapped, ["pad"]).tolist() == [0.0] * len(texts)


def test_the_version_is_of_content_and_parameters(storage: Storage, tmp_path: Path) -> None:
    first = stored(storage, TEXTS)
    again = stored(Storage.create(tmp_path / "other"), TEXTS)
    assert again.data_version == first.data_version
    versions = {
        first.data_version,
        stored(storage, TEXTS, k1=1.3).data_version,
        stored(storage, TEXTS, b=0.7).data_version,
        stored(storage, TEXTS[::-1]).data_version,
        stored(storage, [*TEXTS, ""]).data_version,
    }
    assert len(versions) == 5


@pytest.mark.parametrize("role", ["terms", "posting_rows", "posting_frequencies", "length_array"])
def test_a_file_that_is_missing(storage: Storage, role: str) -> None:
    found = stored(storage, TEXTS)
    found.files[role].unlink()
    with pytest.raises(OSError, match=found.files[role].name):
        opened(found)
