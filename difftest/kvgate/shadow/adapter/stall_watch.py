"""Stall clocks: which requests that a scheduler knows make no progress, and what they wait for.

A hang takes no step: a request that is in no queue leaves an engine idle. So a thread of the engine looks once a
second; it only reads, about a microsecond for each request. A request is in a queue, runs, or waits for an event that
has a name. A change of its place, its status or its tokens resets its clock. A request in a queue waits for its turn as
long as any request makes progress: a request that is passed over permanently is not seen here.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import define, field

from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvgate.shadow.calls import Stall, Stalls

LOOK_SECONDS = 1.0
STALL_SECONDS = 8.0
"""After so long without progress a request stalls: with the next look it is reported within 10 s."""
EVENT_SECONDS = 60.0
"""The same for what ends from outside: a transfer, a grammar."""
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
    now: Callable[[], float] = time.monotonic
    _clocks: dict[str, _Clock] = field(factory=dict)
    _moved_at: float = 0.0
    """When a request moved last that is served, or was let in."""
    _step: tuple[int, float] = (-1, 0.0)

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
            self._moved_at = now
        stalled = [name for name in requests if self._is_stalled(name, now)]
        if not stalled:
            return []
        graph = WaitFor(tuple(self._edges(running, in_queue)))
        return [self._stall(name, now, graph, len(running)) for name in stalled[:REQUESTS_MAX]]

    def _is_stalled(self, name: str, now: float) -> bool:
        clock = self._clocks[name]
        place, status = clock.standing[:2]
        event = _EVENTS.get(status)
        seconds = now - clock.since
        if event is Reason.CLIENT:
            return False
        if event is not None or status.startswith("FINISHED"):
            return seconds >= EVENT_SECONDS
        if place == "waits" and (self._is_paused() or now - self._moved_at < STALL_SECONDS):
            return False
        return seconds >= STALL_SECONDS

    def _is_paused(self) -> bool:
        state = getattr(self.scheduler, "pause_state", None)
        return getattr(state, "name", "UNPAUSED") != "UNPAUSED"

    def _stall(self, name: str, now: float, graph: WaitFor, running: int) -> Stall:
        clock, number = self._clocks[name], self.number_of(name)
        seconds = now - clock.since
        place, status = clock.standing[:2]
        if status.startswith("FINISHED"):
            why = f"over for {seconds:.0f} s, and its blocks are held for another node"
        elif not place:
            why = f"known for {seconds:.0f} s, in no queue"
        elif place == "runs":
            step, began = self._step
            idle = now - began
            stands = idle >= STALL_SECONDS
            what = f"no step began after step {step}" if stands else "steps took place, and none served it"
            why = f"runs without progress for {seconds:.0f} s: {what}"
        else:
            edges = graph.of(number)
            held_by = [edge.describe() for edge in edges[:EDGES_MAX]]
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
            number, clock = self.number_of(name), self._clocks.get(name)
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
                    yield Wait(number, Reason.BLOCKS, self.number_of(other), held)
                if not running:
                    yield Wait(number, Reason.NO_REQUEST)


def start(watch: StallWatch, owner: object, tell: Callable[[Stalls], object]) -> threading.Event:
    """Look once a second for as long as ``owner`` exists, or until the answer is set; never raises."""
    ended, alive = threading.Event(), weakref.ref(owner)
    # The thread must not keep the scheduler alive.
    looks = weakref.ref(watch)

    def run() -> None:
        told: list[Stall] = []
        while not ended.wait(LOOK_SECONDS):
            known = looks()
            if alive() is None or known is None:
                return
            try:
                found = known.look()
                if found or told:
                    tell(Stalls(found))
                told = found
            except RuntimeError:
                # A container changed while it was read.
                continue
            except Exception:
                return
            finally:
                del known

    threading.Thread(target=run, name="kvgate-stalls", daemon=True).start()
    return ended
