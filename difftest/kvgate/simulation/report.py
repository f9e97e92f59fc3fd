"""What is printed of simulations: a table, and what may not be believed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kvgate.simulation.comparison import disagreements
from kvgate.simulation.cost import COPIED_WEIGHT, recomputed_tokens, relative_work
from kvgate.simulation.result import Result

COLUMNS = (
    "policy",
    "blocks",
    "served by",
    "hit rate",
    "server says",
    "work",
    "again",
    "copied",
    "evictions",
    "preemptions",
    "judged",
)


def row_of(result: Result) -> tuple[str, ...]:
    """One line of the table. ``again`` and ``copied`` are tokens, evictions blocks."""
    return (
        result.policy,
        f"{result.blocks:,}",
        result.arm,
        f"{result.hit_rate:.2%}",
        f"{result.server.hit_rate:.2%}",
        f"{relative_work(result):.1%}",
        f"{recomputed_tokens(result):,}",
        f"{result.copied_tokens:,}",
        f"{result.evictions:,}",
        f"{result.preemptions:,}",
        sound_in_words(result),
    )


def sound_in_words(result: Result) -> str:
    """What was judged of the blocks that were read."""
    soundness = result.soundness
    if not soundness.judged:
        return "not judged"
    return f"{soundness.reads:,}" if soundness.sound else "UNSOUND"


def print_table(results: Sequence[Result], console: Console) -> None:
    """A table for each workload and model, and below them what is to be known."""
    for heading in dict.fromkeys((each.workload, each.model) for each in results):
        ours = [each for each in results if (each.workload, each.model) == heading]
        print_lines([f"{heading[0]} on {heading[1]}: {len(ours[0].counted):,} requests counted", ""], console)
        table = Table(box=None, pad_edge=False)
        for place, column in enumerate(COLUMNS):
            table.add_column(column, justify="left" if place in (0, 2) else "right", no_wrap=True)
        for result in ours:
            table.add_row(*row_of(result))
        console.print(table, soft_wrap=True)
        print_lines([""], console)
    print_lines(below(results), console)


def print_lines(lines: Sequence[str], console: Console) -> None:
    """Print them as they are."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def below(results: Sequence[Result]) -> list[str]:
    """What is to be known about the table, and what is wrong with it."""
    lines = [
        "hit rate: tokens hit by prompt tokens, each request once. server says: vLLM's counters, which count a request",
        "again whenever it is looked up and not let in. work: tokens computed, and copied ones at a weight of "
        f"{COPIED_WEIGHT:g},",
        "by what an empty cache would compute. again: tokens computed once more after a preemption. judged: blocks",
        "that were read, and held what they should. Nothing here is a time.",
    ]
    for result in results:
        if result.soundness.unsound:
            lines.append(f"UNSOUND: {result.arm}, {result.policy}: {result.soundness.unsound}")
    lines += [f"DIFFERENT: {each}" for each in disagreements(results)]
    return lines


def is_wrong(results: Sequence[Result]) -> bool:
    """Whether something was read that was not there, or two arms differ that must not."""
    return any(each.soundness.unsound for each in results) or bool(disagreements(results))
