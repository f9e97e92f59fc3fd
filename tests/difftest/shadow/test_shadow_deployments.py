"""A shadow where an engine has a KV connector, and where there are several engines.

Goal: blocks of other nodes, loaded at once and later, loads that fail, and blocks in host memory are followed without a
difference, and a load that is not followed shows. Method: cases of the scheduler level with a fake connector, and vLLM
0.20.2's own connectors with a worker that copies nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvgate.findings.modelled import Modelled
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.levels.scheduler.adapter import stage
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.order_agnostic_reference import OrderAgnosticReference
from kvgate.shadow.status import read_all

from .live import Beneath, Server, connected, watched

pytestmark = pytest.mark.ci

pytest.importorskip("vllm")


LOADED = "009-load-forgets-its-last-token"
TAKEN = "008-external-tokens-take-other-hits"


def findings(shadows: list[Beneath]) -> list[Any]:
    """All differences."""
    return [finding for each in shadows for finding in each.found]


@pytest.mark.parametrize("model", ["full", "gemma-hybrid", "gpt-oss-hybrid+mtp", "mixed-blocks"])
def test_a_connector_is_followed(model: str) -> None:
    """No difference, with steps that wait and steps that do not; and something was loaded."""
    shadows, _ = connected("stock", [model], range(8))
    assert [] == findings(shadows)
    assert sum(each.judge.stats.judged for each in shadows) > 300
    assert sum(each.judge.known.times.get(LOADED, 0) for each in shadows) > 5


@pytest.mark.parametrize("acted", [True, False])
def test_what_a_finding_leaves_in_a_state_is_declared_if_it_acted(acted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request names a block twice, and so does the reference: counted once as finding 008; without it, a difference.

    Method: a case in which the finding acts once, with a shadow that knows that it acted, and one that does not.
    """
    if not acted:
        monkeypatch.setattr(Modelled, "violations", lambda _known: [])
    shadows, _ = connected("stock", ["two-windows+mtp"], [19], checkpoint_calls=5)
    assert ["KV-INV-04"] * (not acted) == [finding.difference.statement for finding in findings(shadows)]
    assert 1 + acted == sum(each.judge.known.times[TAKEN] for each in shadows)


class Offloading(Server):
    """An engine whose worker copies at once what it is sent, and reports it with the output of the step."""

    def __init__(self, **others: Any) -> None:
        self.loaded = 0
        """How many loads were finished."""
        self._stored: set[str] = set()
        super().__init__("full", **others)

    def output_of(self, names: list[str], sampled: Any, output: Any) -> Any:
        """The output of a step, with the transfers that are over."""
        from vllm.v1.outputs import KVConnectorOutput

        given = output.kv_connector_metadata
        (metadata,) = getattr(given, "metadata", (given,))
        self._stored |= metadata.reqs_to_store.keys()
        sent = {name for name in output.finished_req_ids if name in self._stored}
        self.loaded += len(metadata.reqs_to_load)
        answered = super().output_of(names, sampled, output)
        answered.kv_connector_output = KVConnectorOutput(sent or None, set(metadata.reqs_to_load) or None)
        return answered


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("connector", ["OffloadingConnector", "MultiConnector"])
def test_blocks_in_host_memory_are_followed(
    connector: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's own connectors: one that keeps blocks in host memory, by itself and as one of several."""
    from vllm.config import KVTransferConfig
    from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

    def kept(_stage: Any) -> KVTransferConfig:
        one: dict[str, Any] = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
        memory: dict[str, Any] = {"cpu_bytes_to_use": 1, "block_size": 16}
        if connector == "MultiConnector":
            several = {"connectors": [{**one, "kv_connector_extra_config": memory}]}
            return KVTransferConfig(kv_connector=connector, kv_role="kv_both", kv_connector_extra_config=several)
        return KVTransferConfig(**one, kv_connector_extra_config=memory)

    original = CPUOffloadingSpec.__init__

    def with_blocks(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        # No memory here whose size could be counted.
        self.num_blocks = 200

    monkeypatch.setattr(CPUOffloadingSpec, "__init__", with_blocks)
    monkeypatch.setattr(stage, "_transfers", kept)
    server = Offloading(asynchronous=asynchronous, connector=True, blocks=40)
    shadow = watched(server)
    server.serve(400)
    assert [] == shadow.found
    assert connector == type(server.scheduler.connector).__name__
    assert shadow.judge.stats.judged > 1000
    assert server.loaded > 3


def test_a_load_that_is_not_followed_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shadow that takes no notice of what other nodes provide reports a difference."""
    original: Any = OrderAgnosticReference.allocate

    def allocate(self: OrderAgnosticReference, call: Any, hit: Any) -> Any:
        return original(self, replace(call, external_tokens=0), hit)

    monkeypatch.setattr(OrderAgnosticReference, "allocate", allocate)
    shadows, _ = connected("stock", ["full"], range(4))
    assert [] != findings(shadows)


def test_each_of_several_engines_has_a_shadow(tmp_path: Path) -> None:
    """Data parallel: each engine is followed by itself, under its own index."""
    for index in range(2):
        server = Server("full", seed=index)
        server.scheduler.vllm_config.parallel_config.data_parallel_index = index
        shadow = attach(server.scheduler, Switch(Mode.CHECK, tmp_path))
        server.serve(60)
        server.scheduler.shutdown()
        shadow.sink._process.wait()
    found = sorted(read_all(tmp_path), key=lambda status: status.engine_index or 0)
    assert [(0, 0), (1, 0)] == [(each.engine_index, each.differences) for each in found]
    assert min(each.judged for each in found) > 100


TENSOR_PARALLEL = """
import sys, time
from pathlib import Path

from kvgate.adapters.cpu_engine.checkpoint import write_model
from kvgate.adapters.cpu_engine.engine import SMALL, prepare_environment, scheduler_of
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
from kvgate.adapters.cpu_engine.repairs import repair
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter.attachment import attach

def main(folder):
    # A core for each worker.
    prepare_environment(more={"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_CPU_OMP_THREADS_BIND": "0|1"})
    from vllm import LLM, SamplingParams

    repair()
    model = str(write_model(HYBRIDS["gemma-3"], folder / "model"))
    parallel = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    engine = LLM(model=model, skip_tokenizer_init=True, disable_log_stats=False, **SMALL, **parallel)
    scheduler = scheduler_of(engine)
    shadow = attach(scheduler, Switch(Mode.CHECK, folder / "shadow"))
    prompts = [{"prompt_token_ids": [5 + (7 * i + j) % 400 for j in range(40 + 5 * i)]} for i in range(12)] * 2
    sampling = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False)
    engine.generate(prompts, sampling, use_tqdm=False)
    shadow.end()
    shadow.sink.close()
    shadow.sink._process.wait()
    print(type(engine.llm_engine.model_executor).__name__)

if __name__ == "__main__":
    main(Path(sys.argv[1]))
"""


@pytest.mark.deep
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="each worker is bound to a core of its own")
def test_an_engine_with_two_workers_is_followed(tmp_path: Path) -> None:
    """Tensor parallel, with the multiprocess executor: a real engine on CPU whose workers are processes."""
    program = tmp_path / "engine.py"
    program.write_text(TENSOR_PARALLEL)
    finished = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], timeout=300, capture_output=True, text=True
    )
    assert "MultiprocExecutor" in finished.stdout, finished.stderr[-3000:]
    (status,) = read_all(tmp_path / "shadow")
    assert (0, 0) == (status.differences, status.lost)
    assert status.judged > 500
