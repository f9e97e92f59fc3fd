"""vLLM 0.20.2 with the plug-in's partial hits, in lockstep with the reference.

Goal: hits that end inside blocks are those of the reference, with the same copies from the same blocks, together with
drafts, retention, pins, transfers and a minimum. No request ever reads what another one computed for other tokens.
Method: lockstep over generated cases, with ghost memory, which knows the content of every slot. Only differences
declared of vLLM itself may occur. Faults of the plug-in are for `kvgate mutants --sut retention`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.gate.campaign import Campaign, Outcome, Plan
from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.models import load
from kvgate.kernel.protocol import System
from kvgate.levels.manager import Bench
from kvreference.answers import Copies, Hit
from kvreference.content import Keys
from kvreference.operations import Admit, Arrive, Dispatch, LookUp, Run
from kvreference.settings import Settings
from swa_retention.partial.hits import PartialHits

pytest.importorskip("vllm")

PLAIN, DRAFTING, EVERYTHING = (
    "compressed+partial",
    "compressed+eagle+partial",
    "compressed+eagle+partial+pinned=1+retention=16+scratch",
)
MASKED, LOADING, PINNED, WORTHWHILE = (
    "compressed+mtp+partial+masked+scratch",
    "compressed+eagle+partial+transfers",
    "compressed+partial+pinned=1",
    "compressed+eagle+partial+min=48",
)
AGREED = (
    PLAIN,
    MASKED,
    DRAFTING,
    LOADING,
    PINNED,
    EVERYTHING,
    WORTHWHILE,
    "mixed-blocks+mtp+partial+transfers",
    "dsv4-flash+partial",
    "dsv4-flash-ascend-128+mtp+partial",
)
"""Models on which nothing differs that is not declared; the last ones are the published DeepSeek-V4-Flash."""
OPERATIONS = 1500


def campaign(model: str, operations: int = OPERATIONS, kinds: int = 5) -> Outcome:
    """The findings of generated cases, until so many kinds of divergences are found."""
    lanes = tuple(Lane(load(model), preset) for preset in ("tiny", "hostile", "long"))
    plan = Plan(lanes, operations, kinds_max=kinds, shrinks=False)
    return Campaign(Trials(Bench(load_system("retention").factory)), plan).run()


def statements(outcome: Outcome) -> set[str]:
    """The violated guarantees that nothing explains."""
    return {found.divergence.difference.statement for found in outcome.found}


@pytest.mark.few(1)
@pytest.mark.parametrize("model", AGREED)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert set() == statements(campaign(model))


@pytest.mark.ci
def test_hits_do_end_inside_blocks() -> None:
    """Agreement does not mean that nothing happens: copies are made, and hits wait until a step is dispatched."""
    ordered, order = Counter[str](), PartialHits.entered

    def counted(self: PartialHits, request_id: str, tables: Any) -> None:
        before = len(self.pending.copies)
        order(self, request_id, tables)
        ordered["copies"] += len(self.pending.copies) - before

    def fenced(self: PartialHits, hit: Any) -> bool:
        ordered["fenced"] += is_fenced(self, hit)
        return is_fenced(self, hit)

    is_fenced = PartialHits.is_fenced
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialHits, "entered", counted)
        patch.setattr(PartialHits, "is_fenced", fenced)
        campaign(PLAIN, 2 * OPERATIONS)
    assert ordered["copies"] > 50
    assert ordered["fenced"] > 0


# Soundness


def looked_up(system: System, number: int) -> Hit:
    """The hit of a request."""
    hit = system.apply(LookUp(number))
    assert isinstance(hit, Hit)
    return hit


def test_what_diverges_inside_a_block_is_never_shared() -> None:
    """Two prompts share 40 tokens of a block of 64 and then differ: the second is served what is alike, and no more.

    The third shares with the second what the first does not have: it is copied from the second one's block.
    """
    system = load_system("retention").factory(Settings(load(PLAIN).geometry, 200, chunk_tokens=1024))
    prompts = (Run(0, 60),), (Run(0, 40), Run(500, 20)), (Run(0, 40), Run(500, 30))
    found = []
    for number, prompt in enumerate(prompts):
        system.apply(Arrive(number, prompt))
        found.append(looked_up(system, number))
        system.apply(Admit(number, 1024))
        copies = system.apply(Dispatch())
        assert isinstance(copies, Copies)
        assert len(found[-1].partials) == len(copies.copies)
    assert [0, 32, 48] == [hit.tokens for hit in found]
    tables = system.snapshot().tables
    sources = {partial.group: partial.source for partial in found[2].partials}
    # Group 0 has blocks of 32, group 1 of 64: the second request's own blocks, in which its 20 tokens lie.
    assert {0: tables[1][0][1], 1: tables[1][1][0]} == sources


@pytest.mark.parametrize("other", [Keys(salt="other"), Keys(lora="other")], ids=["salt", "adapter"])
def test_another_salt_or_adapter_shares_nothing(other: Keys) -> None:
    """The same tokens, of which the first request's keys are a part: the key of a boundary covers those too."""
    system = load_system("retention").factory(Settings(load(PLAIN).geometry, 200, chunk_tokens=1024))
    for operation in (Arrive(0, (Run(0, 60),)), Admit(0, 1024), Dispatch(), Arrive(1, (Run(0, 60),), other)):
        system.apply(operation)
    assert 0 == looked_up(system, 1).tokens
