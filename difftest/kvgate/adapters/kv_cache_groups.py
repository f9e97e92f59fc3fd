"""The groups that the installed vLLM makes of a configuration, asked of vLLM itself.

The model is built without weights, on torch's device ``meta``, and its layers say what they keep; vLLM's own functions
make groups of that. ``python -m kvgate.adapters.kv_cache_groups FOLDER…`` prints a dump for each folder with a
``config.json``, one a line, or why there is none. The flags of vLLM are in the folder's ``flags.json``.

With the folder of another release first on the path, it is that release that says so. Its compiled parts are not there
(``kvgate.adapters.fetching``), and layers look up their operators by name when they are built: a name that is not there
is answered with an operator that cannot be called, for nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvgate.adapters.kv_cache_dump import groups_of
from kvgate.kernel.child_process import describe_end, run

SECONDS_MAX = 120
_KERNEL_TOKENS = 16
"""What attention's kernels on a GPU want blocks to be a multiple of; those of a CPU may want more."""
_SAID = "kvgate "
"""What an answer begins with, since vLLM prints too."""
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def groups(folder: Path, **flags: Any) -> list[dict[str, Any]]:
    """The groups of the model in ``folder``, as a dump has them, served with vLLM's ``flags``.

    This process is then set up for that model: ask for each in turn, and serve nothing in it.
    """
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)
    import torch

    _on_a_cpu()
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.platforms.interface import Platform
    from vllm.usage.usage_lib import UsageContext

    _operators_by_name()
    # vLLM looks at a model's class in a process of its own, which imports vLLM again, to leave CUDA alone in this one.
    registry._run_in_subprocess = lambda fn: fn()
    arguments: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "bfloat16", "enforce_eager": True, **flags}
    if not hasattr(Platform, "update_block_size_for_backend"):
        # Then a CPU has a default of its own.
        arguments.setdefault("block_size", _KERNEL_TOKENS)
    config = EngineArgs(model=str(folder), **arguments).create_engine_config(UsageContext.LLM_CLASS)
    with set_current_vllm_config(config):
        _alone()
        with torch.device("meta"):
            initialize_model(vllm_config=config)
        # What a platform with kernels does to block sizes; that of a CPU leaves them as they are.
        update: Any = getattr(Platform, "update_block_size_for_backend", None)
        if update is not None:
            update.__func__(type(current_platform), config)
        kind: Any = AttentionLayerBase
        layers: dict[str, Any] = get_layers_from_vllm_config(config, kind)
        kept = {
            name: layer.get_kv_cache_spec(config)
            for name, layer in layers.items()
            if getattr(layer, "kv_sharing_target_layer_name", None) is None
        }
        specs = {name: spec for name, spec in kept.items() if spec is not None}
        _resolve_layout(config, specs)
        return groups_of(_grouped(config, specs))


def asked_in_a_process(folder: Path, flags: dict[str, Any]) -> list[dict[str, Any]]:
    """The same, asked in a process of its own, which takes about ten seconds.

    Raises:
        ValueError: vLLM does not say, and why.
    """
    program = f"from {__name__} import answer; answer({str(folder.resolve())!r}, {flags!r})"
    # Python imports from the current folder first, and a user's may have a package called vllm.
    with TemporaryDirectory() as nothing:
        ended = run([sys.executable, "-c", program], SECONDS_MAX, cwd=nothing)
    lines = ended.output.splitlines()
    said = [line.partition(_SAID)[2] for line in lines if _SAID in line]
    if not said:
        raise ValueError(f"{describe_end(ended.code)}: {lines[-1] if lines else 'no output'}"[:500])
    answered: dict[str, Any] = json.loads(said[-1])
    if "refused" in answered:
        raise ValueError(answered["refused"])
    made: list[dict[str, Any]] = answered["groups"]
    return made


def answer(folder: str, flags: dict[str, Any]) -> None:
    """Print the groups of one folder, or why there are none."""
    try:
        said: dict[str, Any] = {"groups": groups(Path(folder), **flags)}
    except Exception as error:
        said = {"refused": f"{type(error).__name__}: {error}"[:500]}
    print(f"{_SAID}{json.dumps({'folder': Path(folder).name, **said})}", flush=True)


def _on_a_cpu() -> None:
    """Take the CPU for vLLM's platform, also where the release was built for another one that is not here; but with
    the blocks of attention on a GPU."""
    import torch

    if not hasattr(torch._C._cpu, "_is_avx512_supported"):
        # Older releases ask this of an older torch, to choose among kernels that are not here.
        setattr(torch._C._cpu, "_is_avx512_supported", lambda: False)  # noqa: B010  # torch's stubs lack it
    from vllm import platforms

    if not platforms.current_platform.device_type:
        from vllm.platforms.cpu import CpuPlatform

        platforms.current_platform = CpuPlatform()
    from vllm.v1.attention.backends import cpu_attn
    from vllm.v1.attention.backends.flash_attn import MultipleOf

    backend: Any = cpu_attn.CPUAttentionBackend
    backend.get_supported_kernel_block_sizes = staticmethod(lambda *_arguments: [MultipleOf(_KERNEL_TOKENS)])


def _operators_by_name() -> None:
    """Answer the names of compiled operators that are not there."""
    import torch

    namespace = type(torch.ops._C)
    original: Any = namespace.__getattr__

    def get(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if self.name not in _COMPILED or name.startswith("__"):
                raise
            return _not_compiled

    setattr(namespace, "__getattr__", get)  # noqa: B010  # mypy knows it as a method


_COMPILED = ("_C", "_moe_C", "_C_cache_ops")
"""The namespaces of vLLM's compiled operators."""


def _not_compiled(*_arguments: object, **_options: object) -> None:
    raise NotImplementedError("vLLM's compiled operators are not here")


def _resolve_layout(config: Any, specs: dict[str, Any]) -> None:
    """Where the engine decides once how blocks lie in memory, before it makes groups, decide as it does."""
    from vllm.v1.attention.backends import utils

    resolve = getattr(utils, "resolve_kv_cache_layout", None)
    if resolve is not None:
        from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

        backends = get_current_attn_backends(config)
        resolve(config, [[each.name for each in utils.get_supported_kv_cache_layouts(backends)]], specs.values())


def _grouped(config: Any, specs: dict[str, Any]) -> Any:
    """The groups that the release's engine makes of its layers."""
    try:
        from vllm.v1.core.kv_cache_planning import get_kv_cache_groups_from_builder
    except ImportError:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

        return get_kv_cache_groups(config, specs)
    from vllm.v1.core.kv_cache_planning import DefaultKVCacheConfigBuilder

    return get_kv_cache_groups_from_builder(DefaultKVCacheConfigBuilder(), config, specs)


def _alone() -> None:
    """One worker, and no others: set up anew, since some groups of workers are there for some models only."""
    import torch
    from vllm import distributed
    from vllm.utils.network_utils import get_open_port

    if not torch.distributed.is_initialized():
        distributed.init_distributed_environment(1, 0, f"tcp://127.0.0.1:{get_open_port()}", 0, "gloo")
    forget: Any = distributed.destroy_model_parallel
    forget()
    distributed.ensure_model_parallel_initialized(1, 1)


def _main(folders: list[str]) -> None:
    for folder in folders:
        flags = Path(folder) / "flags.json"
        answer(folder, json.loads(flags.read_text()) if flags.is_file() else {})


if __name__ == "__main__":
    _main(sys.argv[1:])
