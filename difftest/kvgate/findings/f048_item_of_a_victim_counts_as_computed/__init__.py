"""Finding 048: By priority, an item counts as computed of which the step was taken back."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _was_taken_out(divergence: Divergence, engine: Engine) -> bool:
    """Every item that is missing was to be computed last for a request that was preempted in that step."""
    encoder = engine.encoder
    missing = {item for _, item in encoder.missing}
    return divergence.detector == "encoder" and bool(missing) and missing <= encoder.never_computed


FINDING = Finding(
    id="048-item-of-a-victim-counts-as-computed",
    rank=48,
    statement="KV-MEM-01",
    condition="priorities, and a request with an item preempted in the step that was to compute the item",
    on=lambda stage: stage.by_priority and stage.encoder_budget is not None,
    explains_engine=_was_taken_out,
)
