"""What stands in for the parts of vLLM-Ascend's worker that need an NPU, or a package that is not there.

``STAND_INS`` is the whole list. Everything else is imported as published: no module of ``vllm_ascend.attention`` or
``vllm_ascend.worker`` is replaced, and a name of torch_npu that is not listed is an ``AttributeError`` when it is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from attrs import frozen

from kvgate.adapters.model_runner.compressor import OPERATOR


@frozen
class StandIn:
    """One name that is replaced."""

    name: str
    """The module and the attribute: ``torch_npu:hifloat8``."""
    by: str
    """What is there instead."""
    why: str
    interpreted: bool = False
    """Whether what is there instead runs the published source."""


KERNEL = "npu_sparse_attn_sharedkv"
"""The compiled operator that modules name when they are imported."""
PLANS = {
    "npu_sparse_attn_sharedkv_metadata": "",
    "npu_quant_lightning_indexer_metadata": "",
    "npu_vllm_quant_lightning_indexer_metadata": " (0.23.0)",
    "npu_quant_lightning_indexer_v2_metadata": " (0.30.0rc2)",
}
"""The compiled operators that plan the work of kernels, which the metadata of a step is built with; and of which
release alone."""
VECTOR_CORES = 5
"""How many programs of a Triton kernel a chip runs side by side: fewer than a kernel has work for."""
INTERPRETED = "the same published source under Triton's interpreter"
_TYPE = "a class without methods, which annotations name and nothing calls"
_DTYPE = "a torch dtype of the same width"
STAND_INS = (
    *(
        StandIn(f"torch.npu:{name}", _TYPE, "CANN's runtime has it")
        for name in ("Event", "ExternalEvent", "NPUGraph", "Stream")
    ),
    StandIn("torch.npu:config", "a namespace that keeps what is assigned", "a flag for tensor layouts of the NPU"),
    StandIn("torch_npu._C:_NPUTaskGroupHandle", _TYPE, "CANN's graphs have it"),
    StandIn("torch_npu:float8_e8m0fnu", _DTYPE, "quantised layers name it when they are imported"),
    StandIn("torch_npu:float4_e2m1fn_x2", _DTYPE, "quantised layers name it when they are imported"),
    StandIn("torch_npu:hifloat8", _DTYPE, "quantised layers name it when they are imported"),
    StandIn(
        f"torch.ops._C_ascend:{KERNEL} (from 0.23.0 on)", "a function that raises", "a compiled kernel, not called"
    ),
    *(
        StandIn(
            f"torch.ops._C_ascend:{name}{release}",
            "a plan of zeros",
            "a compiled operator; only kernels read its plan",
        )
        for name, release in PLANS.items()
    ),
    StandIn(
        f"torch.ops._C_ascend:{OPERATOR} (0.23.0, 0.30.0rc2)",
        "a function that returns a copy of its arguments, which are compared",
        "a compiled operator; it maps compressed slots",
    ),
    StandIn(
        "vllm_ascend.eplb.core.policy.policy_flashlb:FlashLB, warm_up",
        "None",
        "expert load balancing needs scipy, and is not run",
    ),
    StandIn(
        "scipy, scipy.optimize:nnls (from 0.23.0 on)",
        "empty modules, if scipy is missing",
        "layers and a predictor of chunks name it, and are not run",
    ),
    StandIn(
        "vllm_ascend._build_info:__device_type__ (0.30.0rc2)",
        "A2, as the wheels of 0.20.2rc1 and 0.23.0 say",
        "it is made when a source archive is built",
    ),
    StandIn("torch:Tensor.pin_memory", "the tensor itself", "memory is pinned for a device"),
    StandIn("torch:zeros(pin_memory)", "no memory is pinned", "memory is pinned for a device"),
    StandIn("torch:Tensor.npu", "the tensor itself", "torch_npu adds it"),
    StandIn(
        "transformers:DeepseekV4Config (0.33.0)",
        _TYPE,
        "vLLM's model runner names it through its models, and the transformers that is installed has it not",
    ),
    StandIn("vllm:PIN_MEMORY, CpuGpuBuffer.__init__ (0.33.0)", "no memory is pinned", "memory is pinned for a device"),
    StandIn(
        "vllm.v1.worker.block_table:_compute_slot_mapping_kernel",
        INTERPRETED,
        "compiled Triton needs a device",
        interpreted=True,
    ),
    StandIn(
        "vllm.v1.worker.utils:_zero_kv_blocks_kernel",
        INTERPRETED,
        "compiled Triton needs a device",
        interpreted=True,
    ),
    StandIn(
        "vllm_ascend.ops.triton.triton_utils:_NUM_VECTORCORE (from 0.23.0 on)",
        f"{VECTOR_CORES}",
        "a driver reports it",
    ),
    StandIn(
        "vllm.distributed.parallel_state:_PP, _TP, _DCP, _PCP",
        "a rank and a size",
        "groups of processes need a collective library",
    ),
    StandIn(
        "NPUModelRunner.__init__",
        "its fields, set one by one",
        "it loads drafters, graphs and rotary tables of a model that is not there",
    ),
    StandIn(
        "the layers of a model, in static_forward_context",
        "namespaces with a KV cache, widths of latent attention and no back-end for prompts",
        "no model is loaded",
    ),
    StandIn(
        "the configuration of a model, and its rotary tables",
        "widths and counts of heads of DeepSeek-V4, and tables in which a row holds its position",
        "no model is loaded",
    ),
    StandIn(
        "get_attn_backend of a model's layers",
        "DeepSeek-V4's back-ends by the kind of cache; three of them at once where nothing is compressed",
        "no model is loaded",
    ),
    StandIn(
        "the plan of the KV cache (0.20.2rc1, 0.23.0)",
        "a memory for each group, which has one layer of one head of one element",
        "plans depend on a model's layers; a test of its own makes DeepSeek-V4's",
    ),
    StandIn(
        "SchedulerOutput.new_block_ids_to_zero (native@0.33.0)",
        "the blocks that hold nothing yet",
        "the scheduler orders it for models with states or several precisions alone",
    ),
    StandIn(
        "NPUModelRunner.execute_model",
        "calls of its methods, and the positions that it computes in between",
        "it runs a model; steps are not padded",
    ),
)
"""All of them."""


class _Absent(ModuleType):
    """A module of which only what is listed exists."""

    def __getattr__(self, name: str) -> Any:
        listed = f"{self.__name__}:{name}"
        raise AttributeError(f"{listed} needs an NPU, and nothing stands in for it")


def _uncalled(*_arguments: Any, **_named: Any) -> None:
    raise AttributeError("a compiled kernel, which needs an NPU")


def _no_plan(**_named: Any) -> Any:
    import torch

    return torch.zeros(1024, dtype=torch.int32)


def _recorded(*arguments: Any) -> tuple[Any, ...]:
    """As they are now: buffers are used again."""
    return tuple(each.clone() if hasattr(each, "clone") else each for each in arguments)


class _Finder(MetaPathFinder, Loader):
    """Finds what is in ``modules``."""

    def __init__(self, modules: Mapping[str, Callable[[Any], None]]) -> None:
        self.modules = modules

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        del path, target
        return ModuleSpec(fullname, self, is_package=True) if fullname in self.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self.modules[module.__name__](module)


def _torch_npu(module: Any) -> None:
    import torch

    for name, dtype in (
        ("float8_e8m0fnu", torch.uint8),
        ("float4_e2m1fn_x2", torch.uint8),
        ("hifloat8", torch.uint8),
    ):
        setattr(module, name, dtype)
    module._C = _Absent("torch_npu._C")
    module._C._NPUTaskGroupHandle = type("_NPUTaskGroupHandle", (), {})


def _policy(module: Any) -> None:
    module.FlashLB = module.warm_up = None


def _scipy_optimize(module: Any) -> None:
    module.nnls = None


def _build_info(module: Any) -> None:
    module.__device_type__ = "A2"


_MODULES: dict[str, Callable[[Any], None]] = {
    "torch_npu": _torch_npu,
    "vllm_ascend.eplb.core.policy.policy_flashlb": _policy,
}
_IF_ABSENT: dict[str, Callable[[Any], None]] = {
    "scipy": lambda _module: None,
    "scipy.optimize": _scipy_optimize,
    "vllm_ascend._build_info": _build_info,
}


def install(later: bool = False) -> None:
    """Put the stand-ins in place, once a process, after vLLM's own model runner was imported; ``later`` than 0.20.2rc1.

    Other packages ask whether torch_npu is there, and would use it.
    """
    import torch

    if "torch_npu" in sys.modules:
        return
    importlib.import_module("vllm.v1.worker.gpu_model_runner")
    with suppress(ImportError):
        # It asks which scipy there is.
        importlib.import_module("numba")
    sys.meta_path.insert(0, _Finder(_MODULES))
    sys.meta_path.append(_Finder(_IF_ABSENT))
    npu: Any = _Absent("torch.npu")
    for name in ("Event", "ExternalEvent", "NPUGraph", "Stream"):
        setattr(npu, name, type(name, (), {}))
    npu.config = type("Config", (), {})()
    if later:
        setattr(torch.ops._C_ascend, KERNEL, _uncalled)
        setattr(torch.ops._C_ascend, OPERATOR, _recorded)
    for name in PLANS:
        setattr(torch.ops._C_ascend, name, _no_plan)
    torch.npu = npu  # type: ignore[attr-defined]  # torch_npu adds it
    # mypy: a method is replaced on purpose.
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]
    torch.Tensor.npu = lambda tensor: tensor  # type: ignore[attr-defined]  # torch_npu adds it
    zeros = torch.zeros
    torch.zeros = lambda *size, **named: zeros(*size, **{**named, "pin_memory": False})


def unpin() -> None:
    """Let newer releases of vLLM pin no memory, which each of their modules has decided for itself."""
    transformers: Any = importlib.import_module("transformers")
    if not hasattr(transformers, "DeepseekV4Config"):
        transformers.DeepseekV4Config = type("DeepseekV4Config", (), {})
    importlib.import_module("vllm.v1.worker.gpu_model_runner")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "vllm" and "PIN_MEMORY" in vars(module):
            vars(module)["PIN_MEMORY"] = False
    utils: Any = importlib.import_module("vllm.v1.utils")
    defaults = utils.CpuGpuBuffer.__init__.__kwdefaults__
    if "pin_memory" in defaults:
        defaults["pin_memory"] = False


def interpret(module_name: str, kernel: str) -> None:
    """Let a published Triton kernel be run by Triton's interpreter: its source is the module's own."""
    os.environ["TRITON_INTERPRET"] = "1"
    triton: Any = importlib.import_module("triton")
    interpreted: Any = importlib.import_module("triton.runtime.interpreter").InterpretedFunction
    for language in map(importlib.import_module, ("triton.language", "triton.language.standard")):
        for each, value in list(vars(language).items()):
            # What is written in Triton itself: it was compiled, where Triton was imported before.
            if isinstance(value, triton.JITFunction) and not isinstance(value, interpreted):
                setattr(language, each, interpreted(value.fn))
    *owners, name = kernel.split(".")
    owner = reduce(getattr, owners, importlib.import_module(module_name))
    published = getattr(owner, name)
    if isinstance(published, interpreted):
        return
    home: Any = importlib.import_module(published.__module__)
    home.tl, home.triton = importlib.import_module("triton.language"), triton
    setattr(owner, name, interpreted(published))
