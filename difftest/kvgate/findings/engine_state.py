"""What findings of the scheduler are recognised by: for hangs, which requests hold the blocks that others lack."""

from __future__ import annotations

from collections.abc import Collection

from kvgate.findings.finding import Engine
from kvgate.kernel.difference import Divergence
from kvgate.monitors.wait_graph import Reason
from kvreference.content import Media
from kvreference.population import Status
from kvreference.scheduler.room import blocks_to_run


def is_of_the_scheduler(divergence: Divergence) -> bool:
    """Whether the scheduler does not know of its requests what was done."""
    return (divergence.detector, divergence.difference.statement) == ("scheduler", "KV-SYS-02")


def holders_waiting(divergence: Divergence, engine: Engine) -> frozenset[int]:
    """The requests that hold the blocks that a rejected request lacks, if all of them wait in the queue after it.

    They have loaded, or are sessions that continue, and wait for the rejected request, which does not fit alongside
    them. No request runs and every transfer has ended, as the scheduler knows, so no blocks are taken from a waiting
    request. If any of this does not hold: none.
    """
    waiting, alive = engine.progress.waiting, engine.followed.population.alive
    if divergence.detector != "progress" or waiting is None:
        return frozenset()
    rejected = next((edge.request for edge in waiting.edges if edge.reason is Reason.BLOCKS), None)
    runs = any(request.status is Status.RUNNING for request in alive.values())
    holders = frozenset(
        edge.holder for edge in waiting.edges if edge.reason is Reason.BLOCKS and edge.holder is not None
    )
    if rejected is None or runs or _transfers(engine) or can_run(engine, rejected, _kept_for(engine, holders)):
        return frozenset()
    after = {edge.request for edge in waiting.edges if edge.reason is Reason.LINE and edge.holder == rejected}
    waiting_after = {number for number in after if alive[number].status in (Status.LOADING, Status.WAITING)}
    return holders if holders <= waiting_after else frozenset()


def _transfers(engine: Engine) -> bool:
    """Whether a transfer has not ended, or the scheduler has not recorded that the load of a request has."""
    alive, followed = engine.followed.population.alive, engine.followed
    loading = (followed.name_of(number) for number, each in alive.items() if each.status is Status.LOADING)
    recorded = (name in followed.scheduler.finished_recving_kv_req_ids for name in loading)
    return bool(engine.nodes.under_way()) or not all(recorded)


def parked_beside_one_that_cannot_end(divergence: Divergence, engine: Engine) -> bool:
    """Whether requests that have loaded and wait hold blocks without which a request that comes before them cannot end.

    It runs, and is preempted, and runs again, and what those that wait hold is never taken. With them it would fit. All
    others that make no progress are among those that wait, or wait for such a request.
    """
    alive, graph = engine.followed.population.alive, engine.progress.waiting
    if divergence.detector != "progress" or graph is None or _transfers(engine):
        return False
    held = {number: blocks_held(engine, number) for number, each in alive.items() if each.status is not Status.RUNNING}
    waiting = sum(held.values())
    lacking = {number for number in alive if not held.get(number) and fits_but_for(engine, number, waiting)}
    others = (number for number in graph.stuck() if number not in lacking and not held.get(number))
    return bool(lacking) and all(graph.reached(number) & lacking for number in others)


def fits_but_for(engine: Engine, number: int, held: int) -> bool:
    """Whether a request fits into the pool, and does not as long as so many blocks are ``held``."""
    blocks = engine.settings.blocks - 1
    tokens = len(engine.followed.population.alive[number].tokens)
    return blocks - held < blocks_to_run(engine.settings, tokens) <= blocks


def can_run(engine: Engine, number: int, kept: int = 0) -> bool:
    """Whether a request fits with the blocks that it holds and those that are free, of which some are ``kept``."""
    free: int = engine.followed.snapshot().blocks_free
    return blocks_lacking(engine, number) <= free - kept


def _kept_for(engine: Engine, holders: Collection[int]) -> int:
    """How many free blocks the scheduler kept for these requests, and not for the one that it rejected."""
    kept: int = engine.followed.kept_last
    return min(kept, sum(blocks_lacking(engine, number) for number in holders))


def blocks_lacking(engine: Engine, number: int) -> int:
    """How many blocks a request needs besides those that it holds, at most."""
    tokens = len(engine.followed.population[number].tokens)
    return max(0, blocks_to_run(engine.settings, tokens) - blocks_held(engine, number))


def blocks_held(engine: Engine, number: int) -> int:
    """How many blocks a request holds."""
    return sum(block != 0 for table in engine.followed.snapshot().tables.get(number, ()) for block in table)


def without_progress(divergence: Divergence, engine: Engine) -> set[int]:
    """The requests that ask for items and make no progress: all that run, or else all that wait; or one, if others do.

    Empty if one of these does not lack room for an item.
    """
    alive, cut = engine.followed.population.alive, engine.encoder.cut
    if divergence.detector != "progress":
        return set()
    if divergence.difference.statement == "KV-LIVE-02":
        asked = {int(divergence.difference.subject.removeprefix("request "))}
    else:
        running = {number for number, request in alive.items() if request.status is Status.RUNNING}
        asked = running or cut.keys() & alive.keys()
    return asked if asked <= cut.keys() else set()


def items_at_a_border(engine: Engine, number: int) -> tuple[Media, Media] | None:
    """The item in which a request stands, and the next one, if it could end the former but for the latter.

    The encoder has no room for the next one, which the draft layer reads together with the last token of the former.
    """
    request, encoder = engine.followed.population[number], engine.encoder
    following = encoder.cut[number]
    # What a waiting request has by a hit or a load is not computed yet.
    stands = request.tokens_computed if request.status is Status.RUNNING else following - encoder.shift
    items = {item.offset_tokens: item for item in request.keys.media}
    stood_in = (item for start, item in items.items() if start <= stands < start + item.length_tokens <= following)
    item = next(stood_in, None) if following <= stands + encoder.shift else None
    return item and (item, items[following])
