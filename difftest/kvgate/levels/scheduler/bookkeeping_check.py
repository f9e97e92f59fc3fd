"""What a scheduler knows of its requests is what the operations say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.operations import PauseEngine
from kvreference.ahead import tokens_awaited
from kvreference.population import Request, Status


def early(grammars: Iterable[int], scheduled: Iterable[int]) -> Difference | None:
    """No request computes before its grammar is compiled: its answer would follow nothing."""
    found = sorted({*grammars}.intersection(scheduled))
    if not found:
        return None
    expected = "waits until its grammar is compiled"
    return Difference("KV-SYS-02", f"request {found[0]}", expected, "is scheduled before")


def check(alive: Mapping[int, Request], requests: Mapping[str, Any], follows: bool) -> Difference | None:
    """Compare each request with the scheduler's own.

    If the reference does not ``follow`` what is in flight, only whether each request runs is compared.
    """
    for number, ours in alive.items():
        if ours.status is Status.ENDING:
            continue
        theirs = requests.get(name_of(number))
        runs = ours.status is Status.RUNNING
        expected = (ours.tokens_computed, len(ours.tokens), runs)
        got = theirs and (theirs.num_computed_tokens, theirs.num_tokens, theirs.status.name == "RUNNING")
        differs = expected != got if follows or not got else runs != got[2]
        if differs:
            where = f"request {number} (tokens computed, tokens, whether it runs)"
            return Difference("KV-SYS-02", where, str(expected), str(got))
        # What is awaited since before a preemption differs between releases, and changes nothing.
        awaited = tokens_awaited(ours.awaited)
        if follows and runs and theirs is not None and awaited != theirs.num_output_placeholders:
            got = str(theirs.num_output_placeholders)
            return Difference("KV-SYS-02", f"request {number} (tokens awaited)", str(awaited), got)
    return None


def unfinished(
    alive: Mapping[int, Request], got: int, paused: PauseEngine | None = None, holders: Collection[int] = ()
) -> Difference | None:
    """An engine takes steps while requests are unfinished: sessions that wait for their clients are no reason to, and
    neither are requests that are paused. ``holders`` are those that wait and that a pause does not stop.
    """
    waits = [number for number, each in alive.items() if each.status not in (Status.ENDING, Status.PAUSED)]
    if paused is not None:
        runs = [number for number in waits if alive[number].status is Status.RUNNING or number in holders]
        waits = [] if paused.running else runs
    expected = len(waits)
    if expected == got:
        return None
    return Difference("KV-LIVE-03", "how many requests are unfinished", str(expected), str(got))
