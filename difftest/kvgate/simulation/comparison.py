"""Two arms, request by request: equal settings must have equal results in every arm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import asdict

from kvgate.kernel.text import counted
from kvgate.simulation.result import Result

OWN_WAY = ("infinite",)
"""Arms that are not meant to agree with any other."""


def difference(ours: Result, theirs: Result) -> str | None:
    """The first thing in which two results of one setting differ, in words; None if they agree.

    Compared are, for every request, all that is reported of it, and in sum the server's counters, the steps and the
    evictions. Times are not.
    """
    names = f"{ours.arm} and {theirs.arm}"
    crashed_apart = _crashed_apart(names, ours, theirs)
    if crashed_apart is not None:
        return crashed_apart
    if len(ours.served) != len(theirs.served):
        return f"{names}: {len(ours.served)} and {len(theirs.served)} requests were served"
    for one, other in zip(ours.served, theirs.served, strict=True):
        if one != other:
            mine, its = asdict(one), asdict(other)
            key = next(key for key in mine if mine[key] != its[key])
            return f"{names}: request {one.number}, {key}: {mine[key]} and {its[key]}"
    # Of a step in which the process ends, nothing is reported: the requests that ended before it are compared alone.
    for what in () if ours.crash else ("server", "steps", "evictions"):
        if getattr(ours, what) != getattr(theirs, what):
            return f"{names}: {what}: {getattr(ours, what)} and {getattr(theirs, what)}"
    return None


def _crashed_apart(names: str, ours: Result, theirs: Result) -> str | None:
    """How the ends of two processes differ: both must end in the same step, and by the same finding."""
    if ours.crash is None and theirs.crash is None:
        return None
    if ours.crash_finding is not None and (ours.crash_finding, ours.steps) == (theirs.crash_finding, theirs.steps):
        return None
    how = (f"step {each.steps}: {each.crash}" if each.crash else "no crash" for each in (ours, theirs))
    return f"{names}: {' and '.join(how)}"


def disagreements(results: Iterable[Result]) -> list[str]:
    """Where arms differ that served the same setting, and nothing that a release is known for explains it."""
    return [found for found, by in _compared(results) if not by]


def explained(results: Iterable[Result]) -> list[str]:
    """Where a release differs from the reference by its findings, or by what it decides by design."""
    return [f"{found}: {by}" for found, by in _compared(results) if by]


def _compared(results: Iterable[Result]) -> Iterator[tuple[str, str]]:
    """Each difference, and what explains it, if that is known."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.arm not in OWN_WAY:
            key = (result.workload, result.model, result.policy, result.blocks, result.seed)
            groups.setdefault(key, []).append(result)
    for group in groups.values():
        for place, other in enumerate(group[1:], 1):
            # What follows the same system must be equal; all else is compared with the first.
            alike = (each for each in group[:place] if each.system == other.system)
            first = next(alike, group[0])
            found = difference(first, other)
            if found is not None:
                by = _explained(first, other) if first.system != other.system else ""
                yield f"{other.policy}, {other.blocks} blocks: {found}", by


def _explained(first: Result, other: Result) -> str:
    """What acted in either of two results."""
    acted = [
        f"finding {name} acted {counted(times, 'time')}" for each in (first, other) for name, times in each.findings
    ]
    design = (f"decided by design: {each.choices}" for each in (first, other) if each.choices)
    return ", ".join([*acted, *design])
