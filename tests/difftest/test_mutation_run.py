"""The run of injected faults.

Goal: a mutant that changes something is found, one that changes nothing is reported to survive, and an unchanged system
raises no alarm. Method: mutants of a system of these tests' own.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import Loaded
from kvgate.gate.case_runner import Trials
from kvgate.kernel.models import MODELS
from kvgate.levels.manager import DETECTORS, Bench
from kvgate_mutants.mutants.mutant import Mutant, breaks
from kvgate_mutants.mutation_run import MutantResult, Shown, each_alone, run_mutant, run_until_killed
from kvreference.answers import Answer
from kvreference.operations import Abort, Arrive, Finish, Operation, Run
from kvreference.settings import Settings

FULL, SWA = MODELS["full"], MODELS["swa"]


class Sound(Reference):
    """The reference, with a method of its own to break."""

    def apply(self, operation: Operation) -> Answer:
        return super().apply(operation)


class Faulty(Sound):
    """A system that is broken without a mutant."""

    def apply(self, operation: Operation) -> Answer:
        return head_first(Sound.apply, self, operation)  # type: ignore[no-any-return]  # as the parent's


LOADED = Loaded("sound", "1", Sound)
TRIALS = Trials(Bench(Sound))
TARGET = f"{__name__}:Sound.apply"
SETTINGS = Settings(FULL.geometry, blocks=8, tokens_max=64)


def head_first(original: Any, system: Sound, operation: Operation) -> Any:
    """The blocks of a request that finishes are released head first."""
    if isinstance(operation, Finish):
        for table in system.tables[operation.request]:
            table.blocks.reverse()
    return original(system, operation)


def unchanged(original: Any, system: Sound, operation: Operation) -> Any:
    """Nothing is broken."""
    return original(system, operation)


def mutant(broken: Any, **hints: Any) -> Mutant:
    return breaks(TARGET, violates="KV-OP-07", **hints)(broken)


def hunted(mutant: Mutant, *, each_detector: bool = False) -> MutantResult:
    alone = each_alone(LOADED) if each_detector else {}
    return run_mutant(TRIALS, mutant, [FULL, SWA], seed=0, operations=2000, seconds=30.0, alone=alone)


def test_a_mutant_is_killed() -> None:
    """By the lockstep, soon; and nothing stays broken."""
    result = hunted(mutant(head_first))
    kill = result.kills["gate"]
    assert kill is not None
    assert ("lockstep", "KV-OP-07") == (kill.by, kill.statement)
    assert (True, True) == (0 < kill.operations < 2000, kill.seconds > 0)
    assert not result.survived
    assert run_until_killed(TRIALS, [FULL], 0, 1000, 30.0) is None


def test_a_mutant_that_breaks_nothing_survives() -> None:
    """Unless it is known to be equivalent to the original."""
    assert hunted(mutant(unchanged)).survived
    assert not hunted(mutant(unchanged, equivalent="The operation is passed on.")).survived


def test_what_the_unmutated_system_shows_is_not_a_kill() -> None:
    """On the same case; a mutant that shows something else is killed all the same."""

    def raises(original: Any, system: Faulty, operation: Operation) -> Any:
        """Ends raise."""
        if isinstance(operation, Finish):
            raise AssertionError("broken")
        return original(system, operation)

    def run(broken: Any) -> MutantResult:
        faulty = breaks(f"{__name__}:Faulty.apply", violates="KV-SYS-01")(broken)
        return run_mutant(Trials(Bench(Faulty)), faulty, [FULL], seed=0, operations=2000, seconds=30.0)

    assert run_until_killed(Trials(Bench(Faulty)), [FULL], 0, 2000, 30.0) is not None
    assert run(unchanged).survived
    kill = run(raises).kills["gate"]
    assert kill is not None
    assert "KV-SYS-01" == kill.statement


def test_a_mutant_is_shown_by_its_check() -> None:
    """The check runs while the mutant is injected, and no campaign does."""
    system = Sound(SETTINGS)

    def operations_are_done() -> str | None:
        return "nothing was done" if system.apply(Abort(0)) is None else None

    def nothing_is_done(_original: Any, _system: Sound, _operation: Operation) -> None:
        """Operations are forgotten."""

    def checked(broken: Any) -> Mutant:
        return breaks(TARGET, shown_by=operations_are_done)(broken)

    result = hunted(checked(nothing_is_done), each_detector=True)
    kill = result.kills["gate"]
    assert kill is not None
    assert Shown("operations are done", "nothing was done") == kill.found
    assert ("operations are done", None, 0) == (kill.by, kill.statement, kill.operations)
    assert {"gate", *DETECTORS} == set(result.kills)
    assert not any(result.kills[name] for name in DETECTORS)
    system = Sound(SETTINGS)
    system.apply(Arrive(0, (Run(0, 8),)))
    assert hunted(checked(unchanged)).survived


def test_a_mutant_breaks_a_guarantee_or_has_a_check() -> None:
    """Neither, or both, say nothing of what it breaks."""
    with pytest.raises(ValueError, match="unchanged: a mutant violates a guarantee, or is shown by a check"):
        breaks(TARGET)(unchanged)
    with pytest.raises(ValueError, match="unchanged: a mutant violates a guarantee, or is shown by a check"):
        mutant(unchanged, shown_by=lambda: None)


def test_detectors_are_tried_alone() -> None:
    """The order of the free queue is nothing that a monitor knows of."""
    result = hunted(mutant(head_first), each_detector=True)
    assert {"gate", *DETECTORS} == set(result.kills)
    assert {"gate", "lockstep"} == {name for name, kill in result.kills.items() if kill is not None}


@pytest.mark.parametrize(("models", "expected"), [(("swa",), {"swa"}), (None, {"full", "swa"})])
def test_a_mutation_run_goes_where_a_mutant_can_show(
    models: tuple[str, ...] | None, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the models that it names, with and without a draft layer."""
    chased: list[set[str]] = []
    monkeypatch.setattr(
        "kvgate_mutants.mutation_run.run_until_killed",
        lambda _bench, found, *_limits: chased.append({m.name for m in found}),
    )
    models_at_hand = [FULL, SWA, SWA.with_lookahead()]
    with_drafts = {"swa+eagle"} if "swa" in expected else set()
    run_mutant(TRIALS, mutant(unchanged, models=models), models_at_hand, seed=0, operations=1, seconds=1.0)
    assert [expected | with_drafts] == chased


def test_a_mutation_run_that_can_show_nothing_is_none() -> None:
    """A run that cannot show a mutant does not prove that it survives."""
    with pytest.raises(ValueError, match="unchanged shows on local, mixed-blocks, and none of the models is one"):
        hunted(mutant(unchanged, models=("local", "mixed-blocks")))


def test_an_interrupt_ends_the_mutation_run() -> None:
    """A mutant that was not run has not survived."""

    def factory(_settings: Settings) -> Sound:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_until_killed(Trials(Bench(factory)), [FULL], 0, 1000, 30.0)
