"""The progress monitor: a scheduler that could advance a request, and does not, hangs.

It needs no clock and no reference. A step is a function of the scheduler's state and of what the model answers. So if a
step schedules no request and changes nothing, every later step does the same. If the scheduler returns to an earlier
state since a request last got a token, it runs in a cycle. Either is a hang unless every request waits, directly or
through others, for something that ends by itself: a transfer, a grammar. A request is starved if it gets nothing for
this many steps: what all live requests together need to finish, times the number of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.adapter.interception import Interception
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.nodes import OtherNodes
from kvgate.levels.scheduler.operations import Stage
from kvgate.monitors.wait_graph import Naming, Reason, Wait, WaitFor, by_number
from kvreference.population import Status

Standing = tuple[object, ...]


class ProgressMonitor:
    """Watches one scheduler, step by step."""

    name = "progress"

    def __init__(self, followed: Followed, nodes: OtherNodes, interception: Interception, stage: Stage) -> None:
        self.scheduler: Any = followed.scheduler
        self.followed = followed
        self.nodes = nodes
        self.interception = interception
        self.stage = stage
        self.grammars: set[int] = set()
        """The requests whose grammar is being compiled."""
        self.stopped: Set[int] = frozenset()
        """The requests that a pause of the engine keeps from being admitted."""
        self.called: Naming = by_number
        """What requests are called in a wait-for edge."""
        self.waiting: WaitFor | None = None
        """Who waited for whom when a hang was found."""
        self.limits_tokens: dict[int, int] = {}
        """How many tokens each request may have in the end."""
        self._seen: dict[Standing, int] = {}
        """Where everything stood since a request last got an answer, and how many steps had computed something then."""
        self._computed = 0
        """How many steps computed something."""
        self._patience: dict[int, int] = {}
        """How many steps more each request that gets nothing can be passed over."""

    def entered(self, number: int, limit_tokens: int, structured: bool) -> None:
        """A request came, that may get as long as ``limit_tokens``."""
        self.limits_tokens[number] = limit_tokens
        if structured:
            self.grammars.add(number)
        for other in self._patience:
            if self._may_pass(number, other):
                self._patience[other] += self._steps_alone(number)
        self.forget()

    def _may_pass(self, number: int, other: int) -> bool:
        """Whether a request that came just now may be served before another: it is more urgent, or set aside first.

        Those that were set aside are looked at first once they are ready.
        """
        set_aside = number in self.grammars or number in self.nodes.offers
        requests = [self.scheduler.requests.get(self.followed.name_of(each)) for each in (number, other)]
        if not self.stage.by_priority or None in requests:
            return set_aside
        return bool(requests[0].priority < requests[1].priority)

    def observe(self, scheduled: Mapping[int, int], answered: int, in_flight: int) -> Difference | None:
        """After a step with so many tokens for each that was ``scheduled``, in which ``answered`` requests got one."""
        if not self.scheduler.has_unfinished_requests():
            self.forget()
            self._patience.clear()
            return None
        passed = self._passed_over(scheduled)
        if passed is not None:
            return passed
        if answered:
            self._seen.clear()
            return None
        standing = self.standing()
        self._computed += bool(scheduled)
        if in_flight or standing not in self._seen:
            self._seen.setdefault(standing, self._computed)
            return None
        waiting = self.wait_for(scheduled)
        if waiting.is_held_up() if self._computed > self._seen[standing] else not waiting.stuck():
            return None
        self.waiting = waiting
        return Difference(
            "KV-LIVE-03", "progress", "a request makes progress, or something changes", waiting.describe(self.called)
        )

    def forget(self) -> None:
        """Something happened from outside: a scheduler that stood still may move now."""
        self._seen.clear()

    # No token within a bound

    def _passed_over(self, scheduled: Mapping[int, int]) -> Difference | None:
        alive = self.followed.population.alive
        waiting = WaitFor(tuple(self._edges(scheduled)))
        served = bool(scheduled)
        for number in [*self._patience]:
            if number in scheduled or number not in alive or waiting.ends(number):
                del self._patience[number]
        for number in dict.fromkeys(edge.request for edge in waiting.edges):
            if number in scheduled or waiting.ends(number) or alive[number].status is Status.ENDING:
                continue
            bound = sum(map(self._steps_alone, alive)) * (len(alive) + 1)
            self._patience.setdefault(number, bound)
            # A step that serves no request waits for something, or is a hang that is seen at once.
            self._patience[number] -= served
            if self._patience[number] < 0:
                # If it is known, the run continues, and other requests are checked again.
                del self._patience[number]
                waiting = self.waiting = self.wait_for(scheduled)
                expected = "a token in as many steps as all live requests need to finish"
                return Difference("KV-LIVE-02", f"request {number}", expected, waiting.describe(self.called))
        return None

    def _steps_alone(self, number: int) -> int:
        """How many steps a request needs at most without other requests: to load, to compute it all, one per answer."""
        settings = self.followed.settings
        request = self.followed.population.alive.get(number)
        limit = self.limits_tokens.get(number, settings.tokens_max)
        chunk = min(settings.chunk_tokens, self.stage.long_prefill_tokens or settings.chunk_tokens)
        steps = 2 + -(-limit // chunk) + limit - (len(request.tokens) if request else 0)
        block = settings.geometry.state_block_tokens
        return max(1, steps) + (limit // block if block else 0)

    # Who waits for whom

    def wait_for(self, scheduled: Mapping[int, int]) -> WaitFor:
        """Who waits for whom after a step with those that were ``scheduled``."""
        edges = tuple(self._edges(scheduled))
        return WaitFor(edges, self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(), tuple(self._lines()))

    def _edges(self, scheduled: Mapping[int, int]) -> Iterator[Wait]:
        first_rejected: int | None = None
        running = [number_in(request.request_id) for request in self.scheduler.running]
        for number in running:
            if number in self.interception.refused:
                first_rejected = first_rejected if first_rejected is not None else number
            if number not in scheduled:
                yield from self._held_up(number, first_rejected, scheduled)
        for request in self._in_line():
            number = number_in(request.request_id)
            outside = self._outside(number, request.status.name)
            if outside is not None:
                yield outside
                continue
            if number in self.interception.refused and first_rejected is None:
                first_rejected = number
            if len(running) >= self.stage.running_max and number not in self.interception.refused:
                yield from (Wait(number, Reason.PLACE, other) for other in running)
            else:
                yield from self._held_up(number, first_rejected, scheduled)
        for number, ours in self.followed.population.alive.items():
            if ours.status is Status.ENDING:
                yield Wait(number, Reason.TRANSFER, lost=number in self.nodes.lost)

    def _held_up(self, number: int, first_rejected: int | None, scheduled: Mapping[int, int]) -> Iterator[Wait]:
        if number in self.interception.refused:
            holders = [(other, self._held(other)) for other in self.followed.population.alive if other != number]
            edges = [Wait(number, Reason.BLOCKS, other, blocks) for other, blocks in holders if blocks]
            yield from edges or [Wait(number, Reason.NO_REQUEST)]
        elif first_rejected is not None and first_rejected != number:
            yield Wait(number, Reason.LINE, first_rejected)
        elif self._lacks_slot(number, scheduled):
            yield from (Wait(number, Reason.TURN, other) for other in scheduled if self._adapter(other) is not None)
        elif sum(scheduled.values()) >= self.scheduler.max_num_scheduled_tokens:
            yield from (Wait(number, Reason.TURN, other) for other in scheduled)
        else:
            yield Wait(number, Reason.NO_REQUEST)

    def _adapter(self, number: int) -> object:
        request = self.scheduler.requests.get(self.followed.name_of(number))
        return request and request.lora_request and request.lora_request.lora_int_id

    def _lacks_slot(self, number: int, scheduled: Mapping[int, int]) -> bool:
        """Whether a step has as many adapters as it can have, and not that of a request."""
        slots, adapter = self.stage.adapters_max, self._adapter(number)
        used = {*map(self._adapter, scheduled)} - {None}
        return slots is not None and adapter is not None and adapter not in used and len(used) >= slots

    def _outside(self, number: int, status: str) -> Wait | None:
        """What a request waits for that ends from outside."""
        if status == "WAITING_FOR_REMOTE_KVS" and (
            number in self.nodes.under_way() or self.nodes.signals_end_of(number)
        ):
            return Wait(number, Reason.TRANSFER, lost=number in self.nodes.lost)
        if status == "WAITING_FOR_STREAMING_REQ":
            return Wait(number, Reason.CLIENT)
        if number in self.grammars:
            return Wait(number, Reason.GRAMMAR)
        offer = self.nodes.offers.get(number)
        awaited = offer is not None and offer.undecided and offer.is_awaited
        if awaited:
            return Wait(number, Reason.ANSWER)
        return Wait(number, Reason.RESUMED) if number in self.stopped else None

    def _in_line(self) -> list[Any]:
        """The waiting requests, in the order in which the scheduler looks at them."""
        return self.followed.in_line(self.stage.by_priority)

    def standing(self) -> Standing:
        """The state that decides what the next step does."""
        return (
            tuple((request.request_id, request.num_computed_tokens) for request in self.scheduler.running),
            tuple((each.request_id, each.status.name, each.num_computed_tokens) for each in self._in_line()),
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            self.nodes.standing(),
        )

    def _lines(self) -> Iterator[str]:
        """Where each request stands, and what it holds."""
        for request in self.scheduler.running:
            number = number_in(request.request_id)
            yield f"{self.called(number)} runs, {_tokens(request)}, holds {self._held(number)} blocks"
        for request in self._in_line():
            number = number_in(request.request_id)
            reported = f"{self.called(number)} waits ({request.status.name.lower()}), {_tokens(request)}"
            yield f"{reported}, holds {self._held(number)} blocks"
        for number, ours in self.followed.population.alive.items():
            if ours.status is Status.ENDING:
                yield f"{self.called(number)} has ended, holds {self._held(number)} blocks for another node"

    def _held(self, number: int) -> int:
        tables = self.scheduler.kv_cache_manager.coordinator.get_blocks(self.followed.name_of(number))
        return sum(not block.is_null for blocks in tables for block in blocks)


def _tokens(request: Any) -> str:
    return f"{request.num_computed_tokens} of {request.num_tokens} tokens computed"
