"""What judges a state or a run, and by which guarantees: the explorer's judges, and the detectors of the gate.

The ids are read from the code of the judges: each names what it finds violated. A tiny model in which a mechanism does
not occur is not listed for the guarantees about it, although the same judge looks at it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

from kvgate.campaigns import twice
from kvgate.explore import scheduler_world, search, step_invariants
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scheduler_world import SchedulerWorld
from kvgate.explore.tiny_models import MODELS
from kvgate.kernel import comparison, lockstep
from kvgate.levels.scheduler import batch, chunks, clients, engine, finish_check, progress, queue_order_monitor
from kvgate.monitors import leak, slot_memory, work
from kvreference import snapshot
from kvreference.settings import Settings

STATEMENT = re.compile(r"KV-[A-Z]+-\d\d")
_MODULES: Mapping[str, tuple[ModuleType, ...]] = MappingProxyType(
    {
        "lockstep": (lockstep, comparison),
        "check": (snapshot,),
        "ghost": (slot_memory,),
        "leak": (leak,),
        "work": (work,),
        "scheduler": (engine, finish_check),
        "batch": (batch,),
        "clients": (clients,),
        "line": (queue_order_monitor,),
        "chunks": (chunks,),
        "progress": (progress,),
        "twice": (twice,),
    }
)

Occurs = Callable[[Settings], bool]
_OCCURS: Mapping[str, Occurs] = MappingProxyType(
    {
        "KV-INV-07": lambda settings: settings.pin_drop_blocks_min is not None,
        "KV-INV-08": lambda settings: settings.scratch_first,
        "KV-INV-09": lambda settings: any(group.copies for group in settings.geometry.groups),
        "KV-OP-15": lambda settings: settings.retention_interval_tokens is not None,
        "KV-OP-16": lambda settings: settings.caches and settings.geometry.state_block_tokens is None,
        "KV-WORK-01": lambda settings: any(group.copies for group in settings.geometry.groups),
    }
)
"""In which settings a guarantee about a mechanism is not empty; the others are about every system."""


def named_in(*modules: ModuleType) -> frozenset[str]:
    """The ids that the code of ``modules`` names."""
    return frozenset(STATEMENT.findall("\n".join(map(inspect.getsource, modules))))


def watched() -> Mapping[str, frozenset[str]]:
    """Detector of the gate to the guarantees that it finds violated."""
    return MappingProxyType({name: named_in(*modules) for name, modules in _MODULES.items()})


def explored() -> Mapping[str, frozenset[str]]:
    """Tiny model to the guarantees that are judged in every state, or at every step, of it."""
    found = {}
    for name, model in MODELS.items():
        world = model.world()
        if isinstance(world, ManagerWorld):
            judged = named_in(snapshot, slot_memory, step_invariants, search)
            settings = world.scope.settings
            lossless = not world.scope.menu.evicts
            # Where content is forgotten by order, nobody judges whether a replay hits.
            judged -= frozenset() if lossless else {"KV-OP-16"}
        else:
            assert isinstance(world, SchedulerWorld)
            judged, settings = named_in(snapshot, scheduler_world, search), world.shop.settings
        found[name] = frozenset(each for each in judged if each not in _OCCURS or _OCCURS[each](settings))
    return MappingProxyType(found)
