"""Finding 063: If a request is preempted while it loads, and the load fails, the load counts as a success."""

from __future__ import annotations

from typing import Any

from kvgate.findings.engine_state import is_of_the_scheduler
from kvgate.findings.failed_load import (
    COMPUTED,
    ENDED,
    counts_after_failed_load,
    left_by_failed_load,
    others_end,
)
from kvgate.findings.finding import Acts, Engine, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import FAILED_LATE


def _is_answered(divergence: Divergence, engine: Engine) -> bool:
    """A request that was preempted takes, or ends with, an answer that follows from its failed load."""
    found = divergence.difference
    if not is_of_the_scheduler(divergence):
        return False
    unfounded = {number: tokens for number, tokens in engine.unfounded.items() if number not in engine.set_back}
    if found.subject == ENDED:
        return others_end(found, unfounded)
    books = COMPUTED.fullmatch(found.subject)
    ours = engine.lockstep.population.alive.get(int(books[1])) if books else None
    if ours is None or ours.number not in unfounded:
        return False
    answers = range(1, len(unfounded[ours.number]) + 1)
    return found.got in [str((ours.tokens_computed, len(ours.tokens) + more, False)) for more in answers]


def _is_late(divergence: Divergence, engine: Any) -> bool:
    """The request had no blocks any more when the scheduler took the report."""
    shown = left_by_failed_load(divergence, engine) or counts_after_failed_load(divergence, engine)
    return shown is not None and shown.failure.is_late and engine.stage.asynchronous


FINDING = Finding(
    id="063-load-fails-after-a-preemption",
    rank=63,
    statement="KV-MEM-01",
    condition="asynchronous steps, a connector, and a failed load whose request gave up its blocks before",
    on=lambda stage: stage.asynchronous and stage.connector,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == FAILED_LATE),
    explains_engine=_is_answered,
    explains_tiers=_is_late,
)
