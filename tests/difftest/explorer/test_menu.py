"""The menu.

Goal: the menu has only legal and distinct operations, and all that it should; the model's answers follow from the
position. Method: the moves in states that are made for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from kvgate.explore.canonical import Prompt, family_of, token_at, track_of, within_family
from kvgate.explore.scope import Menu
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    Transferred,
    spell,
)

from .stage import FULL, world_of

BARE = Menu((Prompt(3),), samples=False, preempts=False)
PARTIAL = Group("full", 4, compress_ratio=2, unit_tokens=2)
LIMITS: dict[str, Any] = {"blocks": 9, "tokens_max": 8, "requests_max": 2, "drafts_max": 2}


def after(*operations: Operation, groups: Iterable[Group] = (FULL,)) -> Manager:
    """A manager that has performed these."""
    manager = world_of(*groups, **LIMITS).initial().manager
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        manager.apply(operation)
    return manager


def moves(menu: Menu, manager: Manager) -> list[Operation]:
    """The moves that the menu offers."""
    return list(menu.moves(manager))


def test_a_token_names_its_place() -> None:
    """Its family, its track and its position."""
    token = token_at(family=3, track=1, position=42)
    assert (3, 1, 142) == (family_of(token), track_of(token), within_family(token))


def test_a_prompt_has_the_same_shape_in_every_family() -> None:
    """It shares what it has in common with another of its family, and nothing with other families."""
    straight, sibling = Prompt(4), Prompt(4, diverges_at=2)
    assert [5000, 5001, 5002, 5003] == spell(straight.runs(5))
    assert [5000, 5001, 5102, 5103] == spell(sibling.runs(5))
    assert (Run(100, 4),) == Prompt(4, diverges_at=0).runs(0)
    assert "4 leaving at 2" == str(sibling)


def test_every_prompt_arrives_in_every_family() -> None:
    """Up to the maximal number of requests."""
    menu = evolve(BARE, prompts=(Prompt(3), Prompt(3, 1)), families=2)
    expected = [Arrive(0, prompt.runs(family)) for family in (0, 1) for prompt in menu.prompts]
    assert expected == moves(menu, after())
    two = after(Arrive(0, Prompt(3).runs(0)), Arrive(1, Prompt(3).runs(1)))
    assert not any(isinstance(move, Arrive) for move in moves(menu, two))


ARRIVE, ADMIT = Arrive(0, Prompt(3).runs(0)), Admit(0, 8)
NEXT = Arrive(1, Prompt(3).runs(0))


@pytest.mark.parametrize(
    ("menu", "manager", "expected"),
    [
        (BARE, after(ARRIVE), [NEXT, Admit(0, 64)]),
        (BARE, after(ARRIVE, ADMIT), [NEXT, Finish(0)]),
        (BARE, after(ARRIVE, Admit(0, 1)), [NEXT, Schedule(0, 64), Finish(0)]),
        (evolve(BARE, samples=True), after(ARRIVE, ADMIT), [NEXT, Sample(0, 0, 3, 0), Finish(0)]),
        (evolve(BARE, preempts=True), after(ARRIVE, ADMIT), [NEXT, Preempt(0), Finish(0)]),
        (evolve(BARE, aborts=True), after(ARRIVE), [NEXT, Admit(0, 64), Abort(0)]),
        (evolve(BARE, releases=True), after(ARRIVE, ADMIT), [NEXT, ReleaseSkipped(0), Finish(0)]),
        (evolve(BARE, asks=True), after(ARRIVE), [NEXT, Admit(0, 64), LookUp(0)]),
        (evolve(BARE, asks=True), after(ARRIVE, ADMIT), [NEXT, CommonPrefix(0), Finish(0)]),
        (evolve(BARE, evicts=True, resets=True), after(ARRIVE, ADMIT), [NEXT, Finish(0), Evict(1), Reset()]),
        (
            evolve(BARE, external_tokens=(0, 2), loads=True),
            after(ARRIVE),
            [NEXT, Admit(0, 64), Admit(0, 64, 2), Admit(0, 64, 2, loads=True)],
        ),
        (
            evolve(BARE, loads=True),
            after(ARRIVE, Admit(0, 8, 2, loads=True)),
            [NEXT, Transferred(0), Transferred(0, succeeded=False)],
        ),
        (evolve(BARE, sends=True), after(ARRIVE, ADMIT), [NEXT, Finish(0), Finish(0, sends=True)]),
        (
            evolve(BARE, sends=True),
            after(ARRIVE, ADMIT, Finish(0, sends=True)),
            [NEXT, Transferred(0), Transferred(0, succeeded=False)],
        ),
        (evolve(BARE, dispatches=True), after(ARRIVE, ADMIT, groups=(PARTIAL,)), [NEXT, Dispatch()]),
        (evolve(BARE, dispatches=True), after(ARRIVE, ADMIT), [NEXT, Finish(0)]),
    ],
)
def test_the_menu_offers_what_it_names_where_it_is_legal(
    menu: Menu, manager: Manager, expected: list[Operation]
) -> None:
    """And nothing else; operations off the menu are not offered."""
    assert expected == moves(menu, manager)


def test_budgets_that_come_to_the_same_are_one_move() -> None:
    """The smaller one where they differ, the first one where they do not."""
    menu = evolve(BARE, budgets_tokens=(1, 2, 8))
    assert [NEXT, Admit(0, 1), Admit(0, 2), Admit(0, 8)] == moves(menu, after(ARRIVE))
    assert [Schedule(0, 1), Schedule(0, 2)] == moves(menu, after(ARRIVE, Admit(0, 1)))[1:3]
    assert [Schedule(0, 1), Finish(0)] == moves(menu, after(ARRIVE, Admit(0, 2)))[1:]


def answers(menu: Menu, *operations: Operation) -> list[Operation]:
    """The answers that the model may give after a request arrived, was admitted, and these."""
    return [move for move in moves(menu, after(ARRIVE, ADMIT, *operations)) if isinstance(move, Sample)]


def test_an_answer_follows_the_track() -> None:
    """So it is what a longer prompt of the family says there, and another request would answer the same."""
    menu = evolve(BARE, samples=True)
    assert [Sample(0, 0, 3, 0)] == answers(menu)
    assert [Sample(0, 0, 4, 0)] == answers(menu, Sample(0, 0, 3, 0), Schedule(0, 1))
    assert [Sample(0, 0, 3, 0), Sample(0, 0, 103, 0)] == answers(evolve(menu, tracks=2))
    assert [Sample(0, 0, 104, 0)] == answers(menu, Sample(0, 0, 103, 0), Schedule(0, 1))


def test_a_draft_that_is_rejected_was_wrong() -> None:
    """The model samples another token there; if all drafts are accepted, it samples one more."""
    menu = evolve(BARE, samples=True, drafts=(0, 2))
    tried = (Sample(0, 0, 3, 2), Schedule(0, 3))
    expected = [(0, 104), (1, 105), (2, 6)]
    assert [Sample(0, accepted, token, drafts) for accepted, token in expected for drafts in (0, 2)] == answers(
        menu, *tried
    )
    # Only one of the two drafts was scheduled: the other one was neither right nor wrong.
    assert [(0, 104), (1, 5)] == [
        (move.accepted, move.token)
        for move in answers(evolve(menu, drafts=(0,)), Sample(0, 0, 3, 2), Schedule(0, 2))
        if isinstance(move, Sample)
    ]
