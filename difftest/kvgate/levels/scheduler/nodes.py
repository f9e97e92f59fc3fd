"""The other nodes: what they offer to requests, write into their blocks, and read when these have ended.

Nothing is transferred. The nodes only say what a connector of vLLM would say, when a case has them say it: that a load
is over, wholly or in part, early, late, or never.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from kvgate.levels.scheduler.operations import Serve
from kvreference.scheduler.operations import Submit

Table = tuple[int, ...]
Tables = Sequence[Sequence[int]]
"""The blocks of a request, by group."""


def one_named(request: int, candidates: Sequence[int]) -> int | None:
    """The request that a number stands for: every number stands for one of the ``candidates``, if there is one."""
    if not candidates or request in candidates:
        return request if candidates else None
    return candidates[request % len(candidates)]


@define
class Offer:
    """What the other nodes have for one request, as long as it did not take it."""

    tokens: int
    loads: bool
    fails_from_block: int | None
    undecided: int
    """How often they still say that they do not know yet."""
    is_awaited: bool = True
    """Whether the request waits while they do not know."""


@frozen
class Load:
    """A load: other nodes write the tokens from ``start`` to ``end``."""

    start: int
    end: int
    valid: int
    """To here it does not fail."""
    invalid: frozenset[int]
    """The blocks that it fails to write."""


@define
class Signals:
    """What the worker reports to the scheduler with the next output."""

    received: list[int] = field(factory=list)
    sent: list[int] = field(factory=list)
    invalid: set[int] = field(factory=set)


class OtherNodes:
    """Every transfer of one engine. Requests are named by number, lengths are in tokens."""

    def __init__(self, block_tokens: int, for_readers_only: bool = False) -> None:
        self.block_tokens = block_tokens
        """The size of the blocks in the first group, in which failures are reported."""
        self.for_readers_only = for_readers_only
        """Whether a request that may not read the cache takes no offer, and waits for none."""
        self.offers: dict[int, Offer] = {}
        self.loading: dict[int, Load] = {}
        """Loads of requests that wait for them."""
        self.sending: list[int] = []
        """Requests that have ended, and whose blocks are read."""
        self.within_step: dict[int, Load] = {}
        """Loads of the step that is being scheduled."""
        self.signals = Signals()
        self.reported: dict[int, Load] = {}
        """Loads of requests that still load for the scheduler, while their transfer is over."""
        self.lost: set[int] = set()
        """Requests whose transfer never ends."""
        self.failed: dict[int, int] = {}
        """Failed loads that are not reported yet: how many tokens of each request are there."""
        self.tables: dict[int, tuple[Table, ...]] = {}
        """Per request of which a transfer is under way, the blocks that the connector got."""
        self._again: dict[int, Offer] = {}
        """What is offered to preempted requests."""
        self._sends: set[int] = set()
        self._asked: dict[int, tuple[int, int, bool]] = {}
        """Per request that was just asked about: its hit, what is provided after it, and whether it waits for it."""

    def expect(self, number: int, submit: Submit) -> None:
        """A request comes that the other nodes know of."""
        undecided, fails = (submit.undecided, submit.fails_from_block) if isinstance(submit, Serve) else (0, None)
        if submit.external_tokens or undecided:
            is_awaited = submit.arrival.reads_cache or not self.for_readers_only
            self.offers[number] = Offer(submit.external_tokens, submit.loads, fails, undecided, is_awaited)
            if isinstance(submit, Serve) and submit.offered_again:
                self._again[number] = Offer(submit.external_tokens, submit.loads, None, 0)
        if submit.sends:
            self._sends.add(number)

    def preempted(self, number: int) -> None:
        """A request has lost what it had: those that do so offer the same again."""
        if number in self._again:
            self.offers[number] = evolve(self._again[number])

    # What a connector is asked

    def provided(self, number: int, tokens: int, hit: int, keeps_states: bool) -> tuple[int | None, bool]:
        """How many tokens after its ``hit`` a request of ``tokens`` tokens can have, and whether it waits for them."""
        offer = self.offers.get(number)
        if offer is None:
            return 0, False
        if offer.undecided:
            offer.undecided -= 1
            return None, False
        # The last token is computed here: now, or again after the load, unless its state could not be taken back.
        left = 0 if offer.loads and not keeps_states else 1
        external = max(0, min(offer.tokens, tokens - hit - left))
        self._asked[number] = hit, external, offer.loads and external > 0
        return external, offer.loads and external > 0

    def waits_for(self, number: int) -> bool:
        """Whether the tokens just offered to a request arrive while it waits."""
        return self._asked.get(number, (0, 0, False))[2]

    def provides_now(self, number: int) -> int:
        """How many tokens a request was just offered without waiting for them."""
        _, external, waits = self._asked.get(number, (0, 0, False))
        return 0 if waits else external

    def decline(self, number: int) -> None:
        """A request was given blocks, and takes nothing that was offered; no other offer is made."""
        self._asked.pop(number, None)
        self.offers.pop(number, None)

    def take(self, number: int, tables: Tables) -> None:
        """A request was given blocks: the offer is taken, and no other is made."""
        asked, offer = self._asked.pop(number, None), self.offers.pop(number, None)
        if asked is None or offer is None or not asked[1]:
            return
        hit, external, waits = asked
        load = self._load(hit, hit + external, offer.fails_from_block, tables[0])
        (self.loading if waits else self.within_step)[number] = load
        if waits:
            self.tables[number] = tuple(map(tuple, tables))

    def _load(self, start: int, end: int, fails_from_block: int | None, table: Sequence[int]) -> Load:
        size = self.block_tokens
        first = start // size + (fails_from_block or 0)
        if fails_from_block is None or first * size >= end:
            return Load(start, end, end, frozenset())
        invalid = frozenset(block for block in table[first : -(-end // size)] if block)
        return Load(start, end, max(start, first * size), invalid)

    def would_read(self, number: int, ended_well: bool) -> bool:
        """Whether another node reads the blocks of a request that ends; those of an aborted request are not read."""
        return ended_well and number in self._sends

    def reads(self, number: int, ended_well: bool, tables: Tables) -> bool:
        """The same of a request that has just ended: it begins now."""
        self.offers.pop(number, None)
        if not self.would_read(number, ended_well):
            return False
        self.sending.append(number)
        self.tables[number] = tuple(map(tuple, tables))
        return True

    # What happens

    def named(self, request: int) -> int | None:
        """The request whose transfer a number stands for, if one is under way that may end."""
        return one_named(request, self.may_end())

    def may_end(self) -> list[int]:
        """The requests of which a transfer is under way that may end."""
        return [number for number in self.under_way() if number not in self.lost]

    def end(self, number: int, table: Sequence[int], succeeded: bool) -> int | None:
        """A transfer is over: up to which token it wrote; None if it read. The worker reports it with its next
        output."""
        load = self.loading.pop(number, None)
        self.tables.pop(number, None)
        if load is None:
            self.sending.remove(number)
            self.signals.sent.append(number)
            return None
        if not succeeded:
            load = self._load(load.start, load.end, 0, table)
        self.signals.received.append(number)
        self.signals.invalid |= load.invalid
        self.reported[number] = load
        if load.invalid:
            self.failed[number] = load.valid
        return load.valid

    def signals_end_of(self, number: int) -> bool:
        """Whether the end of a transfer is still to be reported."""
        return number in self.signals.received or number in self.signals.sent

    def take_signals(self) -> Signals:
        """Everything not reported yet; each item is reported once."""
        signals, self.signals = self.signals, Signals()
        return signals

    def under_way(self) -> list[int]:
        """The requests of which a transfer is not over."""
        return [*self.loading, *self.sending]

    def standing(self) -> tuple[object, ...]:
        """The part of their state that decides what the next step does."""
        undecided = tuple((number, offer.undecided) for number, offer in self.offers.items())
        return undecided, tuple(self.under_way()), tuple(self.signals.received), tuple(self.signals.sent)
