"""What can stand under the scheduler: vLLM's block manager as published, or with the plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from attrs import frozen

from kvgate.adapters.retention import Retention, copies_carried, install, switched_on
from kvgate.adapters.scheduling.followed import Followed
from kvreference.answers import Copies
from kvreference.settings import Settings


class FollowedRetention(Followed, Retention):
    """The block manager of a scheduler, with the plug-in."""


@frozen
class Subject:
    """One system under test."""

    followed: type[Followed]
    while_built: Callable[[Settings], AbstractContextManager[None]]
    install: Callable[[], None]
    """Put in place what the system is made of, once a process."""
    copies: Callable[[Any], Copies]
    """What a step's output tells the worker to copy."""


def _no_copies(_output: Any) -> Copies:
    return Copies(())


def _plug_in_copies(output: Any) -> Copies:
    return Copies(copies_carried(output))


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "stock": Subject(Followed, lambda _settings: nullcontext(), lambda: None, _no_copies),
        "retention": Subject(FollowedRetention, switched_on, install, _plug_in_copies),
    }
)
