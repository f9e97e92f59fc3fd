"""Keywords of newer block managers that vLLM 0.20.2 has no parameter for.

A newer vLLM passes to its manager, coordinator and managers of groups how many tokens the scheduler counts as one
block, at which boundaries windows are kept, and which layers draft. A coordinator that was written for it can then be
built on this vLLM as well. What its constructors do not know is set aside here, for the code that needs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

SCHEDULER_BLOCK = "scheduler_block_size"
"""In tokens: every hit that ends no block early is a multiple of it."""
RETENTION = ("retention_interval", "local_kv_retention_interval")
"""In tokens; vLLM's name, and that of vLLM-Ascend's pull request 10193."""
DRAFT_LAYERS = "eagle_attn_layer_names"
NAMES = (SCHEDULER_BLOCK, *RETENTION, DRAFT_LAYERS)

_said: ContextVar[Mapping[str, Any]] = ContextVar("_said", default=MappingProxyType({}))


def said() -> Mapping[str, Any]:
    """What was set aside by the constructors that are running, each value the innermost one."""
    return _said.get()


@contextmanager
def saying(newer: Mapping[str, Any]) -> Iterator[None]:
    """While the context lasts, ``newer`` holds; a field that is None says nothing."""
    token = _said.set({**_said.get(), **{name: value for name, value in newer.items() if value is not None}})
    try:
        yield
    finally:
        _said.reset(token)


def set_aside(function: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """Take out of ``keywords`` what is newer than ``function``, and return it."""
    known = inspect.signature(function).parameters
    return {name: keywords.pop(name) for name in NAMES if name in keywords and name not in known}
