"""The arm ``release``: the reference with what a release of vLLM decides by design, and with its findings."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kvgate.adapters.registry import RETENTION_RELEASES
from kvgate.adapters.release_variants import PADDING
from kvgate.adapters.releases import INSTALLED, release_described
from kvgate.adapters.releases.description import Release, SchedulerRules
from kvgate.adapters.retention import needs_plug_in
from kvgate.findings.f037_fewer_drafts_end_the_process import FINDING as FEWER_DRAFTS
from kvgate.findings.modelled import Modelled, reference_of_release
from kvgate.kernel.errors import UsageError
from kvgate.levels.scheduler.chunks import tokens_to_a_state
from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.reference import CountingManager, EngineEndedError, ReferenceRun, WatchedScheduler
from kvgate.simulation.result import Result
from kvreference.answers import Hit
from kvreference.mamba import StateMode
from kvreference.operations import Admit, LookUp, Schedule
from kvreference.population import Request, Status
from kvreference.prefix_cache import PrefixCache, junction_of
from kvreference.scheduler.operations import Reply


def served_by(setting: Setting) -> tuple[Release, bool]:
    """The release of a setting, and whether it needs the plug-in for the policy.

    Raises:
        UsageError: the version is not known, or it cannot have the policy.
    """
    release, settings = release_described(setting.serving.version), setting.settings
    interval = settings.retention_interval_tokens
    is_sparse = interval is not None and interval != settings.geometry.alignment_tokens
    try:
        if release.pins_junctions and is_sparse and not settings.keeps_junctions:
            raise ValueError(f"junctions left out: vLLM {release.version} always keeps them (+junctions)")
        if not release.keeps_all_states and any(each.states is StateMode.ALL for each in settings.geometry.groups):
            raise ValueError(f"all states kept: vLLM {release.version} keeps those at block ends, or none")
        has_plug_in = needs_plug_in(release, settings)
        if has_plug_in and system_of(release, True) not in ("retention", *RETENTION_RELEASES):
            raise ValueError(f"the plug-in does not run on vLLM {release.version}, which has no such policy itself")
        return release, has_plug_in
    except ValueError as error:
        raise UsageError(f"policy {setting.policy.name!r}: {error}") from error


def not_simulated(setting: Setting) -> Iterator[str]:
    """What a release decides and the arm ``release`` does not simulate."""
    release = release_described(setting.serving.version)
    if release.scheduler is None:
        yield (
            f"vLLM {release.version}: its scheduler is not described; what it decides differently from that of vLLM "
            f"{INSTALLED.version} is not simulated"
        )


def system_of(release: Release, has_plug_in: bool) -> str:
    """Its name, as for ``kvgate check --sut``."""
    if release is INSTALLED:
        return "retention" if has_plug_in else "stock"
    return f"retention@{release.version}" if has_plug_in else release.name


class ReleasedScheduler(WatchedScheduler):
    """The reference's scheduler, with what the release's decides differently: where a chunk ends if states are kept at
    block ends, and whether an admitted request with one token left gets rows for drafts that were not proposed."""

    run: ReleaseRun

    def __init__(self, run: ReleaseRun) -> None:
        super().__init__(run)
        self._has_states = self.settings.geometry.state_block_tokens is not None
        self._prefilling: set[int] = set()
        """The requests of which the last step left a part of what was known uncomputed."""
        self._running_served = self._prefill_served = False
        """Whether this step serves a request that ran before, and one of them with more of its prompt."""

    def _step(self, replies: tuple[Reply, ...]) -> tuple[int, ...]:
        self._running_served = self._prefill_served = False
        return super()._step(replies)

    def _compute(self, operation: Admit | Schedule) -> int | None:
        request = self.manager.population[operation.request]
        if isinstance(operation, Admit):
            tokens = self._admit(operation, request)
        else:
            budget = self._chunk(request, request.tokens_computed, operation.tokens)
            self._end_with_fewer_drafts(request, request.tokens_computed + budget)
            tokens = super()._compute(evolve(operation, tokens=budget)) if budget else 0
            if tokens:
                self._running_served = True
                self._prefill_served |= request.number in self._prefilling
        if tokens:
            is_left = request.tokens_computed < len(request.tokens)
            (self._prefilling.add if is_left else self._prefilling.discard)(request.number)
        return tokens

    def _end_with_fewer_drafts(self, request: Request, end: int) -> None:
        """Finding 037: a step that needs fewer states than the request holds ends the process, if it has any tokens."""
        if not self.run.ends_with_fewer_drafts or end == request.tokens_computed:
            return
        for group, table in zip(self.settings.geometry.groups, self.manager.tables[request.number], strict=True):
            needed = group.entries(end, end)
            if group.attention.stops_at_block_ends and needed < len(table.blocks):
                self.run.known.times[FEWER_DRAFTS.id] = 1
                held = f"request {request.number} holds {len(table.blocks)} blocks of states and needs {needed}"
                raise EngineEndedError(f"{held} (finding {FEWER_DRAFTS.id})")

    def _admit(self, operation: Admit, request: Request) -> int | None:
        rules = self.run.scheduling
        padded = self.settings.drafts_max if rules.pads_drafts else 0
        if not padded and not self._has_states:
            return super()._compute(operation)
        cache = self.manager.cache
        before = cache.statistics
        hit = self._perform(LookUp(request.number))
        assert isinstance(hit, Hit)
        start = request.tokens_computed + hit.tokens
        one_left = len(request.tokens) - start == 1 and not self._prefill_served
        pads = padded > 0 and one_left
        if rules.pads_next_to_others:
            pads = pads and self._running_served
            has_room = start + 1 + padded <= self.settings.tokens_max
        else:
            pads = pads and start + 1 + padded < self.settings.tokens_max and (self._running_served or start > 0)
            has_room = True
        waits = pads and (1 + padded > operation.tokens or not has_room)
        budget = 0 if waits else self._chunk(request, start, operation.tokens)
        if not budget:
            # It was looked up, and waits for a step with more room.
            self.run.ledger.entries[request.number].look_ups += 1
            return None
        cache.statistics = before
        if pads:
            request.drafts = [PADDING] * padded
            if self._chunk(request, start, operation.tokens) <= padded:
                request.drafts = []
        tokens = super()._compute(evolve(operation, tokens=operation.tokens if pads else budget))
        if tokens is None:
            request.drafts = []
        return tokens

    def _chunk(self, request: Request, start: int, budget: int) -> int:
        """How many tokens of a request a step computes from ``start`` on, of at most ``budget``."""
        settings, block = self.settings, self.settings.geometry.state_block_tokens
        if block is None:
            return budget
        tokens = min(len(request.tokens) + len(request.drafts) - start, budget, settings.chunk_tokens)
        if request.status is Status.RUNNING:
            tokens = min(tokens, settings.tokens_max - 1 - start)
        is_drafted = settings.drafts_max > 0 and settings.geometry.lookahead_tokens > 0
        if self.run.scheduling.stops_at_junctions:
            last = len(request.tokens) - (self.run.scheduling.stops_at_usable_ends and not is_drafted)
            last_state = (last // block - is_drafted) * block
            return _tokens_to_a_stop(request, start, tokens, block, last_state, settings.chunk_tokens)
        return tokens_to_a_state(request, start, tokens, block, is_drafted)


def _tokens_to_a_stop(request: Request, start: int, tokens: int, block: int, last_state: int, most: int) -> int:
    """How many of ``tokens`` more a step computes from ``start`` on: up to the next block's end from inside a block, to
    the last state that is kept, or to the block in which the prompt parts from what is cached.

    Before the prompt's end a chunk ends where a block does, if a step that computes ``most`` tokens can hold a block.
    """
    end = start + tokens
    prompt_end = max(request.prompt_tokens, len(request.tokens) - 1)
    if start >= prompt_end:
        return tokens
    if end < prompt_end and (end // block * block > start or block <= most):
        end = end // block * block
    parts = request.junction_tokens
    junction = start + (parts - start) // block * block if start < parts < end else 0
    stops = (last_state, junction, -(-start // block) * block)
    return max(0, min((stop for stop in stops if start < stop < end), default=end) - start)


class ReleaseRun(ReferenceRun):
    """One simulation."""

    known: Modelled

    @property
    def ends_with_fewer_drafts(self) -> bool:
        """Whether the release has finding 037, and it can act."""
        has_it = FEWER_DRAFTS.id in release_described(self.setting.serving.version).findings
        return has_it and FEWER_DRAFTS.where(self.setting.settings)

    @property
    def scheduling(self) -> SchedulerRules:
        """How the release's scheduler differs; where it is not described, that of vLLM 0.20.2."""
        described = release_described(self.setting.serving.version)
        rules = INSTALLED.scheduler if described.scheduler is None else described.scheduler
        assert rules is not None, "the scheduler of the release that the gate is for is described"
        return rules

    def new_scheduler(self) -> WatchedScheduler:
        return ReleasedScheduler(self)

    def new_manager(self) -> CountingManager:
        release, has_plug_in = served_by(self.setting)
        settings = self.setting.settings
        manager, self.known = reference_of_release(release, settings, has_plug_in, True, CountingManager)
        stops = self.scheduling.stops_at_junctions and settings.geometry.state_block_tokens is not None
        if stops and isinstance(manager.cache, PrefixCache):
            # Chunks end there, whether or not it decides what stays cached.
            manager.cache.junction_of = junction_of
        return manager


class ReleaseArm:
    """The reference, as the release is."""

    name = "release"

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        release, has_plug_in = served_by(setting)
        run = ReleaseRun(setting, self.name)
        run.ledger.system = system_of(release, has_plug_in)
        found = run.finish(progress)
        return evolve(found, choices=release.choices, findings=tuple(sorted(run.known.times.items())))


def arm() -> ReleaseArm:
    """What ``--arm release`` serves with."""
    return ReleaseArm()
