"""What can stand under the scheduler: a block manager as published, of any release, or with the plug-in.

Of the releases the scheduler is its own; vLLM-Ascend's managers stand under that of vLLM 0.20.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from kvgate.adapters.ascend import Ascend, AscendRetention, install_ascend
from kvgate.adapters.native import native
from kvgate.adapters.retention import Retention, copies_carried, install, switched_on
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.adapter.stage import new_scheduler
from kvgate.levels.scheduler.adapter.traits import SCHEDULERS
from kvgate.levels.scheduler.case import Stage
from kvreference.answers import Copies
from kvreference.settings import Settings


class FollowedRetention(Followed, Retention):
    """The block manager of a scheduler, with the plug-in."""


class FollowedAscend(Followed, Ascend):
    """vLLM-Ascend's block manager under a scheduler."""


class FollowedAscendRetention(Followed, AscendRetention):
    """The same with the plug-in."""


def _nothing(_settings: Settings) -> AbstractContextManager[None]:
    return nullcontext()


def _no_copies(_output: Any) -> Copies:
    return Copies(())


def _plug_in_copies(output: Any) -> Copies:
    return Copies(copies_carried(output))


@frozen
class Subject:
    """One system under test."""

    followed: type[Followed]
    while_built: Callable[[Settings], AbstractContextManager[None]] = field(default=_nothing)
    install: Callable[[], None] = field(default=lambda: None)
    """Put in place what the system is made of, once a process."""
    copies: Callable[[Any], Copies] = field(default=_no_copies)
    """What a step's output tells the worker to copy."""

    def build(self, settings: Settings, stage: Stage) -> Any:
        """A scheduler, and the block manager under it.

        Raises:
            ValueError: settings for which the system has nothing.
        """
        # No system is there yet: what is asked of one here depends on its kind alone.
        kind = self.followed.__new__(self.followed)
        refused = kind.refusal(settings)
        if refused is not None:
            raise ValueError(refused)
        with kind.configured(settings) as caching:
            groups = kind.groups(settings.geometry)
            return new_scheduler(settings, stage, groups, caching, kind.scheduling.drafting)


def followed_native(version: str) -> type[Followed]:
    """The block manager of a release of vLLM under its own scheduler; ``version`` is one of ``SCHEDULERS``."""
    return type(
        "FollowedNative",
        (Followed, native(version)),
        {"scheduling": SCHEDULERS[version], "__doc__": f"The block manager of vLLM {version} under its scheduler."},
    )


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "stock": Subject(Followed),
        "retention": Subject(FollowedRetention, switched_on, install, _plug_in_copies),
        "ascend": Subject(FollowedAscend, install=partial(install_ascend, with_plug_in=False)),
        "ascend-retention": Subject(
            FollowedAscendRetention, switched_on, partial(install_ascend, with_plug_in=True), _plug_in_copies
        ),
        **{f"native@{version}": Subject(followed_native(version)) for version in SCHEDULERS},
    }
)
