"""How many drawn workloads a release's real scheduler and the arm ``release`` serve alike, with 0 to 4 drafts.

    python -m tests.difftest.simulation.agreement 0.33.0 1000

prints each that they do not, and what differs first; exit 1 if there is one. A release that fills the rows of a request
that is admitted with one token left computes more tokens than the simulation, which does not: there, how many tokens
were computed is not compared.
"""

from __future__ import annotations

import sys
from random import Random

from attrs import evolve

from kvgate.adapters.releases import release_described
from kvgate.kernel.variants import GEOMETRIES
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.comparison import difference
from kvgate.simulation.result import Result

from .small_workloads import DRAFTED, SERVED_BY_VLLM, draw_for_vllm

HASHED_AHEAD = tuple(GEOMETRIES["hashed-ahead"][0](geometry) for geometry in DRAFTED)


def draw(version: str, seed: int) -> Setting:
    """A workload and a server of that release."""
    drafts, release = seed % 5, release_described(version)
    geometries = [*SERVED_BY_VLLM, *DRAFTED * bool(drafts), *HASHED_AHEAD * bool(drafts and release.hashes_ahead)]
    return draw_for_vllm(Random(seed), drafts, 0.6, geometries, version)


def differs(setting: Setting) -> str | None:
    """What both arms do not serve alike, or what one of them read wrongly."""
    ours = arm_of("release").run(setting)
    theirs = arm_of("retention" if ours.system.startswith("retention") else "stock").run(setting)
    for each in (ours, theirs):
        if each.soundness.unsound is not None:
            return f"{each.system}: {each.soundness.unsound}"
    scheduler = release_described(setting.serving.version).scheduler
    if scheduler is not None and scheduler.pads_drafts and setting.serving.drafts_max:
        ours, theirs = _without_computed(ours), _without_computed(theirs)
    return difference(ours, theirs)


def _without_computed(result: Result) -> Result:
    return evolve(result, served=tuple(evolve(each, computed_tokens=0) for each in result.served))


def main() -> int:
    """Compare as many as are asked for; the exit code."""
    version, workloads = sys.argv[1], int(sys.argv[2])
    apart = 0
    for seed in range(workloads):
        found = differs(draw(version, seed))
        if found is not None:
            apart += 1
            print(f"seed {seed}: {found}")
    print(f"vLLM {version}: {workloads - apart} of {workloads} workloads served alike")
    return int(apart > 0)


if __name__ == "__main__":
    sys.exit(main())
