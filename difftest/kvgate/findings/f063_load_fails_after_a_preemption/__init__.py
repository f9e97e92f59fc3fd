"""Finding 063: A load that fails of a request that has given up its blocks meanwhile counts as if it had succeeded."""

from __future__ import annotations

import re

from kvgate.findings.finding import Acts, Engine, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import FAILED_LATE
from kvreference.population import Status

_BOOKS = re.compile(r"request (\d+) \(tokens computed, tokens, whether it runs\)")
_FINISHED = re.compile(r"Finish\(request=(\d+), sends=(?:True|False)\)")


def _is_answered(divergence: Divergence, engine: Engine) -> bool:
    """A request that was preempted takes, or ends with, an answer that follows from its failed load."""
    found = divergence.difference
    if (divergence.detector, found.statement) != ("scheduler", "KV-SYS-02"):
        return False
    answered = _BOOKS.fullmatch(found.subject) or _FINISHED.fullmatch(found.got)
    number = int(answered[1]) if answered else None
    ours = None if number is None else engine.lockstep.population.alive.get(number)
    unfounded = engine.unfounded.get(number)
    if ours is None or not unfounded or number in engine.set_back or not ours.preemptions:
        return False
    if ours.status not in (Status.WAITING, Status.LOADING):
        return False
    taken = [str((ours.tokens_computed, len(ours.tokens) + more, False)) for more in range(1, len(unfounded) + 1)]
    return found.got in (*taken, f"Finish(request={number}, sends=False)", f"Finish(request={number}, sends=True)")


FINDING = Finding(
    id="063-load-fails-after-a-preemption",
    rank=63,
    statement="KV-MEM-01",
    condition="asynchronous steps, a connector, and a failed load whose request gave up its blocks before",
    on=lambda stage: stage.asynchronous and stage.connector,
    acts=lambda *_run: Acts(misreads=lambda misread: misread.mark == FAILED_LATE),
    explains_engine=_is_answered,
)
