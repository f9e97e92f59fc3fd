"""A layer's cache, and how vLLM 0.20.2 puts layers into groups that share a block table.

All groups draw from one pool, so all blocks must be as large in bytes: where a token is cheaper, a block spans more
tokens. And all groups must have as many layers, so a kind with more of them is dealt out over several groups.

The sources are `get_kv_cache_groups` of vLLM 0.20.2 and the tests that compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from kvgate.kernel.errors import UsageError
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode

PADDED_BELOW = 1.5
"""Up to this ratio between the most and the fewest layers of a kind, the smaller kind is padded and not dealt out."""


@frozen
class Layer:
    """What one layer keeps in the cache. Layers that are equal can share a group."""

    kind: Kind
    block_size_tokens: int
    block_bytes: int
    """How many bytes a block of this layer takes."""
    shape: tuple[int, ...] = ()
    """Heads and head sizes: layers of other shapes do not share a group, but for one that holds all layers."""
    window_tokens: int | None = None
    states: StateMode | None = None
    draft_states: int = 0

    def stretched(self, times: int) -> Layer:
        """The same with blocks of ``times`` as many tokens, and bytes."""
        return evolve(self, block_size_tokens=self.block_size_tokens * times, block_bytes=self.block_bytes * times)

    @property
    def group(self) -> Group:
        """The group that such layers form, as the reference knows it."""
        return Group(
            self.kind,
            self.block_size_tokens,
            self.window_tokens,
            states=self.states,
            draft_states=self.draft_states,
        )


@frozen
class Placed:
    """One group, how many layers are in it, and how it is called."""

    group: Group
    layers: int
    label: str = ""
    """What is in it, where its kind does not say."""


@frozen
class Grouping:
    """The groups of a model, and what a block of the pool costs."""

    groups: tuple[Placed, ...]
    block_bytes: int
    """How many bytes one block of the pool takes, over all layers that share it."""


def grouped(layers: Sequence[Layer], hybrid_manager: bool = True, padded_below: float = PADDED_BELOW) -> Grouping:
    """The groups that vLLM makes of ``layers``, in the order of the model.

    Raises:
        UsageError: the list is empty, or vLLM rejects the layers.
    """
    if not layers:
        raise UsageError("the model has no layer with a KV cache: nothing can be hit")
    if any(layer.block_bytes < 1 for layer in layers):
        raise UsageError("a layer of the model keeps blocks of no bytes: its heads, or their sizes, are 0 in its file")
    if not hybrid_manager:
        layers = [_as_full(layer) if _needs_full(layers) else layer for layer in layers]
    if _is_one_type(layers):
        placed = Placed(layers[0].group, len(layers))
        return Grouping((placed,), sum(layer.block_bytes for layer in layers))
    if not hybrid_manager:
        raise UsageError(
            "--disable-hybrid-kv-cache-manager: the layers of this model cannot be made one type, and vLLM rejects "
            "it; leave it out"
        )
    return _dealt(_stretched(layers), padded_below)


def _needs_full(layers: Sequence[Layer]) -> bool:
    """Whether there is full attention next to other attention that could be kept in the same way."""
    return any(layer.kind is Kind.FULL for layer in layers) and not _is_one_type(layers)


def _as_full(layer: Layer) -> Layer:
    windowed = layer.kind in (Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL)
    return evolve(layer, kind=Kind.FULL, window_tokens=None) if windowed else layer


def _is_one_type(layers: Sequence[Layer]) -> bool:
    """Whether all layers need the same number of slots at all times: then they form one group, even with different
    shapes."""
    return len({evolve(layer, shape=(), block_bytes=0) for layer in layers}) == 1


def _stretched(layers: Sequence[Layer]) -> list[Layer]:
    """The same layers with blocks that are all as many bytes as the largest."""
    largest = max(layer.block_bytes for layer in layers)
    for layer in layers:
        if largest % layer.block_bytes:
            raise UsageError(
                f"blocks of {layer.block_bytes} and of {largest} bytes cannot share a pool: vLLM 0.20.2 rejects this "
                "model; if a newer release serves it, give a dump of its KVCacheConfig (kvgate explain --help)"
            )
    return [layer.stretched(largest // layer.block_bytes) for layer in layers]


def _dealt(layers: Sequence[Layer], padded_below: float) -> Grouping:
    """Groups of equally many layers, those of a kind in turn."""
    kinds = list(dict.fromkeys(layers))
    counts = {kind: sum(layer == kind for layer in layers) for kind in kinds}
    fewest, most = min(counts.values()), max(counts.values())
    size = most if most < fewest * padded_below else fewest
    groups = []
    for kind in kinds:
        parts = -(-counts[kind] // size)
        groups += [Placed(kind.group, len(range(part, counts[kind], parts))) for part in range(parts)]
    return Grouping(tuple(groups), max(placed.layers for placed in groups) * layers[0].block_bytes)
