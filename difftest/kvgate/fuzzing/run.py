"""A run: shards are given to workers until there are no more, no more time, or somebody interrupts."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count

from attrs import define, field, frozen

from kvgate.errors import SystemUnavailableError
from kvgate.fuzzing.folder import RunFolder
from kvgate.fuzzing.merging import Merged
from kvgate.fuzzing.plan import SHARDS_MAX, FuzzPlan
from kvgate.fuzzing.results import understood
from kvgate.fuzzing.serving import UNUSABLE, Task, failure_in
from kvgate.fuzzing.workers import Answered, Lost, Workers

ATTEMPTS_MAX = 3
"""How often a shard is begun, if whoever runs it dies each time."""
WAIT_SECONDS = 0.5


@frozen
class Progress:
    """How far a run is."""

    shards: int
    """How many are done, those of earlier sessions among them."""
    operations: int
    found: int
    lost: int
    """How often a worker died in this session."""
    operations_per_second: float
    """In this session."""


@define
class Run:
    """One session of a run."""

    plan: FuzzPlan
    folder: RunFolder
    merged: Merged
    workers: Workers
    seconds: float | None = None
    report: Callable[[Progress], None] = lambda _progress: None
    given_up: dict[int, str] = field(factory=dict)
    """Shards that nobody could run to their end, and why."""
    _again: deque[int] = field(factory=deque)
    _attempts: Counter[int] = field(factory=Counter)
    _running: set[int] = field(factory=set)
    _lost: int = 0

    def run(self) -> str:
        """Run shards; says how it ended. Whatever was done is in the folder."""
        started, before = time.monotonic(), self.merged.operations
        until = None if self.seconds is None else started + self.seconds
        shards = self._to_do()
        try:
            while True:
                in_time = until is None or time.monotonic() < until
                while in_time and self.workers.idle() and (shard := self._next(shards)) is not None:
                    self._begin(shard)
                if not self._running:
                    break
                for event in self.workers.wait(WAIT_SECONDS):
                    self._take(event)
                lasted = time.monotonic() - started
                rate = (self.merged.operations - before) / max(lasted, 1e-9)
                self.report(
                    Progress(len(self.merged.shards), self.merged.operations, self.merged.kinds, self._lost, rate)
                )
        except KeyboardInterrupt:
            return "interrupted"
        if self.given_up:
            return f"{len(self.given_up)} shards lost"
        return "completed" if in_time else "time budget"

    def _to_do(self) -> Iterator[int]:
        numbers = range(self.plan.shards) if self.plan.shards is not None else count()
        for shard in numbers:
            if shard >= SHARDS_MAX:
                return
            if not self.folder.is_done(shard):
                yield shard

    def _next(self, shards: Iterator[int]) -> int | None:
        return self._again.popleft() if self._again else next(shards, None)

    def _begin(self, shard: int) -> None:
        self._running.add(shard)
        self._attempts[shard] += 1
        self.workers.begin(Task(shard, self.merged.known()))

    def _take(self, event: Answered | Lost) -> None:
        self._running.discard(event.shard)
        if isinstance(event, Lost):
            self._lost += 1
            if self._attempts[event.shard] < ATTEMPTS_MAX:
                self._again.append(event.shard)
            else:
                self.given_up[event.shard] = event.why
            return
        failure = failure_in(event.reply)
        if failure is None:
            result = understood(event.reply)
            self.folder.keep(result)
            self.merged.add(result)
            return
        why, message = failure
        if why in UNUSABLE:
            raise UNUSABLE[why](message)
        raise SystemUnavailableError(f"shard {event.shard} could not be run: {message}")
