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
    """Nobody computes whose grammar is not there: its answer would follow nothing."""
    found = sorted({*grammars}.intersection(scheduled))
    if not found:
        return None
    expected = "waits until its grammar is compiled"
    return Difference("KV-SYS-02", f"request {found[0]}", expected, "is scheduled before")


def judge(alive: Mapping[int, Request], requests: Mapping[str, Any], follows: bool) -> Difference | None:
    """Compare each request with the scheduler's own; if nobody ``follows`` what is in flight, not how far it is."""
    parts = "(tokens computed, tokens, tokens awaited, whether it runs)"
    for number, ours in alive.items():
        theirs = requests.get(name_of(number))
        runs = ours.status is Status.RUNNING
        awaited = tokens_awaited(ours.awaited) if runs else 0
        expected = (ours.tokens_computed, len(ours.tokens), awaited, runs)
        got = None
        if theirs is not None:
            they_run = theirs.status.name == "RUNNING"
            # What is awaited since before a preemption is told in different ways, and matters to nobody.
            places = theirs.num_output_placeholders if they_run else 0
            got = (theirs.num_computed_tokens, theirs.num_tokens, places, they_run)
        differs = got is None or expected[3] != got[3] or (follows and expected != got)
        if differs and ours.status is not Status.ENDING:
            return Difference("KV-SYS-02", f"request {number} {parts}", str(expected), str(got))
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
