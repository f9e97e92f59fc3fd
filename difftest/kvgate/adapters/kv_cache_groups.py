"""The groups that the installed vLLM makes of a configuration, asked of vLLM itself.

The model is built without weights, on torch's device ``meta``, and its layers say what they keep; vLLM's own functions
make groups of that. ``python -m kvgate.adapters.kv_cache_groups FOLDER…`` prints a dump for each folder with a
``config.json``, one a line, or why there is none. The flags of vLLM are in the folder's ``flags.json``.
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
    from vllm.config import get_layers_from_vllm_config, set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.platforms.interface import Platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

    # vLLM looks at a model's class in a process of its own, which imports vLLM again, to leave CUDA alone in this one.
    registry._run_in_subprocess = lambda fn: fn()
    arguments: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "bfloat16", "enforce_eager": True, **flags}
    config = EngineArgs(model=str(folder), **arguments).create_engine_config(UsageContext.LLM_CLASS)
    with set_current_vllm_config(config):
        _alone()
        with torch.device("meta"):
            initialize_model(vllm_config=config)
        # What a platform with kernels does to block sizes; that of a CPU leaves them as they are.
        update: Any = Platform.update_block_size_for_backend
        update.__func__(type(current_platform), config)
        kind: Any = AttentionLayerBase
        layers: dict[str, Any] = get_layers_from_vllm_config(config, kind)
        kept = {
            name: layer.get_kv_cache_spec(config)
            for name, layer in layers.items()
            if getattr(layer, "kv_sharing_target_layer_name", None) is None
        }
        specs = {name: spec for name, spec in kept.items() if spec is not None}
        return groups_of(get_kv_cache_groups(config, specs))


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
