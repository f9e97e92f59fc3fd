"""Findings that act in one step.

Goal: each is told where another takes part in the same. Method: both planted into the reference, and vLLM, where it is
installed.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import load_system
from kvgate.findings import explaining
from kvgate.findings.f006_aligned_before_the_drop import AlignedBeforeTheDrop
from kvgate.findings.f010_lookahead_spreads_to_equal_groups import LookAheadSpreads
from kvgate.findings.register import all_findings
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench, run
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Evict, LookUp, Run
from kvreference.settings import Settings


class SpreadsAndAligns(LookAheadSpreads, AlignedBeforeTheDrop, Reference):
    """006 and 010, as a system."""


TWO_AT_ONCE = Settings(
    Geometry(
        (
            Group(Kind.FULL, 32),
            Group(Kind.SLIDING_WINDOW, 16, 64),
            Group(Kind.SLIDING_WINDOW, 16, 64, lookahead=True),
        )
    ),
    blocks=32,
    tokens_max=128,
    chunk_tokens=128,
)
"""Blocks of two sizes, for 006; and two windows that are alike, for 010."""


@pytest.mark.parametrize("system", ["both faults", "stock"])
def test_a_look_up_with_two_findings_is_explained(system: str) -> None:
    """Goal: 010 is told where 006 takes the rest of the same hit. Method: without the first window's block behind 64
    tokens, 64 is right and with 006 too, 010 makes it 32, and both make it 0."""
    if system == "stock":
        pytest.importorskip("vllm")
    factory: Factory = load_system("stock").factory if system == "stock" else SpreadsAndAligns
    operations = (Arrive(0, (Run(0, 81),)), Admit(0, 128), Evict(8), Arrive(1, (Run(0, 82),)), LookUp(1))
    lockstep, (divergence,) = run(Bench(factory), TWO_AT_ONCE, operations)
    hits = [answer.tokens for answer in lockstep.answers if isinstance(answer, Hit)]
    explained = [each.id for each in all_findings() if explaining.explains(each, divergence, lockstep)]
    assert ([64, 0], ["010-lookahead-spreads-to-equal-groups"]) == (hits, explained)
