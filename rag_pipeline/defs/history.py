"""What stays in Dagster's event log, and how it leaves it."""

from __future__ import annotations

import dagster as dg


def forget_quoting_runs(instance: dg.DagsterInstance, document_id: str) -> int:
    """Delete the runs whose materialisation metadata quotes text of a document; return how many went.

    Example chunks are shown in the metadata of `chunks`, and metadata stays in Dagster's event log.
    """
    runs: set[str] = set()
    for key in instance.all_asset_keys():
        if key.path[-1] != "chunks":
            continue
        cursor: str | None = None
        while True:
            page = instance.fetch_materializations(key, limit=100, cursor=cursor)
            for record in page.records:
                event = record.asset_materialization
                examples = event.metadata.get("examples") if event is not None else None
                if examples is not None and f"**{document_id}**" in str(examples.value):
                    runs.add(record.run_id)
            if not page.has_more:
                break
            cursor = page.cursor
    for run_id in runs:
        instance.delete_run(run_id)
    return len(runs)
