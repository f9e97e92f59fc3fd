"""The calls that a scheduler makes to its connector: each one that is due, once, in time, with what requests have.

A connector knows nothing else: it reads and writes the blocks that it is given. The calls that are due follow from the
operations of the block manager that the reference follows:

- ``get_num_new_matched_tokens`` once for each look-up, with its hit, before slots are asked for;
- ``update_state_after_alloc`` once for each grant to a request that waited, before the step is shown;
- ``request_finished_all_groups`` once for each request that ends, before its blocks are freed;
- ``build_connector_meta`` once for each step, when the step is complete;
- ``update_connector_output``, ``get_kv_connector_stats`` and ``take_events`` once for each output of a worker;
- ``bind_gpu_block_pool`` once, and ``on_new_request`` once for each request on a release that has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.interception import Interception, number_of
from kvgate.levels.scheduler.nodes import Tables
from kvreference.answers import Answer, Granted
from kvreference.operations import Abort, Admit, Finish, LookUp, Operation
from kvreference.population import Population

Checker = Callable[[str, Difference | None], None]
"""Called with a detector and what it found."""

SET_LATER = frozenset(
    (
        "kv_connector_metadata",
        "ec_connector_metadata",
        "aux_output_connector_metadata",
        "kv_connector_block_state",
        "has_structured_output_requests",
        "pending_structured_output_tokens",
    )
)
"""The fields of a step that a scheduler fills or clears after it has shown the step to its connector."""


class ConnectorCheck:
    """The calls that the connector of one scheduler gets."""

    def __init__(
        self,
        interception: Interception,
        check: Checker,
        undecided: Callable[[int], None],
        ended: Callable[[int, bool], None],
    ) -> None:
        self.interception = interception
        self.undecided = undecided
        """Called with the number of every request of which the connector does not know yet what it offers."""
        self.resets: list[bool] = []
        """Whether each reset was done that it was asked for since the list was last read."""
        self.pools: list[Any] = []
        """The block pools that it was bound to."""
        self.events: list[Any] = []
        """The events that were taken from it with the last output."""
        self._check = check
        self._ended = ended
        self._announced: list[int] = []
        self._asked: list[int] = []
        """The requests that it was asked about since the last look-up was followed."""
        self._granted: list[int] = []
        """The requests that were granted blocks, in order, and whose blocks it was not given yet."""
        self._over: set[int] = set()
        """The requests whose end was reported to it."""
        self._steps: list[tuple[Any, object]] = []
        self._outputs: list[tuple[Any, object]] = []
        """The steps, and the workers' outputs, that it was shown: each with what it contained then."""
        self._taken = 0

    # The calls

    def announced(self, request: Any) -> None:
        """A new request is announced."""
        self._announced.append(number_of(request))

    def asked(self, request: Any, hit_tokens: int) -> None:
        """It is asked what other nodes have for a request after its hit."""
        number = self._known(request)
        if number is None:
            return
        self._compare("KV-OP-24", f"the hit of request {number}", self.interception.hit_of(number), hit_tokens)
        self._asked.append(number)

    def allocated(self, request: Any, tables: Tables, external_tokens: int) -> None:
        """It is given a request's blocks, and how many tokens the request takes from other nodes."""
        number = self._known(request)
        if number is None:
            return
        due = self._granted[:1]
        if due != [number]:
            self._found("KV-OP-24", "the next request whose blocks the connector is given", due or "none", number)
        self._granted = self._granted[1:]
        self._compare("KV-OP-24", f"the blocks of request {number}", self.interception.followed._tables(number), tables)
        expected = self.interception.external_of(number)
        self._compare("KV-OP-24", f"the tokens that request {number} takes", expected, external_tokens)

    def ended(self, request: Any, tables: Tables, is_read: bool) -> None:
        """A request's end is reported; whether its blocks stay held for another node."""
        number = self._known(request)
        if number is None:
            return
        if number in self._over:
            self._found("KV-OP-25", f"request {number}", "its end is reported to the connector once", "twice")
        if not request.is_finished():
            self._found("KV-OP-25", f"request {number}", "its end is reported to the connector when it ends", "earlier")
        self._over.add(number)
        held = self._held_at_end(number, request.num_computed_tokens)
        self._compare("KV-OP-25", f"the blocks of request {number}, which ends", held, tables)
        self._ended(number, is_read)

    def not_due(self, call: str) -> None:
        """It gets a call that a connector of its kind does not get."""
        self._found("KV-OP-25", f"calls of {call}", "none: the connector takes all groups", "one")

    def reset(self, done: bool) -> None:
        """It is asked to forget what it keeps."""
        self.resets.append(done)

    def shown_step(self, output: Any) -> None:
        """It is shown a step."""
        self._all_given()
        self._steps.append((output, contents(output)))

    def shown_output(self, output: Any) -> None:
        """It is shown what its worker's half returned."""
        self._outputs.append((output, contents(output)))

    def taken(self, events: list[Any]) -> None:
        """Its events are taken."""
        self._taken += 1
        self.events = events

    # What was due

    def observe(self, operation: Operation, answer: Answer, population: Population) -> None:
        """The block manager did something; the ``population`` is as it was before."""
        if isinstance(operation, (LookUp, Admit)):
            number, asked, self._asked = operation.request, self._asked, []
            looks_up = isinstance(operation, LookUp) or population[number].tokens_computed == 0
            if asked != [number] * looks_up:
                subject = f"the requests that the connector is asked about with a look-up of request {number}"
                self._found("KV-OP-24", subject, [number] * looks_up, asked)
            if isinstance(answer, Granted):
                self._granted.append(number)
        elif isinstance(operation, (Abort, Finish)) and operation.request not in self._over:
            subject = f"request {operation.request}, whose blocks go"
            self._found("KV-OP-25", subject, "its end is reported to the connector before", "it is not")

    def submitted(self, number: int, announced: bool) -> None:
        """A request was submitted; whether this release announces it."""
        got, self._announced = self._announced, []
        if got != [number] * announced:
            self._found("KV-OP-24", "the requests announced to the connector", [number] * announced, got)

    def begin(self) -> None:
        """A step is about to be scheduled."""
        self._steps.clear()

    def scheduled(self, output: Any) -> None:
        """A step was scheduled."""
        self._all_given()
        if self._asked:
            self._found("KV-OP-24", "the requests asked about without a look-up", "none", self._asked)
        self._once("a step", output, contents(output), self._steps)

    def returned(self, output: Any, before: object) -> None:
        """The scheduler took an output of its worker, which contained this ``before``."""
        self._once("the output of its worker", output, before, self._outputs)
        if self._taken != 1:
            self._found("KV-OP-12", "how often the connector's events are taken with an output", 1, self._taken)
        self._outputs.clear()
        self._taken = 0

    def rest(self) -> None:
        """An operation of the engine is over."""
        followed = self.interception.followed
        if [id(followed.manager.block_pool)] != [id(pool) for pool in self.pools]:
            self._found("KV-OP-24", "the block pools that the connector is bound to", "the manager's", len(self.pools))
        if self._announced:
            self.submitted(self._announced[0], announced=False)
        for number, request in followed.requests():
            if (number in self._over) < (request.is_finished() or followed.is_over(number)):
                self._found("KV-OP-25", f"request {number}, which ended", "its end reported to the connector", "not")

    def _held_at_end(self, number: int, computed_tokens: int) -> Tables:
        """The blocks with which the end of a request is reported."""
        followed = self.interception.followed
        tables: Tables = followed._tables(number)
        if not followed.scheduling.ends_with_computed:
            return tables
        groups = followed.settings.geometry.groups
        return [
            blocks if group.keeps_states else blocks[: -(-computed_tokens // group.block_size_tokens)]
            for group, blocks in zip(groups, tables, strict=True)
        ]

    def _all_given(self) -> None:
        if self._granted:
            subject = "the requests that were granted blocks which the connector is not given"
            self._found("KV-OP-24", subject, "none", self._granted)

    def _once(self, what: str, expected: Any, content: object, got: Sequence[tuple[Any, object]]) -> None:
        if [id(expected)] != [id(each) for each, _ in got]:
            self._found("KV-OP-24", f"{what}, as the connector is shown it", "itself, once", f"{len(got)} showings")
        for _, then in got:
            if then != content:
                self._found("KV-OP-24", f"{what}, as the connector is shown it", content, then)

    def _known(self, request: Any) -> int | None:
        """Its number; None if the scheduler does not have it."""
        number = number_of(request)
        if self.interception.followed.has(number, request):
            return number
        self._found("KV-OP-24", "the request that the connector is given", "one of the scheduler's", number)
        return None

    def _compare(self, statement: str, subject: str, expected: Any, got: Any) -> None:
        if _plain(expected) != _plain(got):
            self._found(statement, f"{subject}, as the connector is given it", expected, got)

    def _found(self, statement: str, subject: str, expected: object, got: object) -> None:
        self._check("connector", Difference(statement, subject, str(expected), str(got)))


def contents(value: Any) -> object:
    """What a message contains now: its fields by value, and what no scheduler changes by identity."""
    if isinstance(value, _PLAIN):
        return value
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value) if field.name not in SET_LATER)
        return tuple((name, contents(getattr(value, name))) for name in names)
    if isinstance(value, dict):
        return tuple((key, contents(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        # Most are tokens, and many.
        return tuple(value) if set(map(type, value)) <= {int} else tuple(map(contents, value))
    return frozenset(value) if isinstance(value, (set, frozenset)) else id(value)


_PLAIN = (type(None), str, int, float)
"""What is the same wherever it is."""


def _plain(value: Any) -> Any:
    """Tables as tuples: sequences of several types stand for the same."""
    return tuple(map(tuple, value)) if isinstance(value, (list, tuple)) else value
