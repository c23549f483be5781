"""The memo: results of work that is per document or per text, by version and sha256 of its input.

One SQLite file in the storage root. A namespace names the kind of work and its version (an extractor's name and
version, an encoder's fingerprint), a key the sha256 of the input. Whoever asks for a result whose version or
input changed misses, and does the work anew; nothing is ever invalid.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rag_pipeline.core.errors import StorageError

_BATCH = 500


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
            text = str(error)
            if "full" in text:
                advice = "the disk is full: free some space and run again"
            elif "readonly" in text or "unable to open" in text:
                advice = "it cannot be written: set storage.root to a writable folder"
            else:
                advice = "the memo cannot be used; it may be deleted, at the cost of doing its work again"
            raise StorageError(f"{self._path}: {text}: {advice}") from error
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{self._path}: {error}: the memo is damaged; delete it (its work is then done again)"
            ) from error

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
        gone = 0
        with self._errors():
            for key in keys:
                gone += self._connection.execute(
                    "DELETE FROM entries WHERE key = ? AND substr(namespace, 1, ?) = ?",
                    (key, len(namespace_prefix), namespace_prefix),
                ).rowcount
            if gone:
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone

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
