"""A plug-in of pytest with which the tests of vLLM 0.23 run on vLLM 0.20.2 and ``swa_retention``: what was renamed.

The environment is read when a manager is built, and not when vLLM starts. Parameters that 0.20.2 does not know are
dropped. Names that these tests import and do not use are there. With the interval unset, 0.23 leaves out blocks that no
hit can reach. The plug-in does so with the alignment as interval.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from math import lcm
from typing import Any
from unittest.mock import MagicMock

from swa_retention.config import Configuration, read
from swa_retention.features import RETAINS
from swa_retention.patches.attach import activate
from swa_retention.register import apply

apply(RETAINS.patches)
managers = import_module("vllm.v1.core.kv_cache_manager")
original = managers.KVCacheManager.__init__
KNOWN = set(inspect.signature(original).parameters)


def built(configuration_of: Callable[[Any], Configuration]) -> Callable[..., None]:
    """Build a manager of 0.20.2 from what a newer one is given."""

    def build(self: Any, kv_cache_config: Any, **keywords: Any) -> None:
        configuration = configuration_of(kv_cache_config)
        sizes = [group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups]
        if configuration.retention_interval_tokens is None and len(sizes) > 1:
            configuration = Configuration(lcm(*sizes))
        activate(configuration)
        try:
            original(self, kv_cache_config, **{name: value for name, value in keywords.items() if name in KNOWN})
        finally:
            activate(Configuration())

    return build


def unused(name: str) -> MagicMock:
    """An attribute that a module does not have: something that a test imports and does not use here."""
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)


managers.KVCacheManager.__init__ = built(lambda _config: read(os.environ))
for module in ("v1.kv_cache_interface", "v1.core.kv_cache_utils", "v1.core.single_type_kv_cache_manager"):
    vars(import_module(f"vllm.{module}"))["__getattr__"] = unused
