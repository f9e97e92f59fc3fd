"""Every call of a followed block manager, as an operation of the gate.

A scheduler's calls of its block manager are translated to the gate's alphabet, one operation for each decision. The
look-up, the gate and the slots of an admitted request are one ``Admit``. So the reference, and every monitor, checks
what the scheduler really did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import frozen

from kvgate.adapters.tap import CALLS, Raises, Tap
from kvgate.adapters.translate import event_of, ids_of, to_statistics
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.batch import All, Due
from kvgate.levels.scheduler.nodes import OtherNodes
from kvreference.answers import Answer, BlockTable, Done, Granted, Happened, Hit, Refused, Shared, Success
from kvreference.attention import Kind
from kvreference.operations import (
    Abort,
    Admit,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Status

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request

Tell = Callable[[Operation, Answer], None]
"""Called for every operation, when it was performed, with the answer that the scheduler got."""


@frozen
class Asking:
    """Where a request stood when slots were asked for."""

    runs: bool
    had: Sequence[Sequence[int]]
    start: int


class Interception(Raises):
    """Every call of a block manager that decides something, as an operation.

    What a call means depends on where the request stands, and on the other nodes: its blocks are taken back, or not
    needed any more, or what it waited for is there.
    """

    def __init__(self, followed: Followed, nodes: OtherNodes, tell: Tell) -> None:
        self.followed = followed
        self.nodes = nodes
        self.tell = tell
        self.refused: dict[int, Refused] = {}
        """The requests rejected since the last look."""
        self.shared: tuple[int, ...] | None = None
        """The answer to the call for what all running requests share, in this step."""
        self.preempted: set[int] = set()
        """Who was preempted in this step."""
        self.answers: dict[int, Sample] = {}
        """What the model answered and the scheduler has not taken yet, where the answer is sent when it does."""
        self.events: list[bytes] = []
        """The events that were taken, as they were then, until they are taken from here."""
        self.resets: list[bool] = []
        """Whether each reset was done, since the last look."""
        self._granted: dict[int, Granted] = {}
        """What was granted to whom in this step."""
        self._allocated: list[BlockTable] = []
        """The blocks that were allocated in this step and are zeroed if any are, each time by group."""
        self._looked_up: tuple[int, Hit] | None = None
        """A look-up that no admission has followed yet."""
        self._asking = Asking(runs=False, had=(), start=0)
        self._has_released = False
        """Whether the coordinator released blocks since slots were asked for."""
        self._ending: Operation | None = None
        """Why the request that is releasing its blocks does so."""
        manager: Any = followed.manager
        tap = Tap(self)
        tap.listen(manager, tuple(name for name in CALLS if hasattr(manager, name)))
        tap.watch(manager.coordinator, "remove_skipped_blocks", before=self._released)
        if hasattr(manager, "evict_blocks"):
            tap.put(manager, "evict_blocks", self._one_by_one(manager.evict_blocks))

    def begin(self) -> None:
        """A step begins."""
        self.refused.clear()
        if not self.followed.scheduling.reports_preempted_later:
            self.preempted.clear()
        self.shared = None
        self._granted, self._allocated = {}, []

    def hit_of(self, number: int) -> int | None:
        """The hit of a request that was just looked up."""
        return self._looked_up[1].tokens if self._looked_up is not None and self._looked_up[0] == number else None

    def external_of(self, number: int) -> int | None:
        """How many tokens from other nodes a request was granted blocks for in this step."""
        granted = self._granted.get(number)
        return None if granted is None else granted.external_tokens

    def granted(self, due: Mapping[int, Due]) -> All:
        """What was granted in this step to all together, and what each of them is ``due``."""
        shared = self.shared or (0,) * len(self.followed.settings.geometry.groups)
        preempted, self.preempted = frozenset(self.preempted), set()
        groups = self.followed.settings.geometry.groups
        windows = self.followed.scheduling.zeroes_windows
        zeroed = [
            block
            for index, group in enumerate(groups)
            for allocated in self._allocated
            for block in allocated[index]
            if any(each.keeps_states for each in groups)
            and (group.kind is Kind.FULL or (windows and not group.keeps_states))
        ]
        return All(sum(each.tokens for each in due.values()), shared, preempted, tuple(zeroed))

    def _say(self, operation: Operation, answer: Answer) -> None:
        self.settle_look_up(operation)
        if isinstance(operation, Preempt):
            self.preempted.add(operation.request)
        if isinstance(answer, Shared):
            self.shared = answer.blocks
        if isinstance(answer, Refused) and isinstance(operation, (Admit, Schedule)):
            self.refused[operation.request] = answer
        if isinstance(answer, Granted) and isinstance(operation, (Admit, Schedule)):
            self._granted[operation.request] = answer
            if self.followed.scheduling.zeroes_loaded or not answer.loads:
                self._allocated.append(answer.blocks)
        self.tell(operation, answer)

    def _settle_others(self, number: int) -> None:
        """A request is about to be asked for: a look-up of another one was one for itself."""
        if self._looked_up is not None and self._looked_up[0] != number:
            self.settle_look_up()

    def settle_look_up(self, operation: Operation | None = None) -> None:
        """A look-up is part of the admission that follows it; without one, it is an operation of its own."""
        if self._looked_up is None:
            return
        number, hit = self._looked_up
        self._looked_up = None
        if not (isinstance(operation, Admit) and operation.request == number):
            self.tell(LookUp(number), hit)

    def flush(self) -> None:
        """Emit everything that was asked, and taken, so far."""
        self.settle_look_up()
        for number in [*self.answers]:
            self._settle_answer(number)

    def _settle_answer(self, number: int) -> None:
        """The scheduler takes the answer to a request, if there is one."""
        answer = self.answers.pop(number, None)
        if answer is not None:
            self.tell(answer, Done())

    # The calls

    def before_get_computed_blocks(self, *_arguments: Any, **_named: Any) -> None:
        self.settle_look_up()

    def after_get_computed_blocks(self, found: tuple[Any, ...], request: Request, *_limits: int | None) -> None:
        blocks, tokens = found[:2]
        self._looked_up = number_of(request), Hit(tokens, ids_of(blocks))

    def before_can_fit_full_sequence(self, request: Request, *_arguments: Any, **_named: Any) -> None:
        self._settle_others(number_of(request))

    def after_can_fit_full_sequence(
        self, fits: bool, request: Request, num_new_computed_tokens: int = 0, **others: Any
    ) -> None:
        if not fits:
            number = number_of(request)
            external = int(others.get("num_external_computed_tokens", 0))
            tokens = self.followed.settings.chunk_tokens
            admission = Admit(number, tokens, external, external > 0 and self.nodes.waits_for(number))
            self._say(admission, Refused(num_new_computed_tokens, gate=True))

    def before_allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        **_others: Any,
    ) -> None:
        del num_new_tokens, num_lookahead_tokens
        number = number_of(request)
        self._settle_others(number)
        runs = request.status.name == "RUNNING"
        held = self.followed._tables(number)
        self._asking = Asking(
            runs,
            held if any(held) or new_computed_blocks is None else ids_of(new_computed_blocks),
            0 if runs else request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens,
        )
        self._has_released = False

    def _released(self, *_arguments: Any, **_named: Any) -> None:
        self._has_released = True

    def after_allocate_slots(
        self,
        granted: KVCacheBlocks | None,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        **others: Any,
    ) -> None:
        del new_computed_blocks, num_lookahead_tokens
        asking, loads = self._asking, delay_cache_blocks
        number, hit, external = number_of(request), num_new_computed_tokens, num_external_computed_tokens
        tokens = max(1, num_new_tokens)
        operation = Schedule(number, tokens) if asking.runs else Admit(number, tokens, external, loads)
        self.settle_look_up(operation)
        pads = num_new_tokens - (request.num_tokens - asking.start)
        if self.followed.scheduling.pads_drafts and not (asking.runs or loads) and pads > 0:
            self.followed.pads(number, pads)
        self.followed.keeps(others.get("reserved_blocks", 0))
        if granted is None:
            # A gate rejects before anything is released, and the step after.
            gated = bool(others.get("full_sequence_must_fit")) and not self._has_released
            self._say(operation, Refused(hit, gate=gated))
        else:
            gained = self.followed._gained(number, asking.had, asking.start)
            self._say(operation, Granted(hit, gained, external, loads))

    def before_free(self, request: Request) -> None:
        number = number_of(request)
        self.settle_look_up()
        self._settle_answer(number)
        self._ending = self._end_of(number, request)

    def after_free(self, _answer: object, request: Request) -> None:
        ending = self._ending
        assert ending is not None, "it was seen before the call"
        if request.is_finished():
            self.followed.leave(number_of(request))
        self._say(ending, Done())

    def before_pop_blocks_for_free(self, request: Request) -> None:
        # The request releases its blocks, although the pool gets them when the steps in flight are over.
        self.settle_look_up()
        self._ending = self._end_of(number_of(request), request)

    def after_pop_blocks_for_free(self, blocks: Sequence[Any], request: Request) -> None:
        # The scheduler has yet to note them.
        self.followed.popped = [blocks]
        self.after_free(None, request)
        self.followed.popped = []

    def _end_of(self, number: int, request: Request) -> Operation:
        """Why a request releases its blocks."""
        ours = self.followed.population.alive.get(number)
        if ours is not None and ours.status is Status.ENDING:
            return Transferred(number)
        if ours is not None and ours.status is Status.LOADING and number in self.nodes.reported:
            return Transferred(number, succeeded=False)
        if not request.is_finished():
            return Preempt(number)
        runs = ours is None or ours.status is Status.RUNNING
        return Finish(number) if runs and request.status.name != "FINISHED_ABORTED" else Abort(number)

    def before_cache_blocks(self, *_arguments: Any, **_named: Any) -> None:
        self.settle_look_up()

    def after_cache_blocks(self, _answer: None, request: Request, *_arguments: Any, **_named: Any) -> None:
        number = number_of(request)
        self._settle_answer(number)
        ours = self.followed.population.alive.get(number)
        if ours is not None and ours.status is Status.LOADING:
            self._say(Transferred(number), Done())

    def before_remove_skipped_blocks(self, request_id: str, *_computed: int, **_named: int) -> None:
        self.settle_look_up()
        self._settle_answer(number_in(request_id))

    def after_remove_skipped_blocks(self, _answer: None, request_id: str, *_computed: int, **_named: int) -> None:
        number = number_in(request_id)
        ours = self.followed.population.alive.get(number)
        # A request that another node reads releases its blocks when it ends.
        read = self.nodes.would_read(number, ended_well(self.followed.request(number)))
        if ours is None or read:
            return
        continued = ours.status is Status.WAITING and ours.parts > 1
        if continued or ours.status in (Status.RUNNING, Status.PAUSED):
            self._say(ReleaseSkipped(number), Done())

    def after_get_num_common_prefix_blocks(self, shared: list[int], request_id: str) -> None:
        self._say(CommonPrefix(number_in(request_id)), Shared(tuple(shared)))

    def _one_by_one(self, original: Callable[[set[int]], None]) -> Callable[[set[int]], None]:
        """Evictions, made and reported block by block: each is an operation of its own."""

        def evict_blocks(block_ids: set[int]) -> None:
            self.settle_look_up()
            for block in sorted(block_ids):
                original({block})
                self._say(Evict(block), Done())

        return evict_blocks

    def before_reset_prefix_cache(self) -> None:
        self.settle_look_up()

    def after_reset_prefix_cache(self, succeeded: bool) -> None:
        self.resets.append(bool(succeeded))
        self._say(Reset(), Success(bool(succeeded)))

    def after_take_events(self, events: list[Any]) -> None:
        self.events += map(msgspec.msgpack.encode, events)
        self._say(TakeEvents(), Happened(tuple(event_of(event) for event in events)))

    def after_make_prefix_cache_stats(self, taken: Any) -> None:
        if taken is not None:
            self._say(TakeStatistics(), to_statistics(taken))


def number_of(request: Request) -> int:
    """The gate's number of a request of vLLM."""
    return number_in(request.request_id)


def ended_well(request: Request) -> bool:
    """Whether a request came to the end that it was to come to."""
    return request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
