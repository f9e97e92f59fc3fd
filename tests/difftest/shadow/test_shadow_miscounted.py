"""Finding 014 behind a load: the counter of vLLM's pool stays off, and the live judge knows why."""

from __future__ import annotations

import pytest
from kvgate.findings.explaining import live_with

from kvgate.findings import register
from kvgate.findings.f014_second_full_group_not_cut import SecondGroupUncut
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
    """A block manager with the finding, told call by call."""

    def __init__(self) -> None:
        self.state = OrderAgnosticReference.at(SETTINGS, EMPTY)
        self.miscounted = 0
        self.calls: list[Stored] = [EMPTY]

    def after(self) -> After:
        """What is seen of the pool."""
        state = self.state
        return After(len(state.pool.free) + self.miscounted, state.contents_cached, state.last_free(4))

    def arrive(self, number: int, tokens: int) -> Hit:
        """A request is there, and is looked up."""
        self.calls.append(Arrived(number, tokens, tokens, True, DIGESTS))
        self.state.arrive(Arrived(number, tokens, tokens, True, DIGESTS))
        hit: Hit = live_with(SecondGroupUncut, self.state)._hit(self.state.population[number])
        self.calls.append(LookedUp(number, hit.tokens, [list(blocks) for blocks in hit.blocks], False))
        return hit

    def allocate(self, number: int, tokens: int, external_tokens: int, hit: Hit) -> None:
        """A request is let in."""
        asked = (number, 0, tokens, 0, 0, external_tokens, external_tokens > 0, True)
        self.state.allocate(Allocated(*asked, None, True, (), [], After(0, 0, ())), hit)
        given = [list(table.blocks) for table in self.state.tables[number]]
        registered = [Registered(group, at, [block]) for group, at, block in self.state.take_registered(number)]
        nulls = self.state.entries_freed(number)
        self.calls.append(Allocated(*asked, given, True, nulls, registered, self.after()))

    def evict(self, block: int) -> None:
        """Nobody finds a block any more."""
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


def found(engine: Engine) -> list[tuple[str, str, str, str | None]]:
    """The differences that a judge tells of an engine."""
    judge = ShadowChecker(SETTINGS)
    told = [finding for record in engine.calls for finding in judge.follow(record)]
    return [(each.difference.statement, each.difference.expected, each.difference.got, each.declared) for each in told]


@pytest.mark.parametrize(
    ("miscounted", "told"),
    [
        pytest.param(1, [("KV-INV-03", "47", "48", FINDING)], id="as vLLM counts"),
        pytest.param(0, [], id="as it should count"),
        pytest.param(2, [("KV-OP-05", "47", "49", None)], id="another fault"),
        pytest.param(-1, [("KV-OP-05", "47", "46", None)], id="the other way"),
    ],
)
def test_the_miscount_behind_a_load_is_known(miscounted: int, told: list[tuple[str, str, str, str | None]]) -> None:
    """Goal: a known fault is declared, and no other is. Method: the trace of the finding, counted in several ways."""
    (hit, *behind) = found(loaded(miscounted))
    assert ("KV-OP-02", FINDING) == (hit[0], hit[3])
    assert told == behind


def test_without_its_folder_nothing_of_the_finding_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: its folder holds all that a live engine's finding is recognised by. Method: hide it."""
    there = tuple(name for name in register.folders() if register.id_of(name) != FINDING)
    monkeypatch.setattr("kvgate.findings.register.folders", lambda: there)
    assert [("KV-OP-02", None), ("KV-OP-05", None)] == [(each[0], each[3]) for each in found(loaded(1))]


def test_the_counter_stays_off() -> None:
    """Goal: told once. Method: go on, then a gap and a checkpoint, and go on; at last it is off by one more."""
    engine = loaded(1)
    before = found(engine)
    engine.free(1)
    engine.free(0)
    engine.calls += [Restart(0, "a gap"), EMPTY]
    engine.state = OrderAgnosticReference.at(SETTINGS, EMPTY)
    engine.evict(1)
    assert before == found(engine)
    engine.miscounted = 2
    engine.evict(2)
    assert [*before, ("KV-OP-10", "100", "101", None)] == found(engine)
