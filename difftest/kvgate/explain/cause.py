"""A cause: why hits are lost, or what else goes wrong with such settings, each with its guarantee and its thread."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cached_property

from attrs import Attribute, evolve, field, frozen
from attrs.validators import deep_iterable, in_, matches_re, min_len

from kvgate.explain.best_hit import Prompts, best_hit, shortest_prompt
from kvgate.explain.layout import Layout
from kvgate.explain.policies import settings_of
from kvgate.explain.serving import Serving
from kvgate.findings.finding import Finding
from kvgate.findings.modelled import Modelled, reference_of_release
from kvreference.manager import Manager
from kvreference.prefix_cache import NoPrefixCache, PrefixCache
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS


class Effect(str, Enum):
    """What comes of it, the worst for the hit rate first."""

    ALWAYS_ZERO = "nothing is ever hit"
    ZERO_IF = "nothing is hit if"
    LESS = "less is hit than could be"
    FAILS = "known to fail"


@frozen
class Cause:
    """One cause."""

    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    effect: Effect
    statement: str = field(validator=in_(STATEMENTS))
    """The guarantee that it violates, or that says why it must be so."""
    upstream: tuple[str, ...] = field(
        validator=[min_len(1), deep_iterable(matches_re(r"[a-z0-9-]+/[A-Za-z0-9_.-]+#\d+|finding \d{3}"))]
    )
    """Threads, as ``owner/repository#number``, the one that settled it first; or a finding of ours."""
    says: str = field(validator=min_len(1))
    """What is the matter, with the figures."""
    condition: str = field(default="")
    """For which prompts, where not for all."""
    remedy: str = field(default="", validator=min_len(1))
    """What to do."""
    sets: tuple[tuple[str, object], ...] = ()
    """The same as parameters of ``Serving``, where setting them is all there is to do."""

    @condition.validator
    def _check_condition(self, _attribute: Attribute[str], condition: str) -> None:
        if (self.effect is Effect.ZERO_IF) != bool(condition):
            raise ValueError(f"{self.id}: a condition is there for {Effect.ZERO_IF.name}, and for nothing else")


@frozen(slots=False)
class Case:
    """What is explained: a layout, how it is served, and the prompts, if they are given."""

    layout: Layout
    serving: Serving
    prompts: Prompts | None = None
    cached: Case | None = None
    """The same with prefix caching on, where it is off and could be on."""

    @cached_property
    def settings(self) -> Settings:
        """The same for the reference."""
        return settings_of(self.layout, self.serving)

    @cached_property
    def dense(self) -> Settings:
        """The same with every block cached."""
        return evolve(self.settings, retention_interval_tokens=None, scratch_first=False)

    @cached_property
    def replays(self) -> tuple[Prompts, ...]:
        """Prompts that are sent twice, of lengths that lie everywhere between boundaries: what rules are tried on."""
        alignment = self.settings.geometry.alignment_tokens
        return tuple(
            Prompts.replay(self.beyond_windows + alignment * whole + 1 + alignment * part // 8)
            for whole, part in ((2, 0), (3, 1), (3, 3), (4, 5), (5, 7), (8, 2), (9, 6), (12, 4))
        )

    @cached_property
    def short_replays(self) -> tuple[Prompts, ...]:
        """The same from the first boundary on, and closer together."""
        geometry = self.settings.geometry
        alignment, ahead = geometry.alignment_tokens, geometry.lookahead_tokens
        return tuple(
            Prompts.replay(alignment * whole + ahead + 1 + alignment * part // 8)
            for whole in range(1, 7)
            for part in (0, 1, 3, 5, 7)
        )

    @cached_property
    def beyond_windows(self) -> int:
        """As many tokens, in whole alignments and the look-ahead, as the longest window spans."""
        geometry = self.settings.geometry
        window = max((group.window_tokens or 0 for group in geometry.groups), default=0)
        return -(-window // geometry.alignment_tokens) * geometry.alignment_tokens + geometry.lookahead_tokens

    def hits(self, prompts: Prompts) -> bool:
        """Whether such prompts hit anything, as the reference has it."""
        return best_hit(self.settings, prompts) > 0

    @cached_property
    def released(self) -> tuple[NoPrefixCache, Modelled]:
        """The cache by the rules of the release, and its findings."""
        return self.released_without()

    def released_without(self, *findings: Finding) -> tuple[NoPrefixCache, Modelled]:
        """The same as if the release did not have these findings."""
        release = self.serving.described
        release = evolve(release, findings=release.findings - {each.id for each in findings})
        has_plug_in = self.serving.on_stock and self.settings.retention_interval_tokens is not None
        # Nothing is evicted here, so a pool of any size will do.
        manager: Manager
        manager, known = reference_of_release(release, evolve(self.settings, blocks=2), has_plug_in)
        return manager.cache, known

    @cached_property
    def shortest_prompt(self) -> int | None:
        """The length from which on a prompt can hit when it is sent again, on this release; None if none was found."""
        alignment, shortest = self.settings.geometry.alignment_tokens, shortest_prompt(self.settings)
        last = min(shortest + self.beyond_windows + 2 * alignment, self.settings.tokens_max)
        if not isinstance(self.released[0], PrefixCache):
            return None
        found = next((each for each in range(shortest, last + 1, alignment) if self._replay_hits(each)), None)
        # A release may ask for less of a prompt after its last boundary.
        while found is not None and found > 1 and self._replay_hits(found - 1):
            found -= 1
        return found

    def _replay_hits(self, tokens: int) -> bool:
        return self.hit_tokens(Prompts.replay(tokens)) > 0

    def hit_tokens(self, prompts: Prompts) -> int:
        """How much of such prompts can hit, by the rules of the release."""
        return best_hit(self.settings, prompts, self.released[0])


Rule = Callable[[Case], Cause | None]
"""Says whether a cause is there. With prompts, one that takes certain prompts is there for those alone."""

_REPOSITORIES = {"vllm-project/vllm#": "vllm#", "vllm-project/vllm-ascend#": "vllm-ascend#"}


def short_thread(thread: str) -> str:
    """``vllm#40624`` for a thread of vLLM's own."""
    for long, brief in _REPOSITORIES.items():
        if thread.startswith(long):
            return brief + thread.removeprefix(long)
    return thread
