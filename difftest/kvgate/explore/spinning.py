"""Whether steps without progress can go round in circles, and if they cannot, how many there are in a row at most.

States are numbers, the steps without progress are the edges between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

Successors: TypeAlias = Mapping[int, Sequence[int]]


@frozen
class Idling:
    """What steps without progress come to."""

    steps_max: int
    """The most of them in a row, outside of any circle."""
    circle: tuple[int, ...] = ()
    """The states of a shortest circle through the lowest-numbered state that lies on one; empty if there is none."""


def idling(successors: Successors) -> Idling:
    """Look for a circle, and measure the longest path."""
    steps: dict[int, int] = {}
    circular: list[list[int]] = []
    for component in components(successors):
        outside = [steps[after] for state in component for after in successors.get(state, ()) if after in steps]
        longest = max((1 + count for count in outside), default=0)
        steps.update(dict.fromkeys(component, longest))
        if len(component) > 1 or component[0] in successors.get(component[0], ()):
            circular.append(component)
    if not circular:
        return Idling(max(steps.values(), default=0))
    return Idling(max(steps.values()), _shortest_circle(successors, min(map(min, circular))))


def components(successors: Successors) -> Iterator[list[int]]:
    """The strongly connected components, each after all others that it leads to (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    finished: set[int] = set()
    stack: list[int] = []
    for root in successors:
        if root in index:
            continue
        # Each entry is a state that is being visited, and those of its successors that are still to be looked at.
        visits = [(root, iter(successors.get(root, ())))]
        index[root] = lowest[root] = len(index)
        stack.append(root)
        while visits:
            state, remaining = visits[-1]
            for after in remaining:
                if after not in index:
                    index[after] = lowest[after] = len(index)
                    stack.append(after)
                    visits.append((after, iter(successors.get(after, ()))))
                    break
                if after not in finished:
                    lowest[state] = min(lowest[state], index[after])
            else:
                visits.pop()
                if visits:
                    lowest[visits[-1][0]] = min(lowest[visits[-1][0]], lowest[state])
                if lowest[state] == index[state]:
                    component = [stack.pop()]
                    while component[-1] != state:
                        component.append(stack.pop())
                    finished.update(component)
                    yield component


def _shortest_circle(successors: Successors, start: int) -> tuple[int, ...]:
    """The states of a shortest way from ``start`` back to it, both ends included."""
    before: dict[int, int] = {}
    queue = deque([start])
    while start not in before:
        state = queue.popleft()
        for after in successors.get(state, ()):
            if after not in before:
                before[after] = state
                queue.append(after)
    circle = [start, before[start]]
    while circle[-1] != start:
        circle.append(before[circle[-1]])
    return tuple(reversed(circle))
