"""The gate as blocking asset checks on the evaluation: one computation, a result for each gate.

They are check specs of the evaluation asset, so they cannot be deselected. A gate that only warns is declared
non-blocking; one that may do either (failed documents) is blocking, and a mere warning passes it on.
"""

from __future__ import annotations

import dagster as dg

from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.gates import GATES, GateResult, Severity
from rag_pipeline.evaluation.stages import Assessment


def build_check_specs(asset: dg.AssetKey, config: GateConfig) -> list[dg.AssetCheckSpec]:
    """Return a check spec for each declared gate, its description saying what it holds and what to do."""
    return [
        dg.AssetCheckSpec(
            gate.name,
            asset=asset,
            blocking=gate.blocking,
            description=f"{gate.description} When it fails: {gate.advice}",
        )
        for gate in GATES.values()
    ]


def check_results(assessment: Assessment) -> list[dg.AssetCheckResult]:
    """Return the result of each gate's check."""
    return [_check_result(result) for result in assessment.decision.results]


def _check_result(result: GateResult) -> dg.AssetCheckResult:
    metadata: dict[str, dg.MetadataValue] = {"decision": dg.MetadataValue.text(result.message)}
    if result.value is not None:
        metadata["value"] = dg.MetadataValue.float(float(result.value))
    if result.limit is not None:
        metadata["limit"] = dg.MetadataValue.float(float(result.limit))
    if not result.passed:
        metadata["what to do"] = dg.MetadataValue.text(result.advice)
    blocks = result.blocks or (result.passed and result.severity is Severity.ERROR)
    return dg.AssetCheckResult(
        check_name=result.name,
        passed=result.passed,
        severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
        description=result.message if result.passed else f"{result.message} {result.advice}",
        metadata=metadata,
    )
