"""The mutants of the reference and of the checkers: each edits a passage that is there, and is found.

Which probe finds a mutant, and what that says, is in ``kvgate_mutants.own_code_run``.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.published import published

import kvgate
from kvgate.adapters.registry import is_built_in
from kvgate.adapters.releases import release_named
from kvgate.explore.tiny_models import MODELS as TINY_MODELS
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.models import load
from kvgate.levels.manager import DETECTORS
from kvgate.levels.registry import LEVELS
from kvgate.report.document import from_json
from kvgate_mutants import own_code_run
from kvgate_mutants.mutants.mutant import Edit, locate, mutants_of
from kvgate_mutants.mutants.registry import (
    BLOCK_MANAGER_MUTANTS,
    CHECKER_MUTANTS,
    FEATURE_MUTANTS,
    INDEPENDENT_MUTANTS,
    PAIR_MUTANTS,
    PLUGIN_MUTANTS,
    REFERENCE_MUTANTS,
    RELEASE_MUTANTS,
    SCHEDULER_MUTANTS,
    WORKER_MUTANTS,
)
from kvgate_mutants.mutation_run import Kill, Shown
from kvgate_mutants.own_code_run import OPERATIONS, TIERS_OF, WRITTEN
from kvspec.registry import obligations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fork_server import ForkServer

ALL = (*REFERENCE_MUTANTS, *INDEPENDENT_MUTANTS, *CHECKER_MUTANTS)
MASKED_BY_FINDINGS = (
    "longest-hit-tries-three-lengths",
    "look-ahead-block-served",
    "gate-forgets-that-hits-leave-the-queue",
)
"""Broken references that the check once took for findings 005 and 002."""


# Their descriptions


def test_there_are_enough_and_no_name_twice() -> None:
    """Goal: killing all of them says something. Method: count mutants and names."""
    assert len(REFERENCE_MUTANTS) >= 55
    assert len(INDEPENDENT_MUTANTS) == 120
    assert sum(mutant.before is not None for mutant in INDEPENDENT_MUTANTS) == 60
    assert len(CHECKER_MUTANTS) >= 140
    assert {1} == set(Counter(mutant.name for mutant in ALL).values())
    assert not [mutant.name for mutant in ALL if not re.fullmatch(r"[A-Z].*\.", mutant.sentence)]


def test_each_passage_is_there_once() -> None:
    """Goal: a change of our code disarms no mutant. Method: inject each, run nothing, and see that it is undone."""
    stale = []
    for mutant in ALL:
        owner, attribute = locate(mutant.targets[0])
        member = vars(owner)[attribute]
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        before = function.__code__
        try:
            with mutant.applied():
                assert before != function.__code__
        except LookupError as error:
            stale.append(f"{mutant.name}: {error}")
        assert before is function.__code__
    assert not stale


def test_a_stale_passage_is_rejected() -> None:
    """Goal: the test above can fail. Method: passages that are not there, and twice."""
    source = "def f(x):\n    return x + x\n"
    for passage in ("x - x", "x"):
        with pytest.raises(LookupError):
            Edit(passage, "0").of(source)


@pytest.mark.parametrize("error", [SystemUnavailableError, UsageError])
@pytest.mark.parametrize("of", ["reference", "checkers"])
def test_a_probe_that_cannot_be_run_kills_nothing(
    error: type[Exception], of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a missing system is not a kill, and other exceptions are. Method: probes that raise either."""
    found = Kill(Shown("check", "something"), 1, 0.0)
    mutants, run = {
        "reference": (REFERENCE_MUTANTS[:1], own_code_run.run_reference),
        "checkers": (CHECKER_MUTANTS[:1], own_code_run.run_checkers),
    }[of]
    usual = iter([] if of == "reference" else [found])

    def raising(kind: type[Exception]) -> Callable[..., Kill | None]:
        def probe(*_given: object) -> Kill | None:
            for kill in usual:
                return kill
            raise kind("it is not here")

        return probe

    for name in ("_of_reference", "_of_checker"):
        monkeypatch.setattr(own_code_run, name, raising(error))
    with pytest.raises(error, match=r"probe .* says nothing of a mutant: it is not here"):
        list(run(mutants, False, lambda _text: None))
    kill = own_code_run._guarded(raising(RuntimeError), "a probe")
    assert kill is not None
    assert Shown("raised RuntimeError", "it is not here") == kill.found


@pytest.mark.parametrize("found", [None, Kill(Shown("check", "something"), 1, 0.0)])
def test_a_probe_that_raises_kills_nothing(found: Kill | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: exit code 5 is not a kill. Method: the first probe of a mutant raises, and the next one finds
    it, or none.
    """
    mutant, calls = REFERENCE_MUTANTS[0], iter([RuntimeError("the gate failed"), found])

    def probe(*_given: object) -> Kill | None:
        called = next(calls, None)
        if isinstance(called, Exception):
            raise called
        return called

    monkeypatch.setattr(own_code_run, "_of_reference", probe)
    *_, (result,) = own_code_run.run_reference([mutant], False, lambda _text: None)
    assert (found is not None, found is None, False) == (result.kill is not None, result.stopped, result.survived)
    (row,) = own_code_run.section_of([result], "reference").rows
    assert "stopped" in row
    said = "1 of 1 mutants of the reference killed" if found else "0 of 1 mutants of the reference killed, 1 stopped"
    assert own_code_run.summary([result], "reference").startswith(said)


def test_each_probe_can_be_run() -> None:
    """Goal: no probe is a misprint. Method: look up every model, obligation and broken system."""
    for mutant in (*REFERENCE_MUTANTS, *INDEPENDENT_MUTANTS):
        for probe in mutant.probes:
            layer, _, what = probe.rpartition(":")
            what, _, system = what.partition("@")
            assert not system or (layer in ("blocks", "scheduler") and is_built_in(system)), probe
            assert layer in ("", "blocks", "scheduler", "pair", "explore", "prove"), probe
            known = {"explore": TINY_MODELS, "prove": obligations()}.get(layer)
            assert load(what) if known is None else what in known, probe
    of_blocks = {each.name for each in (*BLOCK_MANAGER_MUTANTS, *PLUGIN_MUTANTS)}
    broken = {
        **dict.fromkeys((*DETECTORS, "glance", "shadow"), of_blocks),
        "scheduler": {each.name for each in (*FEATURE_MUTANTS, *SCHEDULER_MUTANTS)},
        "pair": {each.name for each in PAIR_MUTANTS},
        "worker": {each.name for each in WORKER_MUTANTS},
        "tiers": {each.name for each in RELEASE_MUTANTS[TIERS_OF]["tiers"]},
    }
    for mutant in CHECKER_MUTANTS:
        for probe in mutant.probes:
            checker, _, name = probe.partition(":")
            if checker == "unbroken":
                level, _, model = name.partition(":")
                assert level in OPERATIONS, probe
                assert load(model), probe
            elif checker in WRITTEN:
                assert probe in {f"{checker}:{case}" for case in _cases_of(checker)}, probe
            else:
                level, _, detector = checker.partition(".")
                name, at, model = name.partition("@")
                assert name in broken[level], probe
                assert not at or load(model), probe
                assert not detector or detector in LEVELS[level].detectors, probe


def _cases_of(checker: str) -> set[str]:
    """What ``own_code_run`` can spoil for a checker, by the words with which its code compares the case."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(WRITTEN[checker]))).body
    compared = [each for each in ast.walk(function) if isinstance(each, ast.Compare)]
    return {
        str(right.value)
        for each in compared
        if isinstance(each.left, ast.Name) and each.left.id == "case"
        for comparator in each.comparators
        for right in ast.walk(comparator)
        if isinstance(right, ast.Constant)
    }


REPEATS = {
    "kvgate.campaigns.case_workers:CaseWorkers": "what another process has found",
    "kvgate.findings.modelled:Acted": "how a finding acted, which is counted and no divergence",
}
"""Code that makes a difference and checks nothing."""
OTHERS = {
    "kvgate.kernel.glance:Glance": "whether the states are compared",
    "kvgate.levels.scheduler.nodes:OtherNodes": "what other nodes still read",
    "kvgate.levels.scheduler.sessions:Sessions": "which parts of a session are sent",
    "kvgate.levels.pair.handover:Handover": "what the decode node still reads",
    "kvgate.levels.pair.waiting:Across": "who waits for whom on two nodes",
    "kvgate.monitors.wait_graph:WaitFor": "which wait ends",
    "kvgate.equality.feature": "which features an engine showed",
    "kvgate.equality.table": "whether two engines' answers are equal",
    "kvreference.snapshot": "the invariants",
}
"""Code that makes no difference by itself, and the checker's question to it."""


def _checkers() -> Iterator[str]:
    """The code of kvgate that makes a difference: every class, and every function that is not private to its module."""
    package = Path(kvgate.__path__[0])
    for path in sorted(package.rglob("*.py")):
        module = ".".join(("kvgate", *path.relative_to(package).with_suffix("").parts))
        for member in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(member, (ast.ClassDef, ast.FunctionDef)) or member.name.startswith("_"):
                continue
            calls = (each.func for each in ast.walk(member) if isinstance(each, ast.Call))
            if any(isinstance(called, ast.Name) and called.id == "Difference" for called in calls):
                yield f"{module}:{member.name}"


def test_every_checker_has_a_mutant() -> None:
    """Goal: no checker is left out. Method: find in the code what makes a difference, and look for what is edited."""
    checkers = {*_checkers()}
    assert {*REPEATS} < checkers
    assert len(checkers) >= 35
    edited = {mutant.targets[0] for mutant in CHECKER_MUTANTS}
    assert not [
        each
        for each in sorted((checkers - {*REPEATS}) | {*OTHERS})
        if not any(re.match(rf"{re.escape(each)}\b", target) for target in edited)
    ]


def test_an_entry_without_a_passage_is_rejected() -> None:
    """Goal: a misprint in the list cannot hide a mutant. Method: an entry that lacks its edit."""
    with pytest.raises(ValueError, match="not a mutant"):
        tuple(mutants_of("name KV-OP-01 swa\nA sentence.\n@ kvreference.content:Keys.of_block\n", words="probes"))


# Mutation runs


def _survivors(server: ForkServer, of: str, *names: str, timeout: float = 600.0) -> list[str]:
    """The report of ``kvgate mutants``; in a process of its own, since the plug-in stays where it is loaded."""
    arguments = ["mutants", *names, "--of", of, "--format", "json"]
    ended = server.run("-m", "kvgate.cli", *arguments, timeout=timeout)
    report = from_json(ended.stdout, "the table")
    assert report.exit_code == ended.returncode, ended.stderr
    assert report.tested[0].rows
    return [story.headline for story in report.found]


OF_REFERENCE = (
    "table-released-front-first",
    "cached-a-token-late",
    "hit-stays-in-the-free-queue",
    "room-short-by-a-block",
)
OF_CHECKERS = (
    "parents-of-events-not-compared",
    "arrivals-forgotten",
    "slots-of-any-group-accepted",
    "blocks-sent-not-compared",
    "connector-may-be-asked-again",
    "findings-may-act-once-more",
    "other-blocks-may-change",
    "shadow-ignores-statistics",
    "jobs-may-share-a-chunk",
    "failed-blocks-stay-valid",
)
OF_TIERS = ("reads-of-tiers-not-judged", "hangs-of-tiers-not-reported", "held-by-a-connector-not-asked")


@pytest.mark.ci
def test_a_few_of_the_reference_are_killed(fork_server: ForkServer) -> None:
    """Goal: a wrong reference is found. Method: one fault for the check, conform and explore each."""
    assert not _survivors(fork_server, "reference", *OF_REFERENCE)


@pytest.mark.ci
@pytest.mark.parametrize("name", MASKED_BY_FINDINGS)
def test_no_finding_excuses_a_wrong_reference(fork_server: ForkServer, name: str) -> None:
    """Goal: a broken reference is never taken for a known finding. Method: the three that once were."""
    assert not _survivors(fork_server, "reference", name)


@pytest.mark.ci
def test_a_few_of_the_checkers_are_killed(fork_server: ForkServer) -> None:
    """Goal: a broken checker is found. Method: one fault of the comparison, two monitors, the shadow and so on."""
    assert not _survivors(fork_server, "checkers", *OF_CHECKERS)


@pytest.mark.ci
def test_a_few_of_the_checkers_of_two_tiers_are_killed(fork_server: ForkServer) -> None:
    """Goal: a broken checker of connectors is found. Method: one fault for each detector, on vLLM 0.33.0."""
    published(release_named(TIERS_OF))
    assert not _survivors(fork_server, "checkers", *OF_TIERS)


@pytest.mark.deep
def test_one_is_killed_on_a_release(fork_server: ForkServer) -> None:
    """Goal: a probe may name a system. Method: a fault in what 0.33.0 alone has, which runs in another process."""
    published(release_named("native@0.33.0"))
    assert not _survivors(fork_server, "reference", "token-ahead-is-no-content")


@pytest.mark.deep
@pytest.mark.parametrize("of", ["reference", "checkers"])
def test_all_are_killed(fork_server: ForkServer, of: str) -> None:
    """Goal: no fault of the reference or of a checker goes unnoticed, except the argued ones. Method: inject each."""
    mutants = REFERENCE_MUTANTS if of == "reference" else CHECKER_MUTANTS
    argued = {each.name for each in mutants if each.survives}
    assert argued == {each.split()[0] for each in _survivors(fork_server, of, timeout=7200.0)}
