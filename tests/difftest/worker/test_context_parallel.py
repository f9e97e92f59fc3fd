"""Block tables of workers that share a request's context.

Goal: the published kernel maps each token to the slot that the reference says, for every rank, row length and kernel
block. Method: random tables and steps; vLLM's and vLLM-Ascend's block tables with the kernel interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

PROGRAM = """
import importlib, random, sys, torch
from kvgate.adapters.model_runner import stand_ins
from kvgate.adapters.model_runner.runner import Rank, set_ranks, install_ascend_worker
from kvreference.slots import Layout

ascend = sys.argv[1] == "ascend"
if ascend:
    install_ascend_worker()
name = "vllm_ascend.worker.block_table" if ascend else "vllm.v1.worker.block_table"
stand_ins.interpret(name, "_compute_slot_mapping_kernel")
home, draw, compared = importlib.import_module(name), random.Random(0), 0
for _ in range(40):
    kernel, parts, interleave = draw.choice((8, 16)), draw.choice((1, 2, 4)), draw.choice((1, 2, 8))
    size, ranks = kernel * parts, draw.choice((1, 2, 3))
    rank = Rank(draw.randrange(ranks), ranks, interleave)
    set_ranks(rank)
    layout = Layout(size, ranks=ranks, rank=rank.rank, interleave=interleave)
    chosen = [kernel] if ascend else kernel
    table = home.BlockTable(size, 4, 8, 64, False, torch.device("cpu"), chosen, interleave)
    rows = [draw.sample(range(1, 99), 8) for _ in range(draw.randint(1, 4))]
    steps = []
    for row, blocks in enumerate(rows):
        table.add_row(blocks[:3], row)
        table.append_row(blocks[3:], row)
        start = draw.randrange(8 * size * ranks - 16)
        steps.append((start, start + draw.randint(1, 16)))
    table.commit_block_table(len(rows))
    counts = [end - start for start, end in steps]
    positions = torch.tensor([token for step in steps for token in range(*step)])
    starts = torch.tensor([sum(counts[:index]) for index in range(len(rows) + 1)], dtype=torch.int32)
    table.compute_slot_mapping(len(rows), starts, positions)
    written = [slot for blocks, step in zip(rows, steps) for slot in layout.written(blocks, *step)]
    expected = [-1 if slot is None else slot for slot in written]
    assert expected == table.slot_mapping.gpu[: len(expected)].tolist(), (rank, kernel, parts)
    compared += len(expected)
print(compared)
"""


@pytest.mark.parametrize("worker", ["vllm", "ascend"])
def test_each_rank_has_its_slots(worker: str, fork_server: ForkServer) -> None:
    """Of every token, those of other ranks included."""
    environment = {"VLLM_LOGGING_LEVEL": "ERROR"}
    if worker == "ascend":
        environment[WHERE] = str(published())
    finished = fork_server.run("-c", PROGRAM, worker, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    assert int(finished.stdout.splitlines()[-1]) > 500
