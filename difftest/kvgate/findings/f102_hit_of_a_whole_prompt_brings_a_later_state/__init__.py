"""Finding 102: A hit of a whole prompt loads the state after its last token, which is then computed once more."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A load brings the state of a block's end to a request that continues from the token before."""
    memory = engine.memory
    if divergence.difference.statement != "KV-TIER-03" or not memory.culprits:
        return False
    request = memory.culprits[0][0].request
    claim, groups = memory.claims.get(request), engine.settings.geometry.groups
    if claim is None:
        return False
    states = [index for index, group in enumerate(groups) if group.keeps_states]
    size = groups[states[0]].block_size_tokens if states else 0
    if not size or (claim.tokens + 1) % size or claim.tokens + 1 != len(memory.tokens[request]):
        return False
    named = [f"what a hit of the tier brings in group {index}" for index in states]
    later = memory.tokens[request][claim.tokens]
    held = (memory.device.get(claim.tables[index][claim.tokens // size]) for index in states)
    return divergence.difference.subject in named and (later,) in [each[1] for each in held if each]


FINDING = Finding(
    id="102-hit-of-a-whole-prompt-brings-a-later-state",
    rank=102,
    statement="KV-TIER-03",
    condition="states at block ends, and a prompt of whole blocks that the host has to its end",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
