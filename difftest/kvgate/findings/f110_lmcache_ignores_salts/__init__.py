"""Finding 110: LMCache's connector gives a request what another salt stored."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A load brought the tokens of the request that reads them, which another salt has computed."""
    memory, shown = engine.memory, engine.memory.shown_by
    if divergence.difference.statement != "KV-TIER-01" or shown is None or shown.origin is not None:
        return False
    group, held = memory.device.get(shown.block, (None, ()))
    size = engine.settings.geometry.groups[shown.group].block_size_tokens
    own = memory.tokens[shown.request][shown.place * size : (shown.place + 1) * size]
    if group != shown.group or len(own) != len(held) or None in held:
        return False
    # What the request has written over it since is its own.
    others = [(slot, prefix) for slot, prefix in zip(held, own, strict=True) if slot != prefix]
    return bool(others) and all(
        memory.prefixes.origin(slot) != memory.prefixes.origin(prefix)
        and memory.prefixes.tokens(slot) == memory.prefixes.tokens(prefix)
        for slot, prefix in others
    )


FINDING = Finding(
    id="110-lmcache-ignores-salts",
    rank=110,
    statement="KV-TIER-01",
    condition="LMCache's connector, and a request whose tokens were stored by one with another cache salt",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
