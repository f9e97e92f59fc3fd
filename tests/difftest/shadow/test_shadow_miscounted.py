"""Finding 014 with a load: the counter of vLLM's pool stays off, and the live checker expects it."""

from __future__ import annotations

import pytest

from kvgate.findings import register
from kvgate.findings.modelled import live_reference
from kvgate.findings.register import FOLDER, folder_of
from kvgate.levels.registry import read
from kvgate.shadow.calls import (
    After,
    Allocated,
    Arrived,
    Checkpoint,
    Evicted,
    Freed,
    LookedUp,
    Registered,
    Restart,
    Stored,
)
from kvgate.shadow.order_agnostic_reference import OrderAgnosticReference
from kvgate.shadow.shadow_checker import ShadowChecker
from kvreference.answers import Hit

FINDING = "014-second-full-group-not-cut"
SETTINGS = read(FOLDER / folder_of(FINDING) / "trace-load.jsonl").header.settings
GRAIN_TOKENS = SETTINGS.geometry.grain_tokens
DIGESTS = [index.to_bytes(16, "big") for index in range(128 // GRAIN_TOKENS)]
EMPTY = Checkpoint([0] * SETTINGS.blocks, list(range(1, SETTINGS.blocks)), {}, [], [])


class Engine:
    """A block manager with the finding, called step by step."""

    def __init__(self) -> None:
        # Its rules are its own: the checker's count for themselves.
        self.state = OrderAgnosticReference.at(SETTINGS, EMPTY, live_reference(SETTINGS, "stock", "0.20.2").choices)
        self.miscounted = 0
        self.calls: list[Stored] = [EMPTY]

    def after(self) -> After:
        """The observed state of the pool."""
        state = self.state
        return After(len(state.pool.free) + self.miscounted, state.contents_cached, state.last_free(4))

    def arrive(self, number: int, tokens: int) -> Hit:
        """A request is there, and is looked up."""
        self.calls.append(Arrived(number, tokens, tokens, True, DIGESTS))
        self.state.arrive(Arrived(number, tokens, tokens, True, DIGESTS))
        hit: Hit = self.state.hit(number, was_preempted=False)
        self.calls.append(LookedUp(number, hit.tokens, [list(blocks) for blocks in hit.blocks], False))
        return hit

    def allocate(self, number: int, tokens: int, external_tokens: int, hit: Hit) -> None:
        """A request is admitted."""
        asked = (number, 0, tokens, 0, 0, external_tokens, external_tokens > 0, True)
        self.state.allocate(Allocated(*asked, None, True, (), [], After(0, 0, ())), hit)
        given = [list(table.blocks) for table in self.state.tables[number]]
        registered = [Registered(group, at, [block]) for group, at, block in self.state.take_registered(number)]
        nulls = self.state.entries_freed(number)
        self.calls.append(Allocated(*asked, given, True, nulls, registered, self.after()))

    def evict(self, block: int) -> None:
        """The block cannot be hit any more."""
        self.state.pool.evict(block)
        self.calls.append(Evicted([block], self.after()))

    def free(self, number: int) -> None:
        """A request is over."""
        self.state.free(number)
        self.state.leave(number)
        self.calls.append(Freed(number, True, self.after()))


def loaded(miscounted: int) -> Engine:
    """The finding's trace, with an engine that counts so many blocks too many."""
    engine = Engine()
    engine.allocate(0, 128, 0, engine.arrive(0, 128))
    engine.evict(10)
    engine.evict(14)
    hit = engine.arrive(1, 129)
    assert (0, 2) == (hit.tokens, len(hit.blocks[1]))
    engine.miscounted = miscounted
    engine.allocate(1, 0, 64, hit)
    return engine


def found(engine: Engine) -> tuple[dict[str, int], list[tuple[str, str, str]]]:
    """How often a finding acted, and the differences that a checker finds in an engine."""
    checker = ShadowChecker(SETTINGS)
    differences = [finding.difference for record in engine.calls for finding in checker.follow(record)]
    return dict(checker.known.times), [(each.statement, each.expected, each.got) for each in differences]


@pytest.mark.parametrize(
    ("miscounted", "differences"),
    [
        pytest.param(1, [], id="as vLLM counts"),
        pytest.param(0, [("KV-OP-05", "48", "47")], id="as it should count"),
        pytest.param(2, [("KV-OP-05", "48", "49")], id="another fault"),
        pytest.param(-1, [("KV-OP-05", "48", "46")], id="the other way"),
    ],
)
def test_the_miscount_after_a_load_is_expected(miscounted: int, differences: list[tuple[str, str, str]]) -> None:
    """Goal: the finding is counted, and any other count is a difference. Method: its trace, with several counts."""
    assert ({FINDING: 1}, differences) == found(loaded(miscounted))


def test_without_its_folder_the_finding_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: its folder holds all that a live engine's finding is known by. Method: hide it."""
    engine = loaded(1)
    there = tuple(name for name in register.folders() if register.id_of(name) != FINDING)
    monkeypatch.setattr("kvgate.findings.register.folders", lambda: there)
    times, differences = found(engine)
    assert ({}, ["KV-OP-02", "KV-OP-05"]) == (times, [statement for statement, _, _ in differences])


def test_the_counter_stays_off() -> None:
    """Goal: it is expected from then on. Method: go on, then a gap and a checkpoint, and go on; at last it is off by
    one more."""
    engine = loaded(1)
    engine.free(1)
    engine.free(0)
    engine.calls += [Restart(0, "a gap"), EMPTY]
    engine.state = OrderAgnosticReference.at(SETTINGS, EMPTY)
    engine.evict(1)
    assert ({FINDING: 1}, []) == found(engine)
    engine.miscounted = 2
    engine.evict(2)
    assert ({FINDING: 1}, [("KV-OP-10", "100", "101")]) == found(engine)
