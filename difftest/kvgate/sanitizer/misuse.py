"""What the sanitizer reports: a misuse of a block, with the places in the source where it was prepared and seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType

from attrs import field, frozen

BLOCK_MANAGER = (
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm_ascend.core",
    "vllm_ascend.patch",
)
"""Modules of the block manager: a site names the first frame outside them, too."""
_OWN = ("kvgate.sanitizer", "kvgate_mutants.mutants.")
_FRAMES_MAX = 40


@frozen
class Place:
    """One line of source."""

    code: CodeType
    line: int

    def __str__(self) -> str:
        name = self.code.co_filename
        _, found, below = name.rpartition(f"site-packages{os.sep}")
        if not found:
            here = f"{Path.cwd()}{os.sep}"
            below = name.removeprefix(here)
        return f"{below}:{self.line}"


@frozen
class Site:
    """Where a call of the block manager came from."""

    caller: Place | None
    """The caller outside the block manager: the scheduler, or a test."""
    inside: Place | None
    """The line of the block manager that the call passed last; None if the caller called directly."""

    def __str__(self) -> str:
        if self.caller is None or self.inside is None:
            return str(self.caller or self.inside or "an unknown place")
        return f"{self.caller} (through {self.inside})"


def site_here() -> Site:
    """The site of the call that the sanitizer watches now."""
    frame = sys._getframe(1)
    inside: Place | None = None
    for _ in range(_FRAMES_MAX):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(_OWN):
            if not name.startswith(BLOCK_MANAGER):
                return Site(Place(frame.f_code, frame.f_lineno), inside)
            inside = inside or Place(frame.f_code, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return Site(None, inside)


@frozen
class Misuse:
    """One finding."""

    kind: str
    """``use after free``, ``double free``, ``foreign hit``, ``leak``, or the structure that is wrong."""
    what: str
    """One sentence: which block, and what is wrong."""
    at: Site
    """Where it was seen."""
    history: tuple[tuple[str, Site], ...] = field(default=())
    """What happened to the block before, each with its site: ``allocated``, ``freed``, ``cached``."""

    def __str__(self) -> str:
        lines = [f"kvgate sanitizer: {self.kind}: {self.what}", f"  seen at {self.at}"]
        lines += [f"  {event} at {site}" for event, site in self.history]
        return "\n".join(lines)


class MisuseError(AssertionError):
    """The program under the sanitizer misused a block."""

    def __init__(self, misuse: Misuse) -> None:
        super().__init__(str(misuse))
        self.misuse = misuse


def raise_it(misuse: Misuse) -> None:
    """Raise what was found."""
    raise MisuseError(misuse)
