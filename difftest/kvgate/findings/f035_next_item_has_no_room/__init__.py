"""Finding 035: The last tokens of an item wait for the next item, for which only their end would make room."""

from __future__ import annotations

from kvgate.findings.engine_state import items_at_a_border, without_progress
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _waits_for_the_next(divergence: Divergence, engine: Engine) -> bool:
    """One of those without progress has no room for an item that the draft layer reads too early."""
    return any(_ends_in_an_item(engine, number) for number in without_progress(divergence, engine))


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
