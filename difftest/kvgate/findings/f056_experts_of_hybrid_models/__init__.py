"""Finding 056: With several groups, returning the experts of a block in the back of the pool ends the engine."""

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _out_of_bounds(divergence: Divergence, engine: Engine) -> bool:
    """A slot was asked for that the pool has, and the memory of experts has not."""
    found, experts = divergence.difference, engine.experts
    if found.subject != "IndexError" or experts is None or len(engine.settings.geometry.groups) < 2:
        return False
    return f"out of bounds for axis 0 with size {len(experts.memory)}" in found.got


FINDING = Finding(
    id="056-experts-of-hybrid-models",
    rank=56,
    statement="KV-SYS-01",
    condition="experts are returned of a model with several groups",
    where=lambda settings: len(settings.geometry.groups) > 1,
    on=lambda stage: stage.options.returns_experts,
    explains_engine=_out_of_bounds,
)
