"""Loads that fail, under windows: whatever is left of them, no request reads a block that its window released.

Goal: KV-MEM-01 holds of the reference after a failed load, in models of one group and of several. Method: the reference
runs random operations, failed loads among them, and ghost memory looks at what is read; with the rule that finding 034
changes it must see the finding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kvgate.adapters.reference import Reference
from kvgate.findings.register import with_ids
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.attention import Kind
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Finish,
    Operation,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Run,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.rules import Rules
from kvreference.settings import Settings

FULL, WINDOW, CHUNKS = Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, 9), Group(Kind.CHUNKED_LOCAL, 4, 16)
MODELS = ((WINDOW,), (CHUNKS,), (FULL, WINDOW), (WINDOW, CHUNKS, FULL))
RUNS, OPERATIONS = 200, 60


def _of_request(kind: Callable[[int], Operation], _draw: Random, number: int) -> Operation:
    return kind(number)


DRAWN: dict[type[Operation], Callable[[Random, int], Operation]] = {
    Arrive: lambda draw, number: Arrive(number, (Run(draw.choice((0, 100)), draw.randint(8, 50)),)),
    Admit: lambda draw, number: Admit(number, 16, draw.choice((0, 20, 33, 48)), draw.random() < 0.5),
    Schedule: lambda _draw, number: Schedule(number, 16),
    Sample: lambda draw, number: Sample(number, draw.randint(0, 2), draw.randint(200, 209), draw.randint(0, 2)),
    Rewind: lambda draw, number: Rewind(number, draw.randint(0, 48)),
    Transferred: lambda draw, number: Transferred(number, draw.random() < 0.7),
    **{kind: partial(_of_request, kind) for kind in (Preempt, Finish, Abort, ReleaseSkipped)},
}


def _run(seed: int, rules: Rules) -> tuple[Divergence | None, int]:
    """What is found in a run, and how many requests a failed load had start anew."""
    draw = Random(seed)
    geometry = Geometry(draw.choice(MODELS))
    drafts = draw.choice((0, 2))
    settings = Settings(geometry, 30, tokens_max=64, chunk_tokens=16, requests_max=3, drafts_max=drafts)
    system = Reference(settings, Choices(rules=rules))
    lockstep = Lockstep(system, None, [GhostMemory(settings), LeakMonitor(settings)])
    anew = 0
    for _ in range(OPERATIONS):
        kind = draw.choice([*DRAWN, Admit, Schedule])
        candidates = lockstep.candidates(kind)
        if not candidates:
            continue
        number = draw.choice(candidates)
        before = sum(each.preemptions for each in system.population.alive.values())
        found = lockstep.perform(DRAWN[kind](draw, number))
        if found is not None:
            return found, anew
        anew += kind is Rewind and sum(each.preemptions for each in system.population.alive.values()) > before
    return next(iter(lockstep.close()), None), anew


def test_nothing_that_a_window_released_is_read_after_a_failed_load() -> None:
    """Goal: the guarantee. Method: many runs; requests start anew in some, and nothing is found in any."""
    runs = [_run(seed, Rules()) for seed in range(RUNS)]
    assert [] == [found for found, _ in runs if found is not None]
    assert 20 < sum(anew for _, anew in runs)


def test_finding_034_is_seen_in_the_same_runs() -> None:
    """Control: a reference with its rule reads null blocks, or writes them."""
    (finding,) = with_ids(["034-window-released-before-a-failed-load"])
    rules = Rules(finding.acts(Settings(Geometry((WINDOW,)), blocks=8), "").deltas)
    runs = [_run(seed, rules) for seed in range(RUNS)]
    seen = {found.difference.statement for found, _ in runs if found is not None}
    assert {"KV-MEM-01", "KV-MEM-02"} == seen
    assert 0 == sum(anew for _, anew in runs)
