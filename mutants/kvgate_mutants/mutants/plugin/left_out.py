"""Patches that are left out: a patch whose absence nobody notices is not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MARK = "__swa_retention__"
"""The attribute of a replacement that holds what it replaced; see the plug-in's register."""


def vllms_own(patched: Any) -> Callable[..., Any]:
    """The function of vLLM that a patch has replaced."""
    replaced: Callable[..., Any] = getattr(patched, _MARK)
    return replaced
