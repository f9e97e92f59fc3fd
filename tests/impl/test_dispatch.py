"""The copies of partial hits on their way from vLLM's scheduler to its workers.

Goal: a hit that ends inside a block sends its copy with the step that admits the request, exactly once, in a form that
reaches other processes. A step without one carries nothing. Workers that would not do the copies are rejected. Method:
vLLM's real schedulers without a model, on two groups whose blocks differ in size.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swa_retention.config import Configuration, ConfigurationError
from swa_retention.features import PARTIAL_HITS
from swa_retention.partial.copies import BlockCopy
from swa_retention.patches.attach import activate
from swa_retention.patches.dispatch import CARRIED, copies_of, started, update_states
from swa_retention.register import apply

pytest.importorskip("vllm")

WINDOW, FULL = 0, 1
FIRST = list(range(3, 203))
"""A prompt of 200 tokens; later prompts share some of them."""


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    """Schedulers that are built in a test have partial hits."""
    apply(PARTIAL_HITS.patches)
    activate(Configuration(partial_hits=True))
    yield
    activate(Configuration())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder: no more than vLLM's configuration asks for."""
    folder = tmp_path_factory.mktemp("model")
    shape = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    named = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512}
    (folder / "config.json").write_text(json.dumps(named | shape | {"max_position_embeddings": 1024}))
    return folder


def scheduler_of(model: Path, is_async: bool = False, blocks: int = 60, **options: Any) -> Any:
    """A scheduler of vLLM in front of a window with blocks of 16 tokens and full attention with blocks of 64."""
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    config = VllmConfig(
        model_config=ModelConfig(model=str(model), skip_tokenizer_init=True, dtype="float32"),
        cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=512, max_num_seqs=8, max_model_len=1024, is_encoder_decoder=False
        ),
    )
    config.cache_config.num_gpu_blocks = blocks
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
    groups = [
        KVCacheGroupSpec(["window"], SlidingWindowSpec(block_size=16, sliding_window=32, **shape)),
        KVCacheGroupSpec(["full"], FullAttentionSpec(block_size=64, **shape)),
    ]
    return (AsyncScheduler if is_async else Scheduler)(
        config,
        KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        StructuredOutputManager(config),
        block_size=64,
        hash_block_size=16,
        **options,
    )


def request_of(name: str, prompt: list[int], max_tokens: int = 1) -> Any:
    """A request for ``max_tokens`` tokens."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(16, sha256),
    )


def answered(scheduler: Any, output: Any) -> None:
    """Every request of the step is given a token."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[7] for _ in names],
        ),
    )


def partially_hit(scheduler: Any) -> Any:
    """The step in which a second request hits 80 tokens of the first one: a block of 64, and 16 tokens of the next."""
    scheduler.add_request(request_of("first", FIRST))
    answered(scheduler, scheduler.schedule())
    scheduler.add_request(request_of("second", [*FIRST[:85], *range(300, 360)]))
    return scheduler.schedule()


@pytest.mark.parametrize("is_async", [False, True], ids=["Scheduler", "AsyncScheduler"])
def test_a_step_carries_its_copies(model: Path, is_async: bool) -> None:
    """From the first request's block into the second one's own, as many tokens as the hit has in it; once."""
    scheduler = scheduler_of(model, is_async)
    scheduler.add_request(request_of("first", FIRST))
    step = scheduler.schedule()
    source = scheduler.kv_cache_manager.get_block_ids("first")[FULL][1]
    assert () == copies_of(step)
    answered(scheduler, step)
    scheduler.add_request(request_of("second", [*FIRST[:85], *range(300, 360)], max_tokens=3))
    step = scheduler.schedule()
    destination = scheduler.kv_cache_manager.get_block_ids("second")[FULL][1]
    assert 80 == step.scheduled_new_reqs[0].num_computed_tokens
    assert (BlockCopy(FULL, source, destination, 16),) == copies_of(step)
    answered(scheduler, step)
    step = scheduler.schedule()
    assert ({"second"}, ()) == (set(step.num_scheduled_tokens), copies_of(step))


def test_the_source_is_let_go_of(model: Path) -> None:
    """It is held while the step is scheduled, and freed once the copy is sent."""
    scheduler = scheduler_of(model)
    (copy,) = copies_of(partially_hit(scheduler))
    pool = scheduler.kv_cache_manager.block_pool
    assert [0, 1] == [pool.blocks[copy.source].ref_cnt, pool.blocks[copy.destination].ref_cnt]


def test_copies_reach_other_processes(model: Path) -> None:
    """Pickled, copied, or as a new output of the same fields, which a runner with an n-gram drafter makes itself."""
    step = partially_hit(scheduler_of(model))
    (copy,) = copies_of(step)
    for sent in (pickle.loads(pickle.dumps(step, protocol=5)), deepcopy(step), replace(step, num_scheduled_tokens={})):
        assert (copy,) == copies_of(sent)


def test_a_step_without_copies_carries_nothing(model: Path) -> None:
    """Not even an empty tuple."""
    scheduler = scheduler_of(model)
    scheduler.add_request(request_of("first", FIRST))
    assert not hasattr(scheduler.schedule().scheduled_cached_reqs, CARRIED)


def test_without_partial_hits_nothing_is_asked(model: Path) -> None:
    """A scheduler that was built before they were switched on works as before."""
    activate(Configuration())
    step = partially_hit(scheduler_of(model))
    assert (64, ()) == (step.scheduled_new_reqs[0].num_computed_tokens, copies_of(step))


def test_copies_are_done_after_zeros_and_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner brings its states up to date, then copies; the result of vLLM's function is returned."""
    done: list[object] = []
    monkeypatch.setattr("swa_retention.copying.runner.copy_blocks", lambda _runner, copies: done.extend(copies))

    def states_updated(_self: Any, _output: Any) -> str:
        done.append("zeros")
        return "corrections"

    patched = update_states(states_updated)
    copy = BlockCopy(FULL, 3, 4, 16)
    step = SimpleNamespace(scheduled_cached_reqs=SimpleNamespace(**{CARRIED: (copy,)}))
    assert "corrections" == patched(None, step)
    assert ["zeros", copy] == done
    assert "corrections" == patched(None, SimpleNamespace(scheduled_cached_reqs=SimpleNamespace()))
    assert ["zeros", copy, "zeros"] == done


@pytest.mark.parametrize(
    ("worker", "is_second", "connector", "says"),
    [
        ("vllm.v1.worker.cpu_worker.CPUWorker", False, None, None),
        ("vllm.v1.worker.cpu_worker.CPUWorker", True, None, "second model runner"),
        ("somebody.else.Worker", False, None, "the worker somebody.else.Worker"),
        ("vllm.v1.worker.cpu_worker.CPUWorker", False, "one", "a KV connector"),
    ],
)
def test_a_worker_without_ordered_copies_is_rejected(
    model: Path, worker: str, is_second: bool, connector: str | None, says: str | None
) -> None:
    """When the scheduler is built, in any process, with a message that names the variable."""
    scheduler: Any = scheduler_of(model)
    scheduler.vllm_config.parallel_config.worker_cls = worker
    scheduler.vllm_config.kv_transfer_config = connector
    scheduler.use_v2_model_runner = is_second
    build = started(lambda _self: None)
    if says is None:
        build(scheduler)
        return
    with pytest.raises(ConfigurationError, match=f"VLLM_PREFIX_CACHE_PARTIAL_HITS.*{says}"):
        build(scheduler)
    # Without partial hits it does not matter.
    scheduler.kv_cache_manager.coordinator.partial = None
    build(scheduler)
