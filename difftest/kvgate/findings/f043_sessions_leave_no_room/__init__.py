"""Finding 043: Sessions that continue hold all blocks, and none of them can compute its next part."""

from __future__ import annotations

from kvgate.findings.engine_state import blocks_held, fits_but_for, holders_waiting
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.wait_graph import Reason
from kvreference.population import Status


def _sessions_wait(divergence: Divergence, engine: Engine) -> bool:
    """The blocks that a request lacks are held by sessions that wait in the queue for it.

    It waits as well; or it runs, and is preempted, and runs again, and what those that wait hold is never taken.
    Without them it would fit. Of several that run, it is the oldest, for which the others are preempted.
    """
    alive, graph = engine.followed.population.alive, engine.progress.waiting
    if divergence.difference.statement != "KV-LIVE-03" or graph is None or engine.nodes.under_way():
        return False
    running = [number for number, request in alive.items() if request.status is Status.RUNNING]
    if not running:
        holders = holders_waiting(divergence, engine)
        return bool(holders) and holders <= engine.sessions.open.keys()
    if any(edge.reason is Reason.NO_REQUEST for edge in graph.edges):
        return False
    waiting = [number for number in engine.sessions.open if number in alive and alive[number].status is Status.WAITING]
    held = sum(blocks_held(engine, number) for number in waiting)
    everything = engine.settings.blocks
    return fits_but_for(engine, running[0], held) and all(fits_but_for(engine, each, everything) for each in running)


FINDING = Finding(
    id="043-sessions-leave-no-room",
    rank=43,
    statement="KV-LIVE-03",
    condition="sessions that continue, and hold the blocks that a request before them lacks",
    on=lambda _stage: True,
    goes_on=True,
    explains_engine=_sessions_wait,
)
