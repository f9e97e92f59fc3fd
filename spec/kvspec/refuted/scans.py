"""Refuted: four scans that look sound, each of them in some version of a production system or close to one.

z3 finds the shortest request, with the fewest blocks missing, for which the scan comes to another hit than the
reference. The block manager then runs it: the request is computed and ends, the missing blocks are evicted by their
ids, and the same prompt with one token more is looked up. The scan's answer is computed from the manager's own blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve

from kvreference.answers import Granted, Hit
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Evict, Finish, LookUp, Operation, Run
from kvreference.settings import Settings
from kvspec.hit_scan import MakeRow, Row, RowModel, as_cached, missing, present
from kvspec.obligation import Count, Obligation
from kvspec.refuted.replay import Refuted, Replay
from kvspec.symbolic import Number


@define
class DropAgain(Row):
    """A group that is asked again looks no further than the hit so far, and drops a block of it once more."""

    def served(self, hit_tokens: Number) -> Number:
        ahead = 0 if self.asked_before else self.drop_tokens
        return self.found(self.reach(hit_tokens + ahead))


@define
class DropOnce(Row):
    """A group that has found a look-ahead block is not asked for it again, even where another group shortens the hit.
    Only if a group that was not asked shortens it, all are asked again.
    """

    def served(self, hit_tokens: Number) -> Number:
        if self.asked_before:
            without = evolve(self, lookahead=False)
            found = without.found(without.reach(hit_tokens))
            if found == hit_tokens:
                return found
            for row in self.rows:
                row.asked_before = False
            hit_tokens = found
        return self.found(self.reach(hit_tokens + self.drop_tokens))


@define
class CutBeforeDrop(Row):
    """A window that ran into the first token cuts its blocks to the alignment, drops one, and cuts again."""

    def cut(self, end: int) -> int:
        if self.window_blocks is None or end >= self.window_blocks + self.lookahead:
            return super().cut(end)
        return self.aligned(self.aligned(end * self.block_tokens) - self.drop_tokens)


@define
class TakenForFull(Row):
    """A group that has served a hit is assumed to serve every shorter one, as full attention does."""

    def served(self, hit_tokens: Number) -> Number:
        return hit_tokens if self.asked_before else super().served(hit_tokens)


TOKENS = 12
"""For how many tokens there are blocks."""


def _model(geometry: Geometry, u: Any) -> RowModel:
    blocks = (TOKENS // group.block_size_tokens for group in geometry.groups)
    return RowModel(geometry, tuple(present(u, index, count) for index, count in enumerate(blocks)), u.tokens)


def _agrees(geometry: Geometry, make: MakeRow) -> Callable[[Any], Any]:
    return lambda u: _model(geometry, u).by_scan(make) == _model(geometry, u).by_reference()


def _trace(geometry: Geometry, values: Mapping[str, Any]) -> tuple[Settings, tuple[Operation, ...]]:
    """Compute all but the last token, end, evict what is missing, and ask for the hit of the whole request."""
    tokens = values["tokens"]
    settings = Settings(geometry, blocks=64, chunk_tokens=TOKENS)
    first: tuple[Operation, ...] = (Arrive(0, (Run(0, tokens - 1),)), Admit(0, tokens - 1), Finish(0))
    manager = Manager(settings)
    granted = [manager.apply(operation) for operation in first][1]
    assert isinstance(granted, Granted)
    evicted = [
        Evict(table[block])
        for index, (group, table) in enumerate(zip(geometry.groups, granted.blocks, strict=True))
        for block in range((tokens - 1) // group.block_size_tokens)
        if values[f"missing_{index}_{block}"]
    ]
    return settings, (*first, *evicted, Arrive(1, (Run(0, tokens),)), LookUp(1))


def _replay(geometry: Geometry, make: MakeRow) -> Callable[[Mapping[str, Any]], Replay]:
    def run(values: Mapping[str, Any]) -> Replay:
        settings, operations = _trace(geometry, values)
        manager = Manager(settings)
        *_, hit = (manager.apply(operation) for operation in operations)
        assert isinstance(hit, Hit)
        design = as_cached(manager, 1).found(make)
        # The reference gives the hit: chapter 05 proves it to be the longest.
        hits = f"a hit of {design} tokens", f"a hit of {hit.tokens} tokens"
        return Replay(settings, operations, hits[0], hits[1], design_fails=design != hit.tokens, sound_fails=False)

    return run


def _size(names: Sequence[str]) -> Callable[[Any], Any]:
    """A shorter request is smaller, then one with fewer blocks missing, then with earlier ones: no two are equal."""
    every = 1 << len(names)

    def size(u: Any) -> Any:
        gone = [getattr(u, name) for name in names]
        return sum((each * (every + (1 << place)) for place, each in enumerate(gone)), u.tokens * (every << 8))

    return size


def _refuted(name: str, make: MakeRow, story: str, *groups: Group) -> Refuted:
    geometry = Geometry(groups)
    gone = missing(len(groups), [TOKENS // group.block_size_tokens for group in groups])
    obligation = Obligation(
        id=f"refuted.{name}",
        statements=("KV-OP-01",),
        title="The scan comes to the hit that the reference comes to.",
        unknowns={"tokens": Count(1, TOKENS + 1), **gone},
        claim=_agrees(geometry, make),
        size=_size(list(gone)),
        witnesses={},
        mutants=(),
    )
    return Refuted(name, "KV-OP-01", story, obligation, _replay(geometry, make))


SCANS = (
    _refuted(
        "drop-on-every-visit",
        DropAgain,
        "The look-ahead block is dropped each time a group is asked, so a hit that has to shrink spirals to 0 "
        "(vllm-project/vllm#32802).",
        Group("full", 2, lookahead=True),
        Group("sliding_window", 2, 3, lookahead=True),
    ),
    _refuted(
        "drop-remembered",
        DropOnce,
        "A look-ahead block that was found after a longer hit is assumed to be there after a shorter one "
        "(finding 005).",
        Group("full", 2, lookahead=True),
        Group("sliding_window", 2, 3, lookahead=True),
        Group("sliding_window", 2, 5, lookahead=True),
    ),
    _refuted(
        "cut-before-drop",
        CutBeforeDrop,
        "The blocks of a window are cut to the alignment before the look-ahead block is dropped, which loses an "
        "alignment (finding 006).",
        Group("full", 4, lookahead=True),
        Group("sliding_window", 2, 9, lookahead=True),
    ),
    _refuted(
        "window-taken-for-full",
        TakenForFull,
        "A window that serves a hit is taken to serve every shorter one, as full attention does: blocks are missing "
        "that a resume reads.",
        Group("full", 2),
        Group("sliding_window", 2, 3),
        Group("sliding_window", 2, 5),
    ),
)
"""The scans, refuted."""
