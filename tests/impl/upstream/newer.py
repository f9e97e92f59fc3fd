"""A plug-in of pytest with which the tests of vLLM 0.23 run on vLLM 0.20.2 and ``swa_retention``: what was renamed.

The environment is read when a manager is built, and not when vLLM starts; parameters that 0.20.2 does not know are
dropped; names that these tests import and do not use are there. With the interval unset, 0.23 leaves out blocks that no
hit can reach; the plug-in does so with the alignment as interval.
"""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from math import lcm
from typing import Any

from swa_retention.config import Configuration, read
from swa_retention.features import RETAINS
from swa_retention.patches.attach import activate
from swa_retention.register import apply

apply(RETAINS.patches)
managers = import_module("vllm.v1.core.kv_cache_manager")
original = managers.KVCacheManager.__init__
KNOWN = set(inspect.signature(original).parameters)


def build(self: Any, kv_cache_config: Any, **keywords: Any) -> None:
    """Build a manager of 0.20.2 from what one of 0.23 is given."""
    configuration = read(os.environ)
    sizes = [group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups]
    if configuration.retention_interval_tokens is None and len(sizes) > 1:
        configuration = Configuration(lcm(*sizes))
    activate(configuration)
    try:
        original(self, kv_cache_config, **{name: value for name, value in keywords.items() if name in KNOWN})
    finally:
        activate(Configuration())


managers.KVCacheManager.__init__ = build


class Unused:
    """Something that a test imports and does not use here."""

    def __getattr__(self, name: str) -> str:
        return name


def unused(name: str) -> Unused:
    """Whatever a module is asked for that it does not have."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Unused()


for module in ("kv_cache_interface", "core.kv_cache_utils", "core.single_type_kv_cache_manager"):
    import_module(f"vllm.v1.{module}").__getattr__ = unused  # type: ignore[method-assign]
