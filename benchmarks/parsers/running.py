"""A run: batch after batch, over all parsers in turn, by several workers; what is done stays done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait

from benchmarks.parsers.entrances import ENTRANCES
from benchmarks.parsers.kept import Batch, Kept
from benchmarks.parsers.worker import Asked, Worker

BATCH_INPUTS = 500
_POLL_SECONDS = 0.5


def still_to_try(names: Sequence[str], inputs: int, done: Iterable[Batch]) -> list[Asked]:
    """The batches that are not done, over all parsers in turn."""
    tried: dict[str, set[int]] = {name: set() for name in names}
    for batch in done:
        tried.setdefault(batch.entrance, set()).update(range(batch.first, batch.first + batch.count))
    left = []
    for first in range(0, inputs, BATCH_INPUTS):
        for name in names:
            end = min(first + BATCH_INPUTS, ENTRANCES[name].share(inputs))
            numbers = [each for each in range(first, end) if each not in tried[name]]
            if numbers:
                left.append(Asked(name, numbers[0], numbers[-1] + 1 - numbers[0]))
    return left


def run(kept: Kept, names: Sequence[str], jobs: int, say: Callable[[str], None]) -> bool:
    """Try all that is left; whether nobody interrupted."""
    batches = list(kept.batches())
    waiting = deque(still_to_try(names, kept.plan.inputs, batches))
    done, failed = sum(batch.count for batch in batches), sum(batch.failed for batch in batches)
    of = sum(ENTRANCES[name].share(kept.plan.inputs) for name in names)
    before, began = done, time.monotonic()
    workers = [Worker(kept.plan.seed) for _ in range(min(jobs, len(waiting)))]
    try:
        while waiting or any(worker.asked for worker in workers):
            for worker in workers:
                if worker.asked is None and waiting:
                    worker.begin(waiting.popleft())
            wait([worker.pipe for worker in workers if worker.asked], _POLL_SECONDS)
            for worker in workers:
                answer = worker.answer() if worker.asked else None
                if answer is None:
                    continue
                batch, shown, left = answer
                for each in shown:
                    kept.keep(each.entrance, each.kind, each.told, each.data)
                kept.add(batch)
                waiting.extendleft([left] if left else [])
                done, failed = done + batch.count, failed + batch.failed
            rate = (done - before) / max(1e-9, time.monotonic() - began)
            say(f"{done:,} of {of:,} inputs, {rate:,.0f} a second, {failed:,} showed a defect")
    except KeyboardInterrupt:
        return False
    finally:
        for worker in workers:
            worker.stop()
    return True
