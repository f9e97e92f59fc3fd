"""Random operations on small systems: what must hold after every one of them, whatever they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvreference.answers import Answer, Granted, Happened, Hit, Refused
from kvreference.manager import Manager, step
from kvreference.operations import Abort, Admit, LookUp, Operation, Sample, Schedule
from kvreference.population import Status
from kvreference.settings import Settings
from kvreference.snapshot import check

from .naive import Ledger, spelled
from .stage import seen
from .strategies import settings_of_systems, traces


def check_slots(before: Manager, after: Manager, operation: Admit | Schedule, answer: Granted) -> None:
    """Every token computed has a slot that nobody else holds, and all that it reads is in the request's table."""
    number = operation.request
    start = before.population[number].tokens_computed + answer.hit_tokens
    end = after.population[number].tokens_computed
    for group, table in zip(after.geometry.groups, after.tables[number], strict=True):
        size = group.block_size_tokens
        first = 0 if group.window_tokens is None else max(0, start - group.window_tokens + 1)
        assert 0 not in {table.blocks[token // size] for token in range(first, end)}
        assert {1} == {after.pool.references[table.blocks[token // size]] for token in range(start, end)}


def check_tables(manager: Manager, ledger: Ledger) -> None:
    """A cached block in a request's table holds what that request needs there."""
    for number, tables in manager.tables.items():
        for group, table in enumerate(tables):
            for position, block in enumerate(table.blocks):
                if block in ledger.filled:
                    expected = spelled(manager.geometry, manager.population[number], group, position)
                    assert expected == ledger.filled[block]


def check_hits(manager: Manager, ledger: Ledger) -> int:
    """Every waiting request's hit is the one found by scanning; the longest of them."""
    longest = 0
    for number, request in manager.population.alive.items():
        if request.status is Status.WAITING:
            reads = manager.settings.caches and request.reads_cache
            expected = ledger.longest_hit(request) if reads else Hit(0, ((),) * len(manager.geometry.groups))
            assert expected == manager.copy().apply(LookUp(number))
            longest = max(longest, expected.tokens)
    return longest


def witness(operation: Operation, answer: Answer, before: Manager, after: Manager) -> list[str]:
    """Which of the things that a trace should reach were reached by one operation."""
    reached = []
    if isinstance(answer, Refused):
        reached.append("gate" if answer.gate else f"{type(operation).__name__} refused")
    if isinstance(answer, Granted) and answer.hit_tokens:
        reached.append("hit")
        if after.population[operation.request].preemptions:  # type: ignore[union-attr]
            reached.append("resumed with a hit")
    if isinstance(operation, Sample):
        in_flight = before.population[operation.request].drafts_in_flight
        reached += ["accepted"] * (operation.accepted > 0) + ["rejected"] * (operation.accepted < in_flight)
    entries = after.snapshot().entries.values()
    reached += ["duplicates"] * any(len(blocks) > 1 for blocks in entries)
    reached += ["recycled"] * any(0 in table.blocks for tables in after.tables.values() for table in tables)
    reached += ["shared"] * any(count > 1 for count in after.pool.references)
    return reached


def run(system: Settings, trace: Sequence[Operation], reached: Counter[str]) -> None:
    """Perform a trace, and check after every operation."""
    manager = Manager(system)
    ledger = Ledger(system.geometry)
    for raw in trace:
        operation = manager.population.resolve(raw)
        if operation is None:
            continue
        assert operation == manager.population.resolve(operation)
        before, given_requests = seen(manager), manager.population.copy().alive
        after, answer = step(manager, operation)
        assert before == seen(manager)
        assert given_requests == manager.population.alive
        assert [] == check(after.snapshot())
        if isinstance(operation, (Admit, Schedule)) and isinstance(answer, Granted):
            check_slots(manager, after, operation, answer)
        if isinstance(answer, Refused) and system.full_sequence_must_fit and isinstance(operation, Admit):
            assert answer.gate, "what passes the gate is never refused its first chunk"
        ledger.observe(after, operation, answer)
        check_tables(after, ledger)
        reached["longest hit"] = max(reached["longest hit"], check_hits(after, ledger))
        reached.update(witness(operation, answer, manager, after))
        assert answer == manager.apply(operation)
        assert seen(after) == seen(manager)


def shortest(system: Settings, trace: Sequence[Operation]) -> list[Operation]:
    """A failing trace without whatever it fails without: far quicker than to shrink what it was drawn from."""
    kept = list(trace)
    for position in reversed(range(len(trace))):
        shorter = kept[:position] + kept[position + 1 :]
        try:
            run(system, shorter, Counter())
        except Exception:
            kept = shorter
    return kept


def test_what_holds_after_every_operation() -> None:
    """Goal: the invariants hold, a step leaves its state alone, a hit is what a scan finds, a token has its slots.

    Method: a hundred traces, always the same; together they reach what they are meant to reach.
    """
    reached: Counter[str] = Counter()

    @settings(derandomize=True, max_examples=100, deadline=None, phases=[Phase.generate])
    @given(settings_of_systems, traces)
    def try_one(system: Settings, trace: list[Operation]) -> None:
        try:
            run(system, trace, reached)
        except Exception as error:
            raise AssertionError(f"{system}: {shortest(system, trace)}") from error

    try_one()
    for what in (
        "gate",
        "Admit refused",
        "Schedule refused",
        "hit",
        "resumed with a hit",
        "accepted",
        "rejected",
        "duplicates",
        "recycled",
        "shared",
    ):
        assert reached[what] > 0, what
    assert reached["longest hit"] >= 8


def perform_all(system: Settings, trace: Sequence[Operation]) -> tuple[Manager, list[tuple[Operation, Answer]]]:
    """Perform what a trace stands for; what was performed, each with its answer."""
    manager = Manager(system)
    performed = []
    for raw in trace:
        operation = manager.population.resolve(raw)
        if operation is not None:
            performed.append((operation, manager.apply(operation)))
            assert [] == check(manager.snapshot())
    return manager, performed


@settings(derandomize=True, max_examples=40, deadline=None, phases=[Phase.generate])
@given(settings_of_systems, traces, st.data())
def test_every_part_of_a_trace_is_legal(system: Settings, trace: list[Operation], data: st.DataObject) -> None:
    """Goal: a trace can be cut down to what matters, and replayed. Method: drop any operations from what was
    performed, and perform the rest; perform all of it once more, and compare.
    """
    _, performed = perform_all(system, trace)
    operations = [operation for operation, _ in performed]
    kept = data.draw(st.lists(st.booleans(), min_size=len(operations), max_size=len(operations)))
    perform_all(system, [operation for operation, keep in zip(operations, kept, strict=True) if keep])
    _, again = perform_all(system, operations)
    assert _comparable(performed) == _comparable(again)


def _comparable(performed: list[tuple[Operation, Answer]]) -> list[object]:
    """What was performed and answered. Identities in events are of one manager, so events count by their kind."""
    return [
        (operation, [type(event) for event in answer.events] if isinstance(answer, Happened) else answer)
        for operation, answer in performed
    ]


@settings(derandomize=True, max_examples=40, deadline=None, phases=[Phase.generate])
@given(settings_of_systems, traces)
def test_nothing_remains_of_requests_that_ended(system: Settings, trace: list[Operation]) -> None:
    """Goal: nothing leaks. Method: after any trace, abort everyone: all blocks are free, no table or prefix is left."""
    manager, _ = perform_all(system, trace)
    for number in list(manager.population.alive):
        manager.apply(Abort(number))
    assert set(range(1, system.blocks)) == set(manager.pool.free)
    assert ({}, {}) == (manager.tables, manager.prefixes)
    assert [0] * system.blocks == manager.pool.references
