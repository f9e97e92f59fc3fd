"""An engine in this process, which starts in seconds.

vLLM reads its environment when it is imported and when an engine starts: call ``prepare_environment`` before either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvgate.adapters.cpu_engine.hybrids import BLOCK_SIZE_TOKENS

if TYPE_CHECKING:
    from vllm import LLM

ENVIRONMENT = {
    # No model is looked for anywhere but on this machine.
    "HF_HUB_OFFLINE": "1",
    # Compiling takes minutes, and an answer of these models milliseconds.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    # One thread: sums are added up in one order, and waiting threads do not take each other's time.
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""What makes an engine small, and its answers the same every time."""
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

SMALL: Mapping[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": BLOCK_SIZE_TOKENS,
    "num_gpu_blocks_override": 400,
    "max_model_len": 2048,
    # Longer prompts are computed in chunks.
    "max_num_batched_tokens": 256,
    "max_num_seqs": 8,
}
"""Engine options, under vLLM's own names."""


def prepare_environment(plug_ins: str = "swa_retention", more: Mapping[str, str] | None = None) -> None:
    """Set this process's environment for an engine: nothing of vLLM but what is named here and in ``more``."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    os.environ.update({**ENVIRONMENT, **IN_PROCESS, "VLLM_PLUGINS": plug_ins, **(more or {})})


def start(folder: Path, **options: Any) -> LLM:
    """An engine with the model in ``folder``, with vLLM's own ``options`` in place of ``SMALL``'s.

    Its weights are read, and its plug-ins loaded, as in any vLLM; its scheduler runs in this process.
    """
    from vllm import LLM
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    from kvgate.adapters.cpu_engine.repairs import repair

    repair()
    settings: dict[str, Any] = {"skip_tokenizer_init": True, "disable_log_stats": False, **SMALL, **options}
    return LLM(model=str(folder), distributed_executor_backend=UniProcExecutor, **settings)


def runner_of(engine: Any) -> Any:
    """The engine's model runner, which has the KV cache."""
    return engine.llm_engine.model_executor.driver_worker.worker.model_runner


def scheduler_of(engine: Any) -> Any:
    """The engine's scheduler, which has the block manager."""
    return engine.llm_engine.engine_core.engine_core.scheduler


def groups_of(engine: Any) -> list[tuple[str, int]]:
    """The kind and the block size, in tokens, of each KV-cache group."""
    specs = [group.kv_cache_spec for group in runner_of(engine).kv_cache_config.kv_cache_groups]
    return [(type(spec).__name__, spec.block_size) for spec in specs]
