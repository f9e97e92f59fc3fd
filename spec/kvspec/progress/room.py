"""Room: what a request holds, what it is said to need, and that this is enough whichever requests are admitted.

Groups have unknown sizes, one of each attention kind. There are two unknown requests, and all others together: what is
proved of any two holds for all, and of the others only the blocks that wait for remote KV count.
``PinnedPool.make_room`` runs over a free queue that is only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import attrs

from kvreference import attention, mamba
from kvreference.geometry import Group
from kvreference.population import Status
from kvreference.scheduler import room
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.scheduler import Scheduler
from kvspec.progress.counted import (
    Counted,
    counted,
    least,
    length_of,
    most,
    request_of,
    scheduler_of,
    settings_of,
    tables_of,
)
from kvspec.progress.promised import asked_of, held_by
from kvspec.symbolic import Term, expression_of


class WholeBlocks(Group):
    """A group in which no hit ends inside a block: no source of a copy is held."""

    copies = False


KINDS = ("full", "sliding_window", "chunked_local", "mamba", "mamba at block ends")
"""The attention kinds, with states after every block's end, and with those at chunk ends only."""


def group_of(u: Any) -> Group:
    """The group whose kind is ``u.kind``. States of drafts count only where states are kept.

    Where slots are whole, a slot holds ``u.ratio`` tokens, and one that is only begun is not stored.
    """
    kind, _, at_block_ends = KINDS[u.kind].partition(" ")
    window = u.window if kind in ("sliding_window", "chunked_local") else None
    states = {"states": "align" if at_block_ends else "all", "draft_states": u.drafts_max} if kind == "mamba" else {}
    with attrs.validators.disabled():
        stored = {"compress_ratio": u.ratio, "whole_slots": bool(u.whole)} if hasattr(u, "ratio") else {}
        return WholeBlocks(kind, u.block, window, **stored, **states)


def settings_over(u: Any, *groups: Group) -> Any:
    """Settings over ``groups``; whether a draft layer is among them is said by ``u.lookahead``."""
    return SimpleNamespace(
        geometry=SimpleNamespace(groups=groups),
        tokens_max=u.tokens_max,
        chunk_tokens=u.chunk,
        drafts_max=u.drafts_max,
        lookahead_tokens=u.drafts_max if u.lookahead else 0,
        blocks=u.blocks,
    )


def needed(u: Any, tokens: Any) -> Any:
    """The blocks that a request of up to ``tokens`` computed tokens is said to need."""
    with counted():
        blocks: Any = room.blocks_to_run(settings_over(u, group_of(u)), tokens)
        return blocks


def held(u: Any) -> Any:
    """The blocks that a request holds after an allocation: its table, without what no later token reads."""
    group = group_of(u)
    after = u.computed + u.tokens
    slots = least(after + (u.drafts_max if u.lookahead else 0), u.tokens_max)
    with counted():
        return group.entries(after, slots) - group.blocks_dead(u.computed)


def first_blocks(u: Any) -> Any:
    """The blocks that a request names after its first allocation: of its hit, for a load, and for its first chunk.

    They are what the running allocation asks for (``blocks-and-references.running-allocation``).
    """
    group = group_of(u)
    after = u.computed + u.chunk_tokens
    with counted():
        unread = group.blocks_unread(u.computed)
        hit = most(unread, u.hit // group.block_size_tokens)
        loaded = most(hit, group.blocks_occupied(u.end) if u.hit < u.end else 0)
        slots = least(after + (u.drafts_max if u.lookahead else 0), u.tokens_max)
        return most(loaded, group.entries(after, slots)) - unread


class HitStates(Counted):
    """A table of states that has nothing but a hit, and what is loaded: it is cut at its end only."""

    def __getitem__(self, which: Any) -> Any:
        return [self] if which.start is None else []


class States(Term):
    """A number of states: a tuple of one is repeated as often, if it is not negative."""

    __slots__ = ()

    def __sub__(self, other: Any) -> States:
        return States((Term(self.z3) - other).z3)

    def __rmul__(self, other: Any) -> Any:
        count = most(0, Term(self.z3))
        return (NewStates(count) if other == (None,) else Counted(count),)


class NewStates(Counted):
    """States that are taken."""


def _entries(table: Any) -> Any:
    if not isinstance(table, list):
        return length_of(table)
    return sum(each.number if isinstance(each, Counted) else 1 for each in table)


@contextmanager
def on_states() -> Iterator[None]:
    """Tables of states may be counted."""
    with patch.object(mamba, "len", _entries, create=True), patch.object(attention, "len", _entries, create=True):
        yield


def first_states(u: Any) -> Any:
    """The states that a request names after its first allocation, where they are kept at block ends only."""
    group = group_of(u)
    after = u.computed + u.chunk_tokens
    with counted(), on_states():
        unread = group.blocks_unread(u.computed)
        hit = most(unread, u.hit // group.block_size_tokens)
        loaded = most(hit, group.blocks_occupied(u.end) if u.hit < u.end else 0)
        entries = group.entries(after, after)
        return loaded - unread + (states_taken(group, loaded, entries) if entries > loaded else 0)


def states_taken(group: Group, loaded: Any, entries: Any) -> Any:
    """How many states are taken for a table that has nothing but a hit, and what is loaded."""
    if isinstance(entries, int):
        return group.layout([1] * loaded, entries, True).count(None)
    blocks, more = HitStates(loaded), States(expression_of(entries))
    layout: Any = group.layout(blocks, more, True)  # type: ignore[arg-type]  # only counted
    return sum(each.number for each in layout if isinstance(each, NewStates))


EARLIER, NEW, REST, OTHER = range(4)
"""Two admitted requests, one that asks for admission, and all others that have locked blocks."""


def finds_its_blocks(u: Any) -> Any:
    """Whether the first request gets the blocks that it wants, with all later ones preempted. It holds some already. Of
    all others, only their locked blocks are left.
    """
    is_room = room.is_room(u.blocks, {OTHER: u.needed}, {OTHER: 0, REST: u.parked})
    return not is_room or u.wanted - u.held <= u.blocks - u.parked - u.held


def line_with_another(u: Any) -> Scheduler:
    """A request that runs or waits with its blocks, and one that is admitted if there is room. One more was admitted
    before both, and needs nothing.

    A request is assumed to need as many blocks as it has tokens: any other need would also be a number that grows with
    them.
    """
    status = Status.RUNNING if u.other_runs else Status.WAITING
    other, new = request_of(OTHER, 1, status=status), request_of(NEW, u.tokens)
    terms = {
        EARLIER: Terms(1, entered=True),
        OTHER: Terms(u.other_needed + 1, entered=True),
        NEW: Terms(u.needed + 1, u.external, bool(u.parks), entered=bool(u.entered)),
    }
    made = scheduler_of(settings_of(u.blocks + 1), None, [other, new], terms)
    made.manager.tables.update(tables_of({OTHER: u.other_held, NEW: u.held, REST: u.rest}))
    made.queues.terms = Uncounted(made.queues.terms)
    vars(made)["_blocks_to_run"] = lambda tokens: tokens
    return made


class Uncounted(dict[int, Terms]):
    """Terms of requests, of which the code may not ask how many there are."""

    def __len__(self) -> int:
        raise TypeError("there may be any number of others")


def locked(made: Scheduler) -> dict[int, Any]:
    """How many blocks each request has locked. The reference's own sum is not asked."""
    held = {number: held_by(made.manager, number) for number in made.manager.tables}
    return {number: blocks for number, blocks in held.items() if number not in made.queues.running}


def has_room(made: Scheduler, number: int, needed: Any) -> bool:
    """Whether a request gets to its end with what the others' locked blocks leave."""
    return room.is_room(made.settings.blocks - 1, {number: needed}, locked(made))


def had_room(u: Any) -> bool:
    """Whether the request that was admitted before had room."""
    with counted():
        made = line_with_another(u)
        before = not u.entered or has_room(made, NEW, u.needed)
        return before and has_room(made, OTHER, u.other_needed)


def has_room_behind(u: Any) -> Any:
    """Whether both have room once the one that asks was admitted, if it was: to load into its locked blocks, or to
    run."""
    with counted():
        made = line_with_another(u)
        if not made._leaves_room(NEW):
            return True
        asked = asked_of(u)
        made.manager.tables.update(tables_of({NEW: asked["left"] + asked["gets"]}))
        made.queues.admit(NEW, runs=not u.parks)
        return has_room(made, OTHER, u.other_needed) and has_room(made, NEW, u.needed)


def leaves_room(u: Any) -> Any:
    """Whether the request that asks is admitted."""
    with counted():
        return line_with_another(u)._leaves_room(NEW)
