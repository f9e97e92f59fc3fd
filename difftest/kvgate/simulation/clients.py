"""The clients of a workload. Every arm asks the same clients, so all serve the same requests."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from attrs import frozen

from kvgate.simulation.workload import Session, Turn, Workload


@frozen
class Sending:
    """A request that is sent now."""

    number: int
    """Requests are numbered in the order in which they are sent."""
    session: int
    """The place of its session; those of the warm-up come first."""
    turn: int
    counted: bool
    asked: Turn


class Clients:
    """All lanes of a workload, and where each of them stands."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._sent = 0
        self._ended = 0
        self._alive: dict[int, Sending] = {}
        self._warming = len(workload.warm_up)
        self._sessions: tuple[Session, ...] = (*workload.warm_up, *workload.sessions)
        self._next_session = 0
        self._due: deque[tuple[int, int]] = deque()
        self._paused: list[tuple[int, int, int, int]] = []
        """The turns that wait for their pause: in which step it is over, when it began, and which turn."""
        self._steps = 0
        self._fill_lanes()

    @property
    def over(self) -> bool:
        """Whether everything was sent and has ended."""
        return self._ended == self.workload.requests

    @property
    def ended(self) -> int:
        """How many requests have ended."""
        return self._ended

    @property
    def warming(self) -> bool:
        """Whether the warm-up is not over yet."""
        return self._warming > 0

    def send(self) -> list[Sending]:
        """What is sent in a step, in order: everything that waits for no request or pause, and is not one too many.

        It is asked once a step. Steps in which all lanes pause are left out.
        """
        sendings = []
        self._steps += 1
        if self._paused and not self._alive and not self._due:
            self._steps = max(self._steps, self._paused[0][0])
        while self._paused and self._paused[0][0] <= self._steps:
            self._due.append(heappop(self._paused)[2:])
        while self._due and self._sent < self.workload.requests:
            session, turn = self._due.popleft()
            counted = session >= len(self.workload.warm_up)
            sending = Sending(self._sent, session, turn, counted, self._sessions[session].turns[turn])
            self._sent += 1
            self._alive[sending.number] = sending
            sendings.append(sending)
        return sendings

    def end(self, number: int) -> None:
        """A request has ended: its lane sends the next turn, or begins the next session."""
        sending = self._alive.pop(number)
        self._ended += 1
        turns = self._sessions[sending.session].turns
        if sending.turn + 1 < len(turns):
            pause = turns[sending.turn + 1].pause_steps
            if pause:
                heappush(self._paused, (self._steps + pause, self._ended, sending.session, sending.turn + 1))
            else:
                self._due.append((sending.session, sending.turn + 1))
            return
        if self._warming:
            self._warming -= 1
            if self._warming == 0:
                self._fill_lanes()
                return
        self._begin_session()

    def _fill_lanes(self) -> None:
        for _ in range(self.workload.lanes):
            self._begin_session()

    def _begin_session(self) -> None:
        """A lane takes the next session, if there is one; what is counted waits until the warm-up is over."""
        limit = len(self.workload.warm_up) if self._warming else len(self._sessions)
        if self._next_session < limit:
            self._due.append((self._next_session, 0))
            self._next_session += 1
