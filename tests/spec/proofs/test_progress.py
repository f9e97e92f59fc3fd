"""Progress: what is proved over counts is so over blocks, and each scheduler that is refuted hangs in fact."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from attrs import evolve

from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings
from kvreference.operations import Abort, Arrive, Run, Transferred
from kvreference.prefix_cache import PrefixCache
from kvreference.refuted.scheduling import FirstIsPreempted, UnreservedLoad
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.maps import FiniteMap
from kvspec.obligation import Tier, executed
from kvspec.progress import promised
from kvspec.progress.counted import (
    BUILT_IN,
    Counted,
    CountedHoldings,
    SideBySide,
    least,
    length_of,
    most,
)
from kvspec.progress.promised import ASKED, PREDICATES, PROMISES, AnyHit, Promised
from kvspec.proofs import scheduler_promises
from kvspec.proofs.scheduler_steps import OTHER
from kvspec.prover import Verdict, prove
from kvspec.refuted.admission import HANGS, SIZES_MAX
from kvspec.refuted.replay import Refuted
from kvspec.registry import obligations

FULL = Group("full", 2)
GEOMETRIES = (
    (Geometry((FULL,)), 0),
    (Geometry((Group("full", 2, lookahead=True),)), 3),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 4))), 0),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 3, lookahead=True))), 2),
    (Geometry((FULL, Group("chunked_local", 2, 4))), 1),
    (Geometry((FULL, Group("mamba", 4, states="all", draft_states=1))), 1),
)
"""Each with the drafts that it is proposed."""


def pair_at_random(chance: random.Random, kind: type[Scheduler] = Scheduler) -> SideBySide:
    """Small pools, so that requests are in each other's way."""
    geometry, drafts_max = chance.choice(GEOMETRIES)
    settings = Settings(
        geometry,
        chance.choice([5, 7, 9, 14]),
        tokens_max=chance.choice([10, 16]),
        chunk_tokens=chance.choice([2, 3, 16]),
        requests_max=chance.choice([3, 5]),
        drafts_max=drafts_max,
        caches=False,
        full_sequence_must_fit=chance.random() < 0.5,
    )
    return SideBySide(settings, Limits(chance.choice([1, 4, 8, 64]), chance.choice([1, 3, 5])), kind)


def operation_at_random(chance: random.Random) -> Operation:
    """Mostly steps; offers and transfers of every kind."""
    kind = chance.choices(["submit", "step", "transferred", "abort"], [25, 55, 17, 3])[0]
    if kind == "submit":
        return Submit(
            Arrive(0, (Run(0, chance.randint(1, 9)),)),
            answers_max=chance.choice([1, 3, 8]),
            external_tokens=chance.choice([0, 2, 4, 9]),
            loads=chance.random() < 0.6,
            sends=chance.random() < 0.2,
        )
    if kind == "step":
        return Step((Reply(chance.choice([0, 1, 3]), 7, chance.choice([0, 3]), chance.random() < 0.05),))
    number = chance.randint(0, 9)
    return Abort(number) if kind == "abort" else Transferred(number, chance.random() < 0.7)


def first_difference(seeds: int, operations: int, kind: type[Scheduler] = Scheduler) -> tuple[int, list[str]]:
    """How many operations were performed on both until they differed, and how they did; nothing if they never did."""
    performed = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        both = pair_at_random(chance, kind)
        for _ in range(operations):
            operation = both.reference.resolve(operation_at_random(chance))
            if operation is None:
                continue
            performed += 1
            found = both.apply(operation)
            if found:
                return performed, found
    return performed, []


@pytest.mark.ci
def test_counts_follow_the_blocks() -> None:
    """Goal: the proofs over counts hold of the reference. Method: seeded runs of both, on every kind of group that can
    be counted; each answer and each state is compared, completely.
    """
    performed, found = first_difference(seeds=60, operations=140)
    assert [] == found
    assert performed > 6000


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [UnreservedLoad, FirstIsPreempted])
def test_a_scheduler_that_drifts_is_noticed(kind: type[Scheduler]) -> None:
    """Goal: a change of the scheduler over blocks shows. Method: its rule is another one, that over counts is not."""
    assert [] != first_difference(60, 140, kind)[1]


def test_a_block_manager_that_drifts_is_noticed() -> None:
    """Goal: a change in which blocks are freed shows. Method: windows keep blocks that are never read, in
    the reference.
    """
    with patch("kvreference.holdings.Holdings.release_dead", lambda self, request, computed: None):
        assert [] != first_difference(20, 140)[1]


@pytest.mark.parametrize("name", ["release_dead", "release_all", "passes_gate"])
def test_counts_that_drift_are_noticed(name: str) -> None:
    """Goal: a change of the counting shows. Method: nothing is given back, or the gate is always open."""
    with patch.object(CountedHoldings, name, lambda *_: True):
        assert [] != first_difference(60, 140)[1]


def test_what_cannot_be_counted_is_rejected() -> None:
    """Goal: no comparison of what is not counted. Method: caching; states at block ends only."""
    for settings in (
        Settings(Geometry((FULL,)), 5),
        Settings(Geometry((FULL, Group("mamba", 2, states="align"))), 5, caches=False),
    ):
        with pytest.raises(ValueError, match="nothing is counted"):
            SideBySide(settings, Limits())


CACHED: tuple[tuple[Geometry, int, dict[str, Any]], ...] = (
    *((geometry, drafts, {}) for geometry, drafts in GEOMETRIES),
    (Geometry((Group("full", 4), Group("sliding_window", 2, 4))), 0, {"pin_drop_blocks_min": 1}),
    (Geometry((Group("full", 4, unit_tokens=2),)), 0, {}),
    (Geometry((FULL, Group("mamba", 4, states="align", draft_states=1))), 1, {}),
)
"""Each with its drafts and more settings: with prefix caching, pins, copies and states at block ends."""


def _scheduler_at_random(chance: random.Random) -> Scheduler:
    geometry, drafts_max, more = chance.choice(CACHED)
    settings = Settings(
        geometry,
        chance.choice([5, 7, 9, 14, 20]),
        tokens_max=chance.choice([10, 16]),
        chunk_tokens=chance.choice([2, 3, 16]),
        requests_max=chance.choice([3, 5]),
        drafts_max=drafts_max,
        **more,
    )
    return Scheduler(settings, Limits(chance.choice([1, 4, 8, 64]), chance.choice([1, 3, 5])))


def _not_so(made: Scheduler) -> list[str]:
    """Which of the assumptions of a round of a step are not so in this state."""
    pool, terms, usable = made.manager.pool, made.queues.terms, made.settings.blocks - 1
    held = {number: sum(len(table.live()) for table in tables) for number, tables in made.manager.tables.items()}
    needed = {number: made._blocks_to_run(its.limit_tokens - 1) for number, its in terms.items()}
    locked = {n: held[n] for n in held if n in terms and n not in made.queues.running}
    entered = [terms[number].entered for number in made.queues.waiting]
    at_once = {n: needed[n] + sum(locked.values()) - locked.get(n, 0) for n in terms if terms[n].entered}
    cache: Any = made.manager.cache
    so = {
        "what is not held can be had": len(pool.free) + len(pool.pinned_blocks().queue) + sum(held.values()) >= usable,
        "none holds more than it needs": all(held.get(number, 0) <= needed[number] for number in terms),
        "each fits the empty pool": max(needed.values(), default=0) <= usable,
        "there is room for each that was admitted": max(at_once.values(), default=0) <= usable,
        "none may become longer than the longest": all(
            t.limit_tokens <= made.settings.tokens_max for t in terms.values()
        ),
        "those that were admitted wait before the others": entered == sorted(entered, reverse=True),
        "nothing waits for the next step": not (made.manager.copies or cache.fenced or made.manager.holdings.deferred),
    }
    return [name for name, is_so in so.items() if not is_so]


def test_what_is_assumed_of_every_state_is_so() -> None:
    """Goal: the induction is about what is reachable. Method: seeded runs over blocks, with caching; after each
    operation holds what the proofs of rounds assume. Where no block is shared, a missing one is noticed.
    """
    seen = noticed = 0
    for seed in range(150):
        chance = random.Random(seed)
        made = _scheduler_at_random(chance)
        for _ in range(100):
            operation = made.resolve(operation_at_random(chance))
            if operation is not None:
                made.apply(operation)
                seen += len(made.queues.terms) > 1
                assert ([], seed) == (_not_so(made), seed)
        made.settings = evolve(made.settings, blocks=made.settings.blocks + 1)
        noticed += "what is not held can be had" in _not_so(made)
    assert (True, True) == (seen > 5000, noticed > 100)


def test_without_a_guard_it_is_not_so() -> None:
    """Goal: the check of assumptions can fail. Method: the same runs with loads that begin without room."""
    found = set[str]()
    with patch.object(Scheduler, "_leaves_room", lambda *_: True):
        for seed in range(40):
            chance = random.Random(seed)
            made = _scheduler_at_random(chance)
            for _ in range(60):
                operation = made.resolve(operation_at_random(chance))
                if operation is not None:
                    made.apply(operation)
                    found.update(_not_so(made))
    assert {"there is room for each that was admitted"} == found


def test_what_is_promised_is_proved_of_the_code_that_runs() -> None:
    """Goal: no promise about the holdings or the cache without its proof. Method: each method of what stands for them,
    and each predicate, has obligations of tier P; each runs the method of the reference, is broken by the broken
    stand-in, and by a stronger predicate.
    """
    methods = {
        f"{kind.__name__}.{name}": f"{running.__module__.removeprefix('kvreference.')}:{running.__name__}.{name}"
        for kind, running in ((Promised, Holdings), (AnyHit, PrefixCache))
        for name, method in vars(kind).items()
        if isinstance(method, FunctionType) and not name.startswith("_")
    }
    predicates = {each.__name__: each for each in PREDICATES}
    assert {*methods, *predicates} == {*PROMISES}
    for promise, names in PROMISES.items():
        proofs = [obligations()[name] for name in names]
        assert {Tier.ALL} == {proof.tier for proof in proofs}, promise
        assert promise not in methods or all(methods[promise] in executed()[name] for name in names), promise
        module = scheduler_promises if promise in predicates else promised
        breaks = f"{module.__name__}:{promise}"
        assert any(patch_.target == breaks for proof in proofs for mutant in proof.mutants for patch_ in mutant.patches)


def _read_of_unknowns(node: ast.AST) -> Iterator[str]:
    """The attributes of unknowns that are read, but not in witnesses: these only show that a case is possible."""
    if isinstance(node, ast.keyword) and node.arg == "witnesses":
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "u":
        yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from _read_of_unknowns(child)


def _made_of_what_is_asked(node: ast.AST) -> Iterator[str]:
    """What the numbers that ``asked_of`` gives are passed to, and which of them are read by their names."""
    for each in ast.walk(node):
        names = {name.id for name in ast.walk(each) if isinstance(name, ast.Name)}
        if isinstance(each, ast.Call) and "asked_of" in names:
            yield ast.unparse(each.func)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "asked":
            yield each.attr


OF_SCHEDULER = ("limits", "line", "ranking", "room", "steps", "bounds")


@pytest.mark.parametrize("name", OF_SCHEDULER)
def test_nothing_else_is_assumed_of_what_is_asked(name: str) -> None:
    """Goal: proofs of the scheduler assume no more of what a request asks for than the predicates. Method: in their
    source the unknowns are read through ``asked_of`` alone, which is passed to what stands for the holdings, or to a
    predicate; of its numbers only two are read: what can be had, and what is held, after a release.
    """
    source = Path(str(import_module(f"kvspec.proofs.scheduler_{name}").__file__)).read_text(encoding="utf-8")
    tree = ast.parse(source)
    asked = {f"{number}{suffix}" for number in ASKED for suffix in ("", "1")}
    assert [] == [read for read in _read_of_unknowns(tree) if read in asked]
    used = set(_made_of_what_is_asked(tree))
    known = {"asked_of", "Promised", "SimpleNamespace", "stays_within", "freed", "left"}
    assert used <= known, used - known


def test_what_is_assumed_of_what_is_asked_is_noticed() -> None:
    """Goal: the test before can fail. Method: a claim that reads an unknown by itself, and one that reads a number."""
    assert ["takes", "free"] == list(_read_of_unknowns(ast.parse("f(lambda u: u.takes <= u.free, witnesses={u.gets})")))
    assert {"f", "asked_of", "gate"} == set(_made_of_what_is_asked(ast.parse("f(asked.gate, asked_of(u))")))


def test_the_smaller_of_two_is_the_smaller() -> None:
    """Goal: the replacements of Python's own functions agree with them. Method: all small pairs and lists."""
    assert {"len", "min", "max"} == set(BUILT_IN)
    for first, second in product(range(-2, 3), repeat=2):
        assert (min(first, second), max(first, second)) == (least(first, second), most(first, second))
    assert (3, 5) == (length_of([1, 2, 3]), length_of(Counted(5)))


@pytest.mark.parametrize("refuted", HANGS, ids=lambda refuted: str(refuted.name))
def test_a_design_hangs_as_z3_says(refuted: Refuted) -> None:
    """Goal: z3's sizes lead to the hang in fact. Method: they are submitted to the design and to the reference, over
    blocks: one hangs, the other one does not.
    """
    proof = prove(refuted.obligation)
    assert (Verdict.REFUTED, True) == (proof.verdict, proof.confirmed)
    assert proof.counterexample is not None
    replay = refuted.replay(proof.counterexample)
    assert replay.shows_it
    assert "hangs" in replay.design or "loses" in replay.design
    assert not any(word in replay.sound for word in ("hangs", "loses"))
    assert len(replay.operations) <= 8


@pytest.mark.parametrize("refuted", HANGS, ids=lambda refuted: str(refuted.name))
def test_nothing_smaller_hangs(refuted: Refuted) -> None:
    """Goal: z3's sizes are the smallest, by their sum. Method: all that are smaller are tried, as ints."""
    values = prove(refuted.obligation).counterexample
    assert values is not None
    obligation, names = refuted.obligation, list(values)
    for sizes in product(range(1, SIZES_MAX + 1), repeat=len(names)):
        smaller = SimpleNamespace(**dict(zip(names, sizes, strict=True)))
        if sum(sizes) < sum(values.values()) and obligation.assumes(smaller):
            assert obligation.claim(smaller), smaller


def test_a_hang_needs_its_sizes() -> None:
    """Goal: a replay does not call everything a hang. Method: the same two loads in a pool with a block more."""
    unreserved = next(each for each in HANGS if each.name == "load-unreserved")
    sizes = {"blocks": 3, "tokens0": 2, "answers0": 1, "external0": 1, "tokens1": 2, "answers1": 1, "external1": 1}
    assert "hangs" in unreserved.replay({**sizes, "blocks": 2}).design
    assert not unreserved.replay(sizes).shows_it


def test_a_state_is_checked_as_numbers_too() -> None:
    """Goal: the proof of operations claims the same of ints. Method: one request that runs is answered, next to one
    that is back from a load; a pool that is a block too small is not a state.
    """
    names = (*ASKED, "free", "rest", "sent", "accepted", "external", "alive", "parks", "sends")
    values = {**dict.fromkeys(names, 0), "own": 2, "its": 1, "blocks": 3, "computed": 3, "tokens": 3, "limit": 4}
    values |= {"chunk": 1, "prompt": 1, "answers": 1, "tokens_max": 4, "its_limit": 3, "operation": 1, "place": 4}
    state = SimpleNamespace(**values, first=1, runs=0, ends=0, needs=FiniteMap({2: 2, 3: 2}))
    assert OTHER.assumes(state)
    assert OTHER.claim(state)
    assert not OTHER.assumes(SimpleNamespace(**{**vars(state), "blocks": 2}))
