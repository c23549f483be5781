"""Dagster's entry point: the definitions of the settings in force."""

import dagster as dg

from rag_pipeline.defs.factory import build_definitions
from rag_pipeline.settings import Settings


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions, built from `rag_pipeline.toml` and the environment."""
    return build_definitions(Settings.load())
