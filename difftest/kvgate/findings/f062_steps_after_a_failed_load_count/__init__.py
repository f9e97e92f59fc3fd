"""Finding 062: After a failed load, what steps in flight compute and are to answer still counts."""

from __future__ import annotations

import re
from typing import Any

from kvgate.findings.engine_state import is_of_the_scheduler
from kvgate.findings.failed_load import COMPUTED, counts_after_failed_load
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence

_AWAITED = re.compile(r"request (\d+) \(tokens awaited\)")


def _still_counts(divergence: Divergence, engine: Engine) -> bool:
    """A request that a failed load sets back awaits what it awaited before, or counts what later steps compute."""
    found, stage = divergence.difference, engine.stage
    if not (is_of_the_scheduler(divergence) and stage.asynchronous and stage.connector) or stage.failed_loads_end:
        return False
    if awaits := _AWAITED.fullmatch(found.subject):
        before = engine.set_back.get(int(awaits[1]))
        return before is not None and before.awaited > 0 and (found.expected, found.got) == ("0", str(before.awaited))
    if not (computes := COMPUTED.fullmatch(found.subject)):
        return False
    before, ours = engine.set_back.get(int(computes[1])), engine.lockstep.population.alive.get(int(computes[1]))
    if before is None or ours is None or before.computed_before_step <= ours.tokens_computed:
        return False
    return found.got == str((before.computed_before_step, len(ours.tokens), True))


def _later_step_counts(divergence: Divergence, engine: Any) -> bool:
    """A step that was under way when the report came counts, although it computed from what the load left."""
    shown = counts_after_failed_load(divergence, engine)
    stage = engine.stage
    return shown is not None and stage.asynchronous and not stage.failed_loads_end and not shown.failure.is_late


FINDING = Finding(
    id="062-steps-after-a-failed-load-count",
    rank=62,
    statement="KV-SYS-02",
    condition="asynchronous steps, a connector, and a load within a step that fails and is computed again",
    on=lambda stage: stage.asynchronous and stage.connector and not stage.failed_loads_end,
    explains_engine=_still_counts,
    explains_tiers=_later_step_counts,
)
