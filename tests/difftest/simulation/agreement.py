"""How many generated workloads a release's real scheduler and the arm ``release`` serve alike, with 0 to 4 drafts.

    python -m tests.difftest.simulation.agreement 0.33.0 1000
    python -m tests.difftest.simulation.agreement 0.33.0 500 --from 500

Every request is compared in all reported values (hits, preemptions, look-ups, what was computed), and the server's
counters, the steps, the evictions, and how many blocks were read. It prints each workload in which they differ, and
what differs first; exit 1 if there are any. Where the release is known to read wrong blocks (``WRONG``), both must read
the same wrong block first, and the reference without findings must read none.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

from attrs import field, frozen

from kvgate.adapters.releases import release_described
from kvgate.kernel.errors import UsageError
from kvgate.kernel.progress import progress_line
from kvgate.kernel.variants import GEOMETRIES
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.comparison import difference
from kvgate.simulation.result import Result
from kvreference.mamba import StateMode

from .small_workloads import DRAFTED, SERVED_BY_VLLM, draw_for_vllm, with_states

HASHED_AHEAD = GEOMETRIES["hashed-ahead"][0]
WRONG = frozenset({"036-states-hit-past-attention", "047-chunk-past-a-state"})
"""The findings whose effect is that a request reads what it should not."""


@frozen
class Compared:
    """One workload."""

    seen: frozenset[str] = field(factory=frozenset)
    """Which of the counted events happened in it."""
    difference: str | None = None
    """The differences between the arms, and wrong reads of either."""


def draw(version: str, seed: int) -> Setting:
    """A workload and a server of that release."""
    drafts, release = seed % 5, release_described(version)
    modes = [mode for mode in StateMode if mode is not StateMode.ALL or release.keeps_all_states]
    geometries = [*SERVED_BY_VLLM, *(each for mode in modes for each in with_states(mode, drafts))]
    if drafts:
        geometries += DRAFTED
    if drafts and release.hashes_ahead:
        geometries += [HASHED_AHEAD(each) for each in geometries if each.has_draft_layer]
    return draw_for_vllm(Random(seed), drafts, 0.6, geometries, version, all_lanes=seed % 2 == 0)


def compare(setting: Setting) -> Compared:
    """Serve with both arms, and compare."""
    ours = arm_of("release").run(setting)
    theirs = arm_of("retention" if ours.system.startswith("retention") else "stock").run(setting)
    seen = frozenset(_seen(setting, ours))
    found = difference(ours, theirs)
    if ours.crash is not None:
        return Compared(seen | {"ends of the process by a finding"}, found)
    if found is None and ours.soundness != theirs.soundness:
        found = f"{ours.arm} and {theirs.arm}: {ours.soundness} and {theirs.soundness}"
    if found is None and ours.soundness.unsound is not None:
        found = _unknown(setting, ours)
        seen |= {"wrong reads by a finding"}
    return Compared(seen, found)


def _unknown(setting: Setting, ours: Result) -> str | None:
    """A wrong read of both arms that no finding explains."""
    if not WRONG.intersection(finding for finding, _times in ours.findings):
        return f"{ours.system}: {ours.soundness.unsound}"
    ideal = arm_of("reference").run(setting).soundness.unsound
    return None if ideal is None else f"reference: {ideal}"


def _seen(setting: Setting, ours: Result) -> list[str]:
    happened = {
        "drafts": setting.serving.drafts_max,
        "states": setting.serving.geometry.keeps_states,
        "hits": any(each.hit_tokens for each in ours.served),
        "preemptions": any(each.preemptions for each in ours.served),
        "evictions": ours.evictions,
        "findings": ours.findings,
    }
    return [name for name, has in happened.items() if has]


def main(arguments: list[str] | None = None) -> int:
    """Compare as many as are asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.difftest.simulation.agreement")
    parser.add_argument("version")
    parser.add_argument("workloads", type=int)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    asked = parser.parse_args(arguments)
    apart, counts = 0, Counter[str]()
    with progress_line() as line:
        for place, seed in enumerate(range(asked.first, asked.first + asked.workloads)):
            try:
                compared = compare(draw(asked.version, seed))
            except UsageError as error:
                parser.error(str(error))
            counts.update(compared.seen)
            if compared.difference is not None:
                apart += 1
                print(f"seed {seed}: {compared.difference}", flush=True)
            line.say(f"{place + 1} of {asked.workloads} workloads, {apart} apart")
    print(f"vLLM {asked.version}: {asked.workloads - apart} of {asked.workloads} workloads served alike")
    print("with " + ", ".join(f"{name}: {times}" for name, times in counts.most_common()))
    return int(apart > 0)


if __name__ == "__main__":
    sys.exit(main())
