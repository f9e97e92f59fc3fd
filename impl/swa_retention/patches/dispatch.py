"""The copies of a step, from vLLM's scheduler to its workers.

They are attached where all schedulers end a step: vLLM's own, its asynchronous one and those of vLLM-Ascend, which
write their own ``schedule``. They ride on the output's part for running requests, for that part is handed on as it is,
by pickling to other processes and by the runner that makes itself a new output of the same fields (it does with an
n-gram drafter on the device). A step without copies carries nothing.

A worker does them after ``_update_states``, before anything is computed. By then blocks that want zeros have them, and
a connector that still reads the blocks of a preempted request has finished. Every worker has the tensors of its own
layers and heads, and does all copies in these. A step without a token is sent to the workers too, and its copies are
done.

The source is released as soon as the step is sent, although the copy is yet to be done. That is sound because a worker
runs its steps in the order in which they were scheduled, on one stream, with several in flight too. The next owner of
the block writes into it in a later step. A writer that does not keep that order is not covered, such as a connector
that loads into a block that it got one step later. A dummy batch is not a step of the scheduler, and has no copies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from swa_retention.config import PARTIAL, ConfigurationError
from swa_retention.partial.copies import BlockCopy
from swa_retention.partial.dispatch import take_copies
from swa_retention.register import Patch

CARRIED = "swa_retention_copies"
"""The attribute that the copies are carried in."""

WORKERS = (
    "vllm.v1.worker.gpu_worker.Worker",
    "vllm.v1.worker.cpu_worker.CPUWorker",
    "vllm.v1.worker.xpu_worker.XPUWorker",
    "vllm_ascend.worker.worker.NPUWorker",
)
"""Those whose runner is vLLM's, or inherits its ``_update_states``."""


def copies_of(scheduler_output: Any) -> tuple[BlockCopy, ...]:
    """The copies that a step begins with."""
    copies: tuple[BlockCopy, ...] = getattr(scheduler_output.scheduled_cached_reqs, CARRIED, ())
    return copies


def started(original: Any) -> Callable[..., None]:
    """``Scheduler.__init__`` that rejects a worker which would not do the copies in order: it would compute on garbage.

    An engine would know more, but in a process of its own it is being built already when vLLM loads plug-ins.
    """

    @wraps(original)
    def start(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        if getattr(self.kv_cache_manager.coordinator, "partial", None) is None:
            return
        worker = self.vllm_config.parallel_config.worker_cls
        if self.use_v2_model_runner:
            raise ConfigurationError(PARTIAL, "on", "vLLM's second model runner does no copies; unset one of the two")
        if worker not in WORKERS:
            raise ConfigurationError(PARTIAL, "on", f"the worker {worker} does no copies; unset it for this device")
        if self.vllm_config.kv_transfer_config is not None:
            reason = "a KV connector may write into the source of a copy before it is copied; unset one of the two"
            raise ConfigurationError(PARTIAL, "on", reason)
        if self.vllm_config.model_config.enable_return_routed_experts:
            reason = "the experts of copied tokens are recorded by slot, and are not copied; unset one of the two"
            raise ConfigurationError(PARTIAL, "on", reason)

    return start


def update_after_schedule(original: Any) -> Callable[..., None]:
    """``Scheduler._update_after_schedule``, after which the step carries its copies."""

    @wraps(original)
    def _update_after_schedule(self: Any, scheduler_output: Any) -> None:
        original(self, scheduler_output)
        copies = take_copies(self.kv_cache_manager)
        if copies:
            setattr(scheduler_output.scheduled_cached_reqs, CARRIED, copies)

    return _update_after_schedule


def update_states(original: Any) -> Callable[..., Any]:
    """``GPUModelRunner._update_states``, after which the copies are done."""

    @wraps(original)
    def _update_states(self: Any, scheduler_output: Any) -> Any:
        corrections = original(self, scheduler_output)
        copies = copies_of(scheduler_output)
        if copies:
            from swa_retention.copying.runner import copy_blocks

            copy_blocks(self, copies)
        return corrections

    return _update_states


_UPSTREAM = "none in vLLM; vllm-project/vllm-ascend#10193 has a queue of its own"
_UNTIL = "vLLM has partial hits of this kind"

PATCHES = (
    Patch(
        "vllm.v1.core.sched.scheduler:Scheduler.__init__",
        "A worker that does not know of the copies would compute on what happens to be in the destination.",
        "After vLLM's own code, the worker's class is checked, and that no connector writes into blocks on its own.",
        _UPSTREAM,
        _UNTIL,
        "a8a7086aa8da108d",
        started,
        only_wraps=True,
    ),
    Patch(
        "vllm.v1.core.sched.scheduler:Scheduler._update_after_schedule",
        "A hit that ends inside a block is served by a copy, which the workers do.",
        "After vLLM's own code, the copies of the step are attached to its output, if there are any.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "0f11dd17ba7efe1b", "0.22.1": "594784420cbbe93f", "0.23.0": "f792e3d109b97e3f"},
        update_after_schedule,
        only_where="vllm",
    ),
    Patch(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._update_states",
        "Before a step computes, its copies must be done.",
        "After vLLM's own code, they are done; the runners for CPUs, XPUs and NPUs inherit it.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "7de56b1be05f36fb", "0.21.0": "45861b707363446c", "0.22.1": "3c893ae331a2941b"},
        update_states,
        only_where="vllm",
    ),
)
