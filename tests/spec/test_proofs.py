"""All obligations.

Goal: everything that is registered is proved, is not vacuous, and rests on existing guarantees. Method: check all of
them once, as ``kvgate prove`` does, and look at each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from kvreference.statements import STATEMENTS
from kvspec.chapters import read_all
from kvspec.obligation import Tier
from kvspec.proof_result import Outcome, ProofResult, Task, check_all
from kvspec.prover import holds
from kvspec.registry import obligations

FEWEST, FEWEST_FOR_ALL_SIZES = 40, 25


@pytest.fixture(scope="module")
def checked() -> Mapping[str, ProofResult]:
    """Every obligation with its result."""
    return {each.task.obligation: each for each in check_all([Task(name) for name in obligations()])}


@pytest.mark.ci
@pytest.mark.parametrize("name", obligations())
def test_it_is_proved_and_says_something(checked: Mapping[str, ProofResult], name: str) -> None:
    """Proved on every way, each witness found, each mutant refuted; and where it runs on numbers, its witnesses do."""
    result = checked[name]
    assert (Outcome.PROVED, []) == (result.outcome, list(result.why()))
    assert result.witnesses, "without a witness what is assumed might never be"
    assert result.mutants, "without a mutant it might hold for any code"
    for mutant, proof in result.mutants.items():
        assert proof.confirmed is not False, f"the counterexample of {mutant} does not fail as numbers"


@pytest.mark.parametrize("name", obligations())
def test_it_has_its_place(name: str) -> None:
    """Its id begins with a chapter, or with what all chapters rest on; the guarantees exist; a bound is reported."""
    obligation = obligations()[name]
    homes = {chapter.file[3:].removesuffix(".md") for chapter in read_all()}
    chapter, dot, rest = name.partition(".")
    assert dot
    assert rest
    assert chapter in homes | {"products", "counting"}
    assert obligation.title.endswith(".")
    assert set() == set(obligation.statements) - set(STATEMENTS)
    assert len({mutant.name for mutant in obligation.mutants}) == len(obligation.mutants)


def test_there_are_enough() -> None:
    """As many as were promised, most of them for all sizes."""
    tiers = Counter(obligation.tier for obligation in obligations().values())
    assert sum(tiers.values()) >= FEWEST
    assert tiers[Tier.ALL] >= FEWEST_FOR_ALL_SIZES


@pytest.mark.ci
def test_every_obligation_can_be_run_on_numbers_or_says_why_not(checked: Mapping[str, ProofResult]) -> None:
    """A witness of a statement without maps is one as numbers."""
    for name, result in checked.items():
        obligation = obligations()[name]
        for witness, values in result.witnesses.items():
            assert values is not None
            if all(isinstance(value, int) for value in values.values()):
                assert holds(obligation, values, obligation.witnesses[witness]), (name, witness)
