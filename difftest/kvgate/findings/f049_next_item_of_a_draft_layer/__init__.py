"""Finding 049: An item that a step's draft layer alone reads is not computed in that step."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _was_passed_over(divergence: Divergence, engine: Engine) -> bool:
    """Every missing item begins after the tokens of its step, and there was room for it."""
    encoder = engine.encoder
    return divergence.detector == "encoder" and bool(encoder.missing) and encoder.missing <= encoder.passed_over


FINDING = Finding(
    id="049-next-item-of-a-draft-layer",
    rank=49,
    statement="KV-MEM-01",
    condition="a draft layer, and a step that ends at the token before an item",
    where=lambda settings: settings.lookahead_tokens > 0,
    on=lambda stage: stage.encoder_budget is not None,
    goes_on=True,
    explains_engine=_was_passed_over,
)
