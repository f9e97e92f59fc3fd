"""The pictures of the worked examples: which function draws which chapter's, and the path of the file.

The kinds: blocks (which requests hold them, in which queue they wait, what they hold); hits (which blocks a resume
reads, which are kept for it, what one missing block costs); copies, transfers and events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.snapshot import Snapshot
from kvspec.chapters import EXAMPLE, HOME, Chapter, read_all
from kvspec.pictures.svg import Cell, Picture, Row, svg


def shared_tables(found: Mapping[str, Any]) -> Picture:
    """Two tables that name the same blocks, what is free, and how often each block is counted."""
    state: Snapshot = found["state"]
    tables = [tables[0] for tables in state.tables.values()]
    rows = [
        Row(f"Request {number}: its block table", [Cell(block, _shared(state, block)) for block in blocks])
        for number, blocks in enumerate(tables)
    ]
    rows.append(Row("Free queue, front first", [Cell(block, "free") for block in state.free]))
    counted = [
        Cell(count, _shared(state, block) if count else "free") for block, count in enumerate(state.references) if block
    ]
    rows.append(Row("References of the blocks 1 to 7", counted))
    return Picture(
        "Two requests share a prefix",
        "Both block tables begin with the same two blocks, which count two references each.",
        rows,
        {"hit": "held by both: counts 2", "held": "held by one", "free": "no holder"},
    )


def _shared(state: Snapshot, block: int) -> str:
    return "hit" if state.references[block] > 1 else "held"


def two_queues(found: Mapping[str, Any]) -> Picture:
    """The free queue after each of three requests, plain and with scratch first."""
    rows = []
    for name, states, hit in (
        ("Plain", found["plain"], found["plain_hit"]),
        ("Scratch first", found["ordered"], found["ordered_hit"]),
    ):
        for when, state in zip(("the first has ended", "the second has ended", "the third runs"), states, strict=True):
            rows.append(Row(f"{name}: {when}", _queue(state)))
        last = rows.pop()
        rows.append(Row(f"{last.label}; the first prompt hits {hit.tokens} tokens", last.cells))
    return Picture(
        "The free queue, front at the left",
        "In the plain queue scratch stands among cached blocks and the third request takes a cached one; with scratch "
        "first it takes none.",
        rows,
        {"cached": "cached", "scratch": "scratch: of no further use"},
    )


def _queue(state: Snapshot) -> list[Cell]:
    return [Cell(block, "cached" if state.contents[block] is not None else "scratch") for block in state.free]


def duplicates(found: Mapping[str, Any]) -> Picture:
    """Two blocks with one content: the one registered first serves, the other when it is gone."""
    first, second = (found["manager"].content(0, 0, index) for index in (0, 1))
    rows = [
        Row(f"Request {number}: its block table", [Cell(block, "held") for block in tables[0]])
        for number, tables in found["tables"].items()
    ]
    for when, entries in (
        ("", found["entries"]),
        (f", once {found['entries'][second][0]} is evicted", found["entries_left"]),
    ):
        for tokens, content in (("0 to 15", first), ("16 to 31", second)):
            blocks = entries[content]
            cells = [Cell(block, "cached" if place else "hit") for place, block in enumerate(blocks)]
            rows.append(Row(f"Cached map, tokens {tokens}{when}", cells))
    return Picture(
        "Blocks that hold the same content",
        f"The tokens 16 to 31 are in the blocks {' and '.join(map(str, found['entries'][second]))}. The one registered "
        "first serves; when it is evicted, the other does.",
        rows,
        {"held": "held by the request", "hit": "serves a hit", "cached": "the same content, and does not serve"},
    )


def one_demoted(found: Mapping[str, Any]) -> Picture:
    """The two queues before and after a request that needs one block more than are free."""
    before, after = found["before"], found["after"]
    demoted = set(before.pinned.queue) - set(after.pinned.queue)
    table = [Cell(block, "lost" if block in demoted else "held") for block in after.tables[1][0]]
    return Picture(
        "One pinned block is demoted",
        f"{len(before.free)} blocks are free and {len(table)} are needed, so the oldest pinned block is demoted "
        "and taken last.",
        [
            Row("Before: pinned queue, the oldest first", [Cell(block, "pinned") for block in before.pinned.queue]),
            Row("Before: free queue, front first", [Cell(block, "free") for block in before.free]),
            Row("After: pinned queue", [Cell(block, "pinned") for block in after.pinned.queue]),
            Row("After: the table of the second request; the free queue is empty", table),
        ],
        {"pinned": "pinned", "free": "free", "held": "held", "lost": "was pinned: demoted, then taken"},
    )


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
        "What each attention kind reads and releases",
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
    names = ("Dense: no interval", "Masked: interval 32, the alignment", "Interval 0: only the replay boundary")
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


def the_block_after(found: Mapping[str, Any]) -> Picture:
    """The blocks that a window needs with and without a draft layer, if only some are cached."""
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
        "request continues after them.",
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


def published_events(found: Mapping[str, Any]) -> Picture:
    """The blocks of both groups, and which event names them."""
    rows = []
    for group, name in enumerate(("Full attention", "Aligned states")):
        published = {}
        for kind, events in (("cached", found["first"]), ("hit", found["second"])):
            event = events[group]
            start = event.tokens[0] // event.block_size_tokens
            published.update(dict.fromkeys(range(start, start + len(event.contents)), kind))
        cells = [
            Cell(f"{16 * index} to {16 * index + 15}", published.get(index, "null"), 1.8) for index in range(96 // 16)
        ]
        rows.append(Row(f"{name}, by tokens", cells))
    return Picture(
        "One event reports one run of adjacent blocks",
        f"After each chunk the full group reports {len(found['first'][0].contents)} blocks, the state group "
        f"{len(found['first'][1].contents)}: the last one.",
        rows,
        {"cached": "named by the first event", "hit": "named by the second", "null": "no block, not reported"},
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
        f"Each group holds {len(granted.blocks[0])} blocks for external tokens after those of its hit; all stay held "
        "until the transfer is over.",
        rows,
        {
            "hit": "the hit: held first, in all groups",
            "external": "filled by another node",
            "held": "held",
            "free": "free",
        },
    )


def who_holds_what(found: Mapping[str, Any]) -> Picture:
    """How many hold each block and each chunk, at three times."""
    rows = []
    for when, name in (
        ("Stores are under way", "storing"),
        ("Aborted, while it loads", "loading"),
        ("One load never ends", "left"),
    ):
        for what, counts in zip(("block of the device", "chunk"), found[name], strict=True):
            cells = [Cell(count, "external" if count else "free") for count in counts[1:]]
            rows.append(Row(f"{when}: holders of each {what}", cells))
    return Picture(
        "Who holds what while jobs are under way",
        "Requests hold their blocks as well. When a request is gone, the jobs alone hold what they use.",
        rows,
        {"external": "held, by a job at least", "free": "free"},
    )


Names = Mapping[str, Any]
"""The variables at the end of an example's program, with their values."""

PICTURES: Mapping[str, Callable[[Names], Picture]] = MappingProxyType(
    {
        "blocks-and-references": shared_tables,
        "free-queue": two_queues,
        "content-and-cached-map": duplicates,
        "attention-kinds": what_each_kind_reads,
        "hit-lookup": one_lost_block,
        "retention": what_is_kept,
        "eagle": the_block_after,
        "compressed-groups": large_blocks,
        "partial-hits": a_copy,
        "pinned-tier": one_demoted,
        "scheduler-progress": two_loads,
        "kv-events": published_events,
        "external-tokens": hit_and_external,
        "second-tier": who_holds_what,
    }
)
"""Chapter to its picture, by the chapter's name."""


def run(chapter: Chapter) -> Names:
    """The variables at the end of the worked example of ``chapter``."""
    found: dict[str, Any] = {"__name__": "example"}
    for heading, code in chapter.programs():
        if heading == EXAMPLE:
            exec(compile(code, f"{chapter.file}: {EXAMPLE}", "exec"), found)
    return found


def render_picture(chapter: Chapter) -> str:
    """The picture of ``chapter``, as a file."""
    return svg(PICTURES[chapter.name](run(chapter)))


def path_of(chapter: Chapter) -> str:
    """Where the picture of ``chapter`` stands, from the folder of the chapters."""
    return f"pictures/{chapter.file.removesuffix('.md')}.svg"


def write(home: Path = HOME) -> None:
    """Draw all pictures anew."""
    for chapter in read_all(home):
        (home / path_of(chapter)).write_text(render_picture(chapter), encoding="utf-8")
