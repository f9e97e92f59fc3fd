"""Many simulations in parallel, each in a process of its own; after an interrupt, the finished ones are kept."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeAlias

from attrs import frozen

from kvgate.kernel.child_process import Workers
from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.result import Result

POLL_SECONDS = 0.2
PROGRESS_PARTS = 200
"""How often a simulation reports its progress, from its beginning to its end."""


@frozen
class Job:
    """One simulation that is to be run."""

    arm: str
    setting: Setting


ReportProgress: TypeAlias = Callable[[str], None]
Take: TypeAlias = Callable[[int, Result], None]
"""Called with the place of a job, and its result."""


def run_all(jobs: Sequence[Job], processes: int, take: Take, report: ReportProgress = lambda _text: None) -> None:
    """Run all ``jobs``, at most ``processes`` at a time; results are taken as they come.

    Raises:
        UsageError: a job's arm has nothing for its setting.
        KeyboardInterrupt: the user interrupted; what is done has been taken.
    """
    if processes <= 1 or len(jobs) <= 1:
        for place, job in enumerate(jobs):
            take(place, arm_of(job.arm).run(job.setting, _progress_reporter(report, jobs, place)))
        return
    news: Any = multiprocessing.get_context("spawn").SimpleQueue()
    with Workers(min(processes, len(jobs)), _begin, news) as pool:
        futures = {pool.submit(_run, place, job): place for place, job in enumerate(jobs)}
        _follow(futures, jobs, news, take, report)


def _follow(
    futures: dict[Future[Result], int], jobs: Sequence[Job], news: Any, take: Take, report: ReportProgress
) -> None:
    waiting = set(futures)
    done = 0
    standing: dict[int, float] = {}
    while waiting:
        ready, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
        while not news.empty():
            place, part = news.get()
            standing[place] = part
        for future in ready:
            take(futures[future], _result_of(future))
            standing.pop(futures[future], None)
            done += 1
        running = ", ".join(f"{_name(jobs[place])} {part:.0%}" for place, part in sorted(standing.items()))
        report(f"{done} of {len(jobs)} simulations done; {running or 'starting'}")


def _result_of(future: Future[Result]) -> Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise UsageError("a simulation was ended from outside, for want of memory perhaps: try fewer --jobs") from error


def _name(job: Job) -> str:
    return f"{job.arm} {job.setting.policy.name}"


def _progress_reporter(report: ReportProgress, jobs: Sequence[Job], place: int) -> Callable[[int, int], None]:
    name = _name(jobs[place])
    return lambda ended, of: report(f"{place} of {len(jobs)} simulations done; {name}: {ended:,} of {of:,} requests")


# In a process of its own

_NEWS: list[Any] = []


def _begin(news: Any) -> None:
    _NEWS.append(news)


def _run(place: int, job: Job) -> Result:
    parts_reported = [0]

    def progress(ended: int, of: int) -> None:
        part = ended * PROGRESS_PARTS // of
        if part > parts_reported[0]:
            parts_reported[0] = part
            _NEWS[0].put((place, ended / of))

    return arm_of(job.arm).run(job.setting, progress)
