"""The memo: what was computed before, by version and input."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_pipeline.core.errors import StorageError
from rag_pipeline.core.memo import Memo


def test_values_are_found_by_namespace_and_key(tmp_path: Path) -> None:
    with Memo(tmp_path / "memo.sqlite") as memo:
        memo.put_many("v1", [(str(i), bytes([i % 256])) for i in range(1200)])
        memo.put("v2", "1", b"other")
        assert memo.get("v1", "1") == b"\x01"
        assert memo.get("v2", "1") == b"other"
        assert memo.get("v3", "1") is None
        assert len(memo.get_many("v1", [str(i) for i in range(2000)])) == 1200
    with Memo(tmp_path / "memo.sqlite") as again:
        assert again.count("v1") == 1200


def test_a_failing_batch_is_remembered_not_at_all(tmp_path: Path) -> None:
    def items() -> object:
        yield "a", b"1"
        raise RuntimeError("half way")

    with Memo(tmp_path / "memo.sqlite") as memo:
        with pytest.raises(RuntimeError):
            memo.put_many("v", items())  # type: ignore[arg-type]
        assert memo.get("v", "a") is None


def test_forgotten_values_leave_the_file(tmp_path: Path) -> None:
    import zlib

    secret = b"a text that must go, word for word"
    with Memo(tmp_path / "memo.sqlite") as memo:
        memo.put_many("extraction/1", [("x", secret), ("y", b"stays")])
        memo.put("chunks/1", "x", secret)
        assert memo.delete(["x"], "extraction/") == 1
        assert memo.get("chunks/1", "x") == secret
        assert memo.delete(["x"]) == 1
        assert memo.get("extraction/1", "y") == b"stays"
    left = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert zlib.compress(secret, 1) not in left


def test_a_damaged_memo_says_that_it_may_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "memo.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"memo\.sqlite.*damaged; delete it"):
        Memo(path)


def test_a_memo_that_cannot_be_opened_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"storage\.root"):
        Memo(tmp_path / "missing" / "memo.sqlite")
