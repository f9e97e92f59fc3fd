"""What was found, as a story: the guarantee, what was seen, the shortest way there, and the state at its end.

The parts and their order are fixed, as in ``kvgate.gate.story``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate.explore.exploration import Found
from kvgate.explore.world import Move, State, World
from kvgate.gate.story import describe_table
from kvgate.kernel.text import consecutive, counted, printable, spans
from kvreference.snapshot import Snapshot
from kvreference.statements import STATEMENTS

LINE_CHARACTERS_MAX = 300
"""How long the line of one move may be."""


def render(world: World[State, Move], found: Found[Move]) -> str:
    """The whole story, as lines for a terminal."""
    return "\n".join(_lines(world, found))


def _lines(world: World[State, Move], found: Found[Move]) -> Iterator[str]:
    first = found.violations[0]
    yield f"{first.statement}: {STATEMENTS[first.statement]}"
    yield f"seen: {printable(first.detail)}"
    for also in found.violations[1:]:
        yield f"and {also.statement}: {printable(also.detail)}"
    ways = (*found.moves, *found.circle)
    lines, state = _walk(world, ways)
    yield f"the shortest way there, {counted(len(found.moves), 'step')}:"
    for index, line in enumerate(lines):
        if index == len(found.moves):
            yield f"and without progress back to the same state, {counted(len(found.circle), 'step')}:"
        last = len(ways) - 1
        yield f"{'>' if index == last else ' '} {index:4}  {printable(line, LINE_CHARACTERS_MAX)}"
    yield "the last state that was reached:"
    for line in _state(world.snapshot(state)):
        yield f"  {printable(line, LINE_CHARACTERS_MAX)}"


def _walk(world: World[State, Move], moves: Sequence[Move]) -> tuple[list[str], State]:
    """Every move with its answer, and the last state."""
    state = world.initial()
    lines = []
    for move in moves:
        try:
            outcome = world.step(state, move)
        except Exception:
            lines.append(world.describe_edge(move, None))
            break
        lines.append(world.describe_edge(move, outcome.answer))
        state = outcome.state
    return lines, state


def _state(snapshot: Snapshot) -> Iterator[str]:
    for number, tables in snapshot.tables.items():
        groups = "; ".join(f"group {group} [{describe_table(table)}]" for group, table in enumerate(tables))
        yield f"request {number}: {groups}"
    held = [f"block {block} {count} times" for block, count in enumerate(snapshot.references) if block and count > 0]
    yield f"counted as held: {', '.join(held) or 'none'}"
    yield f"free, the next one first: {_blocks(snapshot.free)}"
    cached = [block for block, content in enumerate(snapshot.contents) if content is not None]
    yield f"cached: {_blocks(cached)}"
    if snapshot.pinned.blocks:
        yield f"pinned, the oldest first: {_blocks(snapshot.pinned.queue)}; held: {_held_pins(snapshot)}"
    for copy in snapshot.copies:
        yield f"to be copied: {counted(copy.tokens, 'token')} of block {copy.source} to block {copy.destination}"


def _held_pins(snapshot: Snapshot) -> str:
    return _blocks(sorted(snapshot.pinned.blocks - set(snapshot.pinned.queue)))


def _blocks(blocks: Sequence[int]) -> str:
    return spans(consecutive(blocks)) or "none"
