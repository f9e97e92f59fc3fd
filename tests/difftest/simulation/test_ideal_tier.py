"""An ideal tier on the host, next to a simulation.

Goal: it says what device and host have together, per group, and what a tier of that size keeps; a real connector brings
as much where nothing is evicted from the host. Method: prompts by hand; a small trace, served by vLLM's
own scheduler with its OffloadingConnector and by the simulation, one request after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.published import published

from kvgate.adapters.releases import release_named
from kvgate.kernel.models import load
from kvgate.simulation.arm import Setting
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.release import ReleaseArm
from kvgate.simulation.result import Result
from kvgate.simulation.workload import Turn, Workload, single
from kvreference.operations import Run

FAMILY = 10_000
PROMPTS = [
    # Which of the prefixes, how much of it, and how many tokens of its own.
    *((0, 96, 10), (1, 128, 30), (2, 160, 5), (0, 96, 20), (3, 144, 40), (1, 128, 7), (1, 64, 50), (2, 160, 60)),
    *((4, 176, 3), (0, 80, 90), (3, 144, 1), (2, 112, 33), (4, 176, 80), (0, 96, 70), (1, 128, 100), (3, 144, 12)),
]


def runs(number: int) -> tuple[Run, Run]:
    family, shared, own = PROMPTS[number]
    return Run((family + 1) * FAMILY, shared), Run((100 + number) * FAMILY, own)


def simulated(model: str, blocks: int, tier_blocks: int) -> Result:
    """The prompts, one after the other, on vLLM 0.33.0."""
    turns = [Turn(runs(number), Run((1000 + number) * FAMILY, 1)) for number in range(len(PROMPTS))]
    serving = Serving(model, load(model).geometry, blocks, 1000, 64, 4, version="0.33.0", tier_blocks=tier_blocks)
    words = "retention=0+junctions+scratch" if model != "full" else "dense+scratch"
    return ReleaseArm().run(Setting(Workload("by hand", single(*turns)), serving, policy_of(words)))


def hits(result: Result) -> list[int]:
    found = [each.hit_with_tier_tokens for each in result.served]
    assert all(each is not None for each in found)
    return [each or 0 for each in found]


def best(number: int) -> int:
    """What a prompt shares with those before it, in whole blocks, less than all of it."""
    family, shared, own = PROMPTS[number]
    common = [min(shared, other) for of, other, _ in PROMPTS[:number] if of == family]
    return min(max(common, default=0), shared + own - 1) // 16 * 16


def test_a_large_tier_brings_all_that_was_computed() -> None:
    result = simulated("full", 20, 1000)
    assert [best(number) for number in range(len(PROMPTS))] == hits(result)
    assert result.hit_rate_with_tier is not None
    assert result.hit_rate_with_tier > result.hit_rate


def test_a_tier_is_never_worse_than_none_and_a_larger_one_no_worse() -> None:
    before = [each.hit_tokens for each in simulated("full", 20, 1).served]
    for blocks in (1, 8, 16, 32, 64):
        ours = hits(simulated("full", 20, blocks))
        assert all(one <= other for one, other in zip(before, ours, strict=True)), blocks
        assert sum(before) <= sum(ours)
    assert simulated("full", 20, 0).hit_rate_with_tier is None


def test_every_group_has_to_have_its_part() -> None:
    """With windows, a tier of few blocks has full attention's, and not the window's."""
    large, small = simulated("gpt-oss-hybrid", 80, 1000), simulated("gpt-oss-hybrid", 80, 12)
    assert sum(hits(large)) > sum(hits(small)) >= sum(each.hit_tokens for each in small.served)


PROGRAM = """
import json, sys
from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import Serve
from kvgate.levels.tiers.engine import TierEngine
from kvgate.levels.tiers.operations import EndJobs, TierStage
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

blocks, chunks, policy, prompts = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
load_system("native@0.33.0")
settings = Settings(load("full").geometry, blocks, 1000, 64, 4, tells_events=False, scratch_first=True)
stage = TierStage(chunks=chunks, policy=policy, stores_answers=True, running_max=4)
engine = TierEngine(settings, stage, "native@0.33.0")
hits = []
receive = engine._receive
engine._receive = lambda output: (
    hits.extend(each.num_computed_tokens for each in output.scheduled_new_reqs), receive(output)
)[1]
for number, runs in enumerate(prompts):
    engine.perform(Serve(Arrive(number, tuple(Run(*run) for run in runs)), 1))
    while engine._alive and engine.found is None:
        engine.perform(Step((Reply(),)))
        for loads in (False, True):
            engine.perform(EndJobs(loads, 100))
print(json.dumps([hits, str(engine.found or ""), engine.memory.blocks_loaded]))
"""


def served(chunks: int, policy: str, prompts: Sequence[tuple[Run, ...]]) -> list[int]:
    """What the prompts hit with vLLM 0.33.0's OffloadingConnector, one after the other."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    words = json.dumps([[(run.first, run.length) for run in prompt] for prompt in prompts])
    command = [sys.executable, "-c", PROGRAM, "20", str(chunks), policy, words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    real, found, loaded = json.loads(ended.stdout.splitlines()[-1])
    assert "" == found
    assert loaded > 0
    return list(real)


@pytest.mark.ci
def test_a_real_connector_brings_as_much_where_nothing_is_evicted() -> None:
    for chunks in (1000, 24):
        real, ideal = (
            served(chunks, "lru", [runs(number) for number in range(len(PROMPTS))]),
            hits(simulated("full", 20, chunks)),
        )
        if chunks == 1000:
            assert ideal == real
        assert sum(ideal) >= sum(real) > sum(each.hit_tokens for each in simulated("full", 20, 1).served)


@pytest.mark.ci
def test_another_order_of_eviction_can_bring_more() -> None:
    """ARC keeps what was used twice while prompts go through that are used once; an ideal tier by last use does not."""
    prompts = [(Run(FAMILY * (of + 1), 161),) for of in (0, 8, 9, 0, 1, 2, 3, 4, 0)]
    turns = [Turn(prompt, Run((1000 + number) * FAMILY, 1)) for number, prompt in enumerate(prompts)]
    serving = Serving("full", load("full").geometry, 20, 1000, 64, 4, version="0.33.0", tier_blocks=34)
    ideal = hits(ReleaseArm().run(Setting(Workload("by hand", single(*turns)), serving, policy_of("dense+scratch"))))
    real = served(34, "arc", prompts)
    assert (0, 160) == (ideal[-1], real[-1])
