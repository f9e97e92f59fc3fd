"""Deltas on rules of the reference.

Goal: a delta changes its rule and no other, sees what the deltas before it made of the rule, and each rule that can
have one is asked for it. Method: a rule of numbers; a manager on which every such rule answers, watched and changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvreference.answers import Granted, Happened, Hit
from kvreference.attention import Kind
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Admit,
    Arrive,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Reset,
    Run,
    Schedule,
    TakeEvents,
)
from kvreference.rules import OWN_RULES, Delta, Rules
from kvreference.settings import Settings


def double(number: int) -> int:
    """A rule."""
    return 2 * number


def one_more(rule: Callable[[int], int], number: int) -> int:
    return rule(number) + 1


def squared(rule: Callable[[int], int], number: int) -> int:
    return rule(number) ** 2


def of_the_next(rule: Callable[[int], int], number: int) -> int:
    return rule(number + 1)


def test_without_a_delta_a_rule_answers_itself() -> None:
    """And with those of other rules; keywords are arguments too."""
    assert 6 == OWN_RULES.ask(double, 3) == OWN_RULES.ask(double, number=3)
    assert 6 == Rules([Delta("halve", one_more)]).ask(double, 3)


@pytest.mark.parametrize(
    ("deltas", "answer"),
    [
        ([one_more], 7),
        ([one_more, squared], 49),
        ([squared, one_more], 37),
        ([one_more, of_the_next, squared], 81),
        ([one_more, one_more], 8),
    ],
)
def test_deltas_apply_in_turn(deltas: list[Callable[..., int]], answer: int) -> None:
    """Each to what the ones before it have made of the rule; and asking changes nothing."""
    rules = Rules([Delta("double", delta) for delta in deltas])
    assert [answer, answer] == [rules.ask(double, 3), rules.ask(double, 3)]
    assert (6, "double") == (double(3), double.__name__)


def test_a_delta_can_ask_the_rule_by_its_name() -> None:
    """The argument has the name of the rule."""
    seen: list[str] = []

    def named(rule: Callable[[int], int], number: int) -> int:
        seen.append(rule.__name__)
        return rule(number)

    assert 6 == Rules([Delta("double", named), Delta("double", named)]).ask(double, 3)
    assert ["double", "double"] == seen


# The rules of the reference

SETTINGS = Settings(
    Geometry((Group(Kind.FULL, 32), Group(Kind.SLIDING_WINDOW, 16, 32))),
    blocks=8,
    tokens_max=128,
    chunk_tokens=128,
    tells_events=True,
)
RUN: tuple[Operation, ...] = (
    Arrive(0, (Run(0, 64),)),
    Admit(0, 64),
    Finish(0),
    Arrive(1, (Run(0, 96),)),
    LookUp(1),
    Admit(1, 96, external_tokens=16),
    Finish(1),
    Evict(1),
    Arrive(2, (Run(500, 64),)),
    Admit(2, 48),
    Dispatch(),
    *map(Evict, range(1, SETTINGS.blocks)),
    Schedule(2, 16),
    TakeEvents(),
    Finish(2),
    Reset(),
)
RULES = (
    "names_of_piece",
    "blocks_to_come_with",
    "blocks_said_free",
    "is_unused",
    "longest_length",
    "tables_found",
    "tokens_computed",
    "rounds_of_admission",
    "content_up_to",
    "due_tokens",
    "cached_again",
    "ends_inside",
    "stored_events",
    "contents_lost",
)


def answers(*deltas: Delta) -> list[Any]:
    """The answers of a manager with these deltas, and its state in between."""
    manager = Manager(SETTINGS, Choices(rules=Rules(deltas)))
    seen: list[Any] = []
    for operation in RUN:
        resolved = manager.population.resolve(operation)
        if resolved is not None:
            seen.append(manager.apply(resolved))
            state = manager.snapshot()
            seen.append((state.blocks_free, state.free, sorted(state.begun)))
    return seen


def as_text(seen: list[Any]) -> list[str]:
    """Answers, in which prefixes of two managers are compared by their lengths."""
    return [str(each) for each in seen]


def test_the_run_has_a_hit_loads_and_loses_content() -> None:
    """Control: every rule has something to answer."""
    seen = answers()
    assert any(isinstance(each, Hit) and each.tokens == 64 for each in seen)
    assert any(isinstance(each, Granted) and each.external_tokens for each in seen)
    (happened,) = (each for each in seen if isinstance(each, Happened))
    assert {"Stored", "Removed"} == {type(event).__name__ for event in happened.events}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_asked_for_its_deltas(name: str) -> None:
    """A rule with a delta asks it: a delta that only watches is called, and changes nothing."""
    called: list[tuple[Any, ...]] = []

    def watch(rule: Callable[..., Any], *arguments: Any) -> Any:
        called.append(arguments)
        return rule(*arguments)

    plain, watched = answers(), answers(Delta(name, watch))
    assert called
    assert as_text(plain) == as_text(watched)


CHANGED: dict[str, Callable[..., Any]] = {
    "names_of_piece": lambda names, *rest: (*names(*rest), id(rest[0])),
    "blocks_to_come_with": lambda count, *rest: count(*rest) + 99,
    "blocks_said_free": lambda said, *rest: said(*rest) - 1,
    "is_unused": lambda unused, *rest: not unused(*rest),
    "longest_length": lambda _longest, *_rest: 0,
    "tables_found": lambda tables, *rest: ((), *tables(*rest)[1:]),
    "tokens_computed": lambda computed, *rest: computed(*rest) - 1,
    "rounds_of_admission": lambda rounds, *rest: [range(at, at + 1) for each in rounds(*rest) for at in each[::-1]],
    "content_up_to": lambda content, geometry, index, prefixes, _tokens: content(geometry, index, prefixes, 16),
    "due_tokens": lambda _due, *_rest: None,
    "cached_again": lambda _again, _geometry, group, _request, table, _tokens, is_cached: tuple(
        [0] if group.keeps_all and not is_cached(table.blocks[0]) else []
    ),
    "ends_inside": lambda _ends, group, *_rest: [16] if group.keeps_all else [],
    "stored_events": lambda _events, *_rest: [],
    "contents_lost": lambda _lost, *_rest: [],
}


@pytest.mark.parametrize("name", RULES)
def test_a_changed_rule_shows(name: str) -> None:
    """The manager's answer, or its state, changes."""
    assert as_text(answers()) == as_text(answers())
    assert as_text(answers()) != as_text(answers(Delta(name, CHANGED[name])))


def test_a_copy_has_the_same_rules() -> None:
    """Of its pool, its holdings, its cache and its prefixes."""
    changed = Rules([Delta("longest_length", CHANGED["longest_length"]), Delta("contents_lost", lambda *_rest: [])])
    manager = Manager(SETTINGS, Choices(rules=changed))
    for operation in RUN[:4]:
        manager.apply(operation)
    copy = manager.copy()
    hit = copy.apply(LookUp(1))
    assert isinstance(hit, Hit)
    assert 0 == hit.tokens
    copy.apply(Evict(1))
    happened = copy.apply(TakeEvents())
    assert isinstance(happened, Happened)
    assert {"Stored"} == {type(event).__name__ for event in happened.events}
