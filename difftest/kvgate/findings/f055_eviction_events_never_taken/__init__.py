"""Finding 055: Without statistics, the events of reused blocks are kept for as long as the engine lives."""

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _events_grow(divergence: Divergence, engine: Engine) -> bool:
    """Only the list of events that are published with statistics, with one for each block that was reused."""
    found, residency = divergence.difference, engine.residency
    if found.subject != "manager.metrics_collector._eviction_events" or residency is None:
        return False
    return engine.stage.options.without_statistics and found.got == str(len(residency.reused))


FINDING = Finding(
    id="055-eviction-events-never-taken",
    rank=55,
    statement="KV-LEAK-02",
    condition="an engine that measures the residency of blocks, and publishes no statistics",
    on=lambda stage: stage.options.measures_residency and stage.options.without_statistics,
    explains_engine=_events_grow,
)
