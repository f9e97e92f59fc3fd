"""Finding 037: A step with fewer drafts than the one before ends the process, where states are kept at block ends."""

from __future__ import annotations

import re
from traceback import walk_tb

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.operations import Schedule

_ASSERTION = re.compile(r"AssertionError: num_required_blocks (\d+) < len\(req_blocks\) (\d+)")
_PLACE = ("MambaManager", "allocate_new_blocks")
"""The class and the method in which the assertion fails."""


def is_of_fewer_drafts(error: AssertionError) -> bool:
    """Whether it is the assertion of this finding: it failed where blocks for states are allocated."""
    frames = [frame for frame, _line in walk_tb(error.__traceback__)]
    if not frames or _ASSERTION.fullmatch(f"AssertionError: {error}") is None:
        return False
    owner = type(frames[-1].f_locals.get("self")).__name__
    return (owner, frames[-1].f_code.co_name) == _PLACE


def _one_block_too_many(divergence: Divergence, lockstep: Lockstep) -> bool:
    """A request holds a block more, of states, than the step needs: its drafts of the last step reached into it."""
    difference, reference = divergence.difference, lockstep.reference
    counts = _ASSERTION.fullmatch(difference.got)
    if difference.statement != "KV-SYS-01" or counts is None or reference is None:
        return False
    required, held = map(int, counts.groups())
    operation, all_tables = divergence.operation, reference.snapshot().tables
    tables = [
        tables[index]
        for number, tables in all_tables.items()
        if not isinstance(operation, Schedule) or operation.request == number
        for index, group in enumerate(reference.settings.geometry.groups)
        if group.attention.stops_at_block_ends
    ]
    return required == held - 1 and held in map(len, tables)


FINDING = Finding(
    id="037-fewer-drafts-end-the-process",
    rank=37,
    statement="KV-SYS-01",
    condition="states that are kept at block ends, and drafts",
    where=lambda settings: settings.drafts_max > 0 and settings.geometry.state_block_tokens is not None,
    explains=_one_block_too_many,
)
