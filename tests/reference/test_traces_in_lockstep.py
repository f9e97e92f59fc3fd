"""The same random operations on two systems that differ in one setting: what must not depend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import evolve
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvreference.answers import Answer, Granted, Hit, Refused
from kvreference.geometry import Geometry
from kvreference.manager import Manager
from kvreference.operations import Arrive, Evict, Operation
from kvreference.settings import Settings

from .strategies import ALL_GEOMETRIES, systems_of, traces

SLIDING = tuple(geometry for geometry in ALL_GEOMETRIES if any(group.slides for group in geometry.groups))
Reported = TypeVar("Reported")

PLENTY = 1000
"""Blocks enough that nothing cached is ever taken."""

each_trace = settings(derandomize=True, max_examples=40, deadline=None, phases=[Phase.generate])


def in_lockstep(
    trace: Sequence[Operation], systems: Sequence[Settings], reported: Callable[[Answer], Reported]
) -> list[Reported]:
    """Perform a trace on all ``systems``, which must report the same in every answer; return all reports.

    Blocks are evicted by their ids, which differ: so none is.
    """
    managers = [Manager(system) for system in systems]
    everything = []
    for raw in trace:
        operation = managers[0].population.resolve(raw)
        if operation is None or isinstance(operation, Evict):
            continue
        answers = [reported(manager.apply(operation)) for manager in managers]
        assert [answers[0]] * len(answers) == answers, operation
        everything.append(answers[0])
    return everything


def _hits(answer: Answer) -> tuple[type, int]:
    return type(answer), answer.tokens if isinstance(answer, Hit) else getattr(answer, "hit_tokens", 0)


def _masked(geometry: Geometry) -> st.SearchStrategy[Settings]:
    return systems_of(
        geometry, blocks=PLENTY, drafts_max=0, caches=True, retention_interval_tokens=geometry.alignment_tokens
    )


def test_masked_caching_loses_no_hit() -> None:
    """Goal: no hit could have read the blocks that masked caching leaves out. Method: dense and masked, on the same
    traces, in pools so large that nothing is lost: the same hits. Without drafts: accepted ones may outrun a window.
    """
    longest: Counter[bool] = Counter()

    @each_trace
    @given(st.sampled_from(SLIDING).flatmap(_masked), traces)
    def try_one(system: Settings, trace: list[Operation]) -> None:
        dense = evolve(system, retention_interval_tokens=None)
        reported = in_lockstep(trace, [dense, system], _hits)
        longest[any(hit_tokens for _, hit_tokens in reported)] += 1

    try_one()
    assert longest[True] >= 20


@each_trace
@given(systems_of(*ALL_GEOMETRIES, blocks=PLENTY, scratch_first=False), traces)
def test_scratch_first_changes_no_hit_while_nothing_is_lost(system: Settings, trace: list[Operation]) -> None:
    """Goal: which block is allocated first decides only what is lost. Method: both orders, pools of plenty."""
    in_lockstep(trace, [system, evolve(system, scratch_first=True)], _hits)


def _outcome(answer: Answer) -> tuple[type, bool | None]:
    return type(answer), answer.gate if isinstance(answer, Refused) else None


def test_pins_refuse_nothing() -> None:
    """Goal: with everything pinned an allocation succeeds if and only if it would have without pins. Method: no request
    reads the cache, so that hits cannot differ; the same traces with pins, short drops too, and without: the same
    rejections.
    """
    refused: Counter[tuple[type, bool | None]] = Counter()

    @each_trace
    @given(systems_of(*ALL_GEOMETRIES, pin_drop_blocks_min=None), traces)
    def try_one(system: Settings, trace: list[Operation]) -> None:
        unread = [evolve(raw, reads_cache=False) if isinstance(raw, Arrive) else raw for raw in trace]
        refused.update(in_lockstep(unread, [system, evolve(system, pin_drop_blocks_min=1)], _outcome))

    try_one()
    for outcome in [(Granted, None), (Refused, True), (Refused, False)]:
        assert refused[outcome] >= 20
