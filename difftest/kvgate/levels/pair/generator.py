"""Runs of two nodes, drawn from a seed."""

from __future__ import annotations

from attrs import evolve

from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Seeded
from kvgate.levels.pair.case import PairCase, PairStage
from kvgate.levels.pair.operations import Abort, Acknowledged, Ask, CollectOn, Node, Operation, StepOn, Transferred
from kvgate.levels.scheduler.case import Stage
from kvreference.content import Keys
from kvreference.scheduler.operations import Reply
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

STEPS = 200
_ANSWERS_MAX = 40


def draw_pair_case(model: Model, preset: str, seed: str) -> PairCase:
    """The case that a seed stands for.

    What vLLM 0.20.2 is known not to serve is left out, and has cases of its own: requests that could never fit on
    either node, messages that never come, reads that fail where there are several groups; asynchronous steps where
    blocks are given up on the way, or drafts come from nowhere.
    """
    draw = Seeded(f"{seed}/{model.name}/{preset}/pair")
    generator = Generator(PRESETS[preset], model.geometry, model.features)
    settings = generator.settings(draw)
    # The prefill node keeps what is read, so it holds more requests than it computes.
    chunk_tokens, least = generator.budget(draw), blocks_to_run(settings, generator.prompt_max)
    stage = PairStage(
        prefill_blocks=1 + least + draw.integer(0, 2 * least),
        prefill_chunk_tokens=chunk_tokens,
        prefill=_stage(generator, settings, chunk_tokens, draw),
        decode=_stage(generator, settings, settings.chunk_tokens, draw),
    )
    operations = tuple(_operation(generator, settings, stage, draw) for _ in range(STEPS))
    return PairCase(settings, stage, operations, model.name, preset, seed)


def _stage(generator: Generator, settings: Settings, chunk_tokens: int, draw: Seeded) -> Stage:
    # As on one node: transfers and asynchronous steps meet where everything computed is kept, and drafts have layers.
    asynchronous = draw.chance(30) and recovers(settings) and (not settings.drafts_max or _drafts_ahead(settings))
    return Stage(
        running_max=min(draw.integer(1, settings.requests_max), chunk_tokens),
        asynchronous=asynchronous,
        connector=True,
        failed_loads_end=draw.chance(30),
        long_prefill_tokens=generator.budget(draw) if draw.chance(20) else None,
    )


def _operation(generator: Generator, settings: Settings, stage: PairStage, draw: Seeded) -> Operation:
    kind = draw.integer(1, 100)
    if kind <= 15:
        ask = _ask(generator, draw)
        return ask if fits(settings, stage, ask) else StepOn(Node.PREFILL)
    if kind <= 18:
        return Abort(generator.request(draw))
    if kind <= 32:
        return Transferred(generator.request(draw), draw.chance(85) or not recovers(settings))
    if kind <= 44:
        return Acknowledged(generator.request(draw))
    if kind <= 48:
        return CollectOn(draw.one_of(tuple(Node)))
    node = Node.PREFILL if kind <= 68 else Node.DECODE
    return StepOn(node, tuple(_reply(generator, draw) for _ in range(draw.integer(1, 3))))


def _ask(generator: Generator, draw: Seeded) -> Ask:
    arrival = generator.arrival(draw)
    return Ask(evolve(arrival, keys=Keys(salt=arrival.keys.salt)), draw.integer(1, _ANSWERS_MAX))


def recovers(settings: Settings) -> bool:
    """Whether vLLM 0.20.2 goes on behind a read that failed: it looks for its blocks in a single group alone."""
    groups = settings.geometry.groups
    return len(groups) == 1 and groups[0].keeps_all


def _drafts_ahead(settings: Settings) -> bool:
    """Whether vLLM schedules drafts behind tokens that it has not seen."""
    return settings.geometry.lookahead_tokens > 0


def fits(settings: Settings, stage: PairStage, ask: Ask) -> bool:
    """Whether a request could run to its end alone on either node: vLLM takes in others, and never gets on."""
    prompt = min(ask.prompt_tokens, settings.tokens_max - 1)
    answered = min(prompt + ask.answers_max, settings.tokens_max)
    prefill = stage.of_prefill(settings)
    on_prefill = blocks_to_run(prefill, prompt) <= prefill.blocks - 1
    return on_prefill and blocks_to_run(settings, answered - 1) <= settings.blocks - 1


def _reply(generator: Generator, draw: Seeded) -> Reply:
    sample = generator.sample(draw)
    return Reply(sample.accepted, sample.token, sample.drafts, ends=draw.chance(3))
