"""What a run imports, imported ahead: the server that forks the tests' processes loads it once for all of them."""

import alembic.command
import matplotlib.pyplot as plt
import sentence_transformers
import transformers.models.bert.modeling_bert
from dagster._core.storage import sqlite_storage

import rag_pipeline.cli
import rag_pipeline.defs.run
import rag_pipeline.status
from rag_pipeline_tests.survival import driver

__all__ = [
    "alembic",
    "driver",
    "plt",
    "rag_pipeline",
    "sentence_transformers",
    "sqlite_storage",
    "transformers",
]
