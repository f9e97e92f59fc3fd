"""Finding 050: After a failed load, an item that was loaded has no room, for a later one is kept."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Status


def _keeps_a_later_one(divergence: Divergence, engine: Engine) -> bool:
    """All that run have no room for an item, and one of them is set back into one and keeps what comes later."""
    if divergence.detector != "progress":
        return False
    alive, cut = engine.followed.population.alive, engine.encoder.cut
    running = {number for number, request in alive.items() if request.status is Status.RUNNING}
    return bool(running) and running <= cut.keys() and any(_is_set_back(engine, number) for number in running)


def _is_set_back(engine: Engine, number: int) -> bool:
    """Whether a request needs an item that a load was to spare it, and keeps too much of later ones."""
    request, encoder = engine.followed.population[number], engine.encoder
    needed, kept = encoder.cut[number], encoder.kept.of(number)
    (length,) = (item.length_tokens for item in request.keys.media if item.offset_tokens == needed)
    later = {item.identifier: item.length_tokens for item in request.keys.media if item.offset_tokens > needed}
    stays = sum(size for identifier, size in later.items() if identifier in kept)
    stands = needed <= request.tokens_computed < needed + length
    return number in encoder.anew and stands and length + stays > encoder.kept.size


FINDING = Finding(
    id="050-later-item-after-a-failed-load",
    rank=50,
    statement="KV-LIVE-03",
    condition="a load that fails inside an item, and a later item that leaves no room for it in the encoder's cache",
    on=lambda stage: stage is not None and stage.connector and stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_keeps_a_later_one,
)
