"""Random operations on small systems: what must hold after every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvreference.answers import Answer, Copies, Granted, Happened, Hit, Refused
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.manager import Manager, step
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    LookUp,
    Operation,
    Run,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.population import Status
from kvreference.settings import Settings
from kvreference.snapshot import check

from .naive import Ledger, spelled, tokens_read
from .naive_pins import Pins
from .stage import seen
from .strategies import (
    ALL_GEOMETRIES,
    COPYING_GEOMETRIES,
    GEOMETRIES,
    MORE_GEOMETRIES,
    STATE_GEOMETRIES,
    budgets,
    continued,
    settings_of_systems,
    starts,
    systems_of,
    traces,
)


def check_slots(before: Manager, after: Manager, operation: Admit | Schedule, answer: Granted) -> None:
    """Every token computed has a slot that no other request holds, and all that it reads is in the request's table."""
    number = operation.request
    request = after.population[number]
    start = before.population[number].tokens_computed + answer.hit_tokens + answer.external_tokens
    end = request.tokens_computed
    # A block that has arrived as a whole may be shared by the time that its last token is computed again.
    again = isinstance(operation, Admit) and number in before.tables and start == len(request.tokens) - 1
    for group, table in zip(after.geometry.groups, after.tables[number], strict=True):
        if group.kind is Kind.MAMBA:
            check_states(group, table.blocks, end, after)
            continue
        size = group.block_size_tokens
        first = tokens_read(group, start).start
        assert 0 not in {table.blocks[token // size] for token in range(first, end)}
        holders = {after.pool.references[table.blocks[token // size]] for token in range(start, end)}
        assert holders <= {1} or again


def check_states(group: Group, table: list[int], end: int, manager: Manager) -> None:
    """The last token computed has a state, and so has each draft after it."""
    running = len(table) - 1 - group.draft_states
    assert running >= (end - 1) // group.block_size_tokens
    if group.states is StateMode.ALIGN:
        assert 1 + group.draft_states == len({*table[running:]} - {0})
        assert {1} == {manager.pool.references[block] for block in table[running:]}
    else:
        assert 0 not in table[max(0, end - 1 - group.draft_states) // group.block_size_tokens :]


def check_bounds(manager: Manager) -> None:
    """No request holds more at once than its kind allows: that is what the admission gate counts on."""
    for tables in manager.tables.values():
        for group, table in zip(manager.geometry.groups, tables, strict=True):
            chunk = manager.settings.chunk_tokens + manager.settings.lookahead_tokens
            assert len(table.live()) <= group.blocks_held_at_most(chunk, manager.settings.tokens_max)


def check_tables(manager: Manager, ledger: Ledger) -> None:
    """A cached block in a request's table holds what that request needs there."""
    for number, tables in manager.tables.items():
        for index, table in enumerate(tables):
            size = manager.geometry.groups[index].block_size_tokens
            for position, block in enumerate(table.blocks):
                if block in ledger.filled:
                    expected = spelled(manager.population[number], index, (position + 1) * size)
                    assert expected == ledger.filled[block]


def check_hits(manager: Manager, ledger: Ledger) -> int:
    """The hit of every request that may look is the one found by scanning; the longest of them."""
    longest = 0
    for number, request in manager.population.alive.items():
        if request.status is Status.WAITING and not request.tokens_computed:
            expected = ledger.longest_hit(request)
            assert expected == manager.copy().apply(LookUp(number))
            longest = max(longest, expected.tokens)
    return longest


def hit_of(manager: Manager, ledger: Ledger, operation: Operation) -> Hit:
    """The blocks that an operation is about to hold, by scanning."""
    nothing = Hit(0, ((),) * len(manager.geometry.groups))
    if not isinstance(operation, Admit) or manager.population[operation.request].tokens_computed:
        return nothing
    return ledger.longest_hit(manager.population[operation.request])


def check_answer(before: Manager, after: Manager, operation: Admit | Schedule, answer: Answer, ready: bool) -> None:
    """A request that is not ready is rejected; one rejected for want of blocks takes more than are free."""
    loaded = before.population[operation.request].tokens_computed > 0
    if not ready:
        assert isinstance(answer, Refused)
    elif isinstance(answer, Refused) and isinstance(operation, Admit):
        # After a load come look-ahead slots, which no gate counts.
        assert answer.gate or loaded or not before.settings.full_sequence_must_fit
    elif isinstance(answer, Refused):
        assert isinstance(operation, Schedule)
        assert blocks_wanted(before, after, operation) > len(after.pool.free) + len(after.pool.pinned_blocks().queue)


def blocks_wanted(before: Manager, after: Manager, operation: Schedule) -> int:
    """How many new blocks a step of a running request takes."""
    request = before.population[operation.request]
    tokens = request.tokens_computed + before.population.tokens_to_schedule(request, operation.tokens)
    slots = min(tokens + before.settings.lookahead_tokens, before.settings.tokens_max)
    wanted = 0
    for group, table in zip(after.geometry.groups, after.tables[operation.request], strict=True):
        aligned = group.states is StateMode.ALIGN
        size, last = group.block_size_tokens, (tokens if aligned else slots) - 1
        more = max(0, last // size + 1 + group.draft_states - len(table.blocks))
        wanted += min(more, 1) if aligned else more
    return wanted


def check_copies(before: Manager, after: Manager, hit: Hit, answer: Granted) -> None:
    """A hit inside a block is copied into the block after the full ones, and every copy is reported once."""
    added = after.copies[len(before.copies) :]
    assert before.copies == after.copies[: len(before.copies)]
    assert [(partial.group, partial.source, partial.tokens) for partial in hit.partials] == [
        (copy.group, copy.source, copy.tokens) for copy in added
    ]
    assert [answer.blocks[copy.group][0] for copy in added] == [copy.destination for copy in added]


def witness(operation: Operation, answer: Answer, before: Manager, after: Manager) -> list[str]:
    """Which of the things that a trace should reach were reached by one operation."""
    reached = []
    if isinstance(answer, Refused):
        reached.append("gate" if answer.gate else f"{type(operation).__name__} rejected")
    if isinstance(answer, Granted):
        assert isinstance(operation, (Admit, Schedule))
        preempted = after.population[operation.request].preemptions
        reached += ["hit", *["resumed with a hit"] * (preempted > 0)] * (answer.hit_tokens > 0)
        reached += ["loads" if answer.loads else "provided"] * (answer.external_tokens > 0)
    if isinstance(operation, Sample):
        in_flight = before.population[operation.request].drafts_in_flight
        reached += ["accepted"] * (operation.accepted > 0) + ["rejected"] * (operation.accepted < in_flight)
    if isinstance(operation, Transferred):
        reached.append(f"transfer {before.population[operation.request].status.value} {operation.succeeded}")
    entries = after.snapshot().entries.values()
    reached += ["duplicates"] * any(len(blocks) > 1 for blocks in entries)
    reached += ["recycled"] * any(0 in table.blocks for tables in after.tables.values() for table in tables)
    reached += ["shared"] * any(count > 1 for count in after.pool.references)
    reached += ["copied"] * (len(after.copies) > len(before.copies))
    return reached


def run(system: Settings, trace: Sequence[Operation], reached: Counter[str]) -> None:
    """Perform a trace, and check after every operation."""
    manager = Manager(system)
    ledger, pins = Ledger(system), Pins(system.pin_drop_blocks_min)
    for raw in trace:
        operation = manager.population.resolve(raw)
        if operation is None:
            continue
        assert operation == manager.population.resolve(operation)
        before, given_requests = seen(manager), manager.population.copy().alive
        hit = hit_of(manager, ledger, operation)
        after, answer = step(manager, operation)
        assert before == seen(manager)
        assert given_requests == manager.population.alive
        assert [] == check(after.snapshot())
        if isinstance(operation, (Admit, Schedule)):
            ready = ledger.is_ready(manager.population[operation.request], hit)
            check_answer(manager, after, operation, answer, ready)
            if isinstance(answer, Granted):
                assert hit.tokens == answer.hit_tokens
                check_slots(manager, after, operation, answer)
                check_copies(manager, after, hit, answer)
            reached["not ready"] += not ready
        if isinstance(answer, Copies):
            assert (tuple(manager.copies), []) == (answer.copies, after.copies)
        check_bounds(after)
        ledger.observe(manager, operation, answer, after)
        pins.observe(manager, operation, answer, after, hit)
        check_tables(after, ledger)
        reached["longest hit"] = max(reached["longest hit"], check_hits(after, ledger))
        reached.update(witness(operation, answer, manager, after))
        assert answer == manager.apply(operation)
        assert seen(after) == seen(manager)
    reached["demoted"] += pins.demotions


def shortest(system: Settings, trace: Sequence[Operation]) -> list[Operation]:
    """A failing trace without the operations that it fails without: far quicker than to shrink what it was
    drawn from.
    """
    kept = list(trace)
    for position in reversed(range(len(trace))):
        shorter = kept[:position] + kept[position + 1 :]
        try:
            run(system, shorter, Counter())
        except Exception:
            kept = shorter
    return kept


FAMILIES = ((*GEOMETRIES, *MORE_GEOMETRIES), COPYING_GEOMETRIES, STATE_GEOMETRIES)
WITNESSES = (
    *("gate", "Admit rejected", "Schedule rejected", "hit", "resumed with a hit", "accepted", "rejected"),
    *("duplicates", "recycled", "shared", "copied", "not ready", "demoted", "loads", "provided"),
    *(f"transfer {status} {succeeded}" for status in ("loading", "ending") for succeeded in (True, False)),
)


@pytest.mark.ci
def test_what_holds_after_every_operation() -> None:
    """Goal: the invariants hold, and a step leaves its state alone. A hit is what a scan finds, and is served as
    reported. A token has its slots. Exactly the right blocks are cached and pinned, and exactly the right requests are
    rejected.

    Method: fifty traces, always the same, for windows, for copies and for states; together they reach what they are
    meant to reach.
    """
    reached: Counter[str] = Counter()

    def try_one(system: Settings, trace: list[Operation]) -> None:
        try:
            run(system, trace, reached)
        except Exception as error:
            raise AssertionError(f"{system}: {shortest(system, trace)}") from error

    for geometries in FAMILIES:
        each = settings(derandomize=True, max_examples=50, deadline=None, phases=[Phase.generate])
        each(given(systems_of(*geometries), traces)(try_one))()
    assert [] == [what for what in WITNESSES if not reached[what]]
    assert reached["longest hit"] >= 8


def perform_all(system: Settings, trace: Sequence[Operation]) -> tuple[Manager, list[tuple[Operation, Answer]]]:
    """Perform a trace; return the performed operations, each with its answer."""
    manager = Manager(system)
    return manager, perform_each(manager, trace)


def perform_each(manager: Manager, trace: Sequence[Operation]) -> list[tuple[Operation, Answer]]:
    """The same, on a manager that is there."""
    performed = []
    for raw in trace:
        operation = manager.population.resolve(raw)
        if operation is not None:
            performed.append((operation, manager.apply(operation)))
            assert [] == check(manager.snapshot())
    return performed


@pytest.mark.ci
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
    """The performed operations and their answers. Identities in events are of one manager, so events count by their
    kind.
    """
    return [
        (operation, [type(event) for event in answer.events] if isinstance(answer, Happened) else answer)
        for operation, answer in performed
    ]


@settings(derandomize=True, max_examples=40, deadline=None, phases=[Phase.generate])
@given(settings_of_systems, traces)
def test_nothing_remains_of_requests_that_ended(system: Settings, trace: list[Operation]) -> None:
    """Goal: nothing leaks. Method: after any trace, abort everyone and let every transfer end: all blocks are free or
    pinned, no table, prefix or copy is left.
    """
    manager, _ = perform_all(system, trace)
    manager.apply(Dispatch())
    for number, request in list(manager.population.alive.items()):
        if request.status is not Status.ENDING:
            manager.apply(Abort(number))
        if number in manager.population.alive:
            manager.apply(Transferred(number))
    assert set(range(1, system.blocks)) == {*manager.pool.free, *manager.pool.pinned_blocks().queue}
    assert ({}, {}, []) == (manager.tables, manager.prefixes, manager.copies)
    assert [0] * system.blocks == manager.pool.references


REPLAYED = tuple(
    geometry
    for geometry in ALL_GEOMETRIES
    if geometry.groups[0].keeps_all and all(group.states in (None, StateMode.ALL) for group in geometry.groups)
)
"""Where a hit of nothing needs something, and what is cached does not depend on where chunks end."""


@settings(derandomize=True, max_examples=40, deadline=None, phases=[Phase.generate])
@given(
    systems_of(*REPLAYED, blocks=1000, drafts_max=0, caches=True),
    st.lists(st.tuples(st.one_of(starts, continued), st.lists(budgets, min_size=1)), min_size=1, max_size=5),
)
def test_a_replay_hits_its_latest_boundary(system: Settings, served: list[tuple[tuple[Run, ...], list[int]]]) -> None:
    """Goal: if nothing cached was lost, resending a computed prompt hits the last possible boundary under any
    retention. Method: prompts that share, computed one after the other in chunks of any size; each is then asked for
    again.
    """
    manager, geometry = Manager(system), system.geometry
    for prompt, chunks in served:
        number, budget = manager.population.arrived, cycle(chunks)
        perform_each(manager, [Arrive(number, prompt), Admit(number, next(budget)), Dispatch()])
        while not manager.population[number].answers_next:
            perform_each(manager, [Schedule(number, next(budget)), Dispatch()])
        tokens = manager.population[number].prompt_tokens
        perform_each(manager, [Finish(number), Arrive(number + 1, prompt)])
        hit = manager.apply(LookUp(number + 1))
        assert isinstance(hit, Hit)
        boundaries = range(geometry.alignment_tokens, tokens - geometry.lookahead_tokens, geometry.alignment_tokens)
        assert max(boundaries, default=0) == hit.tokens
        manager.apply(Abort(number + 1))
