"""The simulation: each operation consists of proved transitions, and of nothing else.

An operation changes blocks by the functions of the kernel, and what its request counts by the population. Which
functions of the kernel it can reach is read from the source (``reached``): a call of ``self``, or of a part of the
manager by its name, leads to the methods of its classes, any other one to all functions of that name. Branches for
operations of another kind are left out. An operation that it makes may be performed, too. What each function does is in
``EFFECTS``, and ``kvspec.kernel`` names the proofs that it does just that. Why each transition may happen at this call,
its guard, is in ``SIMULATION``. Tests compare both with the source, with the traces of the proofs, and with what is
called while the reference runs.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import frozen

from kvreference import operations
from kvreference.manager import _PERFORM
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Continue,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.operations import Reset as ResetOperation
from kvspec.functions import ROOT, defined
from kvspec.kernel import CHANGES, KERNEL
from kvspec.pool.state import Transition
from kvspec.pool.transitions import (
    Aim,
    Begin,
    Compute,
    Demote,
    Drop,
    Fill,
    Filled,
    Forget,
    Hold,
    Move,
    Pin,
    Provide,
    Read,
    ReadDone,
    Register,
    Reset,
    Take,
    TakeBack,
)

Kind: TypeAlias = "type[Operation] | type[None]"
"""The kind of an operation; that of None stands for the end of a step in flight."""

# What the source says

_REGISTER = "block_pool:BlockPool.register"
_MAKES_ROOM = "pinned_tier:PinnedPool.make_room"
ENTRIES = frozenset(name for name in KERNEL if name.rpartition(".")[2] not in CHANGES) | {_REGISTER}
"""What of the kernel others call: what changes a pool, a queue or a map by itself is called by the kernel alone, which
``kernel.writers`` finds."""
PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "holdings": ("Holdings",),
        "pool": ("BlockPool", "PinnedPool"),
        "cache": ("NoPrefixCache", "PrefixCache"),
        "population": ("Population", "PopulationAhead"),
    }
)
"""The classes of the parts of a manager, by the names that they have everywhere."""
_LEFT_OUT = frozenset({"second_tier", "refuted", "scheduler"})
"""What no manager calls: it calls managers, or is not the reference."""
_KINDS: Mapping[str, type] = MappingProxyType(
    {name: each for name, each in vars(operations).items() if isinstance(each, type)}
)


@frozen
class _Source:
    """The source of the reference."""

    functions: Mapping[str, ast.FunctionDef]
    """By ``module:name``."""
    by_name: Mapping[str, Sequence[str]]
    """By their last names."""
    relatives: Mapping[str, Sequence[str]]
    """Per class, itself, those above it and those below."""


@cache
def _source() -> _Source:
    functions: dict[str, ast.FunctionDef] = {}
    bases: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.partition(".")[0] in _LEFT_OUT:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions |= {f"{module}:{name}": node for name, node in defined(tree)}
        classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
        bases |= {each.name: [ast.unparse(base) for base in each.bases] for each in classes}
    by_name: dict[str, list[str]] = {}
    for name in functions:
        by_name.setdefault(_last(name), []).append(name)
    relatives = {
        name: tuple({name, *above} | {other for other, its in bases.items() if name in its})
        for name, above in bases.items()
    }
    return _Source(functions, by_name, relatives)


def _last(name: str) -> str:
    return re.split("[:.]", name)[-1]


def _class_of(name: str) -> str:
    """The class of a method; empty if it is a function."""
    return name.partition(":")[2].rpartition(".")[0]


class _Only(ast.NodeTransformer):
    """Leaves out branches that are not taken in an operation of one ``kind``."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def visit_If(self, node: ast.If) -> Any:
        is_so = self._is_so(node.test)
        self.generic_visit(node)
        return node if is_so is None else node.body if is_so else node.orelse

    def _is_so(self, test: ast.expr) -> bool | None:
        """Whether a condition is so; None if the kind does not decide it."""
        if isinstance(test, ast.BoolOp):
            decided = [self._is_so(each) for each in test.values]
            is_and = isinstance(test.op, ast.And)
            return (not is_and) if (not is_and) in decided else is_and if set(decided) == {is_and} else None
        of_kind = isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"
        if not (isinstance(test, ast.Call) and of_kind and ast.unparse(test.args[0]) == "operation"):
            return None
        named = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
        return issubclass(self.kind, tuple(_KINDS[ast.unparse(each)] for each in named))


def _called(name: str, node: ast.AST) -> Iterator[str]:
    """The functions that a function may call, or pass on, by what it names."""
    source = _source()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield from (other for other in source.by_name.get(each.id, ()) if not _class_of(other))
        elif isinstance(each, ast.Attribute):
            held = ast.unparse(each.value).rpartition(".")[2]
            classes = source.relatives.get(_class_of(name)) if held in ("self", "super()") else PARTS.get(held)
            for other in source.by_name.get(each.attr, ()):
                if classes is None or not _class_of(other) or _class_of(other) in classes:
                    yield other


def reached(
    begin: Sequence[str], kind: Kind, changed: Mapping[str, ast.FunctionDef] = MappingProxyType({})
) -> frozenset[str]:
    """What of the kernel an operation of that kind can reach from these functions, of which some may be ``changed``.

    Operators, such as ``[]``, are called by no name: all are followed.
    """
    functions = {**_source().functions, **changed}
    operators = [name for name in functions if _last(name).startswith("__")]
    todo = [(name, kind) for name in (*begin, *operators)]
    seen, found = set[tuple[str, Kind]](), set[str]()
    while todo:
        name, of = todo.pop()
        if (name, of) in seen:
            continue
        seen.add((name, of))
        if name in KERNEL:
            found.add(name)
        elif name in functions:
            node = _Only(of).visit(copy.deepcopy(functions[name]))
            todo += [(other, of) for other in _called(name, node)]
            todo += [(other, another) for another in _made(node) for other in begins_with(another)]
    return frozenset(found & ENTRIES)


def _made(node: ast.AST) -> Iterator[type[Operation]]:
    """The kinds of operations that a function makes: it may perform them."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and _KINDS.get(each.func.id) in _PERFORM:
            yield _KINDS[each.func.id]


RETURNED = "manager:Manager.returned"
"""The end of a step in flight."""


def begins_with(kind: Kind) -> tuple[str, ...]:
    """The functions that perform an operation of this kind."""
    if kind is type(None):
        return (RETURNED,)
    return ("manager:Manager.perform", f"manager:{_PERFORM[kind].__qualname__}")


# What each function of the kernel does, and why it may

_ENDS: tuple[type[Transition], ...] = (Pin, Drop)
EFFECTS: Mapping[str, tuple[type[Transition], ...]] = MappingProxyType(
    {
        "holdings:Holdings._begin": (),
        "holdings:Holdings._hold": (Hold,),
        "holdings:Holdings._grow": (Take, Move),
        "holdings:Holdings._leave": _ENDS,
        "holdings:Holdings.release_all": _ENDS,
        "holdings:Holdings.free": _ENDS,
        "holdings:Holdings.defer": (Pin, Move),
        "holdings:Holdings._release_first": (Drop,),
        "holdings:Holdings._read": (Read,),
        "holdings:Holdings._aim": (Aim,),
        "holdings:Holdings.dispatch": (ReadDone,),
        _REGISTER: (Register,),
        "block_pool:BlockPool.register_beginning": (Begin,),
        "block_pool:BlockPool.reset": (Reset,),
        "pinned_tier:PinnedPool.reset": (Reset,),
        "block_pool:BlockPool.evict": (Forget,),
        _MAKES_ROOM: (Demote,),
    }
)
"""What of the kernel others call, and the transitions that it makes, each any number of times.

A move changes no holder: a table, or the list of what waits for steps, names the block at another place.
"""


def proofs_of_effect(name: str) -> tuple[str, ...]:
    """The proofs that a function of the kernel makes these transitions; to make room is to demote, one by one."""
    demotes = EFFECTS[name] == (Demote,)
    return (*KERNEL[name], *(KERNEL["pinned_tier:PinnedPool._unpin"] if demotes else ()))


Proofs: TypeAlias = tuple[str, ...]
"""The ids of obligations."""
_NONE: Mapping[Any, Proofs] = MappingProxyType({})


@frozen
class Row:
    """What an operation of one kind consists of."""

    whole: Proofs = ()
    """The proofs that perform it as a whole, and show that it makes these calls only; none: that is tested."""
    calls: Mapping[str, Proofs] = _NONE
    """Per function of the kernel that it calls, what shows besides ``whole`` that its transitions may happen then."""
    counts: Mapping[type[Transition], Proofs] = _NONE
    """What the request counts, or another node writes, with the same."""
    never: frozenset[str] = frozenset()
    """What it reaches by the source, and by which it changes nothing: it is not called, or there is nothing to do."""
    left: str = ""
    """What of the guards is left to tests."""

    @property
    def transitions(self) -> frozenset[type[Transition]]:
        """All that may happen in it."""
        return frozenset(self.counts) | {each for name in self.calls for each in EFFECTS[name]}


_CHAPTER = "blocks-and-references.running"
_RELEASES, _OTHERS = (f"{_CHAPTER}-releases-as-a-whole",), (f"{_CHAPTER}-others-as-a-whole",)
_ANSWERED = ("eagle.running-answer-as-a-whole",)
_LEFT_ALONE, _LOADED = (f"external-tokens.running-load-{each}" for each in ("is-left-alone", "in-a-slot"))
_WAITS, _SKIPS = f"{_CHAPTER}-wait-for-steps", f"{_CHAPTER}-next-step"
_UNSURE = "attention-kinds.running-window-waits-for-what-is-unsure"
_FREES: Mapping[str, Proofs] = MappingProxyType(
    {
        "holdings:Holdings.release_all": (_LEFT_ALONE, f"{_CHAPTER}-end-of-a-request"),
        "holdings:Holdings.defer": (_LEFT_ALONE, _WAITS),
    }
)
_SLIDES: Mapping[str, Proofs] = MappingProxyType({"holdings:Holdings._leave": (_SKIPS, _UNSURE)})
_CACHES: Mapping[str, Proofs] = MappingProxyType(
    {
        _REGISTER: tuple(f"content-and-cached-map.running-{each}" for each in ("caching", "offers-once", "register")),
        "block_pool:BlockPool.register_beginning": ("partial-hits.an-entry-once", "partial-hits.running-begin"),
    }
)
_OUT_OF_TURN = "where another node writes out of turn (KV-MEM-04)"
_IN_FLIGHT = f"{_OUT_OF_TURN}: that the blocks which steps in flight use are those of requests that record it"
_FOUND = ("hit-lookup.running-hit-names-what-is-listed", "content-and-cached-map.running-find")
_ROOM = ("blocks-and-references.running-allocation",)
_GROWS: Mapping[str, Proofs] = MappingProxyType(dict.fromkeys(("holdings:Holdings._grow", _MAKES_ROOM), _ROOM))
_HITS: Mapping[str, Proofs] = MappingProxyType(
    {
        "holdings:Holdings._begin": _ROOM,
        "holdings:Holdings._hold": _FOUND,
        "holdings:Holdings._read": _FOUND,
        "holdings:Holdings._aim": _ROOM,
    }
)
_COMPUTES = (
    "content-and-cached-map.running-registers-what-is-scheduled",
    "content-and-cached-map.running-steps-ahead-count-alike",
)
_RESETS = ("block_pool:BlockPool.reset", "pinned_tier:PinnedPool.reset")

_TABLE: dict[Kind, Row] = {
    Admit: Row(
        (
            "content-and-cached-map.running-admission-as-a-whole",
            "partial-hits.running-admission-as-a-whole",
            "content-and-cached-map.running-return-as-a-whole",
            "attention-kinds.running-admission-of-states-as-a-whole",
            "attention-kinds.running-return-of-states-as-a-whole",
        ),
        {**_HITS, **_GROWS, **_SLIDES, **_CACHES},
        {Fill: _ROOM, Compute: _COMPUTES},
    ),
    Schedule: Row(
        (
            "content-and-cached-map.running-step-as-a-whole",
            "attention-kinds.running-step-of-states-as-a-whole",
        ),
        {**_GROWS, **_SLIDES, **_CACHES},
        {Compute: _COMPUTES},
        never=frozenset(_HITS),
    ),
    Sample: Row(
        _ANSWERED,
        _CACHES,
        dict.fromkeys(
            (TakeBack, Compute),
            (
                "eagle.running-answer-in-a-slot",
                "eagle.running-answer-takes-back-what-failed",
                "eagle.running-late-answer-takes-back-what-failed",
            ),
        ),
    ),
    Preempt: Row(_RELEASES, _FREES, left=_IN_FLIGHT),
    Rewind: Row(
        ("external-tokens.running-goes-back",),
        {"block_pool:BlockPool.evict": ("external-tokens.running-rewind",), **_FREES},
        {TakeBack: (_LOADED, "external-tokens.running-asks-what-was-released")},
        left=_IN_FLIGHT,
    ),
    Finish: Row(_RELEASES, {**_FREES, **_SLIDES}, left=_IN_FLIGHT),
    Abort: Row(_RELEASES, _FREES, never=frozenset(_SLIDES), left=_IN_FLIGHT),
    Transferred: Row(
        _RELEASES,
        {**_FREES, **_CACHES},
        dict.fromkeys((Provide, Filled, TakeBack), (_LOADED, _LEFT_ALONE, "external-tokens.running-arrival-is-cached")),
        left=f"{_IN_FLIGHT}; that another node has written what it reports, after the steps in flight",
    ),
    ReleaseSkipped: Row(_RELEASES, _SLIDES, left=_IN_FLIGHT),
    type(None): Row(_RELEASES, {"holdings:Holdings._release_first": (_WAITS,)}, left=_IN_FLIGHT),
    Dispatch: Row(
        _OTHERS,
        {"holdings:Holdings.dispatch": ("partial-hits.running-dispatch", "partial-hits.running-aim")},
        left=f"{_OUT_OF_TURN}: that no step in flight still uses a source that is freed then",
    ),
    Evict: Row(_OTHERS, {"block_pool:BlockPool.evict": ("content-and-cached-map.running-evict",)}),
    ResetOperation: Row(_OTHERS, dict.fromkeys(_RESETS, ("content-and-cached-map.running-reset",))),
    **{each: Row(_OTHERS) for each in (Arrive, LookUp, Pause, Continue, CommonPrefix, TakeEvents, TakeStatistics)},
}
SIMULATION: Mapping[Kind, Row] = MappingProxyType(_TABLE)
"""What an operation consists of, by its kind; and what the end of a step in flight does.

In each, steps in flight may come to use a block, or use it no longer, and write what they owe: a worker does that.
"""
