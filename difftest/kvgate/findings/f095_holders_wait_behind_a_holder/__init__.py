"""Finding 095: A rejected request that holds blocks ends the scan, although a later one that has loaded could run."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import has_loaded, holders_waiting, next_step_fits
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The first of those that hold blocks lacks room for its next step; one after it has loaded, and has room."""
    holders = holders_waiting(engine)
    if divergence.difference.statement != "KV-TIER-06" or len(holders) < 2:
        return False
    first, *others = holders
    is_rejected = has_loaded(engine, first) and not next_step_fits(engine, first)
    return is_rejected and any(has_loaded(engine, each) and next_step_fits(engine, each) for each in others)


FINDING = Finding(
    id="095-holders-wait-behind-a-holder",
    rank=95,
    statement="KV-TIER-06",
    condition="a request that holds what it loaded and lacks room, before one that has loaded and could run",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
