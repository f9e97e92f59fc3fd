"""Memory cleared and copied by a published worker, as it is and with one mistake after the other; printed as JSON.

``python -m tests.difftest.worker.memory_faults clear|copy|later SYSTEM``: by mistake ("": none), how many blocks were
done, and in how many cases any byte was wrong.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import torch

from kvgate.adapters.model_runner import block_memory as memory
from kvgate.adapters.registry import load_system


class Mistake(NamedTuple):
    """Of ``owner``, what is replaced, and what by."""

    owner: Any
    attribute: str
    broken: Any


Run = Callable[[], tuple[int, int]]
Mistakes = Mapping[str, Mistake]


def with_mistakes(mistakes: Mistakes, run: Run) -> dict[str, tuple[int, int]]:
    """The counts of ``run`` with each mistake."""
    found = {}
    for name, (owner, attribute, broken) in mistakes.items():
        sound = owner.__dict__[attribute]
        setattr(owner, attribute, broken)
        found[name] = run()
        setattr(owner, attribute, sound)
    return found


def mistakes_of_clearing(zeroer: Any, sizes: Callable[[int, int], list[Any]]) -> Mistakes:
    """``sizes`` are the kernel blocks of so many groups, as the zeroer takes them."""
    clear, init = zeroer.zero_block_ids, zeroer.init_meta

    def without_parts(self: Any, groups: Any, _sizes: Any, *others: Any, **named: Any) -> Any:
        return init(self, groups, sizes(groups[0].kv_cache_spec.block_size, len(groups)), *others, **named)

    return {
        "the next block": Mistake(
            zeroer, "zero_block_ids", lambda self, blocks: clear(self, [each + 1 for each in blocks])
        ),
        "all but one": Mistake(zeroer, "zero_block_ids", lambda self, blocks: clear(self, blocks[1:])),
        "kernel blocks": Mistake(zeroer, "init_meta", without_parts),
    }


def clears() -> dict[str, tuple[int, int]]:
    """vLLM's kernel, interpreted."""

    def run(cases: int) -> tuple[int, int]:
        draw, blocks_cleared, wrong = Random(0), 0, 0
        for _ in range(cases):
            parts, slots, shape = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS), draw.randrange(2)
            caches = [memory.new_cache(draw, parts, slots, shape) for _ in range(draw.randint(1, 3))]
            blocks = draw.sample(range(memory.BLOCKS - 1), draw.randint(1, memory.BLOCKS - 1))
            expected = memory.cleared(caches, blocks)
            memory.clear(caches, slots, blocks)
            wrong += any(not torch.equal(each.tensor, other) for each, other in zip(caches, expected, strict=True))
            blocks_cleared += len(blocks)
        return blocks_cleared, wrong

    zeroer = importlib.import_module(memory.UTILS).KVBlockZeroer
    mistakes = mistakes_of_clearing(zeroer, lambda slots, groups: [slots] * groups)
    return {"": run(12), **with_mistakes(mistakes, lambda: run(3))}


def copies() -> dict[str, tuple[int, int]]:
    """The copies of vLLM-Ascend 0.20.2rc1's back-end, and its swaps."""
    backend: Any = importlib.import_module("vllm_ascend.attention.attention_v1").AscendAttentionBackend
    copy, swap = backend.copy_blocks, backend.swap_blocks

    def run() -> tuple[int, int]:
        draw, blocks_copied, wrong = Random(0), 0, 0
        for _ in range(60):
            slots = draw.choice(memory.KERNEL_SLOTS)
            tensors = [memory.new_cache(draw, 1, slots, 0).tensor for _ in range(2)]
            ordered = memory.random_copies(draw)
            expected = memory.copied(tensors, ordered)
            memory.copy(tensors, ordered)
            wrong += any(not torch.equal(*pair) for pair in zip(tensors, expected, strict=True))
            source, target = (memory.new_cache(draw, 1, slots, 0).tensor for _ in range(2))
            after = target.clone()
            for one, other in ordered:
                after[:, other] = source[:, one]
            memory.swap(source, target, ordered)
            wrong += not torch.equal(target, after)
            blocks_copied += 2 * len(ordered)
        return blocks_copied, wrong

    def keys(tensors: Any, ordered: Any) -> None:
        for each in tensors:
            each[0][ordered[:, 1]] = each[0][ordered[:, 0]]

    def axis(tensors: Any, ordered: Any) -> None:
        for each in tensors:
            each[:, :, ordered[:, 1] % 4] = each[:, :, ordered[:, 0] % 4]

    def in_turn(tensors: Any, ordered: Any) -> None:
        for each in ordered:
            copy(tensors, each[None])

    def turned(source: Any, target: Any, ordered: Any) -> None:
        swap(source, target, ordered[:, [1, 0]])

    mistakes = {
        "keys alone": Mistake(backend, "copy_blocks", staticmethod(keys)),
        "one after the other": Mistake(backend, "copy_blocks", staticmethod(in_turn)),
        "the wrong axis": Mistake(backend, "copy_blocks", staticmethod(axis)),
        "the other way round": Mistake(backend, "swap_blocks", staticmethod(turned)),
    }
    return {"": run(), **with_mistakes(mistakes, run)}


def later() -> dict[str, tuple[int, int]]:
    """The zeroer of later vLLM-Ascends, whose keys and values are apart; and of the newest, its copies."""
    home: Any = importlib.import_module("vllm_ascend.worker.utils")
    newest = hasattr(home, "copy_kv_cache_blocks_inplace")

    def sizes(slots: int, groups: int) -> list[Any]:
        return [slots if newest else [slots]] * groups

    def clear(cases: int) -> tuple[int, int]:
        draw, blocks_cleared, wrong = Random(0), 0, 0
        for _ in range(cases):
            parts, slots = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS)
            pairs = [[memory.new_cache(draw, parts, slots, 1) for _ in range(2)] for _ in range(draw.randint(1, 3))]
            whole = [each for pair in pairs for each in pair]
            # Of the newest, a block's memory may hold more than its keys.
            padded = newest and draw.random() < 0.5
            views = whole
            if padded:
                views = [memory.Cache(each.tensor[:, :1], each.block_axis, each.parts) for each in whole]
            blocks = draw.sample(range(memory.BLOCKS - 1), draw.randint(1, memory.BLOCKS - 1))
            expected = memory.cleared(views, blocks)
            others = [each.tensor[:, 1:].clone() for each in whole if padded]
            memory.clear_ascend(
                list(zip(views[::2], views[1::2], strict=True)), slots, blocks, sizes(slots, len(pairs))
            )
            wrong += any(not torch.equal(each.tensor, other) for each, other in zip(views, expected, strict=True))
            wrong += any(not torch.equal(each.tensor[:, 1:], other) for each, other in zip(whole, others, strict=False))
            blocks_cleared += len(blocks)
        return blocks_cleared, wrong

    def copies_done(cases: int) -> tuple[int, int]:
        draw, blocks_copied, wrong = Random(1), 0, 0
        for _ in range(cases):
            parts, slots, shape = draw.choice((1, 2, 4)), draw.choice(memory.KERNEL_SLOTS), draw.randrange(2)
            caches = [memory.new_cache(draw, parts, slots, shape) for _ in range(2)]
            ordered = memory.random_copies(draw)
            expected = [memory.Cache(each.tensor.clone(), each.block_axis, each.parts) for each in caches]
            for before, after in zip(caches, expected, strict=True):
                for source, target in ordered:
                    after.block(target).copy_(before.block(source))
            memory.copy_later([each.tensor for each in caches], ordered)
            wrong += any(
                not torch.equal(each.tensor, other.tensor) for each, other in zip(caches, expected, strict=True)
            )
            blocks_copied += len(ordered)
        return blocks_copied, wrong

    cleared = with_mistakes(mistakes_of_clearing(home.AscendKVBlockZeroer, sizes), lambda: clear(6))
    if not newest:
        return {"": clear(20), **cleared}
    copy, function = home.copy_kv_cache_blocks_inplace, "copy_kv_cache_blocks_inplace"

    def in_turn(caches: Any, blocks: Any, ordered: Any) -> None:
        for each in ordered:
            copy(caches, blocks, [each])

    def to_the_next(caches: Any, blocks: Any, ordered: Any) -> None:
        copy(caches, blocks, [type(each)(each[0], (each[1] + 1) % 7) for each in ordered])

    def turned(caches: Any, blocks: Any, ordered: Any) -> None:
        copy(caches, blocks, [type(each)(each[1], each[0]) for each in ordered])

    mistakes = {
        "copies one after the other": Mistake(home, function, in_turn),
        "copies to the next block": Mistake(home, function, to_the_next),
        "copies the other way round": Mistake(home, function, turned),
    }
    done = [sum(pair) for pair in zip(clear(20), copies_done(40), strict=True)]
    return {"": (done[0], done[1]), **cleared, **with_mistakes(mistakes, lambda: copies_done(10))}


def main(what: str, system: str) -> None:
    """Print what was found."""
    load_system(system)
    print(json.dumps({"clear": clears, "copy": copies, "later": later}[what]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
