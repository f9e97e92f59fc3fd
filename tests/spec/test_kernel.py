"""The kernel: what alone writes who holds a block, where it waits and what it holds.

Goal: what is proved of each function of the kernel is so of every operation, since nothing else writes. Method: find
the writers in the source, and see them while the reference runs; break both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from attrs import fields

from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.drive import drive
from kvgate.explore.invariants import Checks, no_invariants, nothing_in_flight
from kvgate.explore.tiny_models import MODELS
from kvgate.explore.walk import walk
from kvgate.kernel.models import load
from kvreference.block_pool import NULL
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.tables import Table
from kvspec.executed import stored
from kvspec.functions import ROOT
from kvspec.kernel import FIELDS, KERNEL, recorded, writers, written
from kvspec.obligation import Tier
from kvspec.registry import obligations

DRIVEN = ("compressed+partial", "mixed-blocks+scratch", "gemma-hybrid+pinned=2", "mamba-align+eagle+transfers")
OPERATIONS = 400
ASKS_NO_OTHER = frozenset({"references", "is_pinned", "tables", "copies", "deferred", "blocks", "_order", "_contents"})
"""The fields that are lists and dictionaries: what writes them does it by itself."""


def test_only_the_kernel_writes() -> None:
    """By the source of the reference: each function that writes is in the kernel, and each of the kernel writes."""
    assert sorted(KERNEL) == sorted(writers())


@pytest.mark.parametrize("name", KERNEL)
def test_each_is_proved_to_keep_the_invariants(name: str) -> None:
    """By the trace of each obligation that is named: it is for all sizes, and executes the function."""
    known = obligations()
    assert KERNEL[name]
    for each in KERNEL[name]:
        assert Tier.ALL is known[each].tier
        assert name in stored()[each]


@pytest.mark.parametrize("kind", [each for each in FIELDS if each is not Table], ids=lambda kind: kind.__name__)
def test_each_part_is_proved_to_begin_with_the_invariants(kind: type) -> None:
    """By the trace of the proof of the beginning: it makes each part that has such a field; tables are made later."""
    maker = f"{kind.__module__.removeprefix('kvreference.')}:{kind.__name__}.__init__"
    assert maker in stored()["blocks-and-references.running-beginning"]


@pytest.mark.parametrize(
    "line",
    [
        "self.tables[1] = []",
        "self.holdings.tables.pop(1)",
        "del self.pool.references[:]",
        "self.pool.references[block] += 1",
        "self.pool.take(1)",
        "self.pool.give_up(blocks)",
        "self.pool._pin([block])",
        "self.pool.cached.register(content, block)",
        "self.pool.free.append(block)",
        "self.pool = pool",
        "setattr(self.pool, name, [])",
        "tables = self.tables[1]; tables.append(table)",
        "tables = self.tables.get(1) or []; tables.clear()",
        "(copies := self.copies).clear()",
        "for table in self.tables[1]: table.blocks.append(1)",
        "blocks = self.tables[1][0].blocks; blocks[0] = 2",
        "blocks = self.tables[1][0].blocks; blocks += [2]",
        "for blocks in self.deferred: blocks.append(2)",
        "given.append(2)",
        "for its, number in zip(self.deferred, numbers): its.append(number)",
        "for number, (its, _) in enumerate(zip(self.deferred, numbers)): its.append(number)",
        "for index, table in enumerate(given): table.append(index)",
        "for number, tables in self.tables.items(): tables.append(number)",
        "copies, others = self.copies, []; copies.clear()",
        "(copies, *others) = self.copies, []; copies.clear()",
        "[its.append(1) for _, its in enumerate(self.deferred)]",
        "for block in reversed(self.deferred): block.append(1)",
        "list(map(self.pool.release, blocks))",
        "any(map(self.copies.append, blocks))",
        "release = self.pool.release; release(block)",
        "append = self.copies.append; append(block)",
        "list.append(self.copies, block)",
        "list.extend(given, blocks)",
        "any(map(list.append, self.deferred, blocks))",
        "BlockPool.release(self.pool, block)",
        "getattr(self.pool, 'release')(block)",
        "first = second; second = self.copies; first.append(block)",
    ],
)
def test_a_writer_is_found(line: str) -> None:
    """A field is written by itself, by an element, by another name, or by a parameter of its type."""
    (function,) = ast.parse(f"def f(self, given: Tables, block: int):\n    {line}").body
    assert isinstance(function, ast.FunctionDef)
    assert written(function)


@pytest.mark.parametrize(
    "line",
    [
        "blocks = []; blocks.append(1)",
        "blocks = list(self.pool.free); blocks.append(1)",
        "table.registered = 1",
        "self.pool.register(content, block)",
        "self.pool.evict(block)",
        "self.pool.make_room(1, ())",
        "tables, new = self.tables, []; new.append(block)",
        "for index, table in enumerate(self.deferred): index += 1",
        "for number, tables in self.tables.items(): number += 1",
        "list.append(new, block)",
        "list(map(new.append, self.copies))",
    ],
)
def test_what_reads_or_asks_is_none(line: str) -> None:
    """A new list is nobody's, a mark of a table is no block, and what is in the kernel may be asked by all."""
    (function,) = ast.parse(f"def f(self, block: int):\n    {line}").body
    assert isinstance(function, ast.FunctionDef)
    assert set() == written(function)


def _run(operations: int = OPERATIONS) -> set[str]:
    """Who writes while the reference is driven over all mechanisms, and with steps in flight."""
    with recorded() as found:
        for name in DRIVEN:
            assert not drive([load(name)], operations).found
        ahead = MODELS["tiny-ahead-loads"]
        no_checks = Checks(no_invariants, watches_memory=False, of_flight=nothing_in_flight, of_steps=())
        world = AheadWorld("tiny-ahead-loads", ahead.shallow, Manager, no_checks)  # type: ignore[attr-defined]  # of a world of steps ahead
        walk([world], operations)
    return found


@pytest.mark.ci
def test_while_it_runs_only_the_kernel_writes() -> None:
    """What is seen to write is in the kernel; of the kernel all is seen but what writes by asking others of it."""
    seen = _run()
    assert set() == seen - set(KERNEL)
    assert {name for name, fields in writers().items() if fields & ASKS_NO_OTHER} <= seen


def _writes(change: Callable[[Manager], None]) -> set[str]:
    original = Manager._leave

    def broken(self: Manager, request: Any) -> None:
        change(self)
        original(self, request)

    with patch.object(Manager, "_leave", broken):
        return _run(100) - set(KERNEL)


def _writes_an_element(manager: Manager) -> None:
    manager.pool.references[NULL] = 0


def _writes_a_field(manager: Manager) -> None:
    manager.holdings.copies = manager.holdings.copies


def _writes_by_another_name(manager: Manager) -> None:
    deferred = manager.holdings.deferred
    deferred.extend(())


@pytest.mark.ci
@pytest.mark.parametrize("change", [_writes_an_element, _writes_a_field, _writes_by_another_name])
def test_another_writer_is_seen(change: Callable[[Manager], None]) -> None:
    """A manager that writes an element, a field, or a list by another name: each is seen, and nothing else is."""
    assert [change.__name__] == [name.rpartition(":")[2] for name in _writes(change)]


MODULES = (
    *("manager", "holdings", "population", "ahead", "prefix_cache", "content"),
    *("block_pool", "pinned_tier", "free_queue", "cached_map", "partial_map"),
)
"""Those of a manager and its parts."""
OF_REQUESTS = {"Manager.prefixes", "Holdings.tables", "Population.alive"}
"""These say of which request they are: the end of a request is proved to empty them."""
OF_STEPS = {"Manager._events", "Holdings.copies", "Holdings.deferred"}
"""These name blocks or contents until the next step, or until they are taken."""
OF_CONTENTS = {"PrefixCache.fenced", "Prefixes._children", "Prefix.parent", "Prefix.piece", "Prefix.tokens"}
OF_BLOCKS = {
    *("BlockPool.cached", "BlockPool.free", "BlockPool.partial", "BlockPool.references", "PinnedPool.is_pinned"),
    *("PinnedPool.pinned", "FreeQueue._order", "CachedMap._blocks", "CachedMap._content"),
    *("PartialMap._blocks", "PartialMap._contents", "PartialMap.offers"),
}
PARTS = {f"Manager.{name}" for name in ("population", "holdings", "cache", "_interned")} | {"Holdings.pool"}
COUNTS = {
    *("Manager.performed", "Manager.statistics", "NoPrefixCache.statistics", "PrefixCache.statistics"),
    *("Population.arrived", "Population.dispatched", "Population.over", "PopulationAhead.dispatched"),
}
OF_SETTINGS = {
    *("Manager.settings", "Manager.choices", "Manager.geometry", "Holdings.settings", "Holdings.groups"),
    *("Holdings.rules", "Population.settings", "Population.rules", "NoPrefixCache.geometry", "NoPrefixCache.rules"),
    *("PrefixCache.retention", "PrefixCache.junction_of", "PrefixCache.partial_hit_tokens_min"),
    *("Prefixes._rules", "Prefixes.grain_tokens", "Prefixes.ahead_tokens"),
    *("BlockPool.rules", "PinnedPool.drop_blocks_min"),
}
CONSTANTS = {
    *("manager.OWN", "manager._PERFORM", "population._ELIGIBLE", "ahead.EXPECTED", "prefix_cache.JunctionOf"),
    *("content.UNTAGGED", "block_pool.NULL", "cached_map.Content", "Prefix.__slots__"),
}


def _by_name(node: ast.AST) -> bool:
    """Whether it may write an attribute or a global by its name."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("__dict__", "__setattr__")
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "vars", "globals")


def _kept(module: str, source: str) -> set[str]:
    """Where a module keeps what outlasts a call: by the class or module that writes it.

    Fields of a request and of its tables are left out: they go with it, and these have no other attributes.
    """
    of_one_request = {each.name for kind in (Request, Table) for each in fields(kind)}
    found = set[str]()
    for top in ast.parse(source).body:
        held: list[ast.stmt] = [top]
        owner = module
        if isinstance(top, ast.ClassDef):
            owner = top.name
            # The fields of an ``attrs`` class and the members of an enumeration are no attributes that it shares.
            declares = top.decorator_list or any(ast.unparse(each) == "Enum" for each in top.bases)
            held = [] if declares else top.body
        for each in held:
            if isinstance(each, (ast.Assign, ast.AnnAssign)):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                found |= {f"{owner}.{ast.unparse(target)}" for target in targets}
        for node in ast.walk(top):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                is_own = ast.unparse(node.value) in ("self", "other")
                found |= {f"{owner}.{node.attr}"} if is_own or node.attr not in of_one_request else set()
            elif isinstance(node, ast.FunctionDef):
                by = {ast.unparse(each) for each in node.decorator_list}
                found |= {f"{owner}: @{name}" for name in by if "cache" in name}
            elif isinstance(node, (ast.Global, ast.Nonlocal)) or _by_name(node):
                found.add(f"{owner}: {ast.unparse(node)}")
    return found


def test_nothing_else_remembers_a_request() -> None:
    """Of all that the parts of a manager keep, three say of which requests it is; the rest is known by name."""
    found = set[str]()
    for name in MODULES:
        found |= _kept(name, (ROOT / f"{name}.py").read_text(encoding="utf-8"))
    assert OF_REQUESTS | OF_STEPS | OF_CONTENTS | OF_BLOCKS | PARTS | COUNTS | OF_SETTINGS | CONSTANTS == found


@pytest.mark.parametrize(
    "line",
    [
        "self._latest: Request | None = None",
        "self._seen = set[int]()",
        "self._seen, before = set[int](), 0",
        "self._count += 1",
        "self.holdings.latest = request",
        "perform.seen = []",
        "for self._latest in requests: pass",
        "setattr(self, '_seen', [])",
        "self.__dict__['_seen'] = []",
        "vars(self)['_seen'] = []",
        "object.__setattr__(self, '_seen', [])",
        "global seen",
    ],
)
def test_what_is_kept_is_found(line: str) -> None:
    """An attribute of any object, however it is written."""
    assert _kept("manager", f"class Manager:\n    def perform(self, request):\n        {line}")


@pytest.mark.parametrize(
    "source",
    ["_seen = set[int]()", "class Manager:\n    seen: list[int] = []", "@cache\ndef asked(request):\n    pass"],
)
def test_what_outlasts_a_call_is_found(source: str) -> None:
    """A value of a module or of a class, and answers that are kept."""
    assert _kept("manager", source)
    assert set() == _kept("manager", "class Manager:\n    def perform(self, request):\n        request.tokens = []")
