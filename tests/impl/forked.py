"""A program: import vLLM once, and start it several times in children with different inputs.

Its argument is a JSON list of cases: variables of the environment, folders before and after all others on the path, and
what to do. It prints a JSON list: per case what was printed, and how it ended.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any


def import_slowly() -> None:
    """The imports of every start, which no plug-in changes by being imported after them."""
    import vllm.plugins
    import vllm.v1.core.kv_cache_manager  # noqa: F401 (for what importing it does)


def plug_in() -> None:
    """Load all plug-ins of vLLM, in vLLM's own order."""
    from vllm.plugins import load_general_plugins

    load_general_plugins()  # type: ignore[no-untyped-call]  # vLLM's own, without types


def register() -> None:
    """Load this plug-in alone."""
    from swa_retention.plugin import register

    register()
    print("registered")


def register_elsewhere() -> None:
    """Load this plug-in alone, on a vLLM that it was not run on."""
    import vllm.version

    vars(vllm.version)["__version__"] = "0.22.0"
    register()


def register_with_a_rival_method() -> None:
    """Load this plug-in alone, where another one has added a method of that name to the queue."""
    from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

    queue: Any = FreeKVCacheBlockQueue
    queue.prepend_n = lambda self, blocks: None
    register()


def build() -> None:
    """Load all plug-ins, and build a block manager of two groups."""
    plug_in()
    import torch
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

    shape: dict[str, Any] = {"block_size": 16, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    specs = FullAttentionSpec(**shape), SlidingWindowSpec(**shape, sliding_window=16)
    groups = [KVCacheGroupSpec([str(index)], spec) for index, spec in enumerate(specs)]
    config = KVCacheConfig(num_blocks=8, kv_cache_tensors=[], kv_cache_groups=groups)
    manager = KVCacheManager(config, max_model_len=64, hash_block_size=16, enable_caching=True)
    print("retains" if hasattr(manager.coordinator.single_type_managers[1], "reach") else "does not retain")


def doctor() -> None:
    """Examine this vLLM."""
    from swa_retention.doctor import examine

    code, lines = examine()
    print(f"exit {code}", *lines, sep="\n")


def start_engine() -> None:
    """As much of an engine's start as needs no weights."""
    from vllm import EngineArgs

    EngineArgs(model="facebook/opt-125m").create_engine_config()


def child(case: dict[str, Any]) -> tuple[str, str]:
    """One case in a child of its own: what it printed and logged, and the error that ended it."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as ended:
        pid = os.fork()
        if not pid:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            try:
                os.environ.update(case.get("environment", {}))
                sys.path[:0] = case.get("front", [])
                sys.path.extend(case.get("back", []))
                globals()[case["do"]]()
            except Exception as error:
                ended.write(f"{type(error).__name__}: {error}")
            sys.stdout.flush()
            ended.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        printed.seek(0)
        ended.seek(0)
        return printed.read(), ended.read()


if __name__ == "__main__":
    import_slowly()
    print(json.dumps([child(case) for case in json.loads(sys.argv[1])]))
