"""Two arms, request by request: equal settings must have equal results in every arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import asdict

from kvgate.simulation.result import Result

OWN_WAY = ("infinite",)
"""Arms that are not meant to agree with any other."""


def difference(ours: Result, theirs: Result) -> str | None:
    """The first thing in which two results of one setting differ, in words; None if they agree.

    Compared are, for every request, all that is reported of it, and in sum the server's counters, the steps and the
    evictions. Times are not.
    """
    names = f"{ours.arm} and {theirs.arm}"
    if len(ours.served) != len(theirs.served):
        return f"{names}: {len(ours.served)} and {len(theirs.served)} requests were served"
    for one, other in zip(ours.served, theirs.served, strict=True):
        if one != other:
            mine, its = asdict(one), asdict(other)
            key = next(key for key in mine if mine[key] != its[key])
            return f"{names}: request {one.number}, {key}: {mine[key]} and {its[key]}"
    for what in ("server", "steps", "evictions"):
        if getattr(ours, what) != getattr(theirs, what):
            return f"{names}: {what}: {getattr(ours, what)} and {getattr(theirs, what)}"
    return None


def disagreements(results: Iterable[Result]) -> list[str]:
    """Where arms differ that served the same setting."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.arm not in OWN_WAY:
            key = (result.workload, result.model, result.policy, result.blocks, result.seed)
            groups.setdefault(key, []).append(result)
    return [found for group in groups.values() for found in _within(group)]


def _within(group: Sequence[Result]) -> list[str]:
    found = (difference(group[0], other) for other in group[1:])
    policy = group[0].policy
    return [f"{policy}, {group[0].blocks} blocks: {each}" for each in found if each is not None]
