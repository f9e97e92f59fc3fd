"""The choices that a release may make differently.

Goal: each is asked for where it decides, and by default it is the reference's own. Method: one small manager for each
choice, next to one without.
"""

from __future__ import annotations

from attrs import evolve

from kvreference.answers import Answer, Granted, Refused
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Operation, Run, Schedule
from kvreference.prefix_cache import NoPrefixCache, PrefixCache
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 4, lookahead=True),)), 10, 64, 32, drafts_max=3, scratch_first=True)
ARRIVE, ADMIT = Arrive(0, (Run(0, 4),)), Admit(0, 4)


class Others(Holdings):
    """Holdings of a release."""


def granted(manager: Manager, operation: Operation) -> int:
    """How many blocks an operation is granted."""
    answer = manager.apply(operation)
    assert isinstance(answer, Granted)
    return len(answer.blocks[0])


def test_holdings_and_cache_are_what_the_choices_build() -> None:
    """From the manager's settings."""
    manager = Manager(SETTINGS, Choices(Others, lambda settings, _rules: NoPrefixCache(settings.geometry)))
    assert (Others, NoPrefixCache) == (type(manager.holdings), type(manager.cache))
    assert (Holdings, PrefixCache) == (type(Manager(SETTINGS).holdings), type(Manager(SETTINGS).cache))


def test_scratch_first_is_promised_or_not() -> None:
    """If the settings say so at all."""
    without = Choices(promises_scratch_first=False)
    assert (True, False) == tuple(Manager(SETTINGS, each).snapshot().scratch_first for each in (Choices(), without))
    assert not Manager(evolve(SETTINGS, scratch_first=False)).snapshot().scratch_first


def test_look_ahead_when_admitted() -> None:
    """A prompt of one block gets another one for its drafts, except where it loads it."""
    for at_once, loads, blocks in ((True, False, 2), (True, True, 1), (False, False, 1), (False, True, 1)):
        manager = Manager(SETTINGS, Choices(lookahead_when_admitted=at_once))
        manager.apply(ARRIVE)
        assert blocks == granted(manager, evolve(ADMIT, external_tokens=4 * loads, loads=loads))


def test_blocks_reserved_count_for_one_admission() -> None:
    """By its number; a later one, and one of a copy, has its own number."""
    for reserved, fits in ((8, True), (9, False)):
        manager = Manager(SETTINGS, Choices(blocks_reserved={1: reserved, 2: 9}))
        manager.apply(ARRIVE)
        again = manager.copy()
        for each in (manager, again):
            answer = each.apply(ADMIT)
            assert fits == isinstance(answer, Granted)
            assert fits or answer == Refused(0, gate=False)
        assert 2 == manager.performed == again.performed
    # Only an admission leaves blocks free.
    manager = Manager(SETTINGS, Choices(blocks_reserved={2: 9}))
    assert [manager.apply(ARRIVE), granted(manager, ADMIT)][1] == 1
    manager.population[0].tokens.append(7)
    assert 1 == granted(manager, Schedule(0, 1))


def test_an_operation_is_performed_as_the_choices_say() -> None:
    """And counted once, when it is over; a copy has the same choices."""
    seen = []

    def perform(manager: Manager, operation: Operation) -> Answer:
        seen.append((manager.performed, operation))
        return manager.perform(operation)

    manager = Manager(SETTINGS, Choices(perform=perform))
    manager.apply(ARRIVE)
    manager.copy().apply(ADMIT)
    assert [(0, ARRIVE), (1, ADMIT)] == seen
    assert (1, 4) == (manager.performed, len(manager.population[0].tokens))
