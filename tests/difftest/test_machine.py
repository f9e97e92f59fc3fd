"""The levels as Hypothesis state machines.

Goal: Hypothesis finds what the seeded driver finds, and shrinks it; its cases replay. Method: the reference is the
control; a faulty subclass fails while operations are performed, another one at rest. In vLLM's block manager, in its
scheduler and in the connector between two nodes a mutant is injected, and the printed test is run.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import HealthCheck, Phase, settings

from kvgate.adapters.reference import Reference
from kvgate.gate.case_runner import Lane, Trials, kind_of, run_case
from kvgate.gate.machine import DivergenceError, LevelMachine, machine_for, search
from kvgate.gate.trace_codec import trace_of, write
from kvgate.kernel.models import MODELS, load
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import GATE, MANAGER, Bench
from kvgate.levels.registry import LEVELS, read
from kvgate.levels.scheduler import operations as scheduler
from kvreference.answers import Answer
from kvreference.operations import Abort, Arrive, Continue, Dispatch, Operation, Pause, Rewind
from kvreference.scheduler.operations import Submit
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

LANE = Lane(MODELS["full"], "tiny")
NOT_DRAWN: dict[str, set[type]] = {
    "blocks": {Rewind, Pause, Continue},
    "scheduler": {Submit, scheduler.Lost},
    "pair": {scheduler.Lost},
    "worker": {Submit, scheduler.Lost},
    "tiers": set(),
}
"""A scheduler rewinds, and keeps sessions; ``Serve`` is a ``Submit``; a transfer that never ends is finding 025."""


class Miscounts(Reference):
    """Counts a holder of block 1 too many when a second request arrives."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Arrive) and operation.request > 0:
            self.pool.references[1] += 1
        return answer


class KeepsALog(Reference):
    """Logs aborted requests without bound."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.log: list[str] = []

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.log.append(self.name_of(operation.request))
        return super().apply(operation)

    def roots(self) -> dict[str, object]:
        return {"log": self.log}

    def name_of(self, request: int) -> str:
        return f"request-{request}"


def machine(system: Factory, lane: Lane = LANE) -> type[LevelMachine]:
    return machine_for(Bench(system), lane)


def look(
    system: Factory,
    lane: Lane = LANE,
    machine_type: type[LevelMachine] | None = None,
    examples: int = 25,
    shrink_seconds: float = 0,
) -> None:
    """Let Hypothesis look for a divergence."""
    how = settings(
        max_examples=examples,
        stateful_step_count=20,
        phases=(Phase.generate, Phase.shrink) if shrink_seconds else (Phase.generate,),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    search(machine_type or machine(system, lane), how, shrink_seconds)


@pytest.mark.parametrize(
    "model", ["full", "compressed+mtp+partial+masked+scratch+pinned=1+transfers", "mamba-align+eagle"]
)
def test_a_sound_system_passes(model: str) -> None:
    """The control, on a model without any mechanism and on some that have them all."""
    look(Reference, Lane(load(model), "tiny"))


class GivesUpLoading(Reference):
    """Gives back the blocks of a request that loads as soon as it is aborted: here when all requests are ended."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Abort):
            self.holdings.release_all(operation.request)
        return super().apply(operation)


@pytest.mark.ci
def test_what_only_some_models_do_is_searched() -> None:
    """Transfers, for example; in models without them the same fault has no effect."""
    look(GivesUpLoading)
    with pytest.raises(DivergenceError, match="KV-OP-25"):
        look(GivesUpLoading, Lane(load("full+transfers"), "tiny"))


def test_a_fault_is_found() -> None:
    """The message quotes the guarantee, the operation and both sides."""
    with pytest.raises(DivergenceError) as failure:
        look(Miscounts)
    promise, step, subject, expected, got = str(failure.value).splitlines()
    assert f"KV-INV-01: {STATEMENTS['KV-INV-01']}" == promise
    assert re.match(r"step \d+: Arrive\(request=\d, ", step)
    assert "references of block 1" == subject
    assert ("expected: ", "got:      ") == (expected[:10], got[:10])
    assert int(expected[10:]) + 1 == int(got[10:])


def test_what_remains_at_the_end_is_found() -> None:
    """Every request is ended, and then the leak monitor looks."""
    with pytest.raises(DivergenceError, match="KV-LEAK-01"):
        look(KeepsALog)


@pytest.mark.parametrize("system", [Miscounts, KeepsALog])
def test_declared_differences_are_no_failure(system: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run in which one shows ends there."""
    monkeypatch.setattr("kvgate.levels.manager.explain", lambda *_: "000-known")
    look(system)


def test_a_machine_names_its_lane() -> None:
    """So does the failure that Hypothesis prints."""
    assert "ManagerMachine[full-tiny]" == machine(Reference).__name__


@pytest.mark.parametrize("name", LEVELS)
def test_every_kind_of_operation_has_a_rule(name: str) -> None:
    """But for those that are not generated either; the more often it is drawn, the more rules."""
    level = LEVELS[name]
    assert set(level.alphabet) - NOT_DRAWN[name] == set(level.drawn)
    model = load("mamba-align+transfers")
    kinds = {kind.__name__.lower() for kind in level.weights(machine(Reference, Lane(model, "tiny"))().generator)}
    bench = type("Named", (Bench,), {"level": level})(Reference)
    rules = [each.function.__name__ for each in machine_for(bench, Lane(model, "tiny")).setup_state().rules]
    of_kinds = [re.sub(r"(_\d+)?$", "", rule, count=1).replace("_", "") for rule in rules]
    assert {kind.__name__.lower() for kind in level.drawn} == kinds == set(of_kinds)
    assert len(set(rules)) == len(rules) > len(kinds)


@pytest.mark.ci
def test_a_rule_applies_if_its_operation_means_something() -> None:
    """Goal: no generated operation is useless. Method: every operation of every case is performed, on the request it
    names.
    """
    performed: set[type] = set()

    def names(operation: Operation) -> tuple[type, int | None]:
        return type(operation), getattr(operation, "request", None)

    class Looks(machine(Reference, Lane(load("mixed-blocks+transfers"), "tiny"))):  # type: ignore[misc]  # a base made at run time
        def teardown(self) -> None:
            (part,) = MANAGER.parts(self.world, self.case)
            resolved = part.lockstep.performed
            assert [names(each) for each in resolved] == [names(each) for each in self.case.operations]
            performed.update(map(type, resolved))
            super().teardown()

    look(Reference, machine_type=Looks, examples=100)
    # Nothing of this model waits for a dispatch, and only a scheduler has sessions.
    assert {*get_args(Operation)} - performed == {Rewind, Dispatch, Pause, Continue}


@pytest.mark.ci
def test_what_is_found_is_small_and_is_stored(tmp_path: Path) -> None:
    """Goal: the trace is that of the seeded driver. Method: one arrival is enough; it is read and run again."""
    with pytest.raises(DivergenceError) as failure:
        look(Miscounts, shrink_seconds=5)
    # Hypothesis leaves a few operations more.
    found = Trials(Bench(Miscounts)).smallest(failure.value.found)
    assert 6 >= len(failure.value.found.replayable.operations)
    assert [Arrive] == [type(each) for each in found.replayable.operations]
    write(trace_of(found.replayable, found.divergence, "module:factory", "1", GATE), path := tmp_path / "trace.jsonl")
    (again,) = run_case(Bench(Miscounts), read(path).case).found()
    assert kind_of(found.divergence) == kind_of(again.divergence)
    assert () == run_case(Bench(Reference), read(path).case).divergences


INJECT = """
from kvgate_mutants.mutants import registry
mutants = (*registry.BLOCK_MANAGER_MUTANTS, *registry.SCHEDULER_MUTANTS, *registry.PAIR_MUTANTS)
applied = next(each for each in mutants if each.name == {name!r}).applied()
applied.__enter__()
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("level", "name", "operations_max"),
    [
        ("blocks", "hits-not-held", 8),
        ("scheduler", "last-come-first-served", 8),
        ("pair", "told-to-write-a-block-too-few", 12),
    ],
)
def test_what_a_mutant_of_vllm_shows_is_printed_and_replays(
    level: str, name: str, operations_max: int, tmp_path: Path, fork_server: ForkServer
) -> None:
    """Goal: a user can run what is printed. Method: ``pytest difftest/`` with a mutant, then its own command."""
    pytest.importorskip("vllm")
    (preload := tmp_path / "mutant.py").write_text(INJECT.format(name=name))
    options = ["--model", "full", "--profile", "precommit", "--preload", str(preload), "--report", str(tmp_path)]
    chosen = ["difftest/test_gate.py", "-q", "-x", "-k", f"hypothesis and tiny and {level}"]
    printed = fork_server.run("-m", "pytest", *chosen, *options, timeout=600)
    assert 1 == printed.returncode, printed.stdout + printed.stderr
    (command,) = set(re.findall(r"(?m)kvgate (replay .*)$", printed.stdout))
    assert re.search(rf"state\.{LEVELS[level].arrival.__name__.lower()}(_\d+)?\(operation=", printed.stdout)
    assert operations_max >= len(read(tmp_path / "divergence-1.jsonl").operations)
    again = fork_server.run("-m", "kvgate.cli", *shlex.split(command), timeout=300)
    (statement,) = set(re.findall(r"(?m)^(KV-\w+-\d+): ", printed.stdout))
    assert (1, True) == (again.returncode, f"{statement}: " in again.stdout), again.stdout + again.stderr
