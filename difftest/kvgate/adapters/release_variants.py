"""The reference for a release: with what the release, and its scheduler, decide differently by design.

No difference here is a defect: each is a choice that is as good as the reference's, or a promise that the release no
longer makes. The comparison stays exact; it compares with a reference that has made the same choices. A fault is never
a choice: that is a finding (``kvgate.findings``), and its fault is injected into the reference with the choices of the
release.

Where a scheduler only asks for more (blocks that stay free for other requests), the reference gets the number; whether
that number is enough is for the progress monitor to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from attrs import evolve

from kvgate.adapters.releases import ASCEND, INSTALLED, RELEASES
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS
from kvgate.adapters.releases.description import Release, SchedulerRules
from kvgate.kernel.protocol import System
from kvreference.admission import blocks_to_come_with
from kvreference.ahead import tokens_answered, tokens_unsure
from kvreference.answers import Answer, Granted
from kvreference.block_pool import BlockPool
from kvreference.caching import due_tokens, tokens_looked_at
from kvreference.choices import Choices
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.geometry import Geometry, Group
from kvreference.holdings import Holdings, freed_late
from kvreference.manager import OWN, Manager
from kvreference.operations import Admit, LookUp, Operation
from kvreference.population import Request, tokens_served, tokens_to_a_state
from kvreference.prefix_cache import NoPrefixCache, PrefixCache, new_cache
from kvreference.retention import Dense, Retention, Sparse, junction
from kvreference.rules import OWN_RULES, Delta, Rules
from kvreference.settings import Settings
from kvreference.tables import Table, Tables

NewReference: TypeAlias = Callable[[Settings], Manager]
"""Builds the reference that a system is compared with."""
PADDING = -1
"""A draft that no drafter proposed: it makes a request compute as many tokens as the others, and is always rejected."""


# Which blocks are free, and in which order


class ForgottenInPlace(ScratchFirstQueue):
    """Scratch goes to the front when it is released; a block whose content is forgotten later stays in its place."""

    def turned_scratch(self, block: int) -> None:
        """It stays."""


class ScratchFirst(Holdings):
    """Scratch goes to the front of the free queue, of any group, and without prefix caching too."""

    def __init__(self, settings: Settings, rules: Rules = OWN_RULES) -> None:
        super().__init__(settings, rules)
        self.pool.free = ForgottenInPlace(range(1, settings.blocks))


class KnownStates(ScratchFirst):
    """A state is given back by the tokens that hold, not as if all drafts that there can be were rejected."""

    def blocks_dead(self, group: Group, computed: int) -> int:
        return super().blocks_dead(group, computed + group.draft_states)


class ScratchFirstOfCaches(KnownStates):
    """Without prefix caching everything is queued in the order of release."""

    def __init__(self, settings: Settings, rules: Rules = OWN_RULES) -> None:
        super().__init__(settings, rules)
        if not settings.caches:
            self.pool.free = FreeQueue(self.pool.free)


class ScratchFirstOfWindows(ScratchFirst):
    """When a request ends, its table in a group without a window is released in order, cached or not."""

    def free(self, tables: Tables) -> None:
        for group, table in zip(self.groups, tables, strict=False):
            end = self.pool.end if group.slides else partial(_end_in_order, self.pool)
            end(table.blocks[::-1])


def _end_in_order(pool: BlockPool, blocks: Sequence[int]) -> None:
    queue = pool.free
    pool.free = FreeQueue(queue)
    pool.end(blocks)
    pool.free = type(queue)(pool.free)


# What is cached, and what is found


def drops_look_ahead(geometry: Geometry, group: Group) -> bool:
    """Whether a group is taken to have a draft layer: if all others have, a group of states is, too."""
    everywhere = all(each.lookahead or each.keeps_states for each in geometry.groups)
    return group.lookahead or (group.keeps_states and everywhere and geometry.lookahead_tokens > 0)


class WhenFull:
    """What an admitted boundary reads is cached at the first multiple of the alignment, and not at that boundary.

    Until that boundary no hit can use it, and no hit is wrong.
    """

    def __init__(self, geometry: Geometry, interval_tokens: int, keeps_extension: bool) -> None:
        self.geometry = geometry
        self.admitted = Sparse(geometry, interval_tokens)
        self.masked = Sparse(geometry, geometry.alignment_tokens)
        self.keeps_extension = keeps_extension
        """Whether with a draft layer further boundaries are kept: where prompts end with an alignment, that of a longer
        one; and the one a block before a junction."""
        self.junction_tokens = 0
        """The junction of the request."""

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        kept = self.admitted.due_tokens(group, index, prompt_tokens) is not None
        if not kept and self.keeps_extension and self.geometry.lookahead_tokens:
            alignment = self.geometry.alignment_tokens
            first, end = group.blocks_needed(max(prompt_tokens // alignment - 1, 0) * alignment)
            kept = first <= index < end
        if not kept and self.keeps_extension and self.junction_tokens and drops_look_ahead(self.geometry, group):
            lower = max(0, self.junction_tokens - group.block_size_tokens)
            first, end = group.blocks_needed(lower // self.geometry.alignment_tokens * self.geometry.alignment_tokens)
            kept = first <= index < end
        return self.masked.due_tokens(group, index, prompt_tokens) if kept else None

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        return self.admitted.boundaries(start_tokens, end_tokens, prompt_tokens)

    def at_junction(self, junction_tokens: int) -> WhenFull:
        other = WhenFull(self.geometry, self.admitted.interval_tokens, self.keeps_extension)
        other.admitted, other.junction_tokens = self.admitted.at_junction(junction_tokens), junction_tokens
        return other


class CountsNothingShared(PrefixCache):
    """No caller asks how many leading blocks all requests share: the answer is none."""

    def shared(self, leading: Sequence[int]) -> tuple[int, ...]:
        return (0,) * len(leading)


class LookAheadAtTheEnd(CountsNothingShared):
    """A look-ahead block may hold the request's last token, which is computed again all the same."""

    def tokens_readable(self, tokens: int) -> int:
        return tokens + 1 if self.geometry.lookahead_tokens else tokens


class CountsShared(NoPrefixCache):
    """What all requests share is counted without prefix caching too."""

    def shared(self, leading: Sequence[int]) -> tuple[int, ...]:
        return tuple(leading)


def _when_full(
    settings: Settings, rules: Rules, kind: type[PrefixCache] = PrefixCache, keeps_extension: bool = False
) -> NoPrefixCache:
    """A cache of ``kind`` that caches blocks when they are full."""
    cache, interval_tokens = new_cache(settings, rules), settings.retention_interval_tokens
    if not isinstance(cache, PrefixCache):
        return cache
    geometry, retention = cache.geometry, cache.retention
    if interval_tokens is not None:
        retention = WhenFull(geometry, interval_tokens, keeps_extension)
    return kind(geometry, retention, cache.partial_hit_tokens_min, rules, cache.junction_of)


def _look_ahead_at_the_end(settings: Settings, rules: Rules) -> NoPrefixCache:
    several = len(settings.geometry.groups) > 1
    return _when_full(settings, rules, LookAheadAtTheEnd if several else CountsNothingShared, keeps_extension=True)


def _counting_shared(settings: Settings, rules: Rules) -> NoPrefixCache:
    return new_cache(settings, rules) if settings.caches else CountsShared(settings.geometry, rules)


# What a scheduler does more


def _as_scheduled(rules: SchedulerRules, padded: Mapping[int, int], manager: Manager, operation: Operation) -> Answer:
    """An operation as a scheduler with these rules asks for it; ``padded`` has its drafts by the operation's number."""
    statistics, drafts = manager.cache.statistics, padded.get(manager.performed, 0)
    if drafts and isinstance(operation, Admit):
        manager.population[operation.request].drafts = [PADDING] * drafts
    answer = manager.perform(operation)
    granted = isinstance(answer, Granted)
    if drafts and isinstance(operation, Admit) and not granted:
        manager.population[operation.request].drafts = []
    if rules.counts_admitted and (isinstance(operation, LookUp) or (isinstance(operation, Admit) and not granted)):
        manager.cache.statistics = statistics
    return answer


def _or_a_token_less(
    rule: Callable[..., int], tokens: int, computed: int, serves: int, block: int, answers: bool
) -> int:
    """If all tokens of an answered request may be computed at once, so may all but the last, which ends the block."""
    if answers and rule(tokens + 1, computed, serves, block, False) == tokens + 1:
        return tokens
    return rule(tokens, computed, serves, block, answers)


def _and_shared(choices: Choices) -> Choices:
    """The same, and in a model with compressed groups what all requests share is counted without prefix caching too."""

    def cache(settings: Settings, rules: Rules) -> NoPrefixCache:
        compressed = any(group.compress_ratio > 1 for group in settings.geometry.groups)
        return (
            CountsShared(settings.geometry, rules)
            if compressed and not settings.caches
            else choices.cache(settings, rules)
        )

    return evolve(choices, cache=cache)


AHEAD_AT_THE_END = "look-ahead-at-the-end"
_OF_RELEASES: Mapping[str, Choices] = {
    "counts-shared": Choices(cache=_counting_shared),
    "scratch-of-windows": Choices(ScratchFirstOfWindows, _when_full, promises_scratch_first=False),
    "scratch-of-windows-alone": Choices(ScratchFirstOfWindows, promises_scratch_first=False),
    "scratch-of-caches": Choices(ScratchFirstOfCaches, _when_full, promises_scratch_first=False),
    "scratch": Choices(KnownStates, _when_full, promises_scratch_first=False),
    AHEAD_AT_THE_END: Choices(KnownStates, _look_ahead_at_the_end, promises_scratch_first=False),
}
CHOICES: Mapping[str, Choices] = {
    **_OF_RELEASES,
    **{f"{name}-and-shared": _and_shared(_OF_RELEASES[name]) for name in ("scratch-of-windows", "scratch")},
}
"""By the name in a release's description."""


def _of_steps_over(rule: Callable[..., int], request: Request, _out_of_turn: bool) -> int:
    """All that steps in flight compute, whether or not another node could disturb them."""
    return rule(request, True)


def _by_steps_over(rule: Callable[..., int], request: Request) -> int:
    """What the steps that are over have computed."""
    return min(rule(request), max(0, request.tokens_computed - sum(request.in_flight)))


def _all_at_once(_rule: Callable[..., Tables], tables: Tables) -> Tables:
    """What is freed late is freed in one release, the last group first."""
    return [Table([block for table in tables for block in table.blocks], 0, 0)]


def _with_all_in_flight(rule: Callable[..., int], settings: Settings, *arguments: Any) -> int:
    """A window holds what all steps in flight compute."""
    in_flight_tokens = settings.chunk_tokens * settings.steps_in_flight_max
    return rule(evolve(settings, chunk_tokens=in_flight_tokens), *arguments)


IN_FLIGHT = (
    Delta(tokens_unsure.__name__, _of_steps_over),
    Delta(blocks_to_come_with.__name__, _with_all_in_flight),
)
"""Where nothing is left that a step in flight reads or writes."""
STEPS_OVER = (
    *IN_FLIGHT,
    Delta(tokens_answered.__name__, _by_steps_over),
    Delta(freed_late.__name__, _all_at_once),
)
"""Where blocks are freed, and cached with an answer, by what the steps that are over have computed."""


def choices_of_release(release: Release | None, settings: Settings | None = None) -> Choices:
    """What a release decides differently by design; without ``settings``, of a model of attention alone."""
    choices = OWN if release is None or release.choices is None else CHOICES[release.choices]
    if release is None:
        return choices
    deltas: list[Delta] = []
    if release.frees_late:
        deltas += STEPS_OVER
    elif release.holds_windows and not (settings is not None and settings.geometry.keeps_states):
        deltas += IN_FLIGHT
    if not release.retains_states:
        deltas.append(Delta(due_tokens.__name__, _with_every_state))
    if release.masks:
        deltas.append(Delta(tokens_looked_at.__name__, _up_to_the_alignment))
    if release.masks and release.pins_junctions:
        ends_ahead = release.choices == AHEAD_AT_THE_END
        deltas.append(Delta(junction.__name__, partial(_of_full_attention, matches_last_token=ends_ahead)))
    return evolve(choices, rules=Rules(deltas)) if deltas else choices


def _of_full_attention(
    _rule: Callable[..., int],
    geometry: Geometry,
    known_tokens: int,
    readable_tokens: int,
    hit_tokens: int,
    *,
    matches_last_token: bool,
) -> int:
    """The junction is the longest hit of full attention alone: what windows look ahead does not count."""
    lookahead = next((group.lookahead_tokens for group in geometry.groups if group.keeps_all), 0)
    alignment = geometry.alignment_tokens
    # Where the request's last token may be matched, that is as look-ahead alone.
    readable_tokens -= 1 if matches_last_token and geometry.lookahead_tokens and not lookahead else 0
    boundary = max(0, min(known_tokens, readable_tokens) - lookahead) // alignment * alignment
    return boundary if boundary > hit_tokens else 0


def _with_every_state(
    rule: Callable[..., int | None], retention: Retention, group: Group, index: int, prompt_tokens: int
) -> int | None:
    """A retention interval is for windows alone, and states stay at every boundary."""
    if isinstance(retention, (Sparse, WhenFull)) and group.keeps_states:
        retention = Sparse(retention.geometry, retention.geometry.alignment_tokens)
    return rule(retention, group, index, prompt_tokens)


def _up_to_the_alignment(
    looked_at: Callable[..., int], retention: Retention, geometry: Geometry, group: Group, tokens: int
) -> int:
    """With several groups, a step caches up to the last alignment, where hits end, and a block of look-ahead.

    What is due is the same. It shows in which blocks are passed over together: in events, and in entries inside blocks.
    """
    tokens, alignment = looked_at(retention, geometry, group, tokens), geometry.alignment_tokens
    if len(geometry.groups) == 1 or isinstance(retention, Dense):
        return tokens
    aligned = tokens // alignment * alignment
    looks_ahead = drops_look_ahead(geometry, group) and aligned > 0
    return min(tokens, aligned + group.block_size_tokens) if looks_ahead else aligned


def choices_of(system: System) -> Choices:
    """The choices of a system's release, and of the scheduler that drives it, if one does."""
    choices = choices_of_release(getattr(system, "description", None), getattr(system, "settings", None))
    rules: SchedulerRules | None = getattr(system, "scheduling", None)
    return scheduled(choices, rules, getattr(system, "kept", {}), getattr(system, "padded", {}))


def scheduled(
    choices: Choices,
    rules: SchedulerRules | None,
    kept: Mapping[int, int] = MappingProxyType({}),
    padded: Mapping[int, int] = MappingProxyType({}),
) -> Choices:
    """The choices, with those of a scheduler with these rules."""
    if rules is None:
        return choices
    deltas = [Delta(tokens_to_a_state.__name__, _or_a_token_less)] if rules.ends_before_an_answer else []
    if rules.looks_not_ahead:
        deltas.append(Delta(tokens_served.__name__, lambda rule, tokens, _lookahead, block: rule(tokens, 0, block)))
    return evolve(
        choices,
        rules=Rules((*choices.rules.deltas, *deltas)),
        lookahead_when_admitted=rules.lookahead_when_admitted,
        caches_answers=rules.caches_answers,
        blocks_reserved=kept,
        perform=partial(_as_scheduled, rules, padded),
    )


def release_of(system: str) -> Release | None:
    """The release of the block manager of that name, whether its system is here or not."""
    named = {"stock": INSTALLED, "retention": INSTALLED, "ascend": ASCEND, "ascend-retention": ASCEND}
    named |= {name: own.release for name, own in OWN_SCHEDULERS.items()}
    # With the plug-in, ``retention@VERSION``, it is still that release; so it is with a worker.
    plain = system.replace("retention@", "native@").replace("ascend-worker@", "ascend@")
    return named.get(system) or RELEASES.get(plain)
