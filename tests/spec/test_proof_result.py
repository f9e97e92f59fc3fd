"""Results of proofs.

Goal: a statement counts as proved only if it can be witnessed and can fail. Method: obligations with one thing wrong
each; and parallel processes say what one says alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvreference import attention
from kvspec.obligation import Count, Obligation, only
from kvspec.proof_result import Options, Outcome, ProofResult, Task, check_all, check_obligation
from kvspec.prover import Verdict
from kvspec.registry import obligations

SKIPPED = "kvreference.attention:tokens_skipped"
BROKEN = only("longer", "More is freed than there is.", SKIPPED, lambda computed, window: computed + 1)
SOUND = Obligation(
    "test.skipped",
    ("KV-OP-06",),
    "No more is freed than is computed.",
    {"computed": Count(), "window": Count(2)},
    lambda u: attention.tokens_skipped(u.computed, u.window) <= u.computed,
    {"something is freed": lambda u: attention.tokens_skipped(u.computed, u.window) > 0},
    (BROKEN,),
)
TASK = Task("test.skipped")
NO_MUTANT = only("none", "", SKIPPED, lambda computed, window: 0)


def hopeless(computed: Any, window: Any) -> Any:
    """An undecidable formula: it divides by what may be zero."""
    return window // computed


def test_a_sound_statement_is_proved() -> None:
    """With its witness, and its mutant refuted: nothing is left to say."""
    checked = check_obligation(SOUND, TASK)
    assert (Outcome.PROVED, []) == (checked.outcome, list(checked.why()))
    assert ["something is freed"] == list(checked.witnesses)
    assert {"longer": Verdict.REFUTED} == {name: proof.verdict for name, proof in checked.mutants.items()}


@pytest.mark.parametrize(
    ("wrong", "outcome", "why"),
    [
        ({"claim": lambda u: u.computed < 5}, Outcome.REFUTED, None),
        ({"witnesses": {"never": lambda u: u.computed < 0}}, Outcome.VACUOUS, "no values show: never"),
        ({"mutants": (BROKEN, NO_MUTANT)}, Outcome.VACUOUS, "with the mutant none it is proved"),
        ({"assumes": lambda u: u.computed < 0}, Outcome.VACUOUS, "what is assumed cannot be: nothing was proved"),
        (
            {"mutants": (BROKEN, only("odd", "", SKIPPED, hopeless))},
            Outcome.UNKNOWN,
            "with the mutant odd it is unknown",
        ),
        (
            {"claim": lambda u: u.window // u.computed >= 0, "mutants": ()},
            Outcome.UNKNOWN,
            "the divisor computed may be",
        ),
    ],
    ids=["refuted", "no witness", "mutant lives", "nothing assumed can be", "mutant unknown", "unknown"],
)
def test_one_thing_wrong_is_enough(wrong: dict[str, Any], outcome: Outcome, why: str | None) -> None:
    """And the message says which."""
    checked = check_obligation(evolve(SOUND, **wrong), TASK)
    assert outcome is checked.outcome
    assert why is None or any(line.startswith(why) for line in checked.why())


def test_without_witnesses_and_mutants_only_the_proof_counts() -> None:
    """When asked for, and for fixed values: there the statement need not be witnessed."""
    bare = evolve(SOUND, witnesses={"never": lambda u: u.computed < 0})
    assert Outcome.PROVED is check_obligation(bare, TASK, Options(proof_only=True)).outcome
    fixed = check_obligation(bare, Task("test.skipped", {"window": 128}))
    assert (Outcome.PROVED, {}, {}) == (fixed.outcome, fixed.witnesses, fixed.mutants)


def test_what_says_nothing_of_fixed_values_is_silent() -> None:
    """Its assumption is false there, which is not a failure of the values. Without fixed values it is."""
    narrow = evolve(SOUND, assumes=lambda u: u.window >= 10)
    assert Outcome.SILENT is check_obligation(narrow, Task("test.skipped", {"window": 3})).outcome
    assert Outcome.PROVED is check_obligation(narrow, Task("test.skipped", {"window": 30})).outcome


def test_a_mutant_that_makes_the_assumption_impossible_is_not_refuted() -> None:
    """It breaks something else."""
    checked = check_obligation(
        evolve(SOUND, assumes=lambda u: attention.tokens_skipped(u.computed, u.window) <= u.computed), TASK
    )
    assert Outcome.VACUOUS is checked.outcome


def test_parallel_processes_agree() -> None:
    """In the order in which they were asked, and with the same effort."""
    tasks = [Task(name) for name in list(obligations())[:4]]
    alone, parallel = ([_said(each) for each in check_all(tasks, jobs=jobs)] for jobs in (1, 2))
    assert [task.obligation for task in tasks] == [said[0] for said in alone]
    assert alone == parallel


def _said(result: ProofResult) -> tuple[Any, ...]:
    return result.task.obligation, result.outcome, result.proof.ways, sorted(result.mutants)
