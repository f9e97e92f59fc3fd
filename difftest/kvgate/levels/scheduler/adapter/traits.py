"""What must be known of the scheduler of a release, beside what is known of its block manager."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import field, frozen


@frozen
class SchedulerTraits:
    """How one release's scheduler differs from that of vLLM 0.20.2; without more it does not."""

    decides: tuple[str, ...] = ()
    """What it decides otherwise than the reference, by design; see ``kvgate.adapters.scheduler_variants``."""
    queues: tuple[str, ...] = ("skipped_waiting", "waiting")
    """Whoever waits, in the order in which it is looked at."""
    joins_queues: bool = True
    """Whether by priority the more urgent of the queues' heads is looked at; else one queue after the other, the first
    of which has whoever holds blocks."""
    tells_preempted_later: bool = False
    """Whether a step tells everybody who was preempted since the step before, and not in the step alone."""
    drafting: Mapping[str, Any] = field(default=MappingProxyType({}))
    """What its speculation must be told besides."""
    spares_the_only_one: bool = False
    """Whether the only request may have all of a step, whatever is the most that a step computes of one prompt."""
    gives_up_late: bool = False
    """Whether blocks that a window has left are given up when the step that left them is over."""
    caches_answers: bool = False
    """Whether blocks that an answer fills are cached when it is taken, and not with the next step."""
    pads_drafts: bool = False
    """Whether whoever is let in with one token to compute gets as many drafts beside it as there can be."""


_23: dict[str, Any] = {"decides": ("look-ahead-at-once", "keeps-room")}
_33: dict[str, Any] = {
    "decides": (*_23["decides"], "counts-admitted", "pads-drafts", "caches-answers"),
    "spares_the_only_one": True,
    "queues": ("kv_holding_waiting", "waiting"),
    "joins_queues": False,
    "tells_preempted_later": True,
    "pads_drafts": True,
    "gives_up_late": True,
    "caches_answers": True,
    # Its hashes then cover what a draft layer reads behind a block: another cache, which the reference does not have.
    "drafting": MappingProxyType({"disable_lookahead_block_hashes": True}),
}

SCHEDULERS: Mapping[str, SchedulerTraits] = MappingProxyType(
    {
        "0.21.0": SchedulerTraits(),
        "0.22.1": SchedulerTraits(),
        "0.23.0": SchedulerTraits(**_23),
        "0.33.0": SchedulerTraits(**_33),
    }
)
"""By version, oldest first. Those of 0.27.1 and 0.30.0 are still to be understood."""
