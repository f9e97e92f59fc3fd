"""A shadow of a model runner: the block tables and slots that a worker has prepared, compared with what was granted.

What a request was granted is read from the outputs of the scheduler, as they arrive in the worker's process; where its
slots are is ``kvreference.slots``. Each comparison waits for the device, so this is for a test of a server, and not for
one in production. It was run on CPU; on an NPU nothing of it was run yet.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any

from attrs import define, field

from kvgate.adapters.groups import spec_compress_ratio
from kvgate.adapters.model_runner.runner import prepared_by
from kvgate.adapters.releases import ASCEND, VLLM_VERSION
from kvgate.kernel.difference import Difference
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.levels.worker.slot_check import Granted, check
from kvgate.shadow.adapter.log import note, warn
from kvgate.shadow.sink_protocol import DifferenceError
from kvgate.shadow.status import Status, write
from kvreference.slots import Layout

RUNNERS = {
    "vllm.v1.worker.gpu_model_runner": "GPUModelRunner",
    "vllm_ascend.worker.model_runner_v1": "NPUModelRunner",
}
"""By module: the model runner in it. That of vLLM's CPU platform is derived from the first."""
TESTED = {"vllm_ascend": ASCEND.version, "vllm": VLLM_VERSION}
"""By package: the version whose model runner was followed."""
STATUS_SECONDS = 0.5
_MARK = "_kvgate_worker_shadow"


def watch_runners(module: ModuleType, switch: Switch) -> None:
    """Every model runner of a module that makes its batch from now on has a shadow."""
    kind: Any = vars(module)[RUNNERS[module.__name__]]
    original = kind.initialize_kv_cache

    def with_shadow(self: Any, *arguments: Any, **others: Any) -> None:
        original(self, *arguments, **others)
        attach_runner(self, switch)

    kind.initialize_kv_cache = with_shadow


def attach_runner(runner: Any, switch: Switch) -> RunnerShadow | None:
    """Give a model runner a shadow; None, and a line in the log, where that is not possible. Never raises."""
    try:
        known: RunnerShadow | None = getattr(runner, _MARK, None)
        if known is not None and known.config is runner.kv_cache_config:
            return known
        _check_version(runner)
        shadow = RunnerShadow(runner, layouts_in(runner), switch, runner.kv_cache_config)
        shadow.start()
    except Exception as error:
        warn(f"is off for this worker, which continues without it: {type(error).__name__}: {error}")
        return None
    setattr(runner, _MARK, shadow)
    note(f"worker: follows each step; ACL or CUDA graph mode: {graph_mode(runner)}")
    return shadow


def graph_mode(runner: Any) -> str:
    """How steps are captured in graphs."""
    mode = getattr(runner.compilation_config, "cudagraph_mode", None)
    return getattr(mode, "name", None) or "not known"


def layouts_in(runner: Any) -> tuple[Layout, ...]:
    """How the runner keeps each group.

    Raises:
        ValueError: what is not followed: states, workers that share prompts, drafts that are not known yet.
    """
    if getattr(runner, "use_async_spec_decode", False):
        raise ValueError("where drafts are scheduled before they are known, no start of a step is known")
    if getattr(runner, "pcp_size", 1) > 1:
        raise ValueError("workers share the computation of prompts")
    parallel = runner.parallel_config
    ranks = parallel.decode_context_parallel_size
    rank = runner.input_batch.block_table.block_tables[0].dcp_rank if ranks > 1 else 0
    layouts = []
    for index, group in enumerate(runner.kv_cache_config.kv_cache_groups):
        # Layers of several shapes in one group have one specification each.
        specs = [*getattr(group.kv_cache_spec, "kv_cache_specs", {0: group.kv_cache_spec}).values()]
        for spec in specs:
            if not hasattr(spec, "head_size"):
                raise ValueError(f"group {index} has no slots: {type(spec).__name__}")
        # vLLM-Ascend's blocks are measured in slots; vLLM's layers divide tokens by themselves.
        compresses = getattr(runner, "use_compress", False)
        kept = {(spec.block_size, spec_compress_ratio(spec) if compresses else 1) for spec in specs}
        if len(kept) > 1:
            raise ValueError(f"the layers of group {index} differ in their slots: {sorted(kept)}")
        ((block_slots, ratio),) = kept
        layouts.append(Layout(block_slots, ratio, ranks, rank, parallel.cp_kv_cache_interleave_size))
    return tuple(layouts)


def _check_version(runner: Any) -> None:
    """Whether a shadow was tested on such a runner: what later ones map, and how they count, differs.

    Raises:
        ValueError: it was not.
    """
    for kind in type(runner).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in TESTED:
            found = str(import_module(f"{package}._version").__version__).partition("+")[0]
            if found != TESTED[package]:
                raise ValueError(f"it was tested only with {package} {TESTED[package]}, and this is {found}")
            return


@define(eq=False)
class RunnerShadow:
    """What the scheduler has granted, from the outputs that this worker got."""

    runner: Any
    layouts: tuple[Layout, ...]
    switch: Switch
    config: Any
    """What the runner's batch was made for."""
    tables: dict[str, list[list[int]]] = field(factory=dict)
    """By request and group."""
    computed: dict[str, int] = field(factory=dict)
    status: Status = field(init=False)
    _is_off: bool = False
    _written: float = 0.0

    def start(self) -> None:
        """Follow from now on."""
        engine = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-worker"
        self.status = Status(engine, self.switch.mode.value, os.getpid(), socket.gethostname())
        if self.switch.mode is not Mode.STRICT:
            self.switch.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            Finalize(None, self.end, exitpriority=0)
        runner: Any = self.runner
        runner._update_states = self._around(runner._update_states, self.take)
        runner._prepare_inputs = self._around(runner._prepare_inputs, self.compare)

    def _around(self, original: Callable[..., Any], follow: Callable[[Any], None]) -> Callable[..., Any]:
        """A method of the runner, and what follows it; a failure of the shadow itself ends only the shadow."""

        def method(output: Any, *arguments: Any, **others: Any) -> Any:
            answer = original(output, *arguments, **others)
            if not self._is_off:
                try:
                    follow(output)
                except DifferenceError:
                    raise
                except Exception as error:
                    self._is_off = True
                    warn(f"of this worker ended, which continues without it: {type(error).__name__}: {error}")
                    self.end()
            return answer

        return method

    def take(self, output: Any) -> None:
        """Take in what a step grants."""
        for name in output.finished_req_ids:
            self.tables.pop(name, None)
            self.computed.pop(name, None)
        for request in output.scheduled_new_reqs:
            self.tables[request.req_id] = [list(group) for group in request.block_ids]
            self.computed[request.req_id] = request.num_computed_tokens
        known = output.scheduled_cached_reqs
        for name, blocks, computed in zip(known.req_ids, known.new_block_ids, known.num_computed_tokens, strict=True):
            if name in known.resumed_req_ids:
                self.tables[name] = [[] for _ in self.layouts]
            for table, fresh in zip(self.tables[name], blocks or (), strict=False):
                table.extend(fresh)
            self.computed[name] = computed

    def compare(self, output: Any) -> None:
        """Compare what was prepared for a step."""
        granted = {
            name: Granted(self.computed[name], self.computed[name] + tokens, self.tables[name])
            for name, tokens in output.num_scheduled_tokens.items()
        }
        self.status.steps += 1
        self.status.calls += 1
        self.status.judged += 1
        # What comes after the step's slots is padded later, when metadata is built.
        found = check(prepared_by(self.runner), granted, self.layouts, padded=False)
        if found is not None:
            self._report(found)
        if time.monotonic() - self._written > STATUS_SECONDS:
            self._write()

    def _report(self, found: Difference) -> None:
        text = f"{found.statement}: {found.subject}: expected {found.expected}, got {found.got}"
        self.status.differences += 1
        if self.switch.mode is Mode.STRICT:
            raise DifferenceError(text)
        if not self.status.first:
            self.status.first = text
            warn(f"of this worker: {text}")

    def _write(self) -> None:
        self._written = time.monotonic()
        if self.switch.mode is not Mode.STRICT:
            write(self.switch.dir, self.status)

    def end(self) -> None:
        """Leave a last status."""
        self.status.state = "ended"
        try:
            self._write()
        except OSError as error:
            warn(f"of this worker: its status cannot be written: {error}")
