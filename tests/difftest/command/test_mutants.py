"""``kvgate mutants``.

Goal: the table says what finds each mutant, and the exit code whether the gate is as sharp as it should be. Method:
mutants of a system made for these tests; vLLM itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import Loaded
from kvgate.gate.level import LevelChoice
from kvgate.kernel.data_file import read_csv
from kvgate.kernel.models import MODELS
from kvgate.report.document import from_json
from kvgate_mutants.cli import mutants
from kvgate_mutants.mutants.mutant import Mutant, breaks
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, FEATURE_MUTANTS
from kvreference.answers import Answer
from kvreference.operations import Finish, Operation

from .stage import Ended, rows_of

Kvgate = Callable[..., Ended]


class Sound(Reference):
    """The reference, with a method of its own to break."""

    def apply(self, operation: Operation) -> Answer:
        return super().apply(operation)


class Faulty(Sound):
    """A system that is already wrong before a mutant is injected."""

    def apply(self, operation: Operation) -> Answer:
        answer: Answer = head_first(Sound.apply, self, operation)
        return answer


def head_first(original: Any, system: Sound, operation: Operation) -> Any:
    """The blocks of a request that finishes are released head first."""
    if isinstance(operation, Finish):
        for table in system.tables[operation.request]:
            table.blocks.reverse()
    return original(system, operation)


def unchanged(original: Any, system: Sound, operation: Operation) -> Any:
    """Nothing is broken."""
    return original(system, operation)


def injected(broken: Any, equivalent: str | None = None) -> Mutant:
    return breaks(f"{__name__}:Sound.apply", violates="KV-OP-07", equivalent=equivalent)(broken)


def something_is_wrong() -> str:
    """Sees a fault in everything."""
    return "all of it"


KILLED, SURVIVING = injected(head_first), injected(unchanged)
SHOWN = evolve(KILLED, name="shown", statement=None, shown_by=something_is_wrong)
EQUIVALENT, EXPOSED = injected(unchanged, "Nothing [is] broken."), injected(head_first, "No monitor sees it.")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts other mutants into the registered, and another system in the place of vLLM, on one small model."""

    def put(*inside: Mutant, system: type[Sound] = Sound) -> None:
        monkeypatch.setattr("kvgate_mutants.mutants.registry.BLOCK_MANAGER_MUTANTS", inside)
        monkeypatch.setattr("kvgate.adapters.registry.load_system", lambda _name: Loaded("stock", "0.20.2", system))
        monkeypatch.setattr("kvgate.gate.profiles.models_named", lambda names: [] if names else [MODELS["full"]])
        monkeypatch.setattr(mutants, "BASELINE_OPERATIONS", 1000)
        monkeypatch.setattr(mutants, "MUTANT_OPERATIONS", 5000)

    return put


def test_a_mutant_that_is_found_is_exit_code_0(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """The table says what killed it, after how many operations; an equivalent mutant is listed with its reason."""
    registered(KILLED, EQUIVALENT)
    ended = kvgate("mutants")
    assert (0, "") == (ended.code, ended.err)
    assert "vLLM as it is: nothing found" in ended.out
    row = next(line.split() for line in ended.out.splitlines() if line.lstrip().startswith("head-first"))
    assert ["lockstep", "KV-OP-07"] == row[1:3]
    assert int(row[3]) > 0
    assert "1 of 1 killed, 1 equivalent; the slowest took " in ended.out
    assert "unchanged is equivalent: Nothing [is] broken." in ended.out


@pytest.mark.ci
def test_a_mutant_that_survives_is_exit_code_1(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """By name."""
    registered(KILLED, SURVIVING)
    ended = kvgate("mutants")
    assert 1 == ended.code
    assert "SURVIVED" in next(line for line in ended.out.splitlines() if line.lstrip().startswith("unchanged"))
    assert "1 of 2 killed, 0 equivalent" in ended.out


def test_one_that_is_not_equivalent_after_all_is_exit_code_1(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """Its stated reason is wrong."""
    registered(EXPOSED)
    assert 1 == kvgate("mutants").code


def test_a_fault_of_the_gate_is_exit_code_5(
    registered: Callable[..., None], kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the gate raises, the mutant does not count as killed."""
    registered(KILLED)

    def raises(*_arguments: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("kvgate.gate.generator.Generator.settings", raises)
    ended = kvgate("mutants")
    assert (5, "") == (ended.code, ended.out)
    assert "kvgate itself failed, generating a case of full/tiny, seed 0/0: KeyError: 'no such thing'" in ended.err


def test_a_false_alarm_is_exit_code_1(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """A gate that finds something in vLLM as it is proves nothing with mutants."""
    registered(KILLED, system=Faulty)
    ended = kvgate("mutants", "--format", "json")
    assert 1 == ended.code
    assert any("FOUND Divergence(" in story.headline for story in from_json(ended.out, "out").found)
    assert "vLLM as it is: FOUND Divergence(" in kvgate("mutants").out


@pytest.mark.ci
def test_detectors_can_be_tried_alone(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """A column for each, and for programs the same."""
    registered(KILLED)
    table = kvgate("mutants", "--each-detector")
    header = next(line for line in table.out.splitlines() if "lockstep alone" in line).split()
    assert "lockstep alone check alone ghost alone leak alone" in " ".join(header)
    report = from_json(kvgate("mutants", "--each-detector", "--format", "json").out, "out")
    (record,) = report.tested[0].records()
    assert [True, None, None, None] == [
        record[f"{name} alone"] and record[f"{name} alone"] > 0 for name in ("lockstep", "check", "ghost", "leak")
    ]
    assert ("head-first", "KV-OP-07", None, ()) == (
        *(record["mutant"], record["violates"], record["equivalent"], report.found),
    )
    assert {"gate", "lockstep"} == {name for name, kill in record["kills"].items() if kill is not None}
    assert {"by", "statement", "operations", "seconds"} == set(record["kills"]["gate"])


def test_a_mutant_runs_on_the_models_that_it_names(
    registered: Callable[..., None], kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And vLLM as it is is tried on those, too."""
    registered(evolve(SURVIVING, models=("swa",)), KILLED)
    usual, chased = [MODELS["full"]], []
    monkeypatch.setattr(
        "kvgate.gate.profiles.models_named", lambda names: [MODELS[n] for n in names if "+" not in n] or usual
    )
    monkeypatch.setattr(
        "kvgate_mutants.mutation_run.run_until_killed",
        lambda _b, found, *a, **k: chased.append({each.name for each in found}),
    )
    assert 1 == kvgate("mutants").code
    assert [{"full", "swa"}, {"swa"}, {"full"}] == chased


def test_only_named_mutants_run(registered: Callable[..., None], kvgate: Kvgate) -> None:
    """In the order in which they are named."""
    registered(SURVIVING, KILLED)
    assert 0 == kvgate("mutants", "head-first").code


def test_the_mutants_are_listed_without_vllm(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each mutant; nothing is loaded or injected."""
    monkeypatch.setattr("kvgate.adapters.registry.load_system", None)
    ended = kvgate("mutants", "--list", "--format", "json")
    assert 0 == ended.code
    rows = rows_of(ended.out)
    assert [mutant.name for mutant in BLOCK_MANAGER_MUTANTS] == [row["name"] for row in rows]
    assert [mutant.equivalent for mutant in BLOCK_MANAGER_MUTANTS] == [row["equivalent"] for row in rows]
    assert 1 == len(rows_of(kvgate("mutants", "--list", BLOCK_MANAGER_MUTANTS[3].name, "--format", "json").out))


def test_the_plug_in_has_mutants_of_its_own(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mutants are injected into the plug-in, on the models that they name; the list says what shows each."""
    monkeypatch.setattr(
        "kvgate.adapters.registry.load_system", lambda name: Loaded(name, "0.20.2", {"retention": Sound}[name])
    )
    monkeypatch.setattr("kvgate_mutants.mutants.registry.PLUGIN_MUTANTS", (evolve(KILLED, models=("full",)), SHOWN))
    monkeypatch.setattr(mutants, "BASELINE_OPERATIONS", 1000)
    ended = kvgate("mutants", "--sut", "retention")
    assert (0, "") == (ended.code, ended.err)
    assert "vLLM with the plug-in as it is: nothing found" in ended.out
    assert ["something", "is", "wrong", "-", "0"] == next(
        line.split()[1:6] for line in ended.out.splitlines() if line.lstrip().startswith("shown")
    )
    assert "2 of 2 killed, 0 equivalent" in ended.out


@pytest.mark.parametrize("narrower", [("--sut", "retention"), ("--level", "scheduler")], ids=" ".join)
def test_all_are_all(narrower: tuple[str, str], kvgate: Kvgate) -> None:
    """If the user also names some, the command says so and passes over nothing."""
    ended = kvgate("mutants", "--all", "--list", *narrower)
    assert (2, "--all takes no --sut and no --level") == (ended.code, ended.message.partition(":")[0])
    everything = kvgate("mutants", "--all", "--list").out
    assert all(f"\n {name} " in everything for name in ("cached-first", "look-ahead-not-dropped"))
    help_text = " ".join(kvgate("mutants", "--help").out.split())
    assert "on two nodes" in help_text


def test_all_sets_are_run_and_the_plug_in_last() -> None:
    """It stays in the process: faults that are injected into vLLM's source after it would find the plug-in's."""
    sets = mutants._sets(mutants.Code.STOCK, LevelChoice.BLOCKS, None, True)
    chosen = mutants._chosen(sets, ())
    assert {each: list(each.mutants) for each in sets} == chosen
    codes = [each.code for each in chosen]
    assert mutants.Code.RETENTION in codes
    assert codes == sorted(codes, key=lambda code: code is mutants.Code.RETENTION)


@pytest.mark.parametrize("other", [("--sut", "retention"), ("--level", "scheduler"), ("--all",)], ids=" ".join)
def test_a_subject_has_a_set_of_its_own(other: tuple[str, ...], kvgate: Kvgate, tmp_path: Path) -> None:
    """Listed alone, also as a data file next to its page; and no other option chooses among its mutants."""
    written = tmp_path / "features.md"
    ended = kvgate("mutants", "--of", "features", "--list", "--write", str(written), "--format", "json")
    names = [mutant.name for mutant in FEATURE_MUTANTS]
    assert (0, names) == (ended.code, [row["name"] for row in rows_of(ended.out)])
    assert "[features.csv](features.csv)" in written.read_text("utf-8")
    table = read_csv(written.with_suffix(".csv").read_text("utf-8"))
    assert [(name, "KV-") for name in names] == [(row["name"], row["violates"][:3]) for row in table]
    assert 2 == kvgate("mutants", "--of", "features", "--list", *other).code


def test_each_mutant_set_has_its_names(kvgate: Kvgate) -> None:
    """A mutant of vLLM is not one of the plug-in."""
    out = kvgate("mutants", "--sut", "retention", "--list", "cached-first", "--format", "json").out
    assert ["What is cached goes to the front too."] == [row["sentence"] for row in rows_of(out)]
    ended = kvgate("mutants", "--list", "cached-first")
    assert 2 == ended.code
    assert "unknown mutant 'cached-first'" in ended.err
    assert "kvgate mutants --list --sut retention says" in kvgate("mutants", "--sut", "retention", "absent").err
