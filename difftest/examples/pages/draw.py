"""Four defects as pages: a leak, a hang, a hit on another request's content, and a cache that is never hit.

Three of them are vLLM 0.20.2's own, from stored traces of ``difftest/kvgate/findings`` and from a report; the leak is
an injected fault, because vLLM's own leaks cannot be drawn.

    python difftest/examples/pages/draw.py pages
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeAlias

from attrs import evolve

from kvgate.adapters.registry import Loaded, load_system
from kvgate.adapters.releases import INSTALLED
from kvgate.adapters.stock import Stock
from kvgate.findings.register import FOLDER, folder_of
from kvgate.gate.campaign import Campaign, Plan
from kvgate.gate.case_runner import Lane, Trials, run_case
from kvgate.gate.level import Bench
from kvgate.gate.verdict import Found, Verdict
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench as ManagerBench
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Stage
from kvgate.report.page.pages import write_pages
from kvgate.report.page.recording import once_more
from kvgate_mutants.mutants.release import first_group_alone_released
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Step, Submit
from kvreference.settings import Settings

Shown: TypeAlias = tuple[Loaded, Found, Bench]
"""A system, what is found on it, and who looked where."""


def foreign_hit() -> Shown:
    """A cache salt named like a LoRA adapter is served what the adapter computed: finding 003."""
    return replayed("003-salt-collides-with-adapter-name", "trace-memory.jsonl")


def no_hit() -> Shown:
    """Blocks of two sizes and a draft layer: everything is cached, and the hit is nothing: finding 006."""
    return replayed("006-aligned-before-the-drop", "trace.jsonl")


def replayed(finding: str, name: str) -> Shown:
    """What a stored trace shows if the finding has no description."""
    findings = INSTALLED.findings - {finding}
    undescribed = type("Stock", (Stock,), {"description": evolve(INSTALLED, findings=findings)})
    trace = read(FOLDER / folder_of(finding) / name)
    bench = ManagerBench(undescribed, trace.header.detectors)
    return evolve(load_system("stock"), factory=undescribed), run_case(bench, trace.case).found()[0], bench


def hang() -> Shown:
    """A request that can never fit is accepted and blocks all later ones: vllm-project/vllm#35541."""
    settings = Settings(Geometry((Group("full", 16),)), blocks=5, tokens_max=160, chunk_tokens=64)
    oversize, other = Submit(Arrive(0, (Run(0, 150),)), 5), Submit(Arrive(1, (Run(1000, 10),)), 5)
    case = SCHEDULER.case(
        settings, (oversize, other, Step(), Step(), Step()), Stage(), model="full", preset="by hand", seed="0"
    )
    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    return load_system("stock"), run_case(bench, case).found()[0], bench


def leak() -> Shown:
    """Injected fault: a request that ends frees the blocks of its first group only. Seen without the reference."""
    bench = ManagerBench(Stock, ("leak",))
    plan = Plan((Lane(load("gemma-hybrid"), "tiny"),), 2000)
    outcome = Campaign(Trials(bench), plan).run()
    leak = next(each for each in outcome.found if each.divergence.operation is None)
    return evolve(load_system("stock"), name="stock with an injected fault"), leak, bench


def draw(folder: Path) -> None:
    """Write a folder of pages for each."""
    for shown in (foreign_hit, no_hit, hang):
        write(folder, shown.__name__, *shown())
    with first_group_alone_released.applied():
        write(folder, "leak", *leak())


def write(folder: Path, name: str, system: Loaded, found: Found, bench: Bench) -> None:
    """Write one folder of pages."""
    found = Trials(bench).diagnosed(found)
    verdict = Verdict(system.name, system.version, "example", 0, bench.detectors, found=(found,))
    write_pages(verdict, folder / name.replace("_", "-"), once_more(system, bench.detectors))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python draw.py FOLDER")
    draw(Path(sys.argv[1]))
