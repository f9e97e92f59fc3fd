"""The alphabet: values that say what they mean, and refuse to mean nothing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from kvreference.content import Keys
from kvreference.operations import Abort, Admit, Arrive, Evict, Finish, LookUp, Operation, Run, Sample, Schedule, spell


def test_runs_spell_token_ids() -> None:
    """Goal: a prompt is written in runs. Method: two runs and a single token; no run at all."""
    assert [5, 6, 7, 100, 5] == spell([Run(5, 3), Run(100, 1), Run(5, 1)])
    assert [] == spell([])


def test_an_operation_is_a_value() -> None:
    """Goal: a trace is data. Method: equal operations compare and hash equal, others do not; none can be changed."""
    operations: list[Operation] = [Admit(1, 64), Schedule(1, 64), Admit(1, 64), Finish(1), Abort(1), Evict(3), Evict(3)]
    assert operations[0] == operations[2]
    assert operations[0] != operations[1]
    assert 5 == len(set(operations))
    with pytest.raises(FrozenInstanceError):
        LookUp(1).request = 2  # type: ignore[misc]  # what it refuses


def test_an_arrival_says_little_if_little_is_special() -> None:
    """Goal: the common request is short to write. Method: the defaults of an arrival."""
    arrival = Arrive(0, (Run(0, 4),))
    assert (Keys(), True) == (arrival.keys, arrival.reads_cache)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (Run, (-1, 1)),
        (Run, (0, 0)),
        (Arrive, (-1, (Run(0, 1),))),
        (LookUp, (-1,)),
        (Admit, (0, 0)),
        (Schedule, (0, 0)),
        (Sample, (0, -1, 0, 0)),
        (Sample, (0, 0, -1, 0)),
        (Sample, (0, 0, 0, -1)),
        (Evict, (-1,)),
    ],
)
def test_numbers_below_their_limit_are_rejected(operation: Any, arguments: tuple[Any, ...]) -> None:
    """Goal: an operation that cannot be is never built. Method: each number once below its limit."""
    with pytest.raises(ValueError, match="must be >="):
        operation(*arguments)


@pytest.mark.parametrize(("operation", "arguments"), [(Run, (0, 1.0)), (LookUp, ("0",)), (Admit, (0, None))])
def test_what_is_not_a_number_is_rejected(operation: Any, arguments: tuple[Any, ...]) -> None:
    """Goal: a trace that was read wrongly is noticed at once. Method: a float, a word and nothing for a number."""
    with pytest.raises(TypeError, match="must be <class 'int'>"):
        operation(*arguments)


def test_a_prompt_needs_a_token() -> None:
    """Goal: a request without tokens cannot arrive. Method: no run; the control has one."""
    with pytest.raises(ValueError, match="at least one token"):
        Arrive(0, ())
    assert 1 == len(Arrive(0, (Run(0, 1),)).prompt)
