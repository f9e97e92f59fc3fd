"""What random traces are drawn from: small geometries, tiny pools, prompts that share, every operation.

Numbers are small, so that requests meet: two prompts often agree for a while, and what is sampled is often what
another prompt goes on with. Operations are raw; ``Population.resolve`` says what each stands for.
"""

from __future__ import annotations

from hypothesis import strategies as st

from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
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
)
from kvreference.settings import Settings

GEOMETRIES = (
    Geometry((Group("full", 4),)),
    Geometry((Group("sliding_window", 2, 5),)),
    Geometry((Group("full", 4, lookahead=True),)),
    Geometry((Group("full", 4), Group("sliding_window", 2, 3))),
    Geometry((Group("full", 2), Group("sliding_window", 2, 4, lookahead=True))),
    Geometry((Group("sliding_window", 2, 2), Group("full", 3), Group("sliding_window", 2, 6))),
)

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

SCENES: dict[str, st.SearchStrategy[tuple[Operation, ...]]] = {
    "serve": st.tuples(arrivals, admissions, schedules),
    "decode": st.tuples(schedules, samples, schedules, samples),
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
"""What may happen next: mostly one operation, and the everyday sequences that single draws seldom hit upon."""

scenes = st.sampled_from([*SCENES, *["serve", "decode"] * 5]).flatmap(SCENES.__getitem__)
traces = st.lists(scenes, min_size=12, max_size=30).map(lambda several: [each for scene in several for each in scene])

settings_of_systems = st.builds(
    Settings,
    geometry=st.sampled_from(GEOMETRIES),
    blocks=st.sampled_from([2, 4, 7, 10, 14, 18, 24, 32]),
    tokens_max=st.sampled_from([8, 19, 20, 24]),
    chunk_tokens=st.sampled_from([2, 5, 24]),
    requests_max=st.sampled_from([2, 3, 4]),
    drafts_max=st.sampled_from([0, 2, 3, 7]),
    caches=st.sampled_from([True] * 9 + [False]),
    full_sequence_must_fit=st.booleans(),
)
