"""What is printed of simulations: a table, and what may not be believed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kvgate.simulation.comparison import disagreements
from kvgate.simulation.cost import COPIED_WEIGHT, recomputed_tokens, relative_work
from kvgate.simulation.result import Result

COLUMNS = (
    "workload",
    "policy",
    "blocks",
    "served by",
    "hit rate",
    "server says",
    "work",
    "computed again",
    "copied",
    "evictions",
    "preemptions",
    "sound",
)


def row_of(result: Result) -> tuple[str, ...]:
    """One line of the table. Counts of work are in tokens, evictions in blocks."""
    return (
        result.workload,
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
    return f"{soundness.reads:,} reads" if soundness.sound else "NO"


def print_table(results: Sequence[Result], console: Console) -> None:
    """The table, and below it what is to be known."""
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if place in (0, 1, 3) else "right", overflow="fold")
    for result in results:
        table.add_row(*row_of(result))
    console.print(table)
    console.print()
    for line in below(results):
        console.print(line, markup=False, highlight=False)


def below(results: Sequence[Result]) -> list[str]:
    """What is to be known about the table, and what is wrong with it."""
    lines = [
        "hit rate: tokens hit by prompt tokens, each request once. server says: vLLM's counters, which count a request",
        "again whenever it is looked up and not let in. work: tokens computed, and copied ones at "
        f"{COPIED_WEIGHT:g}, by what",
        "an empty cache would compute. Nothing here is a time.",
    ]
    for result in results:
        if result.soundness.judged and result.soundness.unsound:
            lines.append(f"UNSOUND: {result.arm}, {result.policy}: {result.soundness.unsound}")
    lines += [f"DIFFERENT: {each}" for each in disagreements(results)]
    return lines


def is_wrong(results: Sequence[Result]) -> bool:
    """Whether something was read that was not there, or two arms differ that must not."""
    return any(each.soundness.unsound for each in results) or bool(disagreements(results))
