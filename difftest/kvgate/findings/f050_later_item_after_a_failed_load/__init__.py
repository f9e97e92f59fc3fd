"""Finding 050: After a failed load, an item that was loaded has no room, for a later one is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Request, Status


def _keeps_a_later_one(divergence: Divergence, engine: Engine) -> bool:
    """All that run have no room for an item, and would if those that are set back released what comes later."""
    if divergence.detector != "progress":
        return False
    alive, encoder = engine.followed.population.alive, engine.encoder
    running = {number: request for number, request in alive.items() if request.status is Status.RUNNING}
    later = {item for number, request in running.items() if number in encoder.anew for item in _later(request, encoder)}
    if not later or not running.keys() <= encoder.cut.keys():
        return False
    room = encoder.kept.size - encoder.kept.needed(but=later)
    return all(_length(request, encoder.cut[number]) <= room for number, request in running.items())


def _later(request: Request, encoder: Any) -> Iterator[str]:
    """The items that only a request keeps, that begin after the place to which it is set back."""
    for item in request.keys.media:
        if item.offset_tokens > request.tokens_computed and encoder.kept.users.get(item.identifier) == {request.number}:
            yield item.identifier


def _length(request: Request, offset: int) -> int:
    return next(item.length_tokens for item in request.keys.media if item.offset_tokens == offset)


FINDING = Finding(
    id="050-later-item-after-a-failed-load",
    rank=50,
    statement="KV-LIVE-03",
    condition="a load that fails inside an item, and a later item that leaves no room for it in the encoder's cache",
    on=lambda stage: stage.connector and stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_keeps_a_later_one,
)
