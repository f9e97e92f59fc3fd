"""Every call of a followed block manager, told as an operation of the gate.

What a scheduler asks of its block manager is told in the gate's alphabet, one operation for each decision: the look-up,
the gate and the slots of a request that is let in are one ``Admit``. So the reference, and every monitor, judges what
the scheduler really did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kvgate.adapters.native import called_meanwhile
from kvgate.adapters.translate import event_of, ids_of, in_our_words
from kvgate.levels.scheduler.adapter.followed import Followed
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.batch import All, Due
from kvgate.levels.scheduler.nodes import OtherNodes
from kvreference.answers import Answer, Done, Granted, Happened, Hit, Refused, Shared, Success
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


class Interception:
    """Every call of a block manager that decides something, told as an operation.

    What a call means depends on where the request stands, and on the other nodes: its blocks are taken back, or not
    needed any more, or what it waited for is there.
    """

    def __init__(self, followed: Followed, nodes: OtherNodes, tell: Tell) -> None:
        self.followed = followed
        self.nodes = nodes
        self.tell = tell
        self.refused: dict[int, Refused] = {}
        """Who was refused since somebody looked last."""
        self.shared: tuple[int, ...] | None = None
        """What was answered when somebody asked what all that run share, in this step."""
        self.preempted: set[int] = set()
        """Who was preempted in this step."""
        self.answers: dict[int, Sample] = {}
        """What the model answered, and the scheduler has not taken yet, where it is told when that does."""
        self._looked_up: tuple[int, Hit] | None = None
        """A look-up that no admission has followed yet."""
        manager: Any = followed.manager
        for name in _INTERCEPTED:
            if hasattr(manager, name):
                setattr(manager, name, getattr(self, f"_{name}")(getattr(manager, name)))

    def begin(self) -> None:
        """A step begins."""
        self.refused.clear()
        if not self.followed.scheduling.tells_preempted_later:
            self.preempted.clear()
        self.shared = None

    def granted(self, due: Mapping[int, Due]) -> All:
        """What was granted in this step to all together, and what each of them is ``due``."""
        shared = self.shared or (0,) * len(self.followed.settings.geometry.groups)
        preempted, self.preempted = frozenset(self.preempted), set()
        return All(sum(each.tokens for each in due.values()), shared, preempted)

    def _say(self, operation: Operation, answer: Answer) -> None:
        self.settle_look_up(operation)
        if isinstance(operation, Preempt):
            self.preempted.add(operation.request)
        if isinstance(answer, Shared):
            self.shared = answer.blocks
        if isinstance(answer, Refused) and isinstance(operation, (Admit, Schedule)):
            self.refused[operation.request] = answer
        self.tell(operation, answer)

    def _settle_others(self, number: int) -> None:
        """A request is about to be asked for: a look-up of another one was one for itself."""
        if self._looked_up is not None and self._looked_up[0] != number:
            self.settle_look_up()

    def settle_look_up(self, operation: Operation | None = None) -> None:
        """A look-up is part of the admission behind it; if there is none, it was one for itself."""
        if self._looked_up is None:
            return
        number, hit = self._looked_up
        self._looked_up = None
        if not (isinstance(operation, Admit) and operation.request == number):
            self.tell(LookUp(number), hit)

    def flush(self) -> None:
        """Whatever was asked, and taken, so far is told."""
        self.settle_look_up()
        for number in [*self.answers]:
            self._settle_answer(number)

    def _settle_answer(self, number: int) -> None:
        """The scheduler takes the answer to a request, if there is one."""
        answer = self.answers.pop(number, None)
        if answer is not None:
            self.tell(answer, Done())

    # The calls

    def _get_computed_blocks(self, original: Any) -> Any:
        def get_computed_blocks(request: Request, *limits: int | None) -> tuple[Any, ...]:
            self.settle_look_up()
            found: tuple[Any, ...] = original(request, *limits)
            blocks, tokens = found[:2]
            self._looked_up = number_of(request), Hit(tokens, ids_of(blocks))
            return found

        return get_computed_blocks

    def _can_fit_full_sequence(self, original: Any) -> Any:
        def can_fit_full_sequence(request: Request, num_new_computed_tokens: int = 0, **others: Any) -> bool:
            self._settle_others(number_of(request))
            fits = bool(original(request, num_new_computed_tokens=num_new_computed_tokens, **others))
            if not fits:
                number = number_of(request)
                external = int(others.get("num_external_computed_tokens", 0))
                tokens = self.followed.settings.chunk_tokens
                admission = Admit(number, tokens, external, external > 0 and self.nodes.waits_for(number))
                self._say(admission, Refused(num_new_computed_tokens, gate=True))
            return fits

        return can_fit_full_sequence

    def _allocate_slots(self, original: Any) -> Any:
        def allocate_slots(
            request: Request,
            num_new_tokens: int,
            num_new_computed_tokens: int = 0,
            new_computed_blocks: KVCacheBlocks | None = None,
            num_lookahead_tokens: int = 0,
            num_external_computed_tokens: int = 0,
            delay_cache_blocks: bool = False,
            **others: Any,
        ) -> KVCacheBlocks | None:
            number, hit, external = number_of(request), num_new_computed_tokens, num_external_computed_tokens
            self._settle_others(number)
            runs = request.status.name == "RUNNING"
            held = self.followed._tables(number)
            had = held if any(held) or new_computed_blocks is None else ids_of(new_computed_blocks)
            start = 0 if runs else request.num_computed_tokens + hit + external
            coordinator = self.followed.manager.coordinator
            with called_meanwhile(coordinator, "remove_skipped_blocks") as released:
                granted: KVCacheBlocks | None = original(
                    request,
                    num_new_tokens,
                    num_new_computed_tokens=hit,
                    new_computed_blocks=new_computed_blocks,
                    num_lookahead_tokens=num_lookahead_tokens,
                    num_external_computed_tokens=external,
                    delay_cache_blocks=delay_cache_blocks,
                    **others,
                )
            tokens = max(1, num_new_tokens)
            operation = Schedule(number, tokens) if runs else Admit(number, tokens, external, delay_cache_blocks)
            self.settle_look_up(operation)
            pads = num_new_tokens - (request.num_tokens - start)
            if self.followed.scheduling.pads_drafts and not (runs or delay_cache_blocks) and pads > 0:
                self.followed.pads(number, pads)
            self.followed.keeps(others.get("reserved_blocks", 0))
            if granted is None:
                # A gate refuses before anything is released, and the step after.
                self._say(operation, Refused(hit, gate=bool(others.get("full_sequence_must_fit")) and not released))
            else:
                gained = self.followed._gained(number, had, start)
                self._say(operation, Granted(hit, gained, external, delay_cache_blocks))
            return granted

        return allocate_slots

    def _free(self, original: Any) -> Any:
        def free(request: Request) -> None:
            number = number_of(request)
            self.settle_look_up()
            self._settle_answer(number)
            operation = self._end_of(number, request)
            original(request)
            if request.is_finished():
                self.followed.leave(number)
            self._say(operation, Done())

        return free

    def _pop_blocks_for_free(self, original: Any) -> Any:
        def pop_blocks_for_free(request: Request) -> list[Any]:
            # Its blocks are given up, though the pool gets them when the steps in flight are over.
            number = number_of(request)
            self.settle_look_up()
            operation = self._end_of(number, request)
            popped: list[Any] = original(request)
            if request.is_finished():
                self.followed.leave(number)
            self._say(operation, Done())
            return popped

        return pop_blocks_for_free

    def _end_of(self, number: int, request: Request) -> Operation:
        """Why a request gives up its blocks."""
        ours = self.followed.population.alive.get(number)
        if ours is not None and ours.status is Status.ENDING:
            return Transferred(number)
        if ours is not None and ours.status is Status.LOADING and number in self.nodes.reported:
            return Transferred(number, succeeded=False)
        if not request.is_finished():
            return Preempt(number)
        runs = ours is None or ours.status is Status.RUNNING
        return Finish(number) if runs and request.status.name != "FINISHED_ABORTED" else Abort(number)

    def _cache_blocks(self, original: Any) -> Any:
        def cache_blocks(request: Request, num_computed_tokens: int) -> None:
            self.settle_look_up()
            original(request, num_computed_tokens)
            number = number_of(request)
            self._settle_answer(number)
            ours = self.followed.population.alive.get(number)
            if ours is not None and ours.status is Status.LOADING:
                self._say(Transferred(number), Done())

        return cache_blocks

    def _remove_skipped_blocks(self, original: Any) -> Any:
        def remove_skipped_blocks(request_id: str, *computed: int, **named: int) -> None:
            number = number_in(request_id)
            self.settle_look_up()
            self._settle_answer(number)
            original(request_id, *computed, **named)
            ours = self.followed.population.alive.get(number)
            # Whoever is read by another node gives them up by ending.
            read = self.nodes.would_read(number, ended_well(self.followed.request(number)))
            if ours is not None and ours.status is Status.RUNNING and not read:
                self._say(ReleaseSkipped(number), Done())

        return remove_skipped_blocks

    def _get_num_common_prefix_blocks(self, original: Any) -> Any:
        def get_num_common_prefix_blocks(request_id: str) -> list[int]:
            shared: list[int] = original(request_id)
            self._say(CommonPrefix(number_in(request_id)), Shared(tuple(shared)))
            return shared

        return get_num_common_prefix_blocks

    def _evict_blocks(self, original: Any) -> Any:
        def evict_blocks(block_ids: set[int]) -> None:
            self.settle_look_up()
            for block in sorted(block_ids):
                original({block})
                self._say(Evict(block), Done())

        return evict_blocks

    def _reset_prefix_cache(self, original: Any) -> Any:
        def reset_prefix_cache() -> bool:
            self.settle_look_up()
            succeeded = bool(original())
            self._say(Reset(), Success(succeeded))
            return succeeded

        return reset_prefix_cache

    def _take_events(self, original: Any) -> Any:
        def take_events() -> list[Any]:
            events: list[Any] = original()
            self._say(TakeEvents(), Happened(tuple(event_of(event) for event in events)))
            return events

        return take_events

    def _make_prefix_cache_stats(self, original: Any) -> Any:
        def make_prefix_cache_stats() -> Any:
            taken = original()
            if taken is not None:
                self._say(TakeStatistics(), in_our_words(taken))
            return taken

        return make_prefix_cache_stats


_INTERCEPTED = (
    "get_computed_blocks",
    "can_fit_full_sequence",
    "allocate_slots",
    "free",
    "pop_blocks_for_free",
    "cache_blocks",
    "remove_skipped_blocks",
    "get_num_common_prefix_blocks",
    "evict_blocks",
    "reset_prefix_cache",
    "take_events",
    "make_prefix_cache_stats",
)


def number_of(request: Request) -> int:
    """The gate's number of a request of vLLM."""
    return number_in(request.request_id)


def ended_well(request: Request) -> bool:
    """Whether a request came to the end that it was to come to."""
    return request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
