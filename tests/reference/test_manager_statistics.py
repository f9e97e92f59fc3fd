"""Prefix-cache statistics: every look-up counts once, in tokens, those of preempted requests apart."""

from __future__ import annotations

import pytest

from kvreference.answers import Refused, Statistics
from kvreference.operations import Admit, Finish, LookUp, Preempt, Reset, TakeStatistics

from .stage import BUDGET, FULL, arrive, enter, manager_of, pass_through, perform


def test_look_ups_and_admissions_count() -> None:
    """Goal: tokens asked for, tokens hit. Method: 40 tokens miss; they are looked up and admitted again: 32 each."""
    manager = manager_of(FULL)
    pass_through(manager, 0, 40)
    perform(manager, arrive(1, 40), LookUp(1), Admit(1, BUDGET))
    assert Statistics(requests=3, queries_tokens=120, hits_tokens=64) == perform(manager, TakeStatistics())


def test_they_are_taken_once() -> None:
    """Goal: an interval's numbers are its own. Method: take, and take again."""
    manager = manager_of(FULL)
    pass_through(manager, 0, 40)
    assert Statistics(requests=1, queries_tokens=40) == perform(manager, TakeStatistics())
    assert Statistics() == perform(manager, TakeStatistics())


def test_preempted_requests_count_apart() -> None:
    """Goal: hits that only repair a preemption do not flatter the cache. Method: preempt a request of 40 tokens.

    Its second look-up, 40 asked for and 32 hit, stands apart; the first does not.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 40)
    perform(manager, Preempt(0), LookUp(0), Admit(0, BUDGET))
    expected = Statistics(
        requests=1,
        queries_tokens=40,
        preempted_requests=2,
        preempted_queries_tokens=80,
        preempted_hits_tokens=64,
    )
    assert expected == perform(manager, TakeStatistics())


def test_a_rejected_admission_counts() -> None:
    """Goal: the look-up happened. Method: 161 tokens and ten usable blocks."""
    manager = manager_of(FULL, blocks=11)
    assert isinstance(enter(manager, 0, 161), Refused)
    assert Statistics(requests=1, queries_tokens=161) == perform(manager, TakeStatistics())


@pytest.mark.parametrize(("caches", "reads_cache"), [(False, True), (True, False)])
def test_a_request_that_may_not_read_does_not_count(caches: bool, reads_cache: bool) -> None:
    """Goal: a request that never asks the cache is not a miss. Method: caching off, and a request kept from it."""
    manager = manager_of(FULL, caches=caches)
    enter(manager, 0, 40, reads_cache=reads_cache)
    assert Statistics() == perform(manager, TakeStatistics())


def test_a_reset_is_marked_if_it_happens() -> None:
    """Goal: counts from before and after a reset are not mixed silently. Method: rejected while held; then not.

    What was counted before the reset stays counted.
    """
    manager = manager_of(FULL)
    enter(manager, 0, 40)
    perform(manager, Reset())
    assert Statistics(requests=1, queries_tokens=40) == perform(manager, TakeStatistics())
    perform(manager, arrive(1, 40), LookUp(1), Finish(0), Reset())
    assert Statistics(requests=1, queries_tokens=40, hits_tokens=32, reset=True) == perform(manager, TakeStatistics())
    assert Statistics() == perform(manager, TakeStatistics())
