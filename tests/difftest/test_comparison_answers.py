"""The comparison of answers.

Goal: every answer that differs is reported under the guarantee that it breaks. Method: for each kind of answer the
reference's own, and one with an injected difference; the same answer twice is the control.
"""

from __future__ import annotations

from typing import get_args

import pytest
from attrs import evolve

from kvgate.kernel.comparison import Comparison, hit_tokens_of
from kvgate.kernel.difference import Difference
from kvreference.answers import (
    Answer,
    Copies,
    Copy,
    Done,
    Granted,
    Happened,
    Hit,
    Partial,
    Refused,
    Shared,
    Statistics,
    Success,
)
from kvreference.operations import (
    Admit,
    CommonPrefix,
    Dispatch,
    Finish,
    LookUp,
    Operation,
    Reset,
    Schedule,
    TakeEvents,
    TakeStatistics,
)

BEGUN = Hit(6, ((1,), ()), (Partial(1, 3, 2),))
COPIES = Copies((Copy(1, 3, 7, 2),))

INJECTED: dict[str, tuple[str, Operation, Answer, Answer]] = {
    "a longer hit": ("KV-OP-01", LookUp(0), Hit(4, ((1,),)), Hit(8, ((1, 2),))),
    "a longer hit of a request that is admitted": ("KV-OP-01", Admit(0, 8), Granted(4, ((2,),)), Granted(0, ((2,),))),
    "another hit of a rejected request": ("KV-OP-01", Admit(0, 8), Refused(4, True), Refused(0, True)),
    "no hit reported at all": ("KV-OP-01", LookUp(0), Hit(0, ((),)), Done()),
    "another block serves the hit": ("KV-OP-02", LookUp(0), Hit(4, ((1,),)), Hit(4, ((2,),))),
    "another block is copied": ("KV-OP-02", LookUp(0), BEGUN, evolve(BEGUN, partials=(Partial(1, 4, 2),))),
    "more of a block counts": ("KV-OP-19", LookUp(0), BEGUN, evolve(BEGUN, partials=(Partial(1, 3, 3),))),
    "a block of another group counts": ("KV-OP-19", LookUp(0), BEGUN, evolve(BEGUN, partials=(Partial(0, 3, 2),))),
    "nothing is copied": ("KV-OP-19", LookUp(0), BEGUN, evolve(BEGUN, partials=())),
    "another source": ("KV-OP-19", Dispatch(), COPIES, Copies((Copy(1, 4, 7, 2),))),
    "another destination": ("KV-OP-19", Dispatch(), COPIES, Copies((Copy(1, 3, 8, 2),))),
    "more tokens copied": ("KV-OP-19", Dispatch(), COPIES, Copies((Copy(1, 3, 7, 4),))),
    "a copy in another group": ("KV-OP-19", Dispatch(), COPIES, Copies((Copy(0, 3, 7, 2),))),
    "a copy is forgotten": ("KV-OP-19", Dispatch(), COPIES, Copies(())),
    "a copy too many": ("KV-OP-19", Dispatch(), Copies(()), COPIES),
    "copies are not sent": ("KV-OP-19", Dispatch(), COPIES, Done()),
    "more from another node": ("KV-OP-24", Admit(0, 8, 8), Granted(0, ((1,),), 4), Granted(0, ((1,),), 5)),
    "nothing from another node": ("KV-OP-24", Admit(0, 8, 8), Granted(0, ((1,),), 4), Granted(0, ((1,),))),
    "loaded at once": ("KV-OP-24", Admit(0, 8, 8, True), Granted(0, ((1,),), 4, True), Granted(0, ((1,),), 4)),
    "other blocks for what is loaded": (
        "KV-OP-05",
        Admit(0, 8, 8, True),
        Granted(0, ((1,),), 4, True),
        Granted(0, ((2,),), 4, True),
    ),
    "no room for what another node provides": ("KV-OP-04", Admit(0, 8, 8), Granted(0, ((1,),), 4), Refused(0, False)),
    "let through the gate": ("KV-OP-03", Admit(0, 8), Refused(0, True), Granted(0, ((1,),))),
    "stopped by the gate": ("KV-OP-03", Admit(0, 8), Granted(0, ((1,),)), Refused(0, True)),
    "stopped by the gate, not by the pool": ("KV-OP-03", Admit(0, 8), Refused(0, False), Refused(0, True)),
    "an allocation is rejected": ("KV-OP-04", Schedule(0, 8), Granted(0, ((1,),)), Refused(0, False)),
    "an allocation is granted": ("KV-OP-04", Schedule(0, 8), Refused(0, False), Granted(0, ((1,),))),
    "other blocks are granted": ("KV-OP-05", Schedule(0, 8), Granted(0, ((1,),)), Granted(0, ((2,),))),
    "a reset is rejected": ("KV-OP-11", Reset(), Success(True), Success(False)),
    "no events reported at all": ("KV-OP-12", TakeEvents(), Happened(()), Done()),
    "a look-up is not counted": ("KV-OP-13", TakeStatistics(), Statistics(1, 8), Statistics(0, 0)),
    "more is shared": ("KV-OP-14", CommonPrefix(0), Shared((1,)), Shared((2,))),
}


@pytest.mark.parametrize(("statement", "operation", "ours", "theirs"), INJECTED.values(), ids=INJECTED)
def test_an_answer_that_differs_breaks_its_guarantee(
    statement: str, operation: Operation, ours: Answer, theirs: Answer
) -> None:
    """The difference names the operation and quotes both answers."""
    expected = Difference(statement, f"answer to {type(operation).__name__}", str(ours), str(theirs))
    assert expected == Comparison().of_answers(operation, ours, theirs)


@pytest.mark.parametrize(("operation", "answer"), [injected[1:3] for injected in INJECTED.values()], ids=INJECTED)
def test_the_same_answer_is_not_a_difference(operation: Operation, answer: Answer) -> None:
    """The control: the reference's answer to each of the operations above."""
    assert Comparison().of_answers(operation, answer, answer) is None


def test_an_operation_without_an_answer_may_not_answer() -> None:
    """Done is an answer, too."""
    assert Comparison().of_answers(Finish(0), Done(), Done()) is None
    assert Comparison().of_answers(Finish(0), Done(), Success(True)) is not None


def test_every_kind_of_answer_is_compared() -> None:
    """A kind added to the answers needs a row above."""
    assert set(get_args(Answer)) == {type(answer) for injected in INJECTED.values() for answer in injected[2:]}


def test_three_kinds_of_answer_tell_a_hit() -> None:
    """The others report none."""
    reported: dict[Answer | None, int | None] = {
        Hit(1, ()): 1,
        Granted(2, ()): 2,
        Refused(3, False): 3,
        Done(): None,
        None: None,
    }
    assert reported == {answer: hit_tokens_of(answer) for answer in reported}
