"""The generator of random traces: small geometries, tiny pools, prompts that share, every operation.

Numbers are small, so that requests meet: two prompts often agree for a while, and a sampled token is often the next one
of another prompt. Operations are raw; ``Population.resolve`` says what each stands for.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.settings import Settings

UNIT = Group("full", 8, compress_ratio=2, unit_tokens=4)

GEOMETRIES = (
    Geometry((Group("full", 4),)),
    Geometry((Group("sliding_window", 2, 5),)),
    Geometry((Group("full", 4, lookahead=True),)),
    Geometry((Group("full", 4), Group("sliding_window", 2, 3))),
    Geometry((Group("full", 2), Group("sliding_window", 2, 4, lookahead=True))),
    Geometry((Group("sliding_window", 2, 2), Group("full", 3), Group("sliding_window", 2, 6))),
)
"""The kinds that vLLM has always served: full attention and sliding windows."""

MORE_GEOMETRIES = (
    Geometry((Group("full", 4), Group("sliding_window", 2, 5), Group("sliding_window", 1, 3, lookahead=True))),
    Geometry((Group("full", 2), Group("chunked_local", 2, 4))),
    Geometry((Group("chunked_local", 2, 5, lookahead=True), Group("sliding_window", 4, 3))),
)
"""Windows that need several blocks, windows longer and shorter than blocks, and attention chunks."""

COPYING_GEOMETRIES = (
    Geometry((UNIT, Group("sliding_window", 2, 4))),
    Geometry((evolve(UNIT, lookahead=True), Group("sliding_window", 4, 6, lookahead=True))),
    Geometry((Group("full", 2), evolve(UNIT, unit_tokens=2))),
    Geometry((Group("mamba", 2, states="align"), UNIT)),
)
"""Hits that end inside blocks."""

STATE_GEOMETRIES = (
    Geometry((Group("full", 2), Group("mamba", 2, states="all", draft_states=2))),
    Geometry((Group("full", 6, lookahead=True), Group("mamba", 6, states="align", draft_states=2))),
    Geometry((Group("full", 4), Group("mamba", 24, states="none", draft_states=2))),
)
"""Layers that keep states, in every mode."""

ALL_GEOMETRIES = (*GEOMETRIES, *MORE_GEOMETRIES, *COPYING_GEOMETRIES, *STATE_GEOMETRIES)

MEDIA = (Media("cat", 1, 3), Media("cat", 2, 3), Media("dog", 4, 2))
"""An identifier stands for an item's content, and so for its length."""

numbers = st.integers(0, 4)
budgets = st.sampled_from([1, 2, 3, 5, 64, 64])
tokens = st.sampled_from([4, 8, 50])

special_keys = st.builds(
    Keys,
    salt=st.sampled_from([None, "x"]),
    lora=st.sampled_from([None, "x"]),
    media=st.one_of(st.just(()), st.tuples(st.sampled_from(MEDIA))),
)
# One in five is special: prompts of many kinds would hardly ever meet.
keys = st.integers(0, 4).flatmap(lambda kind: special_keys if kind == 0 else st.just(Keys()))
reads_cache = st.sampled_from([True] * 9 + [False])

starts = st.tuples(st.builds(Run, st.just(0), st.sampled_from([1, 4, 5, 8, 9, 13, 17])))
continued = st.tuples(st.builds(Run, st.just(0), st.sampled_from([4, 6, 8])), st.builds(Run, tokens, st.integers(1, 9)))
arrivals = st.builds(Arrive, numbers, st.one_of(starts, continued), keys, reads_cache)

schedules = st.builds(Schedule, numbers, budgets)
samples = st.builds(Sample, numbers, st.sampled_from([0, 1, 2, 7]), tokens, st.sampled_from([0, 2, 7]))
admissions = st.builds(Admit, numbers, budgets)
loads = st.builds(Admit, numbers, budgets, st.sampled_from([1, 2, 4, 9, 50]), st.booleans())
transfers = st.builds(Transferred, numbers, st.sampled_from([True, True, False]))
dispatches = st.builds(Dispatch)

together = starts.flatmap(
    lambda prompt: st.tuples(
        st.builds(Arrive, numbers, st.just(prompt)),
        admissions,
        st.builds(Arrive, numbers, continued),
        st.builds(Arrive, numbers, st.just((*prompt, Run(50, 3)))),
        admissions,
        admissions,
        dispatches,
    )
)
"""Prompts that agree, admitted in one step."""

speculations = numbers.flatmap(
    lambda number: st.tuples(
        st.builds(Sample, st.just(number), st.just(0), tokens, st.sampled_from([2, 7])),
        st.just(Schedule(number, 64)),
        dispatches,
        st.builds(Sample, st.just(number), st.sampled_from([0, 1, 2, 7]), tokens, st.just(0)),
        st.just(Schedule(number, 64)),
        dispatches,
    )
)
"""A request with drafts for its prompt, which continues with what was accepted."""

SCENES: dict[str, st.SearchStrategy[tuple[Operation, ...]]] = {
    "serve": st.tuples(arrivals, admissions, dispatches, schedules, dispatches),
    "decode": st.tuples(schedules, dispatches, samples, schedules, dispatches, samples),
    "speculate": speculations,
    "load": st.tuples(arrivals, loads, dispatches, transfers, admissions),
    "send": st.tuples(dispatches, st.builds(Finish, numbers, st.just(True)), transfers),
    "together": together,
    "transfer": st.tuples(transfers),
    "dispatch": st.tuples(dispatches),
    "pass through": st.tuples(arrivals, admissions, dispatches, st.builds(Finish, numbers)),
    "arrive": st.tuples(arrivals),
    "admit": st.tuples(admissions),
    "schedule": st.tuples(schedules),
    "sample": st.tuples(samples),
    "preempt": st.tuples(st.builds(Preempt, numbers)),
    "finish": st.tuples(st.builds(Finish, numbers)),
    "abort": st.tuples(st.builds(Abort, numbers)),
    "look up": st.tuples(st.builds(LookUp, numbers)),
    "release": st.tuples(st.builds(ReleaseSkipped, numbers)),
    "common prefix": st.tuples(st.builds(CommonPrefix, numbers)),
    "evict": st.tuples(st.builds(Evict, st.integers(0, 31))),
    "reset": st.tuples(st.builds(Reset)),
    "events": st.tuples(st.builds(TakeEvents)),
    "statistics": st.tuples(st.builds(TakeStatistics)),
}
"""The next operation: mostly one, and the everyday sequences that single draws seldom hit upon."""

scenes = st.sampled_from([*SCENES, *["serve", "decode"] * 5, *["speculate", "together", "load", "send"] * 2]).flatmap(
    SCENES.__getitem__
)
traces = st.lists(scenes, min_size=12, max_size=30).map(lambda several: [each for scene in several for each in scene])


def _retained(geometry: Geometry) -> st.SearchStrategy[int | None]:
    """Dense, for the replay alone, at every boundary, at every second."""
    alignment = geometry.alignment_tokens
    is_sparse = any(group.is_sparse for group in geometry.groups)
    return st.sampled_from([None, None, 0, alignment, alignment, 2 * alignment] if is_sparse else [None])


def _drafted(geometry: Geometry) -> st.SearchStrategy[int]:
    """As many drafts as there are states for, where there must be some."""
    states = [group.draft_states for group in geometry.groups if group.keeps_states]
    return st.sampled_from([drafts for drafts in (0, 2, 3, 7) if all(drafts <= most for most in states)])


def _cached(geometry: Geometry) -> st.SearchStrategy[bool]:
    """Mostly, where it can be."""
    return st.sampled_from([all(group.attention.serves_hits for group in geometry.groups)] * 9 + [False])


def systems_of(*geometries: Geometry, **given: Any) -> st.SearchStrategy[Settings]:
    """Systems of one of ``geometries``, tiny unless ``given`` says otherwise."""
    limits = {
        "blocks": st.sampled_from([2, 4, 7, 10, 14, 18, 24, 32]),
        "tokens_max": st.sampled_from([8, 19, 20, 24]),
        "chunk_tokens": st.sampled_from([2, 5, 24]),
        "requests_max": st.sampled_from([2, 3, 4]),
        "full_sequence_must_fit": st.booleans(),
        "scratch_first": st.booleans(),
        "pin_drop_blocks_min": st.sampled_from([None, None, 1, 2]),
    }

    def systems(geometry: Geometry) -> st.SearchStrategy[Settings]:
        drawn = {
            **limits,
            "drafts_max": _drafted(geometry),
            "caches": _cached(geometry),
            "retention_interval_tokens": _retained(geometry),
            **{name: st.just(value) for name, value in given.items()},
        }
        return st.builds(Settings, geometry=st.just(geometry), **drawn)

    return st.sampled_from(geometries).flatmap(systems)


settings_of_systems = systems_of(*ALL_GEOMETRIES)
