"""What the copies of partial hits cost a worker: all of a step at once, next to one after the other.

The KV cache is that of layers with latent attention, as many as a large model has; each copy takes half of a block.
Three ways take turns: by index, as on CUDA; by views in one call, as on CPUs and NPUs; and one copy after the other in
each layer. The medians of the rounds' ratios to the last one are reported, and the time of a step.

    python benchmarks/copying.py [--device cpu] [--layers 61] [--rounds 9]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from swa_retention.copying.batch import copy_in, index_of
from swa_retention.copying.layout import Layout
from swa_retention.copying.views import copy_views
from swa_retention.partial.copies import BlockCopy

BLOCKS, SLOTS, ELEMENTS = 128, 128, 576
LAYOUT = Layout(block_axis=0, slot_axis=1, rows_per_block=1, slots_per_row=SLOTS, tokens_per_slot=1, is_slotted=True)
COPIES = (1, 8, 32)
REPEATS = 5


def ways(layers: list[torch.Tensor], copies: list[BlockCopy]) -> dict[str, Callable[[], None]]:
    """How a step's copies can be done."""

    def by_index() -> None:
        index = index_of(LAYOUT, copies, layers[0].device)
        for tensor in layers:
            copy_in(tensor, index)

    def by_views() -> None:
        copy_views([(tensor, LAYOUT) for tensor in layers], copies)

    def one_by_one() -> None:
        for tensor in layers:
            for copy in copies:
                tensor[copy.destination, : copy.tokens] = tensor[copy.source, : copy.tokens]

    return {"by index": by_index, "by views": by_views, "one by one": one_by_one}


def timed(act: Callable[[], None], device: torch.device) -> float:
    """The seconds that ``act`` takes, with all that it leaves to the device."""
    for repeats in (1, REPEATS):
        start = time.perf_counter()
        for _ in range(repeats):
            act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / REPEATS


def main() -> None:
    """Measure, and print a line for each number of copies and way."""
    parser = argparse.ArgumentParser(description="What the copies of partial hits cost a worker.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    shape = (BLOCKS, SLOTS, ELEMENTS)
    layers = [torch.zeros(shape, dtype=torch.bfloat16, device=device) for _ in range(arguments.layers)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{device} ({name}), {arguments.layers} layers, copies of {SLOTS // 2} slots of {ELEMENTS * 2} bytes")
    for count in COPIES:
        copies = [BlockCopy(0, BLOCKS - 1 - number, number, SLOTS // 2) for number in range(count)]
        acts = ways(layers, copies)
        rounds = [{way: timed(act, device) for way, act in acts.items()} for _ in range(arguments.rounds)]
        for way in acts:
            ratio = median(each[way] / each["one by one"] for each in rounds)
            step_us = median(each[way] for each in rounds) * 1e6
            print(f"  {count:2} copies, {way}: {step_us:.0f} µs a step, {ratio:.2f} of one by one")


if __name__ == "__main__":
    main()
