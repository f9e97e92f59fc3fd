"""vLLM 0.20.2's own free queue is the linked list of the proofs.

Goal: the proofs of a doubly linked free queue hold for the one that production runs. Method: the same scripts of random
operations on both, the order from both ends and the counter compared after each; and a drift injected into vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kvspec.queue_scripts import LEGAL, Call, Linked, observed, random_script

SEEDS = range(60)
CALLS = 200
BLOCKS = 9


class OfVllm:
    """``FreeKVCacheBlockQueue``, with its blocks."""

    def __init__(self, blocks: int) -> None:
        utils = pytest.importorskip("vllm.v1.core.kv_cache_utils")
        self.blocks: dict[int, Any] = {number: utils.KVCacheBlock(number) for number in range(1, blocks + 1)}
        self.queue: Any = utils.FreeKVCacheBlockQueue(list(self.blocks.values()))

    def play(self, call: Call) -> tuple[int, ...]:
        name, given = call
        if name == "popleft":
            return (self.queue.popleft().block_id,)
        if name == "popleft_n":
            return tuple(block.block_id for block in self.queue.popleft_n(given[0]))
        blocks = [self.blocks[number] for number in given]
        getattr(self.queue, name)(blocks if name == "append_n" else blocks[0])
        return ()

    def order(self) -> tuple[int, ...]:
        forward = [block.block_id for block in self.queue.get_all_free_blocks()]
        backward = list(self._backward())
        return tuple(forward) if forward == backward[::-1] else (*forward, -1, *backward)

    def _backward(self) -> Iterator[int]:
        block = self.queue.fake_free_list_tail.prev_free_block
        for _ in range(len(self.blocks) + 1):
            if block is None or block is self.queue.fake_free_list_head:
                return
            yield block.block_id
            block = block.prev_free_block

    def blocks_free(self) -> int:
        return int(self.queue.num_free_blocks)


class Turned(OfVllm):
    """The same, with what is appended together turned around."""

    def play(self, call: Call) -> tuple[int, ...]:
        name, given = call
        return super().play((name, given[::-1] if name == "append_n" else given))


class Miscounted(OfVllm):
    """The same, with a block removed from the middle still counted."""

    def play(self, call: Call) -> tuple[int, ...]:
        taken = super().play(call)
        self.queue.num_free_blocks += call[0] == "remove"
        return taken


def drift(kind: type[OfVllm], seeds: Sequence[int]) -> str:
    """The first difference; nothing if there is none."""
    for seed in seeds:
        ours = observed(Linked(BLOCKS), random_script(seed, BLOCKS, CALLS, LEGAL))
        theirs = observed(kind(BLOCKS), random_script(seed, BLOCKS, CALLS, LEGAL))
        for step, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return f"seed {seed}, call {step}: {one}, not {other}"
    return ""


def test_vllm_queues_as_the_linked_list_does() -> None:
    """append, append_n, popleft, popleft_n and remove: the order from both ends, what is taken, the counter."""
    assert "" == drift(OfVllm, SEEDS)


@pytest.mark.parametrize("kind", [Turned, Miscounted])
def test_an_injected_drift_is_seen(kind: type[OfVllm]) -> None:
    """The control: the order of one call, and the counter."""
    assert drift(kind, SEEDS)


@pytest.mark.parametrize(
    ("call", "counted", "queued"),
    [(("popleft_n", (-1,)), 3, 2), (("append_n", (3, 3)), 4, 3)],
    ids=["less than none is taken", "a block twice in one call"],
)
def test_what_vllm_does_not_guard(call: Call, counted: int, queued: int) -> None:
    """The linked list refuses it; vLLM does it, and then counts a block more than it has."""
    vllm = OfVllm(3)
    vllm.queue.remove(vllm.blocks[3])
    vllm.play(call)
    forward = [block.block_id for block in vllm.queue.get_all_free_blocks()]
    assert (counted, queued) == (vllm.blocks_free(), len(forward))

    ours = Linked(3)
    ours.play(("remove", (3,)))
    with pytest.raises(ValueError, match=r"cannot be taken|already in the free queue"):
        ours.play(call)
