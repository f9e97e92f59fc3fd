"""vLLM-Ascend's own managers in lockstep with the reference, as published and with the plug-in.

Goal: with the plug-in they do what the reference says, where memory is taken for whole slots; as published, and with
the plug-in broken, they do not. Method: lockstep over drawn cases, in a process of its own: importing vLLM-Ascend's
modules changes vLLM for good.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.adapters.registry import load_system
from kvgate.findings.register import FOLDER
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.models import load
from kvreference.settings import Settings

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

pytest.importorskip("vllm")

AGREED = (
    "compressed+whole-slots",
    "compressed+eagle+whole-slots",
    "compressed+mtp+masked+scratch+whole-slots",
    "compressed+pinned=2+transfers+whole-slots",
)
WITH_STATES = FOLDER / "f007_events_span_null_blocks" / "trace.jsonl"
GIVEN_TWICE = FOLDER / "f013_compressed_block_known_by_its_slots" / "trace-given-twice.jsonl"
PROGRAM = """
import json, sys
from collections import Counter
from kvgate.gate.case_runner import Lane, Trials, run_case
from kvgate.findings import explain
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench, draw_case, run
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Serve, Stage
from kvgate.adapters.registry import load_system
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings
from pathlib import Path
from kvgate.levels.registry import read
import swa_retention.patches.attach as attach

def differences(system, model, operations):
    bench, found, performed, index = Bench(load_system(system).factory), Counter(), 0, 0
    while performed < operations:
        lane = Lane(load(model), ("tiny", "hostile")[index % 2])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"ascend/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        found.update(explain(each, lockstep) or each.difference.statement for each in divergences)
        found.update(lockstep.known.times)
        performed, index = performed + len(lockstep.performed), index + 1
    return found

def under_a_scheduler(system, model, cases):
    trials, found = Trials(SCHEDULER.bench_named(load_system(system).name, SCHEDULER.gate)), Counter()
    for index in range(cases):
        trial = trials.trial(Lane(load(model), ("tiny", "hostile")[index % 2]), f"ascend/{index}", 0)
        found["operations"] += trial.operations
        found.update(each.finding or each.divergence.difference.statement for each in (*trial.found, *trial.known))
    return found

def after_a_load(system, model):
    settings = Settings(load(model).geometry, blocks=200, tokens_max=256, chunk_tokens=256, tells_events=False)
    loads = Serve(Arrive(1, (Run(0, 16), Run(1000, 49))), 4, external_tokens=16, loads=True)
    operations = (Serve(Arrive(0, (Run(0, 128),)), 4), Step((Reply(token=5000),)), loads, Step())
    case = SCHEDULER.case(settings, operations, Stage(connector=True), model=model, preset="by hand")
    run = run_case(SCHEDULER.bench_named(load_system(system).name, SCHEDULER.gate), case)
    state = run.world.followed.snapshot()
    known = [each.finding or each.divergence.difference.statement for each in (*run.found(0), *run.known(0))]
    return [sorted(known), state.blocks_free - len(state.free)]

def stored(system, file):
    trace = read(Path(file))
    lockstep, divergences = run(Bench(load_system(system).factory), trace.header.settings, trace.operations)
    return [*(explain(each, lockstep) for each in divergences), *lockstep.known.times]

def given_twice(system, file):
    trace = read(Path(file))
    run = run_case(SCHEDULER.bench_named(load_system(system).name, SCHEDULER.gate), trace.case)
    return [[each.divergence.difference.statement, each.finding] for each in run.found(0)]

given = sys.argv.pop()
with_states = sys.argv.pop()
results = {model: differences("ascend-retention", model, 600) for model in sys.argv[1:]}
results["with states"] = stored("ascend", with_states)
results["as published"] = differences("ascend", sys.argv[1], 200)
results["under a scheduler"] = under_a_scheduler("ascend-retention", sys.argv[3], 6)
results["as published, under a scheduler"] = under_a_scheduler("ascend", sys.argv[1], 8)
results["given twice"] = given_twice("ascend", given)
results["after a load"] = after_a_load("ascend", sys.argv[1])
results["after a load, fixed"] = after_a_load("ascend-retention", sys.argv[1])
attach.count_tokens = lambda coordinator: None
results["counts slots"] = differences("ascend-retention", sys.argv[1], 2_000)
results["counts slots, under a scheduler"] = under_a_scheduler("ascend-retention", sys.argv[1], 8)
try:
    load_system("stock")
except SystemUnavailableError as error:
    results["stock"] = str(error)
print("\\n" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(fork_server: ForkServer) -> Any:
    """The differences, by finding or else by guarantee, per model; and other results of that process."""
    folder = published()
    environment = {**os.environ, WHERE: str(folder)}
    finished = fork_server.run("-c", PROGRAM, *AGREED, str(WITH_STATES), str(GIVEN_TWICE), env=environment, timeout=600)
    assert 0 == finished.returncode, finished.stderr[-3000:]
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize("model", AGREED)
def test_with_the_plug_in_it_agrees(results: Any, model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert set() == undeclared(results[model])
    assert "013-compressed-block-known-by-its-slots" not in results[model]


def test_as_published_it_does_not(results: Any) -> None:
    """Its blocks are known by their slots, and nothing else is found."""
    assert set() == undeclared(results["as published"])
    assert results["as published"]["013-compressed-block-known-by-its-slots"] > 0


def test_where_the_plug_in_counts_slots_it_does_not(results: Any) -> None:
    """Hits are other ones, and events tell of tokens that are not in the blocks."""
    assert {"KV-OP-01", "KV-OP-12"} <= undeclared(results["counts slots"])


@pytest.mark.parametrize(
    ("system", "finds", "declared"),
    [
        ("under a scheduler", False, False),
        ("as published, under a scheduler", False, True),
        ("counts slots, under a scheduler", True, False),
    ],
)
def test_the_same_under_a_scheduler(results: Any, system: str, finds: bool, declared: bool) -> None:
    """Declared findings are seen as published alone; no finding excuses what the plug-in fixes."""
    assert results[system]["operations"] > 100
    assert finds == bool(undeclared(results[system]))
    assert declared == ("013-compressed-block-known-by-its-slots" in results[system])


def test_a_table_that_continues_after_a_load_is_reported_as_what_it_is(results: Any) -> None:
    """Goal: under a scheduler too, 013 explains the count that parts from the queue by it. Method: two requests that
    share the slots of two blocks, the second of which loads one; a block more counts as free. With the plug-in none."""
    known, miscounted = results["after a load"]
    assert "013-compressed-block-known-by-its-slots" in known
    assert set() == undeclared(dict.fromkeys(known, 1))
    assert 1 == miscounted
    assert [[], 0] == results["after a load, fixed"]


def test_a_block_that_is_given_twice_is_known(results: Any) -> None:
    """The step ends with an assertion in the pool, which 013 explains."""
    assert [["KV-SYS-01", "013-compressed-block-known-by-its-slots"]] == results["given twice"]


def test_a_model_with_states_is_reported_as_what_it_is(results: Any) -> None:
    """013 has nothing to say of states, and leaves them to the findings that have."""
    assert "007-events-span-null-blocks" in results["with states"]
    assert "013-compressed-block-known-by-its-slots" not in results["with states"]


def undeclared(found: dict[str, int]) -> set[str]:
    """The guarantees among what was found."""
    return {name for name in found if name.startswith("KV-")}


def test_its_process_has_no_stock_vllm(results: Any) -> None:
    """The error message says so."""
    assert "vLLM's block manager in this process is vLLM-Ascend's: start another one" == results["stock"]


def test_without_the_wheel_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where it was looked for."""
    monkeypatch.setenv(WHERE, str(tmp_path))
    with pytest.raises(SystemUnavailableError, match=f"{WHERE}='{tmp_path}': it holds no vllm_ascend"):
        load_system("ascend")


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("compressed", "memory for begun slots in group 0: vLLM-Ascend takes it for whole slots only"),
        ("full", "a single group: vLLM-Ascend asserts that there are two kinds"),
        ("gpt-oss-hybrid+masked+scratch", "a retention interval of 16 tokens: vLLM 0.20.2 caches every block"),
    ],
)
def test_what_it_does_not_have_is_rejected(model: str, refused: str) -> None:
    """With what it has instead."""
    from kvgate.adapters.ascend import Ascend

    named = load(model)
    with pytest.raises(ValueError, match=refused):
        Ascend(named.features.applied_to(Settings(named.geometry, blocks=64)))


def test_other_systems_take_memory_for_begun_slots() -> None:
    """vLLM's own managers, and the plug-in where vLLM-Ascend is not."""
    from kvgate.adapters.stock import Stock

    with pytest.raises(ValueError, match=r"memory for whole slots only in group 0: vLLM 0\.20\.2 takes it for slots"):
        Stock(Settings(load("compressed+whole-slots").geometry, blocks=64))
