"""Finding 013 where no reference follows: a read that bears the mark of blocks that are known by their slots.

vLLM-Ascend 0.20.2rc1 knows a compressed block by as many of the first tokens as it and those before it have slots. So
whoever shares these is served a block of somebody who goes on otherwise. What was read in vain tells: it is the state
of another prefix, at the same place, that has exactly these tokens in common.
"""

from __future__ import annotations

import re

from kvgate.findings.faults_of_ascend import slots_of
from kvgate.kernel.difference import Divergence
from kvgate.levels.scheduler.engine import Engine

FINDING = "013-compressed-block-known-by-its-slots"
_RELEASE = "ascend 0.20.2rc1"
_EXPECTED = re.compile(r"token (\d+) in block (\d+): state (\d+): ", re.DOTALL)
_WHERE = re.compile(r"request \d+, group (\d+)")


def known_by_slots(divergence: Divergence, engine: Engine) -> bool:
    """Whether what was read belongs to a prefix that shares with the right one what such a block is known by."""
    found, system = divergence.difference, engine.followed
    if system.release != _RELEASE or FINDING in system.mends() or engine.lockstep.reference is not None:
        return False
    expected, where = _EXPECTED.match(found.expected), _WHERE.fullmatch(found.subject)
    if divergence.detector != "ghost" or found.statement != "KV-MEM-01" or expected is None or where is None:
        return False
    token, block, state = map(int, expected.groups())
    group = engine.settings.geometry.groups[int(where[1])]
    held = engine.memory.slots(block)
    if group.compress_ratio == 1 or held is None or held[0] != int(where[1]):
        return False
    index, offset = divmod(token, group.block_size_tokens)
    read = held[1][offset]
    if read is None or read < 0:
        return False
    ours, theirs = (_tokens(engine, each) for each in (state, read))
    # Salt and adapter stand before the first token.
    shared = 1 + (index + 1) * slots_of(group)
    return len(ours) == len(theirs) and ours[:shared] == theirs[:shared]


def _tokens(engine: Engine, state: int) -> list[tuple[object, ...]]:
    """What a state is made of, without the numbers of the states before it."""
    return [origin[1:] for origin in engine.memory.states.history(state)]
