"""The shadow of a model runner: what a worker has prepared, compared with what the scheduler's outputs grant.

Goal: it agrees with a published worker, and reports one that is broken; its own failure ends it alone. Method: it
follows the model runners of vLLM and vLLM-Ascend on a CPU, under the steps of a scheduler; and a runner of this file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter import model_runner
from kvgate.shadow.adapter.model_runner import attach_runner
from kvgate.shadow.sink_protocol import DifferenceError
from kvgate.shadow.status import read_all

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

PROGRAM = """
import json, sys
from contextlib import ExitStack
from pathlib import Path
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.gate.campaign import Campaign
from kvgate.gate.level import LevelChoice
from kvgate.kernel.models import load
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.levels.registry import prepare
from kvgate.levels.worker import engine
from kvgate.shadow.adapter.model_runner import attach_runner
system, model, folder, fault, operations = sys.argv[1:]
loaded = load_system(system)
shadows, injected = [], ExitStack()

class Shadowed(engine.WORKERS[system]):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        shadows.append(attach_runner(self.runner, Switch(Mode.CHECK, Path(folder), worker=1)))

engine.WORKERS = {**engine.WORKERS, system: Shadowed}
if fault:
    from kvgate_mutants.mutants import worker
    injected.enter_context(getattr(worker, fault).applied())
(prepared,) = prepare(LevelChoice.WORKER, loaded, [load(model)], "precommit")
plan = evolve(prepared.plan, operations=int(operations), kinds_max=1, shrinks=False)
found = Campaign(prepared.trials, plan).run().found
judged, differences = (sum(getattr(each.status, name) for each in shadows) for name in ("judged", "differences"))
first = [each.status.first for each in shadows if each.status.first]
print(json.dumps([judged, differences, len(found), first[:1], {each._is_off for each in shadows} == {False}]))
"""
DEEPSEEK_V4 = """
import json
from kvgate.adapters.registry import load_system
load_system("ascend-worker-retention")
from kvgate.shadow.adapter.model_runner import layouts_in
from tests.difftest.worker.dsv4_memory import serve
runners = [serve("ascend-worker-retention", slots, mtp=True).runner for slots in (128, 32)]
print(json.dumps([[[each.block_slots, each.compress_ratio] for each in layouts_in(runner)] for runner in runners]))
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("system", "model", "fault", "statement"),
    [
        ("stock", "gpt-oss-hybrid", "", ""),
        ("stock", "gpt-oss-hybrid", "condensed_without_block_tables", "KV-SYS-03"),
        ("ascend-worker", "compressed-8-slots+mtp+whole-slots", "", ""),
        ("ascend-worker", "compressed-8-slots+whole-slots", "slots_one_late", "KV-MEM-03"),
        ("ascend-worker", "compressed-8-slots+whole-slots", "last_row_is_not_committed", "KV-SYS-03"),
    ],
)
def test_a_published_runner_is_followed(
    system: str, model: str, fault: str, statement: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    """As the level does, and by what its process is sent alone."""
    environment = {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}
    operations = "2000" if fault else "300"
    finished = fork_server.run(
        "-c", PROGRAM, system, model, str(tmp_path), fault, operations, env=environment, timeout=300
    )
    assert 0 == finished.returncode, finished.stderr[-2000:]
    judged, differences, found, first, followed = json.loads(finished.stdout.splitlines()[-1])
    assert followed
    assert bool(fault) is (differences > 0)
    assert bool(fault) is (found > 0)
    assert judged > (0 if fault else 20)
    if fault:
        assert first[0].startswith(f"{statement}: ")


@pytest.mark.ci
def test_groups_of_deepseek_v4(fork_server: ForkServer) -> None:
    """Of its own layers, several in a group: two compressed groups, windows, and the states of both compressors."""
    environment = {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}
    finished = fork_server.run("-c", DEEPSEEK_V4, env=environment, timeout=300, cwd=ROOT)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    expected = [[128, 4], [128, 128], [128, 1], [128, 1], [128, 1], [8, 1], [32, 1]]
    assert [expected, [[slots // 4, ratio] for slots, ratio in expected]] == found


def _runner(slots: list[int]) -> Any:
    """One group with blocks of four slots, one request."""
    table = SimpleNamespace(
        block_size=4,
        num_blocks_per_row=np.array([2]),
        block_table=SimpleNamespace(gpu=np.array([[5, 6, 0]])),
        slot_mapping=SimpleNamespace(gpu=np.array(slots)),
    )
    spec = SimpleNamespace(block_size=4, head_size=1)
    return SimpleNamespace(
        kv_cache_config=SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)]),
        compilation_config=SimpleNamespace(cudagraph_mode=SimpleNamespace(name="FULL_DECODE_ONLY")),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, cp_kv_cache_interleave_size=1),
        input_batch=SimpleNamespace(req_ids=["a"], block_table=SimpleNamespace(block_tables=[table])),
        _update_states=lambda _output: "deferred",
        _prepare_inputs=lambda _output, _counts: "inputs",
    )


def _output(first: bool = True) -> Any:
    new = SimpleNamespace(req_id="a", block_ids=([5, 6],), num_computed_tokens=3)
    none = SimpleNamespace(req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set())
    return SimpleNamespace(
        finished_req_ids=set(),
        scheduled_new_reqs=[new] if first else [],
        scheduled_cached_reqs=none,
        num_scheduled_tokens={"a": 3},
    )


def _step(runner: Any, output: Any) -> None:
    assert ("deferred", "inputs") == (runner._update_states(output), runner._prepare_inputs(output, None))


def test_what_is_right_passes_and_what_is_wrong_is_raised_in_tests() -> None:
    """In the mode strict."""
    strict = Switch(Mode.STRICT, worker=1)
    right = _runner([23, 24, 25])
    shadow = attach_runner(right, strict)
    assert shadow is not None
    assert shadow is attach_runner(right, strict)
    _step(right, _output())
    assert (1, 0) == (shadow.status.judged, shadow.status.differences)
    wrong = _runner([23, 24, 26])
    attach_runner(wrong, strict)
    with pytest.raises(DifferenceError, match="KV-MEM-03: a in row 0, group 0, slot of token 5: expected 25, got 26"):
        _step(wrong, _output())


def test_slots_of_a_larger_step_before_are_no_difference() -> None:
    """A server pads what comes after a step's slots when it builds metadata, which is later."""
    runner = _runner([23, 24, 25, 3074, 9])
    shadow = attach_runner(runner, Switch(Mode.STRICT, worker=1))
    assert shadow is not None
    _step(runner, _output())
    assert 1 == shadow.status.judged


@pytest.mark.parametrize("version", ["0.20.2rc1", "0.23.0"])
def test_a_release_that_was_not_tested_has_no_shadow(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones count blocks and map slots differently: one line in the log, and the worker runs on."""
    monkeypatch.setitem(sys.modules, "vllm_ascend", ModuleType("vllm_ascend"))
    monkeypatch.setitem(sys.modules, "vllm_ascend._version", SimpleNamespace(__version__=version))
    warnings: list[str] = []
    monkeypatch.setattr(model_runner, "warn", warnings.append)
    kind = type("NPUModelRunner", (SimpleNamespace,), {"__module__": "vllm_ascend.worker.model_runner_v1"})
    shadow = attach_runner(kind(**vars(_runner([]))), Switch(Mode.STRICT, worker=1))
    assert (shadow is None) is (version != "0.20.2rc1")
    assert [] == warnings if shadow else "tested only with vllm_ascend 0.20.2rc1, and this is 0.23.0" in warnings[0]


def test_a_difference_is_in_the_status(tmp_path: Path) -> None:
    """In the mode check, and the worker runs on."""
    runner = _runner([23, 24, 26])
    shadow = attach_runner(runner, Switch(Mode.CHECK, tmp_path, worker=1))
    assert shadow is not None
    _step(runner, _output())
    shadow.end()
    (status,) = read_all(tmp_path)
    assert (1, 1, "ended") == (status.judged, status.differences, status.state)
    assert status.first.startswith("KV-MEM-03: a in row 0")
    assert status.engine.endswith("-worker")


def test_a_failure_of_the_shadow_ends_it_alone(tmp_path: Path) -> None:
    """A step of a request that it has not seen."""
    runner = _runner([23, 24, 25])
    shadow = attach_runner(runner, Switch(Mode.CHECK, tmp_path, worker=1))
    assert shadow is not None
    for _ in range(2):
        _step(runner, _output(first=False))
    assert (0, "ended") == (shadow.status.judged, shadow.status.state)


@pytest.mark.parametrize("unfollowed", ["drafts", "prompts", "states", "layers"])
def test_what_is_not_followed(unfollowed: str) -> None:
    """The worker has no shadow then."""
    runner = _runner([])
    if unfollowed == "drafts":
        runner.use_async_spec_decode = True
    elif unfollowed == "prompts":
        runner.pcp_size = 2
    elif unfollowed == "states":
        del runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec.head_size
    else:
        layers = {name: SimpleNamespace(block_size=size, head_size=1) for name, size in (("a", 4), ("b", 8))}
        runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec.kv_cache_specs = layers
    assert None is attach_runner(runner, Switch(Mode.STRICT, worker=1))
