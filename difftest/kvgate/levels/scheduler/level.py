"""The level of a scheduler: vLLM's own on its block manager, with a worker that answers without a model."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import evolve, fields_dict, frozen

from kvgate.adapters.registry import Loaded
from kvgate.findings import explain_engine
from kvgate.gate.generator import Generator
from kvgate.gate.level import Case, Level, World
from kvgate.gate.shrink import DEFAULT, INSIDE, OF_BLOCK_MANAGERS, Rules
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.random_source import Draw
from kvgate.kernel.trace_lines import TOKENS_MAX
from kvgate.levels.manager import MANAGER
from kvgate.levels.scheduler.operations import (
    OPERATIONS,
    OPTIONS,
    Close,
    Collect,
    GrammarReady,
    Operation,
    Options,
    PauseEngine,
    ResetCache,
    ResetEncoder,
    Serve,
    Stage,
    describe_engine,
    describe_stage,
)
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry
from kvreference.operations import Abort, Arrive, Continue, Run, Transferred
from kvreference.population import cut
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

MONITORS = (
    "ghost",
    "leak",
    "work",
    "scheduler",
    "clients",
    "connector",
    "statistics",
    "encoder",
    "batch",
    "line",
    "chunks",
    "progress",
)
"""What needs no reference: what the worker reads, what remains, what a step costs, the scheduler's bookkeeping, what
clients, connectors, workers and others are sent, who is next and how much of it is computed, and whether requests make
progress."""
STEPS = 90
ANSWERS_MAX = 40
PART_ANSWERS_MAX = 8
"""The most answers of one part of a session."""
PLACES_MAX = 100_000
"""The most requests that run, and steps that are in flight, at once, in a trace."""
REPLIES_MAX = 10_000
"""The most replies of one step."""
TOKEN_MAX = 2**31 - 1
"""The largest token id."""
_SUBMIT: Mapping[str, int] = {
    **dict.fromkeys(("loads", "sends"), DEFAULT),
    "external_tokens": 0,
    "answers_max": 1,
    "arrival": INSIDE,
}
SIMPLER: Rules = {
    **OF_BLOCK_MANAGERS,
    Submit: _SUBMIT,
    Serve: dict.fromkeys(
        (
            *("structured", "grammar_answers", "undecided", "fails_from_block", "priority", "resumable", "answers_min"),
            *("offered_again", "pools", "embedded"),
        ),
        DEFAULT,
    )
    | {**_SUBMIT},
    Step: {"replies": INSIDE},
    ResetCache: {"preempts": DEFAULT, "connector": DEFAULT},
    PauseEngine: {**dict.fromkeys(("running", "aborts"), DEFAULT), "steps": 1},
    Options: dict.fromkeys(OPTIONS, DEFAULT),
    Reply: {"ends": DEFAULT, "accepted": 0, "drafts": 0, "token": 0},
    Stage: dict.fromkeys(fields_dict(Stage), DEFAULT) | {"running_max": 1, "options": INSIDE},
}
_SUBMITTED = dict.fromkeys(("answers_max", "external_tokens"), TOKENS_MAX)
LIMITS: Mapping[type, Mapping[str, int]] = {
    Submit: _SUBMITTED,
    Serve: {**_SUBMITTED, "answers_min": TOKENS_MAX, "grammar_answers": TOKENS_MAX},
    Step: {"replies": REPLIES_MAX},
    PauseEngine: {"steps": PLACES_MAX},
    Reply: dict.fromkeys(("token", "accepted", "drafts"), TOKEN_MAX),
    Stage: dict.fromkeys(("running_max", "in_flight_max", "long_prefill_tokens"), PLACES_MAX),
}
STAGE_OF: Mapping[str, str] = {"asynchronous": "asynchronous", "priority": "by_priority", "transfers": "connector"}
"""What a mutant needs, and what a stage has then."""


@frozen
class EngineBench:
    """Schedulers on a block manager under test, and the detectors that check them."""

    level: DrivenLevel
    subject: str
    """The block manager, by its name in ``kvgate.levels.scheduler.adapter.subjects``."""
    detectors: tuple[str, ...]

    @property
    def checkers(self) -> tuple[str, ...]:
        """All of them."""
        return self.detectors

    def glancing(self) -> EngineBench:
        return self

    def build(self, case: Case) -> World:
        """A fresh world for a case.

        Raises:
            UsageError: the schedulers do not support what the case asks for.
        """
        try:
            return self.level.world(case, self.subject, "lockstep" in self.detectors)
        except UsageError:
            raise
        except ValueError as error:
            raise UsageError(f"{self.level.unsupported}: {error}") from error


class DrivenLevel(Level):
    """A level on which schedulers drive block managers."""

    unsupported: str
    """What the message says if a case cannot be built."""

    @property
    def below(self) -> Level:
        return MANAGER

    def operations_of(self, profile: str) -> int:
        """How many operations of the block manager schedulers are followed for."""
        return {"precommit": 6_000, "quick": 20_000, "ci": 150_000, "deep": 2_000_000}[profile]

    def lanes_apart(self, profile: str, lanes: int) -> int:
        """No divisor of the number of presets, so that these take turns."""
        return 3 if profile == "precommit" and lanes > 12 else 1

    def bench(self, system: Loaded, detectors: tuple[str, ...]) -> EngineBench:
        return self.bench_named(system.name, detectors)

    def bench_named(self, system: str, detectors: tuple[str, ...]) -> EngineBench:
        """A bench for a system that is loaded.

        Raises:
            UsageError: no scheduler comes with it.
        """
        from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

        if system not in SUBJECTS:
            raise UsageError(
                f"no scheduler comes with the system {system!r}: --level {self.name} is for {', '.join(SUBJECTS)}"
            )
        # The gate provokes failed loads, which vLLM's scheduler logs as errors.
        logging.getLogger("vllm.v1.core.sched.scheduler").setLevel(logging.CRITICAL)
        return EngineBench(self, system, detectors)

    @abstractmethod
    def world(self, case: Case, subject: str, with_reference: bool) -> World:
        """A fresh world for a case on a block manager, by its name."""


class SchedulerLevel(DrivenLevel):
    """One scheduler."""

    name = "scheduler"
    subject = "a scheduler"
    monitors: tuple[str, ...] = MONITORS
    gate: tuple[str, ...] = ("lockstep", *MONITORS)
    detectors: tuple[str, ...] = gate
    alphabet = OPERATIONS
    arrival = Serve
    needed = frozenset((Serve, Step, Transferred))
    # ``Serve`` is more than ``Submit``; and a transfer that is lost never ends, which is finding 025.
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]] = {
        Serve: lambda generator, case, draw: _submission(generator, case, draw),
        Step: lambda generator, case, draw: Step(draw_replies(generator, draw, 12 if _has_sessions(case) else 3)),
        Collect: lambda _generator, _case, _draw: Collect(),
        Abort: lambda generator, _case, draw: Abort(generator.request(draw)),
        Transferred: lambda generator, case, draw: Transferred(
            generator.request(draw), generator.succeeds(draw) or not recovers(case.settings)
        ),
        GrammarReady: lambda generator, _case, draw: GrammarReady(generator.request(draw)),
        ResetCache: lambda _generator, case, draw: ResetCache(
            draw.chance(50), draw.chance(50 if case.stage.connector else 10)
        ),
        ResetEncoder: lambda _generator, _case, _draw: ResetEncoder(),
        PauseEngine: lambda _generator, _case, draw: PauseEngine(draw.chance(50), draw.chance(10), draw.integer(1, 3)),
        Continue: lambda generator, case, draw: _part(generator, case.stage, draw),
        Close: lambda generator, _case, draw: Close(generator.request(draw)),
    }
    stage_type = Stage
    simpler: Rules = SIMPLER
    limits: Mapping[type, Mapping[str, int]] = LIMITS
    not_tested: tuple[str, ...] = (
        "Encoders whose output is attended to and not inserted: no scheduler was given any. Of pipeline and context "
        "parallelism, everything that a worker does.",
        "The connector of a scheduler is a fake one: it transfers nothing, and says what a case has it say. On 0.27.1 "
        "models that cache states have none.",
        "Of newer vLLMs every option of a stage, the second model runner among them: all are switched off.",
        "The order in which requests end whose loads fail together: vLLM's is that of a set of strings, and here it is "
        "that of their numbers.",
        "Sessions with asynchronous steps, priorities or drafts, or with states that are kept at block ends.",
        "Where steps are asynchronous, the work that a step costs. Of 0.33.0, how much is computed where chunks end at "
        "blocks of states.",
    )
    trace_formerly = "kvgate-engine-trace"
    trace_called = "the trace of an engine"
    unsupported = "the scheduler does not support the settings it was given"

    def world(self, case: Case, subject: str, with_reference: bool) -> Any:
        from kvgate.levels.scheduler.engine import Engine

        return Engine(case.settings, case.stage, subject, with_reference)

    def parts(self, world: Any, case: Case) -> Sequence[Any]:
        del case
        return (world,)

    def explain(self, divergence: Divergence, world: Any) -> str | None:
        return explain_engine(divergence, world)

    # Cases

    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        """A case without operations, on a stage with what ``needs`` say.

        Known defects of vLLM 0.20.2 are left out, and have cases of their own: requests that could never fit (027),
        transfers that never end (025), loads that fail where there are several groups (026), chunks shorter than a
        block of states (029), and items of which no step computes the whole (068). Where steps are asynchronous, few
        loads fail within a step (062).
        """
        settings = generator.settings(draw)
        is_encoder = draw.chance(generator.often("encoder-only models", 20)) and not needs
        if "no-kv-cache" in needs or (is_encoder and self.keeps_nothing(settings.geometry)):
            return self.encoder_only(settings, draw)
        stage = _stage(generator, settings, draw)
        if "sessions" in needs:
            stage = evolve(stage, asynchronous=False)
        needed: dict[str, Any] = {STAGE_OF[need]: True for need in needs if need in STAGE_OF}
        stage = evolve(stage, **needed)
        if "encoder" in needs and settings.geometry.state_block_tokens is None:
            stage = with_encoder(stage, settings, draw)
        settings = with_whole_chunks(settings)
        if draw.chance(generator.often("pressure", 88)) or "preemption" in needs:
            settings, stage = _under_pressure(settings, stage, draw)
        # A model with a draft layer drafts.
        has_sessions = draw.chance(generator.often("cases with sessions", 32)) and not needs
        if (has_sessions or "sessions" in needs) and not settings.geometry.has_draft_layer:
            settings, stage = evolve(settings, drafts_max=0), evolve(stage, asynchronous=False, by_priority=False)
        settings = without_draft_states(settings, draw)
        if not settings.lookahead_tokens:
            if "draft-model" in needs:
                settings = evolve(settings, drafts_max=max(1, settings.drafts_max), draft_model=True)
            elif settings.drafts_max:
                settings = evolve(settings, draft_model=draw.chance(50))
        return self.case(*self.with_options(settings, stage, draw, {need.replace("-", "_") for need in needs}))

    def keeps_nothing(self, geometry: Geometry) -> bool:
        """Whether a model with the layers of this one may attend within a step: all layers are alike."""
        return len(geometry.groups) == 1 and geometry.groups[0].keeps_all and not geometry.has_draft_layer

    def encoder_only(self, settings: Settings, draw: Draw) -> Case:
        """A model whose layers attend within a step: nothing is kept, and a prompt is computed in one step."""
        least = settings.tokens_max * draw.integer(100, 300) // 100
        scratch_first = settings.scratch_first
        settings = Settings(Geometry(()), 1, settings.tokens_max, least, settings.requests_max, caches=False)
        # A release that has it has it with every model.
        settings = evolve(settings, scratch_first=scratch_first)
        stage = Stage(
            running_max=draw.integer(1, settings.requests_max),
            by_priority=draw.chance(40),
            adapters_max=draw.integer(1, 2) if draw.chance(40) else None,
            options=Options(whole_prompts=True, without_ends=draw.chance(20), without_statistics=draw.chance(20)),
        )
        return self.case(settings, (), stage)

    def with_options(
        self, settings: Settings, stage: Stage, draw: Draw, needs: Collection[str]
    ) -> tuple[Settings, tuple[()], Stage]:
        """With some of the options that the stage can have, and with those that are needed."""
        chosen = [name for name, option in OPTIONS.items() if draw.chance(option.percent) or name in needs]
        if "whole_items" in chosen and stage.encoder_budget is not None:
            stage = evolve(stage, long_prefill_tokens=None)
        for name in chosen:
            # Experts end the engine of hybrid models (finding 056), and are wrong for tokens that were loaded (070).
            is_wrong = name == "returns_experts" and (len(settings.geometry.groups) > 1 or stage.connector)
            if OPTIONS[name].needs(settings.geometry, stage) and not is_wrong:
                stage = evolve(stage, options=evolve(stage.options, **{name: True}))
        if stage.options.whole_prompts:
            # A whole number of blocks: so some prompts take exactly what is left.
            grain = settings.geometry.grain_tokens
            settings = evolve(
                settings, chunk_tokens=max(settings.chunk_tokens, -(-settings.tokens_max // grain) * grain)
            )
        if stage.options.whole_items:
            # With a draft layer, an item needs a step that is a token longer (finding 068).
            least = min(stage.encoder_budget or 0, stage.encoder_cache) + stage.running_max
            is_tight = draw.chance(70) and not stage.options.whole_prompts
            settings = evolve(settings, chunk_tokens=least if is_tight else max(settings.chunk_tokens, least))
        return settings, (), stage

    def weights(self, generator: Generator) -> Mapping[type, int]:
        del generator
        return {
            **{Serve: 25, Step: 70, Transferred: 14, Collect: 10, Abort: 3, GrammarReady: 2},
            **{ResetCache: 2, ResetEncoder: 3, Continue: 15, Close: 2, PauseEngine: 1},
        }

    def is_possible(self, kind: type, case: Case) -> bool:
        stage, sessions = case.stage, _has_sessions(case)
        possible: Mapping[type, bool] = {
            **{
                Transferred: stage.connector,
                Collect: stage.asynchronous,
                ResetEncoder: stage.encoder_budget is not None,
            },
            **{Continue: sessions, Close: sessions},
        }
        return possible.get(kind, True)

    def operations_in(self, generator: Generator) -> int:
        del generator
        return STEPS

    def that_fits(self, case: Case) -> Case:
        """The case with steps in the place of requests that could never run."""
        settings, stage = case.settings, case.stage

        def fits(operation: Operation) -> bool:
            match operation:
                case Serve(arrival=arrival):
                    encodable = encodes(settings, stage, arrival.prompt, arrival.keys.media)
                    return encodable and fits_alone(settings, operation)
                case Continue(prompt=prompt, media=media):
                    return encodes(settings, stage, prompt, media)
            return True

        return evolve(case, operations=tuple(each if fits(each) else Step() for each in case.operations))

    def allowed(self, bench: EngineBench, case: Case) -> Case:
        """The case without requests that could never run: they block the queue (027).

        Where blocks are freed when a step is over, and not when the next one is scheduled, more are held at once.
        """
        from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

        subject = SUBJECTS[bench.subject]
        if subject.release.gate is None:
            case = evolve(case, settings=evolve(case.settings, full_sequence_must_fit=False))
        rules, settings = subject.scheduling, case.settings
        if len(subject.classes) == 1:
            # The release has only a scheduler for synchronous steps.
            steps = (each for each in case.operations if not isinstance(each, Collect))
            case = evolve(case, stage=evolve(case.stage, asynchronous=False), operations=tuple(steps))
        late = case.stage.asynchronous and (rules.frees_late or subject.release.holds_windows)
        if not rules.in_full:
            # Newer configurations reject a step that has no room for a token and all drafts.
            settings = evolve(settings, chunk_tokens=max(settings.chunk_tokens, settings.drafts_max + 1))
            case = evolve(case, settings=settings)
        held = evolve(settings, chunk_tokens=settings.chunk_tokens * case.stage.in_flight_max) if late else settings
        operations = self.that_fits(evolve(case, settings=held)).operations
        caches_states = settings.caches and settings.geometry.keeps_states
        if not rules.connects or (rules.hits_past_states and caches_states):
            case = evolve(case, stage=evolve(case.stage, connector=False))
            operations = tuple(map(alone, operations))
        if not rules.rejects:
            operations = tuple(map(without_rejection, operations))
        if not rules.in_full:
            if not case.settings.geometry.groups:
                # Requests to its model only pool. What a scheduler itself keeps is compared with the size of its pool.
                return evolve(case, operations=(), settings=evolve(settings, blocks=settings.tokens_max))
            case = evolve(case, stage=plain_stage(case.stage), settings=evolve(settings, draft_model=False))
            return evolve(case, operations=tuple(map(plain, operations)))
        return evolve(case, operations=operations)

    # In words, and from outside

    describe = staticmethod(describe_engine)
    describe_stage = staticmethod(describe_stage)

    def prompt_tokens(self, operation: Operation) -> int:
        return operation.prompt_tokens if isinstance(operation, Submit) else 0


def _has_sessions(case: Case) -> bool:
    """Whether sessions are drawn: not with priorities (finding 044), drafts (045) or states that are kept at block ends
    (054). Nor with asynchronous steps, in which a part may end while an answer is in flight (069).
    """
    stage, settings = case.stage, case.settings
    aligned = settings.geometry.state_block_tokens is not None
    return not (stage.asynchronous or stage.by_priority or settings.drafts_max or aligned)


def encodes(settings: Settings, stage: Stage, prompt: Sequence[Run], media: Sequence[Media]) -> bool:
    """Whether the items lie in the prompt, and the encoder can compute and keep each of them."""
    if stage.encoder_budget is None:
        return not media
    longest = min(stage.encoder_budget, stage.encoder_cache)
    end = min(sum(run.length for run in prompt), settings.tokens_max - 1)
    return all(item.length_tokens <= longest and item.offset_tokens + item.length_tokens <= end for item in media)


def plain(operation: Operation) -> Operation:
    """A request without what only vLLM 0.20.2 was tried with: adapters, items, pooling, embeddings, sessions."""
    if not isinstance(operation, Serve):
        return operation
    arrival = plain_arrival(operation.arrival)
    return evolve(operation, arrival=arrival, answers_min=0, pools=False, embedded=False, resumable=False)


def alone(operation: Operation) -> Operation:
    """A request without other nodes."""
    if not isinstance(operation, Serve):
        return operation
    operation = evolve(operation, external_tokens=0, loads=False, sends=False, undecided=0, offered_again=False)
    return evolve(operation, fails_from_block=None)


def without_rejection(operation: Operation) -> Operation:
    """A request without a grammar that rejects what was sampled."""
    return evolve(operation, grammar_answers=None) if isinstance(operation, Serve) else operation


def plain_arrival(arrival: Arrive) -> Arrive:
    """A request's prompt without adapter and items."""
    return evolve(arrival, keys=evolve(arrival.keys, lora=None, lora_version=0, media=()))


def plain_stage(stage: Stage) -> Stage:
    """A stage without what only vLLM 0.20.2 was tried with."""
    return evolve(stage, adapters_max=None, encoder_budget=None, options=Options())


SCHEDULER = SchedulerLevel()


# Generating


def with_whole_chunks(settings: Settings) -> Settings:
    """With what states at block ends need: vLLM keeps them for prefix caching alone, and a chunk that is shorter than a
    block is not a chunk (029)."""
    if settings.geometry.state_block_tokens is None:
        return settings
    chunk_tokens = max(settings.chunk_tokens, settings.geometry.state_block_tokens)
    return evolve(settings, caches=True, chunk_tokens=chunk_tokens)


def without_draft_states(settings: Settings, draw: Draw) -> Settings:
    """Without states for drafts in half of the cases without drafts: vLLM keeps room for them where there are any."""
    if not settings.geometry.keeps_states or settings.drafts_max or not draw.chance(50):
        return settings
    groups = tuple(evolve(each, draft_states=0) if each.keeps_states else each for each in settings.geometry.groups)
    return evolve(settings, geometry=evolve(settings.geometry, groups=groups))


def _stage(generator: Generator, settings: Settings, draw: Draw) -> Stage:
    aligned = settings.geometry.state_block_tokens is not None
    copies = any(group.copies for group in settings.geometry.groups)
    hashes = settings.geometry.hashed_ahead_tokens > 0
    asynchronous = draw.chance(60)
    # Where chunks end at blocks of states, less than what there is room for may be no chunk at all (029).
    encodes = draw.chance(55) and not aligned
    stage = Stage(
        running_max=min(draw.integer(1, settings.requests_max), settings.chunk_tokens),
        asynchronous=asynchronous,
        by_priority=draw.chance(40),
        # vLLM asserts that it is absent if states are kept at block ends, and the plug-in if blocks are copied. With
        # it, hashes cover their blocks only.
        connector=draw.chance(80 if recovers(settings) else 60) and not (aligned or copies or hashes),
        failed_loads_end=draw.chance(30),
        long_prefill_tokens=generator.budget(draw) if draw.chance(20) and not aligned else None,
        adapters_max=draw.integer(1, 2) if draw.chance(40) else None,
    )
    return with_encoder(stage, settings, draw) if encodes else stage


def _under_pressure(settings: Settings, stage: Stage, draw: Draw) -> tuple[Settings, Stage]:
    """With a pool that one long request fills, and several that grow in it: they are preempted for each other."""
    running_max = draw.integer(4, 8)
    if settings.geometry.state_block_tokens is None:
        # Several prompts are computed at once, and none of them is known to be long when it is admitted.
        prefill_tokens = settings.geometry.grain_tokens * draw.integer(1, 2)
        settings = evolve(settings, chunk_tokens=draw.integer(2, running_max) * prefill_tokens)
        stage = evolve(stage, long_prefill_tokens=prefill_tokens)
    needed = blocks_to_run(settings, settings.tokens_max - 1)
    settings = evolve(
        settings,
        blocks=1 + needed * draw.integer(100, 140) // 100,
        requests_max=max(settings.requests_max, running_max),
        full_sequence_must_fit=False,
    )
    return settings, evolve(stage, running_max=min(running_max, settings.chunk_tokens))


def with_encoder(stage: Stage, settings: Settings, draw: Draw) -> Stage:
    """With room for the longest item; and now and then for more than the budget allows in one step."""
    longest = 2 * settings.geometry.grain_tokens
    return evolve(
        stage,
        encoder_budget=draw.integer(longest, longest + 8),
        encoder_cache=draw.integer(longest, 2 * longest + 8),
    )


def _submission(generator: Generator, case: Case, draw: Draw) -> Serve:
    settings, stage = case.settings, case.stage
    arrival = generator.arrival(draw)
    resumable = _has_sessions(case) and draw.chance(generator.often("sessions", 30))
    if resumable:
        # A session has room for further parts.
        arrival = evolve(arrival, prompt=cut(arrival.prompt, draw.integer(1, generator.prompt_max // 3)))
    arrival = with_keys(generator, stage, arrival, draw)
    # By default vLLM pools without asynchronous steps. Its events of an embedded prompt name no tokens (finding 067).
    pools = (draw.chance(generator.often("pooling", 8)) and not stage.asynchronous) or not settings.geometry.groups
    ahead = stage.asynchronous and settings.drafts_max
    serve = Serve(
        arrival,
        answers_max=1 if pools else draw.integer(1, generator.often("answers", ANSWERS_MAX, is_optional=False)),
        priority=draw.integer(0, 2) if stage.by_priority else 0,
        structured=draw.chance(generator.often("grammars", 50 if ahead else 10)) and not pools,
        pools=pools,
        embedded=draw.chance(generator.often("embeddings", 10)) and not settings.tells_events,
    )
    if serve.structured and draw.chance(30):
        serve = evolve(serve, grammar_answers=draw.integer(0, serve.answers_max))
    if resumable and not (pools or serve.embedded):
        serve = evolve(serve, resumable=True, answers_max=min(serve.answers_max, PART_ANSWERS_MAX))
    serve = evolve(serve, answers_min=shortest_answers(generator, settings, serve, draw))
    if not stage.connector:
        return serve
    fails = draw.chance(generator.often("failed loads", 50)) and recovers(settings)
    loads = draw.chance(generator.often("loads", 60))
    if stage.asynchronous and not (loads or stage.failed_loads_end):
        # Mostly the run ends with it (062).
        fails = fails and draw.chance(20)
    return evolve(
        serve,
        external_tokens=generator.budget(draw) if draw.chance(generator.often("external tokens", 75)) else 0,
        loads=loads,
        sends=draw.chance(generator.often("sends", 30)),
        offered_again=draw.chance(50),
        undecided=draw.integer(1, 3) if draw.chance(generator.often("undecided", 10)) else 0,
        fails_from_block=draw.integer(0, 3) if fails else None,
    )


def _part(generator: Generator, stage: Stage, draw: Draw) -> Continue:
    request = generator.request(draw)
    prompt = cut(generator.arrival(draw).prompt, draw.integer(1, generator.prompt_max // 4))
    return Continue(request, prompt, _items(generator, stage, prompt, draw))


def shortest_answers(generator: Generator, settings: Settings, serve: Serve, draw: Draw) -> int:
    """How many answers a request must have: as many as it can have at most, and mostly none."""
    if not draw.chance(generator.often("shortest answers", 15)) or serve.pools:
        return 0
    return draw.integer(0, max(0, min(serve.answers_max, settings.tokens_max - serve.prompt_tokens)))


def with_keys(generator: Generator, stage: Stage, arrival: Arrive, draw: Draw) -> Arrive:
    """With an adapter and items, where the stage has room for any."""
    adapters = stage.adapters_max is not None and draw.chance(generator.often("adapters", 50))
    number = draw.integer(0, 3) if adapters else None
    # Of the last name there are two.
    lora, version = (None, 0) if number is None else (f"adapter-{min(number, 2)}", number // 3)
    media = _items(generator, stage, arrival.prompt, draw)
    return evolve(arrival, keys=Keys(arrival.keys.salt, lora, media, version))


def _items(generator: Generator, stage: Stage, prompt: Sequence[Run], draw: Draw) -> tuple[Media, ...]:
    """Items of a prompt, where the stage has an encoder."""
    encodes = stage.encoder_budget is not None and draw.chance(generator.often("items", 75))
    return _media(generator, sum(run.length for run in prompt), draw) if encodes else ()


def _media(generator: Generator, tokens: int, draw: Draw) -> tuple[Media, ...]:
    """Items in one of the layouts; or long ones next to each other, of which a step's budget has room for one.

    The latter are rarer with a draft layer: often no step after the first item computes anything (035, 060).
    """
    longest = 2 * generator.geometry.grain_tokens
    if draw.chance(90 if generator.geometry.has_draft_layer else 60):
        return generator.media(draw, tokens)
    starts = range(0, min(tokens - longest + 1, 3 * longest), longest)
    return tuple(Media(f"image-{longest}-{draw.integer(0, 1)}", start, longest) for start in starts)


def recovers(settings: Settings) -> bool:
    """Whether vLLM 0.20.2 continues after a load that failed.

    It looks for the blocks in models with one group only (026), and where a window was left, those before it are not
    there (034).
    """
    groups = settings.geometry.groups
    return len(groups) == 1 and groups[0].keeps_all


def fits_alone(settings: Settings, submit: Serve) -> bool:
    """Whether a request could run to its end alone: vLLM admits others too, and they never end.

    They do not fit, which blocks the queue (027), or not all the answers that they must have fit (053).
    """
    tokens = min(submit.prompt_tokens + submit.answers_max, settings.tokens_max)
    return (
        submit.prompt_tokens + submit.answers_min <= tokens
        and blocks_to_run(settings, tokens - 1) <= settings.blocks - 1
    )


def draw_replies(generator: Generator, draw: Draw, ends_percent: int = 3) -> tuple[Reply, ...]:
    """What the model answers in one step."""
    return tuple(_reply(generator, draw, ends_percent) for _ in range(draw.integer(1, 3)))


def _reply(generator: Generator, draw: Draw, ends_percent: int) -> Reply:
    sample = generator.sample(draw)
    return Reply(sample.accepted, sample.token, sample.drafts, ends=draw.chance(generator.often("ends", ends_percent)))
