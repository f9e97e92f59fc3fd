"""The zoo of mutants: what is said of each, and that a break is always undone.

That the gate notices them is not tested here: that takes a campaign.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from kvgate.models import MODELS
from kvgate.mutants.mutant import Mutant, breaks, locate
from kvgate.mutants.zoo import ZOO
from kvreference.statements import STATEMENTS

every_mutant = pytest.mark.parametrize("mutant", ZOO, ids=lambda mutant: mutant.name)


def test_no_name_is_given_twice() -> None:
    """Goal: a name leads to one mutant. Method: count."""
    assert [name for name, times in Counter(mutant.name for mutant in ZOO).items() if times > 1] == []


@every_mutant
def test_names_are_kebab_case(mutant: Mutant) -> None:
    """Goal: a name can be typed in a shell. Method: match it."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", mutant.name)


@every_mutant
def test_what_is_broken_is_one_sentence(mutant: Mutant) -> None:
    """Goal: a report quotes it as it is. Method: a capital first, one full stop last, no line break."""
    assert re.fullmatch(r"[A-Z][^.\n]*\.", mutant.sentence)


@every_mutant
def test_it_violates_a_known_guarantee(mutant: Mutant) -> None:
    """Goal: a mutant belongs to a guarantee. Method: look its id up."""
    assert mutant.statement in STATEMENTS


@every_mutant
def test_it_names_known_models(mutant: Mutant) -> None:
    """Goal: a hunt picks models by these names. Method: look each up; None means all, and an empty hint means none."""
    assert mutant.models is None or (mutant.models and set(mutant.models) <= set(MODELS))


def test_the_zoo_is_large_enough() -> None:
    """Goal: killing all of them says something about the gate. Method: count those that can be killed."""
    assert sum(mutant.equivalent is None for mutant in ZOO) >= 30


def test_every_guarantee_is_broken_by_a_mutant() -> None:
    """Goal: no guarantee is checked by code that could as well be absent. Method: compare ids."""
    assert set(STATEMENTS) == {mutant.statement for mutant in ZOO if mutant.equivalent is None}


@pytest.mark.parametrize("mutant", [mutant for mutant in ZOO if mutant.equivalent is not None], ids=lambda m: m.name)
def test_equivalence_is_argued(mutant: Mutant) -> None:
    """Goal: nobody excuses a mutant without a reason. Method: the reason is a sentence."""
    assert re.fullmatch(r"[A-Z].{40,}\.", mutant.equivalent or "")


def test_the_zoo_is_read_without_vllm() -> None:
    """Goal: listing the zoo is fast. Method: import it in a fresh interpreter and look for vLLM and torch."""
    program = "import sys, kvgate.mutants.zoo; print([m for m in ('vllm', 'torch') if m in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert finished.stdout.strip() == "[]"


class Whole:
    """Something to break."""

    def plain(self, number: int) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> tuple[type, int]:
        return cls, number


class Part(Whole):
    """Inherits what is broken."""


def _doubled(original: Any, owner: Any, number: int) -> Any:
    """Twice the number."""
    return original(owner, 2 * number)


def _breaking(*names: str) -> Mutant:
    return breaks(*(f"{__name__}:{name}" for name in names), violates="KV-SYS-01")(_doubled_publicly())


def _doubled_publicly() -> Any:
    _doubled.__name__ = "doubled"
    return _doubled


def test_a_break_is_undone() -> None:
    """Goal: nothing stays broken. Method: call inside and outside, a plain method and a class method."""
    whole = Whole()
    with _breaking("Whole.plain", "Whole.of_class").applied():
        assert whole.plain(3) == 6
        assert (Part, 6) == Part.of_class(3)
    assert whole.plain(3) == 3
    assert (Part, 3) == Part.of_class(3)


def test_a_break_is_undone_after_an_exception() -> None:
    """Goal: a mutant that makes the system raise does not outlive it. Method: raise inside."""
    before = vars(Whole)["plain"]
    with pytest.raises(ZeroDivisionError), _breaking("Whole.plain").applied():
        raise ZeroDivisionError
    assert before is vars(Whole)["plain"]


@pytest.mark.parametrize("missing", ["Whole.absent", "Absent.plain", "Part.plain"])
def test_a_missing_target_breaks_nothing(missing: str) -> None:
    """Goal: a mutant that does not fit is refused whole. Method: a target that fits, then one that does not.

    An inherited method is missing, too: to break it there would leave it broken for good.
    """
    before = vars(Whole)["plain"]
    with (
        pytest.raises(LookupError, match=f"this vLLM has no .*:{missing}"),
        _breaking("Whole.plain", missing).applied(),
    ):
        pass
    assert before is vars(Whole)["plain"]


def test_every_mutant_breaks_vllm_and_restores_it() -> None:
    """Goal: each fits vLLM 0.20.2, and none leaves anything behind. Method: compare all targets before and after."""
    pytest.importorskip("vllm")
    before = {target: _now(target) for mutant in ZOO for target in mutant.targets}
    for mutant in ZOO:
        with mutant.applied():
            unbroken = [target for target in mutant.targets if _now(target) is before[target]]
            assert unbroken == [], mutant.name
        assert before == {target: _now(target) for target in before}, mutant.name


def _now(target: str) -> object:
    owner, attribute = locate(target)
    return vars(owner)[attribute]
