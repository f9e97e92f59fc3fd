"""The report of an exploration: the verdict in one line, then what was claimed, explored and found, and the bounds.

A claim holds within the bounds alone. Where a search stopped before every state was visited, nothing is claimed of the
states that were left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvgate.explore.explored import Explored
from kvgate.explore.story import render
from kvgate.kernel.console import plain
from kvgate.kernel.text import counted, printable

CLAIMED = (
    "every state satisfies the invariants (KV-INV)",
    "every token that is computed finds in its slots what it reads (KV-MEM)",
    "no legal operation raises (KV-SYS-01)",
    "a request that fits the empty pool is admitted whenever nobody holds a block (KV-LIVE-01)",
    "no sequence of steps returns to the same state without progress (KV-LIVE-03)",
)
NOT_EXPLORED = (
    "Whatever lies beyond the bounds: longer requests, more of them, larger pools, other prompts.",
    "Whatever the invariants and ghost memory do not see: which of several right blocks is taken, which events are "
    "told.",
)


def text_report(explored: Sequence[Explored]) -> str:
    """The report as plain text."""
    return plain(lambda console: _show(explored, console))


def _show(explored: Sequence[Explored], console: Console) -> None:
    console.print(Text(_outcome(explored)), soft_wrap=True)
    _section(console, "Claimed, of every state that can be reached within the bounds", _claims(explored))
    _section(console, "Explored", ())
    console.print(_table(explored))
    _section(console, "Bounds", _bounds(explored))
    _section(console, "Found", _found(explored))
    _section(console, "Not explored", [f"- {sentence}" for sentence in NOT_EXPLORED])


def _outcome(explored: Sequence[Explored]) -> str:
    states = sum(each.exploration.states for each in explored)
    where = f"in {states:,} states of {counted(len(explored), 'model')}"
    wrong = [each for each in explored if each.exploration.found is not None]
    if wrong:
        return f"{', '.join(f'{each.world.name}: {each.verdict}' for each in wrong)}, {where}"
    left = [each for each in explored if each.exploration.stopped is not None]
    if left:
        return f"nothing wrong {where}; not exhaustive: {', '.join(each.world.name for each in left)}"
    if any(each.design for each in explored):
        return f"NOT REFUTED: nothing wrong {where}, which are all that can be reached within the bounds"
    return f"nothing wrong {where}, which are all that can be reached within the bounds"


def _claims(explored: Sequence[Explored]) -> list[str]:
    designs = [each.design for each in explored if each.design is not None]
    if designs:
        return [f"- {each.name} violates {each.statement}. {each.story}" for each in dict.fromkeys(designs)]
    return [f"- {claim}" for claim in CLAIMED]


def _table(explored: Sequence[Explored]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for title, justify in _COLUMNS:
        table.add_column(title, justify=justify, overflow="fold")
    for each in explored:
        exploration = each.exploration
        idle = "-" if exploration.idle_steps_max is None else str(exploration.idle_steps_max)
        cells = (
            f"{exploration.states:,}",
            f"{exploration.edges:,}",
            str(exploration.depth),
            f"{exploration.seconds:.1f}",
            idle,
            each.verdict,
        )
        table.add_row(*map(Text, (each.world.name, *cells)))
    return table


_COLUMNS: Sequence[tuple[str, Any]] = (
    ("model", "left"),
    ("states", "right"),
    ("edges", "right"),
    ("depth", "right"),
    ("seconds", "right"),
    ("idle steps", "right"),
    ("verdict", "left"),
)


def _bounds(explored: Sequence[Explored]) -> Iterator[str]:
    for each in explored:
        yield f"{each.world.name}:"
        for bounded, bound in each.world.bounds.items():
            yield f"  {bounded}: {bound}"
    yield "idle steps: the most steps in a row without progress that change anything"


def _found(explored: Sequence[Explored]) -> Iterator[str]:
    wrong = [each for each in explored if each.exploration.found is not None]
    if not wrong:
        yield "nothing"
    for each in wrong:
        assert each.exploration.found is not None
        statement = each.exploration.found.violations[0].statement
        if each.design is not None and each.design.statement != statement:
            yield f"{each.design.name} was expected to violate {each.design.statement}, and violates {statement}:"
        yield f"{each.world.name}:"
        yield render(each.world, each.exploration.found)
        yield "to see it again: write it to a file with --trace" if each.again is None else "to see it again:"
        if each.again is not None:
            yield f"  {printable(each.again, 1000)}"


def _section(console: Console, title: str, lines: Sequence[str] | Iterator[str]) -> None:
    console.print(Text(f"\n{title}"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
