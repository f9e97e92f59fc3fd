"""A digest of each operation of drawn cases: whether two systems that cannot live in one process do exactly the same.

A patch of vLLM is for a whole process. Stock vLLM in one process and a patched one in another perform the same cases.
For every operation each prints a digest of its answer and of the whole observable state, block ids and hashes included.
Neither knows of the other, and no reference is needed.

What is compared is right only if both processes have the same PYTHONHASHSEED: vLLM's hashes begin with it.

    python -m kvgate.campaigns.digests {stock,unset,inert} [--model NAME]… [--operations N]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from hashlib import blake2b

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.kernel.protocol import Factory, System
from kvgate.levels.manager import draw_case
from kvreference.operations import Operation

MODELS = (
    "full",
    "swa",
    "gemma-hybrid",
    "gpt-oss-hybrid+mtp",
    "two-windows+eagle",
    "mixed-blocks+transfers",
    "dsv4-flash+mtp",
    "local",
    "mamba-align",
)
"""Each kind of attention of stock vLLM, with drafts and transfers here and there."""
ARMS = ("stock", "unset", "inert")
"""vLLM alone; with the plug-in as vLLM loads it when no switch is set; and with all its patches in place, and nothing
switched on.
"""


def factory_of(arm: str) -> Factory:
    """Builds the system of one arm; what it takes is put in place in this process, for good."""
    if arm == "inert":
        load_system("retention")
    loaded = load_system("stock")
    if arm == "unset":
        from vllm import plugins

        vars(plugins)["load_general_plugins"]()
    return loaded.factory


def digests(factory: Factory, model: str, operations: int) -> Iterator[str]:
    """A line for each of so many operations on a model: the operation's name and its digest."""
    performed, index = 0, 0
    while performed < operations:
        lane = Lane(load(model), tuple(PRESETS)[index % len(PRESETS)])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"digests/{index}", 0)
        system = factory(case.settings)
        for drawn in case.operations:
            operation = system.population.resolve(drawn)
            if operation is None or performed == operations:
                continue
            performed += 1
            try:
                yield f"{type(operation).__name__} {_digest(system, operation)}"
            except Exception as error:
                # What stock vLLM raises, the other one raises too; after it the states mean nothing.
                yield f"{type(operation).__name__} {type(error).__name__}: {error}"
                break
        index += 1


def _digest(system: System, operation: Operation) -> str:
    answer = system.apply(operation)
    seen = system.snapshot()
    said = (
        answer,
        sorted(seen.tables.items()),
        seen.references,
        seen.free,
        seen.blocks_free,
        seen.contents,
        sorted(seen.entries.items()),
        seen.pinned,
        seen.copies,
        sorted(seen.begun),
    )
    return blake2b(repr(said).encode(), digest_size=8).hexdigest()


def main() -> None:
    """Print the digests of one arm, a JSON list of a model's name and its lines per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("--model", action="append")
    parser.add_argument("--operations", type=int, default=1000, help="on each model")
    arguments = parser.parse_args()
    factory = factory_of(arguments.arm)
    for model in arguments.model or MODELS:
        print(json.dumps([model, list(digests(factory, model, arguments.operations))]), flush=True)


if __name__ == "__main__":
    main()
