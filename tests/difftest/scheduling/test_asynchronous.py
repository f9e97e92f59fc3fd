"""Steps that are scheduled before the output of the step before is known.

Goal: the blocks that a step in flight reads and writes stay where they were when the step was scheduled, though its
request may have ended, or lost its blocks, meanwhile. Method: vLLM's asynchronous scheduler under the monitors, the
worker as late as it may be, and other nodes as early; its known findings, shown; and the scheduler broken.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from kvgate.findings.register import with_ids
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Collect, Operation, Stage
from kvgate.monitors.slot_memory import LEFT, NO_BLOCK, NO_ENTRY, Misread, Where
from kvreference.geometry import Geometry, Group
from kvreference.holdings import tokens_passed
from kvreference.operations import Abort, Transferred
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

from .stage import HYBRID, found, full, keeps_rejected, run, serve, steps, undeclared

ASYNCHRONOUS = Stage(asynchronous=True)
CONNECTED = Stage(asynchronous=True, connector=True)
DRAFTING = Settings(
    Geometry((Group("full", 16, lookahead=True),)), blocks=60, tokens_max=256, chunk_tokens=64, drafts_max=3
)
SLIDING = Settings(
    Geometry((Group("full", 16, lookahead=True), Group("sliding_window", 16, 32, lookahead=True))),
    blocks=60,
    tokens_max=256,
    chunk_tokens=64,
    drafts_max=3,
)
KEEPING = Settings(
    Geometry((Group("full", 16), Group("mamba", 16, states="all"))), blocks=35, tokens_max=258, chunk_tokens=258
)
STOPS = Step((Reply(ends=True),))
DRAFTS: tuple[Operation, ...] = (
    *(Step((Reply(accepted=step % 4, token=5000 + 10 * step, drafts=3),)) for step in range(12)),
    *(Step((Reply(accepted=0, token=6000 + 10 * step, drafts=3),)) for step in range(12)),
)

SOUND: dict[str, tuple[Settings, Stage, tuple[Operation, ...]]] = {
    "two prompts": (full(60), ASYNCHRONOUS, (serve(0, 100, 9), serve(1, 90, 9, family=0), *steps(14))),
    "with windows": (Settings(HYBRID, blocks=60), ASYNCHRONOUS, (serve(0, 100, 9), serve(1, 90, 9), *steps(14))),
    "preempted in flight": (full(12, tokens_max=200), ASYNCHRONOUS, (serve(0, 60, 60), serve(1, 80, 60), *steps(90))),
    "returned early": (
        full(60),
        ASYNCHRONOUS,
        tuple(each for step in steps(9) for each in (serve(0, 30), step, Collect())),
    ),
    "stopped in flight": (full(60), ASYNCHRONOUS, (serve(0, 40, 20), STOPS, *steps(6))),
    "aborted in flight": (full(60), ASYNCHRONOUS, (serve(0, 40, 20), *steps(3), Abort(0), serve(1, 200), *steps(6))),
    "with drafts": (DRAFTING, ASYNCHRONOUS, (serve(0, 60, 40), serve(1, 30, 40), *DRAFTS)),
    "stopped in flight, with states, and read at its end": (
        KEEPING,
        evolve(CONNECTED, long_prefill_tokens=16),
        (serve(4, 256, 2, external_tokens=208, sends=True), *steps(2), STOPS, *steps(2)),
    ),
    "three in flight": (full(60), Stage(asynchronous=True, in_flight_max=3), (serve(0, 100, 9), *steps(16))),
    "with other nodes": (
        full(60),
        CONNECTED,
        (
            serve(0, 200, external_tokens=96, loads=True),
            serve(1, 60, 9, sends=True),
            *steps(3),
            Transferred(0),
            *steps(9),
            Transferred(1),
            *steps(3),
        ),
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found(name: str) -> None:
    """And tokens were answered."""
    settings, stage, operations = SOUND[name]
    engine = Engine(settings, stage)
    assert [] == undeclared(engine, operations)
    assert "Sample" in {type(each).__name__ for each in engine.lockstep.performed}


# A stops while its next step is in flight; its blocks are given to B, and another node writes them first.
REUSED: tuple[Operation, ...] = (
    serve(0, 40, 20),
    STOPS,
    *steps(1),
    serve(1, 200, external_tokens=199, loads=True),
    *steps(1),
)


def misread_first(settings: Settings, stage: Stage, operations: tuple[Operation, ...]) -> tuple[str, str, str]:
    """The detector, statement and subject of the difference, if no finding is known to ghost memory."""
    engine = Engine(settings, stage)
    engine.memory._physical.is_known = lambda _misread: False
    (first,) = run(engine, operations)
    return first.detector, first.difference.statement, first.difference.subject


def test_blocks_of_a_step_in_flight_are_not_given_to_a_load() -> None:
    """vLLM allocates them to one (vllm-project/vllm#45357): the step overwrites what was loaded, and the request that
    loaded it reads that.
    """
    engine = Engine(full(14), CONNECTED)
    run(engine, (*REUSED, Transferred(1), *steps(4)))
    assert set(engine.lockstep.known.times) == {"022-given-up-while-in-flight"}
    assert ("ghost", "KV-MEM-01", "request 1, group 0") == misread_first(
        full(14), CONNECTED, (*REUSED, Transferred(1), *steps(4))
    )


def test_a_draft_layer_writes_over_a_load_as_well() -> None:
    """The step in flight computes up to the end of a block, and drafts into the next one."""
    settings = evolve(DRAFTING, blocks=14)
    load = serve(1, 200, external_tokens=199, loads=True)
    engine = Engine(settings, CONNECTED)
    assert [] == undeclared(engine, (serve(0, 44, 20), STOPS, *steps(1), load, *steps(1), Transferred(1), *steps(4)))
    assert "022-given-up-while-in-flight" in engine.lockstep.known.times


@pytest.mark.parametrize("collected", [(Collect(), Transferred(1)), (Collect(), Collect(), Transferred(1))])
def test_if_the_step_comes_back_first_nothing_is_wrong(collected: tuple[Operation, ...]) -> None:
    """It is a race: a load that comes later than the step writes over what the step wrote."""
    assert found(full(14), CONNECTED, (*REUSED, *collected, *steps(4))) is None


def test_a_window_is_not_left_before_the_drafts_are_verified() -> None:
    """vLLM leaves it (vllm-project/vllm#47728): it counts drafts that may be rejected, and frees what they left."""
    for stage, acts in ((ASYNCHRONOUS, True), (Stage(), False)):
        engine = Engine(SLIDING, stage)
        assert [] == undeclared(engine, (serve(0, 60, 60), *DRAFTS))
        assert acts == ("028-window-left-while-in-flight" in engine.lockstep.known.times)


NARROW = Settings(
    Geometry((Group("sliding_window", 16, 32),)),
    blocks=5,
    tokens_max=256,
    chunk_tokens=64,
    requests_max=4,
    full_sequence_must_fit=False,
)


def test_a_block_that_a_step_in_flight_reads_is_not_given_to_a_load() -> None:
    """vLLM gives it: the step reads token 15 as the last one to do so, and the window of the next step has left it."""
    load = serve(1, 33, 2, external_tokens=32, loads=True)
    operations: tuple[Operation, ...] = (serve(0, 40, 40), *steps(8), load, *steps(1), Transferred(1), *steps(3))
    engine = Engine(NARROW, CONNECTED)
    assert [] == undeclared(engine, operations)
    assert "028-window-left-while-in-flight" in engine.lockstep.known.times
    assert ("ghost", "KV-MEM-01", "request 0, group 0") == misread_first(NARROW, CONNECTED, operations)


def test_a_step_in_flight_writes_a_block_that_its_window_has_left() -> None:
    """Tokens loaded within the first step are written with it. By then the window has left its first block, which has
    been loaded for another request: that one reads what the step wrote.
    """
    settings = evolve(NARROW, geometry=Geometry((Group("sliding_window", 16, 64),)), blocks=13, chunk_tokens=64)
    stage = evolve(CONNECTED, running_max=2, long_prefill_tokens=32)
    load = serve(1, 178, 1, family=0, external_tokens=65, loads=True)
    operations: tuple[Operation, ...] = (serve(0, 113, 1, external_tokens=49), *steps(1), load, *steps(1))
    operations += (Transferred(1), *steps(3))
    engine = Engine(settings, stage)
    assert [] == undeclared(engine, operations)
    assert "028-window-left-while-in-flight" in engine.lockstep.known.times
    assert ("ghost", "KV-MEM-01", "request 1, group 0") == misread_first(settings, stage, operations)


def test_only_what_a_window_left_too_early_is_missing_for_that() -> None:
    """Control: another group, another block, a block without a mark, and a block that is there are not excused."""
    (finding,) = with_ids(["028-window-left-while-in-flight"])
    acts = finding.acts(SLIDING, "0.20.2")
    (left,) = acts.deltas
    # Of 47 tokens, three are drafts: the window leaves block 0 for them.
    assert left.answer(tokens_passed, 0, SLIDING.geometry.groups, 47, 3) == 47

    def missing(token: int, group: int = 1, got: str = NO_BLOCK, mark: str | None = None, request: int = 0) -> Misread:
        return Misread(Where(request, group, 43), token, 0, "its state", got, (), (), mark)

    assert acts.misreads(missing(13))
    assert acts.misreads(missing(13, got="another", mark=LEFT))
    for other in (missing(16), missing(13, group=0), missing(13, got="another"), missing(13, got=NO_ENTRY)):
        assert not acts.misreads(other)
    assert not acts.misreads(missing(13, request=1))
    # Without the reference, nothing says which block it was.
    assert acts.unfollowed is not None
    assert acts.unfollowed(missing(16))
    assert not acts.unfollowed(missing(16, group=0))


def schedules_twice(original: Any, scheduler: Any, output: Any) -> None:
    """Tokens in flight are not counted, and so they are scheduled again."""
    original(scheduler, output)
    for name in output.num_scheduled_tokens:
        scheduler.requests[name].num_output_placeholders = 0


def gives_up_in_flight(original: Any, scheduler: Any, output: Any) -> None:
    """Blocks are freed as soon as a step is scheduled, before it was computed."""
    original(scheduler, output)
    for name in output.num_scheduled_tokens:
        scheduler.kv_cache_manager.coordinator.free(name)


BROKEN: dict[str, tuple[str, Any, Settings, tuple[Operation, ...], tuple[str, str]]] = {
    "keeps what was rejected": (
        "update_from_output",
        keeps_rejected,
        DRAFTING,
        (serve(0, 60, 40), *DRAFTS),
        ("chunks", "KV-SYS-06"),
    ),
    "schedules twice": (
        "_update_after_schedule",
        schedules_twice,
        full(60),
        (serve(0, 40, 20), *steps(8)),
        ("scheduler", "KV-SYS-02"),
    ),
    "gives up in flight": (
        "_update_after_schedule",
        gives_up_in_flight,
        full(60),
        (serve(0, 40, 20), *steps(8)),
        ("batch", "KV-SYS-03"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_it_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thing at a time, in runs in which nothing is wrong otherwise."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    method, replacement, settings, operations, expected = BROKEN[name]
    assert found(settings, ASYNCHRONOUS, operations) is None
    original = getattr(AsyncScheduler, method)
    monkeypatch.setattr(AsyncScheduler, method, lambda *all_of_them: replacement(original, *all_of_them))
    assert expected == found(settings, ASYNCHRONOUS, operations)
