"""What vLLM 0.20.2's scheduler is known to do wrong, by the marks that it leaves.

vLLM caches blocks when it schedules the step that is to write them. If the step then leaves them out, they stay cached,
and whoever hits them reads what was never written. And it gives up blocks that a step in flight still writes, which
then are written twice. Ghost memory marks such blocks with why they do not hold what they should, until they are
written anew. A read of a block is explained by its mark alone; any other read, and any other difference, stays a
divergence, but for what is declared of the block manager.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kvgate.declared import explain as explain_manager
from kvgate.difference import Divergence
from kvgate.scheduling.case import Stage
from kvgate.scheduling.engine import Engine
from kvgate.scheduling.flight import FAILED, LATE, PREEMPTED

_READ = re.compile(r"token \d+ in block (\d+): ", re.DOTALL)


def explain(divergence: Divergence, engine: Engine) -> str | None:
    """The id of what explains ``divergence``, or None. ``engine`` stands where it diverged."""
    why = _mark(divergence, engine)
    marked = (known for known, (mark, holds) in MARKS.items() if why == mark and holds(engine.stage))
    return next(marked, None) or explain_manager(divergence, engine.lockstep)


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
