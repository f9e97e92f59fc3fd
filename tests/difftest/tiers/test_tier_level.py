"""The level of two tiers on the releases whose connector is driven.

Goal: it finds nothing that is not declared, loads what it stored, repeats a case, and rejects what it cannot drive.
Method: cases by their seeds, in one process per release; the command for what it rejects.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from tests.published import published

from kvgate.adapters.releases import release_named
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import Serve
from kvgate.levels.tiers.level import CONNECTOR, SYSTEMS, TIERS
from kvreference.operations import Arrive, Run
from kvreference.settings import Settings

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

PROGRAM = """
import json, sys
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.kernel.models import load
from kvgate.levels.tiers.adapter.own import DRAFTS_AHEAD, OUT_OF_ORDER, Chosen
from kvgate.levels.tiers.level import TIERS

name, cases, needs, models = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
bench = TIERS.bench(load_system(name), TIERS.gate)
new, loaded, stored, same, ran, same_interval = [], 0, 0, True, 0, True
for model in models:
    for preset in ("legal", "hostile", "tiny"):
        for number in range(cases):
            case = TIERS.allowed(bench, TIERS.draw(load(model), preset, f"test/{number}", needs=[needs]))
            run = run_case(bench, case)
            new += [str(each.divergence.difference) for each in run.found() if each.finding is None]
            loaded, stored = loaded + run.world.memory.blocks_loaded, stored + run.world.memory.blocks_stored
            ran += run.operations
            offloading = run.world.connector.offloading
            configured = offloading.half.config if offloading else None
            asked = case.settings.retention_interval_tokens
            same_interval &= getattr(configured, "retention_interval", asked) == asked
            same &= number > 0 or run.world.lockstep.digest == run_case(bench, case).world.lockstep.digest
seen = Chosen.seen[DRAFTS_AHEAD], Chosen.seen[OUT_OF_ORDER]
print(json.dumps([new, loaded, stored, same, ran, same_interval, seen]))
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "connector"),
    [
        *((name, connector) for name in SYSTEMS for connector in ("offloading", "simple")),
        ("native@0.33.0", "nixl"),
    ],
)
def test_nothing_new_and_the_same_again(name: str, connector: str) -> None:
    pytest.importorskip("vllm")
    published(release_named(name))
    # The connector that is called simple demands a group of full attention.
    models = ["full", "gpt-oss-hybrid", "swa+eagle" if connector in ("offloading", "nixl") else "gemma-hybrid+eagle"]
    models += ["mamba-align", "mamba-window"] if name == "native@0.33.0" and connector != "nixl" else []
    suffix = "" if name in ("native@0.21.0", "native@0.22.1") else "+scratch"
    command = [sys.executable, "-c", PROGRAM, name, "3", CONNECTOR + connector, *(each + suffix for each in models)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    new, loaded, stored, same, ran, same_interval, (drafts_ahead, out_of_order) = json.loads(
        ended.stdout.splitlines()[-1]
    )
    assert [] == new
    assert loaded > 20, loaded
    assert stored > 200, stored
    assert same
    assert same_interval, "the connector retains other blocks than the block manager"
    assert ran > 1000, ran
    assert drafts_ahead > 20, drafts_ahead
    assert out_of_order > 0


CASES = """
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import ResetCache, Serve
from kvgate.levels.tiers.level import TIERS
from kvgate.levels.tiers.operations import EndJobs, LoseJob, TierStage
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

bench = TIERS.bench(load_system("native@0.33.0"), TIERS.gate)
step, end = Step((Reply(),)), EndJobs(False, 9)


def serve(first, tokens):
    return Serve(Arrive(0, (Run(first, tokens),)), 1)


def case_of(blocks, *operations):
    settings = Settings(load("full").geometry, blocks, 200, 64, 4, tells_events=False, scratch_first=True)
    case = TIERS.case(settings, operations, TierStage(running_max=4))
    return evolve(case, model="full", preset="legal", seed="by hand")


stored = serve(0, 33), step, step, end, step, ResetCache(False, False)
loads = *stored, serve(0, 33), step, LoseJob(True)
"""
LOST = """
def waits(blocks, *operations):
    run = run_case(bench, case_of(blocks, *operations))
    waiting = run.world.waiting
    found = [str(each.divergence.difference) for each in run.found()]
    print("RESULT", found, *(waiting.describe_waits() if waiting else ()), sep="; ")


waits(20, *loads, serve(500, 33))
waits(4, *loads, serve(500, 33))
waits(20, serve(0, 33), step, step, LoseJob(False), serve(0, 33))
"""


@pytest.mark.ci
def test_the_wait_for_graph_names_a_job_that_never_ends() -> None:
    """Of a load: its request waits, one that lacks the blocks of that waits for it, and one that does not ends."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    ended = subprocess.run(
        [sys.executable, "-c", CASES + LOST], capture_output=True, text=True, check=False, timeout=300
    )
    assert 0 == ended.returncode, ended.stderr[-3000:]
    load = "request 1 waits for load job 1 of kvgate-request-1, which never ends"
    expected = [
        f"[]; {load}",
        f"[]; {load}; request 2 waits for blocks: request 1 holds 2",
        "[]; request 1 waits for store job 0 of kvgate-request-0, which never ends",
    ]
    assert expected == [line.removeprefix("RESULT; ") for line in ended.stdout.splitlines() if "RESULT" in line]


LEFT = """
def left(break_it):
    case = case_of(20, *loads)
    world = bench.build(case)
    for each in case.operations:
        assert world.perform(each) is None
    break_it(world)
    print("RESULT", *(f"{each.difference.statement}: {each.difference.expected}" for each in world.close()))


def keep(world):
    world.connector.offloading.manager.complete_load = lambda *_arguments: None


left(lambda world: None)
left(lambda world: world.scheduler.kv_cache_manager.block_pool.get_new_blocks(1))
left(keep)
"""


@pytest.mark.ci
def test_what_remains_is_asked_although_a_job_never_ends() -> None:
    """A block that no request and no job has is found while the job does not end, and a chunk that stays in use when
    the job has ended after all else."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    ended = subprocess.run(
        [sys.executable, "-c", CASES + LEFT], capture_output=True, text=True, check=False, timeout=300
    )
    assert 0 == ended.returncode, ended.stderr[-3000:]
    expected = [
        "",
        "KV-LEAK-01: those of requests that wait and of jobs that never end",
        "KV-TIER-05: nothing",
    ]
    assert expected == [line.removeprefix("RESULT").strip() for line in ended.stdout.splitlines() if "RESULT" in line]


BROKEN = {
    "state-is-stored-as-an-earlier-one": "KV-TIER-04",
    "jobs-count-as-ended-in-order": "KV-TIER-02",
    "requests-wait-for-any-load": "KV-TIER-06",
    "rejected-drafts-stay-awaited": "KV-TIER-06",
    "stores-of-ended-requests-are-kept": "KV-TIER-05",
    "loaded-chunks-stay-pinned": "KV-TIER-05",
    "loads-end-unreported": "KV-TIER-06",
    "worker-does-not-wait": "KV-TIER-02",
    "load-starts-a-block-late": "KV-MEM-01",
}


@pytest.mark.ci
def test_faults_are_found() -> None:
    """Each by the guarantee that it violates; ``kvgate mutants --sut native@0.33.0 --level tiers`` runs all of them."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    command = [sys.executable, "-m", "kvgate.cli", "mutants", "--sut", "native@0.33.0", "--level", "tiers", *BROKEN]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ended.returncode, ended.stdout + ended.stderr[-3000:]
    for name, statement in BROKEN.items():
        assert any(name in line and statement in line for line in ended.stdout.splitlines()), (name, ended.stdout)


def _asked_at_start(settings: Settings, steps: int) -> int:
    """How many blocks vLLM asks for at its start for the longest request: a window is held before steps in flight."""
    needed = 0
    for group in settings.geometry.groups:
        whole = -(-settings.tokens_max // group.block_size_tokens)
        held = (group.window_tokens or settings.tokens_max) - 1 + steps * settings.chunk_tokens
        needed += min(whole, -(-held // group.block_size_tokens) + 1)
    return needed


@pytest.mark.parametrize("name", ["swa", "gpt-oss-hybrid", "gemma-hybrid+eagle"])
def test_a_request_fits_with_the_steps_in_flight(name: str) -> None:
    """Goal: no case hangs for a pool in which vLLM would not start. Method: by the formula of vLLM's own check."""
    smaller = 0
    for number in range(40):
        case = TIERS.draw(load(f"{name}+scratch"), "legal", f"room/{number}")
        settings = case.settings
        asked = _asked_at_start(settings, 2 if case.stage.asynchronous else 1)
        assert asked <= settings.blocks - 1, number
        longest = Serve(Arrive(0, (Run(0, settings.tokens_max - 1),)), 1)
        for blocks in {asked - 1, _asked_at_start(settings, 1)} - {asked}:
            small = evolve(case, settings=evolve(settings, blocks=1 + blocks), operations=(longest,))
            assert not TIERS.that_fits(small).operations, (number, blocks)
            smaller += case.stage.asynchronous
        assert TIERS.that_fits(evolve(case, operations=(longest,))).operations
    assert smaller


def test_models_that_it_takes() -> None:
    for name in ("full", "swa", "gemma-hybrid+eagle", "gpt-oss-hybrid+retention", "mamba-align", "mamba-window+eagle"):
        assert TIERS.takes(load(name)), name
    for name in ("mixed-blocks", "mamba-all", "local", "compressed", "full+eagle+hashed-ahead"):
        assert not TIERS.takes(load(name)), name


@pytest.mark.parametrize("name", ["mamba-all+scratch", "local+scratch"])
def test_a_model_without_it_is_rejected(name: str) -> None:
    """Its ghost memory has neither, so it would call what they read missing."""
    case = evolve(TIERS.draw(load("full+scratch"), "tiny", "1"), settings=Settings(load(name).geometry, blocks=64))
    with pytest.raises(UsageError, match="takes models of full attention, windows and states"):
        TIERS.world(case, "native@0.33.0", with_reference=False)


@pytest.mark.ci
def test_systems_without_it_are_rejected(fork_server: ForkServer) -> None:
    pytest.importorskip("vllm")
    with pytest.raises(UsageError, match="runs with the connectors"):
        TIERS.bench_named("stock", TIERS.gate)
    ended = fork_server.run("-m", "kvgate.cli", "check", "--level", "tiers", "--sut", "stock", "--model", "full")
    assert 2 == ended.returncode
    assert "--level tiers runs with the connectors of" in ended.stderr
