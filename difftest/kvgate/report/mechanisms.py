"""The report of ``kvgate mechanisms`` and ``kvgate conform``: mechanisms that were driven, tiny models explored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from kvgate.explore.exploration import Exploration
from kvgate.explore.mechanisms import Mechanism
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.kernel.text import counted
from kvgate.report.document import Column, Report, Section, Story, columns

DRIVEN = (
    *(
        Column("mechanism"),
        Column("operations", ","),
        Column("cases", ","),
        Column("seen", optional=True),
        Column("verdict"),
    ),
    *(Column("models"), Column("wrong", shown=False)),
)
EXPLORED = (
    *(Column("model"), Column("mechanism"), Column("states", ","), Column("edges", ","), Column("depth")),
    *(Column("seconds", ".1f"), Column("exhaustive"), Column("verdict"), Column("stopped", shown=False)),
    *(Column("bounds", shown=False), Column("wrong", shown=False)),
)


@frozen
class Driven:
    """One mechanism that was driven at random."""

    mechanism: Mechanism
    operations: int
    cases: int
    wrong: tuple[str, ...]
    seen: Mapping[str, int] = field(factory=dict)
    """How often what a mechanism is about happened."""


@frozen
class ExploredModel:
    """One tiny model of a mechanism that was explored."""

    mechanism: str
    model: str
    exploration: Exploration[Any]
    bounds: Mapping[str, Any]

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong in the state where the exploration ended."""
        found = self.exploration.found
        return () if found is None else tuple(f"{each.statement}: {each.detail}" for each in found.violations)


def report_of(
    command: str,
    driven: Sequence[Driven],
    explored: Sequence[ExploredModel],
    ended: str,
    *,
    noun: str,
    seed: int,
    more: Sequence[Section] = (),
    never: Sequence[str] = (),
) -> Report:
    """The report. ``noun`` is what was looked for, and ``never`` what should have happened and did not."""
    found = [_story(wrong, each.mechanism.name) for each in driven for wrong in each.wrong]
    found += [_story(f"{each.model}: {wrong}", each.model) for each in explored for wrong in each.wrong]
    found += [Story(f"NEVER SEEN: {name}") for name in never]
    sections = [Section("", DRIVEN, tuple(_driven(each, noun) for each in driven))]
    if explored:
        notes = [
            f"{each.model}: {'; '.join(f'{what}: {bound}' for what, bound in each.bounds.items())}"
            for each in explored
            if each.bounds
        ]
        sections.append(Section("Explored", EXPLORED, tuple(_explored(each, noun) for each in explored)))
        sections += [Section("Bounds of what was explored", notes=tuple(notes))] if notes else []
    stopped = [each.model for each in explored if each.exploration.stopped]
    operations, edges = sum(each.operations for each in driven), sum(each.exploration.edges for each in explored)
    number = counted(len(found), noun) if found else f"no {noun}"
    outcome = f"{number} in {operations:,} operations, {edges:,} edges"
    return Report(
        command=command,
        outcome=outcome + (f"; not exhaustive: {', '.join(stopped)}" if stopped else ""),
        exit_code=DIVERGENCE
        if found
        else INTERRUPTED
        if ended == "interrupted"
        else NOT_EXHAUSTIVE
        if stopped
        else AGREEMENT,
        ended=ended,
        circumstances={"seed": seed},
        tested=(*sections, *more),
        found=tuple(found),
        found_noun=noun,
    )


def _story(wrong: str, place: str) -> Story:
    return Story(wrong if place in wrong else f"{place}: {wrong}", place=(place,))


def _verdict(wrong: Sequence[str], noun: str) -> str:
    return counted(len(wrong), noun).upper() if wrong else f"no {noun}"


def _driven(each: Driven, noun: str) -> tuple[Any, ...]:
    return (
        *(each.mechanism.name, each.operations, each.cases, dict(each.seen), _verdict(each.wrong, noun)),
        *(list(each.mechanism.models or each.mechanism.tiny), list(each.wrong)),
    )


def _explored(each: ExploredModel, noun: str) -> tuple[Any, ...]:
    size = each.exploration
    return (
        *(each.model, each.mechanism, size.states, size.edges, size.depth, round(size.seconds, 1)),
        *(size.stopped is None, _verdict(each.wrong, noun), size.stopped, dict(each.bounds), list(each.wrong)),
    )


def list_of(command: str, chosen: Sequence[Mechanism]) -> Report:
    """What can be driven, and on which models."""
    rows = tuple((each.name, list(each.models or each.tiny), list(each.tiny)) for each in chosen)
    return Report(f"{command} --list", tested=(Section("", columns("mechanism", "driven on", "explored on"), rows),))
