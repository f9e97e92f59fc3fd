"""The leak monitor: what a system still remembers when no request is alive.

It walks everything that the system's roots reach: attributes, slots, containers. Nothing may name a request that is
gone, and no container may hold more than there are blocks, or boundaries inside them, for these are all that is left to
know about. Modules, classes, functions and tensors are not entered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvreference.operations import Arrive
from kvreference.settings import Settings

_OPAQUE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, str, bytes, int, float, complex, range)
_OBJECTS_MAX = 2_000_000
"""How many objects are visited at most; a larger system is not checked beyond that."""


class LeakMonitor:
    """Checks a system at rest."""

    name = "leak"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._per_block = max((group.block_size_tokens // group.unit for group in settings.geometry.groups), default=1)
        """How many boundaries a block can hold, its end among them."""
        self._arrived: list[int] = []

    def observe(self, step: Step) -> Difference | None:
        """Note who arrived."""
        if isinstance(step.operation, Arrive):
            self.arrived(step.operation.request)
        return None

    def arrived(self, request: int) -> None:
        """A request is known from now on."""
        self._arrived.append(request)

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Everything that remains of requests that are gone."""
        yield from self.held(system)
        yield from self.remembered(system)

    def held(self, system: System) -> Iterator[Difference]:
        """The blocks that remain."""
        snapshot = system.snapshot()
        held = [block for block, references in enumerate(snapshot.references) if references != 0 and block != 0]
        if held:
            yield Difference("KV-LEAK-01", "blocks held", "none", f"{len(held)}: {held[:20]}")
        missing = self.settings.blocks - 1 - len(snapshot.free) - len(snapshot.pinned.queue)
        if missing and not held:
            unpinned = self.settings.blocks - 1 - len(snapshot.pinned.queue)
            yield Difference("KV-LEAK-01", "free queue", f"{unpinned} blocks", str(len(snapshot.free)))

    def remembered(self, system: System) -> Iterator[Difference]:
        """The names that remain, and the containers that grew."""
        names = {system.name_of(number): number for number in self._arrived}
        entries_max = self.settings.blocks * self._per_block
        account = f"{'one' if self._per_block == 1 else self._per_block} a block"
        reported: set[str] = set()
        for path, value in _reachable(system.roots()):
            if isinstance(value, str) and value in names:
                # An entry stands for its container.
                place = path.rpartition("[")[0] if path.endswith("]") else path
                if place not in reported:
                    reported.add(place)
                    yield Difference("KV-LEAK-01", place, "no request remembered", f"request {names[value]}")
            elif isinstance(value, (list, dict, set, deque)) and len(value) > entries_max:
                # A map of content may also have boundaries inside blocks, though no hit ends there (finding 012).
                is_map = self._per_block == 1 and isinstance(value, dict)
                if is_map and len(value) <= entries_max + len(system.snapshot().begun):
                    continue
                yield Difference("KV-LEAK-02", path, f"at most {entries_max} entries, {account}", str(len(value)))


def _reachable(roots: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Every object reachable from ``roots``, with a path to it, breadth first; each object once, strings each time."""
    queue: deque[tuple[str, object]] = deque(roots.items())
    seen: set[int] = set()
    while queue and len(seen) < _OBJECTS_MAX:
        path, value = queue.popleft()
        if isinstance(value, str):
            yield path, value
            continue
        if isinstance(value, _OPAQUE) or value is None or id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        queue.extend(_inside(path, value))


def _inside(path: str, value: object) -> Iterator[tuple[str, object]]:
    if type(value).__module__.partition(".")[0] in ("torch", "numpy"):
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}[{key!r}]", key
            yield f"{path}[{key!r}]", item
    elif isinstance(value, (list, tuple, deque, Set)):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for name, item in attributes.items():
            yield f"{path}.{name}", item
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            # A private name is kept under the name of its class.
            private = name.startswith("__") and not name.endswith("__")
            found = f"_{kind.__name__.lstrip('_')}{name}" if private else name
            if hasattr(value, found):
                yield f"{path}.{name}", getattr(value, found)
