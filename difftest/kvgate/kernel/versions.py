"""Versions of vLLM and of vLLM-Ascend, and spans of them."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from attrs import frozen

from kvgate.kernel.errors import UsageError

_FORM = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:[.-]?(?:rc|post|dev|a|b)\d{0,6})*(?:\+[a-z0-9.]{1,64})?", re.I
)

Version = tuple[int, int, int]
"""What is compared. A release candidate counts as its release: it is built from the same branch."""


def version_of(text: str) -> Version:
    """The version that ``text`` names: ``0.20.2``, ``v0.23.0rc1``, ``0.20.2.dev3+g1a2b``, ``0.29``.

    Raises:
        UsageError: it names none.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a version: give one like 0.20.2")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def installed(*distributions: str) -> str | None:
    """The version of the first of ``distributions`` that is installed; None if none is."""
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


@frozen
class Span:
    """The versions from ``first`` on, and before ``end`` if there is one."""

    first: str = "0.0.0"
    end: str | None = None

    def __contains__(self, version: Version) -> bool:
        return version_of(self.first) <= version and (self.end is None or version < version_of(self.end))

    def __str__(self) -> str:
        if self.end is None:
            return "every version" if self.first == "0.0.0" else f"from {self.first} on"
        return f"before {self.end}" if self.first == "0.0.0" else f"from {self.first} to before {self.end}"
