"""Statistics and events: what a scheduler publishes of itself is what was done.

No computation uses them, so a wrong one is noticed late: by a load balancer that counts waiting requests, or a router
that believes a block to be cached. They are sent with every output of a step, each once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.clients import Rest, differs, without_nothing
from kvreference.answers import Answer, Granted, Statistics
from kvreference.operations import Admit, Operation
from kvreference.population import Population

NAME = "statistics"


class StatisticsCheck:
    """What one scheduler publishes."""

    def __init__(self, drafts_max: int, connects: bool, in_full: bool = True, publishes: bool = True) -> None:
        self.publishes = publishes
        """Whether there are any."""
        self.drafts_max = drafts_max
        self.in_full = in_full
        """Whether every field that the release publishes is known here: others are not compared."""
        self.connects = connects
        self.connector = Statistics()
        """What requests asked of other nodes, and got."""
        self.taken = Statistics()
        """The prefix-cache statistics that the scheduler took from its block manager last."""

    def observe(self, operation: Operation, answer: Answer, population: Population) -> None:
        """Something was done; the ``population`` is as it was before."""
        if isinstance(answer, Statistics):
            self.taken = answer
        elif isinstance(operation, Admit) and isinstance(answer, Granted) and self.connects:
            request = population[operation.request]
            asked = len(request.tokens) - answer.hit_tokens
            if request.tokens_computed == 0 and asked:
                self.connector = self.connector.counted(asked, answer.external_tokens, request.preemptions > 0)

    def check(
        self,
        reported: Sequence[Rest],
        lengths: tuple[int, int, int],
        blocks: tuple[int, int],
        drafts: Mapping[int, tuple[int, int, int]],
        passed_on: Rest,
    ) -> Difference | None:
        """Compare what is sent with a step's output.

        ``lengths`` says how many run, wait and were set aside, ``blocks`` how many there are and are free, ``drafts``
        per request how many were sent to the worker, how many of them could hold and how many do; ``passed_on`` comes
        from the worker and from those that listen.
        """
        if len(reported) != self.publishes:
            expected = "once" if self.publishes else "never"
            return Difference("KV-OP-13", "statistics of a step", expected, f"{len(reported)} times")
        if not self.publishes:
            return None
        running, waiting, aside = lengths
        due = {
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_skipped_waiting_reqs": aside,
            "kv_cache_usage": 1 - blocks[1] / blocks[0] if blocks[0] else 0,
            "prefix_cache_stats": self.taken,
            "connector_prefix_cache_stats": self.connector if self.connects else None,
            "spec_decoding_stats": self._verified(drafts),
            **passed_on,
        }
        self.connector = Statistics()
        statement = "KV-OP-13"
        known = {name: value for name, value in due.items() if name in reported[0]}
        if not self.in_full:
            known.pop("spec_decoding_stats", None)
        got = {name: value for name, value in reported[0].items() if name in known or self.in_full}
        return differs(statement, "statistics of a step", without_nothing(known), without_nothing(got))

    def _verified(self, drafts: Mapping[int, tuple[int, int, int]]) -> object:
        verified = [(proposed, hold) for sent, proposed, hold in drafts.values() if sent]
        if not verified:
            return None
        places = tuple(sum(hold > place for _, hold in verified) for place in range(self.drafts_max))
        proposed, hold = map(sum, zip(*verified, strict=True))
        return self.drafts_max, len(verified), proposed, hold, places


def published(
    expected: Sequence[bytes], batches: Sequence[Sequence[Any]], adapters: Collection[tuple[object, object]]
) -> Difference | None:
    """Compare the events that were published with those that were taken, encoded: each once, in order, in one batch.

    ``adapters`` are the names and numbers of those that requests came with.
    """
    got = [msgspec.msgpack.encode(event) for batch in batches for event in batch]
    if got != list(expected) or len(batches) != bool(expected):
        described = [list(map(str, batch)) for batch in batches]
        taken = [list(map(str, map(msgspec.msgpack.decode, expected)))]
        return Difference("KV-OP-12", "events published", str(taken), str(described))
    for event in (event for batch in batches for event in batch if hasattr(event, "lora_id")):
        named = event.lora_name, event.lora_id
        if named != (None, None) and named not in adapters:
            return Difference("KV-OP-12", "the adapter that an event names", f"one of {sorted(adapters)}", str(named))
    return None
