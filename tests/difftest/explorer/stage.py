"""Fixtures of these tests: worlds given as graphs, and block managers so small that a test can visit them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from kvgate.adapters.reference import Reference
from kvgate.explore.canonical import Prompt
from kvgate.explore.exploration import Exploration, Limits
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scope import Menu, Scope
from kvgate.explore.search import Search
from kvgate.explore.world import Outcome, World
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Operation
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot, Violation

AMPLE = Limits(states_max=100_000, seconds_max=60.0)
FULL = Group(Kind.FULL, 2)
WINDOW = Group(Kind.SLIDING_WINDOW, 1, 2)
MENU = Menu((Prompt(3), Prompt(3, 2)), budgets_tokens=(2, 8), evicts=True)


@frozen
class Drawn:
    """A world given as a graph: states are letters, a move is the state that it leads to, names are their case."""

    edges: Mapping[str, str]
    """Per state, in small letters, where its moves lead."""
    idle: frozenset[str] = frozenset()
    """The moves without progress, as two letters: from where to where."""
    wrong: frozenset[str] = frozenset()
    """The states that violate something, and the moves that do, as two letters."""
    raises: frozenset[str] = frozenset()
    """The moves that raise."""
    name: str = "drawn"
    bounds: Mapping[str, str] = field(factory=lambda: {"letters": "26"})

    def initial(self) -> str:
        return "a"

    def moves(self, state: str) -> Sequence[str]:
        return self.edges.get(state.lower(), "")

    def step(self, state: str, move: str) -> Outcome[str]:
        edge = (state + move).lower()
        if edge in self.raises:
            raise LookupError(edge)
        violations = (Violation("KV-MEM-01", edge),) if edge in self.wrong else ()
        return Outcome(move, edge, edge not in self.idle, violations)

    def violations_in(self, state: str) -> Sequence[Violation]:
        return [Violation("KV-INV-01", state.lower())] if state.lower() in self.wrong else []

    def key(self, state: str) -> str:
        return state.lower()

    def snapshot(self, state: str) -> Snapshot:
        del state
        return Snapshot({}, [0], [], 0, [None], dict)

    def describe_edge(self, move: str, answer: Any) -> str:
        return f"to {move}: {answer}"


def explore(world: World[Any, Any], limits: Limits = AMPLE) -> Exploration[Any]:
    """Explore a world."""
    return Search(world, limits).run()


def world_of(
    *groups: Group, menu: Menu = MENU, factory: Callable[[Settings], Manager] = Reference, **settings: Any
) -> ManagerWorld:
    """A block manager for two requests of at most four tokens, with three blocks, unless ``settings`` say otherwise."""
    limits = {"blocks": 4, "tokens_max": 4, "requests_max": 2, "tells_events": False, **settings}
    return ManagerWorld("small", Scope(Settings(Geometry(groups or (FULL,)), **limits), menu), factory)


def walk(world: ManagerWorld, moves: Iterable[Operation]) -> Any:
    """The state after some moves, each of which must be legal."""
    state = world.initial()
    for move in moves:
        assert move == state.manager.population.resolve(move)
        state = world.step(state, move).state
    return state
