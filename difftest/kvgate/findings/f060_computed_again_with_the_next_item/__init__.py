"""Finding 060: An item that is computed again for its last token leaves no room in the step for the next item."""

from __future__ import annotations

from kvgate.findings.engine_state import items_at_a_border, without_progress
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _computes_again(divergence: Divergence, engine: Engine) -> bool:
    """Each of those without progress lacks what its last item and the next one take of a step."""
    those = without_progress(divergence, engine)
    return bool(those) and all(_lacks_budget(engine, number) for number in those)


def _lacks_budget(engine: Engine, number: int) -> bool:
    """Whether the item in which a request stands is not kept, and is too long for a step together with the next."""
    items, encoder = items_at_a_border(engine, number), engine.encoder
    if items is None or items[0].identifier in encoder.kept.users or encoder.loaded(items[0]):
        return False
    fits: bool = sum(item.length_tokens for item in items) <= encoder.budget
    return not fits


FINDING = Finding(
    id="060-computed-again-with-the-next-item",
    rank=60,
    statement="KV-LIVE-03",
    condition="a draft layer, and an item to be computed again for its last token, right before another one for which "
    "the encoder's budget of a step has no room then",
    where=lambda settings: settings.geometry.lookahead_tokens > 0,
    on=lambda stage: stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_computes_again,
)
