"""Finding 001: A list grows by every allocated block and is never emptied."""

from __future__ import annotations

import re

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.attention import Kind


def _new_block_ids_grow(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Only the list that is never emptied, with every block that a full group was given; any other growth is new."""
    groups = lockstep.system.population.settings.geometry.groups
    place = re.fullmatch(r".*\.single_type_managers\[(\d+)\]\.new_block_ids", divergence.difference.subject)
    if place is None or groups[int(place[1])].kind is not Kind.FULL:
        return False
    return lockstep.reference is None or divergence.difference.got == str(lockstep.given[int(place[1])])


FINDING = Finding(
    id="001-new-block-ids-never-drained",
    rank=1,
    statement="KV-LEAK-02",
    condition="a group of full attention that was given more blocks than there are",
    where=lambda settings: not settings.geometry.keeps_states,
    explains=_new_block_ids_grow,
)
