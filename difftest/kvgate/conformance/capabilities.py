"""What a third party's allocator has, and what it promises: so much is asked of it, and no more.

What is switched off here is never generated, and every report says that it was not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen
from attrs.validators import in_

from kvreference.content import Keys
from kvreference.operations import (
    Arrive,
    CommonPrefix,
    Evict,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    TakeEvents,
    TakeStatistics,
)
from kvreference.settings import Settings

Order: TypeAlias = Literal["vllm", "any"]


@frozen
class Capabilities:
    """What a system has besides arrivals, look-ups, allocations and ends, which every system has."""

    order: Order = field(default="vllm", validator=in_(("vllm", "any")))
    """``vllm``: free blocks are allocated in vLLM's order, and everything is compared exactly. ``any``: in an order of
    the system's own, which the reference then follows."""
    drafts: bool = True
    """Speculative decoding: drafts are proposed, accepted and rejected."""
    gate: bool = True
    """An admission gate that admits a request only if all of its tokens fit."""
    uncached: bool = True
    """Prefix caching can be switched off."""
    private: bool = True
    """Single requests may be kept from reading the cache."""
    keys: bool = True
    """Salts, adapters and multimodal items keep equal tokens apart."""
    look_ups: bool = True
    """A hit can be asked for without being taken."""
    preempts: bool = True
    releases: bool = True
    """What no later token reads is released when asked, not only at the next allocation."""
    evicts: bool = True
    """A block can be made to forget its content, by its id."""
    resets: bool = True
    events: bool = True
    statistics: bool = True
    common_prefix: bool = True

    def fitted(self, settings: Settings) -> Settings:
        """``settings`` without what the system does not have."""
        return evolve(
            settings,
            drafts_max=settings.drafts_max if self.drafts else 0,
            full_sequence_must_fit=settings.full_sequence_must_fit and self.gate,
            caches=settings.caches or not (self.uncached or self._keeps_no_states(settings)),
            tells_events=settings.tells_events and self.events,
        )

    @staticmethod
    def _keeps_no_states(settings: Settings) -> bool:
        """Whether caching cannot be on, because some group keeps nothing for it."""
        return not all(group.attention.serves_hits for group in settings.geometry.groups)

    def allows(self, operation: Operation) -> bool:
        """Whether the system can be asked for ``operation``."""
        if isinstance(operation, Arrive):
            return (self.private or operation.reads_cache) and (self.keys or operation.keys == Keys())
        needed = _NEEDED.get(type(operation))
        return needed is None or bool(getattr(self, needed))

    def absent(self) -> Iterator[str]:
        """A sentence for everything that was not asked for."""
        for name, sentence in _SENTENCES.items():
            if not getattr(self, name):
                yield sentence
        if self.order == "any":
            yield from _ORDER


_NEEDED: Mapping[type[Operation], str] = {
    LookUp: "look_ups",
    Preempt: "preempts",
    ReleaseSkipped: "releases",
    Evict: "evicts",
    Reset: "resets",
    TakeEvents: "events",
    TakeStatistics: "statistics",
    CommonPrefix: "common_prefix",
}

_SENTENCES: Mapping[str, str] = {
    "drafts": "Drafts: the system is said to have none (drafts=False).",
    "gate": "The admission gate: the system is said to have none (gate=False).",
    "uncached": "Prefix caching switched off (uncached=False).",
    "private": "Requests that may not read the cache (private=False).",
    "keys": "Salts, adapters and multimodal items (keys=False).",
    "look_ups": "Look-ups without an admission (look_ups=False).",
    "preempts": "Preemption (preempts=False).",
    "releases": "Release of skipped blocks when asked (releases=False).",
    "evicts": "Eviction by block id (evicts=False).",
    "resets": "Reset of the cache (resets=False).",
    "events": "KV events (events=False).",
    "statistics": "Prefix-cache statistics (statistics=False).",
    "common_prefix": "The common prefix (common_prefix=False).",
}

_ORDER = (
    "Which free block is allocated, and so which content is lost first: the system has an order of its own "
    "(order='any'), and the reference follows its choices. The order of the free queue is then not checked "
    "(KV-OP-05, KV-OP-06, KV-OP-07, as far as they speak of order).",
    "Which of several blocks with equal content serves a hit (KV-OP-02), and in which order events of different "
    "contents are reported (KV-OP-12).",
)
