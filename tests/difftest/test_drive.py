"""Driving the reference alone.

Goal: any fault of the reference is found, and events that never happened do not count as tested. Method: the reference
is the control; subclasses of it break one rule each. The counts of a witness are compared with what was done.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.explore.drive import BlocksHeld, Driven, Witness, drive
from kvgate.explore.mechanisms import MECHANISMS
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import load
from kvgate.kernel.protocol import Factory
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    Reset,
    Run,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.settings import Settings
from kvspec.refuted.block_managers import UnheldSources

FULL = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16, drafts_max=2)
COPIED = evolve(FULL, geometry=Geometry((Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=2),)))
SLIDING = evolve(FULL, geometry=Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 5))))
PINNING = evolve(FULL, blocks=6, pin_drop_blocks_min=1)

ONE: tuple[Operation, ...] = (Arrive(0, (Run(0, 9),)), Admit(0, 64))
TWO: tuple[Operation, ...] = (*ONE, Arrive(1, (Run(0, 10),)), Admit(1, 64))
LOADING: tuple[Operation, ...] = (ONE[0], Admit(0, 64, external_tokens=5, loads=True))
WAITING_PINS: tuple[Operation, ...] = (*ONE, Finish(0))

WITNESSED: dict[str, tuple[Settings, tuple[Operation, ...], dict[str, int]]] = {
    "nothing": (FULL, ONE, {}),
    "a hit": (FULL, TWO, {"hits": 1, "shared blocks": 1}),
    "a hit looked up": (FULL, (*ONE, TWO[2], LookUp(1)), {}),
    "provided at once": (FULL, (ONE[0], Admit(0, 64, external_tokens=5)), {"external tokens": 1}),
    "a load": (FULL, LOADING, {"external tokens": 1, "loads": 1}),
    "a load that arrived": (FULL, (*LOADING, Transferred(0)), {"external tokens": 1, "loads": 1}),
    "a load that failed": (
        FULL,
        (*LOADING, Transferred(0, succeeded=False)),
        {"external tokens": 1, "loads": 1, "failed loads": 1},
    ),
    "a load that was aborted": (
        FULL,
        (*LOADING, Abort(0), Transferred(0, succeeded=False)),
        {"external tokens": 1, "loads": 1},
    ),
    "an end": (FULL, (*ONE, Finish(0)), {}),
    "an end that is read": (FULL, (*ONE, Finish(0, sends=True), Transferred(0, succeeded=False)), {"sends": 1}),
    "a copy": (
        COPIED,
        (Arrive(0, (Run(0, 7),)), Admit(0, 64), Dispatch(), Arrive(1, (Run(0, 8),)), Admit(1, 64), Dispatch()),
        # The source is held once more until it is copied.
        {"hits": 1, "copies": 1, "shared blocks": 1},
    ),
    "an eviction": (FULL, (*ONE, Evict(1)), {"evictions by id": 1}),
    "a reset": (FULL, (Reset(),), {"resets": 1}),
    "a reset that fails": (FULL, (*ONE, Reset()), {}),
    "drafts": (
        FULL,
        (*ONE, Sample(0, 0, 50, 2), Schedule(0, 64), Sample(0, 1, 60, 2), Schedule(0, 64), Sample(0, 2, 70, 0)),
        {"drafts accepted": 2, "drafts rejected": 1},
    ),
    "pins": (PINNING, WAITING_PINS, {"pinned blocks": 1}),
    "pins that are hit": (
        PINNING,
        (*WAITING_PINS, Arrive(1, (Run(0, 10),)), Admit(1, 64)),
        {"pinned blocks": 2, "hits": 1},
    ),
    "pins that are demoted": (
        PINNING,
        (*WAITING_PINS, Arrive(1, (Run(500, 17),)), Admit(1, 64)),
        {"pinned blocks": 2, "demotions": 2},
    ),
    "pins that are evicted": (PINNING, (*WAITING_PINS, Evict(1)), {"pinned blocks": 2, "evictions by id": 1}),
    "nothing is cached": (evolve(SLIDING, caches=False), (Arrive(0, (Run(0, 16),)), Admit(0, 64)), {}),
    "all is cached": (SLIDING, (Arrive(0, (Run(0, 16),)), Admit(0, 64)), {}),
    "not all is cached": (
        evolve(SLIDING, retention_interval_tokens=8),
        (Arrive(0, (Run(0, 16),)), Admit(0, 64)),
        # Windows before 8 and 16, and before 12 where a replay hits, read all blocks but the first.
        {"full blocks not cached": 1},
    ),
    "evicted, not masked": (
        evolve(SLIDING, retention_interval_tokens=4),
        (*ONE, Evict(1), Sample(0, 0, 50, 0), Schedule(0, 1)),
        {"evictions by id": 1},
    ),
}


@pytest.mark.parametrize(("settings", "operations", "expected"), WITNESSED.values(), ids=WITNESSED)
def test_a_witness_counts_what_happened(
    settings: Settings, operations: tuple[Operation, ...], expected: dict[str, int]
) -> None:
    """No more, no less; waiting pins are counted at each operation, everything else once."""
    witness = Witness()
    lockstep = Lockstep(Reference(settings), None, [witness])
    for operation in operations:
        assert lockstep.perform(operation) is None
    assert list(operations) == lockstep.performed
    counts = {name: count for name, count in witness.seen.items() if count}
    assert expected == counts


def test_all_that_a_mechanism_needs_is_counted() -> None:
    """A witness that is asked for needs a row above that has it."""
    counted = {name for _, _, expected in WITNESSED.values() for name in expected}
    assert {name for mechanism in MECHANISMS.values() for name in mechanism.witnesses} <= counted


# Driving


def driven(model: str, operations: int, seed: int = 0, factory: Factory = Reference) -> Driven:
    return drive([load(name) for name in model.split(", ")], operations, seed, factory=factory)


# The large geometries take their time; the tests of cases draw from them.
@pytest.mark.few(5)
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in ("compressed groups", "steps in flight")])
def test_of_the_reference_nothing_is_found(name: str) -> None:
    """The control; and everything that a mechanism must do has happened, so that it was not driven in vain."""
    mechanism = MECHANISMS[name]
    found = drive([load(model) for model in mechanism.models], 1500)
    assert () == found.found
    assert 1500 <= found.operations < 3000
    assert found.cases > 1
    assert [] == [witness for witness in mechanism.witnesses if not found.seen[witness]]


def test_a_seed_stands_for_one_run() -> None:
    """Models take turns, and presets; another seed is another run."""
    same = driven("swa, full", 500)
    assert same == driven("swa, full", 500) != driven("swa, full", 500, seed=1)


def test_what_was_driven_is_reported_as_it_goes() -> None:
    """After every case, up to the number reported at the end."""
    counts: list[int] = []
    found = drive([load("full")], 500, report=counts.append)
    assert sorted(counts) == counts
    assert (found.cases, found.operations) == (len(counts), counts[-1])


class OtherHoldings(Reference):
    """The reference over other holdings."""

    kind: type[Holdings]

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = self.kind(settings)


class CopiesUnheld(OtherHoldings):
    """No request holds a copy's source."""

    kind = UnheldSources


class Early(Holdings):
    """Frees a block too early."""

    def release_dead(self, request: int, computed: int) -> None:
        super().release_dead(request, computed + 16)


class ReleasesEarly(OtherHoldings):
    """Frees a block that the window still reaches into."""

    kind = Early


class LosesBlocks(Reference):
    """Forgets which blocks an aborted request holds."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.tables.pop(operation.request, None)
        return super().apply(operation)


class KeepsBlocks(Reference):
    """Keeps the blocks of a preempted request although it never comes back."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Preempt):
            self.tables[-1 - len(self.tables)] = self.tables.pop(operation.request)
        return super().apply(operation)


class GivesUpLoading(Reference):
    """Frees the blocks of an aborted request, although a load still writes into them."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.holdings.release_all(operation.request)
        return super().apply(operation)


class Raises(Reference):
    """Does not like to be asked for statistics."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Reset):
            raise ZeroDivisionError
        return super().apply(operation)


BROKEN: dict[str, tuple[Factory, str, set[str]]] = {
    "copies unheld": (CopiesUnheld, "compressed+partial", {"KV-INV-01", "KV-INV-09"}),
    "released early": (ReleasesEarly, "swa", {"KV-MEM-01"}),
    "chunk released early": (ReleasesEarly, "local", {"KV-MEM-01", "KV-MEM-02"}),
    "state released early": (ReleasesEarly, "mamba-all", {"KV-MEM-01"}),
    "blocks lost": (LosesBlocks, "full", {"KV-INV-01"}),
    "blocks kept": (KeepsBlocks, "full", {"KV-LEAK-01"}),
    "blocks of a load freed": (GivesUpLoading, "local+transfers", {"KV-MEM-01"}),
    "raises": (Raises, "full", {"KV-SYS-01"}),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("factory", "model", "statements"), BROKEN.values(), ids=BROKEN)
def test_a_broken_reference_is_found(factory: Factory, model: str, statements: set[str]) -> None:
    """Once, before long, with the case that shows it again at the same step."""
    found = driven(model, 20_000, factory=factory)
    ((divergence, case),) = found.found
    assert divergence.difference.statement in statements
    assert found.operations < 20_000
    again = driven(model, 20_000, factory=factory)
    assert found.found == again.found
    assert case.model == model


def test_held_blocks_are_checked_without_a_look_at_what_is_remembered() -> None:
    """The other half of the leak monitor takes longer than the driving."""
    system = Reference(FULL)
    system.population.alive.clear()
    check = BlocksHeld(FULL)
    assert [] == list(check.at_rest(system))
    system.pool.references[3] = 1
    assert ["blocks held"] == [each.subject for each in check.at_rest(system)]
