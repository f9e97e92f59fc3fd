"""The report of ``kvgate simulate``: what hits, under which policy, and which hit rates may not be believed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED
from kvgate.kernel.text import counted
from kvgate.report.document import Column, Report, Section, Story
from kvgate.simulation.comparison import disagreements, explained
from kvgate.simulation.cost import COPIED_WEIGHT, recomputed_tokens, relative_work
from kvgate.simulation.result import Result, from_record, to_record

COLUMNS = (
    *(Column("policy"), Column("blocks", ","), Column("served by")),
    *(Column("hit rate", ".2%"), Column("server's hit rate", ".2%"), Column("work", ".1%")),
    *(Column("recomputed", ","), Column("copied", ","), Column("evictions", ","), Column("preemptions", ",")),
    *(Column("reads checked", ","), Column("workload", shown=False), Column("model", shown=False)),
    *(Column("requests", shown=False), Column("prompt_tokens", shown=False), Column("hit_tokens", shown=False)),
    *(Column("computed_tokens", shown=False), Column("sound", shown=False), Column("result", shown=False)),
)
WITH_TIER = (Column("with the tier", ".2%"),)
"""What could have been hit on the device and in an ideal tier on the host."""
LEGEND = (
    "hit rate: tokens hit by prompt tokens, each request once. server's hit rate: vLLM's counters, which count a",
    "request again whenever it is looked up and not admitted. work: tokens computed, and copied ones at a weight of "
    f"{COPIED_WEIGHT:g},",
    "by what an empty cache would compute. recomputed: tokens computed once more after a preemption. reads checked:",
    "blocks that were read and held what they should. Nothing here is a time.",
)


def report_of(results: Sequence[Result], ended: str = "completed", notes: Sequence[str] = ()) -> Report:
    """The report of simulations; each one is in it as a whole, for programs. ``notes`` says what none of them does."""
    found = tuple(_found(results))
    wrong = f"{counted(len(found), 'hit rate')} that may not be believed, " if found else ""
    return Report(
        command="simulate",
        outcome=f"{wrong}{counted(len(results), 'simulation')}",
        exit_code=INTERRUPTED if ended == "interrupted" else DIVERGENCE if found else AGREEMENT,
        ended=ended,
        tested=tuple(_sections(results, notes)),
        found=found,
        found_noun="unsound hit rate",
        tested_title="Simulated",
    )


def _sections(results: Sequence[Result], of_all: Sequence[str]) -> Iterator[Section]:
    """A table for each workload and model."""
    headings = list(dict.fromkeys((each.workload, each.model) for each in results))
    for heading in headings:
        ours = [each for each in results if (each.workload, each.model) == heading]
        title = f"{heading[0]} on {heading[1]}: {len(ours[0].counted):,} requests counted"
        notes = (*of_all, *_notes(ours), *_of_tier(ours), *(LEGEND if heading == headings[-1] else ()))
        has_tier = any(each.hit_rate_with_tier is not None for each in ours)
        # Last, for those who read the other columns by their places.
        rows = [(*_row(each), *([each.hit_rate_with_tier] * has_tier)) for each in ours]
        yield Section(title, (*COLUMNS, *(WITH_TIER * has_tier)), tuple(rows), notes=notes, keys=3)


def _of_tier(results: Sequence[Result]) -> Iterator[str]:
    if any(each.hit_rate_with_tier is not None for each in results):
        yield "with the tier: what could have been hit on the device and in an ideal tier on the host, which has every"
        yield "full block at once and evicts what was used longest ago. A connector may differ."


def _notes(results: Sequence[Result]) -> Iterator[str]:
    """What the releases are known for that was seen, and what of it makes them differ from the reference."""
    for system in dict.fromkeys(each.system for each in results if "@" in each.system):
        known = "with what its own is known to decide differently"
        yield f"{system}: its block manager is followed, on the scheduler of the reference {known}"
    for result in results:
        for finding, times in result.findings:
            acted = f"{result.arm} ({result.system}), {result.policy}, {result.blocks:,} blocks"
            yield f"{acted}: finding {finding} acted {counted(times, 'time')}"
    yield from (f"DIFFERENT BY WHAT IS KNOWN: {each}" for each in explained(results))


def _row(result: Result) -> tuple[Any, ...]:
    sound = result.soundness
    checked: Any = "not checked" if not sound.judged else sound.reads if sound.sound else "UNSOUND"
    return (
        *(result.policy, result.blocks, result.arm, result.hit_rate, result.server.hit_rate),
        relative_work(result),
        *(recomputed_tokens(result), result.copied_tokens, result.evictions, result.preemptions, checked),
        *(result.workload, result.model, len(result.counted), result.prompt_tokens, result.hit_tokens),
        *(result.computed_tokens, sound.sound, to_record(result)),
    )


def _found(results: Sequence[Result]) -> Iterator[Story]:
    for result in results:
        if result.crash:
            yield Story(f"CRASH: {result.arm}, {result.policy}, step {result.steps}: {result.crash}")
        if result.soundness.unsound:
            yield Story(f"UNSOUND: {result.arm}, {result.policy}: {result.soundness.unsound}")
    yield from (Story(f"DIFFERENT: {each}") for each in disagreements(results))


def results_of(report: Report, name: str) -> list[Result]:
    """The simulations of a report that was read.

    Raises:
        UsageError: one is not well formed; says what is wrong.
    """
    return [from_record(row["result"], name) for section in report.tested for row in section.records()]
