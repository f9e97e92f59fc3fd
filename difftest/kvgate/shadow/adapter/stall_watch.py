"""Stall clocks: which requests that a scheduler knows make no progress, and what they wait for.

A hang takes no step: a request that is in no queue leaves an engine idle. So a thread of the engine looks once a
second; it only reads, about a microsecond for each request. A request is in a queue, runs, or waits for an event that
has a name. A change of its place, its status or its tokens resets its clock. A request in a queue waits for its turn as
long as any request makes progress: a request that is passed over permanently is not seen here. While the scheduler is
paused, all clocks stand at zero.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from attrs import define, field

from kvgate.kernel.shadow_switch import STALL_SECONDS
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvgate.shadow.adapter.log import raised_at, warn
from kvgate.shadow.calls import Stall, Stalls, request_name

LOOK_SECONDS = 1.0
EVENT_SECONDS = 60.0
"""A request that waits for what ends from outside, a transfer or a grammar, stalls after so long."""
ABORT_SECONDS = 480.0
"""vLLM's default of VLLM_NIXL_ABORT_REQUEST_TIMEOUT."""
LOOKS_FAILED_MAX = 60
"""After so many looks in a row at a container that changed meanwhile, the clocks end."""
REQUESTS_MAX = 100
"""How many are reported at once."""
EDGES_MAX = 3
_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
_EVENTS = {
    "WAITING_FOR_REMOTE_KVS": Reason.TRANSFER,
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": Reason.GRAMMAR,
    "WAITING_FOR_FSM": Reason.GRAMMAR,
    "WAITING_FOR_STREAMING_REQ": Reason.CLIENT,
}
"""What a status waits for, where that is an event from outside."""


@define
class _Clock:
    standing: tuple[Any, ...]
    since: float


@define
class StallWatch:
    """The clocks of one scheduler's requests."""

    scheduler: Any
    number_of: Callable[[str], int]
    """The number of a request by its name; -1 if it is not followed."""
    steps: Callable[[], int]
    """How many steps have begun."""
    is_computing: Callable[[], bool]
    """Whether the worker has still to return a step."""
    stall_seconds: float = STALL_SECONDS
    """After so long without progress a request stalls."""
    now: Callable[[], float] = time.monotonic
    _clocks: dict[str, _Clock] = field(factory=dict)
    _moved_at: float = 0.0
    """When a running request, or one in a queue, last made progress, or any request ended."""
    _step: tuple[int, float] = (-1, 0.0)
    _unfollowed: dict[str, int] = field(factory=dict)
    """The numbers, below zero, of requests that are not followed."""
    _unfollowed_count: int = 0
    _transfer_seconds: float = field(factory=lambda: _abort_seconds() + EVENT_SECONDS)
    """The same for the blocks of a finished request: the connector itself frees them after its own time limit."""

    def look(self) -> list[Stall]:
        """The requests that stall now.

        Raises:
            RuntimeError: the scheduler was at work: look again.
        """
        now, scheduler = self.now(), self.scheduler
        requests: Mapping[str, Any] = dict(scheduler.requests)
        running = {request.request_id for request in tuple(scheduler.running)}
        queues = [getattr(scheduler, name) for name in _QUEUES if hasattr(scheduler, name)]
        in_queue = list(dict.fromkeys(request.request_id for queue in queues for request in tuple(queue)))
        if self.steps() != self._step[0]:
            self._step = self.steps(), now
        queued = set(in_queue)
        for name, request in requests.items():
            place = "runs" if name in running else "waits" if name in queued else ""
            standing = (
                *(place, request.status.name, request.num_computed_tokens, len(request._all_token_ids)),
                request.num_preemptions,
            )
            clock = self._clocks.get(name)
            if clock is None or clock.standing != standing:
                self._clocks[name] = _Clock(standing, now)
                self._moved_at = now if place == "runs" or clock is not None else self._moved_at
        over = self._clocks.keys() - requests.keys()
        for name in over:
            # A request that ends is progress: others may have its place.
            del self._clocks[name]
            self._unfollowed.pop(name, None)
            self._moved_at = now
        if self._is_paused():
            self._reset(now)
        stalled = [name for name in requests if self._is_stalled(name, now)]
        if not stalled:
            return []
        graph = WaitFor(tuple(self._edges(running, in_queue)))
        return [self._stall(name, now, graph, len(running)) for name in stalled[:REQUESTS_MAX]]

    def _reset(self, now: float) -> None:
        """All clocks begin again."""
        for clock in self._clocks.values():
            clock.since = now
        self._moved_at, self._step = now, (self._step[0], now)

    def _number(self, name: str) -> int:
        number = self.number_of(name)
        if number >= 0:
            return number
        if name not in self._unfollowed:
            self._unfollowed_count += 1
            self._unfollowed[name] = -self._unfollowed_count
        return self._unfollowed[name]

    def _is_stalled(self, name: str, now: float) -> bool:
        clock = self._clocks[name]
        place, status = clock.standing[:2]
        event = _EVENTS.get(status)
        seconds = now - clock.since
        if event is Reason.CLIENT:
            return False
        if status.startswith("FINISHED"):
            return seconds >= max(self._transfer_seconds, self.stall_seconds)
        if event is not None:
            return seconds >= max(EVENT_SECONDS, self.stall_seconds)
        if place == "waits" and now - self._moved_at < self.stall_seconds:
            return False
        return seconds >= self.stall_seconds

    def _is_paused(self) -> bool:
        state = getattr(self.scheduler, "pause_state", None)
        return getattr(state, "name", "UNPAUSED") != "UNPAUSED"

    def _stall(self, name: str, now: float, graph: WaitFor, running: int) -> Stall:
        clock, number = self._clocks[name], self._number(name)
        seconds = now - clock.since
        place, status = clock.standing[:2]
        if status.startswith("FINISHED"):
            why = f"over for {seconds:.0f} s, and its blocks are held by a transfer"
        elif not place:
            why = f"known for {seconds:.0f} s, in no queue"
        elif place == "runs":
            step, began = self._step
            idle = now - began
            if idle < self.stall_seconds:
                what = "steps took place, and none served it"
            elif self.is_computing():
                what = f"step {step} has taken {idle:.0f} s"
            else:
                what = f"no step began after step {step}"
            why = f"runs without progress for {seconds:.0f} s: {what}"
        else:
            edges = graph.of(number)
            held_by = [edge.describe(request_name) for edge in edges[:EDGES_MAX]]
            more = [f"and {len(edges) - EDGES_MAX} more"] if len(edges) > EDGES_MAX else []
            free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            why = f"waits for {seconds:.0f} s, with {running} running and {free} blocks free: "
            why += ", ".join(held_by + more)
        return Stall(number, round(seconds, 1), why)

    def _edges(self, running: set[str], in_queue: list[str]) -> Iterator[Wait]:
        """What the requests in a queue wait for: those that run hold blocks and places; the first one comes first."""
        tables = self.scheduler.kv_cache_manager.coordinator
        first: int | None = None
        for name in in_queue:
            number, clock = self._number(name), self._clocks.get(name)
            if clock is None:
                continue
            event = _EVENTS.get(clock.standing[1])
            if event is not None:
                yield Wait(number, event)
            elif first is not None:
                yield Wait(number, Reason.LINE, first)
            else:
                first = number
                for other in running:
                    held = sum(not block.is_null for blocks in tables.get_blocks(other) for block in blocks)
                    yield Wait(number, Reason.BLOCKS, self._number(other), held)
                if not running:
                    yield Wait(number, Reason.NO_REQUEST)


def _abort_seconds() -> float:
    """How long vLLM's connectors hold the blocks of a finished request for its reader."""
    from vllm import envs

    return max(ABORT_SECONDS, float(getattr(envs, "VLLM_NIXL_ABORT_REQUEST_TIMEOUT", ABORT_SECONDS)))


def start(watch: StallWatch, owner: object, report: Callable[[Stalls], object]) -> threading.Event:
    """Look once a second for as long as ``owner`` exists, or until the answer is set; never raises.

    If a look fails, that is logged and reported, and the clocks end.
    """
    ended, alive = threading.Event(), weakref.ref(owner)
    # The thread must not keep the scheduler alive.
    looks = weakref.ref(watch)

    def run() -> None:
        reported: list[Stall] = []
        failed = 0
        while not ended.wait(LOOK_SECONDS):
            known = looks()
            if alive() is None or known is None:
                return
            try:
                found = known.look()
                if found or reported:
                    report(Stalls(found))
                reported, failed = found, 0
            except Exception as error:
                failed += 1
                # A container may change while it is read.
                if not isinstance(error, RuntimeError) or failed >= LOOKS_FAILED_MAX:
                    _end(error, report)
                    return
            finally:
                del known

    threading.Thread(target=run, name="kvgate-stalls", daemon=True).start()
    return ended


def _end(error: Exception, report: Callable[[Stalls], object]) -> None:
    """Log and report that the clocks ended: a request that hangs is not reported any more."""
    warn(f"reports no request that hangs any more: the stall clocks ended: {type(error).__name__}: {error}")
    with suppress(Exception):
        report(Stalls([], f"{type(error).__name__} at {raised_at(error)}"))
