"""What windows leave too early in one run: findings 028 and 061."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.monitors.slot_memory import Misread
from kvreference.geometry import Group


class LeftEarly:
    """Per request and group, the places of its tables that a window left too early."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self._places: set[tuple[int, int, int]] = set()

    def note(self, request: int, computed: int, counted: int) -> bool:
        """A window goes by ``counted`` tokens, and should by ``computed`` ones; whether it leaves more for that."""
        left = left_for(self.groups, computed, counted)
        self._places.update((request, *place) for place in left)
        return bool(left)

    def has(self, misread: Misread) -> bool:
        """Whether the place that is read was left too early."""
        index = misread.reader.group
        return (misread.reader.request, index, misread.token // self.groups[index].block_size_tokens) in self._places


def left_for(groups: Sequence[Group], computed: int, counted: int) -> set[tuple[int, int]]:
    """By group, the places that windows and states leave if they count so many tokens, and not the ``computed`` ones.

    Of states that are given back by the tokens that hold, those that a resume does not read.
    """
    return {
        (index, place)
        for index, group in enumerate(groups)
        for left in (group.blocks_dead, group.blocks_unread)
        for place in range(left(computed), left(counted))
    }
