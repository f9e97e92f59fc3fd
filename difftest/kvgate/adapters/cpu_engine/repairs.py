"""What the CPU build of vLLM 0.20.2 lacks for these models, and nothing of the block manager.

It starts neither drafts nor gpt-oss in 32 bits. Its stand-ins for the kernels of draft rejection do not take the
arguments that they are called with, and its attention takes sinks in bfloat16 only.
"""

from __future__ import annotations

from typing import Any


def repair() -> None:
    """Repair both in this process; a second call changes nothing."""
    import vllm.utils.cpu_triton_utils as kernels
    from vllm.model_executor.models import gpt_oss

    attention: Any = gpt_oss.OAIAttention
    if not getattr(attention, "kvgate_repaired", False):
        attention.kvgate_repaired = True
        _sinks_in_bfloat16(attention)
        _without_synthetic_rates(kernels.rejection_greedy_sample_kernel, rates=2)
        _without_synthetic_rates(kernels.rejection_random_sample_kernel, rates=1)


def _sinks_in_bfloat16(attention: Any) -> None:
    import torch

    made = attention.__init__

    def with_sinks(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        # In place: what the layer hands to its kernel is the same parameter.
        self.sinks.data = self.sinks.data.to(torch.bfloat16)

    attention.__init__ = with_sinks


def _without_synthetic_rates(kernel: Any, rates: int) -> None:
    """Leave out the last ``rates`` arguments in order, which only say how often a synthetic draft is right."""
    called = kernel.func

    def without(*given: Any, **named: Any) -> None:
        if named.pop("SYNTHETIC_MODE", False):
            raise NotImplementedError("the CPU build has no synthetic drafts")
        called(*given[:-rates], **named)

    kernel.func = without
