"""Which request of an engine with a second tier waits for what: other requests, blocks, and jobs of the connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kvgate.findings.tier_state import block_tables, has_loaded, lacks_blocks
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.tiers.memory import Job
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor


def wait_for(engine: Any) -> WaitFor:
    """The wait-for graph of a ``TierEngine`` that makes no progress."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    standing = tuple(
        f"request {number_in(name)} is {each.status.name}, {each.num_computed_tokens} of {each.num_tokens} tokens "
        f"computed, holds {_held(engine, name)} blocks"
        for name, each in engine.requests.items()
    )
    return WaitFor(tuple(_edges(engine)), pool.get_num_free_blocks(), standing)


def _edges(engine: Any) -> Iterator[Wait]:
    first_rejected: int | None = None
    scheduler, waiting = engine.scheduler, []
    for queue in ("kv_holding_waiting", "skipped_waiting", "waiting"):
        waiting += [each for each in getattr(scheduler, queue, ()) if each not in waiting]
    for request in (*scheduler.running, *waiting):
        number, jobs = number_in(request.request_id), list(_awaited(engine, request))
        if jobs:
            yield from (_for(number, Reason.TRANSFER, job, engine) for job in jobs)
        elif request not in scheduler.running and len(scheduler.running) >= engine.stage.running_max:
            yield from (Wait(number, Reason.PLACE, number_in(each.request_id)) for each in scheduler.running)
        elif lacks_blocks(engine, request):
            first_rejected = number if first_rejected is None else first_rejected
            yield from _holders(engine, request.request_id)
        elif first_rejected is not None:
            yield Wait(number, Reason.LINE, first_rejected)
        else:
            yield Wait(number, Reason.NO_REQUEST)


def _for(number: int, reason: Reason, job: Job, engine: Any, blocks: int = 0) -> Wait:
    return Wait(number, reason, blocks=blocks, lost=job.number in engine.memory.lost, job=job.words)


def _awaited(engine: Any, request: Any) -> Iterator[Job]:
    """The jobs under way that a request waits for: its load, or those of what it asked the connector for."""
    name, jobs = request.request_id, engine.memory.jobs.values()
    if request.status.name == "WAITING_FOR_REMOTE_KVS":
        yield from (each for each in jobs if each.loads and each.request == name and not has_loaded(engine, request))
    elif name in engine.connector.undecided:
        prefixes = set(engine.memory.tokens[name])
        names = engine.memory.names
        for job in jobs:
            if job.request == name or any(names.get(block_hash) in prefixes for block_hash, _ in job.keys.values()):
                yield job


def _holders(engine: Any, name: str) -> Iterable[Wait]:
    """The other requests that hold blocks, and the jobs that use blocks of no request that is alive."""
    number, tables = number_in(name), block_tables(engine)
    others = [(other, _held(engine, other)) for other in engine.requests if other != name]
    edges = [Wait(number, Reason.BLOCKS, number_in(other), blocks) for other, blocks in others if blocks]
    held = {block.block_id for table in tables for other in engine.requests for block in table.get(other, ())}
    for job in engine.memory.jobs.values():
        used = {copy.block for copy in job.copies} - held
        if used:
            edges.append(_for(number, Reason.BLOCKS, job, engine, len(used)))
    return edges or [Wait(number, Reason.NO_REQUEST)]


def _held(engine: Any, name: str) -> int:
    return sum(not block.is_null for table in block_tables(engine) for block in table.get(name, ()))
