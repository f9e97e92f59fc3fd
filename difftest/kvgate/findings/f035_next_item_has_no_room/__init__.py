"""Finding 035: The last tokens of an item wait for the next item, for which only their end would make room."""

from __future__ import annotations

from kvgate.findings.engine_state import items_at_a_border, without_progress
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Status


def _waits_for_the_next(divergence: Divergence, engine: Engine) -> bool:
    """Each of those without progress has no room for an item that the draft layer reads too early, or waits for one.

    It waits if its item would have room without what such requests alone keep, or if it is in the queue after a request
    that lacks room for its item.
    """
    those = without_progress(divergence, engine)
    at_border = {number for number in those if _ends_in_an_item(engine, number)}
    explained = {number for number in those if number in at_border or _has_room_without(engine, number, at_border)}
    if not at_border or explained != those:
        return False
    graph = engine.progress.waiting
    if divergence.difference.statement == "KV-LIVE-02" or graph is None:
        return True
    alive, ends_scan = engine.followed.population.alive, False
    for number in graph.stuck():
        if number in those:
            ends_scan |= alive[number].status is not Status.RUNNING
        elif number in engine.encoder.cut:
            if not _has_room_without(engine, number, at_border):
                return False
            ends_scan = True
        elif not ends_scan and not graph.reached(number) & those:
            return False
    return True


def _has_room_without(engine: Engine, number: int, others: set[int]) -> bool:
    """Whether the item that a request lacks room for would have it without what ``others`` alone keep."""
    kept, offset = engine.encoder.kept, engine.encoder.cut[number]
    released = {item for item, users in kept.users.items() if users and users <= others}
    items = engine.followed.population[number].keys.media
    length = next(item.length_tokens for item in items if item.offset_tokens == offset)
    has_room: bool = kept.needed(but=released) + length <= kept.size
    return has_room


def _ends_in_an_item(engine: Engine, number: int) -> bool:
    """Whether the cache has no room for the item in which a request stands and the next one."""
    items, kept = items_at_a_border(engine, number), engine.encoder.kept
    if items is None:
        return False
    fits: bool = max(items[0].length_tokens, kept.needed()) + items[1].length_tokens <= kept.size
    return not fits


FINDING = Finding(
    id="035-next-item-has-no-room",
    rank=35,
    statement="KV-LIVE-03",
    condition="a draft layer, and two items of a prompt next to each other for which the encoder's cache has no room",
    where=lambda settings: settings.lookahead_tokens > 0,
    on=lambda stage: stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_waits_for_the_next,
)
