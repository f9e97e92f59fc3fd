"""What vLLM 0.20.2's scheduler is known to do wrong, told by its mechanism: ``difftest/findings``, 020 to 024 and 030.

vLLM caches blocks when it schedules the step that is to write them. If the step then leaves them out, they stay cached,
and whoever hits them reads what was never written. And it gives up blocks that a step in flight still writes, which
then are written twice. Ghost memory marks such blocks with why they do not hold what they should, until they are
written anew. A read of a block is explained by its mark alone, and a hang by who holds the blocks; any other read, and
any other difference, stays a divergence, but for what is declared of the block manager.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kvgate.findings.declared import explain as explain_manager
from kvgate.kernel.difference import Divergence
from kvgate.levels.scheduler.case import Stage
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.known_by_slots import FINDING as KNOWN_BY_SLOTS
from kvgate.levels.scheduler.known_by_slots import known_by_slots
from kvgate.monitors.wait_graph import Reason
from kvgate.monitors.worker_memory import FAILED, LATE, PREEMPTED
from kvreference.population import Status
from kvreference.scheduler.room import blocks_to_run

_READ = re.compile(r"token \d+ in block (\d+): ", re.DOTALL)
_END_FOR_READER = re.compile(r"Finish\(request=(\d+), sends=True\)")
Explains = Callable[[Divergence, Engine], bool]


def explain(divergence: Divergence, engine: Engine) -> str | None:
    """The id of the finding that explains ``divergence``, or None. ``engine`` stands where it diverged."""
    known = next((finding for finding, explains in EXPLANATIONS.items() if explains(divergence, engine)), None)
    known = known or explain_manager(divergence, engine.lockstep)
    return known or (KNOWN_BY_SLOTS if known_by_slots(divergence, engine) else None)


# What was read


def _marked(mark: str, leaves: Callable[[Stage], bool]) -> Explains:
    """Whether what was read in vain bears a mark, on a stage on which vLLM leaves it."""

    def explains(divergence: Divergence, engine: Engine) -> bool:
        return leaves(engine.stage) and _mark(divergence, engine) == mark

    return explains


def _mark(divergence: Divergence, engine: Engine) -> str | None:
    """Why the block was not written that was read in vain, if that is what was found."""
    found = divergence.difference
    read = _READ.match(found.expected)
    if divergence.detector != "ghost" or found.statement != "KV-MEM-01" or read is None:
        return None
    return engine.memory.marks.get(int(read[1]))


# Who holds the blocks


def _parked(divergence: Divergence, engine: Engine) -> frozenset[int]:
    """Who holds the blocks that a request is refused, if all of them are parked behind it; else nobody.

    They load, or have loaded, and wait for the one that was refused, which does not fit beside them. Nobody runs, and
    every transfer is over: nobody takes blocks from whoever waits.
    """
    waiting, alive = engine.progress.waiting, engine.followed.population.alive
    if divergence.detector != "progress" or waiting is None or not engine.stage.connector:
        return frozenset()
    refused = next((edge.request for edge in waiting.edges if edge.reason is Reason.BLOCKS), None)
    runs = any(request.status is Status.RUNNING for request in alive.values())
    if refused is None or runs or engine.nodes.under_way() or _fits(engine, refused):
        return frozenset()
    holders = frozenset(
        edge.holder for edge in waiting.edges if edge.reason is Reason.BLOCKS and edge.holder is not None
    )
    behind = {edge.request for edge in waiting.edges if edge.reason is Reason.LINE and edge.holder == refused}
    parked = {number for number in behind if alive[number].status in (Status.LOADING, Status.WAITING)}
    return holders if holders <= parked else frozenset()


def _fits(engine: Engine, number: int) -> bool:
    """Whether a request can go on as it stands, with what it holds and what is free."""
    snapshot = engine.followed.snapshot()
    held = sum(block != 0 for table in snapshot.tables.get(number, ()) for block in table)
    tokens = len(engine.followed.population[number].tokens)
    return blocks_to_run(engine.settings, tokens) <= snapshot.blocks_free + held


def _parked_leave_no_room(divergence: Divergence, engine: Engine) -> bool:
    """Nobody who holds blocks can go on, whoever were asked."""
    parked = _parked(divergence, engine)
    return bool(parked) and not any(_fits(engine, number) for number in parked)


def _refused_before_whoever_loaded(divergence: Divergence, engine: Engine) -> bool:
    """Somebody who holds blocks could go on, and is not asked, for whoever stands before it is refused."""
    return any(_fits(engine, number) for number in _parked(divergence, engine))


# Who is over without its blocks


def _ends_without_its_blocks(divergence: Divergence, engine: Engine) -> bool:
    """Somebody was preempted with its last answer in flight, ends by that, and another node is to read its blocks."""
    found = divergence.difference
    end = _END_FOR_READER.fullmatch(found.got)
    if (divergence.detector, found.statement) != ("scheduler", "KV-SYS-02") or end is None:
        return False
    request = engine.followed.population.alive.get(int(end[1]))
    if request is None or not (engine.stage.asynchronous and engine.stage.connector):
        return False
    preempted = request.status is Status.WAITING and request.preemptions > 0 and request.tokens_computed == 0
    answered = len(request.tokens) > request.prompt_tokens
    return preempted and answered and not _held_by(engine, request.number)


def _held_by(engine: Engine, number: int) -> int:
    return sum(block != 0 for table in engine.followed.snapshot().tables.get(number, ()) for block in table)


EXPLANATIONS: Mapping[str, Explains] = {
    # By priority, whoever was scheduled in a step may be preempted in the same step.
    "020-preempted-in-its-step-stays-cached": _marked(PREEMPTED, lambda stage: stage.by_priority),
    # What is to be computed again stays cached meanwhile, and for good if the request ends before.
    "021-behind-a-failed-load-stays-cached": _marked(
        FAILED, lambda stage: stage.connector and not stage.failed_loads_end
    ),
    # Another node may be faster than the step.
    "022-given-up-while-in-flight": _marked(LATE, lambda stage: stage.asynchronous and stage.connector),
    "023-parked-loads-leave-no-room": _parked_leave_no_room,
    "024-refused-before-whoever-loaded": _refused_before_whoever_loaded,
    # What is in flight may be all that somebody waits for.
    "030-ends-without-its-blocks": _ends_without_its_blocks,
}
"""Finding id to the question whether it explains a divergence of an engine."""
