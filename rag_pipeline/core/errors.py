"""The package's errors: one small hierarchy, each message names the file or setting and what to do.

Callers catch `RagPipelineError` for everything this package raises on purpose. The command line maps
`SettingsError` to exit code 2, `BuildBlockedError` to 3 and the rest to 1.
"""

from __future__ import annotations


class RagPipelineError(Exception):
    """Base of every error that this package raises on purpose."""


class SettingsError(RagPipelineError):
    """A setting is unknown, malformed or out of range; the message names the key, the value, what is allowed."""


class SourceError(RagPipelineError):
    """The source folder is missing, unreadable or empty."""


class StorageError(RagPipelineError):
    """The storage root cannot be used: read-only, full, of another schema version, or damaged."""


class StorageLockedError(StorageError):
    """Another run holds the storage root; the message names the holder."""


class IndexNotFoundError(RagPipelineError):
    """There is no published index (or no such build) where one was to be opened."""


class DamagedBuildError(RagPipelineError):
    """A build's files do not agree with its manifest, or its tables with each other."""


class EncoderMismatchError(RagPipelineError):
    """The query encoder is not the one that made the index's vectors; the message names both."""


class EncoderNotFoundError(RagPipelineError):
    """The encoder named in the settings is neither a folder nor in the local model cache."""


class InconsistentInputsError(RagPipelineError):
    """Tables that would go into one build were made from different versions of their inputs."""


class GroundTruthError(RagPipelineError):
    """A question file cannot be read; the message names the file and the line."""


class BuildBlockedError(RagPipelineError):
    """The gate does not let this build be published."""


class PublicationHeldError(RagPipelineError):
    """A rollback holds publication until it is released."""


class QueryError(RagPipelineError):
    """A query or one of its parameters is out of range; the message names it."""
