"""The memo: results of work that is per document or per text, by version and sha256 of its input.

One SQLite file in the storage root. A namespace names the kind of work and its version (an extractor's name and
version, an encoder's fingerprint), a key the sha256 of the input. Whoever asks for a result whose version or
input changed misses, and does the work anew; nothing is ever invalid.
"""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rag_pipeline.core.errors import StorageError

_BATCH = 500
# Bytes that SQLite asks for at once, and more.
_LEAST_SPACE = 2**20


class Memo:
    """A persistent map (namespace, key) -> bytes. Values are compressed; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._errors():
            self._connection = sqlite3.connect(path, timeout=60.0, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            # A purged text must not stay readable in the file's free pages.
            self._connection.execute("PRAGMA secure_delete=ON")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS entries (namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, "
                "PRIMARY KEY (namespace, key))"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(f"{self._path}: {error}: {self._advice(error)}") from error
        except (sqlite3.DatabaseError, zlib.error) as error:
            raise StorageError(
                f"{self._path}: {error}: the memo is damaged; delete it (its work is then done again)"
            ) from error

    def _advice(self, error: sqlite3.OperationalError) -> str:
        name = error.sqlite_errorname
        if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and self._disk_is_full()):
            return "the disk is full: free some space and run again"
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return "it cannot be written: set storage.root to a writable folder"
        return "the memo cannot be used; it may be deleted, at the cost of doing its work again"

    def _disk_is_full(self) -> bool:
        # SQLite tells a full disk by its name only where it writes the file itself, not beside it.
        return shutil.disk_usage(self._path.parent).free < _LEAST_SPACE

    def get_many(self, namespace: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values known for these keys; a missing key is absent from the result."""
        found: dict[str, bytes] = {}
        with self._errors():
            for at in range(0, len(keys), _BATCH):
                some = keys[at : at + _BATCH]
                marks = ",".join("?" * len(some))
                for key, value in self._connection.execute(
                    f"SELECT key, value FROM entries WHERE namespace = ? AND key IN ({marks})",
                    (namespace, *some),
                ):
                    found[key] = zlib.decompress(value)
        return found

    def get(self, namespace: str, key: str) -> bytes | None:
        """Return one value, or None where it is not known."""
        return self.get_many(namespace, [key]).get(key)

    def has(self, key: str) -> bool:
        """Return whether any namespace knows this key."""
        with self._errors():
            row = self._connection.execute("SELECT 1 FROM entries WHERE key = ? LIMIT 1", (key,)).fetchone()
        return row is not None

    def items(self, namespace_prefix: str = "") -> Iterator[tuple[str, str, bytes]]:
        """Yield (namespace, key, value) of every entry of the namespaces with this prefix, one at a time."""
        with self._errors():
            found = self._connection.execute(
                "SELECT namespace, key, value FROM entries WHERE substr(namespace, 1, ?) = ?",
                (len(namespace_prefix), namespace_prefix),
            )
            for namespace, key, value in found:
                yield namespace, key, zlib.decompress(value)

    def put_many(self, namespace: str, items: Iterable[tuple[str, bytes]]) -> None:
        """Remember values, in one transaction: all of them or none."""
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
                    ((namespace, key, zlib.compress(value, 1)) for key, value in items),
                )
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def put(self, namespace: str, key: str, value: bytes) -> None:
        """Remember one value."""
        self.put_many(namespace, [(key, value)])

    def delete(self, keys: Iterable[str], namespace_prefix: str = "") -> int:
        """Forget these keys in every namespace that starts with the prefix; return how many entries went.

        The freed pages are overwritten and the file is rewritten, so that nothing of them stays readable.
        """
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            gone = self._connection.executemany(
                "DELETE FROM entries WHERE key = ? AND substr(namespace, 1, ?) = ?",
                [(key, len(namespace_prefix), namespace_prefix) for key in keys],
            ).rowcount
            self._connection.execute("COMMIT")
            if gone > 0:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return max(0, gone)

    def count(self, namespace_prefix: str = "") -> int:
        """Return how many entries the namespaces with this prefix hold."""
        with self._errors():
            row = self._connection.execute(
                "SELECT count(*) FROM entries WHERE substr(namespace, 1, ?) = ?",
                (len(namespace_prefix), namespace_prefix),
            ).fetchone()
        return int(row[0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Memo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
