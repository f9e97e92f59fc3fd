"""Where a worker keeps the experts of each token, and a scheduler reads them: here without shared memory.

Stands in for vLLM's shared memory between a worker and its scheduler. What reads from it is vLLM's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kvgate.kernel.errors import UsageError


@contextmanager
def own_memory() -> Iterator[None]:
    """A scheduler that is built within this has a memory of its own.

    Raises:
        UsageError: this vLLM has no such memory: from 0.21.0 on its worker returns experts itself.
    """
    try:
        from vllm.model_executor.layers.fused_moe.routed_experts_capturer import RoutedExpertsReader
    except ImportError as error:
        raise UsageError("the worker of this vLLM returns experts in a way that the gate does not follow") from error

    class Reader(RoutedExpertsReader):
        def attach_buffer(self, max_num_kv_tokens: int, vllm_config: Any) -> None:
            import numpy as np

            del vllm_config
            # One layer that chooses one expert; no other process needs the lock.
            self._host_buffer_view = np.full((max_num_kv_tokens, 1, 1), NO_EXPERT, np.int32)
            self._lock_file = os.devnull

    with patch.object(RoutedExpertsReader, "create", Reader):
        yield


NO_EXPERT = -1
"""What stands in a slot that no token was computed in."""


def memory_of(scheduler: Any) -> Any:
    """The experts by slot: of the first axis, slots; the others are of size 1."""
    return scheduler.routed_experts_reader._host_buffer_view


def group_of(scheduler: Any) -> int:
    """The group by whose slots they are kept."""
    return int(scheduler.routed_experts_attn_gid)
