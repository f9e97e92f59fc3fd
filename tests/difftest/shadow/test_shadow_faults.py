"""Injected faults: what a shadow says of each, how soon, and what it names. The table is ``faults.py``'s."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvgate.adapters.tap import CALLS
from kvgate.kernel.shadow_switch import STALL_SECONDS, Mode, Switch
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.adapter.worker import abort
from kvgate.shadow import calls
from kvgate.shadow.adapter import attachment, observer, stall_watch
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.adapter.engine_state import LOST_MAX, Followed, RequestBook, checkpoint_of
from kvgate.shadow.adapter.observer import OPTIONAL
from kvgate.shadow.adapter.stall_watch import ABORT_SECONDS, EVENT_SECONDS, StallWatch
from kvgate.shadow.describe import utc
from kvgate.shadow.salting import Salting
from kvgate.shadow.shadow_checker import ShadowChecker
from kvgate.shadow.sidecar import Order, Sidecar

from .faults import (
    FAULTS,
    STALLED,
    START_STEP,
    UNANSWERED,
    Fault,
    Injected,
    assertion_in_the_manager,
    hang,
    hit_one_block_short,
    observe,
)
from .faults import one_block_leaks_on_abort as leaks
from .live import Server, watched
from .test_shadow_sidecar import Shadowed, shadowed, sidecar_of, wait_until

__all__ = ["shadowed"]


@pytest.mark.few(4)
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
    assert (row.server == UNANSWERED) is (fault is hang)


def test_an_alarm_before_the_fault_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a false alarm is not counted as a detection. Method: a fault that acts always, and does not say so."""
    with pytest.raises(AssertionError, match="a false alarm"):
        observe(monkeypatch, lambda patch, _injected: hit_one_block_short(patch, Injected(START_STEP)))


def test_a_wrong_table_of_a_new_request_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the whole table that a new request's worker gets is checked. Method: its first block is another."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def fault(patch: pytest.MonkeyPatch, injected: Injected) -> None:
        def wrong(self: Any) -> Any:
            output = original(self)
            for new in output.scheduled_new_reqs[:1]:
                if injected.acts():
                    new.block_ids[0][0] += 1
            return output

        patch.setattr(Scheduler, "schedule", wrong)

    row = observe(monkeypatch, fault)
    assert ("KV-SYS-03", 0) == (row.detected, row.delay_steps)


@pytest.mark.parametrize("model", ["full", "gpt-oss-hybrid"])
def test_no_table_is_sent_twice(model: str) -> None:
    """Goal: the arrival of a request costs its table once. Method: what is sent to the worker, in 200 steps."""
    server = Server(model, blocks=100)
    sink = watched(server)
    sent: list[calls.Sent] = []
    follow = sink.judge.follow

    def counts(record: calls.Stored) -> Any:
        sent.extend([record] if isinstance(record, calls.Sent) else [])
        return follow(record)

    sink.judge.follow = counts  # type: ignore[method-assign]  # counted on its way
    server.serve(200)
    assert [] == sink.found
    assert len(sent) > 100
    assert [] == [record for record in sent if record.blocks and any(record.blocks)]


def test_what_a_worker_is_sent_after_a_gap_is_not_checked() -> None:
    """Goal: a gap is not a difference. Method: a table that is as allocated, where the allocation was not seen; and
    where it was.
    """
    from .test_shadow_checker import LIFE, SETTINGS

    given = LIFE[:6]
    checker = ShadowChecker(SETTINGS)
    found = [finding for record in (*given, calls.Sent(0, True, [], True)) for finding in checker.follow(record)]
    assert ([], {}) == (found, checker.stats.unjudged)
    assert [] == [*checker.follow(calls.Step(2, 0)), *checker.follow(calls.Sent(0, True, [], True))]
    assert 1 == sum(checker.stats.unjudged.values())


@pytest.mark.parametrize("seed", range(4))
def test_without_a_fault_nothing_is_detected(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the control. Method: the same lives without a fault."""
    assert "" == observe(monkeypatch, None, seed).detected


def aborted(each: Shadowed) -> None:
    """The client of a running request disconnects."""
    for request in each.server.scheduler.running[:1]:
        abort(each.server.scheduler, [number_in(request.request_id)])


@pytest.mark.ci
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
    """Goal: no report reads "0 differences, ended". Method: an assertion in the manager ends the engine."""
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
    assert f"{status.reason}, at shadow/faults.py:" in status.raised
    assert status.first.startswith("KV-SYS-01 at step ")
    wait_until(lambda: f"raised: {status.raised}" in capfd.readouterr().err)


@pytest.mark.parametrize("mode", [Mode.CHECK, Mode.RECORD])
def test_the_text_of_an_exception_is_in_the_log_alone(
    shadowed: Callable[..., Shadowed], monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """Goal: no name and no token is stored. Method: an exception with both, and every file of the shadow."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    def raises(_self: Any, request: Any, *_arguments: Any, **_named: Any) -> None:
        raise ValueError(f"client-seven sent {[123454321]} as {request.request_id}")

    logged: list[str] = []
    monkeypatch.setattr(observer, "warn", logged.append)
    each = shadowed(mode)
    each.server.serve(5)
    with monkeypatch.context() as patch:
        patch.setattr(KVCacheManager, "allocate_slots", raises)
        each.observer.tap.close()
        each.observer.tap.is_closed = False
        each.observer._listen()
        each.observer.tap.is_on = True
        with pytest.raises(ValueError, match="client-seven"):
            each.server.serve(50)
    status = each.end()
    assert status.raised.startswith("ValueError in allocate_slots of request ")
    assert "at shadow/test_shadow_faults.py:" in status.raised
    files = [path.read_bytes() for path in each.folder.iterdir()]
    assert any(b"allocate_slots" in stored for stored in files)
    assert not any(text in stored for stored in files for text in (b"client-seven", b"123454321"))
    (line,) = logged
    assert "client-seven sent [123454321]" in line


@pytest.mark.parametrize(("call", "error"), [("add_request", "ValueError"), ("schedule", "SystemExit")])
def test_what_is_not_an_error_is_none_in_the_status(tmp_path: Path, call: str, error: str) -> None:
    """Goal: checker and status agree. Method: a request that is rejected, an engine that is asked to end, and an error
    as the control."""
    from .test_shadow_recording import CHECKPOINT, HEADER

    for raised, expected in ((calls.Raised(call, error, "a.py:1"), 0), (calls.Raised("free", "KeyError", "a.py:1"), 1)):
        sidecar = Sidecar(Order(Mode.CHECK.value, str(tmp_path), 10**6, 10**6, 8, HEADER))
        sidecar.take(calls.ENCODER.encode([CHECKPOINT, raised]))
        assert (expected, bool(expected)) == (sidecar.status.differences, bool(sidecar.status.raised))


@pytest.mark.parametrize("dumps", [0, 3])
def test_a_difference_that_recurs_asks_for_few_checkpoints(tmp_path: Path, dumps: int) -> None:
    """Goal: the engine's cost is bounded. Method: a sidecar that sees the same difference after each checkpoint."""
    from .test_shadow_recording import CHECKPOINT, HEADER

    asked = list[None]()
    sidecar = Sidecar(Order(Mode.CHECK.value, str(tmp_path), 10**6, 10**6, dumps, HEADER), lambda: asked.append(None))
    for _ in range(20):
        sidecar.take(calls.ENCODER.encode([CHECKPOINT, calls.Evicted([1], calls.After(2, 0, (3, 2, 1)))]))
    assert (20, dumps) == (sidecar.status.differences, len(asked))


def test_checkpoints_that_are_asked_for_become_rare() -> None:
    """Goal: the same, in the engine. Method: a sink that always asks, for 600 steps, and no other checkpoint."""
    server = Server("full")
    sink = watched(server, checkpoint_calls=10**9)
    sink.asks = True
    steps: list[int] = []
    for step in range(1, 601):
        before = sink.judge.stats.checkpoints
        server.serve(1)
        steps += [step] * (sink.judge.stats.checkpoints - before)
    distances = [after - before for before, after in pairwise(steps)]
    assert len(steps) >= 4
    assert all(after >= 2 * before - 16 for before, after in pairwise(distances))
    assert len(steps) <= 7


def test_the_text_of_an_unknown_time() -> None:
    """Goal: no time ends a report. Method: numbers that are no date."""
    assert "1970-01-01 00:00:01 UTC" == utc(1000)
    for number in (2**62, 2**2000, -(2**62)):
        assert f"{number} ms since 1970" == utc(number)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("shutdown", "the engine was shut down"), ("gone", "The engine process exited without shutting down"),
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
        sidecar_of(each).channel.close()
    else:
        sidecar_of(each)._process.terminate()
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
        """The stalls after so long, checked once a second."""
        found = []
        for _ in range(seconds):
            self.seconds += 1
            found = self.watch.look()
        return found


def test_a_request_that_waits_for_its_turn_does_not_stall() -> None:
    """Goal: no alarm under load. Method: more requests than fit, a step in ten seconds' look, for long."""
    clocked = Clocked(blocks=20)
    for _ in range(200):
        clocked.server.serve(1)
        clocked.steps += 1
        assert [] == clocked.wait(1)


def test_what_is_waited_for_is_named() -> None:
    """Goal: the wait-for graph as text. Method: a worker that returns nothing, with requests that run and wait."""
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
        assert f"request {number} waits for request {waiting[0]}, which comes first" in found[number]


def test_an_event_from_outside_has_more_time() -> None:
    """Goal: a transfer is named, and waiting for a client is not a stall. Method: the status of a request."""
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


@pytest.mark.ci
def test_stalls_are_not_part_of_a_recording(shadowed: Callable[..., Shadowed]) -> None:
    """Goal: reports in between do no harm. Method: a stall to a process that records."""
    each = shadowed(Mode.RECORD)
    each.server.serve(5)
    sidecar_of(each).report_stalls(calls.Stalls([calls.Stall(7, 9.0, "known for 9 s, in no queue")]))
    wait_until(lambda: each.status.stalled == ["request 7: known for 9 s, in no queue"])
    each.server.serve(5)
    assert 10 == each.end().steps


def test_a_leak_is_counted_once() -> None:
    """Goal: a leak at one checkpoint is not counted at each. Method: a state with a block that no request holds."""
    from .test_shadow_checker import EMPTY, SETTINGS

    lost = calls.Checkpoint([0, 0, 1, 0, 0, 0], [1, 3, 4, 5], {}, [], [])
    checker = ShadowChecker(SETTINGS)
    found = [finding for state in (EMPTY, lost, lost, lost) for finding in checker.follow(state)]
    assert 1 == len(found)
    assert ["block 2 is held by no request, and not free; its last holder is unknown"] == checker.take_lost()


def forgotten(server: Server, patch: pytest.MonkeyPatch) -> Any:
    """A request that the scheduler forgets with its blocks."""
    from .faults import leak_on_abort

    injected = Injected(step=START_STEP)
    with patch.context() as alone:
        leak_on_abort(alone, injected)
        while injected.acted is None:
            server.serve(1)
            request = next(iter(server.scheduler.running), None)
            if request is not None:
                abort(server.scheduler, [number_in(request.request_id)])
    return request


def test_blocks_that_a_forgotten_request_holds_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one leak, one difference. Method: a leak, checkpoints and restarts after it; then the blocks are freed."""
    server = Server("full", blocks=100)
    sink = watched(server, checkpoint_calls=100)
    request = forgotten(server, monkeypatch)
    held = {block for group in server.scheduler.kv_cache_manager.get_block_ids(request.request_id) for block in group}
    for _ in range(3):
        server.serve(50)
        sink.lost = 1
        server.serve(50)
    assert ["KV-LEAK-01"] == [found.difference.statement for found in sink.found]
    assert len(held - {0}) == sink.judge.stats.blocks_lost > 1
    assert 1 == len(sink.judge.take_lost())
    server.scheduler.kv_cache_manager.free(request)
    server.serve(50)
    assert 1 == len(sink.found)


def test_what_is_lost_is_bounded_and_ends() -> None:
    """Goal: nothing grows. Method: names that are used again, tables that are empty, and many names."""
    server = Server("full")
    book = RequestBook()
    while not server.scheduler.requests:
        server._clients()
    (request,) = server.scheduler.requests.values()
    number = book.arrival_of(request).number
    assert number == book.lose(request.request_id)
    assert {request.request_id} == book.lost.keys()
    checkpoint = checkpoint_of(server.scheduler, book)
    assert ({}, []) == (book.lost, checkpoint.standing)
    for _ in range(2):
        book.arrival_of(request)
        book.lose(request.request_id)
    book.arrival_of(request)
    assert {} == book.lost
    for name in map(str, range(LOST_MAX + 5)):
        book.followed[name] = Followed(0, 0)
        book.lose(name)
    assert (LOST_MAX, "5") == (len(book.lost), next(iter(book.lost)))


def test_a_forgotten_request_is_not_salted_any_more() -> None:
    """Goal: the sidecar's memory is bounded. Method: a request that is forgotten, at the next checkpoint."""
    from .test_shadow_salting import arriving

    salting = Salting(4, [4])
    salting.salted([arriving(0, range(8)), arriving(1, range(8)), calls.Forgotten(0, "")])
    (checkpoint,) = salting.salted([calls.Checkpoint([0], [], {}, [], [])])
    assert isinstance(checkpoint, calls.Checkpoint)
    assert [1] == [arrival.number for arrival in checkpoint.arrivals]


@pytest.mark.parametrize("call", [name for name in CALLS if name not in OPTIONAL and name != "pop_blocks_for_free"])
def test_a_manager_that_lacks_a_call_is_rejected(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no shadow that checks nothing. Method: vLLM's own manager without one of its calls."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    said: list[str] = []
    monkeypatch.setattr(attachment, "warn", said.append)
    server = Server("full")
    with monkeypatch.context() as patch:
        patch.delattr(KVCacheManager, call)
        assert attach(server.scheduler, Switch(Mode.CHECK, tmp_path)) is None
    (line,) = said
    assert f"'KVCacheManager' object has no attribute '{call}'" in line
    assert not [name for name in CALLS if name in vars(server.scheduler.kv_cache_manager)]
