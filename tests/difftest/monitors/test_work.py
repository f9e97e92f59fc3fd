"""The work monitor.

Goal: growth is reported, and nothing else. Method: a sound system with a meter that returns given values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.findings.register import with_ids
from kvgate.kernel.difference import Difference
from kvgate.monitors.work import SLACK, TWO_ENDS, Work, WorkMonitor
from kvreference.attention import Kind
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Dispatch, Finish, Operation, Preempt, Sample, Schedule
from kvreference.population import Request
from kvreference.rules import OWN_RULES, Rules

from .stage import FULL, arrive, settings_of, watch

SETTINGS = settings_of(FULL, blocks=64)
PROMPT = 8
NOTHING = Work(0, (0,), 0, 0)
ADMITTED: tuple[Operation, ...] = (arrive(0, PROMPT), Admit(0, 64))


class GivenMeter:
    """A meter that returns a given value for each operation, and no work for all others."""

    def __init__(self, *works: Work) -> None:
        self._works: Iterator[Work] = iter(works)

    def take(self) -> Work:
        return next(self._works, NOTHING)


def step(tokens: int) -> tuple[Operation, ...]:
    """An answer, and the decode step after it."""
    return Sample(0, 0, tokens, 0), Schedule(0, 64)


def watched(operations: tuple[Operation, ...], works: tuple[Work, ...]) -> Difference | None:
    """The monitor's report if a request is admitted and continues with ``operations``, which took ``works``."""
    monitor = WorkMonitor(SETTINGS, GivenMeter(NOTHING, NOTHING, *works))
    return watch(monitor, Reference(SETTINGS), *ADMITTED, *operations)


def decode(*works: Work) -> tuple[Work, ...]:
    """The work of answers and decode steps in turn, if only the decode steps took anything."""
    return tuple(each for work in works for each in (NOTHING, work))


def test_the_same_work_is_not_a_difference() -> None:
    """The control: steps inside one block, each as costly as the one before."""
    assert watched((*step(1), *step(2), *step(3)), decode(NOTHING, *[Work(0, (5,), 7, 3)] * 2)) is None


@pytest.mark.parametrize(
    ("grown", "subject"),
    [
        (Work(SLACK + 1, (0,), 0, 0), "hashes of a decode step"),
        (Work(0, (SLACK + 1,), 0, 0), "table entries in group 0 of a decode step"),
        (Work(0, (0,), SLACK + 1, 0), "links of the free queue of a decode step"),
        (Work(0, (0,), 0, SLACK + 1), "entries of the cached map of a decode step"),
    ],
)
def test_every_counter_can_grow(grown: Work, subject: str) -> None:
    """A step that looks like one before it, and takes more than the slack allows."""
    found = watched((*step(1), *step(2), *step(3)), decode(NOTHING, NOTHING, grown))
    at = "a context of 10 tokens, 60 blocks free"
    expected = f"0, as the same step took at {at}"
    assert Difference("KV-WORK-02", subject, expected, f"{SLACK + 1} at {at.replace('10', '11')}") == found


def test_a_little_more_is_not_growth() -> None:
    """As much as the slack allows, and not one operation more."""
    assert watched((*step(1), *step(2), *step(3)), decode(NOTHING, NOTHING, Work(0, (SLACK,), 0, 0))) is None


def test_a_step_that_gains_a_block_is_another_step() -> None:
    """Work that comes with a change is not growth: the first step after the prompt gains a block, the next do not."""
    costly = Work(0, (40,), 40, 40)
    assert watched((*step(1), *step(2)), decode(costly, NOTHING)) is None
    assert watched((*step(1), *step(2), *step(3)), decode(NOTHING, NOTHING, costly)) is not None


def test_answers_are_compared_too() -> None:
    """Hashes are computed where a request gets its token, before the step."""
    works = NOTHING, NOTHING, Work(0, (0,), 0, 0), NOTHING, Work(SLACK + 1, (0,), 0, 0)
    found = watched((*step(1), *step(2), *step(3)), works)
    assert found is not None
    assert ("KV-WORK-02", "hashes of an answer") == (found.statement, found.subject)


def most_links_of_a_drop(scratch_first: bool) -> int:
    """How many links a window's drop may take, after one that took none."""
    settings = settings_of(Group(Kind.SLIDING_WINDOW, 4, 4), blocks=64, tokens_max=32, scratch_first=scratch_first)
    steps = [each for token in range(1, 9) for each in step(token)]
    for links in range(SLACK + 3 * TWO_ENDS):
        monitor = WorkMonitor(settings, GivenMeter(*[NOTHING] * (len(steps) + 1), Work(0, (0,), links, 0)))
        if watch(monitor, Reference(settings), *ADMITTED, *steps) is not None:
            return links - 1
    raise AssertionError("any number may be taken")


def test_a_group_may_release_to_both_ends_of_the_queue() -> None:
    """Where scratch goes first, a drop of scratch and of what is cached takes a few links more than one of either."""
    assert most_links_of_a_drop(scratch_first=True) - most_links_of_a_drop(scratch_first=False) == TWO_ENDS


NULLS = 9
"""How many null blocks a prompt of 40 tokens adds to a table of states with blocks of 4."""


def given_states(rules: Rules, *reads: int) -> Difference | None:
    """The difference at the first decode step after a chunk that reads ``reads`` entries, and no entry before."""
    settings = settings_of(FULL, Group(Kind.MAMBA, 4, states=StateMode.ALIGN), tokens_max=80)
    nothing = Work(0, (0, 0), 0, 0)
    monitor = WorkMonitor(settings, GivenMeter(*[nothing] * 11, Work(0, reads, 0, 0)), rules)
    first = (arrive(0, 40), Admit(0, 40), Dispatch(), Sample(0, 0, 1, 0), Schedule(0, 64), Dispatch(), Finish(0))
    second = (arrive(1, 40, 100), Admit(1, 40), Dispatch(), Sample(1, 0, 1, 0), Schedule(1, 64))
    return watch(monitor, Reference(settings), *first, *second)


def test_null_blocks_are_gone_over_where_a_rule_says_so() -> None:
    """Goal: finding 059 is narrow. Method: null blocks of states, one entry more, as many of another group; and the
    same without it."""
    (finding,) = with_ids(["059-null-blocks-gone-over-once"])
    rules = Rules(finding.acts(SETTINGS, "0.33.0").deltas)
    assert given_states(rules, 0, NULLS + SLACK) is None
    assert given_states(OWN_RULES, 0, SLACK) is None
    for base, *reads in ((rules, 0, NULLS + SLACK + 1), (rules, SLACK + 1, 0), (OWN_RULES, 0, SLACK + 1)):
        found = given_states(base, *reads)
        assert found is not None
        assert "KV-WORK-02" == found.statement


def test_an_offer_is_made_once() -> None:
    """The same block or boundary again, in a later step of one admission."""
    once = Work(0, (0,), 0, 0, ("block 0 in group 0",))
    found = watched((*step(1), *step(2)), decode(once, once))
    assert found is not None
    assert ("KV-WORK-01", "request 0: block 0 in group 0") == (found.statement, found.subject)
    other = Work(0, (0,), 0, 0, ("block 1 in group 0",))
    assert watched((*step(1), *step(2)), decode(once, other)) is None


def test_a_readmitted_request_offers_again() -> None:
    """An admission, a preemption, another admission; and another request has offers of its own."""
    once = Work(0, (0,), 0, 0, ("block 0 in group 0",))
    works = NOTHING, once, NOTHING, NOTHING, once
    again = (*step(1), Preempt(0), Admit(0, 64))
    assert watched(again, (NOTHING, once, NOTHING, once)) is None
    assert watched((*step(1), Finish(0), arrive(1, PROMPT), Admit(1, 64)), works) is None


def test_at_rest_nothing_is_left_to_say() -> None:
    """Every step was checked when it was done."""
    system = Reference(SETTINGS)
    assert [] == list(WorkMonitor(SETTINGS, GivenMeter()).at_rest(system))


def test_a_step_that_passes_an_alignment_looks_at_what_waited_for_it() -> None:
    """Masked caching looks at entries together, as many as wait: two more each, and no more elsewhere."""
    group = Group(Kind.SLIDING_WINDOW, 4, 8)
    settings = evolve(SETTINGS, geometry=Geometry((Group(Kind.FULL, 16), group)), retention_interval_tokens=16)
    request = Request(0, [0] * 20, Keys(), True, prompt_tokens=8)
    monitor = WorkMonitor(settings, GivenMeter())
    for known, entries in ((15, 8), (16, 0), (14, 8)):
        request.tokens_computed, monitor._known[0] = 17, known
        assert entries == monitor._looked_at(request, 1)
        assert entries // 4 == monitor._looked_at(request, 0)
    assert 0 == WorkMonitor(evolve(settings, retention_interval_tokens=None), GivenMeter())._looked_at(request, 1)
