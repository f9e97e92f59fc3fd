"""The invariants of a state: for each, a state that violates it and nothing else, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvreference.answers import Copy
from kvreference.block_pool import Pinned
from kvreference.snapshot import Snapshot, check
from kvreference.statements import STATEMENTS

SOUND = Snapshot(
    tables={0: [[1, 2], [0, 3]], 1: [[1], [4]]},
    references=[7, 2, 1, 1, 1, 0, 0],
    free=[6, 5],
    blocks_free=2,
    contents=[None, "a", None, "b", None, "a", None],
    read_entries=lambda: {"a": (1, 5), "b": (3,)},
)
"""Two requests share block 1; blocks 1 and 5 hold the same; block 0 stands where a window has passed."""


def changed(changes: dict[str, Any]) -> Snapshot:
    """The sound state with ``changes``."""
    changes = dict(changes)
    entries = changes.pop("entries", SOUND.entries)
    return evolve(SOUND, read_entries=lambda: entries, **changes)


def ids(snapshot: Snapshot) -> list[str]:
    """The ids of the statements violated, once each."""
    return sorted({violation.statement for violation in check(snapshot)})


def test_a_sound_state() -> None:
    """Goal: nothing is found where nothing is wrong; the null block's references do not count. Method: the control."""
    assert [] == check(SOUND)
    assert [] == check(changed({"references": [0, *SOUND.references[1:]]}))
    assert [] == check(Snapshot({}, [0], [], 0, [None], dict))


LESS = {"contents": [None, "a", None, "b", None, None, None], "entries": {"a": (1,), "b": (3,)}}
"""Block 5 holds nothing."""

BROKEN: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "KV-INV-01",
        "block 2 counts 2 references, 1 table entries name it",
        {"references": [0, 2, 2, 1, 1, 0, 0]},
        {"references": [0, 2, 2, 1, 1, 0, 0], "tables": {**SOUND.tables, 2: [[2]]}},
    ),
    (
        "KV-INV-01",
        "block 1 counts 2 references, 1 table entries name it",
        {"tables": {0: [[1, 2], [0, 3]], 1: [[0], [4]]}},
        {"tables": {0: [[1, 2], [0, 3]], 1: [[0], [4]]}, "references": [0, 1, 1, 1, 1, 0, 0]},
    ),
    (
        "KV-INV-01",
        "block 3 counts 1 references, 1 table entries name it and 1 copies read it",
        {"copies": (Copy(1, 3, 4, 2),)},
        {"copies": (Copy(1, 3, 4, 2),), "references": [0, 2, 1, 2, 1, 0, 0]},
    ),
    (
        "KV-INV-02",
        "block 5 has no holder, and it is not in the free queue",
        {"free": [6], "blocks_free": 1},
        {"free": [6], "blocks_free": 1, "references": [0, 2, 1, 1, 1, 1, 0], "tables": {**SOUND.tables, 2: [[5]]}},
    ),
    (
        "KV-INV-02",
        "block 2 counts 1 references and is in the free queue",
        {"free": [6, 5, 2], "blocks_free": 3},
        {
            "free": [6, 5, 2],
            "blocks_free": 3,
            "references": [0, 2, 0, 1, 1, 0, 0],
            "tables": {0: [[1, 0], [0, 3]], 1: [[1], [4]]},
        },
    ),
    (
        "KV-INV-02",
        "block 5 is pinned, and is in the free queue",
        {"pinned": Pinned(frozenset({1, 5}), (5,))},
        {"pinned": Pinned(frozenset({1, 5}), (5,)), "free": [6], "blocks_free": 1},
    ),
    (
        "KV-INV-03",
        "block 6 stands 2 times in the free queue",
        {"free": [6, 5, 6], "blocks_free": 3},
        {"free": [5, 6]},
    ),
    ("KV-INV-03", "said to be free: 3, queued: 2", {"blocks_free": 3}, {"blocks_free": 2}),
    (
        "KV-INV-04",
        "request 0 names block 1 2 times",
        {"tables": {0: [[1, 2], [1, 3]], 1: [[0], [4]]}},
        {"tables": {0: [[1, 2], [0, 3]], 1: [[0], [4]], 2: [[1]]}},
    ),
    (
        "KV-INV-05",
        "block 5 holds None, and is listed under a",
        {"contents": [None, "a", None, "b", None, None, None]},
        {"contents": [None, "a", None, "b", None, None, None], "entries": {"a": (1,), "b": (3,)}},
    ),
    (
        "KV-INV-05",
        "block 5 holds a, and is listed under None",
        {"entries": {"a": (1,), "b": (3,)}},
        {"entries": {"b": (3,), "a": (1, 5)}},
    ),
    (
        "KV-INV-05",
        "a block is listed under two contents",
        {"entries": {"b": (3, 5), "a": (1, 5)}},
        {"entries": {"b": (3,), "a": (5, 1)}},
    ),
    (
        "KV-INV-06",
        "the null block is queued or cached",
        {"free": [6, 0, 5], "blocks_free": 3},
        {"free": [5, 6]},
    ),
    (
        "KV-INV-06",
        "the null block is queued or cached",
        {"contents": ["c", "a", None, "b", None, "a", None], "entries": {**SOUND.entries, "c": (0,)}},
        {"contents": [None, "a", "c", "b", None, "a", None], "entries": {**SOUND.entries, "c": (2,)}},
    ),
    (
        "KV-INV-07",
        "pinned without a holder: [5], queued as pinned: []",
        {"pinned": Pinned(frozenset({1, 5})), "free": [6], "blocks_free": 1},
        {"pinned": Pinned(frozenset({1, 5}), (5,)), "free": [6], "blocks_free": 1},
    ),
    (
        "KV-INV-07",
        "pinned without a holder: [], queued as pinned: [1]",
        {"pinned": Pinned(frozenset({1}), (1,))},
        {"pinned": Pinned(frozenset({1}))},
    ),
    (
        "KV-INV-07",
        "pinned without a holder: [5], queued as pinned: [5, 5]",
        {"pinned": Pinned(frozenset({5}), (5, 5)), "free": [6], "blocks_free": 1},
        {"pinned": Pinned(frozenset({5, 6}), (6, 5)), "free": [], "blocks_free": 0, "begun": {6}},
    ),
    (
        "KV-INV-07",
        "block 6 is pinned, and no hit can use it",
        {"pinned": Pinned(frozenset({6}), (6,)), "free": [5], "blocks_free": 1},
        {"pinned": Pinned(frozenset({6}), (6,)), "free": [5], "blocks_free": 1, "begun": {6}},
    ),
    (
        "KV-INV-08",
        "the free queue [5, 6] has a cached block before a scratch one",
        {"free": [5, 6], "scratch_first": True},
        {"free": [6, 5], "scratch_first": True},
    ),
    (
        "KV-INV-08",
        "the free queue [6, 5] has a cached block before a scratch one",
        {**LESS, "free": [6, 5], "begun": {6}, "scratch_first": True},
        {**LESS, "free": [6, 5], "begun": {5}, "scratch_first": True},
    ),
    (
        "KV-INV-09",
        f"block 5 has no holder, and {Copy(0, 1, 5, 2)} is not dispatched",
        {"copies": (Copy(0, 1, 5, 2),), "references": [0, 3, 1, 1, 1, 0, 0]},
        {"copies": (Copy(0, 1, 2, 2),), "references": [0, 3, 1, 1, 1, 0, 0]},
    ),
]


@pytest.mark.parametrize(("statement", "detail", "broken", "control"), BROKEN)
def test_each_invariant_alone(statement: str, detail: str, broken: dict[str, Any], control: dict[str, Any]) -> None:
    """Goal: each check finds its own violation and no other's. Method: change the sound state so that exactly one
    statement breaks; also make a similar change that keeps all.
    """
    assert [statement] == ids(changed(broken))
    assert detail in [violation.detail for violation in check(changed(broken))]
    assert [] == check(changed(control))


def test_every_invariant_has_its_negative_control() -> None:
    """Goal: no invariant is checked without proof that the check can fail. Method: compare with the statements."""
    invariants = [statement for statement in STATEMENTS if statement.startswith("KV-INV")]
    assert invariants == sorted({statement for statement, *_ in BROKEN})


def test_a_source_without_a_holder() -> None:
    """Goal: a copy never reads what may be recycled. Method: it reads block 5, of which nothing is said to be held."""
    assert ["KV-INV-01", "KV-INV-09"] == ids(changed({"copies": (Copy(0, 5, 2, 2),)}))


def test_only_a_promise_is_held_to() -> None:
    """Goal: without scratch first, order is not an invariant. Method: the order that breaks the promise, and nothing is
    promised.
    """
    assert [] == check(changed({"free": [5, 6]}))


def test_all_violations_are_reported() -> None:
    """Goal: one finding does not hide another. Method: break three statements at once."""
    broken = {"references": [0, 1, 1, 1, 1, 0, 0], "blocks_free": 9, "contents": ["c", *SOUND.contents[1:]]}
    assert ["KV-INV-01", "KV-INV-03", "KV-INV-05", "KV-INV-06"] == ids(changed(broken))
