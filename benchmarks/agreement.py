"""How much the plug-in was run in lockstep: every mechanism on every preset of models, with and without its neighbours.

A cell of the matrix is a model's name with suffixes. In each cell, vLLM with the plug-in runs in lockstep with the
reference, with all generator presets. The cell says how many cases and operations there were, and which declared and
undeclared differences. A combination that does not exist is left out and counted. With ``--unset`` each model is also
run on stock vLLM in one process and with the plug-in, nothing switched on, in another, and the digests of all
operations are compared.

Exit 1 if anything differed that is not declared. What it is, `kvgate check --sut retention --model CELL` says.

    python -m benchmarks.agreement [--operations 1000000] [--sut retention] [--jobs 2] [--unset 20000] [--list]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

from attrs import frozen
from benchmarks.harness import Row, at_least_one, end_with, options_of, row_of

from kvgate.campaigns.digests import MODELS as STOCK_MODELS
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model, load
from kvreference.settings import Settings

MODELS = (
    "swa",
    "gemma-hybrid",
    "gpt-oss-hybrid",
    "two-windows",
    "mixed-blocks",
    "dsv4-flash",
    "compressed",
)
KEPT = ("", "+retention+scratch", "+masked+scratch", "+retention={}+scratch")
"""Dense as vLLM, the replay boundary alone, every boundary, and every fourth one."""
DRAFTS = ("", "+eagle", "+mtp")
PINS = ("", "+pinned=2")
TRANSFERS = ("", "+transfers")
PARTIAL = ("", "+partial")


@frozen
class Cell:
    """What one cell showed."""

    model: str
    cases: int
    operations: int
    declared: dict[str, int]
    undeclared: dict[str, int]
    seconds: float


def matrix(sut: str) -> tuple[list[str], Counter[str]]:
    """The cells that there are, and how many were left out, by why."""
    from kvgate.adapters.registry import load_system

    refusal = load_system(sut).factory
    cells, left_out = [], Counter[str]()
    for name, kept, drafts, pins, transfers, partial in product(MODELS, KEPT, DRAFTS, PINS, TRANSFERS, PARTIAL):
        try:
            alignment = load(f"{name}{drafts}{partial}").geometry.alignment_tokens
            cell = f"{name}{drafts}{partial}{kept.format(4 * alignment)}{pins}{transfers}"
            model = load(cell)
            refusal(_smallest(model))
        except (UsageError, ValueError) as error:
            left_out[str(error).rpartition(": ")[2]] += 1
        else:
            cells.append(cell)
    return cells, left_out


def _smallest(model: Model) -> Settings:
    return model.features.applied_to(Settings(model.geometry, blocks=64, tokens_max=512))


def run_cell(sut: str, name: str, operations: int, seed: int) -> Cell:
    """One cell, until so many operations are performed."""
    from kvgate.adapters.registry import load_system
    from kvgate.gate.campaign import Campaign, Plan
    from kvgate.gate.case_runner import Lane, Trials
    from kvgate.gate.generator import PRESETS
    from kvgate.levels.manager import Bench

    started = time.monotonic()
    lanes = tuple(Lane(load(name), preset) for preset in PRESETS)
    plan = Plan(lanes, operations, seed=seed, kinds_max=1000, shrinks=False)
    outcome = Campaign(Trials(Bench(load_system(sut).factory)), plan).run()
    return Cell(
        name,
        sum(tally.cases for tally in outcome.tallies),
        sum(tally.operations for tally in outcome.tallies),
        {str(found.finding): found.times for found in outcome.declared},
        {found.divergence.difference.statement: found.times for found in outcome.found},
        time.monotonic() - started,
    )


def rows(quick: bool) -> Iterator[Row]:
    """Operations a second with all checkers, of some cells of the matrix; the whole of it is this program's own run."""
    cells, _left_out = matrix("retention")
    for name in cells[:: len(cells) // (3 if quick else 24)]:
        cell = run_cell("retention", name, 200 if quick else 5000, seed=0)
        if cell.undeclared:
            raise RuntimeError(f"{name}: undeclared differences: {cell.undeclared}")
        yield row_of(name, [cell.operations / cell.seconds], "operations/s, by the clock")


def lines(cells: Iterator[Cell]) -> Iterator[tuple[Cell, str]]:
    """Each cell with its line of the table."""
    for cell in cells:
        acted = " ".join(f"{name}: {times}" for name, times in sorted(cell.declared.items())) or "-"
        wrong = " ".join(f"{name}: {times}" for name, times in sorted(cell.undeclared.items())) or "-"
        yield (
            cell,
            f"{cell.model:<58} {cell.cases:>6,} {cell.operations:>10,} {cell.seconds:>6.0f}  {acted:<28} {wrong}",
        )


def unset_rows(operations: int) -> Iterator[tuple[bool, str]]:
    """Stock vLLM and the plug-in with nothing switched on, operation by operation."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "VLLM_PLUGINS": "swa_retention", "VLLM_LOGGING_LEVEL": "ERROR"}
    for model in STOCK_MODELS:
        lines = {}
        for arm in ("stock", "unset", "inert"):
            command = ["-m", "kvgate.campaigns.digests", arm, "--model", model, "--operations", str(operations)]
            said = subprocess.run(
                [sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            lines[arm] = json.loads(said.stdout)[1]
        same = lines["stock"] == lines["unset"] == lines["inert"]
        yield same, f"{model:<58} {len(lines['stock']):>17,} operations, {'all the same' if same else 'NOT THE SAME'}"


def main() -> int:
    """Run the matrix and print it."""
    parser = options_of("agreement", __doc__)
    parser.add_argument("--operations", type=at_least_one, default=1_000_000, help="in all, over all cells")
    parser.add_argument("--sut", default="retention")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=at_least_one, default=2)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument(
        "--unset", type=int, default=0, metavar="N", help="also N operations a model, nothing switched on"
    )
    parser.add_argument("--list", action="store_true", help="say which cells there are, and run nothing")
    arguments = parser.parse_args()
    cells, left_out = matrix(arguments.sut)
    cells = [cell for cell in cells if arguments.only in cell]
    if arguments.list or not cells:
        print("\n".join(cells))
        print(f"{len(cells)} cells; left out:")
        print("\n".join(f"  {times}: {why}" for why, times in left_out.most_common()))
        return 0
    agreed = run_matrix(arguments.sut, cells, -(-arguments.operations // len(cells)), arguments.seed, arguments.jobs)
    if arguments.unset:
        for same, line in unset_rows(arguments.unset):
            agreed = agreed and same
            print(line, flush=True)
    return 0 if agreed else 1


def run_matrix(sut: str, cells: Sequence[str], operations: int, seed: int, jobs: int) -> bool:
    """Run all cells, in processes side by side, and print the table; whether all agree."""
    print(f"{'cell':<58} {'cases':>6} {'operations':>10} {'s':>6}  {'declared':<28} undeclared", flush=True)
    found: list[Cell] = []
    # Threads of a parent are not copied into a fresh process.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        run = [pool.submit(run_cell, sut, cell, operations, seed) for cell in cells]
        for cell, line in lines(each.result() for each in run):
            found.append(cell)
            print(line, flush=True)
    declared, undeclared = Counter[str](), Counter[str]()
    for cell in found:
        declared.update(cell.declared)
        undeclared.update(cell.undeclared)
    cases, performed = sum(cell.cases for cell in found), sum(cell.operations for cell in found)
    print(f"{len(found)} cells, {cases:,} cases, {performed:,} operations")
    print(f"declared {dict(declared)}, undeclared {dict(undeclared)}")
    return not undeclared


if __name__ == "__main__":
    end_with("agreement", main)
