"""What the tests of shadows share: vLLM's own scheduler serving generated requests, with a worker that
computes nothing.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from inspect import signature
from typing import Any
from unittest.mock import patch

from attrs import define, field
from msgspec.structs import replace

from kvgate.adapters.releases import INSTALLED, VLLM_VERSION
from kvgate.adapters.releases.description import Release
from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.models import load
from kvgate.levels.scheduler.adapter.arrivals import new_request
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.adapter.worker import abort, answer, drafts
from kvgate.levels.scheduler.engine import Stop
from kvgate.levels.scheduler.level import SCHEDULER, SchedulerLevel
from kvgate.levels.scheduler.operations import Options, Stage
from kvgate.shadow.adapter.geometry import counts_in_flight, settings_of, system_of
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.calls import After, Allocated, Decoding, Published, Raw, Stalls, Step, Stored, expanded
from kvgate.shadow.salting import Salting
from kvgate.shadow.sampling import Sampling
from kvgate.shadow.shadow_checker import Finding, ShadowChecker
from kvgate.shadow.sink_protocol import Passive
from kvreference.content import Keys
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Submit
from kvreference.settings import Settings

PRESETS = ("legal", "hostile", "long", "tiny")


class Server:
    """An engine without a model: its requests follow from the seed."""

    def __init__(
        self,
        model: str,
        *,
        asynchronous: bool = False,
        blocks: int = 60,
        drafts_max: int = 0,
        seed: int = 0,
        system: str = "",
        connector: bool = False,
    ) -> None:
        known = load(model)
        settings = Settings(known.geometry, blocks, tokens_max=512, chunk_tokens=64, drafts_max=drafts_max)
        self.settings = known.features.applied_to(settings)
        self.asynchronous = asynchronous
        subject = SUBJECTS[system or ("stock" if self.settings.retention_interval_tokens is None else "retention")]
        subject.install()
        with subject.while_built(self.settings):
            options = Options(one_group_connector=connector)
            stage = Stage(asynchronous=asynchronous, connector=connector, options=options)
            self.scheduler: Any = subject.build(self.settings, stage)
        # Of newer releases, an engine says whether prefills are throttled.
        self._as_an_engine_calls = (False,) if len(signature(type(self.scheduler).schedule).parameters) > 1 else ()
        self.random = random.Random(seed)
        self.answered = 0
        """How many tokens the clients got."""
        self._arrived = 0
        self._in_flight: deque[tuple[Any, set[str]]] = deque()

    def serve(self, steps: int) -> None:
        """Take steps, while requests come and go."""
        for _ in range(steps):
            self._clients()
            self.step()

    def _clients(self) -> None:
        draw = self.random
        if draw.random() < 0.4 and len(self.scheduler.requests) < 8:
            family = Run(draw.randrange(4) * 1000, draw.choice((32, 128, draw.randrange(1, 200))))
            own = Run(5000 + self._arrived * 50, draw.randrange(1, 40))
            prompt = (family, own) if draw.random() < 0.7 else (family,)
            keys = Keys(salt=draw.choice((None, None, None, "other")))
            arrival = Arrive(self._arrived, prompt, keys, reads_cache=draw.random() < 0.95)
            self.scheduler.add_request(new_request(self.settings, Submit(arrival, draw.randrange(1, 40))))
            self._arrived += 1
        if draw.random() < 0.03 and self.scheduler.requests:
            abort(self.scheduler, [number_in(draw.choice(list(self.scheduler.requests)))])
        if draw.random() < 0.02:
            self.scheduler.reset_prefix_cache()

    def step(self) -> None:
        """One step, and what it answers: of the step before, where steps are asynchronous."""
        output = self.scheduler.schedule(*self._as_an_engine_calls)
        begun = {name for name in output.num_scheduled_tokens if self.scheduler.requests[name].is_prefill_chunk}
        self._in_flight.append((output, begun))
        if len(self._in_flight) > self.asynchronous:
            self._collect(*self._in_flight.popleft())

    def _collect(self, output: Any, begun: set[str]) -> None:
        names = list(output.num_scheduled_tokens)
        drawn = {number_in(name): self._sampled(name, output) for name in names if name not in begun}
        sampled = {number: tokens for number, tokens in drawn.items() if tokens}
        self.answered += sum(map(len, sampled.values()))
        self.scheduler.update_from_output(output, self.output_of(names, sampled, output))
        if self.settings.drafts_max and not self.asynchronous:
            most = self.settings.drafts_max
            proposed = {number_in(name): self._tokens(self.random.randrange(most + 1)) for name in names}
            self.scheduler.update_draft_token_ids(drafts(proposed))

    def output_of(self, names: list[str], sampled: dict[int, list[int]], output: Any) -> Any:
        """The worker's output for a step."""
        del output
        return answer(names, sampled)

    def _sampled(self, name: str, output: Any) -> list[int]:
        request = self.scheduler.requests.get(name)
        if request is None or request.is_finished() or (self.asynchronous and not request.num_output_placeholders):
            return []
        proposed = output.scheduled_spec_decode_tokens.get(name, ())
        return self._tokens(1 + (self.random.randrange(len(proposed) + 1) if proposed else 0))

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(100) for _ in range(count)]


@define
class Kept(Passive):
    """A sink that keeps what it is sent."""

    settings: Settings
    is_immediate: bool
    lost: int = 0
    raw: list[Raw] = field(factory=list)

    def ready(self) -> bool:
        return True

    def send(self, records: Sequence[Raw]) -> None:
        self.raw += records

    def stored(self) -> list[Stored]:
        """The records as they are stored, with a salt that is known."""
        return list(expanded(Salting.of(self.settings, "stock", VLLM_VERSION, b"known").salted(self.raw)))

    def comparable(self) -> list[object]:
        """The same without times, and without vLLM's own hashes, which are others for each scheduler."""
        return [
            [(run.kind, run.group, len(run.hashes)) for run in each.runs] if isinstance(each, Published) else each
            for each in self.stored()
            if not isinstance(each, Step)
        ]

    def is_as(self, each_call: Kept) -> bool:
        """Whether this says the same as a sink that was sent each call, but for windows that were not read here.

        They need not be read in a call in which no block becomes free: only shared blocks can have left a window.
        """
        ours, theirs, free = self.comparable(), each_call.comparable(), -1
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if isinstance(one, Allocated) and isinstance(other, Allocated) and other.given is not None:
                freed_none = other.after.free + sum(map(len, other.given)) == free
                theirs[index] = replace(other, nulls=None) if one.nulls is None and freed_none else other
            free = getattr(other, "after", After(free, 0, ())).free
        return ours == theirs

    def fail(self, error: BaseException) -> None:
        """The shadow failed: so does the test."""
        raise error


@define
class Beneath:
    """A sink in the same process, which checks at once and raises nothing."""

    settings: Settings
    system: str = "stock"
    version: str = VLLM_VERSION
    lost: int = 0
    is_immediate: bool = False
    is_ready: bool = True
    asks: bool = False
    connector: str = ""
    """The kind of the scheduler's connector."""
    found: list[Finding] = field(factory=list)
    stalls: list[Stalls] = field(factory=list)
    together: int = 0
    """How many calls were passed on together."""
    loaded: int = 0
    """How many requests got blocks for what other nodes provide."""
    salting: Salting = field(init=False)
    judge: ShadowChecker = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.salting = Salting.of(self.settings, self.system, self.version)
        self.judge = ShadowChecker(self.settings, self.system, self.version)

    def ready(self) -> bool:
        return self.is_ready

    def wants_checkpoint(self) -> bool:
        return self.asks

    def report_stalls(self, stalls: Stalls) -> None:
        self.stalls.append(stalls)

    def send(self, records: Sequence[Raw]) -> None:
        self.together += sum(len(each.numbers) for each in records if isinstance(each, Decoding))
        for record in expanded(self.salting.salted(records)):
            if isinstance(record, Allocated) and record.given is not None:
                self.loaded += record.external_tokens > 0
            self.found += self.judge.follow(record)


def watched(
    server: Any,
    *,
    checkpoint_calls: int = 200,
    sampling: Sampling | None = None,
    release: Release = INSTALLED,
) -> Beneath:
    """Attach a shadow to a scheduler that checks at once; errors in the shadow are raised."""
    scheduler, settings = server.scheduler, settings_of(server.scheduler, release)
    sink = Beneath(settings, system_of(scheduler, release), release.version)
    sink.connector = type(scheduler.connector).__name__
    Observer(
        scheduler,
        sink,
        _raise,
        checkpoint_calls=checkpoint_calls,
        share_of_time=0,
        sampling=sampling,
        counts_in_flight=counts_in_flight(release, settings.geometry),
    )
    return sink


def connected(
    system: str, models: Sequence[str], seeds: Iterable[int], release: Release = INSTALLED, checkpoint_calls: int = 100
) -> tuple[list[Beneath], Counter[str]]:
    """The shadows of some cases of the scheduler level with a connector, and why others have none.

    Its nodes offer blocks at once and later, fail, and read.
    """
    shadows, refused = list[Beneath](), Counter[str]()
    original = SchedulerLevel.world

    def world(level: SchedulerLevel, *arguments: Any) -> Any:
        engine = original(level, *arguments)
        try:
            shadows.append(watched(engine, checkpoint_calls=checkpoint_calls, release=release))
        except ValueError as error:
            refused[str(error)] += 1
        return engine

    with patch.object(SchedulerLevel, "world", world):
        trials = Trials(SCHEDULER.bench_named(system, SCHEDULER.monitors)).towards(("transfers",))
        for model in models:
            for seed in seeds:
                trials.trial(Lane(load(model), PRESETS[seed % len(PRESETS)]), str(seed), 0)
    for each in shadows:
        # The gate ends a case with an exception, within a call of the scheduler.
        each.found = [found for found in each.found if getattr(found.record, "error", "") != Stop.__name__]
    return shadows, refused


def _raise(error: BaseException) -> None:
    raise error
