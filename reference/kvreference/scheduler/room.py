"""Whether every admitted request can get to its end.

Blocks of a request that runs can be taken back: it is preempted. Blocks of a request that holds them without running
cannot: it loads, or has loaded and waits its turn, or has ended and is still read by another node. Such blocks are
locked.

So there is room as long as each admitted request fits, from here to its end, into what the locked blocks of the others
leave. Then one of them can always continue, if need be with all others preempted; when it has ended, the next can.

One formula says how much a request needs, both when it is submitted and when it is admitted. If the two disagreed, a
request could be accepted that is never admitted, and all later requests would wait in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kvreference.settings import Settings
from kvreference.tables import Tables


def blocks_to_run(settings: Settings, tokens: int) -> int:
    """A bound on the blocks that a request of up to ``tokens`` computed tokens holds at once, speculation included.

    The admission gate (``kvreference.admission``) counts the same for a request as it stands, and never more. To
    continue, it also needs the slots of one speculative step, drafts and look-ahead. Where a hit may end inside a
    block, it needs the block that the copy reads.
    """
    computed = min(tokens + settings.drafts_max, settings.tokens_max)
    slots = min(computed + settings.lookahead_tokens, settings.tokens_max)
    span = settings.chunk_tokens + settings.lookahead_tokens
    return sum(
        min(group.entries(computed, slots), group.blocks_held_at_most(span, settings.tokens_max)) + group.copies
        for group in settings.geometry.groups
    )


def blocks_parked(tables: Mapping[int, Tables], running: Collection[int]) -> dict[int, int]:
    """How many blocks each request holds that does not run."""
    return {
        number: sum(len(table.live()) for table in groups) for number, groups in tables.items() if number not in running
    }


def is_room(blocks: int, needed: Mapping[int, int], parked: Mapping[int, int]) -> bool:
    """Whether ``blocks`` hold all that each request has ``needed``, in addition to what the others have ``parked``."""
    total = sum(parked.values())
    return all(need + total - parked.get(number, 0) <= blocks for number, need in needed.items())
