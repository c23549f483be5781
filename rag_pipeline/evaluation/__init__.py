"""Evaluation: ground truth, metrics with intervals, verdicts, the threshold sweep, and the gate.

No generation call anywhere: a build is judged by whether the needle of each question stands whole in a
passage that a reader would be given.
"""

from __future__ import annotations

from rag_pipeline.evaluation.intervals import wilson_interval
from rag_pipeline.evaluation.significance import PairedComparison, paired_comparison, sign_test

__all__ = ["PairedComparison", "paired_comparison", "sign_test", "wilson_interval"]
