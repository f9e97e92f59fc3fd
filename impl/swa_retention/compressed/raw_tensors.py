"""Whether every layer got its raw KV-cache tensor, and a report where one did not.

The engine stops either way. With the names of the layers and the shapes of what there is, the configuration that went
wrong can be found; with an assertion alone it cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

NAMES_TOLD_MAX = 8
TENSORS_TOLD_MAX = 8


class RawTensorError(RuntimeError):
    """The layers that have a tensor are not those that need one."""

    def __init__(self, missing: Collection[str], extra: Collection[str], tensors: Mapping[str, Any]) -> None:
        self.missing = tuple(sorted(missing))
        """Layers of a KV-cache group without a tensor."""
        self.extra = tuple(sorted(extra))
        """Layers with a tensor that are in no KV-cache group."""
        lines = [
            "the raw KV-cache tensors do not fit the KV-cache groups:",
            f"  layers without a tensor: {_listed(self.missing, NAMES_TOLD_MAX)}",
            f"  tensors of layers that are in no group: {_listed(self.extra, NAMES_TOLD_MAX)}",
            f"  tensors: {_listed(_summaries(tensors), TENSORS_TOLD_MAX)}",
        ]
        super().__init__("\n".join(lines))


def check_raw_tensors(needed: Iterable[str], tensors: Mapping[str, Any]) -> None:
    """Every layer that needs a tensor has one, and no other.

    Raises:
        RawTensorError: that is not so.
    """
    layers = set(needed)
    if layers != set(tensors):
        raise RawTensorError(layers - set(tensors), set(tensors) - layers, tensors)


def _summaries(tensors: Mapping[str, Any]) -> list[str]:
    """Each tensor once, with the layers that share it."""
    sharing: dict[tuple[int, ...], list[str]] = {}
    for layer, tensor in tensors.items():
        sharing.setdefault(tuple(id(part) for part in _parts(tensor)), []).append(layer)
    return [
        f"{' and '.join(_summary(part) for part in _parts(tensors[layers[0]]))} of {_listed(layers, 3)}"
        for layers in sharing.values()
    ]


def _parts(tensor: Any) -> tuple[Any, ...]:
    """vLLM-Ascend keeps keys, values and scales of a layer in tensors of their own."""
    return tuple(tensor) if isinstance(tensor, (tuple, list)) else (tensor,)


def _summary(tensor: Any) -> str:
    """Shape, bytes and type of one tensor."""
    if tensor is None:
        return "nothing"
    size_bytes = tensor.numel() * tensor.element_size()
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} ({size_bytes} bytes)"


def _listed(items: Collection[str], most: int) -> str:
    told = ", ".join(list(items)[:most]) or "none"
    return f"{told} and {len(items) - most} more" if len(items) > most else told
