"""Finding 075: A load is rejected permanently if the pool cannot also hold one draft step."""

from __future__ import annotations

from kvgate.findings.engine_state import blocks_lacking
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.wait_graph import Reason
from kvreference.population import Status
from kvreference.settings import Settings


def blocks_of_a_draft_step(settings: Settings) -> int:
    """How many blocks the slots of one step with all its drafts take at most, in groups without states."""
    slots = 1 + settings.drafts_max + settings.lookahead_tokens
    return sum(-(-slots // group.block_size_tokens) for group in settings.geometry.groups if not group.keeps_states)


def _kept_for_its_drafts(divergence: Divergence, engine: Engine) -> bool:
    """No block is held, and the first in line would load: it has room, but not with the blocks of a draft's step."""
    free, kept, waiting = (
        engine.followed.snapshot().blocks_free,
        blocks_of_a_draft_step(engine.settings),
        engine.progress.waiting,
    )
    hangs = (divergence.detector, divergence.difference.statement) == ("progress", "KV-LIVE-03")
    if not hangs or waiting is None or free != engine.settings.blocks - 1 or engine.followed.kept_last != kept:
        return False
    # The others wait after the first, or for their connector's answer, which is asked for when the first is admitted.
    after = {edge.request for edge in waiting.edges if edge.reason in (Reason.LINE, Reason.ANSWER)}
    alive = engine.followed.population.alive
    first = [number for number, each in alive.items() if each.status is Status.WAITING and number not in after]
    offers = [engine.nodes.offers.get(number) for number in first]
    loads = len(first) == 1 and offers[0] is not None and offers[0].loads
    return loads and free - kept < blocks_lacking(engine, first[0]) <= free


FINDING = Finding(
    id="075-load-kept-out-by-its-own-drafts",
    rank=75,
    statement="KV-LIVE-03",
    condition="drafts, an empty pool, and a request that would load and fits, but not with a draft step's blocks",
    where=lambda settings: settings.drafts_max > 0,
    on=lambda stage: stage.connector,
    goes_on=True,
    explains_engine=_kept_for_its_drafts,
)
