"""What the copies of partial hits cost a worker: all of a step at once, next to one after the other.

The KV cache is that of layers with latent attention, as many as a large model has; each copy takes half of a block.
Three methods take turns: by index, as on CUDA; by views in one call, as on CPUs and NPUs; and one copy after the other
in each layer. The medians of the rounds' ratios to the last one are reported, and the time of a step.

    python -m benchmarks.copying [--device cpu] [--layers 61] [--rounds 5]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from benchmarks.harness import Row, against_base, at_least_one, end_with, options_of, print_rows, turns

from swa_retention.copying.batch import copy_in, index_of
from swa_retention.copying.layout import Layout
from swa_retention.copying.views import copy_views
from swa_retention.partial.copies import BlockCopy

BLOCKS, SLOTS, ELEMENTS = 128, 128, 576
LAYOUT = Layout(block_axis=0, slot_axis=1, rows_per_block=1, slots_per_row=SLOTS, tokens_per_slot=1, is_slotted=True)
COPIES = (1, 8, 32)
REPEATS = 5
BASE = "one by one"
"""The method that the others are compared with."""


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

    return {"by index": by_index, "by views": by_views, BASE: one_by_one}


def timed(act: Callable[[], None], device: torch.device) -> float:
    """The seconds that ``act`` takes, with all that it leaves to the device."""
    for repeats in (1, REPEATS):
        start = time.perf_counter()
        for _ in range(repeats):
            act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / REPEATS


def measure(device: torch.device, layers: int, rounds: int) -> Iterator[Row]:
    """Microseconds of a step that copies one after the other, and the ratio of the other methods to it."""
    shape = (BLOCKS, SLOTS, ELEMENTS)
    tensors = [torch.zeros(shape, dtype=torch.bfloat16, device=device) for _ in range(layers)]
    for count in COPIES:
        acts = ways(tensors, [BlockCopy(0, BLOCKS - 1 - number, number, SLOTS // 2) for number in range(count)])
        spent = turns({way: partial(timed, act, device) for way, act in acts.items()}, rounds)
        yield from against_base(f"{device.type}, {count} copies", spent, BASE, "µs a step", 1e6)


def device_default() -> str:
    """An accelerator if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def rows(quick: bool) -> Iterator[Row]:
    """The same, on the device that there is."""
    return measure(torch.device(device_default()), 8 if quick else 61, 1 if quick else 5)


def main() -> None:
    """Measure and print."""
    parser = options_of("copying", __doc__)
    parser.add_argument("--device", default=device_default())
    parser.add_argument("--layers", type=at_least_one, default=61)
    parser.add_argument("--rounds", type=at_least_one, default=5)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    title = f"{device} ({name}), {arguments.layers} layers, copies of {SLOTS // 2} slots of {ELEMENTS * 2} bytes"
    print_rows(measure(device, arguments.layers, arguments.rounds), title)


if __name__ == "__main__":
    end_with("copying", main)
