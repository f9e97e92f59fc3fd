"""Finding 035: The last tokens of an item wait for the next item, for which only their end would make room."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Status


def _waits_for_the_next(divergence: Divergence, engine: Engine) -> bool:
    """All that run wait for room in the encoder's cache; of one, the draft layer reads the next item too early."""
    if divergence.detector != "progress":
        return False
    alive, encoder = engine.followed.population.alive, engine.encoder
    running = {number for number, request in alive.items() if request.status is Status.RUNNING}
    return running <= encoder.cut.keys() and any(_ends_in_an_item(engine, number) for number in running)


def _ends_in_an_item(engine: Engine, number: int) -> bool:
    """Whether a request could end the item in which it stands, but for the draft layer."""
    request, encoder = engine.followed.population[number], engine.encoder
    computed, kept = request.tokens_computed, encoder.kept.of(number)
    return encoder.cut[number] <= computed + encoder.shift and any(
        (item.identifier in kept or encoder.resets > 0)
        and item.offset_tokens <= computed < item.offset_tokens + item.length_tokens <= encoder.cut[number]
        for item in request.keys.media
    )


FINDING = Finding(
    id="035-next-item-has-no-room",
    rank=35,
    statement="KV-LIVE-03",
    condition="a draft layer, and two items of a prompt next to each other for which the encoder's cache has no room",
    where=lambda settings: settings.geometry.lookahead_tokens > 0 and settings.drafts_max > 0,
    on=lambda stage: stage is not None and stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_waits_for_the_next,
)
