"""Injected faults: what a shadow says of each, how soon, and what it names. The table is ``faults.py``'s."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.kernel.shadow_switch import STALL_SECONDS, Mode, Switch
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.adapter.worker import abort
from kvgate.shadow import calls
from kvgate.shadow.adapter import observer, stall_watch
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.adapter.stall_watch import ABORT_SECONDS, EVENT_SECONDS, StallWatch
from kvgate.shadow.shadow_checker import ShadowChecker

from .faults import FAULTS, STALLED, START_STEP, Fault, Injected, assertion_in_the_manager, hang, observe
from .faults import one_block_leaks_on_abort as leaks
from .live import Server
from .test_shadow_sidecar import Shadowed, beside, shadowed, wait_until

__all__ = ["shadowed"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_detected_in_its_step(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: each is reported, by the guarantee that it violates. Method: it acts once; a hang is given its seconds."""
    row = observe(monkeypatch, fault)
    assert FAULTS[fault] == row.detected
    if row.detected == STALLED:
        assert STALL_SECONDS <= row.delay_seconds <= STALL_SECONDS + 1
    else:
        assert row.delay_steps in (0, 1)
    assert ("its own AssertionError" in row.server) is (fault is assertion_in_the_manager)


@pytest.mark.parametrize("seed", range(4))
def test_without_a_fault_nothing_is_detected(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the control. Method: the same lives without a fault."""
    assert "" == observe(monkeypatch, None, seed).detected


def aborted(each: Shadowed) -> None:
    """A client of a request that runs goes away."""
    for request in each.server.scheduler.running[:1]:
        abort(each.server.scheduler, [number_in(request.request_id)])


def test_a_second_leak_is_counted_within_100_steps(
    shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: after a difference the shadow is not blind until the next checkpoint, and names blocks and requests.
    Method: two leaks, 50 steps apart, where a checkpoint is due after millions of calls."""
    each = shadowed()
    each.observer.checkpoint_calls = 10**9
    for number in (1, 2):
        injected = Injected(step=START_STEP)
        with monkeypatch.context() as patch:
            leaks(patch, injected)
            while injected.acted is None:
                each.server.serve(1)
                aborted(each)
        each.server.step()
        wait_until(lambda number=number: each.status.differences >= number)  # type: ignore[misc]  # bound by default
        # The process has asked by then; the engine looks every 16 steps.
        each.server.serve(32)
        wait_until(lambda number=number: len(each.status.lost_blocks) == number)  # type: ignore[misc]  # as above
    status = each.end()
    assert 2 == status.differences
    assert all(
        "is held by no request, and not free; it was last given to request" in line for line in status.lost_blocks
    )
    assert all(line.endswith("which was aborted") for line in status.lost_blocks)
    story = (each.folder / status.dumps[0]).with_suffix(".txt").read_text()
    assert f"lost: {status.lost_blocks[0]}" in story
    assert status.first_at.endswith(" UTC")
    assert status.first_at in story


def test_what_raised_is_the_reason_of_the_end(
    shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Goal: nobody reads "0 differences, ended". Method: an assertion in the manager ends the engine."""
    injected = Injected()
    assertion_in_the_manager(monkeypatch, injected)
    each = shadowed()
    each.server.serve(20)
    injected.step = START_STEP
    with pytest.raises(AssertionError, match="injected"):
        each.server.serve(50)
    status = each.end()
    assert 1 == status.differences
    assert status.reason.startswith("AssertionError in allocate_slots of request ")
    assert f"{status.reason}: injected" in status.raised
    assert status.first.startswith("KV-SYS-01 at step ")
    wait_until(lambda: f"raised: {status.raised}" in capfd.readouterr().err)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("shutdown", "the engine was shut down"), ("gone", "the engine's process ended without a word"),
     ("asked", "the shadow's process was asked to end")],
)  # fmt: skip
def test_the_reason_of_an_end(shadowed: Callable[..., Shadowed], how: str, reason: str) -> None:
    """Goal: why nothing follows any more. Method: an engine that ends, one that is gone, and a SIGTERM."""
    each = shadowed()
    each.server.serve(10)
    wait_until(lambda: each.status.calls > 0)
    if how == "shutdown":
        assert reason == each.end().reason
        return
    if how == "gone":
        beside(each).channel.close()
    else:
        beside(each)._process.terminate()
    wait_until(lambda: each.status.state == "ended")
    assert reason == each.status.reason


@pytest.mark.ci
def test_a_hang_is_reported_in_time(
    shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Goal: log and status name the request, though the engine takes no step. Method: the clocks of a real engine."""
    each = shadowed()
    each.server.serve(10)
    with monkeypatch.context() as patch:
        injected = Injected(step=START_STEP)
        hang(patch, injected)
        while injected.acted is None:
            each.server._clients()
    each.server.random.seed(0)
    while each.server.scheduler.running or each.server.scheduler.waiting:
        each.server.step()
    wait_until(lambda: bool(each.status.stalled))
    (line,) = each.status.stalled
    assert "in no queue" in line
    seconds = float(line.split("known for ")[1].split(" s")[0])
    assert STALL_SECONDS <= seconds <= STALL_SECONDS + 2
    wait_until(lambda: "stalled: request " in capfd.readouterr().err)
    assert 0 == each.end().differences


class Clocked:
    """A server, and the clocks of its requests, with a clock of this test."""

    def __init__(self, **more: Any) -> None:
        self.server = Server("full", **more)
        self.seconds, self.steps = 0.0, 0
        self.watch = StallWatch(self.server.scheduler, number_in, lambda: self.steps, lambda: False)
        self.watch.now = lambda: self.seconds

    def wait(self, seconds: int) -> list[calls.Stall]:
        """What stalls after so long, looked at once a second."""
        found = []
        for _ in range(seconds):
            self.seconds += 1
            found = self.watch.look()
        return found


def test_who_waits_for_its_turn_does_not_stall() -> None:
    """Goal: no alarm under load. Method: more requests than fit, a step in ten seconds' look, for long."""
    clocked = Clocked(blocks=20)
    for _ in range(200):
        clocked.server.serve(1)
        clocked.steps += 1
        assert [] == clocked.wait(1)


def test_what_is_waited_for_is_named() -> None:
    """Goal: the wait-for graph in words. Method: a worker that returns nothing, with requests that run and wait."""
    clocked = Clocked(blocks=20)
    while not (clocked.server.scheduler.running and clocked.server.scheduler.waiting):
        clocked.server.serve(1)
        clocked.steps += 1
    assert [] == clocked.wait(int(STALL_SECONDS) - 1)
    found = {stall.number: stall.why for stall in clocked.wait(2)}
    running = [number_in(request.request_id) for request in clocked.server.scheduler.running]
    waiting = [number_in(request.request_id) for request in clocked.server.scheduler.waiting]
    assert {*running, *waiting} == set(found)
    assert all(f"no step began after step {clocked.steps}" in found[number] for number in running)
    assert f"request {waiting[0]} waits for blocks: request {running[0]} holds " in found[waiting[0]]
    for number in waiting[1:]:
        assert f"request {number} waits behind request {waiting[0]}, which comes first" in found[number]


def test_an_event_from_outside_has_more_time() -> None:
    """Goal: a transfer is named, and a client that is waited for is no stall. Method: the status of a request."""
    from vllm.v1.request import RequestStatus

    clocked = Clocked()
    while not clocked.server.scheduler.waiting:
        clocked.server._clients()
    (request,) = clocked.server.scheduler.requests.values()
    request.status = RequestStatus.WAITING_FOR_STREAMING_REQ
    assert [] == clocked.wait(2 * int(EVENT_SECONDS))
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    assert [] == clocked.wait(int(EVENT_SECONDS) - 1)
    (stall,) = clocked.wait(3)
    assert "waits for its transfer to end" in stall.why


def test_the_blocks_of_a_finished_request_have_the_time_of_its_transfer() -> None:
    """Goal: no alarm before vLLM itself frees the blocks. Method: a finished request that the scheduler still knows."""
    from vllm.v1.request import RequestStatus

    clocked = Clocked()
    while not clocked.server.scheduler.running:
        clocked.server.serve(1)
    (request, *_) = clocked.server.scheduler.running
    clocked.server.scheduler.running.remove(request)
    request.status = RequestStatus.FINISHED_LENGTH_CAPPED
    number = number_in(request.request_id)
    assert number not in {stall.number for stall in clocked.wait(int(ABORT_SECONDS + EVENT_SECONDS))}
    (stall,) = [stall for stall in clocked.wait(2) if stall.number == number]
    assert "and its blocks are held by a transfer" in stall.why


@pytest.mark.parametrize("state", ["PAUSED_NEW", "PAUSED_ALL"])
def test_a_paused_scheduler_stalls_no_request(state: str) -> None:
    """Goal: no alarm while an operator pauses the engine. Method: requests that run and wait; a pause, and its end."""
    from vllm.v1.core.sched.interface import PauseState

    clocked = Clocked(blocks=20)
    scheduler = clocked.server.scheduler
    while not (scheduler.running and scheduler.waiting):
        clocked.server.serve(1)
    assert [] == clocked.wait(int(STALL_SECONDS) - 1)
    scheduler.set_pause_state(PauseState[state])
    assert [] == clocked.wait(10 * int(STALL_SECONDS))
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert [] == clocked.wait(int(STALL_SECONDS) - 1)
    assert {number_in(name) for name in scheduler.requests} == {stall.number for stall in clocked.wait(2)}


@pytest.mark.ci
def test_a_step_that_takes_long_is_named(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: a worker that computes is not called a scheduler that takes no step. Method: a step without a result, which
    then comes; and no step at all."""
    each = shadowed(stall_seconds=1)
    while len(each.server.scheduler.running) < 1:
        each.server.serve(1)
    step = each.observer.steps
    wait_until(lambda: any(f"no step began after step {step}" in line for line in each.status.stalled))
    output = each.server.scheduler.schedule()
    wait_until(lambda: any(f"step {step + 1} has taken " in line for line in each.status.stalled))
    begun = {name for name in output.num_scheduled_tokens if each.server.scheduler.requests[name].is_prefill_chunk}
    each.server._collect(output, begun)
    assert not each.observer.stalls.is_computing()
    assert 0 == each.end().differences


@pytest.mark.ci
def test_a_request_that_is_not_followed_stalls(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: an alarm, and a sidecar that survives it. Method: requests that arrive while no call is observed."""
    each = shadowed(stall_seconds=1, sample=0.5, period_steps=10)
    each.server.serve(12)
    assert not each.observer.tap.is_on
    known = set(each.observer.book.followed)
    while len(each.server.scheduler.requests.keys() - known) < 2:
        each.server._clients()
    wait_until(lambda: sum(line.startswith("unfollowed request ") for line in each.status.stalled) >= 2)
    names = [line.partition(":")[0] for line in each.status.stalled]
    assert len(names) == len({*names})
    assert each.end().reason == "the engine was shut down"


@pytest.mark.ci
def test_clocks_that_end_are_reported(shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an operator sees that hangs are not reported any more. Method: a request that the clocks cannot read."""
    from kvgate.cli.status import describe

    lines: list[str] = []
    monkeypatch.setattr(stall_watch, "warn", lines.append)
    each = shadowed()
    each.server.serve(5)
    each.server.scheduler.requests["broken"] = object()
    wait_until(lambda: bool(each.status.clocks_ended))
    del each.server.scheduler.requests["broken"]
    assert each.status.clocks_ended.startswith("AttributeError")
    assert any("the stall clocks ended: AttributeError" in line for line in describe(each.folder, each.status))
    (line,) = lines
    assert "the stall clocks ended: AttributeError: 'object' object has no attribute 'status'" in line
    each.server.serve(5)
    assert 0 == each.end().differences


def test_clocks_that_do_not_start_leave_no_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no half of a shadow. Method: a process that can start no thread."""

    def fails(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    server = Server("full")
    monkeypatch.setattr(observer, "start", fails)
    before = dict(vars(server.scheduler)), dict(vars(server.scheduler.kv_cache_manager))
    assert attach(server.scheduler, Switch(Mode.CHECK, tmp_path)) is None
    assert before == (vars(server.scheduler), vars(server.scheduler.kv_cache_manager))


def test_stalls_are_not_part_of_a_recording(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: what is reported in between does no harm. Method: a stall to a process that records."""
    each = shadowed(Mode.RECORD)
    each.server.serve(5)
    beside(each).report_stalls(calls.Stalls([calls.Stall(7, 9.0, "known for 9 s, in no queue")]))
    wait_until(lambda: each.status.stalled == ["request 7: known for 9 s, in no queue"])
    each.server.serve(5)
    assert 10 == each.end().steps


def test_a_leak_is_counted_once() -> None:
    """Goal: what is wrong at one checkpoint is not counted at each. Method: a state with a block that nobody holds."""
    from .test_shadow_checker import EMPTY, SETTINGS

    lost = calls.Checkpoint([0, 0, 1, 0, 0, 0], [1, 3, 4, 5], {}, [], [])
    checker = ShadowChecker(SETTINGS)
    found = [finding for state in (EMPTY, lost, lost, lost) for finding in checker.follow(state)]
    assert 1 == len(found)
    assert ["block 2 is held by no request, and not free; nobody is known to have had it"] == checker.take_lost()
