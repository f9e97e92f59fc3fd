"""The findings of other releases: each is shown by its traces where it is, and excuses nothing but itself.

Goal: what is declared of other releases than the installed vLLM is true, and narrow. Method: run their traces in a
process of its own for each; plant neighbouring faults.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvgate.adapters.reference import Reference
from kvgate.declared import EXPLANATIONS
from kvgate.errors import SystemUnavailableError
from kvgate.releases import fetch, release_named
from kvgate.runner import Bench, run
from kvgate.system import Factory
from kvgate.trace import read
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Run
from kvreference.population import Request
from kvreference.settings import Settings

FINDINGS = Path(__file__).parents[2] / "difftest" / "findings"
TRACES = {
    path: trace
    for path in sorted(FINDINGS.glob("*/*.jsonl"))
    for trace in [read(path)]
    if trace.header.system != "stock"
}
UNDECLARED = {"013-compressed-block-known-by-its-slots"}
ELSEWHERE_SECONDS_MAX = 600


ELSEWHERE = """
import json, sys
from pathlib import Path
from kvgate.declared import EXPLANATIONS
from kvgate.runner import Bench, run
from kvgate.systems import load_system
from kvgate.trace import read
factory, told = load_system(sys.argv[1]).factory, {}
for name in sys.argv[2:]:
    trace = read(Path(name))
    lockstep, found = run(Bench(factory, trace.header.detectors), trace.header.settings, trace.operations)
    told[name] = [
        [each.detector, each.difference.statement, each.difference.subject,
         [finding for finding, explains in EXPLANATIONS.items() if explains(each, lockstep)]]
        for each in found
    ]
print(json.dumps(told))
"""


@pytest.mark.parametrize("system", sorted({trace.header.system for trace in TRACES.values()}))
def test_another_release_shows_its_findings(system: str) -> None:
    """Goal: each finding is true of the release that it names. Method: replay its traces in a process of its own; one
    divergence each, the one that the header names, and that finding alone explains it, or none where none is
    declared."""
    pytest.importorskip("vllm")
    try:
        fetch(release_named(system))
    except SystemUnavailableError as error:
        pytest.skip(f"{system} is not to be had, and none of its findings was replayed: {error}")
    paths = [path for path, trace in TRACES.items() if trace.header.system == system]
    finished = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, system, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=ELSEWHERE_SECONDS_MAX,
    )
    assert 0 == finished.returncode, finished.stderr[-3000:]
    expected = {}
    for path in paths:
        violates, finding = TRACES[path].header.violates, path.parent.name
        assert violates is not None
        known = [] if finding in UNDECLARED else [finding]
        expected[str(path)] = [[violates.detector, violates.statement, violates.subject, known]]
    assert expected == json.loads(finished.stdout.splitlines()[-1])


class TailOfWindow(Reference):
    """A block of the window in which a prompt ends is known by what of it the prompt fills."""

    release = "0.33.0"
    group = 1

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        super()._register(request, tokens, now)
        grain, group = self.geometry.grain_tokens, self.geometry.groups[self.group]
        boundary = (request.prompt_tokens - 1) // grain * grain
        block = self.tables[request.number][self.group].blocks[boundary // group.block_size_tokens]
        assert boundary % group.block_size_tokens
        self.pool.cached.register((self.group, self.prefixes[request.number][boundary // grain - 1]), block)


class TailOfFull(TailOfWindow):
    """012, as a system, for prompts of one chunk."""

    group = 0


class TailOfFullBefore(TailOfFull):
    """The same in a release that has it not."""

    release = "0.23.0"


ODD_BLOCKS = Settings(
    Geometry((Group(Kind.FULL, 48), Group(Kind.SLIDING_WINDOW, 32, 64))),
    blocks=16,
    tokens_max=96,
    chunk_tokens=81,
    requests_max=1,
)


@pytest.mark.parametrize(
    ("factory", "known"),
    [(TailOfFull, ["012-prompt-tail-that-serves-nobody"]), (TailOfWindow, []), (TailOfFullBefore, [])],
)
def test_only_a_tail_in_full_attention_is_excused(factory: Factory, known: list[str]) -> None:
    """Goal: 012 excuses that entry in the releases that have it, and no other. Method: plant it in either group; a
    prompt of 81 tokens ends inside a block of both."""
    lockstep, (divergence,) = run(Bench(factory), ODD_BLOCKS, (Arrive(0, (Run(0, 81),)), Admit(0, 81)))
    assert known == [finding for finding, explains in EXPLANATIONS.items() if explains(divergence, lockstep)]
