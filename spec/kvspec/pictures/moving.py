"""Pictures of what moves: copies, transfers, and what is told to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvspec.pictures.drawing import Cell, Picture, Row


def a_copy(found: Mapping[str, Any]) -> Picture:
    """Two blocks of 64 tokens: the source with its entries, and what is copied of it."""
    copy, unit = found["copies"][0], found["geometry"].alignment_tokens

    def cells(kinds: list[str], tokens: int) -> list[Cell]:
        ends = [min(start + unit, tokens) - 1 for start in range(0, tokens, unit)]
        spans = zip(range(0, tokens, unit), ends, kinds, strict=True)
        return [Cell(f"{start} to {end}", kind, (end + 1 - start) / 6) for start, end, kind in spans]

    lengths = [len(found["manager"].population[number].tokens) for number in (0, 1)]
    of_source = ["copied" if end <= copy.tokens else "cached" for end in found["entries"]]
    copied = copy.tokens // unit
    return Picture(
        "A hit that ends inside a block",
        f"The first {copy.tokens} tokens of block {copy.source} are copied into block {copy.destination}, and the "
        "request goes on behind them.",
        [
            Row(f"Block {copy.source}, of the first request, by tokens", cells([*of_source, "held"], lengths[0])),
            Row(
                f"Block {copy.destination}, of the second, by tokens", cells(["copied"] * copied + ["held"], lengths[1])
            ),
        ],
        {
            "copied": "copied when the step is dispatched",
            "cached": "an entry ends here, and is not hit",
            "held": "the request's own tokens",
        },
    )


def two_loads(found: Mapping[str, Any]) -> Picture:
    """64 blocks: with both loads begun, as it is done here, and at the end."""
    blocks = len(found["state"].references) - 1
    load = found["needed"][2]
    held = len(found["state"].tables[0][0])

    def bar(*loads: int) -> list[Cell]:
        free = blocks - sum(loads)
        return [Cell(f"{taken} held", "external", taken / 2) for taken in loads] + [
            Cell(f"{free} free", "free", free / 2)
        ]

    lacking = [need - load for need in found["needed"][:2]]
    return Picture(
        f"Two loads and {blocks} blocks",
        f"If both loads are begun, {blocks - 2 * load} blocks are left and neither request can end. Here the second "
        "load waits.",
        [
            Row(
                f"Both loads begun: {lacking[0]} and {lacking[1]} more are needed, one after the other", bar(load, load)
            ),
            Row("Here, after one step: the second load is not begun", bar(held)),
            Row("Both have ended", bar()),
        ],
        {"external": "held by a request that loads", "free": "free"},
    )


def what_is_told(found: Mapping[str, Any]) -> Picture:
    """The blocks of both groups, and which event names them."""
    rows = []
    for group, name in enumerate(("Full attention", "Aligned states")):
        told = {}
        for kind, events in (("cached", found["first"]), ("hit", found["second"])):
            event = events[group]
            start = event.tokens[0] // event.block_size_tokens
            told.update(dict.fromkeys(range(start, start + len(event.contents)), kind))
        cells = [Cell(f"{16 * index} to {16 * index + 15}", told.get(index, "null"), 1.8) for index in range(96 // 16)]
        rows.append(Row(f"{name}, by tokens", cells))
    return Picture(
        "One event tells one run of neighbouring blocks",
        f"After each chunk the full group tells {len(found['first'][0].contents)} blocks, the state group "
        f"{len(found['first'][1].contents)}: the last one.",
        rows,
        {"cached": "named by the first event", "hit": "named by the second", "null": "no block, and not told"},
    )


def hit_and_external(found: Mapping[str, Any]) -> Picture:
    """The two tables of a request that loads, and how many blocks are held until the transfer is over."""
    granted = found["granted"]
    rows = []
    for name, table, new in zip(("Full attention", "Window"), found["loading"].tables[1], granted.blocks, strict=True):
        own = set(new)
        rows.append(
            Row(f"{name}: the table while it loads", [Cell(b, "external" if b in own else "hit") for b in table])
        )
    blocks = len(found["over"].references) - 1
    for when, state in (("Aborted, while it loads", found["aborted"]), ("The transfer is over", found["over"])):
        free = len(state.free)
        held = [Cell(f"{blocks - free} held", "held", (blocks - free) / 4)] if free < blocks else []
        rows.append(Row(when, [*held, Cell(f"{free} free", "free", free / 4)]))
    return Picture(
        "A hit, and blocks that another node fills",
        f"Each group holds {len(granted.blocks[0])} blocks for external tokens behind those of its hit; all stay held "
        "until the transfer is over.",
        rows,
        {
            "hit": "the hit: held first, in all groups",
            "external": "filled by another node",
            "held": "held",
            "free": "free",
        },
    )
