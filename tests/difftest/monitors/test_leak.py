"""The leak monitor.

Goal: nothing of a finished request can hide, wherever a manager keeps it. Method: a system at rest with one leftover
reachable from it; the control has something harmless in the same place.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.difference import Difference
from kvgate.levels.manager import Bench, run
from kvgate.monitors import leak
from kvgate.monitors.leak import LeakMonitor
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.block_pool import Pinned
from kvreference.geometry import Group
from kvreference.operations import Admit, Dispatch, Finish, Operation
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

from .stage import FULL, arrive, settings_of, watch

SETTINGS = settings_of(FULL, blocks=8)
GONE = "request-0"


class Hoarder(Reference):
    """The reference, whose roots reach one object more, and which may show another state."""

    def __init__(self, settings: Settings, hoard: object = None, **shown: Any) -> None:
        super().__init__(settings)
        self._hoard = hoard
        self._shown = shown

    def roots(self) -> Mapping[str, object]:
        return {**super().roots(), "hoard": self._hoard}

    def name_of(self, request: int) -> str:
        return f"request-{request}"

    def snapshot(self) -> Snapshot:
        state = super().snapshot()
        return state if self.population.alive else evolve(state, **self._shown)


def at_rest(hoard: object = None, settings: Settings = SETTINGS, **shown: Any) -> list[Difference]:
    """The remains of a request that came and went."""
    system = Hoarder(settings, hoard, **shown)
    monitor = LeakMonitor(settings)
    step = (Dispatch(),) if settings.geometry.fences else ()
    assert watch(monitor, system, arrive(0, 9), Admit(0, 64), *step, Finish(0)) is None
    return list(monitor.at_rest(system))


def test_of_a_sound_system_nothing_remains() -> None:
    """The control: cached content is not a leak."""
    assert [] == at_rest()


def test_held_blocks_remain() -> None:
    """They are counted and named."""
    expected = Difference("KV-LEAK-01", "blocks held", "none", "2: [3, 5]")
    assert [expected] == at_rest(references=[4, 0, 0, 1, 0, 7, 0, 0], free=[1, 2, 4, 6, 7])


def test_a_block_without_a_holder_is_missing() -> None:
    """Neither held nor free: it will never be used again."""
    assert [Difference("KV-LEAK-01", "free queue", "7 blocks", "6")] == at_rest(free=[1, 2, 3, 4, 5, 6])


def test_a_block_too_many_is_seen() -> None:
    """A block that is queued twice is allocated twice."""
    assert [Difference("KV-LEAK-01", "free queue", "7 blocks", "8")] == at_rest(free=[1, 2, 3, 4, 5, 6, 7, 7])


PINNING = evolve(SETTINGS, pin_drop_blocks_min=1)
"""Of nine tokens two blocks are full, and stay pinned when their request ends."""


def test_pinned_blocks_are_no_leak() -> None:
    """No request holds them, and they are not in the free queue; they are not missing either."""
    system = Hoarder(PINNING)
    assert watch(LeakMonitor(PINNING), system, arrive(0, 9), Admit(0, 64), Finish(0)) is None
    assert ((2, 1), 5) == (system.snapshot().pinned.queue, len(system.snapshot().free))
    assert [] == at_rest(settings=PINNING)


def test_a_pinned_block_that_waits_nowhere_is_missing() -> None:
    """It cannot be demoted, so it will never be used again; nor may one wait in both queues."""
    pinned = Pinned(frozenset({1, 2}), (2,))
    assert [Difference("KV-LEAK-01", "free queue", "6 blocks", "5")] == at_rest(settings=PINNING, pinned=pinned)
    free = [1, 3, 4, 5, 6, 7]
    assert [Difference("KV-LEAK-01", "free queue", "5 blocks", "6")] == at_rest(settings=PINNING, free=free)


def test_a_pin_does_not_hold_a_block() -> None:
    """A pinned block with a holder is held as any other."""
    references = [4, 1, 0, 0, 0, 0, 0, 0]
    expected = Difference("KV-LEAK-01", "blocks held", "none", "1: [1]")
    shown = {"references": references, "pinned": Pinned(frozenset({1, 2}), (2,))}
    assert [expected] == at_rest(settings=PINNING, **shown)


def test_boundaries_inside_blocks_are_accounted_for() -> None:
    """A block of eight tokens has four boundaries, its end among them; one more for each block would be a leak."""
    settings = settings_of(Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=2), blocks=8)
    system, monitor = Hoarder(settings), LeakMonitor(settings)
    operations = [each for n in range(7) for each in (arrive(n, 7, 100 * n), Admit(n, 64), Dispatch(), Finish(n))]
    assert watch(monitor, system, *operations) is None
    assert 21 == len(system.pool.partial.entries()) > settings.blocks
    assert [] == list(monitor.at_rest(system))
    assert [] == at_rest(Plain(list(range(32))), settings)
    expected = Difference("KV-LEAK-02", "hoard.value", "at most 32 entries, 4 a block", "33")
    assert [expected] == at_rest(Plain(list(range(33))), settings)


class Plain:
    """Keeps a value in an attribute."""

    def __init__(self, value: object) -> None:
        self.value = value


class Slotted:
    """Keeps a value in a slot, and has one that is empty."""

    __slots__ = ("empty", "value")

    def __init__(self, value: object) -> None:
        self.value = value


class SingleSlot:
    """Names its only slot as a string."""

    __slots__ = "value"

    def __init__(self, value: object) -> None:
        self.value = value


class Inherited(Slotted):
    """Has a slot by inheritance, and attributes of its own."""


class _Private:
    """Keeps a value in a slot with a private name."""

    __slots__ = ("__value",)

    def __init__(self, value: object) -> None:
        self.__value = value


class Subclassed(dict[str, object]):
    """A dictionary that also has attributes."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


PLACES: dict[str, tuple[object, str]] = {
    "key of a dict": ({GONE: 1}, "hoard"),
    "value of a dict": ({1: GONE}, "hoard"),
    "list": ([1, GONE], "hoard"),
    "tuple": ((1, GONE), "hoard"),
    "set": ({GONE}, "hoard"),
    "frozenset": (frozenset([GONE]), "hoard"),
    "deque": (deque([GONE]), "hoard"),
    "ordered dict": (OrderedDict({GONE: 1}), "hoard"),
    "read-only mapping": (MappingProxyType({GONE: 1}), "hoard"),
    "attribute": (Plain(GONE), "hoard.value"),
    "slot": (Slotted(GONE), "hoard.value"),
    "only slot": (SingleSlot(GONE), "hoard.value"),
    "inherited slot": (Inherited(GONE), "hoard.value"),
    "private slot": (_Private(GONE), "hoard.__value"),
    "attribute of a container": (Subclassed(GONE), "hoard.value"),
    "key made of several": ({(0, GONE): 1}, "hoard[(0, 'request-0')]"),
    "deep inside": ([{1: Plain([Slotted((GONE,))])}], "hoard[0][1].value[0].value"),
}


def without(hoard: Any) -> object:
    """The same object with another request's name in the place of the one that is gone."""
    kind: Any = type(hoard)
    if isinstance(hoard, str):
        return hoard.replace(GONE, "request-9")
    if isinstance(hoard, Mapping) and not isinstance(hoard, Subclassed):
        items = {without(key): without(value) for key, value in hoard.items()}
        return items if kind is dict else kind(items)
    if isinstance(hoard, (list, tuple, set, frozenset, deque)):
        return kind(map(without, hoard))
    if isinstance(hoard, _Private):
        # Its mangled name, which mypy does not know.
        return _Private(without(hoard._Private__value))  # type: ignore[attr-defined]
    return kind(without(hoard.value)) if hasattr(hoard, "value") else hoard


@pytest.mark.parametrize(("hoard", "place"), PLACES.values(), ids=PLACES)
def test_a_name_is_found_wherever_it_hides(hoard: object, place: str) -> None:
    """By the place that holds it."""
    assert [Difference("KV-LEAK-01", place, "no request remembered", "request 0")] == at_rest(hoard)


@pytest.mark.parametrize("hoard", [hoard for hoard, _ in PLACES.values()], ids=PLACES)
def test_another_name_in_the_same_place_is_none_of_its_business(hoard: object) -> None:
    """The control: a request that never arrived."""
    assert [] == at_rest(without(hoard))


def test_a_place_is_reported_once() -> None:
    """However many requests it remembers; two places are two leaks."""
    places = [found.subject for found in at_rest([{GONE: 1, 1: GONE}, [GONE, GONE]])]
    assert ["hoard[0]", "hoard[1]"] == places


def test_what_refers_to_itself_is_walked_once() -> None:
    """Managers and their parts know each other."""
    first, second = Plain(None), Plain(GONE)
    vars(first)["value"], vars(second)["other"] = [second], first
    assert ["hoard.value[0].value"] == [found.subject for found in at_rest(first)]


def closure() -> Any:
    """A function that knows a name."""
    name = GONE
    return lambda: name


def module() -> types.ModuleType:
    """A module that knows a name."""
    found = types.ModuleType("found")
    vars(found)["name"] = GONE
    return found


def tensor() -> object:
    """Something that calls itself a tensor and must not be walked entry by entry."""
    kind = type("Tensor", (Plain,), {"__module__": "torch.nothing"})
    return kind(GONE)


NOT_ENTERED: dict[str, object] = {
    "class": Plain,
    "function": closure(),
    "module": module(),
    "tensor": tensor(),
    "bytes": b"request-0",
    "number": 0,
    "nothing": None,
}


@pytest.mark.parametrize("hoard", NOT_ENTERED.values(), ids=NOT_ENTERED)
def test_some_things_are_not_entered(hoard: object) -> None:
    """Classes, functions, modules, tensors, plain values: they belong to no request, or have no end."""
    assert [] == at_rest(hoard)


GROWN: dict[str, Any] = {
    "list": list,
    "set": set,
    "deque": deque,
    "dict": dict.fromkeys,
    "ordered dict": OrderedDict.fromkeys,
}


@pytest.mark.parametrize("build", GROWN.values(), ids=GROWN)
def test_a_container_that_outgrew_the_blocks_is_found(build: Any) -> None:
    """Blocks are all that a system may remember: as many entries as blocks are the control."""
    expected = Difference("KV-LEAK-02", "hoard.value", "at most 8 entries, one a block", "9")
    assert [expected] == at_rest(Plain(build(range(9))))
    assert [] == at_rest(Plain(build(range(8))))


def test_a_map_of_content_may_also_have_boundaries_inside_blocks() -> None:
    """As many more as blocks in which a boundary is known; no other container may."""
    for hoard, found in ((dict.fromkeys(range(9)), False), (dict.fromkeys(range(10)), True), (list(range(9)), True)):
        system = Hoarder(SETTINGS, Plain(hoard), begun=[3])
        assert found == bool(list(LeakMonitor(SETTINGS).remembered(system)))


def test_what_cannot_grow_may_be_long() -> None:
    """A tuple is as long as it was made, a range has no entries at all."""
    assert [] == at_rest([tuple(range(9)), range(9), "a long string"])


class Endless(Mapping[int, object]):
    """Makes a new object for each reader, without end."""

    def __getitem__(self, key: int) -> object:
        return Endless()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        return iter([0])


def test_a_system_without_end_is_left_at_some_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the limit is not checked; what lies before it is."""
    monkeypatch.setattr(leak, "_OBJECTS_MAX", 1000)
    assert ["hoard"] == [found.subject for found in at_rest([GONE, Endless()])]


class KeepsALog(Hoarder):
    """Logs finished requests without bound."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, [])

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            assert isinstance(self._hoard, list)
            self._hoard.append(self.name_of(operation.request))
        return super().apply(operation)


@pytest.mark.parametrize(("system", "expected"), [(KeepsALog, ["hoard"]), (Hoarder, [])])
def test_a_run_ends_with_the_question_what_remains(system: type[Hoarder], expected: list[str]) -> None:
    """In a whole run, with nothing else to find."""
    _, divergences = run(Bench(system), SETTINGS, (arrive(0, 9), Admit(0, 64), Finish(0)))
    assert expected == [divergence.difference.subject for divergence in divergences]
    assert {"leak"} >= {divergence.detector for divergence in divergences}
