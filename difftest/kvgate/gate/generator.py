"""Where operations come from: settings and operations, drawn with a bias towards boundaries.

Most faults sit one token around a block, a window, an alignment or a cap, so lengths are drawn there more often than
anywhere else. ``Bias`` is the documented knob board; ``PRESETS`` has those that the gate uses. Everything is
drawn through ``Draw``, so that the bare seeded driver and Hypothesis share one generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache

from attrs import evolve, field, frozen

from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Draw, Seeded
from kvgate.kernel.variants import Features
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Run,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.settings import Settings

_WEIGHTS: Mapping[type[Operation], int] = {
    Arrive: 30,
    LookUp: 5,
    Admit: 40,
    Schedule: 70,
    Sample: 50,
    Preempt: 4,
    Finish: 12,
    Abort: 3,
    ReleaseSkipped: 3,
    CommonPrefix: 3,
    Evict: 2,
    Reset: 1,
    TakeEvents: 8,
    TakeStatistics: 2,
}

_LARGE_BLOCK_TOKENS = 128
_TRANSFERRED_WEIGHT = 25
_DISPATCH_WEIGHT = 60


@frozen
class Bias:
    """What is drawn how often. Percentages are of a hundred draws; sizes are relative, so that they fit any model."""

    operations: int
    """How many operations a case has."""
    stretches: int
    """The longest prompt, in stretches; a stretch is the longest window or four alignments, whichever is longer."""
    pool_percent: tuple[int, int]
    """The range of the pool's size, in percent of what one request of the longest prompt holds at its peak."""
    boundary_percent: int
    """How many lengths lie on a boundary, or one token before or after it."""
    families: int
    """How many shared prefixes prompts are made from."""
    tails: int
    """How many different tails prompts end in: few make duplicates of whole prompts."""
    keys_percent: int
    """How many requests carry a salt, an adapter or multimodal items."""
    collision_percent: int
    """How many of the salts are named like an adapter."""
    swarm_percent: int = 50
    """How many cases decide themselves which operations and features are on, and how often each is drawn."""
    drafts_max: int = 4
    requests_max: int = 8
    weights: Mapping[type[Operation], int] = field(factory=lambda: dict(_WEIGHTS))
    """How often each operation is drawn, relative to the others."""


PRESETS: Mapping[str, Bias] = {
    # What a well-behaved scheduler does to a pool of comfortable size.
    "legal": Bias(
        operations=400,
        stretches=4,
        pool_percent=(300, 600),
        boundary_percent=50,
        families=3,
        tails=1000,
        keys_percent=10,
        collision_percent=0,
    ),
    # Pools in which hardly anything fits, aborts and preemption at every point, duplicates of one prompt.
    "hostile": Bias(
        operations=300,
        stretches=2,
        pool_percent=(100, 250),
        boundary_percent=80,
        families=2,
        tails=2,
        keys_percent=25,
        collision_percent=10,
        weights={**_WEIGHTS, Preempt: 15, Abort: 12, Finish: 15, LookUp: 8, Evict: 6, Reset: 3, ReleaseSkipped: 6},
    ),
    # A few long conversations, in which whole blocks hold nothing but answers.
    "long": Bias(
        operations=700,
        stretches=20,
        pool_percent=(150, 300),
        boundary_percent=30,
        families=2,
        tails=2,
        keys_percent=25,
        collision_percent=0,
        requests_max=3,
        weights={**_WEIGHTS, Arrive: 8, Admit: 20, Schedule: 150, Sample: 150, Finish: 2, Abort: 1},
    ),
    # A handful of blocks and requests, for the shortest stories.
    "tiny": Bias(
        operations=60,
        stretches=1,
        pool_percent=(100, 180),
        boundary_percent=80,
        families=1,
        tails=2,
        keys_percent=25,
        collision_percent=2,
        drafts_max=2,
        requests_max=3,
        weights={**_WEIGHTS, Preempt: 10, Abort: 8},
    ),
}
"""The generator presets, by name."""

OMITTED_PERCENT = 25
"""How many of its operations and features a case of the swarm leaves out."""
FACTORS_PERCENT = (50, 100, 200, 400)
"""By what it multiplies how often the others are drawn."""

# Token ids of shared prefixes, tails and answers never meet, so that prompts share exactly what they were given. In
# their lower bits they do meet, for the sake of keys that lose the upper ones.
_FAMILY_TOKENS = 1 << 20
_TAIL_FIRST = 100 << 20
_TAIL_TOKENS = 1 << 17
_ANSWER_FIRST = 900 << 20


class Generator:
    """Draws cases for one model: first the settings, then one operation after the other."""

    def __init__(self, bias: Bias, geometry: Geometry, features: Features | None = None) -> None:
        self.bias = bias
        self.geometry = geometry
        self.features = features or Features()
        window = max((group.window_tokens or 0 for group in geometry.groups), default=0)
        self.prompt_max = bias.stretches * max(window, 4 * geometry.alignment_tokens) + geometry.alignment_tokens
        """The longest prompt, in tokens."""
        self.boundaries = _boundaries(geometry, self.prompt_max)
        aligned = [length for length in self.boundaries if length % geometry.alignment_tokens == 0]
        # Where small blocks make most boundaries, few lengths would reach an alignment, before which nothing is hit.
        self._aligned = aligned if 2 * len(aligned) < len(self.boundaries) else []
        # Of all lengths, a fifth lie at a boundary of blocks of 16 tokens, and hardly any at one of large blocks.
        are_large = min((group.block_size_tokens for group in geometry.groups), default=0) >= _LARGE_BLOCK_TOKENS
        self._boundary_percent = bias.boundary_percent + are_large * (100 - bias.boundary_percent) // 6
        self.weights = dict(bias.weights)
        """How often each operation of a block manager is drawn, relative to the others."""
        if self.features.transfers:
            self.weights[Transferred] = _TRANSFERRED_WEIGHT
        if geometry.fences:
            self.weights[Dispatch] = _DISPATCH_WEIGHT
        self._swarm: str | None = None
        self._chosen: dict[str, int] = {}

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, model: Model, preset: str) -> Generator:
        """The generator of a model with one preset."""
        return cls(PRESETS[preset], model.geometry, model.features)

    def for_case(self, seed: str) -> Generator:
        """The generator of one case: this one, or that of a swarm, where the case decides what is drawn how often.

        What is never on, or far more often than usual, brings the others together as an average case seldom does
        (Groce et al., Swarm Testing, ISSTA 2012).
        """
        if not Seeded(f"{seed}/swarm").chance(self.bias.swarm_percent):
            return self
        generator = copy(self)
        generator._swarm, generator._chosen = seed, {}
        return generator

    def often(self, what: str, usual: int, is_optional: bool = True) -> int:
        """How often an operation or a feature is drawn in this case; never 0 unless it ``is_optional``."""
        if self._swarm is None or usual == 0:
            return usual
        if what not in self._chosen:
            draw = Seeded(f"{self._swarm}/{what}")
            is_left_out = draw.chance(OMITTED_PERCENT) and is_optional
            self._chosen[what] = 0 if is_left_out else max(1, usual * draw.one_of(FACTORS_PERCENT) // 100)
        return self._chosen[what]

    def settings(self, draw: Draw) -> Settings:
        """The settings of one case."""
        drafts = self.geometry.has_draft_layer
        low, high = self.bias.pool_percent
        chunk_tokens = self._length(draw, self.prompt_max)
        tokens_max = self.prompt_max + draw.integer(2, 4 * self.geometry.alignment_tokens)
        held = _blocks_at_peak(self.geometry, tokens_max, chunk_tokens)
        states = [group.draft_states for group in self.geometry.groups if group.keeps_states]
        drafts_max = min([self.bias.drafts_max, *states])
        settings = Settings(
            geometry=self.geometry,
            blocks=2 + held * draw.integer(low, high) // 100,
            tokens_max=tokens_max,
            chunk_tokens=chunk_tokens,
            requests_max=draw.integer(1, self.bias.requests_max),
            drafts_max=draw.integer(1, drafts_max) if drafts_max and (drafts or draw.chance(20)) else 0,
            caches=not draw.chance(4) and not self._keeps_no_state,
            tells_events=draw.chance(75),
            full_sequence_must_fit=draw.chance(50),
        )
        return self.features.applied_to(settings)

    @property
    def _keeps_no_state(self) -> bool:
        """Whether some group keeps no state that prefix caching could use."""
        return not all(group.attention.serves_hits for group in self.geometry.groups)

    def admission(self, draw: Draw) -> Admit:
        """An admission; where other nodes take part, some of them provide what follows the hit."""
        admit = Admit(self.request(draw), self.budget(draw))
        if not self.features.transfers or not draw.chance(self.often("external tokens", 40)):
            return admit
        return evolve(admit, external_tokens=self.budget(draw), loads=draw.chance(self.often("loads", 50)))

    def succeeds(self, draw: Draw) -> bool:
        """Whether a transfer does."""
        return not draw.chance(self.often("failed transfers", 20))

    def end(self, draw: Draw) -> Finish:
        """An end; where other nodes take part, some of them still read."""
        return Finish(self.request(draw), sends=self.features.transfers and draw.chance(self.often("sends", 30)))

    def request(self, draw: Draw) -> int:
        """A number that stands for some request."""
        return draw.integer(0, self.bias.requests_max - 1)

    def budget(self, draw: Draw) -> int:
        """How many tokens a step may compute."""
        return self._length(draw, self.prompt_max)

    def sample(self, draw: Draw) -> Sample:
        """An answer of the model, and new drafts."""
        token = _ANSWER_FIRST + draw.integer(0, self.bias.tails - 1) * 10
        drafts_max = self.bias.drafts_max
        return Sample(self.request(draw), draw.integer(0, drafts_max), token, draw.integer(0, drafts_max))

    def arrival(self, draw: Draw) -> Arrive:
        """A request whose prompt is a shared prefix, often with a tail."""
        shared = self._length(draw, self.prompt_max)
        runs = [Run(draw.integer(0, self.bias.families - 1) * _FAMILY_TOKENS, shared)]
        if draw.chance(self.often("tails", 70)):
            tail = _TAIL_FIRST + draw.integer(0, self.bias.tails - 1) * _TAIL_TOKENS
            length = draw.integer(1, 3) if draw.chance(50) else self._length(draw, self.prompt_max)
            runs.append(Run(tail, length))
        keys = (
            self._keys(draw, sum(run.length for run in runs))
            if draw.chance(self.often("keys", self.bias.keys_percent))
            else Keys()
        )
        return Arrive(self.request(draw), tuple(runs), keys, reads_cache=not draw.chance(self.often("no cache", 3)))

    def _keys(self, draw: Draw, tokens: int) -> Keys:
        """A salt, an adapter, multimodal items: one of them, or two."""
        adapter = f"adapter-{draw.integer(0, 1)}"
        salt = adapter if draw.chance(self.bias.collision_percent) else f"salt-{draw.integer(0, 1)}"
        kinds = draw.integer(1, 6)
        return Keys(
            salt=salt if kinds in (1, 4, 5) else None,
            lora=adapter if kinds in (2, 4, 6) else None,
            media=self.media(draw, tokens) if kinds in (3, 5, 6) else (),
        )

    def media(self, draw: Draw, tokens: int) -> tuple[Media, ...]:
        """Items in one of a few layouts, so that requests often differ in one item or one offset alone."""
        grain = self.geometry.grain_tokens
        tail = tokens // grain * grain
        # Next to each other, a token apart, one that spans blocks, and two in the block where the prompt ends.
        layout = draw.one_of(
            (
                ((0, 1), (1, 2)),
                ((0, 1), (2, 2)),
                ((1, 1), (2, 2)),
                ((grain - 1, 1), (grain, 2)),
                ((2, 1), (4, 2 * grain), (2 * grain + 4, 1)),
                ((tail, 1), (tail + 1, 1)),
            )
        )
        # An item's length follows from its identifier, as its content would.
        items = [Media(f"image-{length}-{draw.integer(0, 1)}", offset, length) for offset, length in layout]
        return tuple(item for item in items if item.offset_tokens + item.length_tokens <= tokens)

    def _length(self, draw: Draw, most: int) -> int:
        """A length in tokens from 1 to ``most``, on a boundary more often than not."""
        if draw.chance(self.often("boundaries", self._boundary_percent)):
            among = self._aligned if self._aligned and draw.chance(50) else self.boundaries
            near = draw.one_of(among) + draw.integer(-1, 1)
            return min(max(1, near), most)
        return draw.integer(1, most)


DRAWN: Mapping[type[Operation], Callable[[Generator, Draw], Operation]] = {
    Arrive: Generator.arrival,
    LookUp: lambda generator, draw: LookUp(generator.request(draw)),
    Admit: Generator.admission,
    Schedule: lambda generator, draw: Schedule(generator.request(draw), generator.budget(draw)),
    Sample: Generator.sample,
    Preempt: lambda generator, draw: Preempt(generator.request(draw)),
    Finish: Generator.end,
    Transferred: lambda generator, draw: Transferred(generator.request(draw), generator.succeeds(draw)),
    Abort: lambda generator, draw: Abort(generator.request(draw)),
    ReleaseSkipped: lambda generator, draw: ReleaseSkipped(generator.request(draw)),
    CommonPrefix: lambda generator, draw: CommonPrefix(generator.request(draw)),
    Evict: lambda _generator, draw: Evict(draw.integer(1, 1000)),
    Dispatch: lambda _generator, _draw: Dispatch(),
    Reset: lambda _generator, _draw: Reset(),
    TakeEvents: lambda _generator, _draw: TakeEvents(),
    TakeStatistics: lambda _generator, _draw: TakeStatistics(),
}
"""How each operation of a block manager is drawn. It may stand for none in the state that it meets."""


def _blocks_at_peak(geometry: Geometry, tokens: int, chunk_tokens: int) -> int:
    """The most blocks that one request of ``tokens`` tokens, computed in chunks, holds at once over all groups.

    The states of its drafts are among them, and the sources of the copies that its hit may need.
    """
    return sum(
        min(group.entries(tokens, tokens), group.blocks_held_at_most(chunk_tokens, tokens)) + group.copies
        for group in geometry.groups
    )


def _boundaries(geometry: Geometry, tokens_max: int) -> list[int]:
    """The lengths where something changes: blocks, alignment, windows, and a window after a block."""
    found: set[int] = set()
    for group in geometry.groups:
        size = group.block_size_tokens
        found.update(range(size, min(tokens_max, 6 * size) + 1, size))
        if group.window_tokens is not None:
            window = group.window_tokens
            found.update((window, window + size, 2 * window, window - 1 + size))
    alignment = geometry.alignment_tokens
    found.update(range(alignment, tokens_max + 1, alignment))
    return sorted(length for length in found if length <= tokens_max)
