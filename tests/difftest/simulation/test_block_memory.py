"""Ghost memory for simulations: it knows what every block holds.

Goal: a wrong content that a token's attention reads is found, and nothing else. Method: steps reported by hand, each
with one thing wrong, next to the same in order. Faults injected into the reference. The gate's own ghost memory, which
keeps a state per slot, over the same runs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.kernel.monitor import Step
from kvgate.monitors.slot_memory import GhostMemory
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.memory import BlockMemory, Work
from kvgate.simulation.reference import ReferenceRun
from kvreference.answers import Answer, Copy
from kvreference.content import Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.mamba import StateMode
from kvreference.operations import Operation, Run

from .made_workloads import WORKLOADS, small
from .small_workloads import draw, with_states

FULL = Geometry((Group("full", 4),))
WINDOW = Geometry((Group("sliding_window", 4, 5),))
DRAFTING = Geometry((Group("full", 4, lookahead=True),))
SHARED, OTHER = Run(0, 100), Run(1000, 100)


def memory(geometry: Geometry, *texts: tuple[Run, ...]) -> BlockMemory:
    """A memory that knows these requests, numbered from 0."""
    found = BlockMemory(geometry)
    for number, text in enumerate(texts):
        found.enter(number, text)
    return found


def work(number: int, table: list[int], start: int, end: int, verified: int = 0, drafted: int = 0) -> Work:
    """One request's part of a step, in a model of one group."""
    return Work(number, [table], start, end, verified or end, drafted or end)


def test_a_hit_on_what_was_written_is_sound() -> None:
    """Goal: the control of all others. Method: a second request reads what the first one left."""
    ghost = memory(FULL, (SHARED,), (SHARED,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.leave(0)
    ghost.step([work(1, [1, 2, 3], 8, 9)])
    assert None is ghost.unsound
    # Two blocks of the first request, and three of the second.
    assert (5, 1) == (ghost.reads, ghost.hits)


def test_a_hit_on_another_prompt_is_not() -> None:
    """Goal: foreign hits. Method: the second request's text is another one, or another one from its sixth token on."""
    for text in ((OTHER,), (Run(0, 5), OTHER)):
        ghost = memory(FULL, (SHARED,), text)
        ghost.step([work(0, [1, 2], 0, 8)])
        ghost.step([work(1, [1, 2, 3], 8, 9)])
        assert ghost.unsound is not None
        assert "tokens 0 to 4 of request 0" in ghost.unsound or "tokens 4 to 8 of request 0" in ghost.unsound


def test_a_hit_on_a_block_that_was_taken_for_something_else_is_not() -> None:
    """Goal: stale hits. Method: the block is overwritten in between."""
    ghost = memory(FULL, (SHARED,), (OTHER,), (SHARED,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.leave(0)
    ghost.step([work(1, [2], 0, 4)])
    ghost.step([work(2, [1, 2, 3], 8, 9)])
    assert "request 2, group 0, token 4: block 2 holds tokens 0 to 4 of request 1, in group 0" == ghost.unsound


def test_a_block_that_two_requests_write_is_not() -> None:
    """Goal: double use. Method: a block of a request that runs is given to another one; the first reads on."""
    ghost = memory(FULL, (SHARED,), (OTHER,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.step([work(1, [2], 0, 4)])
    assert None is ghost.unsound
    ghost.step([work(0, [1, 2, 3], 8, 9)])
    assert ghost.unsound is not None


def test_a_window_that_was_released_too_early_is_not() -> None:
    """Goal: blocks that are still read must be there. Method: a table without the block, with the null
    block, or reused.
    """
    for table, expected in (([0, 0, 3], "no block to read"), ([0, 9, 3], "nothing that was written")):
        ghost = memory(WINDOW, (SHARED,))
        ghost.step([work(0, [1, 2], 0, 8)])
        ghost.step([work(0, table, 8, 9)])
        assert expected in str(ghost.unsound)
    in_order = memory(WINDOW, (SHARED,))
    in_order.step([work(0, [1, 2], 0, 8)])
    in_order.step([work(0, [0, 2, 3], 8, 9)])
    assert None is in_order.unsound


def test_a_table_that_is_too_short_is_not() -> None:
    """Goal: every token has a slot. Method: a table without the block that is written."""
    ghost = memory(FULL, (SHARED,))
    ghost.step([work(0, [1], 0, 5)])
    assert "request 0, group 0, token 4: no slot to write to" == ghost.unsound


@pytest.mark.parametrize("recycled", [False, True])
def test_a_copy_takes_what_its_source_holds(recycled: bool) -> None:
    """Goal: a hit that ends inside a block. Method: two tokens are copied, from their source or when it is gone."""
    ghost = memory(FULL, (SHARED,), (Run(0, 6), OTHER), (OTHER,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.leave(0)
    if recycled:
        ghost.step([work(2, [2], 0, 4)])
    ghost.step([work(1, [1, 3], 6, 8)], [Copy(0, 2, 3, 2)])
    assert recycled == (ghost.unsound is not None)


@pytest.mark.parametrize("reader", [0, 1])
@pytest.mark.parametrize(("held", "sound"), [(2, True), (0, False)])
def test_only_drafts_that_hold_may_be_hit(held: int, sound: bool, reader: int) -> None:
    """Goal: a rejected draft is not a token. Method: a block ends with drafts; its writer hits it, or another."""
    ghost = memory(DRAFTING, (SHARED,), (SHARED,))
    ghost.step([work(0, [1, 2], 0, 6)])
    ghost.step([work(0, [1, 2], 6, 8, verified=6)])
    ghost.keep(0, 6 + held)
    ghost.leave(0)
    ghost.step([work(reader, [1, 2, 4], 8, 9)])
    assert sound == (ghost.unsound is None)


def test_what_draft_layers_leave_serves_no_request() -> None:
    """Goal: look-ahead slots hold junk. Method: a block that a draft layer wrote to is read by another request."""
    ghost = memory(DRAFTING, (SHARED,), (SHARED,))
    ghost.step([work(1, [7], 0, 4), work(0, [1, 7], 0, 4, drafted=6)])
    ghost.step([work(1, [7, 8], 4, 5)])
    assert "a draft layer" in str(ghost.unsound)


# States


def states(mode: str, drafts: int = 0) -> Geometry:
    """One group of states, in blocks of four tokens or of eight."""
    return Geometry((Group("mamba", 8 if drafts else 4, states=mode, draft_states=drafts),))


@pytest.mark.parametrize("mode", ["all", "align"])
def test_a_state_that_was_left_is_gone_on_from(mode: str) -> None:
    """Goal: the control of those below. Method: a second request continues from the state after eight tokens."""
    ghost = memory(states(mode), (SHARED,), (SHARED,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.leave(0)
    ghost.step([work(1, [0, 2, 3], 8, 9)])
    assert (None, 1, 1) == (ghost.unsound, ghost.reads, ghost.hits)


@pytest.mark.parametrize(
    ("mode", "text", "table", "start", "expected"),
    [
        ("all", OTHER, [1, 2, 3], 8, "block 2 holds tokens 0 to 8 of request 0"),
        ("all", SHARED, [1, 2, 3], 4, None),
        ("align", SHARED, [1, 2, 3], 4, "block 1 holds nothing that was written"),
        ("all", SHARED, [2, 1, 3], 8, "block 1 holds tokens 0 to 4 of request 0"),
        ("all", SHARED, [2, 1, 3], 4, "block 2 holds tokens 0 to 8 of request 0"),
        ("all", SHARED, [1, 0, 3], 8, "no state to continue from"),
        ("all", SHARED, [1], 8, "no state to continue from"),
        ("all", SHARED, [1, 2], 8, "no state to write to"),
    ],
    ids=[
        "foreign",
        "passed",
        "passed, not kept",
        "of fewer tokens",
        "of more",
        "null block",
        "short table",
        "nowhere to write",
    ],
)
def test_only_the_state_of_all_tokens_so_far_is_gone_on_from(
    mode: str, text: Run, table: list[int], start: int, expected: str | None
) -> None:
    """Goal: any other state is found. Method: a request whose table has it, after one that computed eight tokens."""
    ghost = memory(states(mode), (SHARED,), (text,))
    ghost.step([work(0, [1, 2], 0, 8)])
    ghost.leave(0)
    ghost.step([work(1, table, start, start + 1)])
    assert (expected is None and ghost.unsound is None) or str(expected) in str(ghost.unsound)


def test_a_state_is_read_before_any_is_written() -> None:
    """Goal: a step begins with reading. Method: one request's state is another's next place in the same step."""
    ghost = memory(states("all"), (SHARED,), (OTHER,))
    ghost.step([work(0, [1], 0, 4)])
    ghost.step([work(1, [1], 0, 4), work(0, [1, 2], 4, 5)])
    assert None is ghost.unsound
    ghost.step([work(1, [1, 3], 4, 5)])
    assert None is ghost.unsound
    ghost.step([work(0, [1, 2], 5, 6)])
    assert None is ghost.unsound


@pytest.mark.parametrize(("held", "start", "sound"), [(2, 9, True), (1, 8, True), (1, 9, False), (0, 8, False)])
def test_a_step_continues_after_the_last_accepted_draft(held: int, start: int, sound: bool) -> None:
    """Goal: states of rejected drafts serve no step. Method: two drafts, of which so many hold, and the next start."""
    ghost = memory(states("all", 2), (SHARED,))
    ghost.step([work(0, [1, 2, 3], 0, 6)])
    ghost.step([work(0, [1, 2, 3, 4], 6, 9, verified=7)])
    ghost.keep(0, 7 + held)
    ghost.step([work(0, [1, 2, 3, 4], start, start + 1)])
    assert sound == (ghost.unsound is None)


def test_each_draft_needs_a_state() -> None:
    """Goal: states cannot be taken back. Method: a table without a place after the running state."""
    ghost = memory(states("all", 2), (SHARED,))
    ghost.step([work(0, [1, 2, 3], 0, 6)])
    ghost.step([work(0, [1], 6, 8, verified=7)])
    assert "fewer states than drafts (1)" in str(ghost.unsound)


# Faults injected into the reference


def released_early(original: Callable[[Holdings, int, int], None]) -> Callable[[Holdings, int, int], None]:
    """Windows release a block that is still read once more."""
    return lambda self, request, computed: original(self, request, computed + 16)


def blind(original: Callable[..., None]) -> Callable[..., None]:
    """Prefixes are distinguished by their length alone."""

    def extend(self: Prefixes, prefixes: list[object], tokens: list[int], keys: object) -> None:
        original(self, prefixes, [0] * len(tokens), keys)

    return extend


def test_injected_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the memory sees a broken block manager. Method: break the reference in two places, one by one."""
    setting = small(WORKLOADS["agents"], "gemma-hybrid", "dense")
    assert None is arm_of("reference").run(setting).soundness.unsound
    with monkeypatch.context() as patch:
        patch.setattr(Holdings, "release_dead", released_early(Holdings.release_dead))
        assert ReferenceRun(setting).finish().soundness.unsound is not None
    different = small(WORKLOADS["prefixes"], "full", "dense", spare=200)
    with monkeypatch.context() as patch:
        patch.setattr(Prefixes, "extend", blind(Prefixes.extend))
        assert ReferenceRun(different).finish().soundness.unsound is not None


# The gate's own ghost memory


class Observed(ReferenceRun):
    """A run that the gate's ghost memory watches too."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # as the parent's
        self.ghost = GhostMemory(self.scheduler.settings)
        self.misread = 0

    def saw(self, operation: Operation, answer: Answer, start: int) -> None:
        super().saw(operation, answer, start)
        manager = self.manager
        found = self.ghost.observe(Step(operation, answer, manager.snapshot(), manager.population))
        self.misread += found is not None


def test_both_ghost_memories_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: nothing is lost by not keeping every slot. Method: generated settings, and with windows left early."""
    drawn = [draw(Random(seed)) for seed in range(12)]
    for setting in drawn:
        run = Observed(setting)
        assert (None, 0) == (run.finish().soundness.unsound, run.misread)
    monkeypatch.setattr(Holdings, "release_dead", released_early(Holdings.release_dead))
    judged = {alike(setting) for setting in drawn}
    assert {True, False} == judged


@pytest.mark.ci
def test_both_ghost_memories_agree_on_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the same of states, with drafts and without. Method: hybrids in each mode, and with states left early."""
    drawn = [
        draw(Random(seed), drafts, 0.6, with_states(mode, drafts))
        for seed, (mode, drafts) in enumerate(product(StateMode, range(5)))
    ]
    assert [False] * len(drawn) == [alike(setting) for setting in drawn]
    monkeypatch.setattr(Holdings, "release_dead", released_early(Holdings.release_dead))
    assert True in {alike(setting) for setting in drawn}


def alike(setting: Setting) -> bool:
    """Whether a run is unsound; both ghosts say the same."""
    run = Observed(setting)
    unsound = run.finish().soundness.unsound is not None
    assert unsound == (run.misread > 0)
    return unsound


DRAFTED = st.tuples(st.randoms(use_true_random=False), st.integers(0, 4), st.sampled_from([0.0, 0.6, 1.0]))
"""The parameters of a setting, its number of drafts, and how probable it is that one is accepted."""


@pytest.mark.ci
@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(DRAFTED)
def test_drafts_raise_no_alarm(drawn: tuple[Random, int, float]) -> None:
    """Goal: with any drafts, a sound run is called sound. Method: generated settings; the gate's ghost memory, too."""
    assert not alike(draw(*drawn))
