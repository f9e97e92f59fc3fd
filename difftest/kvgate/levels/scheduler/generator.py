"""Runs of an engine without a model, drawn from a seed."""

from __future__ import annotations

from attrs import evolve

from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Seeded
from kvgate.levels.scheduler.case import EngineCase, Stage
from kvgate.levels.scheduler.operations import Collect, GrammarReady, Operation, ResetCache, Serve, Transferred
from kvreference.content import Keys
from kvreference.operations import Abort
from kvreference.scheduler.operations import Reply, Step
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

STEPS = 150
_ANSWERS_MAX = 40


def draw_engine_case(model: Model, preset: str, seed: str, stage: Stage | None = None) -> EngineCase:
    """The case that a seed stands for; on a given ``stage``, or on one that is drawn as well.

    What vLLM 0.20.2 is known not to serve is left out, and has cases of its own: requests that could never fit,
    transfers that never end, loads that fail where there are several groups, chunks shorter than a block of states;
    where steps are asynchronous and blocks are given up on the way, also drafts and blocks that another node reads.
    """
    draw = Seeded(f"{seed}/{model.name}/{preset}/engine")
    generator = Generator(PRESETS[preset], model.geometry, model.features)
    settings = generator.settings(draw)
    drawn = _stage(generator, settings, draw)
    drawn = drawn if stage is None else stage
    if settings.geometry.state_block_tokens is not None:
        # vLLM keeps states at block ends for prefix caching alone.
        settings = evolve(settings, caches=True)
    if drawn.asynchronous and not _drafts_ahead(settings):
        settings = evolve(settings, drafts_max=0)
    operations = tuple(_operation(generator, settings, drawn, draw) for _ in range(STEPS))
    return EngineCase(settings, drawn, operations, model.name, preset, seed)


def _stage(generator: Generator, settings: Settings, draw: Seeded) -> Stage:
    aligned = settings.geometry.state_block_tokens is not None
    copies = any(group.copies for group in settings.geometry.groups)
    asynchronous = draw.chance(40)
    return Stage(
        running_max=min(draw.integer(1, settings.requests_max), settings.chunk_tokens),
        asynchronous=asynchronous,
        by_priority=draw.chance(40),
        # vLLM asserts that there is none where states are kept at block ends, and the plug-in where blocks are copied.
        connector=draw.chance(50) and not (aligned or copies) and (_recovers(settings) or not asynchronous),
        failed_loads_end=draw.chance(30),
        long_prefill_tokens=generator.budget(draw) if draw.chance(20) and not aligned else None,
    )


def _drafts_ahead(settings: Settings) -> bool:
    """Whether vLLM schedules drafts behind tokens that it has not seen, and gives up no block too early for them."""
    groups = settings.geometry.groups
    return settings.geometry.lookahead_tokens > 0 and all(group.keeps_all for group in groups)


def _operation(generator: Generator, settings: Settings, stage: Stage, draw: Seeded) -> Operation:
    if draw.chance(20):
        submit = _submission(generator, settings, stage, draw)
        return submit if fits(settings, submit) else Step()
    kind = draw.integer(1, 100)
    if kind <= 3:
        return Abort(generator.request(draw))
    if kind <= 5:
        return GrammarReady(generator.request(draw))
    if kind <= 6:
        return ResetCache(draw.chance(50))
    if stage.connector and kind <= 20:
        return Transferred(generator.request(draw), draw.chance(80) or not _recovers(settings))
    if stage.asynchronous and kind <= 30:
        return Collect()
    return Step(tuple(_reply(generator, draw) for _ in range(draw.integer(1, 3))))


def _submission(generator: Generator, settings: Settings, stage: Stage, draw: Seeded) -> Serve:
    arrival = generator.arrival(draw)
    # An adapter needs a configuration of its own, and items an encoder: both are for the level below.
    arrival = evolve(arrival, keys=Keys(salt=arrival.keys.salt))
    serve = Serve(
        arrival,
        answers_max=draw.integer(1, _ANSWERS_MAX),
        priority=draw.integer(0, 2) if stage.by_priority else 0,
        structured=draw.chance(10),
    )
    if not stage.connector:
        return serve
    gives_up = not all(group.keeps_all for group in settings.geometry.groups)
    fails = draw.chance(20) and _recovers(settings)
    return evolve(
        serve,
        external_tokens=generator.budget(draw) if draw.chance(60) else 0,
        loads=draw.chance(50),
        sends=draw.chance(30) and not (stage.asynchronous and gives_up),
        undecided=draw.integer(1, 3) if draw.chance(10) else 0,
        fails_from_block=draw.integer(0, 3) if fails else None,
    )


def _recovers(settings: Settings) -> bool:
    """Whether vLLM 0.20.2 goes on behind a load that failed.

    It looks for the blocks in models with one group only, and where a window was left, those before it are not there.
    """
    groups = settings.geometry.groups
    return len(groups) == 1 and groups[0].keeps_all


def fits(settings: Settings, submit: Serve) -> bool:
    """Whether a request could run to its end alone: vLLM takes in others too, and never gets on with them."""
    tokens = min(submit.prompt_tokens + submit.answers_max, settings.tokens_max)
    return blocks_to_run(settings, tokens - 1) <= settings.blocks - 1


def _reply(generator: Generator, draw: Seeded) -> Reply:
    sample = generator.sample(draw)
    return Reply(sample.accepted, sample.token, sample.drafts, ends=draw.chance(3))
