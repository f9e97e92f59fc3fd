"""How newer schedulers call their block manager differently by design.

Goal: each rule changes what it names, and no other; and findings act next to it. Method: the same few
operations on the reference and on the reference as it is asked otherwise; their tables, answers and counts by hand.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.release_variants import PADDING, NewReference, choices_of
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.adapters.releases.description import Release, SchedulerRules
from kvgate.findings.modelled import reference_of
from kvreference.answers import Answer, Granted, Refused
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, LookUp, Operation, Preempt, Run, Sample, Schedule
from kvreference.settings import Settings

SETTINGS = Settings(
    Geometry((Group("full", 4, lookahead=True),)), 10, 64, 32, drafts_max=3, full_sequence_must_fit=False
)


def rules(*names: str) -> SchedulerRules:
    """Those of vLLM 0.20.2 with these switched on."""
    assert INSTALLED.scheduler is not None
    switched_on: dict[str, Any] = dict.fromkeys(names, True)
    return evolve(INSTALLED.scheduler, **switched_on)


def asked(*names: str, **asked_for: Any) -> NewReference:
    """The reference under a scheduler with such rules, and its calls."""
    system: Any = SimpleNamespace(description=INSTALLED, scheduling=rules(*names), **asked_for)
    return partial(Manager, choices=choices_of(system))


def performed(manager: Manager, *operations: Operation) -> list[Answer]:
    """The answers; all operations are legal."""
    answers = []
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        answers.append(manager.apply(operation))
    return answers


def arrive(number: int, tokens: int) -> Arrive:
    return Arrive(number, (Run(1000 * number, tokens),))


def test_look_ahead_at_once() -> None:
    """A prompt of one block gets another for its drafts, but where it loads it."""
    prompt = arrive(0, 4)
    for names, blocks in (((), 1), (("lookahead_when_admitted",), 2)):
        (_, granted) = performed(asked(*names)(SETTINGS), prompt, Admit(0, 4))
        assert isinstance(granted, Granted)
        assert blocks == len(granted.blocks[0])
        (_, granted) = performed(asked(*names)(SETTINGS), prompt, Admit(0, 4, 4, loads=True))
        assert isinstance(granted, Granted)
        assert (1, True) == (len(granted.blocks[0]), granted.loads)


@pytest.mark.parametrize(("kept", "fits"), [({}, True), ({1: 7}, True), ({1: 8}, False), ({0: 9}, True)])
def test_room_that_is_kept(kept: dict[int, int], fits: bool) -> None:
    """Of nine blocks two are allocated if at most seven must stay free; only one operation has this limit."""
    manager = asked(kept=kept)(SETTINGS)
    (_, answer) = performed(manager, arrive(0, 8), Admit(0, 8))
    assert fits == isinstance(answer, Granted)
    assert fits or answer == Refused(0, gate=False)
    # Nothing of it remains.
    (answer,) = performed(manager, arrive(1, 8), Admit(1, 8))[1:]
    assert isinstance(answer, Granted)


@pytest.mark.parametrize("release", [INSTALLED, *(release for release in RELEASES.values() if release.choices)])
def test_with_findings_it_keeps_room_too(release: Release) -> None:
    """Where a load of a whole request has the deltas of 008 and 009."""
    settings = evolve(SETTINGS, scratch_first=release.choices is not None)
    system: Any = SimpleNamespace(
        description=release, release=release.label, scheduling=rules(), kept={1: 8}, fixes=frozenset
    )
    manager, known = reference_of(system, settings)
    (_, answer) = performed(manager, arrive(0, 8), Admit(0, 8, 8, loads=True))
    assert Refused(0, gate=False) == answer
    assert {"009-load-forgets-its-last-token": 1} == known.times


def test_drafts_that_were_not_proposed() -> None:
    """One token is computed with three drafts, which are taken back if nothing comes of them."""
    manager = asked(padded={1: 3})(SETTINGS)
    performed(manager, arrive(0, 1), Admit(0, 4))
    request = manager.population[0]
    assert (4, 3, [PADDING] * 3) == (request.tokens_computed, request.drafts_in_flight, request.drafts)
    performed(manager, Sample(0, 0, 7, 0))
    assert (1, 0, []) == (request.tokens_computed, request.drafts_in_flight, request.drafts)
    manager = asked(padded={3: 3})(evolve(SETTINGS, blocks=3))
    performed(manager, arrive(0, 8), Admit(0, 8), arrive(1, 1), Admit(1, 4))
    assert [] == manager.population[1].drafts


@pytest.mark.parametrize(("names", "tokens"), [((), 4), (("ends_before_an_answer",), 7)])
def test_all_but_the_last_token_of_an_answered_request(names: tuple[str, ...], tokens: int) -> None:
    """Eight tokens in blocks of four: a prompt's own chunk of seven ends with a block, one that is computed again may
    not; nor does one of nine tokens, which does not end with a block."""
    states = Geometry((Group("full", 4), Group("mamba", 4, states="align")))
    manager = asked(*names)(Settings(states, 20, 64, 32, full_sequence_must_fit=False))
    performed(manager, arrive(0, 7), Admit(0, 32), Dispatch(), Schedule(0, 32), Dispatch(), Sample(0, 0, 7, 0))
    performed(manager, Preempt(0), arrive(1, 8), arrive(2, 8), Admit(2, 32), Dispatch(), Sample(2, 0, 7, 0), Preempt(2))
    population = manager.population
    assert (tokens, 4, 8) == tuple(
        population.tokens_to_schedule(population[each], 7 + (each == 2)) for each in range(3)
    )


def test_only_admitted_requests_are_counted() -> None:
    """Not a look-up without an admission, nor one after which no blocks are free; the reference counts them all."""
    for names, requests in (((), 3), (("counts_admitted",), 1)):
        manager = asked(*names)(evolve(SETTINGS, blocks=3))
        performed(manager, arrive(0, 8), LookUp(0), Admit(0, 8), arrive(1, 8), Admit(1, 8))
        assert requests == manager.cache.statistics.requests


def test_an_answer_is_cached_when_it_is_taken() -> None:
    """The block that a draft that holds has filled; without drafts it waits for the next step everywhere."""
    for names, drafts_max, cached in ((("caches_answers",), 3, 1), ((), 3, 0), (("caches_answers",), 0, 0)):
        manager = asked(*names)(evolve(SETTINGS, drafts_max=drafts_max))
        answered: list[Operation] = [Arrive(0, (Run(0, 3),)), Admit(0, 3), Sample(0, 0, 7, drafts_max)]
        performed(manager, *answered)
        manager.population[0].tokens_computed = 4
        manager.population[0].drafts_in_flight = min(1, drafts_max)
        performed(manager, Sample(0, min(1, drafts_max), 9, 0))
        assert cached == sum(content is not None for content in manager.pool.cached.contents())
