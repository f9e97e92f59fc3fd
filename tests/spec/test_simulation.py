"""The simulation: which transitions each operation consists of.

Goal: an operation that calls something else of the kernel is noticed, and so is one of which no proof shows what it
calls. Method: read the calls from the source, compare them with the table and the traces of the proofs; break each.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.drive import drive
from kvgate.explore.invariants import Checks, no_invariants, nothing_in_flight
from kvgate.explore.tiny_models import MODELS
from kvgate.explore.walk import walk
from kvgate.kernel.models import load
from kvreference.manager import _PERFORM, Manager
from kvreference.operations import (
    Continue,
    Finish,
    LookUp,
    Pause,
    Preempt,
    Reset,
    Rewind,
    Sample,
    Schedule,
    Transferred,
)
from kvspec.executed import stored
from kvspec.kernel import writers
from kvspec.obligation import Tier
from kvspec.pool.invariants import INVARIANTS
from kvspec.pool.transitions import Demote, Drop, Move
from kvspec.proofs import running_operations
from kvspec.prover import run
from kvspec.registry import obligations
from kvspec.running import Running
from kvspec.simulation import EFFECTS, ENTRIES, SIMULATION, Kind, Row, begins_with, proofs_of_effect, reached


def _misses(kind: Kind, row: Row, changed: dict[str, ast.FunctionDef]) -> set[str]:
    """What the source calls and the table does not name, or the other way round."""
    return set(reached(begins_with(kind), kind, changed)) ^ {*row.calls, *row.never}


def test_every_operation_is_in_the_table() -> None:
    """All that a manager performs, and the end of a step in flight."""
    assert {*_PERFORM, type(None)} == set(SIMULATION)
    assert set(EFFECTS) == ENTRIES


@pytest.mark.parametrize("kind", SIMULATION, ids=lambda kind: kind.__name__)
def test_each_calls_what_the_table_says(kind: Kind) -> None:
    """By the call graph of the source: each function of the kernel that it can reach, and no other one."""
    row = SIMULATION[kind]
    assert set() == _misses(kind, row, {})
    assert not row.never & set(row.calls)


@pytest.mark.parametrize("kind", SIMULATION, ids=lambda kind: kind.__name__)
def test_each_is_performed_as_a_whole_by_a_proof(kind: Kind) -> None:
    """By the trace: it runs what performs the operation, and each other proof of its row is for all sizes, too."""
    row = SIMULATION[kind]
    for name in begins_with(kind):
        assert any(name in stored()[each] for each in row.whole), name
    for proofs in (row.whole, *row.calls.values(), *row.counts.values()):
        assert proofs
        assert {Tier.ALL} == {obligations()[each].tier for each in proofs}
    for name, proofs in row.calls.items():
        assert any({name, *begins_with(kind)} & {*stored()[each]} for each in (*row.whole, *proofs)), name


@pytest.mark.parametrize("name", EFFECTS)
def test_each_effect_is_proved_of_what_runs(name: str) -> None:
    """By the trace; to make room is to demote, and nothing else."""
    for each in proofs_of_effect(name):
        assert Tier.ALL is obligations()[each].tier
    assert any(name in stored()[each] for each in proofs_of_effect(name))
    if EFFECTS[name] == (Demote,):
        assert {"_unpin"} == writers()[name]


def _followed(proof: str) -> set[type]:
    """The transitions that a proof compares the running pool with."""
    found, follow = set[type](), Running.follow

    def notes(self: Running, transition: Any, at: Any = None) -> None:
        found.add(transition)
        follow(self, transition, at)

    with patch.object(Running, "follow", notes):
        run(obligations()[proof], 40)
    return found


COUNTS_ONLY = "pinned-tier.makes-room-if-possible"
"""How many are demoted; that each demotion is one is shown by another proof, which is named, too."""


@pytest.mark.ci
@pytest.mark.parametrize("proof", sorted({each for name in EFFECTS for each in proofs_of_effect(name)} - {COUNTS_ONLY}))
def test_each_effect_is_what_its_proof_follows(proof: str) -> None:
    """What all functions that it is named for do; a move changes no holder, so that no pool shows it."""
    does = {each for name in EFFECTS if proof in proofs_of_effect(name) for each in EFFECTS[name]}
    assert does - {Move} == _followed(proof)


def test_each_transition_keeps_the_invariants() -> None:
    """By the registry: of each invariant there is a proof that every transition whose guard holds keeps it."""
    ends = {name.rpartition(".")[2]: each.tier for name, each in obligations().items()}
    for invariant in INVARIANTS:
        assert ends[invariant.__name__.replace("_", "-")] in (Tier.MODEL, Tier.ALL)


def _with_line(function: Callable[..., Any], line: str) -> ast.FunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    node.body[-1:-1] = ast.parse(line).body
    return node


OF_ALL = "if isinstance(operation, {}): self.holdings.dispatch()"


@pytest.mark.parametrize(
    ("kind", "function", "line", "seen"),
    [
        (Preempt, Manager._preempt, "self.pool.evict(1)", {"BlockPool.evict"}),
        (Preempt, Manager._free, "self.holdings._leave(table, (), slice(0), ())", {"Holdings._leave"}),
        (Finish, Manager._end, "reset = self.pool.reset", {"BlockPool.reset", "PinnedPool.reset"}),
        (LookUp, Manager._hit, "list(map(self.holdings.release_all, [1]))", {"Holdings.release_all"}),
        (Sample, Manager.perform, "self._free(1)", {"Holdings.defer", "Holdings.release_all"}),
        (LookUp, Manager._hit, "self.perform(Preempt(1))", {"Holdings.defer", "Holdings.release_all"}),
        (Transferred, Manager._transferred, "unknown = answer; unknown._aim(1, None)", {"Holdings._aim"}),
        (type(None), Manager.returned, "self.holdings.free([])", {"Holdings.free"}),
        (Pause, Manager.perform, OF_ALL.format("(Pause, Evict)"), {"Holdings.dispatch"}),
        (Pause, Manager.perform, OF_ALL.format("Pause) and not isinstance(operation, Evict"), {"Holdings.dispatch"}),
        # They are of another kind.
        (Pause, Manager.perform, OF_ALL.format("Sample) and bool(answer"), set()),
        (Reset, Manager._take_events, "self.pool.evict(1)", set()),
    ],
)
def test_another_call_is_found(kind: Kind, function: Callable[..., Any], line: str, seen: set[str]) -> None:
    """A call in any function that it reaches, by another name too; not in a branch that is of another kind."""
    changed = {f"manager:{function.__qualname__}": _with_line(function, line)}
    assert seen == {name.partition(":")[2] for name in _misses(kind, SIMULATION[kind], changed)}


def test_a_call_that_is_gone_is_found() -> None:
    """The table would promise what does not happen."""
    dispatches = "holdings:Holdings.dispatch"
    row = evolve(SIMULATION[Preempt], calls={**SIMULATION[Preempt].calls, dispatches: ()})
    assert {dispatches} == _misses(Preempt, row, {})
    assert Drop in SIMULATION[Preempt].transitions
    assert Drop not in SIMULATION[Sample].transitions


@pytest.mark.parametrize("which", running_operations.KINDS)
def test_each_operation_of_the_proofs_happens(which: str) -> None:
    """An operation that may never happen would be proved without a word: each happens to some request."""
    kinds = running_operations.RELEASE if which in running_operations.RELEASE else running_operations.OTHERS
    names = ("unsure", "others", "steps", "first", "part", "block", "dispatched", "over")
    happened: list[str] = []

    def performs(*_arguments: Any) -> None:
        happened.append(which)
        raise StopIteration

    with patch.object(Manager, "perform", performs), patch.object(Manager, "returned", performs):
        for status, computed in product(range(len(running_operations.STATUSES)), (0, 8)):
            its = {"status": status, "computed": computed, "tokens": 9, "prompt": 8, "parts": 1}
            flags = {"ahead": 1, "flies": 1, "out_of_turn": 1, "kind": kinds.index(which)}
            with suppress(StopIteration):
                running_operations._performs(SimpleNamespace(**dict.fromkeys(names, 0), **its, **flags), which)
    assert happened


DRIVEN = ("compressed+partial", "mixed-blocks+scratch", "gemma-hybrid+pinned=2", "mamba-align+eagle+transfers")


def _made(operations: int = 800) -> dict[Kind, set[str]]:
    """What operations of each kind call of the kernel while the reference is driven, with steps in flight, too."""
    made: dict[Kind, set[str]] = {}
    now: list[Any] = []

    def within(owner: type, name: str, kind_of: Callable[..., Kind]) -> Any:
        original = getattr(owner, name)

        def performs(self: Manager, what: Any) -> Any:
            now.append(kind_of(what))
            made.setdefault(now[-1], set())
            try:
                return original(self, what)
            finally:
                now.pop()

        return patch.object(owner, name, performs)

    def noted(entry: str) -> Any:
        module, _, path = entry.partition(":")
        owner, _, name = path.partition(".")
        of = getattr(import_module(f"kvreference.{module}"), owner)
        original = vars(of)[name]

        def notes(*arguments: Any, **named: Any) -> Any:
            # What the kernel calls of itself is a part of it.
            if now and now[-1] is not None:
                made[now[-1]].add(entry)
            now.append(None)
            try:
                return original(*arguments, **named)
            finally:
                now.pop()

        return patch.object(of, name, notes)

    with ExitStack() as stack:
        stack.enter_context(within(Manager, "perform", type))
        stack.enter_context(within(Manager, "returned", lambda _requests: type(None)))
        for entry in ENTRIES:
            stack.enter_context(noted(entry))
        for model in DRIVEN:
            assert not drive([load(model)], operations).found
        ahead = MODELS["tiny-ahead-loads"]
        no_checks = Checks(no_invariants, watches_memory=False, of_flight=nothing_in_flight, of_steps=())
        walk([AheadWorld("tiny-ahead-loads", ahead.shallow, Manager, no_checks)], operations)  # type: ignore[attr-defined]  # of a world of steps ahead
    return made


FOR_NOTHING: dict[Kind, set[str]] = {Schedule: {"holdings:Holdings._aim"}}
"""What is called where there is nothing to do: no copy is without a destination then."""
CALLED_BY_ITSELF = {"holdings:Holdings.free"}
"""What only the kernel calls."""


OF_A_SCHEDULER = {Rewind, Pause, Continue}
"""What only a scheduler asks for: neither these walks nor ``kvgate conform`` do."""


def _others(made: dict[Kind, set[str]]) -> set[str]:
    """What was called and is not in the table."""
    return {
        each for kind, its in made.items() for each in its - {*SIMULATION[kind].calls} - FOR_NOTHING.get(kind, set())
    }


@pytest.mark.ci
def test_while_it_runs_each_calls_what_the_table_says() -> None:
    """While the reference is driven over all mechanisms; of the kernel everything is called."""
    made = _made()
    assert set() == _others(made)
    assert ENTRIES - CALLED_BY_ITSELF == set().union(*made.values())
    assert set(SIMULATION) - OF_A_SCHEDULER == set(made)


@pytest.mark.ci
def test_another_call_is_seen() -> None:
    """A look-up that evicts, by a name that no source has."""
    original = Manager.perform

    def perform(self: Manager, operation: Any) -> Any:
        answer = original(self, operation)
        if isinstance(operation, LookUp):
            getattr(self.pool, "ev" + "ict")(1)
        return answer

    with patch.object(Manager, "perform", perform):
        assert {"block_pool:BlockPool.evict"} == _others(_made(50))
