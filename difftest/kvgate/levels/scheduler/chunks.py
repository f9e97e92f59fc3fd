"""Chunks: a request in a step computes all pending tokens that fit, drafts included.

Computing less harms no reader of blocks; it only takes longer, so no other check notices. The tokens asked of the block
manager are compared with the pending tokens. These are limited by the rest of the step's budget, by the most that a
step computes of one prompt, and by the longest request. And every running request is asked for while there is room.

A request that is preempted in its step gives its tokens back to the budget, and the step continues with the others.
Only if it is preempted for itself, since no other could be, does the step ask for none of the rest. A rejected request
is asked for again after a preemption: then the same number of tokens is enough, although the budget may have grown.

Where steps are asynchronous, what is pending is what the scheduler expects: the tokens and drafts of answers in flight.

Where states are kept at block ends, a prompt's chunks end where blocks end, up to the last end that a hit can use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.operations import Stage
from kvreference.answers import Answer, Granted, Hit, Refused
from kvreference.content import Media
from kvreference.operations import Abort, Admit, Finish, LookUp, Operation, Pause, Preempt, Schedule
from kvreference.population import Population, Request, Status
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings

STATEMENT = "KV-SYS-06"
NO_LIMITS: Mapping[int, int] = MappingProxyType({})


def tokens_read_whole(tokens: int, uncut: int, computed: int, items: Sequence[Media], shift: int) -> int:
    """How many of ``tokens`` more a step computes, where items are read whole; ``shift`` further a draft layer reads.

    They were ``uncut`` before it was known that a later item has no room, which does not matter.
    """
    del uncut
    for item in items:
        if computed < item.offset_tokens and computed + tokens < item.offset_tokens + item.length_tokens:
            return min(tokens, max(0, item.offset_tokens - computed - shift))
    return tokens


def tokens_to_a_state(request: Request, computed: int, tokens: int, block: int, is_drafted: bool) -> int:
    """How many of ``tokens`` more a step computes of a prompt: up to the last end of a ``block`` that a hit can use, or
    none."""
    known = len(request.tokens)
    if computed >= max(request.prompt_tokens, known - 1):
        return tokens
    # Where a draft layer reads, hits lose their last block.
    left = (known // block - is_drafted) * block - computed
    return max(0, (computed + min(tokens, left)) // block * block - computed) if left > 0 else tokens


class Chunks:
    """The chunks of one scheduler."""

    def __init__(
        self,
        settings: Settings,
        stage: Stage,
        spares_the_only_one: bool = False,
        rules: Rules = OWN_RULES,
        frees_late: bool = False,
        stops_at_junctions: bool = False,
    ) -> None:
        self.settings, self.rules = settings, rules
        self.asynchronous = stage.asynchronous
        self._ends_exactly = stage.in_flight_max <= 2
        """Whether no step is scheduled in vain at a request's end: so it is with two steps in flight at most."""
        self._long_prefill_tokens = min(settings.chunk_tokens, stage.long_prefill_tokens or settings.chunk_tokens)
        self._spares_the_only_one = spares_the_only_one
        """Whether a prompt may have all of a step without other requests."""
        self.most_tokens = self._long_prefill_tokens
        """How many tokens of one request this step computes at most."""
        self._state_block_tokens = settings.geometry.state_block_tokens
        self.checks = self._state_block_tokens is None or not stops_at_junctions
        self.cut: Mapping[int, int] = {}
        """Before which token the step of a request must end, since there is not enough room for what the encoder
        computes."""
        self.whole: Mapping[int, Sequence[Media]] = {}
        """Per request, the items that a step reads whole or not at all."""
        self.whole_prompts = stage.options.whole_prompts
        self.undecided: set[int] = set()
        """The requests of which the connector said in this step that it does not know yet what it offers."""
        self.shift = 1 if settings.geometry.has_draft_layer and settings.drafts_max else 0
        """How many tokens further a draft layer reads, where anything is drafted."""
        self._drafts: dict[int, int] = {}
        """How many drafts each request was offered since it was served last."""
        self._tokens: dict[int, int] = {}
        """How many tokens of whom the step computes so far."""
        self._refused: dict[int, int] = {}
        """How many tokens were asked for, for whom, in vain."""
        self._asks: int | None = None
        """Which request was rejected last."""
        self._stopped = False
        """Whether a request was preempted for itself: then the step asks for no other that runs."""
        self._frees_late = frees_late
        """Whether blocks may be free only when a step is over: a request that lacks them waits for that."""

    def begin(self, population: Population, paused: bool = False) -> None:
        """A step begins, in which those that run may be paused."""
        others = sum(request.status is not Status.ENDING for request in population.alive.values()) > 1
        alone = self._spares_the_only_one and not others
        self.most_tokens = self.settings.chunk_tokens if alone else self._long_prefill_tokens
        self._tokens, self._refused, self._asks, self._stopped = {}, {}, None, paused
        self.undecided.clear()

    def offered(self, number: int, drafts: int) -> None:
        """A request is offered drafts, for when it is served next."""
        self._drafts[number] = drafts

    def observe(
        self,
        operation: Operation,
        answer: Answer,
        population: Population,
        limits_tokens: Mapping[int, int] = NO_LIMITS,
    ) -> Difference | None:
        """The block manager was asked for something; the ``population`` is as it was before.

        ``limits_tokens`` says how long each request may become, by number.
        """
        if isinstance(operation, (Preempt, Finish, Abort, Pause)):
            self._drafts.pop(operation.request, None)
            if isinstance(operation, Preempt):
                # Its tokens are the step's again; a request that ends with the step has taken its own.
                self._tokens.pop(operation.request, None)
                self._stopped |= operation.request == self._asks
        elif isinstance(operation, LookUp) and isinstance(answer, Hit) and self.whole_prompts:
            request = population[operation.request]
            # What other nodes offer only makes it shorter.
            fits = self._fits(request, answer.tokens) and self._due(request, answer.tokens) > 0
            if fits and request.number not in self.undecided:
                where = f"request {request.number}, for whose whole prompt there is room"
                return Difference(STATEMENT, where, "is admitted", "waits")
        elif isinstance(operation, Schedule):
            request = population[operation.request]
            exact = self.checks and self._ends_exactly
            if exact and isinstance(answer, Granted) and _ends_in_flight(request, limits_tokens):
                where = f"request {request.number}, whose answers in flight reach its limit"
                return Difference(STATEMENT, where, "needs no further step", f"{operation.tokens} are scheduled")
            return self._scheduled(operation, answer, request)
        elif isinstance(operation, Admit) and isinstance(answer, Granted) and not answer.loads:
            return self._admitted(operation, answer, population[operation.request])
        return None

    def end(self, population: Population, limits_tokens: Mapping[int, int] = NO_LIMITS) -> Difference | None:
        """A step is scheduled: of those that run, no request was left out for which there was room.

        A request whose answers in flight reach its limit, by number, needs no further step.
        """
        waits = self._frees_late and self._asks is not None and self._asks not in self._tokens
        if self._stopped or waits or not self.checks:
            return None
        for number, request in population.alive.items():
            is_left_out = request.status is Status.RUNNING and number not in self._tokens
            if is_left_out and not _ends_in_flight(request, limits_tokens):
                due = self._due(request, request.tokens_computed)
                if due > 0:
                    got = f"it is not asked for, {sum(self._tokens.values())} are scheduled"
                    return Difference(STATEMENT, f"request {number} (tokens of the step)", str(due), got)
        return None

    def _scheduled(self, operation: Schedule, answer: Answer, request: Request) -> Difference | None:
        number, tokens = operation.request, operation.tokens
        due = self._due(request, request.tokens_computed)
        found = None if self._refused.get(number) == tokens else self._compare(number, due, tokens)
        if isinstance(answer, Refused):
            self._refused.setdefault(number, tokens)
            self._asks = number
        else:
            self._serve(number, tokens)
        return found

    def _admitted(self, operation: Admit, answer: Granted, request: Request) -> Difference | None:
        number, tokens = operation.request, operation.tokens
        start = request.tokens_computed + answer.hit_tokens + answer.external_tokens
        due, fits = self._due(request, start), self._fits(request, start)
        self._serve(number, tokens)
        if not fits:
            return Difference(STATEMENT, f"request {number}, whose prompt is computed whole", "waits", "is admitted")
        return self._compare(number, due, tokens)

    def _fits(self, request: Request, computed: int) -> bool:
        """Whether there is room for all that a step computes of a prompt, where no less will do."""
        room = self.settings.chunk_tokens - sum(self._tokens.values())
        return not self.whole_prompts or min(len(request.tokens) - computed, self.most_tokens) <= room

    def _serve(self, number: int, tokens: int) -> None:
        self._tokens[number] = tokens
        self._drafts.pop(number, None)

    def _due(self, request: Request, computed: int) -> int:
        runs_ahead = self.asynchronous and request.status is Status.RUNNING
        drafts = len(request.drafts) if runs_ahead else self._drafts.get(request.number, 0)
        pending = len(request.tokens) + drafts - computed
        room = self.settings.chunk_tokens - sum(self._tokens.values())
        tokens = min(pending, self.most_tokens, room)
        if request.status is Status.RUNNING:
            tokens = min(tokens, self.settings.tokens_max - 1 - computed)
        uncut = tokens
        if request.number in self.cut:
            tokens = min(tokens, max(0, self.cut[request.number] - computed - self.shift))
        items = self.whole.get(request.number, ())
        tokens = self.rules.ask(tokens_read_whole, tokens, uncut, computed, items, self.shift)
        return self._to_a_state(request, computed, tokens)

    def _to_a_state(self, request: Request, computed: int, tokens: int) -> int:
        """How many of ``tokens`` more a step computes of a prompt, so that the states that hits use are kept.

        None, if less than a block is left of the step (029).
        """
        block = self._state_block_tokens
        return tokens if block is None else tokens_to_a_state(request, computed, tokens, block, self.shift > 0)

    def _compare(self, number: int, due: int, tokens: int) -> Difference | None:
        if due == tokens or not self.checks:
            return None
        return Difference(STATEMENT, f"request {number} (tokens of the step)", str(due), str(tokens))


def _ends_in_flight(request: Request, limits_tokens: Mapping[int, int]) -> bool:
    """Whether the answers in flight, a token each, make a request as long as it may become."""
    limit = limits_tokens.get(request.number, math.inf)
    return bool(request.awaited) and len(request.tokens) + len(request.awaited) >= limit
