"""Steps without progress.

Goal: a cycle is found if one exists, and a shortest one through the first state on any cycle; otherwise the longest
path is measured. Method: random graphs, and an independent search that walks all paths.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvgate.explore.search import Successors, components, idling

NODES = 6
graphs = st.dictionaries(st.integers(0, NODES - 1), st.lists(st.integers(0, NODES - 1), max_size=3), max_size=NODES)


def paths(graph: Successors, start: int, length: int) -> list[tuple[int, ...]]:
    """Every path of ``length`` edges from ``start``."""
    if length == 0:
        return [(start,)]
    return [(start, *rest) for after in graph.get(start, ()) for rest in paths(graph, after, length - 1)]


def reachable(graph: Successors, start: int) -> set[int]:
    """All states that at least one edge leads to."""
    found: set[int] = set()
    left = list(graph.get(start, ()))
    while left:
        state = left.pop()
        if state not in found:
            found.add(state)
            left += graph.get(state, ())
    return found


@given(graphs)
def test_a_circle_is_found_exactly_if_there_is_one(graph: Successors) -> None:
    """Through the lowest state that can come back to itself, and as short as any through it."""
    circular = [state for state in range(NODES) if state in reachable(graph, state)]
    circle = idling(graph).circle
    assert bool(circular) == bool(circle)
    if circle:
        assert circle[0] == circle[-1] == circular[0]
        assert all(after in graph[before] for before, after in pairwise(circle))
        shorter = range(1, len(circle) - 1)
        assert not any(path[-1] == circle[0] for length in shorter for path in paths(graph, circle[0], length))


@given(graphs)
def test_without_a_circle_the_longest_path_is_measured(graph: Successors) -> None:
    """No path is longer than the number of states."""
    idle = idling(graph)
    if not idle.circle:
        longest = max(length for state in range(NODES) for length in range(NODES) if paths(graph, state, length))
        assert longest == idle.steps_max


@given(graphs)
def test_components_hold_what_leads_to_each_other_and_come_after_what_they_lead_to(graph: Successors) -> None:
    """Every state is in one of them."""
    found = list(components(graph))
    states = [state for component in found for state in component]
    assert sorted(states) == sorted({*graph, *(after for afters in graph.values() for after in afters)})
    place = {state: index for index, component in enumerate(found) for state in component}
    for one in states:
        for other in reachable(graph, one):
            assert place[other] <= place[one]
            assert (place[one] == place[other]) == (one == other or one in reachable(graph, other))


def test_a_long_path_works() -> None:
    """Recursion would be."""
    length = 100_000
    assert length == idling({state: [state + 1] for state in range(length)}).steps_max
