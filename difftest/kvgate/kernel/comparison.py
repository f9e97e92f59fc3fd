"""The comparison: does a system answer, and stand, as the reference does?

Block ids, tables, reference counts, pending copies, the pinned queue and the free queue are compared exactly, in order;
contents through the correspondence. The first difference found is the one reported, in the order in which a reader
would look: the answer, the tables, what is copied, who holds what, what is pinned, what is free, what is cached.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from attrs import evolve

from kvgate.kernel.difference import Difference
from kvreference.answers import Answer, Copies, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.block_pool import Pinned
from kvreference.content import UNTAGGED
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.operations import Abort, Admit, Evict, Finish, Operation, ReleaseSkipped, Reset, Schedule, Transferred
from kvreference.snapshot import Snapshot

MAP_READ_EVERY = 16
"""How often, in operations that change no block's content, the cached map is compared all the same."""


class Correspondence:
    """A growing one-to-one relation between the content identities of two systems. ``None`` corresponds to ``None``.

    The reference identifies content by what it is, a system under test by hashes. Any hash may stand for a content as
    long as the relation is one to one. Two contents under one hash would become a foreign hit, one content under two
    hashes a missed hit.
    """

    def __init__(self) -> None:
        self._theirs: dict[Hashable, Hashable] = {None: None}
        self._ours: dict[Hashable, Hashable] = {None: None}

    def copy(self) -> Correspondence:
        """An independent relation that knows the same."""
        other = Correspondence()
        other._theirs, other._ours = dict(self._theirs), dict(self._ours)
        return other

    def relate(self, ours: Hashable, theirs: Hashable) -> bool:
        """Whether the two stand for the same content; two that are both new are related from now on."""
        known = self._theirs.get(ours, self)
        if known is not self:
            return known == theirs
        if theirs in self._ours:
            return False
        self._theirs[ours] = theirs
        self._ours[theirs] = ours
        return True

    def theirs(self, ours: Iterable[Hashable]) -> list[Hashable]:
        """What stands for each of ``ours`` on the other side; None for what never appeared."""
        return list(map(self._theirs.get, ours))

    def ours(self, theirs: Hashable) -> Hashable:
        """What ``theirs`` stands for; raises ``KeyError`` if it never appeared."""
        return self._ours[theirs]


class Comparison:
    """Compares one run of two systems; remembers which contents correspond.

    ``retains`` says whether there is a retention interval: then another guarantee says what is cached.
    """

    def __init__(self, retains: bool = False) -> None:
        self.retains = retains
        self.correspondence = Correspondence()
        # Events name content by identities of their own: vLLM shortens its hashes for them.
        self._in_events = Correspondence()
        self._contents_before: tuple[Sequence[Hashable], Sequence[Hashable]] = ((), ())
        self._unchanged = 0
        self._pinned_before: Collection[int] = frozenset()

    def of_states(self, operation: Operation, ours: Snapshot, theirs: Snapshot) -> Difference | None:
        """The first difference between the states after ``operation``."""
        theirs = _as_lists(theirs)
        if ours.tables != theirs.tables:
            return _tables_differ(operation, ours, theirs)
        # These may be any sequences, as in ``_as_lists``.
        if ours.copies != tuple(theirs.copies):
            return _first_differing("KV-OP-19", "pending copy", ours.copies, theirs.copies)
        late, their_late = ([list(blocks) for blocks in each.freed_late] for each in (ours, theirs))
        if late != their_late:
            return _first_differing("KV-OP-07", "blocks freed late, request", late, their_late)
        # The null block's references are not maintained.
        if ours.references[1:] != theirs.references[1:]:
            return _first_differing("KV-INV-01", "references of block", ours.references, theirs.references, start=1)
        pinned = Pinned(frozenset(theirs.pinned.blocks), tuple(theirs.pinned.queue))
        if ours.pinned != pinned:
            return self._pinned_differ(operation, ours, pinned)
        self._pinned_before = ours.pinned.blocks
        if ours.free != theirs.free:
            return _free_queues_differ(operation, ours, theirs)
        if ours.blocks_free != theirs.blocks_free:
            return Difference("KV-INV-03", "blocks free", str(ours.blocks_free), str(theirs.blocks_free))
        if set(ours.begun) != set(theirs.begun):
            block = min(set(ours.begun) ^ set(theirs.begun))
            reported = ("begun", "not begun") if block in ours.begun else ("not begun", "begun")
            return Difference("KV-OP-18", f"boundaries inside block {block}", *reported)
        return self._contents(operation, ours, theirs)

    def _pinned_differ(self, operation: Operation, ours: Snapshot, theirs: Pinned) -> Difference:
        """The first block that is pinned on one side alone; or the first place at which the pinned queues differ."""
        differing = ours.pinned.blocks ^ theirs.blocks
        if not differing:
            queues = ours.pinned.queue, theirs.queue
            statement = "KV-OP-23" if sorted(queues[0]) == sorted(queues[1]) else "KV-INV-07"
            return _first_differing(statement, "pinned queue at position", *queues)
        block = min(differing)
        statement = "KV-OP-21"
        if block in self._pinned_before:
            demoted = isinstance(operation, (Admit, Schedule)) and ours.references[block] == 0
            statement = "KV-OP-23" if demoted else "KV-OP-22"
        reported = ("pinned", "not pinned") if block in ours.pinned.blocks else ("not pinned", "pinned")
        return Difference(statement, f"pin of block {block}", *reported)

    def _contents(self, operation: Operation, ours: Snapshot, theirs: Snapshot) -> Difference | None:
        # Most operations leave all contents alone. The map is then read only now and then, for reading it is costly.
        if (ours.contents, theirs.contents) == self._contents_before:
            self._unchanged += 1
            if self._unchanged % MAP_READ_EVERY:
                return None
        before_theirs = self._contents_before[1]
        # Copied, for the next operation may change what a system returned.
        self._contents_before = (ours.contents, list(theirs.contents))
        known = self.correspondence.theirs(ours.contents)
        # A content that appears for the first time has no partner yet: it looks like none.
        if known != theirs.contents or known.count(None) != ours.contents.count(None):
            for block, (before, identity) in enumerate(zip(known, theirs.contents, strict=True)):
                content = ours.contents[block]
                if (before is None or before != identity) and not self.correspondence.relate(content, identity):
                    is_new = block >= len(before_theirs) or before_theirs[block] != identity
                    return self._content_differs(operation, block, content, identity, is_new)
        entries, listed = ours.entries, {content: tuple(blocks) for content, blocks in theirs.entries.items()}
        identities = self.correspondence.theirs(entries)
        if dict(zip(identities, entries.values(), strict=True)) != listed:
            return _entries_differ(dict(zip(identities, entries.items(), strict=True)), listed)
        return None

    def _content_differs(
        self, operation: Operation, block: int, ours: Hashable, theirs: Hashable, is_new: bool
    ) -> Difference:
        subject = f"content of block {block}"
        if theirs is None:
            statement = "KV-OP-15" if self.retains else "KV-OP-08"
            return Difference(
                "KV-OP-24" if isinstance(operation, Transferred) else statement, subject, str(ours), "not cached"
            )
        if ours is None:
            statement = "KV-OP-11" if isinstance(operation, Reset) else "KV-OP-10"
            if self.retains and is_new:
                statement = "KV-OP-15"
            return Difference(statement, subject, "not cached", "cached")
        try:
            got = f"the identity of {self.correspondence.ours(theirs)}"
        except KeyError:
            got = "another identity than before"
        return Difference("KV-OP-09", subject, str(ours), got)

    def of_answers(self, operation: Operation, ours: Answer, theirs: Answer) -> Difference | None:
        """The difference between the answers to ``operation``, if there is one."""
        if isinstance(ours, Happened) and isinstance(theirs, Happened):
            return self._events(ours.events, theirs.events)
        if ours == theirs:
            return None
        statement = "KV-OP-05"
        if isinstance(ours, (Hit, Granted, Refused)) and hit_tokens_of(ours) != hit_tokens_of(theirs):
            statement = "KV-OP-01"
        elif isinstance(ours, Copies):
            statement = "KV-OP-19"
        elif isinstance(ours, Hit):
            statement = "KV-OP-02" if _begun(ours) == _begun(theirs) else "KV-OP-19"
        elif isinstance(ours, Granted) and isinstance(theirs, Granted) and _provided(ours) != _provided(theirs):
            statement = "KV-OP-24"
        elif isinstance(ours, Refused) or isinstance(theirs, Refused):
            gated = any(isinstance(answer, Refused) and answer.gate for answer in (ours, theirs))
            statement = "KV-OP-03" if gated else "KV-OP-04"
        elif isinstance(ours, Success):
            statement = "KV-OP-11"
        elif isinstance(ours, Statistics):
            statement = "KV-OP-13"
        elif isinstance(ours, Shared):
            statement = "KV-OP-14"
        elif isinstance(ours, Happened):
            statement = "KV-OP-12"
        return Difference(statement, f"answer to {type(operation).__name__}", str(ours), str(theirs))

    def _events(self, ours: Sequence[Event], theirs: Sequence[Event]) -> Difference | None:
        for position, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
            if not self._same_event(mine, other):
                return Difference("KV-OP-12", f"event {position}", str(mine), str(other))
        if len(ours) != len(theirs):
            longer = ours if len(ours) > len(theirs) else theirs
            first = longer[min(len(ours), len(theirs))]
            got = f"{len(theirs)}; the first that has no partner: {first}"
            return Difference("KV-OP-12", "number of events", str(len(ours)), got)
        return None

    def _same_event(self, ours: Event, theirs: Event) -> bool:
        if isinstance(ours, Cleared) or isinstance(theirs, Cleared):
            return ours == theirs
        if isinstance(ours, Removed) or isinstance(theirs, Removed):
            return (
                isinstance(ours, Removed)
                and isinstance(theirs, Removed)
                and ours.medium == theirs.medium
                and self._in_events.relate(ours.content, theirs.content)
            )
        return (
            len(ours.contents) == len(theirs.contents)
            and all(map(self._in_events.relate, ours.contents, theirs.contents))
            and self._in_events.relate(ours.parent, theirs.parent)
            and _bare(ours) == _bare(theirs)
        )


def _as_lists(snapshot: Snapshot) -> Snapshot:
    """The same with lists in place of a system's own sequence types; most use lists."""
    if type(snapshot.references) is type(snapshot.free) is type(snapshot.contents) is list and all(
        type(tables) is list and all(type(table) is list for table in tables) for tables in snapshot.tables.values()
    ):
        return snapshot
    return evolve(
        snapshot,
        tables={number: [list(table) for table in tables] for number, tables in snapshot.tables.items()},
        references=list(snapshot.references),
        free=list(snapshot.free),
        contents=list(snapshot.contents),
    )


def hit_tokens_of(answer: Answer | None) -> int | None:
    """The hit that an answer reports, in tokens, or None if it reports none."""
    if isinstance(answer, Hit):
        return answer.tokens
    return answer.hit_tokens if isinstance(answer, (Granted, Refused)) else None


def _begun(answer: Answer) -> list[tuple[int, int]]:
    """Where a hit ends inside blocks: per group, after how many tokens."""
    return [(partial.group, partial.tokens) for partial in answer.partials] if isinstance(answer, Hit) else []


def _provided(granted: Granted) -> tuple[int, bool]:
    """What another node provides, and whether later."""
    return granted.external_tokens, granted.loads


def _bare(event: Stored) -> Stored:
    """What an event says besides identities, with extra keys as a system without domains gives them."""
    keys = tuple(tuple(evolve(key, domain=UNTAGGED) for key in block) for block in event.extra_keys)
    return evolve(event, contents=(), parent=None, extra_keys=keys)


def _first_differing(
    statement: str, subject: str, ours: Sequence[object], theirs: Sequence[object], start: int = 0
) -> Difference:
    for position in range(start, max(len(ours), len(theirs))):
        mine = ours[position] if position < len(ours) else "nothing"
        other = theirs[position] if position < len(theirs) else "nothing"
        if mine != other:
            return Difference(statement, f"{subject} {position}", str(mine), str(other))
    raise AssertionError("the sequences are equal")


def _tables_differ(operation: Operation, ours: Snapshot, theirs: Snapshot) -> Difference:
    if isinstance(operation, ReleaseSkipped):
        statement = "KV-OP-06"
    elif isinstance(operation, (Admit, Schedule)):
        # What is gone from the front was released; what came at the back was taken.
        provided = isinstance(operation, Admit) and operation.external_tokens > 0
        taken = "KV-OP-24" if provided else "KV-OP-05"
        statement = "KV-OP-06" if _leading_nulls(ours) != _leading_nulls(theirs) else taken
    elif isinstance(operation, Transferred) or (
        isinstance(operation, (Finish, Abort)) and operation.request in ours.tables
    ):
        statement = "KV-OP-25"
    else:
        statement = "KV-OP-07"
    for number in sorted({*ours.tables, *theirs.tables}):
        mine, other = ours.tables.get(number, ()), theirs.tables.get(number, ())
        if mine != other:
            if len(mine) == len(other):
                group = next(index for index in range(len(mine)) if mine[index] != other[index])
                return Difference(
                    statement, f"table of request {number}, group {group}", str(mine[group]), str(other[group])
                )
            return Difference(statement, f"tables of request {number}", str(mine), str(other))
    raise AssertionError("the tables are equal")


def _entries_differ(
    expected: Mapping[Hashable, tuple[Hashable, Sequence[int]]], listed: Mapping[Hashable, Sequence[int]]
) -> Difference:
    for identity, (content, blocks) in expected.items():
        got = listed.get(identity, ())
        if blocks != got:
            return Difference("KV-INV-05", f"blocks listed for {content}", str(blocks), str(got))
    stray = next(blocks for identity, blocks in listed.items() if identity not in expected)
    return Difference("KV-INV-05", "contents in the cached map", f"{len(expected)}", f"one more, for blocks {stray}")


def _leading_nulls(snapshot: Snapshot) -> list[int]:
    return [sum(block == 0 for block in table) for tables in snapshot.tables.values() for table in tables]


def _free_queues_differ(operation: Operation, ours: Snapshot, theirs: Snapshot) -> Difference:
    if ours.scratch_first and not isinstance(operation, Evict):
        statement = "KV-OP-17"
    elif isinstance(operation, (Admit, Schedule, ReleaseSkipped)):
        statement = "KV-OP-06" if any(_leading_nulls(ours)) else "KV-OP-05"
    elif isinstance(operation, Evict):
        statement = "KV-OP-10"
    else:
        statement = "KV-OP-07"
    return _first_differing(statement, "free queue at position", list(ours.free), list(theirs.free))
