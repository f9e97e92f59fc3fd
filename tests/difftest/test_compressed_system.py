"""Models with several groups of compressed attention, on vLLM 0.20.2 with the plug-in, and as published.

Goal: with two groups of full attention vLLM's own managers leave a table longer than the hit; with the plug-in they do
what the reference says. Method: lockstep over drawn cases; and the plug-in broken, which must differ again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kvgate.adapters.registry import load_system
from kvgate.findings import explain
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.difference import Divergence
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench, draw_case, run
from kvreference.operations import Admit, Arrive, Evict, Finish, LookUp, Operation, Run, Schedule, TakeEvents
from kvreference.settings import Settings

pytest.importorskip("vllm")

MODELS = ("compressed", "compressed+eagle", "compressed+mtp+masked+scratch", "compressed+pinned=2+transfers")
OPERATIONS = 2_500
UNCUT = "014-second-full-group-not-cut"


def differences(system: str, model: str, operations: int = OPERATIONS) -> Counter[str]:
    """Undeclared differences in generated cases, by statement."""
    bench, found, performed, index = Bench(load_system(system).factory), Counter[str](), 0, 0
    while performed < operations:
        lane = Lane(load(model), ("tiny", "hostile")[index % 2])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"compressed/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        found.update(explain(each, lockstep) or each.difference.statement for each in divergences)
        found.update(lockstep.known.times)
        performed, index = performed + len(lockstep.performed), index + 1
    return found


@pytest.mark.ci
@pytest.mark.parametrize("model", MODELS)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    found = differences("retention", model)
    assert {name: times for name, times in found.items() if name.startswith(("KV-", UNCUT))} == {}


def published(system: str, model: str) -> str | None:
    """The statement that a published geometry violates undeclared, when a window is gone that C128's block outlives.

    One prompt is computed, its window before the first boundary is evicted, and two prompts that begin alike follow.
    """
    from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize

    geometry = load(model).geometry
    boundary, window, grain = geometry.alignment_tokens, geometry.groups[2].block_size_tokens, geometry.grain_tokens
    tokens = boundary + boundary // 8 + 37
    settings = Settings(geometry, blocks=boundary, tokens_max=2 * boundary, chunk_tokens=8192, tells_events=True)
    built: Any = load_system(system).factory(settings)
    lockstep = Bench(lambda _settings: built).set_up(settings)

    def perform(*operations: Operation) -> Divergence | None:
        return next(filter(None, map(lockstep.perform, operations)), None)

    def served(request: int, *prompt: Run) -> tuple[Operation, ...]:
        chunks = (Schedule(request, 8192),) * (tokens // 8192)
        return Arrive(request, prompt), LookUp(request), Admit(request, 8192), *chunks, Finish(request)

    found = perform(*served(0, Run(0, tokens)))
    hashes = BlockHashListWithBlockSize(keyed(built, tokens), grain, window)
    (anchor,) = built.manager.block_pool.get_cached_block(hashes[boundary // window - 1], [2])
    found = found or perform(Evict(anchor.block_id), *served(1, Run(0, boundary + 5), Run(10**6, boundary // 16)))
    found = found or perform(*served(2, Run(0, tokens)), TakeEvents())
    if found is not None:
        return explain(found, lockstep) or found.difference.statement
    return UNCUT if UNCUT in lockstep.known.times else None


def keyed(built: Any, tokens: int) -> Any:
    """The block hashes of a prompt of so many tokens."""
    return built._new_request(Arrive(9, (Run(0, tokens),))).block_hashes


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("suffix", ["", "+mtp"])
def test_the_published_geometries_agree(size: int, suffix: str) -> None:
    """With the plug-in; as published, the table of C128 continues after a hit of nothing."""
    model = f"dsv4-flash-ascend-{size}{suffix}"
    assert None is published("retention", model)
    assert UNCUT == published("stock", model)


@pytest.mark.ci
def test_vllm_as_published_does_not() -> None:
    """The second group's blocks follow the hit, which is what the plug-in fixes."""
    assert UNCUT in differences("stock", "compressed")


@pytest.mark.ci
def test_a_plug_in_that_cuts_nothing_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is vLLM as published again."""
    load_system("retention")
    monkeypatch.setattr("swa_retention.patches.compressed.cut", lambda *_all: None)
    assert "KV-OP-05" in differences("retention", "compressed")
