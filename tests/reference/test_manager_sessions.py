"""Sessions: a request whose prompt comes in parts keeps its blocks between them.

Goal: the last answer of a part leaves nothing that a later hit could ask for. Method: parts by hand, on the reference.
"""

from __future__ import annotations

import pytest

from kvreference.answers import Done, Granted, Hit
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Continue,
    LookUp,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Run,
    Sample,
    Schedule,
)
from kvreference.population import Status
from kvreference.retention import replay_boundary
from kvreference.settings import Settings

BLOCK = 16
FIRST = (Arrive(0, (Run(0, BLOCK - 1),)), Admit(0, 64), Sample(0, 0, 500, 0))
"""With its answer, a part fills a block."""


def performed(*operations: Operation, ahead: int = 0) -> Manager:
    """The reference after legal operations."""
    geometry = Geometry((Group("full", BLOCK),), hashed_ahead_tokens=ahead)
    manager = Manager(Settings(geometry, blocks=9, tokens_max=64, chunk_tokens=64))
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        manager.apply(operation)
    return manager


def hit_of(manager: Manager, *prompt: Run) -> int:
    """How many tokens of a prompt, and one more token, are found."""
    manager.apply(Arrive(9, (*prompt, Run(9000, 1))))
    found = manager.apply(LookUp(9))
    assert isinstance(found, Hit)
    return found.tokens


def test_a_paused_session_keeps_its_blocks() -> None:
    """And can only be continued, cut off, or left by its window."""
    manager = performed(*FIRST, Pause(0))
    assert manager.population[0].status is Status.PAUSED
    assert [1] == manager.tables[0][0].blocks
    assert manager.population.resolve(Admit(0, 64)) is None
    assert manager.population.resolve(Preempt(0)) is None
    assert Done() == manager.apply(ReleaseSkipped(0))
    manager.apply(Abort(0))
    assert {} == manager.tables


@pytest.mark.parametrize(("answer", "expected"), [(Run(1000, 1), BLOCK), (Run(500, 1), 0)])
def test_a_part_takes_the_place_of_the_last_answer(answer: Run, expected: int) -> None:
    """The block is found by what was computed in it, and not by what was answered."""
    manager = performed(*FIRST, Pause(0), Continue(0, (Run(1000, 1),)))
    assert [*range(BLOCK - 1), 1000] == manager.population[0].tokens
    assert Granted(0, ((),)) == manager.apply(Admit(0, 64))
    assert expected == hit_of(manager, Run(0, BLOCK - 1), answer)


@pytest.mark.parametrize(("answer", "expected"), [(Run(1000, 1), BLOCK), (Run(500, 1), 0)])
def test_what_depends_on_the_last_answer_goes_with_it(answer: Run, expected: int) -> None:
    """A block whose content covers the token after it: the part takes the place of that token."""
    first = (Arrive(0, (Run(0, BLOCK),)), Admit(0, 64), Sample(0, 0, 500, 0))
    manager = performed(*first, Pause(0), Continue(0, (Run(1000, 2),)), Admit(0, 64), ahead=1)
    assert expected == hit_of(manager, Run(0, BLOCK), answer)


def test_a_part_is_cut_to_the_longest_request() -> None:
    """As a prompt is; if not even a token fits, it is not legal."""
    manager = performed(*FIRST, Pause(0))
    resolved = manager.population.resolve(Continue(7, (Run(1000, 40), Run(2000, 40))))
    assert Continue(0, (Run(1000, 40), Run(2000, 8))) == resolved
    full = performed(Arrive(0, (Run(0, 63),)), Admit(0, 64), Sample(0, 0, 500, 0), Pause(0))
    assert full.population.resolve(Continue(0, (Run(1000, 1),))) is None


def test_a_part_ends_with_an_answer() -> None:
    """A request that was not answered since its part came has not ended it."""
    assert performed(*FIRST[:2]).population.resolve(Pause(0)) is None
    continued = performed(*FIRST, Pause(0), Continue(0, (Run(1000, 1),)), Admit(0, 64))
    assert continued.population.resolve(Pause(0)) is None


def test_a_replay_of_a_session_may_hit_less() -> None:
    """An answer is passed over when it is computed, and is not looked at again when the prompt grows."""
    geometry = Geometry((Group("full", BLOCK), Group("sliding_window", BLOCK, 2 * BLOCK)))
    manager = Manager(Settings(geometry, blocks=40, tokens_max=160, retention_interval_tokens=0))
    manager.apply(Arrive(0, (Run(0, BLOCK),)))
    manager.apply(Admit(0, 64))
    for token in range(4 * BLOCK):
        manager.apply(Sample(0, 0, 500 + token, 0))
        manager.apply(Schedule(0, 1))
    manager.apply(Sample(0, 0, 1, 0))
    manager.apply(Pause(0))
    manager.apply(Continue(0, (Run(1000, 2),)))
    manager.apply(Admit(0, 64))
    request = manager.population[0]
    assert 5 * BLOCK == replay_boundary(geometry, request.prompt_tokens)
    assert 0 == hit_of(manager, *(Run(token, 1) for token in request.tokens))
