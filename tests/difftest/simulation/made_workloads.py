"""Every workload that is made, in small, on models in small: what the full ones do, in a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kvgate.kernel.models import load
from kvgate.simulation.arm import Setting
from kvgate.simulation.generators import agents, fractions, repeat_rate, replays, shared_prefixes
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.workload import Workload
from kvreference.scheduler.room import blocks_to_run

WORKLOADS: Mapping[str, Workload] = {
    "repeat-rate": repeat_rate(300, 24, 4, prompts=10),
    "repeat-rate, cold": repeat_rate(300, 24, 4, prompts=8, warm=False, prefixes=2),
    "second": repeat_rate(900, 32, 3, prompts=6),
    "replays": replays(1500, others=2, replayed=2),
    "replays at once": replays(700, others=3, lanes=3, replayed=3),
    "fractions": fractions(1200, prompts=3, percent=60),
    "prefixes": shared_prefixes(5, 400, 30, 8, lanes=2, rounds=2),
    "agents": agents(5, 3, 3, 150, 90, 20),
    "agents, stopped": evolve(agents(5, 3, 3, 150, 90, 20), name="agents, stopped", requests_max=8),
}
"""Small variants of all that ``kvgate simulate --list`` has."""


def small(
    workload: Workload,
    model: str,
    policy: str,
    *,
    spare: int = 12,
    drafts: int = 0,
    acceptance: float = 0.6,
    chunk_tokens: int = 128,
) -> Setting:
    """A setting in whose pool all lanes just fit, and a little more: what is cached for later is soon evicted."""
    words = policy_of(policy)
    serving = Serving(model, load(model).geometry, 2, workload.tokens_longest + 1, chunk_tokens, 8, drafts, acceptance)
    needed = workload.lanes * blocks_to_run(words.settings(serving, workload.lanes), workload.tokens_longest)
    return Setting(workload, evolve(serving, blocks=needed + spare), words)


def outgrowing() -> Setting:
    """Three requests whose prompts fit together into the pool, and whose answers do not."""
    workload = repeat_rate(64, 120, 3, rate=0.5, prompts=6, warm=False)
    geometry = load("full").geometry
    return Setting(workload, Serving("full", geometry, 22, workload.tokens_longest + 1, 256, 8), policy_of("dense"))
