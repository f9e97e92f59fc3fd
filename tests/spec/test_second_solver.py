"""The second solver, and the stored cores.

Goal: cvc5 receives all that a proof or a refutation by z3 rests on, and every answer that it does not confirm is
counted as such. Method: statements of which the answer is known, answers that are falsified, cores that are broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import z3
from attrs import evolve

from kvreference import attention
from kvspec import cores, second_solver
from kvspec.obligation import Count, Obligation, only
from kvspec.proof_result import Options, Outcome, ProofResult, Task, check_obligation
from kvspec.prover import Verdict, prove, witness
from kvspec.registry import obligations
from kvspec.second_solver import Opinion, SecondSolver, answer_of_cvc5, question
from kvspec.symbolic import heard_by, seeded

pytest.importorskip("cvc5")

SOUND = Obligation(
    "test.skipped",
    ("KV-OP-06",),
    "No more is released than is computed.",
    {"computed": Count(), "window": Count(2)},
    lambda u: attention.tokens_skipped(u.computed, u.window) <= u.computed,
    {"something is released": lambda u: attention.tokens_skipped(u.computed, u.window) > 0},
    (only("longer", "", "kvreference.attention:tokens_skipped", lambda computed, window: computed + 1),),
)
FALSE = evolve(SOUND, claim=lambda u: attention.tokens_skipped(u.computed, u.window) < 7)
CENTRAL = "attention-kinds.window-dead-is-unread"


def checked(obligation: Obligation) -> ProofResult:
    """An obligation, by both solvers."""
    return check_obligation(obligation, Task(obligation.id), Options(second=True))


def test_both_prove_what_is_so() -> None:
    """Every question of z3's is asked, and the refutation of the mutant, too."""
    result = checked(SOUND)
    assert Outcome.PROVED is result.outcome
    assert result.second is not None
    assert result.second.agrees
    assert result.second.asked >= result.proof.ways
    assert result.second_of_mutants is not None
    assert (1, True) == (result.second_of_mutants.asked, result.second_of_mutants.agrees)
    assert check_obligation(SOUND, Task(SOUND.id)).second is None


@pytest.mark.parametrize(
    "name", [CENTRAL, "retention.due-at-the-first-that-reads", "scheduler-progress.room-is-enough"]
)
def test_both_refute_a_wrong_theorem(name: str) -> None:
    """A theorem of a function that is broken: z3 and cvc5 say that it can fail, each of the same question."""
    obligation = obligations()[name]
    for mutant in obligation.mutants:
        second = SecondSolver(refutations_only=True)
        with mutant.applied(), heard_by(second.hear):
            assert Verdict.REFUTED is prove(obligation).verdict
        assert second.opinion.agreed >= 1
        assert second.opinion.agrees


def test_paths_that_z3_excludes_are_asked_about() -> None:
    """A proof rests on them as on the paths that it looks at."""
    obligation = obligations()[CENTRAL]
    result = check_obligation(obligation, Task(CENTRAL), Options(proof_only=True, second=True))
    assert result.second is not None
    assert result.second.agrees
    assert result.second.asked > result.proof.ways


def test_a_claim_that_fails_is_refuted_by_both() -> None:
    """Without a mutant: the statement itself is wrong."""
    result = checked(FALSE)
    assert Outcome.REFUTED is result.outcome
    assert result.second is not None
    assert result.second.agrees


@contextmanager
def answers(monkeypatch: pytest.MonkeyPatch, by: Callable[[str], str]) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(second_solver, "answer_of_cvc5", by)
        yield


@pytest.mark.parametrize(
    ("answer", "field", "outcome"),
    [
        ("sat", "disagreements", Outcome.DISPUTED),
        ("unknown", "undecided", Outcome.PROVED),
        ("", "inexpressible", Outcome.PROVED),
    ],
)
def test_what_is_not_confirmed_is_counted(
    monkeypatch: pytest.MonkeyPatch, answer: str, field: str, outcome: Outcome
) -> None:
    """And never as agreement; a disagreement is the outcome, with the question."""
    with answers(monkeypatch, lambda text: answer):
        result = check_obligation(SOUND, Task(SOUND.id), Options(proof_only=True, second=True))
    assert outcome is result.outcome
    assert result.second is not None
    assert not result.second.agrees
    assert 0 == result.second.agreed
    assert getattr(result.second, field)
    assert (outcome is Outcome.DISPUTED) == any("the other way" in line for line in result.why())


def test_nothing_asked_is_not_an_agreement() -> None:
    """As nothing proved is not a proof."""
    assert not Opinion().agrees


def test_cvc5_reads_what_z3_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it can be, whether it cannot, what is not decided, and what is not SMT-LIB."""
    monkeypatch.setattr(second_solver, "EFFORT", 20_000)
    x, y, z = z3.Ints("x y z")
    assert "sat" == answer_of_cvc5(question([x > 3], x < 5))
    assert "unsat" == answer_of_cvc5(question([x > 3], x < 4))
    cubes = [each > 0 for each in (x, y, z)]
    assert "unknown" == answer_of_cvc5(question(cubes, x * x * x + y * y * y == z * z * z))
    assert "" == answer_of_cvc5("(assert (no-such-function 1))(check-sat)")


def test_a_seed_reaches_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed of a proof, and those with which a witness is looked for."""
    seeds: list[int] = []

    class Recording(z3.Solver):  # type: ignore[misc]  # z3 has no types
        def set(self, *arguments: Any, **keywords: Any) -> None:
            if arguments[0] == "random_seed":
                seeds.append(arguments[1])
            super().set(*arguments, **keywords)

    monkeypatch.setattr("kvspec.symbolic.z3.Solver", Recording)
    with seeded(7):
        assert Verdict.PROVED is prove(SOUND).verdict
        assert [7] == seeds
        assert witness(evolve(SOUND, witnesses={"none": lambda u: u.computed < 0}), "none") is None
    assert {7, 8, 9, 10} == set(seeds)
    seeds.clear()
    assert Verdict.PROVED is prove(SOUND).verdict
    assert [0] == seeds


def test_stored_cores_are_checked() -> None:
    """As they are stored they hold."""
    found = cores.check(CENTRAL)
    assert found.holds
    assert found.cores >= 1
    assert {f"{name}.smt2" for name in cores.CENTRAL} == {path.name for path in cores.HOME.iterdir()}


def test_a_core_that_lacks_a_formula_is_confirmed_by_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both solvers find values for it."""
    head, blocks = cores.stored(CENTRAL)
    largest = max(blocks, key=len)
    broken = [block if block != largest else block.partition("\n")[2] for block in blocks]
    text = "".join((head, *(f"{cores.BEGIN}\n{block}{cores.END}\n" for block in broken)))
    (tmp_path / f"{CENTRAL}.smt2").write_text(text, encoding="utf-8")
    monkeypatch.setattr(cores, "HOME", tmp_path)
    found = cores.check(CENTRAL)
    assert (found.cores - 1, found.cores - 1) == (found.z3, found.cvc5)
    assert not found.holds


def test_a_proof_that_rests_on_something_else_is_not_covered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A core that is gone leaves a question without one."""
    head, blocks = cores.stored(CENTRAL)
    text = "".join((head, *(f"{cores.BEGIN}\n{block}{cores.END}\n" for block in blocks[1:])))
    (tmp_path / f"{CENTRAL}.smt2").write_text(text, encoding="utf-8")
    monkeypatch.setattr(cores, "HOME", tmp_path)
    found = cores.check(CENTRAL)
    assert found.covered < found.questions
    assert not found.holds


@pytest.mark.ci
@pytest.mark.parametrize("name", cores.CENTRAL)
def test_every_central_theorem_rests_on_its_stored_cores(name: str) -> None:
    """A core that is stale is found here: write it anew with ``python -m kvspec.cores``."""
    (found,) = cores.check_all([name], 1)
    assert found.holds, found
