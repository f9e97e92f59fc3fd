"""Whether every layer gets a raw KV-cache tensor, and a report where one does not.

The engine stops either way. With the names of the layers and the sizes of the tensors, the configuration that went
wrong can be found; with an assertion alone it cannot. The configuration names the layers of every tensor, so it is
checked before any memory is allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

NAMES_LISTED_MAX = 8
TENSORS_LISTED_MAX = 8
SHARING_LISTED_MAX = 3


class RawTensorError(RuntimeError):
    """The layers that have a tensor are not those that need one."""

    def __init__(self, missing: Collection[str], extra: Collection[str], tensors: Sequence[Any]) -> None:
        self.missing = tuple(sorted(missing))
        """Layers of a KV-cache group without a tensor."""
        self.extra = tuple(sorted(extra))
        """Layers with a tensor that are in no KV-cache group."""
        sizes = [f"{tensor.size} bytes of {_listed(tensor.shared_by, SHARING_LISTED_MAX)}" for tensor in tensors]
        lines = [
            "the raw KV-cache tensors do not fit the KV-cache groups:",
            f"  layers without a tensor: {_listed(self.missing, NAMES_LISTED_MAX)}",
            f"  tensors of layers that are in no group: {_listed(self.extra, NAMES_LISTED_MAX)}",
            f"  tensors: {_listed(sizes, TENSORS_LISTED_MAX)}",
        ]
        super().__init__("\n".join(lines))


def check_raw_tensors(config: Any, without_cache: Collection[str]) -> None:
    """Every layer of the groups of ``config``, but those ``without_cache``, is named by a tensor, and no other is.

    Raises:
        RawTensorError: that is not so.
    """
    needed = {layer for group in config.kv_cache_groups for layer in group.layer_names} - set(without_cache)
    named = {layer for tensor in config.kv_cache_tensors for layer in tensor.shared_by}
    if needed != named:
        raise RawTensorError(needed - named, named - needed, config.kv_cache_tensors)


def _listed(items: Sequence[str], most: int) -> str:
    listed = ", ".join(items[:most]) or "none"
    return f"{listed} and {len(items) - most} more" if len(items) > most else listed
