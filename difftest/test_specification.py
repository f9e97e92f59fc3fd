"""The specification itself: what the gate holds a system to is proved, and the reference does what is proved.

A handful of the proofs, with their witnesses and mutants, and a short run of the reference next to the transitions that
are proved. ``kvgate prove`` and ``kvgate conform`` run all of it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kvgate.explore.refinement_run import drive
from kvgate.kernel.models import Model
from kvreference.statements import STATEMENTS
from kvspec.evidence import chapter_name
from kvspec.proof_result import Outcome, Task, check_obligation
from kvspec.registry import obligations

CHAPTERS = ("attention-kinds", "eagle", "content-and-cached-map")
"""What a window is, what a draft layer costs, and what is known to be in a block."""
OPERATIONS = 300

PROOFS = [name for name, each in obligations().items() if chapter_name(each) in CHAPTERS]


@pytest.mark.parametrize("name", PROOFS)
def test_it_is_proved(name: str) -> None:
    """Goal: the formulas that run are right. Method: z3 proves one, finds its witnesses, and refutes its mutants."""
    obligation = obligations()[name]
    result = check_obligation(obligation, Task(name))
    why = "; ".join(f"{each}: {STATEMENTS[each]}" for each in obligation.statements)
    assert result.outcome is Outcome.PROVED, f"{name} is {result.outcome.value}, for {why}"


def test_the_reference_does_what_is_proved(model: Model) -> None:
    """Goal: the proofs are about the reference. Method: every step of it is made of transitions."""
    assert drive([model], OPERATIONS, Counter()).wrong == ()
