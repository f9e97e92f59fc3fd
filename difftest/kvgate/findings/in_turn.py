"""The look-up of vLLM: kinds of groups shorten the hit one after the other, until none does. Findings 005 and 006."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

from attrs import evolve

from kvreference.geometry import Group
from kvreference.settings import Settings

Longest: TypeAlias = Callable[[Sequence[Any], range, int, int], int]
"""``kvreference.hit_lookup.longest_length``."""


def in_turn(longest: Longest, found: Sequence[Any], lengths: range, tokens: int, partial_hit_tokens_min: int) -> int:
    """Each kind asks for its look-ahead block only the first time that it is asked.

    It is asked again only if another kind shortened the hit that was not asked for its own look-ahead then.
    """
    kinds: dict[Group, list[Any]] = {}
    for each in found:
        kinds.setdefault(each.group, []).append(each)
    # Groups that are alike are asked as one, full attention before all others.
    ordered = sorted(kinds, key=lambda kind: kind.window_tokens is not None)
    reached, verified = lengths.start, set[Group]()
    while True:
        before = reached
        for kind in ordered:
            asks = kind.lookahead and kind not in verified
            alike = kinds[kind] if asks else [without_look_ahead(each) for each in kinds[kind]]
            length = longest(alike, range(reached, lengths.stop, lengths.step), tokens, partial_hit_tokens_min)
            if asks:
                verified.add(kind)
            elif length < reached:
                verified.clear()
            reached = length
        if reached == before:
            return reached


def satisfied(found: Sequence[Any], lengths: range, tokens: int, _partial_hit_tokens_min: int) -> int:
    """The first of ``lengths`` at which every group is satisfied. In turn, no two kinds are asked together."""
    return next(length for length in lengths if all(each.satisfies(length, tokens) for each in found))


def without_look_ahead(found: Any) -> Any:
    """What is cached in a group, if it asks for no look-ahead block."""
    bare = copy(found)
    bare.group = evolve(found.group, lookahead=False)
    return bare


def hits_whole_blocks(settings: Settings) -> bool:
    """Whether every hit ends at a block's end. If not, it is not vLLM's look-up that finds it."""
    return not any(group.copies for group in settings.geometry.groups)


def windows_with_look_ahead(settings: Settings) -> set[Group]:
    """The kinds of sliding windows that ask for a look-ahead block."""
    return {group for group in settings.geometry.groups if group.lookahead and group.window_tokens is not None}
