"""A plug-in of pytest with which tests of vLLM 0.33 run on vLLM 0.20.2 and ``swa_retention``: what changed since 0.23.

The interval is part of a manager's configuration; a look-up answers with three values; requests, hashers and specs take
what 0.20.2 does not know. Modules that these tests import, and that 0.20.2 does not have, are there and empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from newer import built, managers, unused  # type: ignore[import-not-found]  # pytest finds it on the path

from swa_retention.config import RETENTION, Configuration, read


class Absent(MetaPathFinder, Loader):
    """Modules of vLLM that 0.20.2 does not have."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.startswith("vllm.") else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = unused


def without(made: Callable[..., Any], *unknown: str, **renamed: str) -> Callable[..., Any]:
    """``made`` from arguments of which some are not known, and others have another name."""

    def make(*arguments: Any, **keywords: Any) -> Any:
        known = {renamed.get(name, name): value for name, value in keywords.items() if name not in unknown}
        return made(*arguments, **known)

    return make


def interval(config: Any) -> Configuration:
    """The interval in a manager's configuration."""
    tokens = getattr(config, "prefix_cache_retention_interval", None)
    return Configuration() if tokens is None else read({RETENTION: str(tokens)})


interface: Any = import_module("vllm.v1.kv_cache_interface")
hashes: Any = import_module("vllm.v1.core.kv_cache_utils")


@dataclass
class Config(interface.KVCacheConfig):  # type: ignore[misc]  # of the vLLM that is here
    """The configuration of a manager, with the interval."""

    prefix_cache_retention_interval: int | None = None
    hisparse_host_num_blocks: int | None = None


looked_up, hasher = managers.KVCacheManager.get_computed_blocks, hashes.get_request_block_hasher
managers.KVCacheManager.__init__ = built(interval)
# The third value is where other requests with the same prefix end: 0.20.2 does not look for it.
managers.KVCacheManager.get_computed_blocks = lambda self, request: (*looked_up(self, request), 0)
managers.Request = without(managers.Request, "session_id")
hashes.get_request_block_hasher = lambda block_size, hash_fn, *_lookahead: hasher(block_size, hash_fn)
interface.KVCacheConfig = Config
interface.MLAAttentionSpec = without(interface.MLAAttentionSpec, tokens_per_state="compress_ratio")
vars(import_module("vllm.distributed.kv_events"))["__getattr__"] = unused
# The last of all finders: what is there is found before.
sys.meta_path.append(Absent())
