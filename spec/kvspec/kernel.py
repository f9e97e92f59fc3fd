"""The kernel of the reference: the functions that alone write who holds a block, where it waits and what it holds.

Each is proved to keep the invariants of holders, queues and maps, or to raise and change nothing, whatever asks for it.
So every operation keeps them, of any number of groups and requests: it is made of these. ``writers`` finds what writes
by the source, ``recorded`` while the reference runs. A test compares both with ``KERNEL``.
"""

from __future__ import annotations

import ast
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import CodeType, MappingProxyType
from typing import Any
from unittest.mock import patch

from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap
from kvreference.free_queue import FreeQueue
from kvreference.holdings import Holdings
from kvreference.partial_map import PartialMap
from kvreference.pinned_tier import PinnedPool
from kvreference.tables import Table
from kvspec.functions import ROOT, defined, function_of

_CHAPTER = "blocks-and-references.running"
_OF_HOLDINGS = {
    "_begin": (f"{_CHAPTER}-hold",),
    "_hold": (f"{_CHAPTER}-hold",),
    "_grow": (f"{_CHAPTER}-grow",),
    "_leave": (f"{_CHAPTER}-leave",),
    "release_all": (f"{_CHAPTER}-end-of-a-request",),
    "free": (f"{_CHAPTER}-end-of-a-request",),
    "defer": (f"{_CHAPTER}-wait-for-steps",),
    "_release_first": (f"{_CHAPTER}-wait-for-steps",),
    "_read": ("partial-hits.running-touch-of-a-source",),
    "_aim": ("partial-hits.running-aim",),
    "dispatch": ("partial-hits.running-dispatch",),
}
_OF_POOL = {
    "register": ("content-and-cached-map.running-register",),
    "register_beginning": ("partial-hits.running-begin",),
    "reset": ("content-and-cached-map.running-reset",),
    "evict": ("content-and-cached-map.running-evict",),
    # What the others call.
    "take": (f"{_CHAPTER}-grow",),
    "touch": (f"{_CHAPTER}-hold", "partial-hits.running-touch-of-a-source"),
    "_unqueue": (f"{_CHAPTER}-hold",),
    "_let_go": (f"{_CHAPTER}-release-lets-go",),
    "_queue": (f"{_CHAPTER}-release-queues",),
    "release_last": (f"{_CHAPTER}-leave",),
    "release": (f"{_CHAPTER}-wait-for-steps", "partial-hits.running-dispatch"),
    "slide": (f"{_CHAPTER}-leave",),
    "end": (f"{_CHAPTER}-end-of-a-request",),
    "_lose": ("content-and-cached-map.running-evict", f"{_CHAPTER}-grow"),
    "_forget": ("content-and-cached-map.running-evict",),
}
_OF_TIER = {
    "slide": (f"{_CHAPTER}-leave",),
    "_pin": ("pinned-tier.running-pin",),
    "_unpin": ("pinned-tier.running-demotion",),
    "_unqueue": (f"{_CHAPTER}-hold",),
    "_queue": (f"{_CHAPTER}-release-queues",),
    "_forget": ("content-and-cached-map.running-evict",),
    "give_up": ("pinned-tier.running-end-pins", f"{_CHAPTER}-wait-for-steps"),
    "make_room": ("pinned-tier.makes-room-if-possible",),
    "reset": ("content-and-cached-map.running-reset",),
}
_OF_QUEUE = {
    "put": (f"{_CHAPTER}-release-queues",),
    "append": (f"{_CHAPTER}-release-queues",),
    "prepend": (f"{_CHAPTER}-release-queues",),
    "pop": (f"{_CHAPTER}-grow",),
    "remove": (f"{_CHAPTER}-hold",),
}
_OF_OTHERS = {
    "free_queue:ScratchFirstQueue.put": (f"{_CHAPTER}-release-queues",),
    "free_queue:ScratchFirstQueue.turned_scratch": ("content-and-cached-map.running-evict",),
    "cached_map:CachedMap.register": ("content-and-cached-map.running-register",),
    "cached_map:CachedMap.forget": ("content-and-cached-map.running-evict", f"{_CHAPTER}-grow"),
    "partial_map:PartialMap.register": ("partial-hits.running-begin",),
    "partial_map:PartialMap.forget": ("content-and-cached-map.running-evict", f"{_CHAPTER}-grow"),
}
KERNEL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{f"holdings:Holdings.{name}": by for name, by in _OF_HOLDINGS.items()},
        **{f"block_pool:BlockPool.{name}": by for name, by in _OF_POOL.items()},
        **{f"pinned_tier:PinnedPool.{name}": by for name, by in _OF_TIER.items()},
        **{f"free_queue:FreeQueue.{name}": by for name, by in _OF_QUEUE.items()},
        **_OF_OTHERS,
    }
)
"""What writes, as ``module:name``, and the obligations that run it and show that it keeps the invariants."""

FIELDS: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        Holdings: ("pool", "tables", "copies", "deferred"),
        Table: ("blocks",),
        BlockPool: ("references", "free", "cached", "partial"),
        PinnedPool: ("is_pinned", "pinned"),
        FreeQueue: ("_order",),
        CachedMap: ("_blocks", "_content"),
        PartialMap: ("_blocks", "_contents"),
    }
)
"""What only the kernel writes."""
_NAMES = frozenset(name for names in FIELDS.values() for name in names)
_TYPES = frozenset({*(kind.__name__ for kind in FIELDS), "ScratchFirstQueue", "Tables"})
_CHANGED_TYPES = _TYPES | {"list", "dict", "OrderedDict", "set"}
_PARTS = _TYPES - {"Holdings", "Table", "Tables"}
_COPIES = ("copy", "independent")
"""What makes copies of a state: ``kvreference.state``."""
_OF_LISTS = (
    *("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"),
    *("move_to_end", "__setitem__", "__delitem__"),
)
_OF_QUEUES_AND_MAPS = ("prepend", "put", "turned_scratch", "register", "forget")
_OF_HOLDERS = (
    *("take", "touch", "release", "release_last", "slide", "end", "_unqueue", "_let_go", "_queue", "_lose", "_forget"),
    *("give_up", "_pin", "_unpin"),
)
CHANGES = frozenset((*_OF_LISTS, *_OF_QUEUES_AND_MAPS, *_OF_HOLDERS))
"""The methods that change what they are called of."""
_GIVE_ELEMENTS = frozenset({"get", "values", "items"})
_BY_NAME = frozenset({"setattr", "delattr", "getattr"})
_OTHERS = frozenset({"second_tier"})
"""A second tier has pools of its own."""


def writers() -> Mapping[str, set[str]]:
    """By the source: the functions that write a field or call of it what changes it, also by another name.

    Makers and copies do not count: what they write belongs to something new.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.partition(".")[0] in _OTHERS:
            continue
        for name, node in defined(ast.parse(path.read_text(encoding="utf-8"))):
            owner = name.rpartition(".")[0]
            fields = set[str]() if node.name in ("__init__", *_COPIES) else written(node, owner in _PARTS)
            if fields:
                found[f"{module}:{name}"] = fields
    return found


def written(node: ast.FunctionDef, of_a_part: bool = False) -> set[str]:
    """The fields that a function writes; of a pool, a queue or a map, also what it calls of itself to do so."""
    aliases = _aliases(node)
    found = set()
    for each in ast.walk(node):
        changed: list[ast.expr] = []
        if isinstance(each, (ast.Attribute, ast.Subscript)) and not isinstance(each.ctx, ast.Load):
            changed = [each]
        elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            # In place, of a list.
            changed = [each.target]
        elif isinstance(each, ast.Attribute) and each.attr in CHANGES:
            # It is called, or will be: by another name, or by ``map``.
            if of_a_part and _is_self(each.value):
                found.add(each.attr)
            elif each.attr != "register" or _field(each.value, aliases) != "pool":
                # What registers in a pool is in the kernel by itself.
                changed = [each.value]
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in _BY_NAME:
            changed = each.args[:1]
        if isinstance(each, ast.Call) and any(_is_of_a_type(part) for part in (each.func, *each.args)):
            changed = [*changed, *each.args]
        found |= {field for one in changed if (field := _field(one, aliases))}
    return found


def _is_of_a_type(node: ast.expr) -> bool:
    """Whether it is a method that changes its first argument, such as ``list.append``."""
    of_a_type = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _CHANGED_TYPES
    return of_a_type and isinstance(node, ast.Attribute) and node.attr in CHANGES


def _is_self(node: ast.expr) -> bool:
    """Whether it is the object itself, or the same as one of the class above."""
    above = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return above or (isinstance(node, ast.Name) and node.id == "self")


def _field(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """The field that an expression is, or is an element of; empty if it is none."""
    while isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr)):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in _NAMES else ""
    if isinstance(node, (ast.BoolOp, ast.IfExp)):
        parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        return next((field for part in parts if (field := _field(part, aliases))), "")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GIVE_ELEMENTS:
        return _field(node.func.value, aliases)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reversed":
        return _field(node.args[0], aliases)
    return aliases.get(node.id, "") if isinstance(node, ast.Name) else ""


def _aliases(node: ast.FunctionDef) -> Mapping[str, str]:
    """The names in a function that stand for a field, with it: parameters by their types, others by what they are."""
    known: dict[str, str] = {}
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        names = ast.walk(argument.annotation) if argument.annotation else ()
        if {each.id for each in names if isinstance(each, ast.Name)} & _TYPES:
            known[argument.arg] = argument.arg
    pairs = list(_pairs(node))
    while True:
        new = {
            target.id: field
            for target, value in pairs
            if isinstance(target, ast.Name) and target.id not in known and (field := _field(value, known))
        }
        if not new:
            return known
        known |= new


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is set in a function, with what it is set to, or to an element of."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                yield from _one_by_one(target, each.value)
        elif isinstance(each, (ast.AnnAssign, ast.NamedExpr)) and each.value is not None:
            yield each.target, each.value
        elif isinstance(each, (ast.For, ast.comprehension)):
            yield from _one_by_one(each.target, each.iter)


def _one_by_one(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """A target and its value; of a tuple, each of its targets with its own value, or all with the one they share."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    values = [value] * len(target.elts)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(values):
        values = value.elts
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "zip":
        values = value.args
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "enumerate":
        values = [ast.Constant(0), *value.args[:1]]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "items":
        values = [ast.Constant(0), value.func.value]
    for each, its in zip(target.elts, values, strict=False):
        yield from _one_by_one(each.value if isinstance(each, ast.Starred) else each, its)


# While it runs


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The functions that write a field while this lasts; makers and copies do not count.

    What stands in a field becomes a list or dictionary that notes who changes it.
    """
    found = set[str]()

    def note(code: CodeType) -> None:
        name = function_of(code)
        makes = code.co_filename == __file__ or {code.co_name, name.rpartition(".")[2]} & {"__init__", *_COPIES}
        if not makes:
            found.add(name)

    def put(self: Any, name: str, value: Any) -> None:
        if name in _NAMES:
            note(sys._getframe(1).f_code)
            kind = _WATCHED.get(type(value))
            value = value if kind is None else kind(value)
        object.__setattr__(self, name, value)

    with ExitStack() as stack:
        for kind in FIELDS:
            stack.enter_context(patch.object(kind, "__setattr__", put, create=True))
        stack.enter_context(patch.object(Watched, "note", staticmethod(note)))
        yield found


class Watched:
    """A list or dictionary that notes the function which changes it."""

    @staticmethod
    def note(code: CodeType) -> None:
        """What to do with it: nothing, unless it is recorded."""


def _watched(kind: type) -> type:
    def changing(name: str) -> Callable[..., Any]:
        change = getattr(kind, name)

        def changes(self: Any, *arguments: Any, **named: Any) -> Any:
            Watched.note(sys._getframe(1).f_code)
            return change(self, *arguments, **named)

        return changes

    names = {*CHANGES, "__iadd__", "__imul__", "__ior__"} & set(dir(kind))
    return type(f"Watched{kind.__name__}", (Watched, kind), {name: changing(name) for name in names})


_WATCHED: Mapping[type, type] = MappingProxyType({kind: _watched(kind) for kind in (list, dict, OrderedDict)})
