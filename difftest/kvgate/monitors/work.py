"""The work monitor: what a decode step costs, counted in operations and never in seconds.

A step that gains, frees, caches and forgets as many blocks as another does the same work, at any length of the context
and for any content of the pool. So the same step is compared with itself, at every length that a run comes to. If it
takes more hashes, more entries of a block table, more links of the free queue or more entries of the cached map than it
took before, something goes over what is there already. And what a request offers to the cache is remembered: nothing is
offered twice in one admission.

Work that grows by less than ``SLACK`` operations over all lengths of a run is not seen, nor what an operation costs
inside. A copy of a list counts as the entries that are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import ne
from typing import Any, Protocol

from attrs import frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Change, Step
from kvgate.kernel.protocol import System
from kvreference.answers import Granted
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.operations import Admit, OfRequest, Preempt, Sample, Schedule
from kvreference.population import Request
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

SLACK = 8
"""By how many operations two steps that look the same may differ, besides one for each block that changes hands."""
LOOKS = 2
"""How often a step looks at each entry that may be cached."""
TWO_ENDS = 3
"""How many links more a group's release takes if it puts blocks to both ends of the free queue."""
_EMPTY = Snapshot({}, [], [], 0, [], dict)

Shape = tuple[object, ...]


@frozen
class Work:
    """What a system did for one operation."""

    hashes: int
    """Block hashes computed."""
    tables: tuple[int, ...]
    """Per group, entries of block tables read or written."""
    links: int
    """Links of free queues followed or changed."""
    entries: int
    """Entries of cached maps read, written or gone over."""
    offers: tuple[Hashable, ...] = ()
    """What was offered to the cache, in order: equal for the same block or boundary of a request."""

    def counts(self) -> tuple[int, ...]:
        """All counters: see ``counter_name``."""
        return self.hashes, *self.tables, self.links, self.entries


def counter_name(place: int, groups: int) -> str:
    """A counter of ``Work.counts`` in words."""
    if 0 < place <= groups:
        return f"table entries in group {place - 1}"
    return {0: "hashes", groups + 1: "links of the free queue", groups + 2: "entries of the cached map"}[place]


def nulls_passed(group: Group, added: int) -> int:
    """How many null blocks a step may go over, of those that were ``added`` to its request's table just before it."""
    del group, added
    return 0


class Meter(Protocol):
    """Counts what a system does."""

    def take(self) -> Work:
        """What it did since this was last asked."""
        ...


class Counts(Protocol):
    """A system that can count its work. Its class must have this: the gate asks before it builds one."""

    def count_work(self) -> Meter:
        """Count from now on."""
        ...


@frozen
class Least:
    """The least that one counter showed for a step of one shape."""

    count: int
    context_tokens: int
    blocks_free: int


class WorkMonitor:
    """Watches one system through its meter."""

    name = "work"

    def __init__(self, settings: Settings, meter: Meter, rules: Rules = OWN_RULES) -> None:
        self.settings = settings
        self.meter = meter
        self._rules = rules
        self._least: dict[Shape, list[Least]] = {}
        """Per shape of a step, for each counter."""
        self._offered: dict[int, set[Hashable]] = {}
        """Per request, what it offered since it was admitted."""
        self._nulls: dict[int, Sequence[int]] = {}
        """Per request, how many null blocks its admission or its last step added to its table in each group."""
        self._before = _EMPTY
        self._computed: dict[int, tuple[int, int]] = {}
        """Per request, how many of its tokens were computed before this step, and how many it had."""
        self._known: dict[int, int] = {}
        """Per request, how many of its computed tokens were known in its last step: what is cached ends there."""

    def observe(self, step: Step) -> Difference | None:
        """Check what the operation took."""
        work = self.meter.take()
        found = None
        if isinstance(step.operation, OfRequest):
            number = step.operation.request
            found = self._offers(number, work)
            request = step.population.alive.get(number)
            if isinstance(step.operation, Preempt) or request is None:
                self._offered.pop(number, None)
            if found is None and request is not None:
                found = self._compare(step, request, work)
            self._remember(step, number, request)
        if step.change is None:
            self._before = step.snapshot
        return found

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing: every step was checked when it was done."""
        del system
        return ()

    def _remember(self, step: Step, number: int, request: Request | None) -> None:
        if request is None:
            self._computed.pop(number, None)
            self._nulls.pop(number, None)
            self._known.pop(number, None)
            return
        self._computed[number] = request.tokens_computed, len(request.tokens)
        if isinstance(step.operation, (Admit, Schedule)):
            self._known[number] = min(request.tokens_computed, len(request.tokens))
        if isinstance(step.operation, Admit):
            self._nulls[number] = [table.count(NULL) for table in step.tables(number)]
        elif isinstance(step.operation, Schedule):
            added = step.answer.blocks if isinstance(step.answer, Granted) else ()
            self._nulls[number] = [blocks.count(NULL) for blocks in added]

    def _offers(self, number: int, work: Work) -> Difference | None:
        offered = self._offered.setdefault(number, set())
        for offer in work.offers:
            if offer in offered:
                got = f"again, among {len(work.offers)} offers in one step"
                return Difference("KV-WORK-01", f"request {number}: {offer}", "offered once since its admission", got)
            offered.add(offer)
        return None

    def _compare(self, step: Step, request: Request, work: Work) -> Difference | None:
        if not isinstance(step.operation, (Sample, Schedule)):
            return None
        change = step.change or _change(self._before, step.snapshot, request.number)
        shape = self._shape(step, request, change)
        if shape is None:
            return None
        # Of several blocks with the same content one is looked for: whether there are others takes an operation more.
        slack = SLACK + len(change.contents)
        links = len(work.tables) + 1
        context, free, counts = len(request.tokens), change.blocks_free, work.counts()
        least = self._least.get(shape)
        if least is None:
            least = self._least[shape] = [Least(count, context, free) for count in counts]
        for place, (known, count) in enumerate(zip(least, counts, strict=True)):
            if count < known.count:
                least[place] = Least(count, context, free)
            elif count > known.count + slack and count > known.count + slack + (
                self._two_ends(change)
                if place == links
                else self._passed(request.number, place - 1) + self._looked_at(request, place - 1)
            ):
                where = f"a context of {context} tokens, {free} blocks free"
                there = f"a context of {known.context_tokens} tokens, {known.blocks_free} blocks free"
                what = "an answer" if isinstance(step.operation, Sample) else "a decode step"
                expected = f"{known.count}, as the same step took at {there}"
                subject = f"{counter_name(place, len(work.tables))} of {what}"
                return Difference("KV-WORK-02", subject, expected, f"{count} at {where}")
        return None

    def _two_ends(self, change: Change) -> int:
        """How many links more a step may take because some groups release to both ends of the queue, and not to one."""
        if not self.settings.scratch_first:
            return 0
        return TWO_ENDS * sum(left > 0 for _, left in change.tables())

    def _passed(self, number: int, index: int) -> int:
        """How many null blocks more a request's step may go over in a group. Other counters have no group."""
        nulls = self._nulls.get(number, ())
        if not 0 <= index < len(nulls):
            return 0
        return self._rules.ask(nulls_passed, self.settings.geometry.groups[index], nulls[index])

    def _looked_at(self, request: Request, index: int) -> int:
        """How many entries more a step that passes an alignment may go over in a group, where caching is masked.

        Those since the alignment before are looked at together: to find what is cached, and to cache it. How many wait
        depends on where the step before ended, and not on the context.
        """
        geometry = self.settings.geometry
        if self.settings.retention_interval_tokens is None or not 0 <= index < len(geometry.groups):
            return 0
        alignment, known = geometry.alignment_tokens, min(request.tokens_computed, len(request.tokens))
        if known // alignment == self._known.get(request.number, 0) // alignment:
            return 0
        return LOOKS * alignment // geometry.groups[index].block_size_tokens

    def _shape(self, step: Step, request: Request, change: Change) -> Shape | None:
        """What must be equal for two steps to be the same; None for what is not part of decoding."""
        computed, tokens = self._computed.get(request.number, (0, 0))
        if isinstance(step.operation, Sample):
            grain = self.settings.geometry.grain_tokens
            # Newer releases cache what an answer fills when they take it.
            return "answer", len(request.tokens) // grain - tokens // grain, len(change.contents)
        if not isinstance(step.answer, Granted) or computed < request.prompt_tokens:
            return None
        held, contents = change.references, change.contents
        return (
            "decode",
            request.tokens_computed - computed,
            *change.tables(),
            sum(was == 0 for was, _ in held),
            sum(now == 0 for _, now in held),
            sum(now is not None for _, now in contents),
            sum(was is not None for was, _ in contents),
            *change.others,
        )


def _change(before: Snapshot, after: Snapshot, request: int) -> Change:
    """What a step did to a request's tables and to the pool."""
    tables = list(zip(before.tables.get(request, ()), after.tables.get(request, ()), strict=False))
    return Change(
        lambda: [(len(new) - len(old), sum(map(ne, old, new))) for old, new in tables],
        _changed(before.references, after.references),
        _changed(before.contents, after.contents),
        after.blocks_free,
        (
            # Where scratch goes first, what is cached goes to the other end of the queue.
            _cached_freed(before, after),
            len({*after.begun} ^ {*before.begun}),
            len(after.copies),
            len(after.pinned.blocks ^ before.pinned.blocks),
            # What is pinned goes to a queue of its own when it is released.
            len(after.pinned.queue) - len(before.pinned.queue),
        ),
    )


def _cached_freed(before: Snapshot, after: Snapshot) -> int:
    """How many blocks became free and stayed cached."""
    if not after.scratch_first or before.references == after.references:
        return 0
    freed = (was != now == 0 for was, now in zip(before.references, after.references, strict=False))
    return sum(gone and content is not None for gone, content in zip(freed, after.contents, strict=False))


def _changed(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[Any, Any]]:
    """What is not as it was, with what it was. Most steps change nothing, and lists are compared fast."""
    return [] if before == after else [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
