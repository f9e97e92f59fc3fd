"""One campaign on several cores: processes run its cases, and the campaign takes them in their own order.

So the outcome is that of one process: which cases count, what is found first, and what is made smaller follow from the
plan, however many processes there are. They are forks of this process, in which the system is loaded already; a thread
would not survive that, so none may run when they begin. Each takes the number of a case from one pipe, and writes what
came of it into another. A case that shows something, or that raises, is run once more in this process, which keeps the
case, makes it smaller and says what it shows.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from attrs import evolve

from kvgate.gate.campaign import Plan
from kvgate.gate.case_runner import Arc, Lane, Trial, Trials
from kvgate.gate.verdict import Found
from kvgate.kernel.child_process import describe_end
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import SystemUnavailableError

AHEAD = 4
"""How many cases for each process are given out before the campaign asks for them."""
TEXT_CHARACTERS_MAX = 500
"""How much is kept of what was expected, and of what was seen: a reply is written at once, so it must be short."""
PIECE_ARCS = 100
"""How many are said at once, for the same reason."""
_TASK = struct.Struct("qd")
"""The number of a case, and until when it may run."""
_POLL_SECONDS = 1.0


class CaseWorkers:
    """The cases of one campaign, run by several processes.

    Raises:
        SystemUnavailableError: a process died while it ran a case.
    """

    def __init__(self, trials: Trials, plan: Plan, jobs: int) -> None:
        self.trials = trials
        self.plan = plan
        self._tasks_read, self._tasks = os.pipe()
        self._replies, self._replies_written = os.pipe()
        self._given = self._asked = 0
        """How many cases were given out, and how many the campaign asked for."""
        self._results: dict[int, Any] = {}
        self._known: dict[str, Found] = {}
        """By finding, how it showed first: that is all that is kept of it, with how often."""
        self._unread = b""
        self._files = [] if trials.changes is None else sorted(map(str, trials.changes.lines))
        self._ran: dict[int, list[Any]] = {}
        """By case, what was said that ran of a patch for the first time in a process."""
        self._said: set[Arc] = set()
        self._ahead = AHEAD * jobs
        self.pids = [self._fork() for _ in range(jobs)]
        os.close(self._tasks_read)
        os.close(self._replies_written)

    def _fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                _serve(self)
            finally:
                os._exit(1)
        return pid

    def trial(self, lane: Lane, seed: str, campaign_seed: int, until: float = math.inf) -> Trial:
        """What came of the next case of the plan, which is the one that is asked for."""
        number = self._asked
        assert (lane, seed) == self.plan.turn(number), "a campaign takes its cases in order"
        self._asked += 1
        while self._given <= number + self._ahead:
            # If no process is left that reads it, that is reported where its reply is awaited.
            with suppress(BrokenPipeError):
                os.write(self._tasks, _TASK.pack(self._given, until))
            self._given += 1
        while number not in self._results:
            self._receive()
        result = self._results.pop(number)
        seen = result.pop("seen")
        ran = frozenset((self._files[file], start, end) for file, start, end in self._ran.pop(number, ()))
        if seen is None and result and result["known"].keys() <= self._known.keys():
            known = tuple(evolve(self._known[finding], times=times) for finding, times in result.pop("known").items())
            return Trial(**result, known=known, ran=ran)
        # What was seen in time there takes no longer here.
        trial = self.trials.trial(lane, seed, campaign_seed, math.inf if seen else until)
        self._known.update({each.finding: each for each in trial.known if each.finding is not None})
        trial = evolve(trial, ran=trial.ran | ran)
        return evolve(trial, found=(self._lost(lane, seed, seen),)) if seen and not trial.found else trial

    def _lost(self, lane: Lane, seed: str, seen: list[Any]) -> Found:
        """What a case showed in another process and does not show in this one, as the other process said it."""
        case = self.trials.generate(lane, seed, self.plan.seed)
        level, (detector, step, *words) = case.level, seen
        divergence = Divergence(step, None, detector, Difference(*words))
        if level.stage_type is None:
            return Found(divergence, case)
        # What it asked of the block manager is not known.
        where = {"model": case.model, "preset": level.label(case.preset), "seed": self.plan.seed}
        return Found(divergence, level.below.case(case.settings, (), **where), driver=case)

    def smallest(self, found: Found, until: float) -> Found:
        """The smallest case that shows the same defect, made in this process."""
        return self.trials.smallest(found, until)

    def _receive(self) -> None:
        """Take in what has come, and wait for it a while."""
        ready = select.select([self._replies], [], [], _POLL_SECONDS)[0]
        # Nothing to read: no process is left that could write.
        data = os.read(self._replies, 1 << 16) if ready else b""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            number, result = json.loads(line)
            if isinstance(result, list):
                self._ran.setdefault(number, []).extend(result)
            else:
                self._results[number] = result
        for pid in self.pids if not data else ():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.pids.remove(pid)
                how = describe_end(os.waitstatus_to_exitcode(status))
                raise SystemUnavailableError(f"a process died while it ran a case ({how}): see --jobs 1")

    # In a process of its own

    def reply(self, number: int, result: Any) -> None:
        """Say something of a case, in one piece."""
        os.write(self._replies_written, json.dumps([number, result]).encode() + b"\n")

    def say(self, number: int, ran: Collection[Arc]) -> None:
        """Say what ran of a patch, and was not said before, in as many pieces as it takes."""
        new = sorted((self._files.index(path), start, end) for path, start, end in set(ran) - self._said)
        self._said.update(ran)
        for first in range(0, len(new), PIECE_ARCS):
            self.reply(number, new[first : first + PIECE_ARCS])

    def stop(self) -> None:
        """End all processes at once, with every process that they started."""
        for pid in self.pids:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(self._tasks)
        os.close(self._replies)


@contextmanager
def side_by_side(trials: Trials, plan: Plan, jobs: int) -> Iterator[Trials | CaseWorkers]:
    """Runs the cases of a campaign: in this process, or in so many others."""
    if jobs == 1 or not hasattr(os, "fork"):
        yield trials
        return
    workers = CaseWorkers(trials, plan, jobs)
    try:
        yield workers
    finally:
        workers.stop()


# In a process of its own


def _serve(workers: CaseWorkers) -> None:
    """Run cases until the input ends; an interrupt is for the process that began."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a system prints is not what the command prints.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.close(workers._tasks)
    os.close(workers._replies)
    while task := os.read(workers._tasks_read, _TASK.size):
        number, until = _TASK.unpack(task)
        workers.reply(number, _run(workers, number, until))
    os._exit(0)


def _run(workers: CaseWorkers, number: int, until: float) -> dict[str, Any]:
    """What came of a case, in short; nothing but that there is nothing to say if it raised."""
    lane, seed = workers.plan.turn(number)
    try:
        trial = workers.trials.trial(lane, seed, workers.plan.seed, until)
    except Exception:
        return {"seen": None}
    if not trial.found:
        known: Counter[str | None] = Counter()
        for each in trial.known:
            known[each.finding] += each.times
        numbers = {"operations": trial.operations, "alone": trial.alone, "cut": trial.cut, "digest": trial.digest}
        workers.say(number, {arc for arc in trial.ran if arc[0] in workers._files})
        return {**numbers, "known": known, "seen": None}
    divergence = trial.found[0].divergence
    words = divergence.difference
    text = (each[:TEXT_CHARACTERS_MAX] for each in (words.statement, words.subject, words.expected, words.got))
    return {"seen": [divergence.detector, divergence.step, *text]}
