"""What in the reference treats some elements otherwise than others by their number.

A proof runs a few groups, blocks or requests of any number. It is of all of them only if the code treats the others
alike. Code that does not must name an element by its number, count to more than one, or leave a loop early. ``found``
reads from the source where it does, and a test compares that with ``LISTED``, which says of each place why it does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from kvspec.functions import ROOT, defined

_ADMITS = (
    "scheduler.scheduler:Scheduler._admit_waiting: for number in [number for number in self.queues.waiting if "
    "self._is_ready(number)]"
)
_LEAVES = (ast.Break, ast.Continue, ast.Return)


LISTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "steps, answers and what they release come in order, the oldest first": (
            "ahead:PopulationAhead.drafts_of_answer: request.awaited[0]",
            "holdings:Holdings.steps_over: self.deferred[0]",
            "holdings:Holdings.steps_over: self.deferred[0][0]",
            "holdings:Holdings._release_first: self.deferred[0]",
            "holdings:Holdings._release_first: self.deferred[0][1]",
            "holdings:Holdings._release_first: self.deferred.pop(0)[1]",
        ),
        "the bound speaks of the request that began to run first, and one that runs alone preempts none": (
            "scheduler.progress:_steps_to_compute: scheduler.queues.running[:1]",
            "scheduler.scheduler:Scheduler._preempts: len(self.queues.running) > 1",
        ),
        "a step stops at the first request that gets nothing; proved of any line": (
            "scheduler.scheduler:Scheduler._schedule_running: while place < len(running) and budget > 0: continue",
            "scheduler.scheduler:Scheduler._schedule_running: while place < len(running) and budget > 0: break",
            f"{_ADMITS}: break",
            f"{_ADMITS}: break",
        ),
        "the block that was registered first serves (KV-OP-02), and the front of a queue is taken (KV-OP-05)": (
            "cached_map:CachedMap.find: blocks[0]",
            "partial_map:PartialMap.find: blocks[0]",
            "free_queue:FreeQueue.pop: self._order.popitem(last=False)[0]",
            "holdings:Holdings._grow: next(new)",
        ),
        "the null block is passed over": (
            "block_pool:BlockPool._let_go: for block in blocks: continue",
            "snapshot:_check_free_queue: for (block, references) in enumerate(snapshot.references): continue",
        ),
        "the longest hit, and the leading blocks, end where the first that is wanted stands": (
            "hit_lookup:longest_length: next((length for length in lengths if is_worthwhile(tuple((each.group for each "
            "in found)), length, partial_hit_tokens_min) and all((each.satisfies(length, tokens) for each in found))))",
            "holdings:Holdings.leading_shared: next((i for i, by_all in enumerate(held) if not by_all), "
            "len(own.blocks))",
            "second_tier:SecondTier._chunk: next(stores, None)",
        ),
        "what is not due yet ends the turn, and so do boundaries that are not reached": (
            "caching:_take_due: for position in range(table.registered, min(tokens, known) // "
            "group.block_size_tokens): return",
            "retention:Sparse.boundaries: while True: return",
        ),
        "the end of a run, of an answer, and of the prefixes so far": (
            "ahead:PopulationAhead._answer: request.tokens[-1]",
            "caching:_runs: run[-1]",
            "caching:_stored: run[0]",
            "caching:_stored: run[-1]",
            "caching:register: contents[-1]",
            "content:Prefixes.extend: known[-1]",
        ),
        "the tables of all others": ("holdings:Holdings.leading_shared: *tables",),
        "the elements of a container are of one kind: all states, all lists, or all constants": (
            "state:independent: next(iter(part.values()), None)",
            "state:independent: part[0]",
        ),
        "settings and geometries that are rejected: a pool needs a block besides the null block, a window two tokens": (
            "geometry:Group._window_fits_kind: 2",
            *("geometry:Group._states_fit_kind: 2",) * 4,
            "geometry:Geometry._ends_together: len({group.block_size_tokens for group in groups if "
            "group.attention.stops_at_block_ends}) > 1",
            "settings:Settings._has_a_block: 2",
        ),
        "all groups that stop at block ends have one size, which is checked": (
            "geometry:Geometry.state_block_tokens: next(stops, None)",
        ),
        "two states: the last one, and the one that is computed": ("mamba:AlignedMamba.blocks_held_at_most: 2",),
        "sizes that models, kernels and engines have, and defaults": (
            *(f"compressed:: {size}" for size in (2, 4, 4, 8, 8, 8, 16, 32, 32, 64, 128, 128, 128, 128)),
            *(f"compressed:dsv4_flash: {size}" for size in (4, 8, 64, 64, 256)),
            "retention:: 32768",
            *(f"scheduler.limits:: {size}" for size in (8, 1024)),
            *(f"settings:: {size}" for size in (2, 8, 64, 1024)),
        ),
    }
)
"""Why it does, and the places, each as often as it is there."""


def found() -> list[str]:
    """The places in the reference, each as ``module:function: text``, as often as they are there."""
    paths = sorted(ROOT.rglob("*.py"))
    return [place for path in paths for place in places(path.read_text(encoding="utf-8"), _module(path))]


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def places(source: str, module: str = "") -> list[str]:
    """The places in a piece of source."""
    tree = ast.parse(source)
    functions = {id(node): name for name, node in defined(tree)}
    return [f"{module}:{name}: {text}" for name, text in _in(tree, "", functions)]


def _in(node: ast.AST, function: str, functions: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """The places in a piece of source, with the function that they are in."""
    function = functions.get(id(node), function)
    if _is_by_number(node):
        yield function, ast.unparse(node)
    elif isinstance(node, (ast.For, ast.While)):
        yield from ((function, f"{_head(node)} {ast.unparse(each)}") for each in _leaving(node))
    for each in ast.iter_child_nodes(node):
        yield from _in(each, function, functions)


def _is_by_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value not in (0, 1)
    if isinstance(node, ast.Subscript):
        bounds = (node.slice.lower, node.slice.upper) if isinstance(node.slice, ast.Slice) else (node.slice,)
        return any(each is not None and _is_number(each) for each in bounds)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("islice", "next")
    if isinstance(node, ast.Compare):
        parts = (node.left, *node.comparators)
        return any(map(_is_length, parts)) and any(map(_is_number, parts))
    return isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Store)


def _is_number(node: ast.expr) -> bool:
    number = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(number, ast.Constant) and type(number.value) is int


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _head(loop: ast.For | ast.While) -> str:
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}:"
    return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}:"


def _leaving(loop: ast.For | ast.While) -> Iterator[ast.stmt]:
    """What leaves the loop or a turn of it, inner loops left out."""
    nodes: list[ast.AST] = list(loop.body)
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, _LEAVES):
            yield node
        elif not isinstance(node, (ast.For, ast.While, ast.FunctionDef)):
            nodes = [*ast.iter_child_nodes(node), *nodes]
