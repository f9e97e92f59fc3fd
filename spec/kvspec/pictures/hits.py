"""Pictures of hits: which blocks a resume reads, which are kept for it, and what one missing block costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvreference.attention import Kind
from kvreference.geometry import Group
from kvspec.pictures.drawing import Cell, Picture, Row


def _named(group: Group) -> str:
    names = {
        Kind.FULL: "full attention",
        Kind.SLIDING_WINDOW: f"window of {group.window_tokens}",
        Kind.CHUNKED_LOCAL: f"attention chunks of {group.window_tokens}",
        Kind.MAMBA: "aligned states",
    }
    return names[group.kind]


def what_each_kind_reads(found: Mapping[str, Any]) -> Picture:
    """Per group the blocks that a resume at token 96 needs, and those that are dead after 100 tokens."""
    rows = []
    for group, needed in zip(found["groups"], found["needed"], strict=True):
        cells = [Cell(index, "needed" if index in needed else "free") for index in range(group.blocks_occupied(96))]
        rows.append(Row(f"To resume at token 96, {_named(group)}", cells))
    for group, dead in zip(found["groups"], found["dead"], strict=True):
        cells = [Cell(index, "lost" if index < dead else "held") for index in range(group.blocks_occupied(100))]
        rows.append(Row(f"After 100 tokens, {_named(group)}", cells))
    return Picture(
        "What each attention kind reads and gives up",
        "Blocks that a resume at token 96 needs: "
        + ", ".join(
            f"{_named(group)} {len(needed)}" for group, needed in zip(found["groups"], found["needed"], strict=True)
        ),
        rows,
        {
            "needed": "must be there to resume",
            "free": "not needed",
            "lost": "dead: no later token reads it",
            "held": "still read, or written",
        },
    )


def one_lost_block(found: Mapping[str, Any]) -> Picture:
    """The blocks that the hit reads in both groups, before and after one block of the window is lost."""
    geometry, evicted = found["geometry"], found["evicted"]
    rows = []
    for when, hit, lost in (
        ("All cached", found["hit"], None),
        (f"Block {evicted} is lost", found["hit_left"], evicted),
    ):
        for group, blocks in zip(geometry.groups, found["granted"].blocks, strict=True):
            rows.append(Row(f"{when}, hit {hit.tokens}: {_named(group)}", _cells(group, blocks, hit.tokens, lost)))
    return Picture(
        f"One lost block takes {found['hit'].tokens - found['hit_left'].tokens} tokens from the hit",
        f"The hit is {found['hit'].tokens} tokens. Without block {evicted} it is {found['hit_left'].tokens}.",
        rows,
        {
            "needed": "read by the hit",
            "cached": "cached, and not read",
            "scratch": "not full, so not cached",
            "lost": "evicted",
        },
    )


def _cells(group: Group, blocks: tuple[int, ...], hit_tokens: int, lost: int | None) -> list[Cell]:
    first, end = group.blocks_needed(hit_tokens)
    full_blocks = 100 // group.block_size_tokens
    kinds = [
        "lost"
        if block == lost
        else "needed"
        if first <= index < end
        else "cached"
        if index < full_blocks
        else "scratch"
        for index, block in enumerate(blocks)
    ]
    return [Cell(block, kind, group.block_size_tokens / 16) for block, kind in zip(blocks, kinds, strict=True)]


def what_is_kept(found: Mapping[str, Any]) -> Picture:
    """The window's blocks that each retention caches of one prompt."""
    names = ("Dense: no interval", "Masked: interval 32, the alignment", "Interval 0: the replay boundary alone")
    rows = [
        Row(name, [Cell(index, "cached" if index in kept else "scratch") for index in range(72 // 8)])
        for name, kept in zip(names, found["kept"], strict=True)
    ]
    return Picture(
        "Which blocks of a window are cached",
        "Blocks kept: " + ", ".join(f"{name} {len(kept)}" for name, kept in zip(names, found["kept"], strict=True)),
        rows,
        {"cached": "cached", "scratch": "scratch: no hit at an admitted boundary reads it"},
    )


def the_block_behind(found: Mapping[str, Any]) -> Picture:
    """What a window needs with and without a draft layer, where only so many blocks are cached."""
    window: Group = found["window"]
    plain = Group(window.kind, window.block_size_tokens, window.window_tokens)
    cached = found["cached_blocks"]
    rows = []
    for group, name, hit in (
        (plain, "Without a draft layer, at 320", found["plain"][0]),
        (window, f"With one, at 320: block {cached} is not there", found["plain"][0]),
        (window, f"With one, at {found['drafting'][0]}", found["drafting"][0]),
    ):
        first, end = group.blocks_needed(hit)
        cells = []
        for index in range(14, cached + 1):
            needed = first <= index < end
            kind = ("needed" if needed else "cached") if index < cached else ("lost" if needed else "free")
            cells.append(Cell(index, kind))
        rows.append(Row(f"{name}: blocks {first} to {end - 1}", cells))
    return Picture(
        "A draft layer asks for one block more",
        f"The look-ahead block {cached} was never computed, so the hit is {found['drafting'][0]} tokens and not "
        f"{found['plain'][0]}.",
        rows,
        {
            "needed": "must match, and does",
            "cached": "cached, and not asked for",
            "lost": "must match, and is not there",
            "free": "not there, and not asked for",
        },
    )


def large_blocks(found: Mapping[str, Any]) -> Picture:
    """How much of two prompts a replay hits on Ascend, by where the look-ahead is asked."""
    alignment = found["coarse"].alignment_tokens
    names = ("no draft layer", "the draft layer's group flagged", "every group flagged")
    rows = []
    for tokens, hits in found["hits"].items():
        whole = [Cell(f"{alignment}", "cached", alignment / 1000) for _ in range(tokens // alignment)]
        rest = tokens % alignment
        rows.append(Row(f"{tokens} tokens in C128 blocks", (*whole, Cell("", "scratch", rest / 1000))))
        for name, hit in zip(names, hits, strict=True):
            cells = [Cell(hit, "hit", hit / 1000)] if hit else []
            cells.append(Cell("" if hit else "0", "free", (tokens - hit) / 1000))
            rows.append(Row(f"{tokens} tokens, {name}: a replay hits {hit}", cells))
    return Picture(
        f"What a replay hits where a block spans {alignment} tokens",
        "With every group flagged a whole C128 block is lost: "
        + ", ".join(f"{tokens} tokens hit {hits[-1]}" for tokens, hits in found["hits"].items()),
        rows,
        {
            "cached": "a full C128 block",
            "scratch": "not full",
            "hit": "served",
            "free": "computed again",
        },
    )
