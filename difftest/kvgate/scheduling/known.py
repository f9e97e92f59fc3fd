"""What vLLM 0.20.2's scheduler is known to do wrong, by the marks that it leaves.

vLLM caches blocks when it schedules the step that is to write them. If the step then leaves them out, they stay cached,
and whoever hits them reads what was never written. And it gives up blocks that a step in flight still writes, which
then are written twice. Ghost memory marks such blocks with why they do not hold what they should, until they are
written anew. A read of a block is explained by its mark alone, and a hang by who holds the blocks; any other read, and
any other difference, stays a divergence, but for what is declared of the block manager.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kvgate.declared import explain as explain_manager
from kvgate.difference import Divergence
from kvgate.scheduling.case import Stage
from kvgate.scheduling.engine import Engine
from kvgate.scheduling.flight import FAILED, LATE, PREEMPTED
from kvgate.scheduling.waiting import Reason
from kvreference.population import Status

_READ = re.compile(r"token \d+ in block (\d+): ", re.DOTALL)


def explain(divergence: Divergence, engine: Engine) -> str | None:
    """The id of what explains ``divergence``, or None. ``engine`` stands where it diverged."""
    why = _mark(divergence, engine)
    marked = (known for known, (mark, holds) in MARKS.items() if why == mark and holds(engine.stage))
    if divergence.detector == "progress" and _only_parked_hold(engine):
        return "parked-loads-leave-no-room"
    return next(marked, None) or explain_manager(divergence, engine.lockstep)


def _only_parked_hold(engine: Engine) -> bool:
    """Whether nobody runs, and whoever was refused blocks waits for those who load, or have loaded, and wait as well.

    vLLM begins loads that together leave too little to compute the rest (vllm-project/vllm#45388, #57104), and nobody
    takes blocks from whoever waits.
    """
    waiting, alive = engine.progress.waiting, engine.followed.population.alive
    if waiting is None or not engine.stage.connector:
        return False
    holders = {edge.holder for edge in waiting.edges if edge.reason is Reason.BLOCKS}
    parked = {number for number, request in alive.items() if request.status in (Status.LOADING, Status.WAITING)}
    runs = any(request.status is Status.RUNNING for request in alive.values())
    return bool(holders) and holders <= parked and not runs and not engine.nodes.under_way()


def _mark(divergence: Divergence, engine: Engine) -> str | None:
    """Why the block was not written that was read in vain, if that is what was found."""
    found = divergence.difference
    read = _READ.match(found.expected)
    if divergence.detector != "ghost" or found.statement != "KV-MEM-01" or read is None:
        return None
    return engine.memory.marks.get(int(read[1]))


MARKS: Mapping[str, tuple[str, Callable[[Stage], bool]]] = {
    # By priority, whoever was scheduled in a step may be preempted in the same step.
    "preempted-in-its-step-stays-cached": (PREEMPTED, lambda stage: stage.by_priority),
    # What is to be computed again stays cached meanwhile, and for good if the request ends before.
    # vllm-project/vllm#45357: another node may be faster than the step.
    "given-up-while-in-flight": (LATE, lambda stage: stage.asynchronous and stage.connector),
    "behind-a-failed-load-stays-cached": (FAILED, lambda stage: stage.connector and not stage.failed_loads_end),
}
"""Id to the mark, and on which stages vLLM leaves it."""
