"""Workers of a Ray cluster: one actor each. kvgate, and the system under test, must be installed on its machines.

Ray is imported only here, and only where it is asked for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from attrs import define

from kvgate.campaigns.serving import Server, Task
from kvgate.campaigns.workers import DEATHS_MAX, Answered, Lost
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.extras import from_a_clone

LOCAL = "local"
"""The address that stands for a cluster of this machine alone, started for this run."""


@define(eq=False)
class _Actor:
    handle: Any
    shard: int | None = None
    reply: Any = None


class RayWorkers:
    """Actors on a Ray cluster."""

    def __init__(self, plan: str, jobs: int | None, address: str) -> None:
        if address == LOCAL:
            # Under `uv run`, Ray would start each worker with uv in a copy of this folder, where nothing is installed.
            os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        try:
            # Without types: of what little is used, half has none.
            ray: Any = import_module("ray")
        except ImportError as error:
            raise SystemUnavailableError(f"--ray needs Ray: {from_a_clone('ray')} ({error})") from error
        self._ray = ray
        self._plan = plan
        self._deaths = 0
        # No usage statistics: a run stays with the user who started it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray.init(
                address=address,
                num_cpus=jobs if address == LOCAL else None,
                include_dashboard=False if address == LOCAL else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                ignore_reinit_error=True,
            )
        except Exception as error:
            raise SystemUnavailableError(f"--ray {address}: {type(error).__name__}: {error}") from error
        self.jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._actors = [_Actor(self._started()) for _ in range(self.jobs)]

    def _started(self) -> Any:
        # Never begun again by Ray: a shard that is lost is given out again here, where it is counted.
        remote = self._ray.remote(max_restarts=0, max_task_retries=0, num_cpus=1)(Server)
        return remote.remote(self._plan)

    def idle(self) -> int:
        return sum(actor.shard is None for actor in self._actors)

    def begin(self, task: Task) -> None:
        actor = next(actor for actor in self._actors if actor.shard is None)
        actor.shard, actor.reply = task.shard, actor.handle.run.remote(task.render())

    def wait(self, seconds: float) -> Sequence[Answered | Lost]:
        running = [actor.reply for actor in self._actors if actor.reply is not None]
        if not running:
            return []
        ready, _ = self._ray.wait(running, num_returns=1, timeout=seconds)
        return [self._heard(actor) for actor in self._actors if actor.reply is not None and actor.reply in ready]

    def _heard(self, actor: _Actor) -> Answered | Lost:
        assert actor.shard is not None, "only who runs a shard is waited for"
        shard, reply, actor.shard, actor.reply = actor.shard, actor.reply, None, None
        try:
            answer = str(self._ray.get(reply))
        except self._ray.exceptions.RayError as error:
            self._deaths += 1
            if self._deaths > DEATHS_MAX * len(self._actors):
                raise SystemUnavailableError(
                    f"Ray's workers die before they answer ({self._deaths} in a row): {error}"
                ) from error
            actor.handle = self._started()
            return Lost(shard, type(error).__name__)
        self._deaths = 0
        return Answered(shard, answer)

    def end(self, shard: int) -> None:
        for actor in self._actors:
            if actor.shard == shard:
                self._ray.kill(actor.handle)

    def pids(self) -> list[int]:
        return [int(pid) for pid in self._ray.get([actor.handle.pid.remote() for actor in self._actors])]

    def stop(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._ray.shutdown()
