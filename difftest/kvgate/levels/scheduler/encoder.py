"""The encoder: which items of requests it computes in a step, and how long what it computed is kept.

Attention needs what the encoder made of an item while the item's tokens are computed, and not before or after. So every
item that a step reaches into is computed in it, or kept from before; an item is computed whole, within the encoder's
budget and if the cache has room. If not, the step ends before its first token.

An item that no request needs stays until its room is needed; then the oldest goes. A step's output says which items
went, and the worker knows nothing else: here the checker follows these outputs, and every item that a step reads must
be there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kvgate.adapters.tap import Raises, Tap
from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.batch import SentRequest
from kvgate.levels.scheduler.operations import Options
from kvreference.content import Media
from kvreference.population import Population, Status

STATEMENT = "KV-SYS-03"
NEEDED = "KV-MEM-01"
PLAIN = Options()


def elsewhere(identifier: str) -> bool:
    """Whether other nodes have what an encoder computes for an item: of every second one."""
    return sum(identifier.encode()) % 2 == 0


class Kept:
    """The cache of what an encoder computed, as it must be: sizes are in embeddings, one for each token of an item."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.users: dict[str, set[int]] = {}
        """Per item that is kept, the requests that need it."""
        self.sizes: dict[str, int] = {}
        self.unused: list[str] = []
        """The items that no request needs any more, the oldest first."""
        self.gone: list[str] = []
        """What went since the last message to the worker."""

    def used(self, number: int, item: Media) -> bool:
        """A request needs an item; whether it is kept."""
        if item.identifier not in self.users:
            return False
        self.users[item.identifier].add(number)
        self.unused = [each for each in self.unused if each != item.identifier]
        return True

    def needed(self, but: Collection[str] = ()) -> int:
        """The size of all items that requests need, without those in ``but``."""
        return sum(self.sizes[item] for item, users in self.users.items() if users and item not in but)

    def makes_room(self, room: int) -> bool:
        """Let the oldest go, until there is so much room; nothing goes if that is not enough."""
        if room > self.size - self.needed():
            return False
        while self.size - sum(self.sizes[each] for each in self.users) < room:
            oldest = self.unused.pop(0)
            del self.users[oldest]
            self.gone.append(oldest)
        return True

    def keep(self, number: int, item: Media) -> None:
        """An item is computed for a request."""
        self.users.setdefault(item.identifier, set()).add(number)
        self.sizes[item.identifier] = item.length_tokens

    def release(self, number: int, item: Media) -> None:
        """A request does not need an item any more."""
        users = self.users.get(item.identifier)
        if users:
            users.discard(number)
            if not users:
                self.unused.append(item.identifier)

    def of(self, number: int) -> set[str]:
        """What is kept for a request."""
        return {item for item, users in self.users.items() if number in users}


class EncoderCheck(Raises):
    """The encoder of one worker, as its scheduler has it work."""

    def __init__(
        self,
        budget: int,
        size: int,
        shift: int,
        population: Population,
        check: Callable[[str, Difference | None], None],
        options: Options = PLAIN,
    ) -> None:
        self.options = options
        self.budget = budget
        self.shift = shift
        """How many tokens further a draft layer reads."""
        self.kept = Kept(size)
        self.population = population
        self.cut: dict[int, int] = {}
        """Before which token the step of a request must end, since there is not enough room for the item that begins
        there."""
        self._check = check
        self._computes: dict[int, list[Media]] = {}
        """Per request, the items that this step computes for it."""
        self._allocated: list[tuple[int, int]] = []
        """The items for which this step has room in the cache, by request and place."""
        self.whole: dict[int, list[Media]] = {}
        """Per request, the items that this step reads whole or not at all."""
        self.never_computed: set[str] = set()
        """The items of which the last computation was taken out of its step, with its request."""
        self._found: dict[int, set[str]] = {}
        """Per waiting request, the items that it found there since it was last admitted or rejected."""
        self._asking: tuple[int, int, int] = (-1, 0, 0)
        """For which request there was room last, for how much of it, and how much of that is to be computed."""
        self._goes: list[str] = []
        """What the next message to the worker must name."""
        self._there: set[str] = set()
        """What the worker has."""
        self.missing: set[tuple[int, str]] = set()
        """While a step is compared: the requests and the items that they read, or their draft layers, and that are not
        there."""
        self.passed_over: set[tuple[int, str]] = set()
        """The requests and the items for which this step has room, and that it does not compute."""
        self.anew: set[int] = set()
        """The requests that were computed last before a reset, or before a failed load set them back."""
        self.resets = 0
        """How often all was forgotten."""

    def listen(self, cache: Any) -> None:
        """Follow every call of a scheduler's encoder cache."""
        tap = Tap(self)
        for name in ("check_and_update_cache", "can_allocate", "allocate", "free_encoder_input", "free", "reset"):
            tap.watch(cache, name, after=getattr(self, f"_{name}"))
        tap.watch(cache, "get_freed_mm_hashes", after=self._get_freed)

    def begin(self) -> None:
        """A step begins."""
        self.cut, self._computes, self._asking, self.passed_over = {}, {}, (-1, 0, 0), set()
        self.whole, self._allocated = {}, []

    def preempted(self, number: int) -> None:
        """A request is not part of the step any more."""
        self.never_computed.update(item.identifier for item in self._computes.pop(number, ()))
        self.cut.pop(number, None)
        self.whole.pop(number, None)

    def asked_for(self, number: int) -> None:
        """A waiting request is admitted or rejected: what it found is its own, or is released."""
        self._found.pop(number, None)

    def rewound(self, number: int) -> None:
        """A load failed: the request may stand in an item that was loaded and was never computed here."""
        self.anew.add(number)

    # The calls

    def _item(self, request: Any, place: int) -> tuple[int, Media]:
        number = number_in(request.request_id)
        alive = number in self.population.alive
        self._compare(
            "KV-SYS-02", f"request {number}, of which items are looked for", "alive", "alive" if alive else "over"
        )
        return number, self.population[number].keys.media[place]

    def _check_and_update_cache(self, answer: bool, request: Any, place: int) -> None:
        number, item = self._item(request, place)
        self._compare(
            STATEMENT, f"item {item.identifier} for request {number} is kept", self.kept.used(number, item), answer
        )
        if answer and self.population[number].status is Status.WAITING:
            self._found.setdefault(number, set()).add(item.identifier)
        if not answer and self.options.whole_items:
            self.whole.setdefault(number, []).append(item)

    def _can_allocate(self, answer: bool, request: Any, place: int, budget: int, before: int) -> None:
        number, item = self._item(request, place)
        asked, to_compute = self._asking[1:] if self._asking[0] == number else (0, 0)
        spent = sum(item.length_tokens for items in self._computes.values() for item in items)
        left = self.budget - spent - to_compute
        self._compare(STATEMENT, f"budget left for request {number}", (left, asked), (budget, before))
        size = item.length_tokens
        expected = size <= left and self.kept.makes_room(size + asked)
        self._compare(STATEMENT, f"room for item {item.identifier} of request {number}", expected, answer)
        more = 0 if self.loaded(item) else size
        self._asking = (number, asked + size, to_compute + more) if expected else (number, 0, 0)
        if expected:
            self.passed_over.add((number, item.identifier))
        else:
            self.cut[number] = item.offset_tokens

    def _allocate(self, _answer: None, request: Any, place: int) -> None:
        number, item = self._item(request, place)
        self._allocated.append((number, place))
        if not self.loaded(item):
            self._computes.setdefault(number, []).append(item)
        self.never_computed.discard(item.identifier)
        self.passed_over.discard((number, item.identifier))
        self.kept.keep(number, item)

    def loaded(self, item: Media) -> bool:
        """Whether an item is loaded from other nodes, and not computed."""
        return self.options.encoder_connector and elsewhere(item.identifier)

    def _free_encoder_input(self, _answer: None, request: Any, place: int) -> None:
        number = number_in(request.request_id)
        item = request.mm_features[place]
        self.kept.release(number, Media(item.identifier, 0, item.mm_position.length))

    def _free(self, _answer: None, request: Any) -> None:
        # It releases item by item, which was seen.
        self._compare(
            "KV-LEAK-01", "items kept for a request that freed them", set(), self.kept.of(number_in(request.request_id))
        )

    def _reset(self, _answer: None) -> None:
        self.resets += 1
        # The worker forgets all of it with the scheduler.
        self.kept, self._goes, self._there = Kept(self.kept.size), [], set()
        self.anew = set(self.population.alive)
        self.never_computed, self._found = set(), {}

    def _get_freed(self, answer: Sequence[str]) -> None:
        self._goes, self.kept.gone = self.kept.gone, []
        self._compare(STATEMENT, "items that go", self._goes, list(answer))

    # The step

    def step(
        self,
        reported: Mapping[int, SentRequest],
        computed: Mapping[int, Sequence[int]],
        forgotten: Sequence[str],
        announced: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Check a step's output: the items that it has computed, by request and place, and those that go.

        ``announced`` are those of which a connector was given the places: it loads the ones that other nodes have.
        """
        if self.options.encoder_connector:
            self._compare(STATEMENT, "items given to the encoder's connector", self._allocated, list(announced))
        self._compare(STATEMENT, "items that the worker forgets", tuple(self._goes), tuple(forgotten))
        self._compare(STATEMENT, "requests of a step whose items are computed", set(), {*computed} - {*reported})
        self._goes = []
        self._there.difference_update(forgotten)
        # The encoder runs before the model, for all requests of the step.
        self.anew -= reported.keys()
        items = [self.population[number].keys.media[place] for number, place in announced]
        self._there.update(item.identifier for item in items if self.loaded(item))
        for number, each in reported.items():
            due = self._reached(number, each.start, each.start + each.tokens + self.shift)
            for place in computed.get(number, ()):
                new = place in due and due[place] not in self._there
                self._compare(STATEMENT, f"item {place} of request {number}, which is computed, is due", True, new)
                self._there.add(due[place])
        for number, each in reported.items():
            end = each.start + each.tokens
            reads = self._read(number, each.start, end)
            self.passed_over -= reads
            self._compare_read(f"request {number}", reads)
            if self.shift:
                drafted = self._read(number, each.start + self.shift, end + self.shift)
                self._compare_read(f"the draft layer of request {number}", drafted)
        sizes = [
            self.population[number].keys.media[place].length_tokens
            for number in {*reported}.intersection(self.population.alive)
            for place in computed.get(number, ())
        ]
        self._compare(STATEMENT, "the encoder's budget holds", True, sum(sizes) <= self.budget)

    def _read(self, number: int, start: int, end: int) -> set[tuple[int, str]]:
        return {(number, item) for item in self._reached(number, start, end).values()}

    def _compare_read(self, reader: str, reads: Collection[tuple[int, str]]) -> None:
        self.missing = {(number, item) for number, item in reads if item not in self._there}
        missing = {item for _, item in self.missing}
        self._compare(NEEDED, f"items that {reader} reads, and that are not there", set(), missing)
        self.missing = set()

    def _reached(self, number: int, start: int, end: int) -> dict[int, str]:
        """The items of a request with tokens from ``start`` to ``end``, by place."""
        media = self.population[number].keys.media if number in self.population.alive else ()
        return {
            place: item.identifier
            for place, item in enumerate(media)
            if item.offset_tokens < end and start < item.offset_tokens + item.length_tokens
        }

    def rest(self) -> None:
        """A step was taken: a running request keeps the items in which it stands and no others."""
        for number, request in self.population.alive.items():
            stands = {
                item.identifier
                for item in request.keys.media
                if item.offset_tokens < request.tokens_computed < item.offset_tokens + item.length_tokens
            }
            ends = {item.offset_tokens + item.length_tokens: item.identifier for item in request.keys.media}
            ended = {item for end, item in ends.items() if end <= request.tokens_computed}
            to_come = {item for end, item in ends.items() if end > request.tokens_computed}
            kept = self.kept.of(number)
            if request.status is Status.WAITING:
                waits = kept - self._found.get(number, set())
                self._compare("KV-LEAK-01", f"items that request {number} keeps while it waits", set(), waits)
            if request.status is Status.RUNNING:
                # An item that a request has at two places is released with the first: the next step asks for it again.
                missing = set() if number in self.anew else stands - ended - kept
                self._compare(NEEDED, f"items in which request {number} stands are kept", set(), missing)
                self._compare(
                    "KV-LEAK-01", f"items that request {number} has passed are kept", set(), kept & ended - to_come
                )
        self._found = {number: items for number, items in self._found.items() if number in self.population.alive}
        gone = set().union(*self.kept.users.values()) - set(self.population.alive) if self.kept.users else set()
        self._compare("KV-LEAK-01", "requests that have ended and keep items", set(), gone)

    def _compare(self, statement: str, subject: str, expected: object, got: object) -> None:
        if expected != got:
            self._check("encoder", Difference(statement, subject, str(expected), str(got)))
