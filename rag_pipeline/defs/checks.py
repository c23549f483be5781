"""The gate as blocking asset checks on the evaluation: one computation, a result for each gate.

They are check specs of the evaluation asset, so they cannot be deselected. A gate that only warns is declared
non-blocking; one that may do either (failed documents) is blocking, and a mere warning passes it on.
"""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from rag_pipeline.core.errors import BuildBlockedError
from rag_pipeline.evaluation.config import GateConfig
from rag_pipeline.evaluation.gates import GATES, Gate, GateResult, Severity
from rag_pipeline.evaluation.stages import Assessment

# Gates that warn unless a setting makes them block. Without the declaration Dagster would start publication.
_BLOCKING_BY_SETTING: dict[str, Callable[[GateConfig], bool]] = {
    "questions_present": lambda config: config.require_questions,
}


def build_check_specs(asset: dg.AssetKey, config: GateConfig) -> list[dg.AssetCheckSpec]:
    """Return a check spec for each declared gate, its description saying what it holds and what to do."""
    return [
        dg.AssetCheckSpec(
            gate.name,
            asset=asset,
            blocking=_may_block(gate, config),
            description=f"{gate.description} When it fails: {gate.advice}",
        )
        for gate in GATES.values()
    ]


def _may_block(gate: Gate, config: GateConfig) -> bool:
    by_setting = _BLOCKING_BY_SETTING.get(gate.name)
    return gate.blocking or (by_setting is not None and by_setting(config))


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


def refuse_failed_checks(instance: dg.DagsterInstance, evaluation: dg.AssetKey, data_version: str) -> None:
    """Raise `BuildBlockedError` where Dagster's event log has a blocking check failed in this evaluation.

    Publication's own proof is the receipt. This looks at the other record of the same decision, for a run that
    materialises publication alone, where no check stops it. An evaluation that this log does not know (another
    Dagster home wrote it) leaves the decision to the receipt.
    """
    newest = instance.get_latest_materialization_event(evaluation)
    materialization = newest.asset_materialization if newest is not None else None
    if newest is None or materialization is None:
        return
    if (materialization.tags or {}).get("dagster/data_version") != data_version:
        return
    records = instance.get_records_for_run(
        newest.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ).records
    failed = [
        f"{check.check_name}: {check.description}"
        for record in records
        if (event := record.event_log_entry.dagster_event) is not None
        and (check := event.asset_check_evaluation_data).asset_key == evaluation
        and not check.passed
        and check.severity is dg.AssetCheckSeverity.ERROR
    ]
    if failed:
        raise BuildBlockedError(
            f"the build is blocked by checks of {evaluation.to_user_string()} that failed in run "
            f"{newest.run_id[:8]}: {'; '.join(failed)}"
        )
