"""The timeline: operations from left to right, requests and blocks from top to bottom, a bar for everything that lasts.

It shows the system's side, for the two are equal until they diverge; where they are not is marked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from attrs import frozen

from kvgate.gate.story import describe
from kvgate.kernel.text import printable
from kvgate.report.page.recording import Frame, Recording, describe_content
from kvgate.report.page.views import Look

COLOURS = 5
"""How many requests have colours of their own; all have numbers."""
GLYPHS = {
    "Arrive": ("↓", "arrives"),
    "LookUp": ("?", "look-up"),
    "Admit": ("+", "admitted"),
    "Schedule": (">", "gets its next step"),
    "Sample": ("•", "the model answers"),
    "Preempt": ("‖", "preempted"),
    "Finish": ("✓", "finishes"),
    "Abort": ("x", "aborted"),
    "Transferred": ("⇥", "a transfer is over"),
    "Rewind": ("↶", "what a load did not bring is computed again"),
    "Pause": ("⏸", "a part of a session has ended"),
    "Continue": ("⏵", "a session continues"),
    "ReleaseSkipped": ("-", "releases what its window left"),
    "CommonPrefix": ("=", "common prefix asked for"),
    "Evict": ("E", "a block is evicted"),
    "Dispatch": ("D", "the step goes to the worker"),
    "Reset": ("R", "the cache is reset"),
    "TakeEvents": ("e", "events are taken"),
    "TakeStatistics": ("s", "statistics are taken"),
}
"""A sign for each kind of operation, and what it means."""

T = TypeVar("T", bound=Hashable)


@frozen
class Column:
    """One operation."""

    index: int
    glyph: str
    title: str
    tone: int | None
    """The colour of its request."""
    diverges: bool
    refused: bool


@frozen
class Bar:
    """Something that lasts from one column to the one before ``end``; columns count from 0."""

    start: int
    end: int
    kind: str
    text: str
    title: str
    tone: int | None = None


@frozen
class Lane:
    """One row."""

    label: str
    title: str
    bars: tuple[Bar, ...]


@frozen
class Timeline:
    """What is drawn: a lane for each request and each block, a column for each operation."""

    columns: tuple[Column, ...]
    requests: tuple[Lane, ...]
    blocks: tuple[Lane, ...]
    free: tuple[int, ...]
    """Per column, how many blocks are free."""
    blocks_usable: int
    blocks_left_out: int
    glyphs: tuple[tuple[str, str], ...]
    """The signs that occur, and what they mean."""

    @property
    def has_orphans(self) -> bool:
        """Whether a block counts a holder that no table names."""
        return self._has("orphan")

    @property
    def has_pinned(self) -> bool:
        """Whether a block is pinned."""
        return self._has("pinned")

    @property
    def has_differences(self) -> bool:
        """Whether the sides say different things of a block."""
        return self._has("differs")

    def _has(self, kind: str) -> bool:
        return any(bar.kind == kind for lane in self.blocks for bar in lane.bars)


def tone_of(request: int) -> int:
    """The colour of a request."""
    return request % COLOURS


def timeline(recording: Recording, blocks: Sequence[int], left_out: int, diverges: int | None) -> Timeline:
    """The timeline of a recording; ``diverges`` is the index of the operation that does."""
    frames = recording.frames
    # The reference's side where the system has none.
    sides = [frame.system if frame.system.snapshot or frame.reference is None else frame.reference for frame in frames]
    looks = [Look(side) for side in sides]
    ours = [None if frame.reference is None else Look(frame.reference) for frame in frames]
    kinds = list(dict.fromkeys(type(frame.operation).__name__ for frame in frames))
    return Timeline(
        tuple(_column(frame, diverges) for frame in frames),
        tuple(_request_lanes(frames)),
        tuple(_block_lane(frames, looks, ours, block) for block in blocks),
        tuple(look.free for look in looks),
        recording.settings.blocks - 1,
        left_out,
        tuple(GLYPHS[kind] for kind in GLYPHS if kind in kinds),
    )


def _column(frame: Frame, diverges: int | None) -> Column:
    operation = frame.operation
    request = getattr(operation, "request", None)
    return Column(
        frame.index,
        GLYPHS[type(operation).__name__][0],
        f"{frame.index}: {printable(describe(operation))}",
        None if request is None else tone_of(request),
        frame.index == diverges,
        type(frame.system.answer).__name__ == "Refused",
    )


def _runs(values: Sequence[T | None]) -> Iterator[tuple[int, int, T]]:
    """Where the same value stands side by side: from, up to, and the value; None is passed over."""
    start = 0
    for value, run in groupby(values):
        end = start + len(list(run))
        if value is not None:
            yield start, end, value
        start = end


def _request_lanes(frames: Sequence[Frame]) -> Iterator[Lane]:
    numbers = dict.fromkeys(number for frame in frames for number in sorted(frame.requests))
    for number in sorted(numbers):
        statuses = [
            standing.status.value if (standing := frame.requests.get(number)) is not None else None for frame in frames
        ]
        bars = tuple(
            Bar(start, end, status, status, f"request {number}: {status}{_during(frames, start, end)}", tone_of(number))
            for start, end, status in _runs(statuses)
        )
        yield Lane(f"r{number}", f"request {number}", bars)


def _block_lane(frames: Sequence[Frame], looks: Sequence[Look], ours: Sequence[Look | None], block: int) -> Lane:
    bars = [
        _held(frames, block, start, end, holders)
        for start, end, holders in _runs([look.holders(block) for look in looks])
    ]
    bars += [
        Bar(start, end, "cached", "", f"block {block} is cached: {describe_content(name)}{_during(frames, start, end)}")
        for start, end, name in _runs([look.content(block) for look in looks])
    ]
    bars += [
        Bar(start, end, "pinned", "", f"block {block} is pinned{_during(frames, start, end)}")
        for start, end, _ in _runs([look.is_pinned(block) or None for look in looks])
    ]
    pairs = zip(ours, looks, strict=True)
    differs = [(mine is not None and mine.key(block) != theirs.key(block)) or None for mine, theirs in pairs]
    bars += [
        Bar(start, end, "differs", "", f"the sides say different things of block {block}")
        for start, end, _ in _runs(differs)
    ]
    return Lane(str(block), f"block {block}", tuple(bars))


def _held(frames: Sequence[Frame], block: int, start: int, end: int, holders: tuple[int, ...]) -> Bar:
    during = _during(frames, start, end)
    if not holders:
        return Bar(start, end, "orphan", "no holder", f"block {block} counts a holder that no table names{during}")
    names = "+".join(f"r{number}" for number in holders[:3]) + ("…" if len(holders) > 3 else "")
    who = ", ".join(map(str, holders[:20]))
    title = f"block {block} is held by {'request' if len(holders) == 1 else 'requests'} {who}{during}"
    return Bar(start, end, "held" if len(holders) == 1 else "shared", names, title, tone_of(holders[0]))


def _during(frames: Sequence[Frame], start: int, end: int) -> str:
    first, last = frames[start].index, frames[end - 1].index
    return f", after operation {first}" if first == last else f", operations {first} to {last}"
