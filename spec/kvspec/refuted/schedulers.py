"""Schedulers that hang, each for want of one guard.

All but the last two have been reported against real systems; the links lead there.
"""

from __future__ import annotations

from attrs import evolve

from kvreference.scheduler.room import blocks_parked, blocks_to_run
from kvreference.scheduler.scheduler import Scheduler


class UnreservedLoad(Scheduler):
    """A load is begun if it fits by itself: two of them leave too little for either to be computed.

    https://github.com/vllm-project/vllm/issues/45388
    """

    def _leaves_room(self, number: int) -> bool:
        return True


class LookaheadUnreserved(Scheduler):
    """The need of a request is counted without speculation: loads fill the pool, and none gets its look-ahead slots.

    https://github.com/vllm-project/vllm/pull/57104
    """

    def _blocks_to_run(self, tokens: int) -> int:
        return blocks_to_run(evolve(self.settings, drafts_max=0), tokens)


class OversizeBlocksQueue(Scheduler):
    """Every request is accepted: one that can never fit stays at the head of the queue permanently.

    https://github.com/vllm-project/vllm/pull/35570
    """

    def _fits_alone(self, limit_tokens: int) -> bool:
        return True


class FullSequenceWithoutRecycling(Scheduler):
    """A window is counted as if it never recycled: a request that was accepted with recycling counted is never
    admitted.

    https://github.com/vllm-project/vllm/issues/39734
    """

    def _blocks_to_run(self, tokens: int) -> int:
        return sum(group.blocks_occupied(tokens) for group in self.settings.geometry.groups)


class ParkedCountAsRunning(Scheduler):
    """Every holder of blocks counts as running: requests that have loaded keep each other, and themselves, from
    running.

    https://github.com/vllm-project/vllm/issues/53130
    """

    def _may_run(self) -> bool:
        return len(self.manager.tables) < self.limits.running_max


class LoadedIsForgotten(Scheduler):
    """A request that waited for a transfer is not looked at again.

    https://github.com/vllm-project/vllm-ascend/pull/10559
    """

    def _is_ready(self, number: int) -> bool:
        return number not in self.manager.tables


class ReservedForLoadsAlone(Scheduler):
    """A load begins if the free blocks cover what it and all other requests with locked blocks still need.

    Running requests take free blocks as they grow, so that none are left when the loads are over.
    """

    def _leaves_room(self, number: int) -> bool:
        tokens = {other: len(request.tokens) for other, request in self.manager.population.alive.items()}
        parked = blocks_parked(self.manager.tables, self.queues.running)
        needed = self._blocks_to_run(tokens[number]) + sum(
            self._blocks_to_run(tokens[other]) - held for other, held in parked.items()
        )
        return not self.queues.terms[number].parks or needed <= len(self.manager.pool.free)


class FirstIsPreempted(Scheduler):
    """The only running request frees its blocks when a transfer holds what it needs, and computes everything again."""

    def _preempts(self) -> bool:
        return True
