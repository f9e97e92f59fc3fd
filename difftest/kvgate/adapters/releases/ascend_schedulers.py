"""vLLM-Ascend's own schedulers, each as a system: the block manager of its release under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import evolve, frozen

from kvgate.adapters.releases import ascend_0_20_2rc1, ascend_0_23_0, ascend_0_30_0rc2
from kvgate.adapters.releases.description import Release, SchedulerRules


@frozen
class OwnScheduler:
    """One of them."""

    release: Release
    """The release, with the rules of this scheduler."""
    classes: Sequence[str]
    """The scheduler for synchronous steps and the one for asynchronous ones; only the first, if the release has no
    other."""


def _under(release: Release, **rules: Any) -> Release:
    assert isinstance(release.scheduler, SchedulerRules)
    return evolve(release, scheduler=evolve(release.scheduler, **rules))


def _core(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"vllm_ascend.core.{module}:{name}" for name in names)


_OLD, _STABLE, _NEW = ascend_0_20_2rc1.RELEASE, ascend_0_23_0.RELEASE, ascend_0_30_0rc2.RELEASE
_RECOMPUTE = _core("recompute_scheduler", "RecomputeScheduler", "AsyncRecomputeScheduler")
_PROFILING = _core("scheduler_profiling_chunk", "ProfilingChunkScheduler", "ProfilingChunkAsyncScheduler")

OWN_SCHEDULERS: Mapping[str, OwnScheduler] = MappingProxyType(
    {
        # It admits what fits now, and asks for the first chunk alone. Findings 073 and 074 are not modelled.
        "ascend-recompute": OwnScheduler(
            evolve(_under(_OLD, in_full=False, connects=False, rejects=False), gate=None), _RECOMPUTE
        ),
        # With other nodes it caches a prompt that was loaded whole without its last token, and pads drafts otherwise.
        "ascend-recompute@0.23.0": OwnScheduler(
            _under(_STABLE, lookahead_when_admitted=False, connects=False), _RECOMPUTE
        ),
        "ascend-profiling-chunk@0.23.0": OwnScheduler(
            evolve(
                _under(_STABLE, lookahead_when_admitted=False),
                findings=_STABLE.findings | {"082-preemption-ends-the-engine"},
            ),
            _PROFILING[:1],
        ),
        "ascend-profiling-chunk@0.30.0rc2": OwnScheduler(_NEW, _PROFILING),
        "ascend-dyntra-lb@0.30.0rc2": OwnScheduler(
            _NEW, _core("dyntra_lb_scheduler", "DyntraLBScheduler", "AsyncDyntraLBScheduler")
        ),
    }
)
"""By the name of the system."""
