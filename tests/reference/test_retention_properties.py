"""Retention, for any geometry and prompt: what is written is what can be read, no more, no less, and in time.

What a hit reads is spelled out here token by token, and boundaries are tried one by one: nothing of what is tested is
used to say what is expected.

State-space groups that keep their states at the ends of chunks alone are left out: which states there are, and so which
hits, depends on how a prompt was cut (see ``test_worked_retention``).
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kvreference.attention import Kind
from kvreference.cached_map import CachedMap
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.mamba import StateMode
from kvreference.operations import Run
from kvreference.partial_map import PartialMap
from kvreference.retention import Dense, Retention, Sparse, replay_boundary
from kvreference.settings import Settings

from .replays import computed, hit_of, system

sizes = st.sampled_from([1, 2, 3, 4, 6, 8])
full = st.builds(Group, st.just(Kind.FULL), sizes, lookahead=st.booleans())
compressed = st.builds(
    Group,
    st.just(Kind.FULL),
    st.just(12),
    lookahead=st.booleans(),
    compress_ratio=st.just(2),
    unit_tokens=st.sampled_from([None, 2, 4, 6, 12]),
)
windows = st.builds(Group, st.just(Kind.SLIDING_WINDOW), sizes, st.integers(2, 14), st.booleans())
chunks = st.builds(Group, st.just(Kind.CHUNKED_LOCAL), sizes, st.integers(2, 14), st.booleans())
states = st.builds(Group, st.just(Kind.MAMBA), sizes, states=st.just(StateMode.ALL))

others = st.lists(st.one_of(full, compressed, windows, chunks, states), max_size=2)
geometries = st.builds(lambda window, rest: Geometry((window, *rest)), windows, others)
prompts = st.integers(1, 90)
multiples = st.integers(0, 3)

quietly = settings(derandomize=True, max_examples=100, deadline=None, phases=[Phase.generate])


def tokens_read(group: Group, length: int) -> range:
    """The tokens that a token at position ``length`` reads, itself apart; and those that a draft layer must match."""
    start = {
        Kind.FULL: 0,
        Kind.SLIDING_WINDOW: max(0, length - (group.window_tokens or 0) + 1),
        Kind.CHUNKED_LOCAL: length - length % (group.window_tokens or 1),
        Kind.MAMBA: length - 1,
    }[group.kind]
    ahead = (group.unit_tokens or group.block_size_tokens) if group.lookahead else 0
    return range(start, length + ahead)


def reads(group: Group, length: int, index: int) -> bool:
    """Whether a hit of ``length`` tokens reads the block at ``index``, as a whole."""
    size = group.block_size_tokens
    read = tokens_read(group, length)
    return length > 0 and any(token // size == index for token in read) and (index + 1) * size <= read.stop


def admitted(geometry: Geometry, group: Group, interval: int, prompt: int, end: int) -> list[int]:
    """The boundaries up to ``end`` at which blocks of ``group`` are read, ascending."""
    step = interval if group.kind in (Kind.SLIDING_WINDOW, Kind.MAMBA) else geometry.alignment_tokens
    replay = longest_replay(geometry, prompt)
    return [b for b in range(geometry.alignment_tokens, end + 1) if b == replay or (step and b % step == 0)]


def longest_replay(geometry: Geometry, prompt: int) -> int:
    """The longest hit of a prompt when everything is cached, found by the look-up itself."""
    prefixes: list[Prefix] = []
    Prefixes(geometry.grain_tokens).extend(prefixes, range(prompt), Keys())
    cached, partial = CachedMap(1 + len(geometry.groups) * prompt), PartialMap()
    for index, group in enumerate(geometry.groups):
        for end in range(geometry.grain_tokens, prompt + 1, geometry.grain_tokens):
            content = index, prefixes[end // geometry.grain_tokens - 1]
            if end % group.block_size_tokens == 0:
                cached.register(content, 1 + index * prompt + end // group.block_size_tokens - 1)
            elif end % group.unit == 0:
                partial.register(content, 1 + index * prompt + end // group.block_size_tokens)
    return longest_hit(geometry, cached, prefixes, prompt, partial).tokens


@quietly
@given(geometries, prompts)
def test_the_replay_boundary_is_the_longest_hit_there_can_be(geometry: Geometry, prompt: int) -> None:
    """Goal: the formula is what the look-up answers. Method: cache everything, and look the prompt up."""
    assert longest_replay(geometry, prompt) == replay_boundary(geometry, prompt)


@quietly
@given(geometries, prompts, multiples)
def test_cached_is_what_a_hit_at_an_admitted_boundary_reads(geometry: Geometry, prompt: int, multiple: int) -> None:
    """Goal: no block is missing, none is superfluous, each is due at the first boundary that reads it, and full then.

    Method: for each block, try every boundary that could read it, far after it as well.
    """
    interval = multiple * geometry.alignment_tokens
    retention = Sparse(geometry, interval)
    for group in geometry.groups:
        size = group.block_size_tokens
        for index in range(2 * geometry.alignment_tokens // size + 4):
            full_at = (index + 1) * size
            horizon = full_at + prompt + interval + 2 * geometry.alignment_tokens
            boundaries = admitted(geometry, group, interval, prompt, horizon)
            first = next((b for b in boundaries if reads(group, b, index)), None)
            expected = None if first is None else max(first, full_at)
            assert expected == retention.due_tokens(group, index, prompt)


def due_dates(retention: Retention, group: Group, prompt: int) -> dict[int, int]:
    """The first blocks that are cached, each with its date."""
    found = {index: retention.due_tokens(group, index, prompt) for index in range(100)}
    return {index: due for index, due in found.items() if due is not None}


@quietly
@given(geometries, prompts, multiples)
def test_blocks_become_due_in_order(geometry: Geometry, prompt: int, multiple: int) -> None:
    """Goal: waiting for the first block that is not due yet misses none. Method: dates never decrease."""
    for group in geometry.groups:
        for retention in (Dense(geometry), Sparse(geometry, multiple * geometry.alignment_tokens)):
            dates = list(due_dates(retention, group, prompt).values())
            assert sorted(dates) == dates


@quietly
@given(geometries, prompts, multiples)
def test_less_is_cached_the_longer_the_interval(geometry: Geometry, prompt: int, multiple: int) -> None:
    """Goal: dense caches all, an interval of 0 least; and what is cached by the longer interval is not cached sooner.

    Method: compare dense, masked, an interval, and 0: each is part of the one before.
    """
    alignment = geometry.alignment_tokens
    sparse = (Sparse(geometry, interval) for interval in (alignment, multiple * alignment, 0))
    ladder: list[Retention] = [Dense(geometry), *sparse]
    for group in geometry.groups:
        for more, less in pairwise(ladder):
            before, after = due_dates(more, group, prompt), due_dates(less, group, prompt)
            assert all(index in before and before[index] <= due for index, due in after.items())


@quietly
@given(geometries, prompts, multiples, st.integers(0, 60), st.integers(0, 60))
def test_boundaries_are_the_admitted_ones(
    geometry: Geometry, prompt: int, multiple: int, start: int, more: int
) -> None:
    """Goal: entries inside blocks stand at the boundaries of the windows. Method: try every length in a stretch."""
    interval, end = multiple * geometry.alignment_tokens, start + more
    window = geometry.groups[0]
    expected = [b for b in admitted(geometry, window, interval, prompt, end) if b > start]
    assert expected == list(Sparse(geometry, interval).boundaries(start, end, prompt))
    dense = [b for b in range(start + 1, end + 1) if b % geometry.alignment_tokens == 0]
    assert dense == list(Dense(geometry).boundaries(start, end, prompt))


intervals = st.sampled_from([None, 0, 1, 2, 3])


def system_of(geometry: Geometry, multiple: int | None, chunk: int) -> Settings:
    """A system in which nothing that is cached is ever lost, with an interval of so many alignments."""
    interval = None if multiple is None else multiple * geometry.alignment_tokens
    return system(geometry, 120, chunk, retention_interval_tokens=interval)


@quietly
@given(geometries, prompts, intervals, st.sampled_from([1, 3, 7, 16, 90]))
def test_a_replay_hits_its_boundary(geometry: Geometry, prompt: int, multiple: int | None, chunk: int) -> None:
    """Goal: a replay hits the latest boundary it can, for any blocks left out: KV-OP-16. Method: compute,
    and replay.
    """
    manager = computed(system_of(geometry, multiple, chunk), Run(0, prompt))
    assert longest_replay(geometry, prompt) == hit_of(manager, prompt)


@quietly
@given(geometries, prompts, st.integers(1, 3), st.sampled_from([3, 7, 90]), st.data())
def test_a_shared_prefix_hits_an_interval(
    geometry: Geometry, prompt: int, multiple: int, chunk: int, data: st.DataObject
) -> None:
    """Goal: retention costs a shared prefix at most what lies after the interval's last multiple.

    Method: a prompt that shares any number of tokens, with everything cached and with an interval.
    """
    shared = data.draw(st.integers(1, prompt))
    dense, sparse = (
        hit_of(computed(system_of(geometry, interval, chunk), Run(0, prompt)), shared, 20)
        for interval in (None, multiple)
    )
    interval_tokens = multiple * geometry.alignment_tokens
    assert dense // interval_tokens * interval_tokens <= sparse <= dense
