"""The KV-cache tensors of DeepSeek-V4.

Blocks of all groups come from one pool, so a layer of each group can live in the same tensor, each in blocks of its
own, if their pages are of one size. Layers are dealt out by *page size*: the first of every group that has it share a
tensor, then the second, and so on.

vLLM 0.20.2 knows the page sizes of the first group alone, and reserves a tensor of each size for every round. A layer
of another size gets no tensor then, and a round in which no group has a layer of some size wastes the memory of one.
Here the sizes are those of all groups, and a tensor that no layer shares is left out. Where every size is in the first
group and every tensor is shared, the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import Factory, define, frozen


@frozen
class Shared:
    """One tensor: how large its pages are, and the layers that live in it."""

    page_bytes: int
    layers: tuple[str, ...]


@define
class _Rounds:
    """Whose turn it is: per page size and round, the layers that share a tensor."""

    by_size: dict[int, list[list[str]]] = Factory(dict)

    def deal(self, layers: dict[str, int]) -> None:
        """One group's layers, each with its page size, in their order."""
        dealt: dict[int, int] = {}
        for layer, page_bytes in layers.items():
            rounds = self.by_size.setdefault(page_bytes, [])
            turn = dealt.get(page_bytes, 0)
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(layer)
            dealt[page_bytes] = turn + 1


def layout(groups: Sequence[Any], lives_alone: Callable[[str], bool] = lambda _layer: False) -> list[Shared]:
    """The tensors of ``groups``, round by round, small pages first; after them those of layers that live alone."""
    rounds, alone = _Rounds(), list[Shared]()
    for group in groups:
        pages = _page_bytes(group)
        rounds.deal({layer: pages[layer] for layer in group.layer_names if not lives_alone(layer)})
        alone += [Shared(pages[layer], (layer,)) for layer in group.layer_names if lives_alone(layer)]
    deepest = max((len(each) for each in rounds.by_size.values()), default=0)
    shared = [
        Shared(page_bytes, tuple(rounds.by_size[page_bytes][turn]))
        for turn in range(deepest)
        for page_bytes in sorted(rounds.by_size)
        if turn < len(rounds.by_size[page_bytes])
    ]
    return shared + alone


def block_bytes(tensors: Sequence[Shared]) -> int:
    """What one block of the pool takes, over all tensors."""
    return sum(tensor.page_bytes for tensor in tensors)


def _page_bytes(group: Any) -> dict[str, int]:
    """The page size of each layer of ``group``, whether its layers share a spec or have one each."""
    specs = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    return {
        layer: (group.kv_cache_spec if specs is None else specs[layer]).page_size_bytes for layer in group.layer_names
    }
