"""Runs of an engine without a model, drawn from a seed."""

from __future__ import annotations

from attrs import evolve

from kvgate.draws import Seeded
from kvgate.generators import PRESETS, Generator
from kvgate.models import Model
from kvgate.scheduling.case import EngineCase, Stage
from kvgate.scheduling.operations import Operation
from kvreference.content import Keys
from kvreference.operations import Abort
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

STEPS = 150
_ANSWERS_MAX = 40


def draw_engine_case(model: Model, preset: str, seed: str) -> EngineCase:
    """The case that a seed stands for."""
    draw = Seeded(f"{seed}/{model.name}/{preset}/engine")
    generator = Generator(PRESETS[preset], model.geometry, model.features)
    settings = generator.settings(draw)
    running_max = min(draw.integer(1, settings.requests_max), settings.chunk_tokens)
    operations = tuple(_operation(generator, settings, draw) for _ in range(STEPS))
    return EngineCase(settings, Stage(running_max), operations, model.name, preset, seed)


def _operation(generator: Generator, settings: Settings, draw: Seeded) -> Operation:
    if draw.chance(20):
        arrival = generator.arrival(draw)
        # An adapter needs a configuration of its own, and items an encoder: both are for the level below.
        arrival = evolve(arrival, keys=Keys(salt=arrival.keys.salt))
        submit = Submit(arrival, answers_max=draw.integer(1, _ANSWERS_MAX))
        return submit if _fits(settings, submit) else Step()
    if draw.chance(3):
        return Abort(generator.request(draw))
    return Step(tuple(_reply(generator, draw) for _ in range(draw.integer(1, 3))))


def _fits(settings: Settings, submit: Submit) -> bool:
    """Whether a request could run to its end alone: vLLM takes in others too, and never gets on with them."""
    tokens = min(submit.prompt_tokens + submit.answers_max, settings.tokens_max)
    return blocks_to_run(settings, tokens - 1) <= settings.blocks - 1


def _reply(generator: Generator, draw: Seeded) -> Reply:
    sample = generator.sample(draw)
    return Reply(sample.accepted, sample.token, sample.drafts, ends=draw.chance(3))
