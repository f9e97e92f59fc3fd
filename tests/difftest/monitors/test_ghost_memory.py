"""Ghost memory.

Goal: a computed token finds in its slots everything that it reads; if not, this is seen, even if the manager believes
otherwise. Method: the same operations on the reference, which is the control, and on subclasses that each break one
thing that only the memory shows.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.answers import Answer, Granted, Hit
from kvreference.content import Keys, Media
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Finish,
    LookUp,
    Operation,
    Preempt,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
)
from kvreference.population import Request
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

from .stage import DRAFTING, FULL, WINDOW, WithHoldings, arrive, settings_of, watch


class _EarlyHoldings(Holdings):
    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + 4)


class ReleasesEarly(WithHoldings):
    """Frees a block that the window still reaches into."""

    holdings_kind = _EarlyHoldings


class HitsTheFirst(Reference):
    """Serves every later request from the first one's blocks, regardless of their content."""

    hit_tokens = 8

    def _hit(self, request: Request) -> Hit:
        if request.number == 0:
            return super()._hit(request)
        return Hit(self.hit_tokens, self._blocks())

    def _blocks(self) -> tuple[tuple[int, ...], ...]:
        groups = zip(self.geometry.groups, self.tables[0], strict=True)
        return tuple(tuple(table.blocks[: self.hit_tokens // group.block_size_tokens]) for group, table in groups)


class HitsAcrossGroups(HitsTheFirst):
    """And takes each group's blocks from the group before it."""

    def _blocks(self) -> tuple[tuple[int, ...], ...]:
        *rest, last = super()._blocks()
        return (last, *rest)


class HitsTooMuch(HitsTheFirst):
    """And the first one's look-ahead slots with them."""

    hit_tokens = 12


class HitsWhatIsNotThere(Reference):
    """Says that the first block was a hit, and hands out a new one."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        return hit if request.number == 0 else evolve(hit, tokens=4)


class _SlotlessHoldings(Holdings):
    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, evolve(span, tokens=0) if request in self.tables else span, hit)


class ForgetsTheSlots(WithHoldings):
    """Allocates nothing while a request decodes."""

    holdings_kind = _SlotlessHoldings


class _ShortHoldings(Holdings):
    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, evolve(span, lookahead=0), hit)


class ForgetsLookAhead(WithHoldings):
    """Allocates for the tokens alone, not for what the draft layer writes after them."""

    holdings_kind = _ShortHoldings


class ForgetsTheTable(Reference):
    """Grants blocks and remembers none."""

    def snapshot(self) -> Snapshot:
        return evolve(super().snapshot(), tables={})


class GivesOneBlockTwice(Reference):
    """Allocates a block that a request holds to another request."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Admit) and operation.request == 1:
            self.tables[1][0].blocks[0] = self.tables[0][0].blocks[0]
        return answer


SINGLE = settings_of(FULL)
BOTH = settings_of(FULL, WINDOW)
SLIDING = settings_of(WINDOW)
DRAFTS = settings_of(DRAFTING, drafts_max=4)

DECODE: tuple[Operation, ...] = (
    arrive(0, 8),
    Admit(0, 64),
    *(each for token in range(100, 106) for each in (Sample(0, 0, token, 0), Schedule(0, 64))),
)
"""A prompt of two blocks, and six tokens after it."""
AGAIN: tuple[Operation, ...] = (arrive(0, 9), Admit(0, 64), arrive(1, 13), Admit(1, 64))
"""Two requests, the first one's prompt a part of the second one's."""
OTHER: tuple[Operation, ...] = (arrive(0, 9), Admit(0, 64), arrive(1, 13, 500), Admit(1, 64))
"""Two requests without a common token."""
DRAFTED: tuple[Operation, ...] = (
    arrive(0, 7),
    Admit(0, 64),
    Sample(0, 0, 7, 0),
    Schedule(0, 64),
    arrive(1, 14),
    Admit(1, 64),
)
"""A request that fills two blocks and has a third for its draft layer, and one with a longer prompt."""

SEVERAL = {
    "window": (
        SLIDING,
        ReleasesEarly,
        DECODE,
        Difference(
            "KV-MEM-01",
            "request 0, group 0",
            "token 3 in its slot",
            "the block was freed: null block",
        ),
    ),
    "foreign state": (
        SINGLE,
        HitsTheFirst,
        OTHER,
        Difference(
            "KV-MEM-01",
            "request 1, group 0",
            "token 0 in block 1: state 10: token 500 at position 0, salt and adapter (None, None)",
            "state 1: token 0 at position 0, salt and adapter (None, None)",
        ),
    ),
    "another group's block": (
        settings_of(FULL, FULL),
        HitsAcrossGroups,
        AGAIN,
        Difference(
            "KV-MEM-01",
            "request 1, group 0",
            "token 0 in block 4: state 1: token 0 at position 0, salt and adapter (None, None)",
            "nothing was ever written there",
        ),
    ),
    "a slot never written": (
        SINGLE,
        HitsWhatIsNotThere,
        OTHER,
        Difference(
            "KV-MEM-01",
            "request 1, group 0",
            "token 0 in block 4: state 10: token 500 at position 0, salt and adapter (None, None)",
            "nothing was ever written there",
        ),
    ),
    "a look-ahead slot": (
        DRAFTS,
        HitsTooMuch,
        DRAFTED,
        Difference(
            "KV-MEM-01",
            "request 1, group 0",
            "token 8 in block 3: state 9: token 8 at position 8, salt and adapter (None, None)",
            "what a draft layer left in a look-ahead slot",
        ),
    ),
    "no slot to compute in": (
        SINGLE,
        ForgetsTheSlots,
        DECODE,
        Difference("KV-MEM-02", "request 0, group 0", "a slot for token 8", "the table has none"),
    ),
    "no slot for drafts": (
        DRAFTS,
        ForgetsLookAhead,
        DRAFTED,
        Difference("KV-MEM-02", "request 0, group 0", "a slot for token 8", "the table has none"),
    ),
    "no table": (
        SINGLE,
        ForgetsTheTable,
        DECODE,
        Difference("KV-MEM-02", "tables", "a table in every group", "0 tables"),
    ),
    "a block held twice": (
        SINGLE,
        GivesOneBlockTwice,
        (*OTHER, Sample(0, 0, 9, 0), Schedule(0, 1)),
        Difference(
            "KV-MEM-01",
            "request 0, group 0",
            "token 0 in block 1: state 1: token 0 at position 0, salt and adapter (None, None)",
            "state 10: token 500 at position 0, salt and adapter (None, None)",
        ),
    ),
}


@pytest.mark.parametrize(("settings", "broken", "operations", "expected"), SEVERAL.values(), ids=SEVERAL)
def test_what_is_not_in_its_slot_is_seen(
    settings: Settings, broken: type[Reference], operations: tuple[Operation, ...], expected: Difference
) -> None:
    """The first slot that is wrong, what should be in it, and what is."""
    assert expected == watch(GhostMemory(settings), broken(settings), *operations)


@pytest.mark.parametrize(("settings", "operations"), [(each[0], each[2]) for each in SEVERAL.values()], ids=SEVERAL)
def test_a_sound_system_reads_what_it_wrote(settings: Settings, operations: tuple[Operation, ...]) -> None:
    """The control: the reference, with the same operations."""
    assert watch(GhostMemory(settings), Reference(settings), *operations) is None


class IgnoresKeys(Reference):
    """Distinguishes contents by their tokens alone."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Arrive):
            prefixes = self.prefixes[operation.request] = []
            self._interned.extend(prefixes, self.population[operation.request].tokens, Keys())
        return answer


KEYS = {
    "salt": (Keys(salt="a"), "salt and adapter ('a', None)", "salt and adapter (None, None)"),
    "adapter": (Keys(lora="a"), "salt and adapter (None, 'a')", "salt and adapter (None, None)"),
    "media": (Keys(media=(Media("cat", 1, 2),)), "token 1 at position 1", "token 1 at position 1"),
}


@pytest.mark.parametrize(("keys", "expected", "got"), KEYS.values(), ids=KEYS)
def test_a_state_depends_on_the_keys(keys: Keys, expected: str, got: str) -> None:
    """The same tokens under another salt, adapter or item are another state; the reference is the control."""
    operations = (arrive(0, 9), Admit(0, 64), evolve(arrive(1, 9), keys=keys), Admit(1, 64))
    found = watch(GhostMemory(SINGLE), IgnoresKeys(SINGLE), *operations)
    assert found is not None
    assert "KV-MEM-01" == found.statement
    assert (expected in found.expected, got in found.got) == (True, True)
    assert watch(GhostMemory(SINGLE), Reference(SINGLE), *operations) is None


def test_media_before_a_block_matter_as_well() -> None:
    """A state depends on everything before it: here on where in the prompt the same item is."""
    one, other = (Keys(media=(Media("cat", offset, 2),)) for offset in (0, 1))
    operations = (evolve(arrive(0, 9), keys=one), Admit(0, 64), evolve(arrive(1, 9), keys=other), Admit(1, 64))
    assert watch(GhostMemory(SINGLE), IgnoresKeys(SINGLE), *operations) is not None
    assert watch(GhostMemory(SINGLE), Reference(SINGLE), *operations) is None


def test_rejected_drafts_are_written_over() -> None:
    """A system in order may write, reject and write again, be preempted, and come back to its own blocks."""
    system = Reference(DRAFTS)
    operations: tuple[Operation, ...] = (
        arrive(0, 7),
        LookUp(0),
        Admit(0, 64),
        Sample(0, 0, 50, 4),
        Schedule(0, 64),
        Sample(0, 2, 60, 4),
        Schedule(0, 64),
        Sample(0, 0, 70, 0),
        Schedule(0, 64),
        Preempt(0),
        Admit(0, 3),
        Schedule(0, 64),
        Reset(),
        TakeEvents(),
    )
    assert watch(GhostMemory(DRAFTS), system, *operations) is None
    assert [0, 1, 2, 3, 4, 5, 6, 50, 51, 52, 60, 70] == system.population[0].tokens


def test_a_refusal_computes_nothing() -> None:
    """No slot is requested, and none is written."""
    settings = settings_of(FULL, blocks=3)
    system = Reference(settings)
    assert watch(GhostMemory(settings), system, arrive(0, 8), Admit(0, 64), arrive(1, 4), Admit(1, 64)) is None
    assert [0] == list(system.tables)


def test_a_request_that_is_gone_is_forgotten() -> None:
    """The memory of a long run does not grow with the requests that ended in it."""
    ghost = GhostMemory(SINGLE)
    system = Reference(SINGLE)
    assert watch(ghost, system, arrive(0, 9), Admit(0, 64), arrive(1, 9), Finish(0), Abort(1)) is None
    assert ({}, {}) == (ghost._chains, ghost._computed)


def test_a_hit_of_everything_with_too_short_a_table_is_seen() -> None:
    """Nothing is left to compute, so nothing to write; yet what was hit must be there to be read."""
    system = Reference(SINGLE)
    ghost = GhostMemory(SINGLE)
    assert watch(ghost, system, Arrive(0, (Run(0, 8),))) is None
    answer = Granted(8, ((),))
    system.population.settle(Admit(0, 64), answer)
    snapshot = evolve(system.snapshot(), tables={0: [[]]})
    expected = Difference("KV-MEM-02", "request 0, group 0", "a slot for token 0", "the table has none")
    assert expected == ghost.observe(Step(Admit(0, 64), answer, snapshot, system.population))


def test_at_rest_nothing_is_read() -> None:
    """So nothing can be wrong."""
    assert [] == list(GhostMemory(SINGLE).at_rest(Reference(SINGLE)))
