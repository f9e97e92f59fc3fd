"""The report of an exploration: what was claimed, explored and found, within which bounds.

A claim holds within the bounds only. If a search stopped before every state was visited, nothing is claimed of the
states that were left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import asdict, has

from kvgate.explore.exploration import INTERRUPTED as BY_HAND
from kvgate.explore.explored import Explored
from kvgate.explore.story import render
from kvgate.explore.tier_world import TierWorld
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.kernel.text import counted, printable
from kvgate.report.document import Column, Report, Section, Story
from kvreference.statements import STATEMENTS

CLAIMED = (
    "every state satisfies the invariants (KV-INV)",
    "every computed token finds in its slots what it reads (KV-MEM)",
    "no legal operation raises (KV-SYS-01)",
    "a request that fits the empty pool is admitted whenever no request holds a block (KV-LIVE-01)",
    "no sequence of steps returns to the same state without progress (KV-LIVE-03)",
)
CLAIMED_OF_TIERS = (
    "what a load or a store copies is what its key names (KV-TIER-01, KV-TIER-04)",
    "no block and no chunk is reused while a job uses it (KV-TIER-02)",
    "what is reported as a hit can be loaded in every group (KV-TIER-03)",
    "when all jobs have ended, no chunk is held (KV-TIER-05)",
    "no legal operation raises (KV-SYS-01)",
)
NOT_EXPLORED = (
    "Anything beyond the bounds: longer requests, more of them, larger pools, other prompts.",
    "Anything that the invariants and ghost memory do not see: which of several right blocks is taken, which events "
    "are emitted.",
)
COLUMNS = (
    Column("model"),
    Column("design", shown=False),
    *(Column("states", ","), Column("edges", ","), Column("depth"), Column("seconds", ".1f"), Column("idle steps")),
    Column("verdict"),
    *(Column("exhaustive", shown=False), Column("stopped", shown=False), Column("bounds", shown=False)),
)


def report_of(explored: Sequence[Explored]) -> Report:
    """The report of models that were explored one after the other."""
    bounds = [
        line
        for each in explored
        for line in (f"{each.world.name}:", *(f"  {what}: {bound}" for what, bound in each.world.bounds.items()))
    ]
    bounds.append("idle steps: the most steps in a row without progress that change anything")
    return Report(
        command="explore",
        outcome=_outcome(explored),
        exit_code=_exit_code(explored),
        ended="interrupted" if any(each.exploration.stopped == BY_HAND for each in explored) else "completed",
        claimed=_claims(explored),
        tested=(Section("", COLUMNS, tuple(map(_row, explored))), Section("Bounds", notes=tuple(bounds))),
        found=tuple(_story(each) for each in explored if each.exploration.found is not None),
        not_tested=NOT_EXPLORED,
        tested_title="Explored",
        found_noun="violation",
    )


def _exit_code(explored: Sequence[Explored]) -> int:
    if any(each.exploration.found for each in explored):
        return DIVERGENCE
    stopped = {each.exploration.stopped for each in explored} - {None}
    if BY_HAND in stopped:
        return INTERRUPTED
    return NOT_EXHAUSTIVE if stopped else AGREEMENT


def _outcome(explored: Sequence[Explored]) -> str:
    states = sum(each.exploration.states for each in explored)
    where = f"in {states:,} states of {counted(len(explored), 'model')}"
    wrong = [each for each in explored if each.exploration.found is not None]
    if wrong:
        return f"{', '.join(f'{each.world.name}: {each.verdict}' for each in wrong)}, {where}"
    left = [each for each in explored if each.exploration.stopped is not None]
    if left:
        return f"nothing wrong {where}; not exhaustive: {', '.join(each.world.name for each in left)}"
    refuted = "NOT REFUTED: " if any(each.design for each in explored) else ""
    return f"{refuted}nothing wrong {where}, which are all that can be reached within the bounds"


def _claims(explored: Sequence[Explored]) -> tuple[str, ...]:
    designs = [each.design for each in explored if each.design is not None]
    if designs:
        return tuple(f"{each.name} violates {each.statement}. {each.story}" for each in dict.fromkeys(designs))
    tiers = [isinstance(each.world, TierWorld) for each in explored]
    claims = *(() if all(tiers) else CLAIMED), *(CLAIMED_OF_TIERS if any(tiers) else ())
    return tuple(dict.fromkeys(claims))


def _row(each: Explored) -> tuple[Any, ...]:
    size = each.exploration
    return (
        *(each.world.name, each.design and each.design.name, size.states, size.edges, size.depth),
        *(round(size.seconds, 2), size.idle_steps_max, each.verdict),
        *(size.exhaustive, size.stopped, dict(each.world.bounds)),
    )


def _story(each: Explored) -> Story:
    found = each.exploration.found
    assert found is not None, "only what was found has a story"
    first = found.violations[0]
    lines = [f"{each.world.name}:", render(each.world, found)]
    if each.design is not None and each.design.statement != first.statement:
        expected = f"{each.design.name} was expected to violate {each.design.statement}, and violates "
        lines.insert(0, f"{expected}{first.statement}:")
    if each.again is None:
        lines.append("to see it again: write it to a file with --trace")
    else:
        lines += ["to see it again:", f"  {printable(each.again, 1000)}"]
    violations = [
        {"statement": wrong.statement, "sentence": STATEMENTS[wrong.statement], "detail": wrong.detail}
        for wrong in found.violations
    ]
    return Story(
        headline=f"{each.world.name}: {each.verdict}",
        text="\n".join(lines),
        place=(each.world.name,),
        statement=first.statement,
        sentence=STATEMENTS[first.statement],
        again=each.again,
        details={
            "violations": violations,
            "moves": [_move(move) for move in found.moves],
            "circle": [_move(move) for move in found.circle],
        },
    )


def _move(move: Any) -> dict[str, Any]:
    return {"operation": type(move).__name__, **(asdict(move) if has(type(move)) else {"move": str(move)})}
