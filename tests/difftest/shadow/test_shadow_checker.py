"""The checker of a recording: one short life that is right, and every answer in it made wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kvgate.shadow import calls
from kvgate.shadow.calls import (
    After,
    Allocated,
    Arrived,
    Cached,
    Checkpoint,
    Counted,
    Evicted,
    Freed,
    Gated,
    LookedUp,
    Registered,
    Reset,
    Shared,
    Skipped,
    Step,
    Stored,
)
from kvgate.shadow.shadow_checker import ShadowChecker
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group("full", 16),)), blocks=6, chunk_tokens=64)
A, B = b"first grain", b"second grain"
EMPTY = Checkpoint([0] * 6, [1, 2, 3, 4, 5], {}, [], [])
LIFE: list[Stored] = [
    EMPTY,
    Step(1, 0),
    Arrived(0, 40, 40, True, [A, B]),
    LookedUp(0, 0, [[]], False),
    Gated(0, 0, 0, 0, True),
    Allocated(0, 0, 40, 0, 0, 0, False, True, [[1, 2, 3]], True, (), [Registered(0, 0, [1, 2])], After(2, 2, (5, 4))),
    Shared(0, [3]),
    Counted(1, 40, 0, 0, 0, 0, False),
    Skipped(0, 40, (), After(2, 2, (5, 4))),
    Cached(0, 40, [], After(2, 2, (5, 4))),
    Freed(0, True, After(5, 2, (1, 2))),
    Step(2, 9),
    Arrived(1, 40, 40, True, [A, B]),
    LookedUp(1, 32, [[1, 2]], False),
    Gated(1, 0, 32, 0, True),
    Allocated(1, 0, 8, 32, 0, 0, False, True, [[1, 2, 4]], True, (), [], After(2, 2, (3, 5))),
    Freed(1, True, After(5, 2, (1, 2))),
    Evicted([2], After(5, 1, (1, 2))),
    Checkpoint([0] * 6, [5, 3, 4, 2, 1], {1: b"known"}, [], [], {1: (0, A)}),
    Reset(True, After(5, 0, (1, 2))),
    Counted(1, 40, 32, 0, 0, 0, True),
]


def judged(life: list[Stored]) -> list[str]:
    """The guarantees that a life violates."""
    judge = ShadowChecker(SETTINGS)
    return [finding.difference.statement for record in life for finding in judge.follow(record)]


def test_a_life_that_is_right() -> None:
    """Goal: the control of what follows. Method: as it is."""
    assert [] == judged(LIFE)


@pytest.mark.parametrize(
    ("index", "change", "statement"),
    [
        (3, {"hit_tokens": 16, "blocks": [[1]]}, "KV-OP-01"),
        (13, {"blocks": [[1, 3]]}, "KV-OP-02"),
        (4, {"fits": False}, "KV-OP-03"),
        (5, {"given": None}, "KV-OP-04"),
        (5, {"given": [[1, 2, 4]]}, "KV-OP-05"),
        (5, {"registered": [Registered(0, 0, [1])]}, "KV-OP-08"),
        (5, {"registered": [Registered(0, 0, [1, 2, 3])]}, "KV-OP-10"),
        (5, {"after": After(3, 2, (5, 4))}, "KV-OP-05"),
        (5, {"after": After(2, 3, (5, 4))}, "KV-INV-05"),
        (6, {"blocks": [2]}, "KV-OP-14"),
        (8, {"after": After(3, 2, (5, 4))}, "KV-OP-06"),
        (9, {"registered": [Registered(0, 2, [3])]}, "KV-OP-10"),
        (10, {"after": After(5, 2, (2, 1))}, "KV-OP-07"),
        (17, {"after": After(5, 2, (1, 2))}, "KV-INV-05"),
        (18, {"free": [5, 3, 4, 1, 2]}, "KV-OP-07"),
        (18, {"references": [0, 1, 0, 0, 0, 0]}, "KV-INV-01"),
        (18, {"contents": {1: (0, B)}}, "KV-OP-09"),
        (18, {"identities": {1: b"known", 2: b"known"}, "contents": {1: (0, A), 2: (0, B)}}, "KV-OP-10"),
        (19, {"succeeded": False}, "KV-OP-11"),
        (20, {"hits_tokens": 16}, "KV-OP-13"),
    ],
)
def test_an_answer_that_is_wrong(index: int, change: dict[str, Any], statement: str) -> None:
    """Goal: every comparison works. Method: change one answer, and name what it violates."""
    life = list(LIFE)
    life[index] = msgspec.structs.replace(life[index], **change)
    assert statement == judged(life)[0]


def test_what_is_not_a_call_at_all() -> None:
    """Goal: a recording from anywhere ends in a difference, not in a traceback. Method: requests that are not there."""
    for record in (calls.Grew(7, 5), LookedUp(7, 0, [[]], False), Shared(0, [7, 7])):
        assert judged([EMPTY, record])[:1] == (["KV-SYS-02"] if record.number else [])
    assert ["KV-SYS-02"] == judged([msgspec.structs.replace(EMPTY, references=[0, 0])])


def test_one_name_for_each_content() -> None:
    """Goal: two contents under one hash are a foreign hit to come. Method: a checkpoint with two such contents."""
    held = {"free": [3, 4, 5, 2, 1], "identities": {1: b"known", 2: b"known"}, "contents": {1: (0, A), 2: (0, B)}}
    assert ["KV-OP-09"] == judged([calls.Restart(0, "a gap"), msgspec.structs.replace(EMPTY, **held)])
    sound = {**held, "identities": {1: b"known", 2: b"other"}}
    assert [] == judged([calls.Restart(0, "a gap"), msgspec.structs.replace(EMPTY, **sound)])


# A file that begins in the middle of a life

LATER: list[Stored] = [
    Checkpoint([0] * 6, [5, 3, 4, 2, 1], {1: b"known"}, [], [], {1: (0, A)}),
    Step(3, 12),
    Arrived(2, 40, 40, True, [A, B]),
    LookedUp(2, 16, [[1]], False),
]


def test_a_recording_that_begins_in_the_middle_of_a_life() -> None:
    """Goal: checking begins at the first checkpoint of a file. Method: a checkpoint of a cache in use."""
    judge = ShadowChecker(SETTINGS)
    assert not judge.is_following
    assert [] == [finding for record in LATER for finding in judge.follow(record)]
    assert (1, 0, {}) == (judge.stats.judged, judge.stats.checkpoints, judge.stats.unjudged)
    wrong = [*LATER[:-1], LookedUp(2, 0, [[]], False)]
    assert ["KV-OP-01"] == judged(wrong)


def test_calls_before_the_first_checkpoint_are_not_checked() -> None:
    """Goal: a file whose beginning is missing has no false differences. Method: calls without a checkpoint."""
    judge = ShadowChecker(SETTINGS)
    assert [] == [finding for record in LIFE[1:7] for finding in judge.follow(record)]
    assert (0, {"before the first checkpoint": 4}) == (judge.stats.judged, judge.stats.unjudged)


def test_statistics_begun_before_the_first_checkpoint_stay_unknown() -> None:
    """Goal: no false difference. Method: two checkpoints, and then statistics that were begun before both."""
    judge = ShadowChecker(SETTINGS)
    assert [] == [
        finding for record in (EMPTY, EMPTY, Counted(7, 700, 7, 0, 0, 0, False)) for finding in judge.follow(record)
    ]
    assert {"the first statistics after a restart": 1} == judge.stats.unjudged


# Blocks of unknown content

UNKNOWN = Checkpoint([0] * 6, [1, 2, 3, 4, 5], {5: b"from before"}, [], [])


@pytest.mark.parametrize(
    ("change", "statements"),
    [
        ({}, []),
        ({"free": [2, 1, 3, 4, 5]}, ["KV-OP-07"]),
        ({"references": [0, 1, 0, 0, 0, 0], "free": [2, 3, 4, 5]}, ["KV-INV-01"]),
        ({"identities": {4: b"new", 5: b"from before"}}, []),
    ],
)
def test_a_checkpoint_with_unknown_blocks(change: dict[str, Any], statements: list[str]) -> None:
    """Goal: parts that need no content are compared, and the rest is not counted. Method: change one thing after
    another.
    """
    judge = ShadowChecker(SETTINGS)
    found = [
        finding.difference.statement
        for record in (UNKNOWN, msgspec.structs.replace(UNKNOWN, **change))
        for finding in judge.follow(record)
    ]
    assert statements == found
    why = "contents at a checkpoint, with blocks that were cached while calls were not observed"
    assert (0, {why: 1}) == (judge.stats.checkpoints, judge.stats.unjudged)


# Unknown numbers


@pytest.mark.parametrize(
    "record",
    [
        Arrived(0, 2**63, 2**63, True, []),
        Gated(0, 2**63, 0, 0, True),
        Allocated(0, 2**63, 2**63, 0, 0, 0, False, True, [[]], True, (), [], After(0, 0, ())),
        LookedUp(-1, 0, [[]], False),
        Evicted([2**40], After(0, 0, ())),
    ],
)
def test_an_unknown_number(record: Stored) -> None:
    """Goal: neither a reader nor a checker ends in a traceback. Method: huge numbers, read, and checked all
    the same.
    """
    with pytest.raises(msgspec.ValidationError, match="int"):
        calls.WRITTEN.decode(calls.ENCODER.encode([record]))
    arrived = Arrived(0, 40, 40, True, [A, B])
    judged([EMPTY, Step(1, 0), arrived, record, LookedUp(0, 0, [[]], False), Gated(0, 0, 0, 0, True)])


def test_a_frame_of_empty_arrays_is_rejected() -> None:
    """Goal: a small frame takes no memory a hundred times its size. Method: arrays where there is one for a group."""
    many: list[list[int]] = [[]] * 100_000
    for record in (LookedUp(0, 0, many, False), msgspec.structs.replace(EMPTY, several=many)):
        with pytest.raises(msgspec.ValidationError, match="length"):
            calls.WRITTEN.decode(calls.ENCODER.encode([record]))
