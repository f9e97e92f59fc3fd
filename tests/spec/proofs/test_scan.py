"""The scan of the proofs finds the hits of the reference, and the scans that are refuted do not.

Goal: rows, scan and the reference's own search agree on what a block manager really holds, beyond the sizes that are
proved. Method: prompts computed and partly evicted at random, looked up by the reference and scanned; and the refuted
scans, run on the same cases and replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from kvgate.findings.register import with_ids
from kvreference.answers import Hit
from kvreference.choices import Choices
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Evict, Finish, LookUp, Run
from kvreference.rules import Rules
from kvreference.settings import Settings
from kvspec import hit_scan
from kvspec.hit_scan import MakeRow, Row, as_cached, scanned, searched
from kvspec.obligation import Mutant
from kvspec.proofs import hit_lookup
from kvspec.prover import prove
from kvspec.refuted.replay import Refuted, Replay
from kvspec.refuted.scans import SCANS, CutBeforeDrop, DropAgain, DropOnce, TakenForFull

CASES = 1000
TOKENS_MAX = 60
DESIGNS: tuple[MakeRow, ...] = (DropAgain, DropOnce, CutBeforeDrop, TakenForFull)
SAID = {
    "drop-on-every-visit": (6, "a hit of 0 tokens", "a hit of 2 tokens"),
    "drop-remembered": (7, "a hit of 2 tokens", "a hit of 0 tokens"),
    "cut-before-drop": (5, "a hit of 0 tokens", "a hit of 4 tokens"),
    "window-taken-for-full": (7, "a hit of 2 tokens", "a hit of 0 tokens"),
}
"""How many operations the trace has, and the hits of the scan and of the reference."""


def held(seed: int) -> tuple[Manager, Hit]:
    """A manager that has part of a prompt cached, and the hit of the next request with that prompt, number 1."""
    random = Random(seed)
    sizes = random.choice([(2, 2, 2), (4, 2, 2), (2, 4, 2), (4, 2, 4), (3, 2, 2)])
    windows = [Group("sliding_window", size, random.randint(2, 14), lookahead=random.random() < 0.6) for size in sizes]
    groups = (Group("full", sizes[0], lookahead=random.random() < 0.5), *windows[1 : random.randint(2, 3)])
    manager = Manager(Settings(Geometry(groups), blocks=128, chunk_tokens=TOKENS_MAX))
    tokens = random.randint(2, TOKENS_MAX)
    for operation in (Arrive(0, (Run(0, tokens),)), Admit(0, tokens), Finish(0)):
        manager.apply(operation)
    for _ in range(random.randint(0, 9)):
        manager.apply(Evict(random.randint(1, 3 * tokens // 2)))
    manager.apply(Arrive(1, (Run(0, random.randint(tokens, tokens + 3)),)))
    hit = manager.apply(LookUp(1))
    assert isinstance(hit, Hit)
    return manager, hit


@pytest.fixture(scope="module")
def cases() -> list[tuple[Manager, Hit]]:
    """Many of them."""
    return [held(seed) for seed in range(CASES)]


def differing(cases: list[tuple[Manager, Hit]], make: MakeRow) -> Iterator[tuple[int, int]]:
    """Where the scan's hit is not the reference's: both hits."""
    for manager, hit in cases:
        found = as_cached(manager, 1).found(make)
        assert isinstance(found, int)
        if found != hit.tokens:
            yield found, hit.tokens


def test_the_scan_finds_the_hit_of_the_reference(cases: list[tuple[Manager, Hit]]) -> None:
    """After any evictions; and hits of many lengths are among them."""
    assert [] == list(differing(cases, Row))
    assert len({hit.tokens for _, hit in cases}) > 10


@pytest.mark.parametrize("make", DESIGNS)
def test_a_refuted_scan_does_not(cases: list[tuple[Manager, Hit]], make: MakeRow) -> None:
    """On the same cases, each is seen to differ."""
    assert list(differing(cases, make))


# The scan of any groups


def serving(lengths: set[int]) -> Callable[[Any], bool]:
    """A group that serves these lengths, and 0."""
    return lambda tokens: tokens == 0 or tokens in lengths


def longest_common(seed: int) -> tuple[int, int]:
    """The scan's result on groups that answer by the plain search, and the expected one."""
    random = Random(seed)
    alignment, tokens = random.choice((1, 4, 16)), random.randint(1, 200)
    multiples = range(0, tokens + alignment, alignment)
    groups = [
        {length for length in multiples if random.random() < 0.8 or length == 0} for _ in range(random.randint(1, 4))
    ]
    asked = [partial(searched, serving(lengths), alignment_tokens=alignment) for lengths in groups]
    found = scanned(asked, tokens, alignment)
    assert isinstance(found, int)
    return found, max(length for length in set.intersection(*groups) if length < tokens)


def drift() -> str:
    """The first case in which the scan does not find the longest common length; nothing if it always does."""
    for seed in range(200):
        found, right = longest_common(seed)
        if found != right:
            return f"seed {seed}: {found}, not {right}"
    return ""


def test_the_scan_finds_the_longest_common_length() -> None:
    """Of up to four groups, for any cached blocks."""
    assert "" == drift()


MUTANTS = {
    mutant.name: mutant
    for obligation in hit_lookup.OBLIGATIONS
    for mutant in obligation.mutants
    # The mutants of the rows are not among them: the groups below answer without rows.
    if all(re.match("kvspec.hit_scan:(?!Row)", each.target) for each in mutant.patches)
    # This one loops permanently, as it should; the proof finds that.
    and mutant.name not in ("nobody-counts", "one-asked-twice")
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_an_injected_drift_is_seen(mutant: Mutant) -> None:
    """Each mutant of the scan finds another length somewhere, or looks below 0."""
    with mutant.applied(), pytest.MonkeyPatch.context() as patched:
        lowered = hit_scan.lowered

        def bounded(hit_tokens: int, alignment_tokens: int) -> int:
            assert hit_tokens > -1000, "it looks below 0"
            result = lowered(hit_tokens, alignment_tokens)
            assert isinstance(result, int)
            return result

        patched.setattr(hit_scan, "lowered", bounded)
        try:
            drifted = drift()
        except AssertionError as error:
            drifted = str(error)
    assert drifted


# The counterexamples of z3


def refuted(design: Refuted) -> Replay:
    """The counterexample of z3, run."""
    proof = prove(design.obligation)
    assert proof.counterexample is not None
    return design.replay(proof.counterexample)


@pytest.fixture(scope="module")
def replays() -> dict[str, Replay]:
    """The replay of each design."""
    return {design.name: refuted(design) for design in SCANS}


def test_what_both_come_to(replays: dict[str, Replay]) -> None:
    """In so many operations."""
    assert SAID == {name: (len(each.operations), each.design, each.sound) for name, each in replays.items()}


def test_nothing_in_a_trace_is_idle(replays: dict[str, Replay]) -> None:
    """Without any one of its evictions, the scan and the reference agree."""
    for design, make in zip(SCANS, (DropAgain, DropOnce, CutBeforeDrop, TakenForFull), strict=True):
        replay = replays[design.name]
        for evicted in (operation for operation in replay.operations if isinstance(operation, Evict)):
            manager = Manager(replay.settings)
            for operation in replay.operations:
                answer = None if operation is evicted else manager.apply(operation)
            assert isinstance(answer, Hit)
            assert answer.tokens == as_cached(manager, 1).found(make)


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("drop-remembered", "005-lookahead-verified-at-another-length"),
        ("cut-before-drop", "006-aligned-before-the-drop"),
    ],
)
def test_a_finding_shows_in_its_trace(replays: dict[str, Replay], name: str, finding: str) -> None:
    """With findings 005 and 006, the reference's look-up gives the design's answer."""
    settings = replays[name].settings
    (known,) = with_ids([finding])
    manager = Manager(settings, Choices(rules=Rules(known.acts(settings, "").deltas)))
    *_, hit = (manager.apply(operation) for operation in replays[name].operations)
    assert isinstance(hit, Hit)
    assert replays[name].design == f"a hit of {hit.tokens} tokens"
