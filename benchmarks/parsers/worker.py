"""A process that tries inputs, batch by batch, within bounds of time and memory; and whoever watches it.

A parser that does not come back from the machine's own code is not stopped by a signal of its own. So where a worker
is, stands in memory that its watcher sees, and one that stands still is ended: that input is a defect.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import frozen
from benchmarks.parsers.entrances import ENTRANCES
from benchmarks.parsers.kept import Batch
from benchmarks.parsers.trial import Defect, attempt, bound_memory, input_of, smaller

STANDSTILL_SECONDS = 600.0
"""How long one input may take by the clock, with other work beside it; to make it smaller counts as well."""
_NUMBER, _ACCEPTED, _REFUSED, _FAILED = range(4)
_NOTHING = object()
_SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where inputs are files for a moment: in memory, if that is to be had."""
_SPAWN = multiprocessing.get_context("spawn")


@frozen
class Asked:
    """Some inputs of one parser."""

    entrance: str
    first: int
    count: int


@frozen
class Shown:
    """A defect, and the smallest input that shows it."""

    entrance: str
    number: int
    kind: str
    told: str
    data: bytes


def _seeds(entrance: str) -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return ENTRANCES[entrance].seeds(Path(folder))


def _try_all(pipe: Connection, seed: int, counts: Any, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a parser says belongs to nobody here; a table is printed there.
    sys.stdout = sys.stderr
    seeds = {name: _seeds(name) for name in ENTRANCES}
    bound_memory()
    # What is loaded stays: a collector that walks it again and again takes a third of the time.
    gc.freeze()
    pipe.send(None)
    known: set[tuple[str, str]] = set()
    with contextlib.suppress(EOFError):
        while (asked := pipe.recv()) is not None:
            pipe.send(_try(asked, seed, seeds[asked.entrance], folder, counts, known))


def _try(
    asked: Asked, seed: int, seeds: Any, folder: Path, counts: Any, known: set[tuple[str, str]]
) -> tuple[Batch, list[Shown]]:
    entrance, shown, began = ENTRANCES[asked.entrance], [], time.process_time()
    counts[:] = [asked.first, 0, 0, 0]
    for number in range(asked.first, asked.first + asked.count):
        counts[_NUMBER] = number
        data = input_of(entrance, seeds, seed, number)
        found = attempt(entrance, data, folder)
        if isinstance(found, Defect):
            counts[_FAILED] += 1
            if (entrance.name, found.kind) not in known:
                known.add((entrance.name, found.kind))
                least = smaller(entrance, data, found, folder)
                shown.append(Shown(entrance.name, number, found.kind, found.told, least))
        else:
            counts[_ACCEPTED if found else _REFUSED] += 1
    _, accepted, refused, failed = counts[:]
    seconds = time.process_time() - began
    return Batch(asked.entrance, asked.first, asked.count, accepted, refused, failed, seconds), shown


class Worker:
    """A process that tries inputs, seen from outside."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: Asked | None = None
        self._start()

    def _start(self) -> None:
        self._counts: Any = _SPAWN.Array("q", 4)
        self.pipe, theirs = _SPAWN.Pipe()
        # It is ended by a signal that it cannot see, so what it leaves is taken away here.
        self._scratch = tempfile.TemporaryDirectory(prefix="kvgate-parsers-", dir=_SCRATCH)
        arguments = theirs, self.seed, self._counts, Path(self._scratch.name)
        self._process = _SPAWN.Process(target=_try_all, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._last, self._moved = -1, time.monotonic()
        self._has_begun = False

    def begin(self, asked: Asked) -> None:
        """Try these."""
        self.asked, self._last, self._moved = asked, -1, time.monotonic()
        self._counts[:] = [asked.first, 0, 0, 0]
        self.pipe.send(asked)

    def answer(self) -> tuple[Batch, list[Shown], Asked | None] | None:
        """What came of what it was asked, if it is done; and what is left of that where it had to be ended."""
        assert self.asked is not None, "it was asked"
        try:
            told: Any = self.pipe.recv() if self.pipe.poll() else _NOTHING
            if told is None:
                self._has_begun = True
            elif told is not _NOTHING:
                self.asked = None
                batch, shown = told
                return batch, shown, None
        except (EOFError, OSError):
            if not self._has_begun:
                raise RuntimeError("a worker ended before it began: what it said is above") from None
            return self._ended("the process died")
        if self._counts[_NUMBER] != self._last:
            self._last, self._moved = self._counts[_NUMBER], time.monotonic()
        if time.monotonic() - self._moved > STANDSTILL_SECONDS:
            return self._ended(f"did not come back within {STANDSTILL_SECONDS:g} s")
        return None

    def _ended(self, why: str) -> tuple[Batch, list[Shown], Asked | None]:
        asked = self.asked
        assert asked is not None, "it was asked"
        number, accepted, refused, failed = self._counts[:]
        self.stop()
        done = number - asked.first + 1
        batch = Batch(asked.entrance, asked.first, done, accepted, refused, failed + 1)
        data = input_of(ENTRANCES[asked.entrance], _seeds(asked.entrance), self.seed, number)
        shown = [Shown(asked.entrance, number, why, f"input {number}: {why}", data)]
        left = Asked(asked.entrance, number + 1, asked.count - done) if asked.count > done else None
        self.asked = None
        self._start()
        return batch, shown, left

    def stop(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self._scratch.cleanup()
        self.pipe.close()
