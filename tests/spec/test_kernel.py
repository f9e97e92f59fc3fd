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

from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.drive import drive
from kvgate.explore.invariants import Checks, no_invariants, nothing_in_flight
from kvgate.explore.tiny_models import MODELS
from kvgate.explore.walk import walk
from kvgate.kernel.models import load
from kvreference.block_pool import NULL
from kvreference.manager import Manager
from kvspec.executed import ROOT, stored
from kvspec.kernel import KERNEL, recorded, writers, written
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


@pytest.mark.parametrize(
    "line",
    [
        "self.tables[1] = []",
        "self.holdings.tables.pop(1)",
        "del self.pool.references[:]",
        "self.pool.references[block] += 1",
        "self.pool.take(1)",
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
        world = AheadWorld("tiny-ahead-loads", ahead.shallow, Manager, no_checks)  # type: ignore[attr-defined]
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


def test_nothing_else_remembers_a_request() -> None:
    """Of all that the parts of a manager hold, three say of which requests: those that the end of one is proved to
    empty. Copies and what is freed late name blocks, and go with the steps; the others name contents.
    """
    of_requests = {"Manager.prefixes", "Holdings.tables", "Population.alive"}
    others = {"Manager._events", "Holdings.copies", "Holdings.deferred", "PrefixCache.fenced", "Prefixes._children"}
    found = set()
    for name in ("manager", "holdings", "population", "ahead", "prefix_cache", "content"):
        tree = ast.parse((ROOT / f"{name}.py").read_text(encoding="utf-8"))
        for kind in (each for each in tree.body if isinstance(each, ast.ClassDef)):
            for each in ast.walk(kind):
                target = each.target if isinstance(each, ast.AnnAssign) else None
                if isinstance(target, ast.Attribute) and isinstance(each.annotation, ast.Subscript):  # type: ignore[attr-defined]
                    found.add(f"{kind.name}.{target.attr}")
    assert of_requests | others == found
