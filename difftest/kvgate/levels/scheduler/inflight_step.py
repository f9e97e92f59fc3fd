"""A step as the worker was sent it, and what becomes of it where a load within it fails."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, field, frozen

from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.levels.scheduler.nodes import OtherNodes


@frozen
class Sent:
    """A step in flight."""

    output: Any
    """What the scheduler said."""
    scheduled: tuple[str, ...]
    """Who computes, by vLLM's names."""
    sampled: Mapping[int, list[int]]
    """What the model answers to whom."""
    pooled: Collection[int]
    """Whose prompt the model answers."""
    spoilt: Mapping[int, int]
    """Of whom the step is worth nothing, since it follows from a load that fails: the tokens that are valid, except in
    blocks that another request of the step loads."""
    invalid: frozenset[int]
    """The blocks that loads within the step fail to write, as its output says to the scheduler."""
    drafts: Mapping[int, tuple[int, ...]]
    """Per request, the drafts that it verifies."""
    lives: Mapping[int, int]
    """Per request, how often it was preempted before."""
    rejected: dict[int, int] = field(factory=dict)
    """Per request, how many of them its grammar rejected after the step was sent."""
    late: set[int] = field(init=False, factory=set)
    """The requests to which what it answers counts for nothing: sessions of which a step before it answered the last
    token of a part, and requests that were preempted since, if their answers are dropped then."""
    failing: set[int] = field(init=False, default=Factory(lambda sent: set(sent.invalid), takes_self=True))
    """Of the invalid blocks, those that no later step has written since."""

    @property
    def answered(self) -> dict[int, list[int]]:
        """What the model answers that follows from no failed load, and that counts."""
        worthless = self.spoilt.keys() | self.late
        return {number: tokens for number, tokens in self.sampled.items() if number not in worthless}


@frozen
class SetBack:
    """A request that a failed load sets back, as it was before."""

    computed_before_step: int
    """How many of its tokens counted as computed, without those of the step whose load failed."""
    awaited: int
    """How many tokens steps in flight were to answer."""


def spoilt_by(
    nodes: OtherNodes, scheduler: Any, scheduled: Mapping[int, int], before: Iterable[Sent]
) -> tuple[dict[int, int], frozenset[int]]:
    """Whose step is worth nothing, and the blocks that loads within the step fail to write.

    A load fails, their own or that of a block that they share: within this step, or one ``before`` it in flight.
    """
    loads, nodes.within_step = nodes.within_step, {}
    invalid = frozenset[int]().union(*(load.invalid for load in loads.values()))
    earlier = [sent.failing for sent in before if sent.failing]
    wrong = invalid.union(*earlier)
    spoilt: dict[int, int] = {}
    for number, tokens in scheduled.items() if wrong else ():
        request, table = _books(scheduler, number)
        start = request.num_computed_tokens - tokens
        written = -(-start // nodes.block_tokens)
        if wrong.isdisjoint(table[:written]):
            for failing in earlier:
                failing.difference_update(table[written : -(-request.num_computed_tokens // nodes.block_tokens)])
        else:
            spoilt[number] = loads[number].valid if number in loads else start
    return spoilt, invalid


def set_back_by(
    sent: Sent, later: Sequence[Sent], nodes: OtherNodes, scheduler: Any, lives: Mapping[int, int]
) -> dict[int, int]:
    """From where each request computes again that relies on what loads within a step failed to write.

    Of several requests that share a block, the first computes it, and the others what follows from it. ``later`` are
    the steps in flight after it, and ``lives`` how often each request was preempted.
    """
    size, left, restarts = nodes.block_tokens, set(sent.failing), dict[int, int]()
    for request in scheduler.running if left else ():
        number = number_in(request.request_id)
        steps = [each for each in (sent, *later) if each.lives.get(number) == lives[number]]
        in_flight = sum(each.output.num_scheduled_tokens[request.request_id] for each in steps)
        start = request.num_computed_tokens - in_flight
        table = _books(scheduler, number)[1][: -(-start // size)]
        if not sent.failing.isdisjoint(table):
            restarts[number] = next((index * size for index, block in enumerate(table) if block in left), start)
            left.difference_update(table)
    for number, load in {**nodes.loading, **nodes.reported}.items() if sent.failing else ():
        # What it hit is worth nothing, so what it loads is not either.
        hit = _books(scheduler, number)[1][: load.start // size]
        failed = [index * size for index, block in enumerate(hit) if block in sent.failing]
        if failed:
            restarts[number] = failed[0]
            if number in nodes.loading:
                nodes.loading[number] = evolve(load, valid=failed[0])
    return restarts


def reusing(sent: Sent, holders: Iterable[int], nodes: OtherNodes, scheduler: Any) -> dict[int, int]:
    """Of the ``holders``, those that have a block that a step failed to load: how many tokens come before the first.

    They were given the blocks after that step.
    """
    found: dict[int, int] = {}
    # A scheduler that lost a request has no table of it. That it did is found where its requests are compared.
    for number in (each for each in holders if name_of(each) in scheduler.requests):
        table = _books(scheduler, number)[1]
        first = next((index for index, block in enumerate(table) if block in sent.invalid), None)
        if first is not None:
            found[number] = first * nodes.block_tokens
    return found


def _books(scheduler: Any, number: int) -> tuple[Any, Sequence[int]]:
    """What the scheduler knows of a request, and its blocks in the first group."""
    name = name_of(number)
    return scheduler.requests[name], scheduler.kv_cache_manager.get_block_ids(name)[0]
