"""Where the alignment of hits comes from: which group decides the least common multiple."""

from __future__ import annotations

from math import lcm

from kvreference.geometry import Geometry


def dominant(geometry: Geometry) -> int:
    """The index of the group that decides the alignment: without it, and those of its size, it would be the finest.

    Of several that would change nothing alone, the one with the largest unit.
    """
    serving = [index for index, group in enumerate(geometry.groups) if group.attention.serves_hits]
    if not serving:
        return 0
    units = {index: geometry.groups[index].unit for index in serving}
    return min(
        serving,
        key=lambda index: (lcm(*(unit for unit in units.values() if unit != units[index])), -units[index], index),
    )


def derivation(geometry: Geometry) -> str:
    """The alignment as a sum is written: ``lcm(512, 16384, 128) = 16384``."""
    units = dict.fromkeys(group.unit for group in geometry.groups if group.attention.serves_hits)
    if not units:
        return "no group serves hits"
    return f"lcm({', '.join(map(str, units))}) = {geometry.alignment_tokens}"
