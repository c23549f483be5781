"""Settings of the evaluation and of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MinLen
from typing_extensions import Doc


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Section `evaluation`: the question files and the depths reported."""

    questions: Annotated[
        str, Doc('JSON lines {"id", "needle", "document", "queries": [...]}; empty: no questions.')
    ] = ""
    out_of_domain: Annotated[
        str, Doc('JSON lines {"id", "query", "kind": "near" | "far"}; empty: no out-of-domain queries.')
    ] = ""
    ks: Annotated[
        tuple[Annotated[int, Ge(1)], ...], MinLen(1), Doc("Depths at which recall is reported.")
    ] = (1, 4, 8, 20)


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Section `gate`: what a build must hold to be published."""

    max_destroyed: Annotated[
        int, Ge(0), Doc("Destroyed answers allowed among needles present in the canonical text.")
    ] = 0
    max_lost_in_extraction: Annotated[int, Ge(0), Doc("Needles that extraction may lose.")] = 0
    min_recall: Annotated[
        float | None,
        Ge(0),
        Le(1),
        Doc(
            "Floor for the lower end of the 95 % interval of recall at `recall_k` in the served mode; "
            "unset: no floor."
        ),
    ] = None
    recall_k: Annotated[int, Ge(1), Doc("Depth of `min_recall`.")] = 4
    comparison_k: Annotated[int, Ge(1), Doc("Depth of the paired comparison with the published build.")] = 8
    alpha: Annotated[
        float, Gt(0), Lt(1), Doc("Level below which a loss or a rise in bluffs counts as significant.")
    ] = 0.05
    block_on_loss: Annotated[bool, Doc("Block a build that answers significantly fewer common queries.")] = (
        True
    )
    block_on_bluffs: Annotated[bool, Doc("Block a build that bluffs significantly more often.")] = True
    max_bluffs: Annotated[int | None, Ge(0), Doc("Absolute ceiling of bluffs; unset: no ceiling.")] = None
    max_vanished_share: Annotated[
        float, Ge(0), Le(1), Doc("Share of the published build's documents that may vanish.")
    ] = 0.2
    max_failed_share: Annotated[
        float, Ge(0), Le(1), Doc("Share of documents whose extraction may fail; any failure warns.")
    ] = 0.1
    require_questions: Annotated[bool, Doc("Block a build that no question file scores.")] = False
