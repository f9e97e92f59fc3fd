"""Finding 036: With a draft layer, the hit of states is longer than the blocks of attention that were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.in_turn import Longest, satisfied, without_look_ahead
from kvgate.findings.read_in_prefix import is_in
from kvgate.monitors.slot_memory import Misread
from kvreference.answers import BlockTable
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_length, tables_found
from kvreference.rules import Delta
from kvreference.settings import Settings


class _LookUp:
    """Attention drops its look-ahead block; the states may end one block later, drop none, and decide the hit."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.reached = 0
        """How many tokens of the hit that is looked up attention has."""
        self.unwritten: set[tuple[Prefix, int]] = set()
        """The prefix of each hit of which attention has less, and how many tokens it has."""

    def length(
        self, longest: Longest, found: Sequence[Any], lengths: range, tokens: int, partial_hit_tokens_min: int
    ) -> int:
        states = [without_look_ahead(each) for each in found if each.group.keeps_states]
        attention = [each for each in found if not each.group.keeps_states]
        reached = longest(attention, lengths, tokens, partial_hit_tokens_min)
        self.reached, most = reached, min(reached - lengths.step, lengths.start)
        return longest(states, range(most, lengths.stop, lengths.step), tokens, partial_hit_tokens_min)

    def tables(
        self, tables_found: Callable[..., BlockTable], found: Sequence[Any], hit_tokens: int, tokens: int
    ) -> BlockTable:
        tables, reached = list(tables_found(found, hit_tokens, tokens)), min(hit_tokens, self.reached)
        for each in found:
            if not each.group.keeps_states:
                tables[each.index] = tuple(each.blocks[: reached // each.group.block_size_tokens])
        if reached < hit_tokens:
            self.unwritten.add((found[0].prefixes[hit_tokens // self.geometry.grain_tokens - 1], reached))
        return tuple(tables)

    def misread(self, misread: Misread) -> bool:
        """What is read lies in a hit, after the blocks that attention had."""
        attention = not self.geometry.groups[misread.reader.group].keeps_states
        return attention and any(
            reached < len(misread.wanted) - 1 and is_in(prefix, misread.wanted) for prefix, reached in self.unwritten
        )


def _acts(settings: Settings, _release: str) -> Acts:
    look_up = _LookUp(settings.geometry)
    deltas = [Delta(longest_length.__name__, look_up.length), Delta(tables_found.__name__, look_up.tables)]
    return Acts(deltas, misreads=look_up.misread)


def _where(settings: Settings) -> bool:
    """Whether there are two kinds: full attention with look-ahead, and states."""
    kinds = set(settings.geometry.groups)
    attention = [kind for kind in kinds if kind.keeps_all and kind.lookahead]
    states = [kind for kind in kinds if kind.keeps_states]
    return len(kinds) == 2 and len(attention) == len(states) == 1 and not any(kind.copies for kind in kinds)


def _holds(ideal: Any, answered: Any, *asked: Any) -> bool:
    """A longer hit; and for it fewer blocks of attention than its length has."""
    if isinstance(answered, int):
        return answered > int(ideal) == satisfied(*asked)
    return sum(map(len, answered)) < sum(map(len, ideal))


FINDING = Finding(
    id="036-states-hit-past-attention",
    rank=36,
    statement="KV-OP-01",
    condition="full attention with look-ahead and states, and a hit that ends where attention has no look-ahead block",
    where=_where,
    acts=_acts,
    holds=_holds,
)
