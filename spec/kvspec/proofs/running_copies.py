"""Chapter 09: every copy of a hit gets a destination, among any number of groups.

The running allocation is run over the stand-ins of ``running_allocation``, for a group in which the hit ends inside a
block, with another group before it and another one after it. That such a group has a block to copy into is shown of the
group's own formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve

from kvreference import admission, attention, hit_lookup, holdings
from kvreference import tables as block_tables
from kvreference.answers import Hit, Partial
from kvreference.attention import Kind
from kvreference.holdings import Holdings, Span
from kvreference.manager import OWN, tokens_computed
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs import running_allocation
from kvspec.proofs.longest_hit import Blocks as FoundBlocks
from kvspec.proofs.longest_hit import Times as NoBlocks
from kvspec.proofs.running_allocation import COMPUTES, INSIDE_TOKENS, LOADS, OWNER, Calls, HitBlocks, Length, Stretch
from kvspec.proofs.running_pool import holdings_over
from kvspec.proofs.running_tables import HOLDINGS, Entries, on_lengths
from kvspec.stand_in import group
from kvspec.symbolic import either, expression_of, implies, negated

AMONG = range(3)
"""A group, with another one before it and one after it, which stand for all others."""
LOOKED = 1


class HitTokens:
    """How many tokens a hit has, of which only the whole blocks are known, in each group."""

    def __init__(self, blocks: Mapping[int, Any]) -> None:
        self.blocks = blocks

    def __floordiv__(self, group_number: int) -> Length:
        # After what is not read and the blocks that were hit.
        return Length(self.blocks[group_number], 2)


def _copies_among_others(u: Any) -> Any:
    pool, groups = Calls(u), []
    for which in AMONG:
        groups.append(running_allocation._group(u, which))
        # It stands for the tokens of a block: see ``HitTokens``.
        groups[-1].block_size_tokens = which
    held: Any = holdings_over(SimpleNamespace(pool=pool), SimpleNamespace(groups=groups))
    held.settings.tokens_max = u.longest
    lengths = {which: getattr(u, f"length{which}") for which in AMONG}
    tokens: Any = HitTokens(lengths)
    blocks: Any = tuple(map(HitBlocks, lengths.values()))
    sources: Any = {which: Stretch(1, "source") for which in (AMONG if u.others == 1 else [LOOKED])}
    hit = Hit(tokens, blocks, tuple(Partial(which, each, INSIDE_TOKENS) for which, each in sources.items()))
    with ExitStack() as stack:
        for module in (holdings, block_tables, attention, admission):
            stack.enter_context(patch.object(module, "len", running_allocation._length, create=True))
        stack.enter_context(patch.object(block_tables, "grown", running_allocation._grown))
        allocation = held.allocate(OWNER, Span(u.computed, u.tokens, provided=u.computed if u.way == LOADS else 0), hit)
    own = [copy for copy in held.copies if copy.source is sources[LOOKED]]
    if allocation is None or len(own) != 1 or len(held.copies) != len(sources):
        return False
    table, start = held.tables[OWNER][LOOKED].blocks, either(u.length1 > u.dead1, u.length1, u.dead1)
    is_own = own[0].group == LOOKED and own[0].destination is table[2] and table[2] in pool.taken
    aimed = [copy.destination for copy in held.copies]
    return (start == u.length1) & (is_own and all(aimed.count(each) == 1 and each in pool.taken for each in aimed))


def _all_end_inside(u: Any) -> Any:
    """The hit ends inside a block in the group that is looked at, and in the others if they copy, too."""
    fine: Any = True
    for which in AMONG:
        length, dead, entries, provided = (
            getattr(u, f"{name}{which}") for name in ("length", "dead", "entries", "provided")
        )
        after = ((u.way == COMPUTES) & (entries > length)) | ((u.way == LOADS) & (provided > length))
        inside = after & (dead <= length)
        fine = fine & (inside if which == LOOKED else implies(u.others == 1, inside))
    return fine & (
        u.room >= u.free + sum(getattr(u, f"{n}{which}") for n in ("entries", "provided") for which in AMONG)
    )


AIM: Callable[..., None] = Holdings._aim
FILL: Callable[..., Any] = Holdings._fill
"""How copies get their destinations, and tables their blocks, where nothing is broken."""


def _aims_before(self: Holdings, request: int) -> None:
    self.copies = [evolve(copy, destination=self.tables[request][copy.group].blocks[1]) for copy in self.copies]


COPIES_AMONG = Obligation(
    id="partial-hits.running-copies-among-groups",
    statements=("KV-INV-09", "KV-OP-19"),
    title="When a request gets its slots, each copy of its hit gets a destination: in the group in which the hit ends "
    "inside a block, among any others in which it does so or not, it is the first of the new blocks, and where the "
    "hit ends.",
    unknowns={
        **{f"{name}{which}": Count(0) for which in AMONG for name in ("length", "dead", "entries", "provided")},
        **{name: Count(0) for name in ("free", "room", "tokens")},
        **{name: Count(1) for name in ("computed", "longest")},
        "way": Count(COMPUTES, LOADS),
        "others": Count(0, 1),
    },
    assumes=_all_end_inside,
    claim=_copies_among_others,
    witnesses={
        "each of them copies": lambda u: (u.others == 1) & (u.way == COMPUTES) & (u.length1 == 3) & (u.length2 == 5),
        "what follows is loaded": lambda u: (u.others == 0) & (u.way == LOADS) & (u.length1 == 3) & (u.length2 == 5),
    },
    mutants=(
        only(
            "copied-into-the-block-before",
            "A copy goes into the last block of the hit.",
            f"{HOLDINGS}._aim",
            lambda self, request, hit: _aims_before(self, request),
        ),
        only(
            "copied-in-the-first-group",
            "Only the copies of the first group get a destination.",
            f"{HOLDINGS}._aim",
            lambda self, request, hit: AIM(self, request, hit) if self.copies[0].group == 0 else None,
        ),
        only(
            "two-groups-alone-grow",
            "Only the first group and the last get new blocks.",
            f"{HOLDINGS}._fill",
            lambda self, tables, layouts: FILL(self, tables[::2], layouts[::2]),
        ),
    ),
)


def _has_a_block(u: Any) -> Any:
    """The table of a hit that ends inside a block, and how long a table is planned for what follows."""
    one = group(Kind.FULL, u.size, compress_ratio=u.ratio, whole_slots=bool(u.whole == 1))
    found: Any = object.__new__(hit_lookup._Found)
    first, after = one.blocks_needed(u.hit)
    needed = NoBlocks(expression_of(first)), after
    found.group = SimpleNamespace(blocks_needed=lambda _hit: needed, block_size_tokens=u.size)
    found.blocks = FoundBlocks(-1, None)
    full = sum(part.places for part in found.table(u.hit))
    end = u.hit + u.provided
    computed = OWN.rules.ask(tokens_computed, end, u.prompt)
    its = SimpleNamespace(
        entries=one.entries,
        layout=lambda _blocks, entries, _fresh: entries,
        blocks_occupied=one.blocks_occupied,
        blocks_unread=one.blocks_unread,
    )
    held = holdings_over(SimpleNamespace(pool=None), SimpleNamespace(groups=(its,)))
    held.settings.tokens_max = u.longest
    (table,) = block_tables.tables_of_hit(held.settings.geometry, Hit(u.hit, ((),)), computed)
    is_read = table.blocks == [] and bool(table.dead == 0)
    table.blocks = Entries(full, {})  # type: ignore[assignment]  # it stands for one
    with on_lengths(block_tables), patch.object(block_tables, "grown", lambda _blocks, entries: entries):
        loaded = block_tables.plan_provided(held.settings.geometry, [table], end)
        planned = held._plan([table], [None], Span(computed, u.tokens, u.drafts))
    fine: Any = is_read & (full == u.hit // u.size)
    for entries in (*loaded, *planned):
        if entries is None:
            return False
        fine = fine & (entries > full)
    return fine


def _is_inside(u: Any) -> Any:
    """A hit of whole slots (chapter 08), which ends inside a block and before the last token of a prompt that fits."""
    inside = (u.hit % u.ratio == 0) & negated(u.hit % u.size == 0)
    return inside & (u.hit + u.provided <= u.prompt) & (u.hit < u.prompt) & (u.prompt <= u.longest)


HAS_A_BLOCK = Obligation(
    id="partial-hits.running-block-to-copy-into",
    statements=("KV-INV-09", "KV-OP-19", "KV-MEM-02"),
    title="Where a hit ends inside a block, which only full attention allows, compressed or not, the request's table "
    "has the full blocks of the hit, all of them read, and is to have at least one more: for what another node "
    "provides after the hit, and for what is computed, however much it is. A copy goes there.",
    unknowns={
        **{name: Count(1) for name in ("size", "ratio", "hit", "prompt", "longest")},
        **{name: Count(0) for name in ("provided", "tokens", "drafts")},
        "whole": Count(0, 1),
    },
    assumes=_is_inside,
    claim=_has_a_block,
    witnesses={
        "only whole slots are stored": lambda u: (
            (u.whole == 1) & (u.ratio == 4) & (u.size == 32) & (u.hit == 72) & (u.provided == 3)
        )
    },
    mutants=(
        only(
            "only-full-blocks",
            "A table has only the blocks that its tokens fill.",
            "kvreference.geometry:blocks_occupied",
            lambda tokens, block: tokens // block,
        ),
        only(
            "slots-are-complete-blocks",
            "Tokens are stored only in complete blocks.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: tokens - tokens % self.block_size_tokens,
        ),
    ),
)

OBLIGATIONS = (COPIES_AMONG, HAS_A_BLOCK)
