"""An arm serves a workload. All arms serve the same requests in the same order; each has a name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias, cast

from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.simulation.policy import Policy, Serving
from kvgate.simulation.result import Result
from kvgate.simulation.workload import Workload
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with the number of ended requests and of all."""


@frozen
class Setting:
    """One simulation: the clients, the server, what is kept. Equal settings have equal results."""

    workload: Workload
    serving: Serving
    policy: Policy
    seed: int = 0
    """What decides which drafts hold."""

    @property
    def settings(self) -> Settings:
        """What the block manager is built with.

        Raises:
            UsageError: the policy does not fit the server, or block managers do not have it.
        """
        if not self.policy.keeps_replays:
            raise UsageError(f"policy {self.policy.name!r}: only ranges know 'interval-only': take the arm 'ranges'")
        return self.settings_of_ranges

    @property
    def settings_of_ranges(self) -> Settings:
        """The same for what ranges simulate."""
        return self.policy.settings(self.serving, self.workload.lanes)

    def check(self) -> None:
        """Reject what no arm can serve.

        Raises:
            UsageError: the policy does not fit the server, or a request does not fit into the context or the pool.
        """
        settings, tokens = self.settings_of_ranges, self.workload.tokens_longest
        name = f"workload {self.workload.name!r}"
        if tokens > settings.tokens_max:
            raise UsageError(f"{name}: a request of {tokens:,} tokens, and the context is {settings.tokens_max:,}")
        needed = blocks_to_run(settings, tokens - 1)
        if needed > settings.blocks - 1:
            raise UsageError(
                f"{name}: a request needs up to {needed:,} blocks, and the pool has {settings.blocks - 1:,}"
            )


class Arm(Protocol):
    """Who serves."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload.

        Raises:
            UsageError: this arm has nothing for the setting.
            SystemUnavailableError: what it serves with is not installed.
        """
        ...


ARMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "release": (
            "kvgate.simulation.release:arm",
            "the reference with what a release of vLLM decides, and its findings",
        ),
        "reference": ("kvgate.simulation.reference:arm", "the reference's own scheduler and block manager"),
        "ranges": ("kvgate.simulation.ranges.arm:arm", "the same in ranges of equal blocks: for prompts of millions"),
        "infinite": ("kvgate.simulation.infinite:arm", "a cache that never evicts: what could hit at best"),
        "stock": ("kvgate.simulation.adapter.real:stock", "the real scheduler of the vLLM, as published"),
        "retention": ("kvgate.simulation.adapter.real:retention", "the real scheduler of the vLLM, with the plug-in"),
    }
)
"""Per name, the factory of the arm (a function without arguments), and what serves."""


def arm_of(name: str) -> Arm:
    """The arm called ``name``; it is imported now.

    Raises:
        UsageError: the arm is unknown.
    """
    if name not in ARMS:
        raise UsageError(f"no arm {name!r}: there are {', '.join(ARMS)}")
    module, _, factory = ARMS[name][0].partition(":")
    return cast(Arm, getattr(importlib.import_module(module), factory)())
