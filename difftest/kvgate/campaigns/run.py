"""A run: shards are given to workers until all are done, the time is over, or the user interrupts."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count

from attrs import define, field, frozen

from kvgate.campaigns.folder import RunFolder
from kvgate.campaigns.merging import Merged
from kvgate.campaigns.plan import SHARDS_MAX, FuzzPlan
from kvgate.campaigns.results import understood
from kvgate.campaigns.serving import UNUSABLE, Task, failure_in
from kvgate.campaigns.workers import Answered, Lost, Workers
from kvgate.gate.fault import Fault
from kvgate.gate.verdict import FAILED
from kvgate.kernel.text import counted

ATTEMPTS_MAX = 3
"""How often a shard is begun, if its worker dies each time."""
FAULTS_MAX = 10
"""After how many shards in which the gate failed no more are begun."""
WAIT_SECONDS = 0.5
SHARD_SECONDS_MAX = 3600.0
"""How long a shard may take by default. Then its worker is ended, because it may hang."""


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
    shard_seconds_max: float = SHARD_SECONDS_MAX
    given_up: dict[int, str] = field(factory=dict)
    """Shards that ended their workers, and how."""
    faults: dict[int, Fault] = field(factory=dict)
    """Shards in which the gate itself failed."""
    _again: deque[int] = field(factory=deque)
    _attempts: Counter[int] = field(factory=Counter)
    _running: dict[int, float] = field(factory=dict)
    """Shards, and since when."""
    _overdue: set[int] = field(factory=set)
    _lost: int = 0

    def run(self) -> str:
        """Run shards; returns how it ended. All results are in the folder."""
        started, before = time.monotonic(), self.merged.operations
        until = None if self.seconds is None else started + self.seconds
        shards = self._to_do()
        try:
            while True:
                in_time = until is None or time.monotonic() < until
                while (
                    in_time
                    and len(self.faults) < FAULTS_MAX
                    and self.workers.idle()
                    and (shard := self._next(shards)) is not None
                ):
                    self._begin(shard)
                if not self._running:
                    break
                for event in self.workers.wait(WAIT_SECONDS):
                    self._take(event)
                self._end_overdue()
                rate = (self.merged.operations - before) / max(time.monotonic() - started, 1e-9)
                done, operations, found = len(self.merged.shards), self.merged.operations, self.merged.kinds
                self.report(Progress(done, operations, found, self._lost, rate))
        except KeyboardInterrupt:
            return "interrupted"
        if self.faults:
            return FAILED
        if self.given_up:
            return f"{counted(len(self.given_up), 'shard')} lost"
        all_done = self.plan.shards is not None and len(self.merged.shards) >= self.plan.shards
        return "completed" if in_time or all_done else "time budget"

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
        self._running[shard] = time.monotonic()
        self._attempts[shard] += 1
        self.workers.begin(Task(shard, self.merged.known()))

    def _end_overdue(self) -> None:
        """End each worker that runs a shard for too long; it is then handled like any worker that died."""
        for shard, since in self._running.items():
            if time.monotonic() - since > self.shard_seconds_max and shard not in self._overdue:
                self._overdue.add(shard)
                self.workers.end(shard)

    def _take(self, event: Answered | Lost) -> None:
        self._running.pop(event.shard, None)
        overdue = event.shard in self._overdue
        self._overdue.discard(event.shard)
        if isinstance(event, Lost):
            self._lost += 1
            if self._attempts[event.shard] < ATTEMPTS_MAX:
                self._again.append(event.shard)
            else:
                too_long = f"it took longer than {self.shard_seconds_max:g} s"
                self.given_up[event.shard] = too_long if overdue else event.why
            return
        failure = failure_in(event.reply)
        if failure is None:
            result = understood(event.reply)
            self.folder.keep(result)
            self.merged.add(result)
            return
        why, message, fault = failure
        if why in UNUSABLE:
            raise UNUSABLE[why](message)
        # The others may still find something: this one is not run again, for it would end in the same way.
        assert fault is not None, "what is not unusable is a fault of the gate"
        self.faults[event.shard] = fault
