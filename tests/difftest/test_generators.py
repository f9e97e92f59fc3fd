"""Where operations come from.

Goal: every knob has its effect, and lengths lie where faults are. Method: generate many and count; a knob turned off,
or evenly distributed lengths, are the control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from kvgate.explore.mechanisms import MECHANISMS
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.models import MODELS, Model, load
from kvgate.kernel.random_source import Seeded
from kvgate.levels.manager import MANAGER
from kvgate.levels.pair.operations import Acknowledged, Ask, StepOn
from kvgate.levels.registry import LEVELS
from kvgate.levels.scheduler.operations import Serve
from kvreference.admission import fits_empty_pool
from kvreference.attention import Kind
from kvreference.content import Keys
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Dispatch,
    Finish,
    Operation,
    Preempt,
    Reset,
    Sample,
    Schedule,
    TakeEvents,
    Transferred,
)
from kvreference.scheduler.operations import Step

DRAWS = 2000
HOSTILE = PRESETS["hostile"]
FULL = MODELS["full"].geometry
DRIVEN = {name for mechanism in MECHANISMS.values() for name in mechanism.models}
GENERATORS = {
    f"{name}-{preset}": Generator(bias, load(name).geometry, load(name).features)
    for name in sorted({*MODELS, *DRIVEN})
    for preset, bias in PRESETS.items()
}


def arrivals(**knobs: Any) -> list[Arrive]:
    """Requests of the hostile preset on one full group, with some knobs turned."""
    generator = Generator(evolve(HOSTILE, **knobs), FULL)
    draw = Seeded("arrivals")
    return [generator.arrival(draw) for _ in range(DRAWS)]


def operations(generator: Generator, number: int) -> tuple[Operation, ...]:
    """As many as asked for, of an average case."""
    bias = evolve(generator.bias, operations=number, swarm_percent=0)
    return MANAGER.draw_with(Generator(bias, generator.geometry, generator.features), "m", "p", "0").operations


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def tokens_of(arrival: Arrive) -> int:
    return sum(run.length for run in arrival.prompt)


def at_a_boundary(tokens: int, generator: Generator) -> bool:
    """Whether a length is a multiple of some block size, or one token before or after one."""
    sizes = {group.block_size_tokens for group in generator.geometry.groups}
    return any((tokens + 1) % size <= 2 for size in sizes)


SMALL_BLOCKS = [
    name
    for name, model in MODELS.items()
    if min(group.block_size_tokens for group in model.geometry.groups) * 8 <= model.geometry.alignment_tokens
]
"""Models with blocks so small, next to the alignment, that most lengths lie at a boundary of one."""


@pytest.mark.parametrize("model", [name for name in MODELS if name not in SMALL_BLOCKS])
def test_most_prompts_of_the_hostile_preset_end_at_a_boundary(model: str) -> None:
    """The whole prompts, shared prefix and tail together; and what they share, more often still."""
    generator = GENERATORS[f"{model}-hostile"]
    draw = Seeded("prompts")
    prompts = [generator.arrival(draw) for _ in range(DRAWS)]
    assert share([at_a_boundary(tokens_of(prompt), generator) for prompt in prompts]) > 0.5
    assert share([at_a_boundary(prompt.prompt[0].length, generator) for prompt in prompts]) > 0.75


@pytest.mark.parametrize("model", [name for name in MODELS if name not in SMALL_BLOCKS])
def test_few_lengths_lie_at_a_boundary(model: str) -> None:
    """The control: of all lengths there are, fewer than a quarter, so lengths drawn evenly would miss them."""
    generator = GENERATORS[f"{model}-hostile"]
    assert share([at_a_boundary(tokens, generator) for tokens in range(1, generator.prompt_max + 1)]) < 0.25


@pytest.mark.parametrize("preset", ["tiny", "hostile"])
@pytest.mark.parametrize("model", SMALL_BLOCKS)
def test_where_blocks_are_small_prompts_reach_the_alignment(model: str, preset: str) -> None:
    """Shorter prefixes hit nothing: of the shared prefixes, a third lies at a multiple, and half reaches the first.

    Of all lengths, and of all boundaries, hardly any do: these are the controls.
    """
    generator = GENERATORS[f"{model}-{preset}"]
    alignment, draw = generator.geometry.alignment_tokens, Seeded("prompts")
    shared = [generator.arrival(draw).prompt[0].length for _ in range(DRAWS)]

    def near(lengths: Iterable[int]) -> float:
        return share([(tokens + 1) % alignment <= 2 and tokens > 1 for tokens in lengths])

    assert near(shared) > 0.33
    assert share([tokens >= alignment for tokens in shared]) > 0.5
    assert near(range(1, generator.prompt_max + 1)) < 0.05
    assert share([length % alignment == 0 for length in generator.boundaries]) < 0.5


@pytest.mark.parametrize("model", [name for name in MODELS if name not in SMALL_BLOCKS])
def test_elsewhere_the_alignment_is_a_boundary_like_others(model: str) -> None:
    """There it is among the usual lengths, and no choice is spent on it."""
    alignment = MODELS[model].geometry.alignment_tokens
    generator = GENERATORS[f"{model}-hostile"]
    assert share([length % alignment == 0 for length in generator.boundaries]) >= 0.5
    assert [] == generator._aligned


def test_boundaries_are_where_something_changes() -> None:
    """Blocks, alignments, windows, and windows after a block: none of them beyond the longest prompt."""
    generator = GENERATORS["mixed-blocks-hostile"]
    found = generator.boundaries
    assert sorted(set(found)) == found
    assert found[-1] <= generator.prompt_max
    assert {16, 32, 48, 64, 64 - 1 + 16, 64 + 16, 128, 256} <= set(found)
    assert not {17, 100} & set(found)


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_the_pool_holds_the_longest_request(generator: Generator) -> None:
    """A request that runs by itself can finish: a rejection is never permanent. In smaller pools some could not: the
    control.
    """
    draw = Seeded("settings")
    drawn = [generator.settings(draw) for _ in range(200)]
    for settings in drawn:
        assert 1 <= settings.chunk_tokens <= generator.prompt_max < settings.tokens_max
        assert fits_empty_pool(settings, settings.tokens_max)
    _, highest = generator.bias.pool_percent
    smaller = [evolve(each, blocks=max(2, each.blocks * 90 // highest)) for each in drawn]
    assert not all(fits_empty_pool(each, each.tokens_max) for each in smaller)


def test_drafts_are_for_models_with_a_draft_layer() -> None:
    """Others draft now and then all the same: n-gram speculation needs no layer."""
    draw = Seeded("drafts")
    with_layer, without = (
        Generator(HOSTILE, model.geometry) for model in (MODELS["full"].with_lookahead(), MODELS["full"])
    )
    assert all(with_layer.settings(draw).drafts_max > 0 for _ in range(DRAWS))
    assert 0.1 < share([without.settings(draw).drafts_max > 0 for _ in range(DRAWS)]) < 0.3


def ranges(found: list[Arrive]) -> Iterator[range]:
    for arrival in found:
        for run in arrival.prompt:
            yield range(run.first, run.first + run.length)


def test_prompts_share_exactly_what_they_were_given() -> None:
    """Families and tails lie apart: two runs begin alike, or have no token in common."""
    longest = {run.start: run for run in sorted(ranges(arrivals()), key=len)}
    assert 4 == len(longest)
    for before, after in pairwise(sorted(longest.values(), key=lambda run: run.start)):
        assert before.stop <= after.start


@pytest.mark.parametrize(("knob", "expected"), [("families", 3), ("tails", 5)])
def test_families_and_tails_are_as_many_as_the_knob_says(knob: str, expected: int) -> None:
    """One more of the one means one more first token."""
    before = {run.start for run in ranges(arrivals(families=1, tails=1))}
    after = {run.start for run in ranges(arrivals(**{"families": 1, "tails": 1, knob: expected}))}
    assert expected - 1 == len(after) - len(before)


def test_keys_are_as_frequent_as_the_knob_says() -> None:
    """None at all at 0; at 100 nearly all, for an item beyond the prompt's end is left out."""
    assert 0.0 == share([arrival.keys != Keys() for arrival in arrivals(keys_percent=0)])
    assert share([arrival.keys != Keys() for arrival in arrivals(keys_percent=100)]) > 0.9


@pytest.mark.parametrize("kind", ["salt", "lora", "media"])
def test_every_kind_of_key_is_drawn_alone_and_with_others(kind: str) -> None:
    """Two at once show whether their domains are distinguished."""
    kinds = [
        {name for name in ("salt", "lora", "media") if getattr(arrival.keys, name)}
        for arrival in arrivals(keys_percent=100)
    ]
    assert {kind} in kinds
    assert any(kind in found and len(found) == 2 for found in kinds)


def test_salts_named_like_an_adapter_are_as_frequent_as_the_knob_says() -> None:
    """None at 0, all at 100."""

    def collisions(percent: int) -> list[bool]:
        keys = [arrival.keys for arrival in arrivals(keys_percent=100, collision_percent=percent)]
        return [key.salt.startswith("adapter") for key in keys if key.salt is not None]

    assert [0.0, 1.0] == [share(collisions(0)), share(collisions(100))]


def test_media_lie_within_the_prompt() -> None:
    """Next to each other, apart, across a block's edge, and in the block where the prompt ends."""
    found = [arrival for arrival in arrivals(keys_percent=100) if arrival.keys.media]
    assert all(
        item.offset_tokens + item.length_tokens <= tokens_of(arrival)
        for arrival in found
        for item in arrival.keys.media
    )
    across = [item for arrival in found for item in arrival.keys.media if item.offset_tokens % 16 == 15]
    in_tail = [
        arrival for arrival in found if arrival.keys.media[-1].offset_tokens >= tokens_of(arrival) // 16 * 16 > 16
    ]
    assert across
    assert in_tail


def test_some_requests_do_not_read_the_cache() -> None:
    """Few: they make everything else rarer."""
    assert 0.0 < share([not arrival.reads_cache for arrival in arrivals()]) < 0.1


@pytest.mark.parametrize("kind", [Admit, Finish, Transferred, Dispatch])
def test_other_nodes_and_dispatches_are_for_models_that_have_them(kind: type[Operation]) -> None:
    """A transfer for those with the suffix, a dispatch where what is computed cannot serve at once."""

    def drawn(model: str) -> list[Operation]:
        """Operations of one kind that differ from those of other models."""
        generator = Generator(HOSTILE, load(model).geometry, load(model).features)
        found = operations(generator, DRAWS)
        return [
            each
            for each in found
            if isinstance(each, kind)
            and (not isinstance(each, Admit) or each.external_tokens)
            and (not isinstance(each, Finish) or each.sends)
        ]

    fences = kind is Dispatch
    expected = {"full": False, "full+transfers": not fences, "mamba-align": fences, "mamba-align+transfers": True}
    assert expected == {model: bool(drawn(model)) for model in expected}


def test_what_other_nodes_do_varies() -> None:
    """At once and later, arriving and failing, reading and not."""
    generator = Generator(HOSTILE, FULL, load("full+transfers").features)
    draw = Seeded("nodes")
    admitted = [generator.admission(draw) for _ in range(DRAWS)]
    provided = [admit for admit in admitted if admit.external_tokens]
    assert 0.3 < share([admit.external_tokens > 0 for admit in admitted]) < 0.5
    assert 0.4 < share([admit.loads for admit in provided]) < 0.6
    assert not any(admit.loads for admit in admitted if not admit.external_tokens)
    assert 0.2 < share([generator.end(draw).sends for _ in range(DRAWS)]) < 0.4
    over = [each.succeeded for each in operations(generator, 4 * DRAWS) if isinstance(each, Transferred)]
    assert 0.7 < share(over) < 0.9


FEATURES: dict[str, tuple[str, dict[str, object]]] = {
    "none": ("mixed-blocks", {}),
    "masked": ("mixed-blocks+masked", {"retention_interval_tokens": 32}),
    "retention": ("mixed-blocks+retention=128+scratch", {"retention_interval_tokens": 128, "scratch_first": True}),
    "pinned": ("mixed-blocks+pinned=2", {"pin_drop_blocks_min": 2}),
}


@pytest.mark.parametrize(("model", "expected"), FEATURES.values(), ids=FEATURES)
def test_settings_have_the_features_of_the_model(model: str, expected: dict[str, object]) -> None:
    """All of them; without prefix caching, no retention interval is drawn."""
    generator = Generator(HOSTILE, load(model).geometry, load(model).features)
    draw = Seeded("features")
    plain: dict[str, object] = {"retention_interval_tokens": None, "scratch_first": False, "pin_drop_blocks_min": None}
    seen = Counter[bool]()
    for settings in (generator.settings(draw) for _ in range(200)):
        seen[settings.caches] += 1
        uncached = {} if settings.caches else {"retention_interval_tokens": None}
        assert {**plain, **expected, **uncached} == {name: getattr(settings, name) for name in plain}
    assert seen[True] > 180 > seen[False] > 0


def test_prefix_caching_is_off_where_no_states_are_kept_for_it() -> None:
    """A running state serves no other request."""
    draw = Seeded("states")
    generator = GENERATORS["mamba-none-hostile"]
    assert not any(generator.settings(draw).caches for _ in range(200))


def test_operations_are_drawn_by_their_weights() -> None:
    """Three of one kind for one of another, and none of a third."""
    generator = Generator(evolve(HOSTILE, weights={Reset: 3, TakeEvents: 1}), FULL)
    drawn = operations(generator, DRAWS)
    assert {Reset(), TakeEvents()} == set(drawn)
    assert 0.7 < share([operation == Reset() for operation in drawn]) < 0.8


@pytest.mark.parametrize("mode", [StateMode.ALL, StateMode.ALIGN])
@pytest.mark.parametrize("states", [0, 2, 5])
def test_drafts_are_no_more_than_there_are_states_for(mode: StateMode, states: int) -> None:
    """Goal: every model that is accepted can be run. Method: groups with states for few drafts, at every level."""
    model = Model("m", Geometry((FULL.groups[0], Group(Kind.MAMBA, 16, states=mode, draft_states=states))), "")
    drafts = {
        level.draw(model, preset, f"0/{index}", 0).settings.drafts_max
        for level in LEVELS.values()
        for preset in PRESETS
        for index in range(6)
    }
    # The largest number of drafts of any preset is 4.
    assert (0, min(states, 4)) == (min(drafts), max(drafts))


SWARM = 120
"""How many cases of a swarm are generated."""


def swarm(level: str, percent: int) -> list[Case]:
    """Cases of which so many decide themselves what is drawn how often."""
    model = load("full+transfers")
    generator = Generator(evolve(HOSTILE, swarm_percent=percent), model.geometry, model.features)
    return [LEVELS[level].draw_with(generator, "m", "p", f"0/{index}") for index in range(SWARM)]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("level", "optional", "always"),
    [
        ("blocks", Preempt, {Arrive, Admit, Schedule, Sample, Transferred}),
        ("scheduler", Abort, {Serve, Step}),
        ("pair", Abort, {Ask, StepOn, Transferred, Acknowledged}),
    ],
)
def test_cases_of_a_swarm_differ_in_what_they_draw_how_often(level: str, optional: type, always: set[type]) -> None:
    """Goal: some cases lack an operation, others have much of it. Method: count; the control are average cases."""

    def counted(percent: int) -> list[Counter[type]]:
        return [Counter(map(type, case.operations)) for case in swarm(level, percent)]

    of_swarm, average = ([each[optional] for each in counted(percent)] for percent in (100, 0))
    assert 0.1 < share([number == 0 for number in of_swarm]) < 0.5
    assert max(of_swarm) > 1.5 * max(average)
    assert not [each for each in counted(100) if not always <= set(each)]


def test_cases_of_a_swarm_differ_in_their_features() -> None:
    """Items, salts and adapters in none of the requests, or in most; a preset that has none of them keeps none."""

    def keyed(**knobs: Any) -> list[float]:
        generator = Generator(evolve(HOSTILE, swarm_percent=100, **knobs), FULL)
        cases = (MANAGER.draw_with(generator, "m", "p", str(index)) for index in range(SWARM))
        found = ([each.keys != Keys() for each in case.operations if isinstance(each, Arrive)] for case in cases)
        return [share(each) for each in found]

    assert 0 == min(keyed())
    assert 0.6 < max(keyed())
    assert 0 == max(keyed(keys_percent=0))


@pytest.mark.ci
def test_half_of_the_cases_are_of_a_swarm() -> None:
    """And which of them, and what they draw, follows from the seed."""
    assert swarm("blocks", 100) == swarm("blocks", 100)
    generator = GENERATORS["full-hostile"]
    chosen = [generator.for_case(f"0/{index}") is not generator for index in range(400)]
    assert 0.4 < share(chosen) < 0.6
