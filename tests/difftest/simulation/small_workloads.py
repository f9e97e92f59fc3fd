"""Small random settings: conversations that share beginnings, in pools that are nearly too small."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import evolve

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Setting
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.release import served_by
from kvgate.simulation.workload import Session, Turn, Workload
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Run
from kvreference.scheduler.room import blocks_to_run

GEOMETRIES = (
    Geometry((Group("full", 4),)),
    Geometry((Group("sliding_window", 2, 5),)),
    Geometry((Group("full", 4, lookahead=True),)),
    Geometry((Group("full", 4), Group("sliding_window", 2, 3))),
    Geometry((Group("full", 2), Group("sliding_window", 2, 4, lookahead=True))),
    Geometry((Group("sliding_window", 2, 2), Group("full", 3), Group("sliding_window", 2, 6))),
    Geometry((Group("full", 4), Group("sliding_window", 2, 5), Group("sliding_window", 1, 3, lookahead=True))),
    Geometry((Group("full", 2), Group("chunked_local", 2, 4))),
    Geometry((Group("full", 32), Group("sliding_window", 8, 16), Group("sliding_window", 2, 8))),
)
"""Full attention, windows longer and shorter than blocks, look-ahead, attention chunks; the last as DeepSeek-V4."""

SERVED_BY_VLLM = (
    Geometry((Group("full", 16),)),
    Geometry((Group("sliding_window", 16, 64),)),
    Geometry((*(Group("sliding_window", 16, 64),) * 5, Group("full", 16))),
    Geometry((Group("full", 32), Group("sliding_window", 16, 64))),
)
"""Geometries that vLLM makes."""

DRAFTED = (
    Geometry((Group("full", 16, lookahead=True),)),
    Geometry((*(Group("sliding_window", 16, 64, lookahead=True),) * 5, Group("full", 16, lookahead=True))),
    Geometry((Group("full", 32, lookahead=True), Group("sliding_window", 16, 64, lookahead=True))),
)
"""The same with draft layers."""


def with_states(mode: StateMode, drafts: int = 0) -> list[Geometry]:
    """Hybrids with state-space layers; with drafts, the table has room for as many states, and some have
    draft layers.
    """
    size = STATE_SPAN_TOKENS if mode is StateMode.NONE else 16
    states, full = Group("mamba", size, states=mode, draft_states=drafts), Group("full", 16)
    mixed = [Geometry((full, states)), Geometry((*(states,) * 3, full))]
    drafting = evolve(full, lookahead=True)
    return [*mixed, *([Geometry((drafting, states)), Geometry((*(states,) * 3, drafting))] if drafts else [])]


STATE_SPAN_TOKENS = 4096
"""The span of a block where no state is kept: more than a request ever has."""


class Drawn:
    """The parameters of one setting; ``scale`` makes all lengths longer."""

    def __init__(self, rng: Random, scale: int = 1) -> None:
        self.rng = rng
        self.scale = scale
        self._next = 100_000

    def fresh(self, longest: int) -> Run:
        """Tokens that no other request has, between one and ``longest`` times the scale."""
        run = Run(self._next, self.rng.randint(1, longest * self.scale))
        self._next += run.length
        return run

    def workload(self) -> Workload:
        """A few conversations; each turn quotes a part of the conversation, and adds to it or not."""
        beginnings = [self.fresh(60) for _ in range(3)]
        sessions = tuple(self._session(beginnings) for _ in range(self.rng.randint(1, 8)))
        warm_up = tuple(
            Session((Turn((self.rng.choice(beginnings),), self.fresh(1)),)) for _ in range(self.rng.randint(0, 2))
        )
        return Workload("drawn", sessions, self.rng.randint(1, 5), warm_up)

    def _session(self, beginnings: list[Run]) -> Session:
        rng, turns = self.rng, []
        beginning = rng.choice(beginnings)
        prompt = [Run(beginning.first, rng.randint(1, beginning.length))]
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.6:
                prompt = [*prompt, self.fresh(30)]
            elif len(prompt) > 1:
                prompt = prompt[:-1]
            answers = self.fresh(9)
            turns.append(Turn(tuple(prompt), answers))
            if rng.random() < 0.5:
                prompt = [*prompt, Run(answers.first, rng.randint(1, answers.length))]
        return Session(tuple(turns))


def draw(rng: Random, drafts: int = 0, acceptance: float = 1.0, geometries: Sequence[Geometry] = GEOMETRIES) -> Setting:
    """A setting that the reference serves, under any policy that ranges know."""
    geometry = rng.choice(geometries)
    interval = geometry.alignment_tokens * rng.randint(1, 4)
    words = [
        rng.choice(["dense", "masked", "retention=0", f"retention={interval}"]) if _is_sparse(geometry) else "dense"
    ]
    if words[0].startswith("retention") and rng.random() < 0.5:
        words.append("junctions")
    if rng.random() < 0.5:
        words.append("scratch")
    if rng.random() < 0.4:
        words.append(f"pinned={rng.randint(1, 3)}")
    chunk_tokens = rng.choice([1, 3, 8, 16, 64, 1000])
    serving = Serving("drawn", geometry, 2, chunk_tokens=chunk_tokens, drafts_max=drafts, acceptance=acceptance)
    return _with_pool(rng, Drawn(rng).workload(), serving, "+".join(words))


def draw_for_vllm(
    rng: Random,
    drafts: int = 0,
    acceptance: float = 1.0,
    geometries: Sequence[Geometry] = SERVED_BY_VLLM,
    version: str = VLLM_VERSION,
    all_lanes: bool = True,
) -> Setting:
    """A setting that the real scheduler of a vLLM serves, as published or with the plug-in.

    If the pool holds all lanes at once, what vLLM's admission gate does wrong (finding 002) decides nothing.
    """
    geometry = rng.choice(geometries)
    interval = geometry.alignment_tokens * rng.randint(1, 4)
    policies = ["dense", "dense+scratch"] if version != VLLM_VERSION else ["dense"]
    if _is_sparse(geometry):
        policies += ["masked+scratch", "retention=0+scratch", f"retention={interval}+scratch"]
        policies += [f"{policies[-1]}+pinned=2", "dense+pinned=2", "retention=0+junctions+scratch"]
    chunk_tokens = rng.choice([32, 64, 256])
    serving = Serving(
        "drawn", geometry, 2, chunk_tokens=chunk_tokens, drafts_max=drafts, acceptance=acceptance, version=version
    )
    workload = Drawn(rng, 6).workload()
    served = [each for each in policies if _is_served(Setting(workload, serving, policy_of(each)))]
    return _with_pool(rng, workload, serving, rng.choice(served), all_lanes)


def _is_served(setting: Setting) -> bool:
    try:
        served_by(setting)
    except UsageError:
        return False
    return True


def _is_sparse(geometry: Geometry) -> bool:
    return any(group.is_sparse for group in geometry.groups)


def _with_pool(rng: Random, workload: Workload, serving: Serving, policy: str, all_lanes: bool = False) -> Setting:
    """The longest request just fits, once or on all lanes, or a little more does."""
    longest = workload.tokens_longest
    serving = evolve(serving, tokens_max=longest + rng.choice([1, 5, 50]), running_max=rng.choice([1, 2, 8]))
    needed = blocks_to_run(policy_of(policy).settings(serving, workload.lanes), longest) + 1
    needed *= workload.lanes if all_lanes else 1
    return Setting(workload, evolve(serving, blocks=needed + rng.choice([0, 1, 3, 8, 20, 100])), policy_of(policy))
