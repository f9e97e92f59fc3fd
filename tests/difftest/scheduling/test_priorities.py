"""Which request is served first, which waits for a grammar, and which is aborted: at every point of a run.

Goal: cached content was computed, a waiting request is admitted when it is ready, and an abort leaves nothing held.
Method: vLLM's scheduler followed by the reference at every decision; its known findings, shown and distinguished; and
the scheduler broken, one thing at a time.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from kvgate.findings import explain_engine
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Collect, GrammarReady, Operation, ResetCache, Stage
from kvreference.operations import Abort, Admit, Preempt, Transferred
from kvreference.settings import Settings

from .stage import HYBRID, full, run, serve, steps, undeclared

BY_PRIORITY = Stage(by_priority=True, long_prefill_tokens=32)
TIGHT = full(13, chunk_tokens=64, tokens_max=200, full_sequence_must_fit=False)
# The less urgent request came first, and so is given its blocks first in every step, and then loses them in the same.
PREEMPTED: tuple[Operation, ...] = (serve(0, 150, 4, priority=2), *steps(1), serve(1, 30, 6, priority=0), *steps(20))


def test_a_step_that_was_taken_back_stays_cached() -> None:
    """vLLM caches what a step is to write before the step is sent: by priority, a request that is preempted in it never
    writes.

    So the request itself hits a block in which nothing was ever written. The mark on that block identifies the finding.
    """
    engine = Engine(TIGHT, BY_PRIORITY)
    run(engine, PREEMPTED)
    assert "020-preempted-in-its-step-stays-cached" in engine.lockstep.known.times
    engine = Engine(TIGHT, BY_PRIORITY)
    # Without marks it is a divergence as any other.
    engine.memory._mark = lambda *_work: None  # type: ignore[method-assign]
    (found,) = run(engine, PREEMPTED)
    assert ("ghost", "KV-MEM-01", "request 0, group 0") == (
        found.detector,
        found.difference.statement,
        found.difference.subject,
    )
    assert explain_engine(found, engine) is None


def test_in_the_order_of_arrival_it_does_not_happen() -> None:
    """The last that runs is preempted, and it is not scheduled yet."""
    engine = Engine(TIGHT, Stage(long_prefill_tokens=32))
    assert [] == undeclared(engine, PREEMPTED)
    assert any(isinstance(each, Preempt) for each in engine.lockstep.performed)


def test_the_most_urgent_is_admitted_first() -> None:
    """Among those that wait; and the reference follows."""
    engine = Engine(full(40), Stage(1, by_priority=True))
    requests = [serve(number, 20, 2, priority=2 - number) for number in range(3)]
    assert [] == undeclared(engine, (*requests, *steps(8)))
    admitted = [each.request for each in engine.lockstep.performed if isinstance(each, Admit)]
    assert [2, 1, 0] == admitted


def test_a_request_that_waits_for_a_grammar_is_passed_and_comes_back() -> None:
    """Others are served meanwhile, and this is not reported as a hang, for a grammar gets ready by itself."""
    engine = Engine(full(40), Stage(1))
    operations: tuple[Operation, ...] = (
        serve(0, 20, 2, structured=True),
        serve(1, 20, 2),
        *steps(6),
        GrammarReady(0),
        *steps(4),
    )
    assert [] == undeclared(engine, operations)
    admitted = [each.request for each in engine.lockstep.performed if isinstance(each, Admit)]
    assert [1, 0] == admitted


def test_an_admission_without_a_grammar_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not wait for it."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import RequestStatus

    def promotes(_scheduler: Any, request: Any) -> bool:
        request.status = RequestStatus.WAITING
        return True

    monkeypatch.setattr(Scheduler, "_try_promote_blocked_waiting_request", promotes)
    found = run(Engine(full(40), Stage()), (serve(0, 20, structured=True), *steps(3)))
    assert ("scheduler", "KV-SYS-02") == (found[0].detector, found[0].difference.statement)


LOADED = {"external_tokens": 32, "sends": True}
MIXED: tuple[Operation, ...] = (
    serve(0, 60, 12, priority=1, loads=True, **LOADED),
    serve(1, 90, 12, family=0, **LOADED),
    *steps(1),
    serve(2, 40, 6, structured=True, priority=2),
    *steps(2),
    Transferred(0),
    *steps(2),
    GrammarReady(2),
    ResetCache(),
    *steps(3),
    Collect(),
    *steps(2),
)
STAGES = {
    "as they come": Stage(),
    "by priority": Stage(2, by_priority=True),
    "with other nodes": Stage(connector=True),
    "asynchronous": Stage(asynchronous=True),
    "asynchronous, with other nodes, by priority": Stage(asynchronous=True, connector=True, by_priority=True),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("who", [0, 1, 2])
def test_an_abort_at_any_point_leaves_nothing(who: int, stage: str) -> None:
    """Waiting, loading, running, in flight, preempted, ended and still read: nothing is left, and nothing is wrong."""
    for point in range(1, len(MIXED) + 1):
        engine = Engine(full(40, tokens_max=200), STAGES[stage])
        assert [] == undeclared(engine, (*MIXED[:point], Abort(who), *MIXED[point:])), point


def test_the_same_where_blocks_are_freed_on_the_way() -> None:
    """A model with windows."""
    settings = Settings(HYBRID, blocks=60, tokens_max=200, chunk_tokens=64)
    for point in range(1, len(MIXED) + 1):
        assert [] == undeclared(Engine(settings, Stage(2)), (*MIXED[:point], Abort(1), *MIXED[point:])), point


def keeps_the_place(original: Any, scheduler: Any, names: Any, status: Any) -> Any:
    """An aborted request stays in the scheduler's tables."""
    known = [name for name in names if name in scheduler.requests]
    answer = original(scheduler, names, status)
    if known:
        scheduler.prev_step_scheduled_req_ids = {*known}
        scheduler.schedule_log = [*getattr(scheduler, "schedule_log", ()), *known]
    return answer


def test_a_request_left_in_a_container_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leak monitor walks every container of the scheduler."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.finish_requests
    monkeypatch.setattr(Scheduler, "finish_requests", lambda *everything: keeps_the_place(original, *everything))
    found = undeclared(Engine(full(40), Stage()), (serve(0, 20), *steps(1), Abort(0), *steps(2)))
    assert [("leak", "KV-LEAK-01", "schedule_log")] == [
        (each.detector, each.difference.statement, each.difference.subject) for each in found
    ]
