"""The two sources of choices.

Goal: a seed means the same everywhere, and a percentage means what it says. Method: draw many, count, and compare
with another process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

from hypothesis import HealthCheck, Phase, find, given, settings

from kvgate.adapters.reference import Reference
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.gate.machine import cases_of, operations_of
from kvgate.kernel.models import MODELS
from kvgate.kernel.random_source import Seeded
from kvgate.levels.manager import MANAGER, Bench
from kvreference.operations import Admit, Evict, Operation

DRAWS = 10_000
GENERATOR = Generator(PRESETS["tiny"], MODELS["full"].geometry)
CASES, CASE = cases_of(Bench(Reference), GENERATOR), MANAGER.set_up(GENERATOR, Seeded("x"))
PROGRAM = """
from kvgate.kernel.random_source import Seeded
draw = Seeded('x')
print([draw.integer(0, 999) for _ in range(20)])
"""


def test_a_seed_stands_for_its_choices() -> None:
    """The same seed twice, and another."""
    drawn = [[draw.integer(0, 999) for _ in range(20)] for draw in map(Seeded, ("x", "x", "y"))]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_seed_means_the_same_in_another_process() -> None:
    """With another hash seed for strings."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    draw = Seeded("x")
    assert str([draw.integer(0, 999) for _ in range(20)]) == finished.stdout.strip()


def test_integers_are_drawn_from_the_whole_range() -> None:
    """Both ends included, each about as often."""
    draw = Seeded("x")
    counts = Counter(draw.integer(3, 7) for _ in range(DRAWS))
    assert {3, 4, 5, 6, 7} == set(counts)
    assert min(counts.values()) > DRAWS // 5 * 0.9


def test_a_chance_is_a_percentage() -> None:
    """Never at 0, always at 100, in between about as often as it says."""
    draw = Seeded("x")
    assert 0 == sum(draw.chance(0) for _ in range(DRAWS))
    assert DRAWS == sum(draw.chance(100) for _ in range(DRAWS))
    assert 2700 < sum(draw.chance(30) for _ in range(DRAWS)) < 3300


def test_options_are_drawn_alike() -> None:
    """Each about as often."""
    draw = Seeded("x")
    counts = Counter(draw.one_of("abcd") for _ in range(DRAWS))
    assert set("abcd") == set(counts)
    assert min(counts.values()) > DRAWS // 4 * 0.9


@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CASES, operations_of(Admit, GENERATOR, CASE))
def test_hypothesis_draws_what_the_generator_draws(drawn: Case, operation: Operation) -> None:
    """Values of the same kind, within the same limits."""
    assert MODELS["full"].geometry == drawn.settings.geometry
    assert 1 <= drawn.settings.chunk_tokens <= GENERATOR.prompt_max < drawn.settings.tokens_max
    assert isinstance(operation, Admit)
    assert 1 <= operation.tokens <= GENERATOR.prompt_max


def test_hypothesis_shrinks_towards_no() -> None:
    """The simplest settings that may be: no chance is taken, and no number is larger than it must be."""
    found = find(
        CASES.map(lambda case: case.settings),
        lambda drawn: drawn.blocks > 3,
        settings=settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=200,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert (True, False, 0, 1) == (
        found.caches,
        found.full_sequence_must_fit,
        found.drafts_max,
        found.requests_max,
    )
    smallest = find(
        operations_of(Evict, GENERATOR, CASE),
        lambda _operation: True,
        settings=settings(derandomize=True, database=None, deadline=None, max_examples=2000),
    )
    assert Evict(1) == smallest
