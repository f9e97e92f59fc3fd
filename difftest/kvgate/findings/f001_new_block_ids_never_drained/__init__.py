"""Finding 001: A list grows by every block that is given out, and nobody ever empties it."""

from __future__ import annotations

import re

from kvgate.adapters.release_variants import reference_for_release
from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Answer, Granted
from kvreference.attention import Kind


def _new_block_ids_grow(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Only the list that is never emptied, with every block that a full group was given; any other growth is new."""
    settings = lockstep.system.population.settings
    place = re.fullmatch(r".*\.single_type_managers\[(\d+)\]\.new_block_ids", divergence.difference.subject)
    if place is None or settings.geometry.groups[int(place[1])].kind is not Kind.FULL:
        return False
    if lockstep.reference is None:
        return True
    manager = reference_for_release(lockstep.system)(settings)
    answers: list[Answer] = [manager.apply(operation) for operation in lockstep.performed]
    given = sum(len(answer.blocks[int(place[1])]) for answer in answers if isinstance(answer, Granted))
    return divergence.difference.got == str(given)


FINDING = Finding(
    id="001-new-block-ids-never-drained",
    rank=1,
    explains=_new_block_ids_grow,
)
