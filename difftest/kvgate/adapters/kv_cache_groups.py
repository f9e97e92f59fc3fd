"""The groups that the installed vLLM makes of a configuration, asked of vLLM itself.

The model is built without weights, on torch's device ``meta``, and its layers say what they keep; vLLM's own functions
make groups of that. ``python -m kvgate.adapters.kv_cache_groups FOLDER…`` prints a dump for each folder with a
``config.json``, one a line, or why there is none. The flags of vLLM are in the folder's ``flags.json``.

With the folder of another release first on the path, it is that release that says so. Its compiled parts are not there
(``kvgate.adapters.fetching``), and layers look up their operators by name when they are built. For a missing name they
get an operator that cannot be called, because nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvgate.adapters.kv_cache_dump import groups_of
from kvgate.kernel.child_process import describe_end, run

SECONDS_MAX = 120
_KERNEL_TOKENS = 16
"""What attention's kernels on a GPU want blocks to be a multiple of; those of a CPU may want more."""
_LATENT = f"{__spec__.name if __spec__ else __name__}.Latent"
"""What is taken for latent attention, as vLLM names a back-end: ``Latent``, below."""
_SAID = "kvgate "
"""What an answer begins with, since vLLM prints too."""
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def groups(folder: Path, **flags: Any) -> tuple[list[dict[str, Any]], int | None]:
    """The groups of the model in ``folder``, as a dump has them, served with vLLM's ``flags``; and how many bytes a
    block of the pool takes, where vLLM has a function that says it.

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

    # vLLM looks at a model's class in a process of its own, which imports vLLM again, to leave CUDA alone in this one.
    registry._run_in_subprocess = lambda fn: fn()
    arguments: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "bfloat16", "enforce_eager": True, **flags}
    if not hasattr(Platform, "update_block_size_for_backend"):
        # Then a CPU has a default of its own.
        arguments.setdefault("block_size", _KERNEL_TOKENS)
    config = EngineArgs(model=str(folder), **arguments).create_engine_config(UsageContext.LLM_CLASS)
    with set_current_vllm_config(config):
        alone()
        with torch.device("meta"):
            initialize_model(vllm_config=config)
        # What a platform with kernels does to block sizes; that of a CPU leaves them as they are.
        update: Any = getattr(Platform, "update_block_size_for_backend", None)
        if update is not None:
            update.__func__(type(current_platform), config)
        elif config.model_config.use_mla:
            raise ValueError("this release sizes blocks of latent attention in the code of its platform for CUDA")
        kind: Any = AttentionLayerBase
        layers: dict[str, Any] = get_layers_from_vllm_config(config, kind)
        kept = {
            name: layer.get_kv_cache_spec(config)
            for name, layer in layers.items()
            if getattr(layer, "kv_sharing_target_layer_name", None) is None
        }
        specs = {name: spec for name, spec in kept.items() if spec is not None}
        _resolve_layout(config, specs)
        made = _grouped(config, specs)
        count = getattr(import_module("vllm.v1.core.kv_cache_utils"), "_pool_bytes_per_block", None)
        return groups_of(made), count(made) if count is not None else None


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
        made, block_bytes = groups(Path(folder), **flags)
        said: dict[str, Any] = {"groups": made, "block_bytes": block_bytes}
    except Exception as error:
        said = {"refused": f"{type(error).__name__}: {error}"[:500]}
    print(f"{_SAID}{json.dumps({'folder': Path(folder).name, **said})}", flush=True)


@cache
def _on_a_cpu() -> None:
    """Take the CPU for vLLM's platform, also where the release was built for another one that is not here; but with
    the blocks that attention has on a GPU."""
    import torch

    if not hasattr(torch._C._cpu, "_is_avx512_supported"):
        # Older releases ask this of an older torch, to choose among kernels that are not here.
        setattr(torch._C._cpu, "_is_avx512_supported", lambda: False)  # noqa: B010  # torch's stubs lack it
    from vllm import platforms

    if not platforms.current_platform.device_type:
        from vllm.platforms.cpu import CpuPlatform

        platforms.current_platform = CpuPlatform()
    _operators_by_name()
    _blocks_of_a_gpu(type(platforms.current_platform))


def _blocks_of_a_gpu(platform: Any) -> None:
    from vllm.v1.attention.backends import cpu_attn, flash_attn

    backend: Any = cpu_attn.CPUAttentionBackend
    sizes = [vars(flash_attn)["MultipleOf"](_KERNEL_TOKENS)]
    backend.get_supported_kernel_block_sizes = staticmethod(lambda *_arguments: sizes)
    choose = platform.get_attn_backend_cls.__func__

    def chosen(cls: Any, *arguments: Any, **options: Any) -> Any:
        asked = (*arguments, *options.values())
        is_latent = options.get("use_mla") or any(getattr(each, "use_mla", False) for each in asked)
        return _LATENT if is_latent else choose(cls, *arguments, **options)

    platform.get_attn_backend_cls = classmethod(chosen)
    try:
        latent: Any = import_module("vllm.model_executor.layers.attention.mla_attention")
    except ImportError:
        return
    if hasattr(latent, "get_mla_prefill_backend"):
        # What computes prompts keeps nothing, and some of it wants compiled parts when it is built.
        latent.get_mla_prefill_backend = lambda *_arguments, **_options: lambda *_built, **_with: None


def __getattr__(name: str) -> Any:
    """``Latent``: what computes latent attention on a GPU of the Hopper generation, for a CPU has nothing for it. Its
    kernels are not looked for."""
    if name != "Latent":
        raise AttributeError(name)
    from vllm.v1.attention.backends.mla.flashmla import FlashMLABackend

    base: Any = FlashMLABackend
    kernels = type("Kernels", (base.get_impl_cls(),), {"__init__": lambda *_arguments, **_options: None})
    return type("Latent", (base,), {"get_impl_cls": staticmethod(lambda: kernels)})


def _operators_by_name() -> None:
    """Answer the names of compiled operators that are not there."""
    import torch

    # It describes to torch those that there are: it must have been imported.
    import_module("vllm._custom_ops")
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

    deciding: Any = utils
    if hasattr(deciding, "resolve_kv_cache_layout"):
        from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends

        layouts = deciding.get_supported_kv_cache_layouts(get_current_attn_backends(config))
        deciding.resolve_kv_cache_layout(config, [[each.name for each in layouts]], specs.values())


def _grouped(config: Any, specs: dict[str, Any]) -> Any:
    """The groups that the release's engine makes of its layers."""
    from vllm.v1.core import kv_cache_utils

    try:
        planning: Any = import_module("vllm.v1.core.kv_cache_planning")
    except ImportError:
        return kv_cache_utils.get_kv_cache_groups(config, specs)
    return planning.get_kv_cache_groups_from_builder(planning.DefaultKVCacheConfigBuilder(), config, specs)


def alone() -> None:
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
