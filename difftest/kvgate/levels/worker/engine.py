"""An engine without a model, whose steps are prepared by a published model runner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kvgate.adapters.model_runner.later_ascend import LaterAscendWorker, NewestAscendWorker
from kvgate.adapters.model_runner.newest import NewestWorker
from kvgate.adapters.model_runner.runner import AscendWorker, Prepared, Worker
from kvgate.kernel.blame import is_ours
from kvgate.kernel.difference import Difference
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.adapter.scheduler_output import due_in
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Stage
from kvgate.levels.worker.memory import PreparedMemory, layout_in
from kvgate.levels.worker.slot_check import (
    Granted,
    and_left,
    check,
    check_cleared,
    check_copies,
    check_memory,
    check_metadata,
    check_operator,
)
from kvreference.block_pool import NULL
from kvreference.settings import Settings

UNDESCRIBED = ("worker", "ghost", "leak")
"""What checks a release whose scheduler and block manager feed a worker alone."""
FOUND = ", which an operator finds"
WORKERS: Mapping[str, type[Worker]] = MappingProxyType(
    {
        **dict.fromkeys(("stock", "native@0.23.0"), Worker),
        "native@0.33.0": NewestWorker,
        **dict.fromkeys(("ascend-worker", "ascend-worker-retention"), AscendWorker),
        "ascend-worker@0.23.0": LaterAscendWorker,
        "ascend-worker@0.30.0rc2": NewestAscendWorker,
    }
)
"""The systems that have a worker here."""


class WorkerEngine(Engine):
    """One run, as of a scheduler alone; and the worker prepares each step."""

    memory_type = PreparedMemory
    memory: PreparedMemory

    def __init__(self, settings: Settings, stage: Stage, subject: str = "stock", with_reference: bool = True) -> None:
        # What the managers of later vLLM-Ascends decide is not described: the monitors check them alone.
        super().__init__(settings, stage, subject, with_reference and not subject.startswith("ascend-worker@"))
        self.system, self.kind = subject, WORKERS[subject]
        self.checked = self.followed.description.checked
        self.worker: Worker | None = None
        self.layouts = tuple(map(layout_in, settings.geometry.groups))
        self.granted: Mapping[str, Granted] = {}
        """What the step before computed."""
        self.left: dict[str, list[list[int]]] = {}
        """By request and group: its blocks, and where the window has left one, that one."""
        self.compared: Counter[str] = Counter()
        """How many copies, drafts, and slots of each group were compared."""

    def _check(self, detector: str, found: Difference | None) -> None:
        super()._check(detector, found if self.checked or detector in UNDESCRIBED else None)

    def _check_batch(self, output: Any) -> None:
        super()._check_batch(output)
        due = due_in(output, self.scheduler, self.followed.population, self.submitted, sure=True)
        granted = {}
        for number, each in due.items():
            name = name_of(number)
            left = self.left[name] = and_left(each.table, self.left.get(name, ()))
            granted[name] = Granted(each.start, each.start + each.tokens, each.table, len(each.drafts or ()), left)
        self._check("worker", self._prepare(output, granted))

    def _prepare(self, output: Any, granted: Mapping[str, Granted]) -> Difference | None:
        """The worker prepares a step."""
        fresh = [self._fresh(granted, group) for group in range(len(self.layouts))]
        self.granted, self.memory.rows = granted, {}
        try:
            if self.worker is None:
                with self.subject.while_built(self.settings):
                    self.worker = self.kind(self.scheduler, self.settings.drafts_max)
                found = check_memory(self.worker.memory, self.worker.kernel_block_sizes)
                if found is not None:
                    return found
            copies = self.subject.copies(output).copies
            prepared = self.worker.step(output, frozenset().union(*fresh), copies=bool(copies))
        except Exception as error:
            if is_ours(error):
                raise
            if self.worker is None and isinstance(error, ModuleNotFoundError):
                raise SystemUnavailableError(f"{self.system}: its worker does not start: {error}") from error
            name = type(error).__name__
            does = "starts" if self.worker is None else "prepares a step"
            return Difference("KV-SYS-01", f"the worker, which {does}", "no error", f"{name}: {error}")
        if prepared is None:
            return None
        self.memory.prepare(prepared, self.layouts)
        found = (
            check(prepared, granted, self.layouts)
            or check_metadata(prepared, granted, self.layouts, self.settings.drafts_max)
            or check_operator(prepared, granted, self.layouts)
            or check_cleared(prepared, fresh)
            or check_copies(prepared.memories, self.worker.memory, self.layouts, copies)
        )
        if found is None:
            self._count(granted, len(copies), prepared)
        return found

    def _count(self, granted: Mapping[str, Granted], copies: int, prepared: Prepared) -> None:
        self.compared["copies"] += copies
        for each in granted.values():
            self.compared["drafts"] += each.drafts
            for group, layout in enumerate(self.layouts):
                ratio, found_by = layout.compress_ratio, "" if prepared.slots[group] is not None else FOUND
                self.compared[f"slots of group {group}{found_by}"] += each.end // ratio - each.start // ratio

    def _fresh(self, granted: Mapping[str, Granted], group: int) -> frozenset[int]:
        """The blocks of a group that hold nothing yet that is read."""
        size_tokens, blocks = self.settings.geometry.groups[group].block_size_tokens, set[int]()
        for name, each in granted.items():
            before = self.granted[name].tables[group] if name in self.granted else ()
            blocks |= set(each.tables[group][-(-each.start // size_tokens) :]) - set(before)
        return frozenset(blocks - {NULL})
