"""Finding 014: Of several groups of full attention only the first is cut to the hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvgate.findings.finding import Acts, Engine, Finding
from kvgate.findings.past_load import TablesPastLoad, miscounted
from kvgate.kernel.difference import Divergence
from kvreference.answers import BlockTable
from kvreference.geometry import Group
from kvreference.hit_lookup import tables_found
from kvreference.rules import Delta
from kvreference.settings import Settings


def _kinds_of_full_attention(settings: Settings) -> list[Group]:
    return list(dict.fromkeys(group for group in settings.geometry.groups if group.keeps_all))


def _acts(settings: Settings, _release: str) -> Acts:
    geometry, kinds = settings.geometry, _kinds_of_full_attention(settings)

    def second_uncut(
        tables_found: Callable[..., BlockTable], found: Sequence[Any], hit_tokens: int, tokens: int
    ) -> BlockTable:
        """Of several kinds of full attention only the first is cut to the hit; the others keep what they had found."""
        tables, reached = list(tables_found(found, hit_tokens, tokens)), tokens - 1
        for kind in kinds:
            alike = [each for each in found if each.group == kind]
            # The look-ahead block after the reached tokens is looked up, and dropped.
            more = kind.block_size_tokens if kind.lookahead else 0
            leading = max(0, min(_leading(each, min(reached + more, tokens - 1)) for each in alike) - more)
            reached = leading // geometry.alignment_tokens * geometry.alignment_tokens
            for each in alike if kind != kinds[0] else ():
                tables[each.index] = tuple(each.blocks[: reached // kind.block_size_tokens])
        return tuple(tables)

    return Acts([Delta(tables_found.__name__, second_uncut)], follow=TablesPastLoad(geometry).deltas())


def _leading(found: Any, tokens: int) -> int:
    """How many leading tokens are cached in a group, of ``tokens`` at most."""
    size: int = found.group.block_size_tokens
    return next((index for index in range(tokens // size) if found.blocks[index] is None), tokens // size) * size


def _reset_unfollowed(divergence: Divergence, engine: Engine) -> bool:
    """Without a reference: no request holds a block, and more blocks are said to be free than there are."""
    seen, difference = engine.followed.snapshot(), divergence.difference
    fails = difference.statement == "KV-SYS-01" and "Failed to reset KV cache" in difference.got
    all_queued = len(seen.free) == engine.settings.blocks - 1
    return engine.lockstep.reference is None and fails and all_queued and seen.blocks_free > len(seen.free)


FINDING = Finding(
    id="014-second-full-group-not-cut",
    rank=13,
    statement="KV-OP-02",
    condition="two kinds of groups of full attention, and a hit shorter than what one of them has cached",
    where=lambda settings: len(_kinds_of_full_attention(settings)) > 1,
    acts=_acts,
    explains=miscounted,
    explains_engine=_reset_unfollowed,
    holds=lambda ideal, answered, *_arguments: sum(map(len, answered)) > sum(map(len, ideal)),
)
