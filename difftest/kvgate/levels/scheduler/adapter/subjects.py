"""What can stand under the scheduler: a block manager as published, of any release, or with the plug-in.

Of the releases the scheduler is its own; vLLM-Ascend's managers stand under that of the vLLM below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from kvgate.adapters.ascend import Ascend, AscendRelease, AscendRetention, AscendWorkerRelease, install_ascend
from kvgate.adapters.native import Native
from kvgate.adapters.registry import RETENTION_RELEASES
from kvgate.adapters.releases import ASCEND, INSTALLED, LATER_ASCEND, RELEASES, STORED
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS, OwnScheduler
from kvgate.adapters.releases.description import Release, SchedulerRules
from kvgate.adapters.retention import Retention, RetentionRelease, copies_carried, install, switched_on, with_plug_in
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.adapter.stage import CLASSES, Tier, new_scheduler
from kvgate.levels.scheduler.operations import Stage
from kvreference.answers import Copies
from kvreference.settings import Settings


class FollowedRetention(Followed, Retention):
    """The block manager of a scheduler, with the plug-in."""


class FollowedAscend(Followed, Ascend):
    """vLLM-Ascend's block manager under a scheduler."""


class FollowedAscendRetention(Followed, AscendRetention):
    """The same with the plug-in."""


class FollowedAscendRelease(Followed, AscendRelease):
    """A later vLLM-Ascend's block manager under the scheduler of the vLLM that it belongs to."""


class FollowedAscendWorkerRelease(Followed, AscendWorkerRelease):
    """The same where it feeds a worker."""


class FollowedNative(Followed, Native):
    """The block manager of a release of vLLM under its own scheduler."""


class FollowedRetentionRelease(Followed, RetentionRelease):
    """The block manager of a release of vLLM with the plug-in, under its own scheduler."""

    def __init__(self, settings: Settings, scheduler: Any, description: Release) -> None:
        super().__init__(settings, scheduler, with_plug_in(description, settings))


def _in_whole_blocks(settings: Settings) -> Settings:
    groups = tuple(evolve(group, unit_tokens=None) for group in settings.geometry.groups)
    return evolve(settings, geometry=evolve(settings.geometry, groups=groups))


def _nothing(_settings: Settings) -> AbstractContextManager[None]:
    return nullcontext()


def _no_copies(_output: Any) -> Copies:
    return Copies(())


def _plug_in_copies(output: Any) -> Copies:
    return Copies(copies_carried(output))


@frozen
class Subject:
    """One system under test."""

    kind: type[Followed]
    release: Release = INSTALLED
    while_built: Callable[[Settings], AbstractContextManager[None]] = field(default=_nothing)
    install: Callable[[], None] = field(default=lambda: None)
    """Put in place what the system is made of, once a process."""
    copies: Callable[[Any], Copies] = field(default=_no_copies)
    """What a step's output orders the worker to copy."""
    classes: Sequence[str] = CLASSES
    """The scheduler for synchronous steps, and the one for asynchronous ones if there is one."""

    @property
    def scheduling(self) -> SchedulerRules:
        """How the scheduler differs from that of vLLM 0.20.2."""
        assert self.release.scheduler is not None, "its scheduler is described"
        return self.release.scheduler

    def followed(self, settings: Settings, scheduler: Any) -> Followed:
        """The block manager of a scheduler that ``build`` has built, as a system under test."""
        return self.kind(settings, scheduler, self.release)

    def build(self, settings: Settings, stage: Stage, tier: Tier | None = None) -> Any:
        """A scheduler, and the block manager under it, with a second tier if there is one.

        Raises:
            ValueError: settings for which the system has nothing.
        """
        # The system is not built yet: what it rejects, and how it is configured, depends on its kind and release only.
        kind = self.kind.__new__(self.kind)
        kind.description = self.release
        # No reference follows a second tier, which may be given what the reference has not.
        refused = kind.refusal(settings if tier is None else _in_whole_blocks(settings))
        if refused is not None:
            raise ValueError(refused)
        with kind.configured(settings) as caching:
            groups = kind.groups(settings.geometry)
            return new_scheduler(settings, stage, groups, caching, self.scheduling.hashing_option, self.classes, tier)


def _under(own: OwnScheduler) -> Subject:
    """A scheduler of vLLM-Ascend's own, over the block manager of its release."""
    if own.release.below is not None:
        return Subject(FollowedAscendRelease, own.release, classes=own.classes)
    install = partial(install_ascend, with_plug_in=False)
    return Subject(FollowedAscend, own.release, install=install, classes=own.classes)


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "stock": Subject(Followed),
        "retention": Subject(FollowedRetention, INSTALLED, switched_on, install, _plug_in_copies),
        **dict.fromkeys(
            ("ascend", "ascend-worker"),
            Subject(FollowedAscend, ASCEND, install=partial(install_ascend, with_plug_in=False)),
        ),
        **dict.fromkeys(
            ("ascend-retention", "ascend-worker-retention"),
            Subject(
                FollowedAscendRetention,
                ASCEND,
                switched_on,
                partial(install_ascend, with_plug_in=True),
                _plug_in_copies,
            ),
        ),
        **{
            name: Subject(FollowedNative, release)
            for name, release in (*RELEASES.items(), *STORED.items())
            if release.system == "native" and release.scheduler is not None
        },
        **{
            name: Subject(
                FollowedRetentionRelease, release, partial(switched_on, release=release), install, _plug_in_copies
            )
            for name, release in RETENTION_RELEASES.items()
        },
        **{
            f"{name}@{release.version}": Subject(kind, release)
            for release in LATER_ASCEND
            for name, kind in (("ascend", FollowedAscendRelease), ("ascend-worker", FollowedAscendWorkerRelease))
        },
        **{name: _under(own) for name, own in OWN_SCHEDULERS.items()},
    }
)
