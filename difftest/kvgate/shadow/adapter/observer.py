"""Reports a live scheduler's calls of its block manager, call by call.

The engine's own call is always made first, and its answer is always what the engine gets. An error here ends the shadow
and nothing else. Only what is needed is read: a call costs a few microseconds, independent of the context length.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from kvgate.adapters.tap import CALLS, Tap
from kvgate.adapters.translate import to_statistics
from kvgate.kernel.shadow_switch import STALL_SECONDS
from kvgate.kernel.text import printable
from kvgate.shadow import calls
from kvgate.shadow.adapter.engine_state import LOST_TOKENS, Followed, RequestBook, checkpoint_of, event_runs, more_of
from kvgate.shadow.adapter.log import raised_at, warn
from kvgate.shadow.adapter.stall_watch import StallWatch, start
from kvgate.shadow.calls import After, Blocks, Raw, Registered
from kvgate.shadow.sampling import Sampling
from kvgate.shadow.sink_protocol import DifferenceError, Sink

OPTIONAL = ("can_fit_full_sequence",)
"""The calls that a followed release may lack. Without any other, nothing would be checked, and that would not show."""
_NOTHING: list[int] = []
TAIL = 4
"""How many of the last free blocks are read after each call."""
FREED_TAIL = 64
"""The same after a request has freed its blocks: their order decides what is forgotten first."""
_WINDOWED = ("SlidingWindowSpec", "ChunkedLocalAttentionSpec")
"""The specs of layers with a window."""
_CACHED = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size", "kv_cache_group_id")
"""The parameters of ``cache_full_blocks``."""
_Pool: TypeAlias = tuple[int, int, tuple[int, ...]]
"""The fields of ``After``."""
SHARE_OF_TIME = 200
"""A checkpoint may take this part of the time since the one before, and no more."""
ASKED_EVERY_STEPS = 16
"""How often the sink is asked whether it wants a checkpoint, and the least distance of two that it wants; the distance
doubles with each."""
ASKED_SHARE_OF_TIME = 20
"""A checkpoint that the sink asks for, after a difference, may take this part of the time."""
NOT_GIVEN = -1
TEXT_CHARACTERS_MAX = 300
"""How much of an exception's text is logged."""
SHARED_EVERY_STEPS = 16
"""How often the shared prefix is reported: checking it reads every table."""


class Observer:
    """Listens to the calls of one scheduler and its block manager, and passes them to a sink.

    ``on_failure`` is called with what went wrong in the shadow itself; then everything is as it was before. Only a
    difference in the mode strict is raised.
    """

    def __init__(
        self,
        scheduler: Any,
        sink: Sink,
        on_failure: Callable[[BaseException], None],
        *,
        checkpoint_calls: int = 20_000,
        share_of_time: int = SHARE_OF_TIME,
        sampling: Sampling | None = None,
        stall_seconds: float = STALL_SECONDS,
        counts_in_flight: bool = False,
    ) -> None:
        from vllm.v1.request import RequestStatus

        self.on_failure = on_failure
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.sink = sink
        self.checkpoint_calls = checkpoint_calls
        self.share_of_time = share_of_time
        self.sampling = sampling or Sampling()
        self.steps = 0
        self._running = RequestStatus.RUNNING
        self._records: list[Raw] = []
        self._decoding: list[Any] = []
        """The requests of the calls since the last record that running requests made for slots."""
        self._computed: list[int] = []
        self._slots: list[int] = []
        self._unsure: list[int] = []
        """Of each of these calls what ``calls.Decoding`` says."""
        self._changing: list[calls.Changing] = []
        """Those of them that changed the pool."""
        self._lookahead_tokens = -2
        """What all of them asked for; -2 before the first call, which no call asks for."""
        self._rows: tuple[list[Any], int, list[Followed], list[int]] = [], 0, [], []
        """The requests of the last ones that were passed on, at which version of the book, and their numbers."""
        self._seen: _Pool = 0, 0, ()
        """The pool after the last call that changed it."""
        self._seen_before: _Pool = self._seen
        """The pool before the first of those calls."""
        self._blocks_free = -1
        """How many blocks were free in ``_seen``; -1 if something has changed since."""
        self._calls = 0
        self._registered: list[tuple[int, int, list[int]]] = []
        """What was cached since the last record: the group, the first position, and the blocks."""
        self._granted: dict[str, tuple[bool, Blocks]] = {}
        """What the requests that were given blocks in this step were given: whether it is whole, and the blocks."""
        self._computing: set[int] = set()
        """The outputs of steps, by ``id``, whose result the worker has still to return."""
        self._logged: tuple[int, str] = (0, "")
        """In which step the last exception was logged, and where that one was raised."""
        self._publishes = bool(self.pool.enable_kv_cache_events)
        self._was_asked = False
        self._asked_from_step = 0
        """No checkpoint that the sink asks for is sent before this step."""
        self._asked_interval_steps = ASKED_EVERY_STEPS
        self._has_cached = False
        """Whether anything was cached since the events were last taken."""
        specs = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
        self._nothing: Blocks = [_NOTHING] * len(specs)
        self._empty = self.manager.empty_kv_cache_blocks
        self._counts_in_flight = counts_in_flight
        """Whether a request releases nothing by the tokens whose steps are in flight."""
        self._has_states = any(type(spec).__name__ == "MambaSpec" for spec in specs)
        managers = self.manager.coordinator.single_type_managers
        self._windowed = [
            each.req_to_blocks
            for each, spec in zip(managers, specs, strict=True)
            if any(kind.__name__ in _WINDOWED for kind in type(spec).__mro__)
        ]
        self.book = RequestBook(len(self._windowed))
        self.tap = Tap(self, is_on=False)
        self._clocks: threading.Event | None = None
        self._started = self._checkpoint_at = time.monotonic()
        self._checkpoint_seconds = 0.0
        self._start("the engine starts")
        try:
            self._listen()
            self.stalls = StallWatch(
                *(scheduler, self._number_of, lambda: self.steps, lambda: bool(self._computing), stall_seconds)
            )
            self._clocks = start(self.stalls, self, sink.report_stalls)
        except Exception:
            # A vLLM that lacks something is not left with half a shadow.
            self.detach()
            raise

    # Being there, and going away

    def _listen(self) -> None:
        manager = self.manager
        names = {name for name in CALLS if name not in OPTIONAL or hasattr(manager, name)}
        if not (self.sink.is_immediate or self._has_states):
            names.remove("allocate_slots")
            self.tap.put(manager, "allocate_slots", self._allocating(manager.allocate_slots))
        self.tap.listen(manager, tuple(sorted(names)))
        self.tap.watch(self.manager, "new_step_starts", before=self._begin_step, always=True)
        self.tap.put(self.pool, "cache_full_blocks", self._caching(self.pool.cache_full_blocks))
        self.tap.watch(self.scheduler, "add_request", after=self._added)
        self.tap.watch(self.scheduler, "schedule", after=self._scheduled)
        self.tap.watch(self.scheduler, "update_from_output", after=self._returned)
        self.tap.watch(self.scheduler, "finish_requests", after=self._ended)

    def at_shutdown(self, then: Callable[[], None]) -> None:
        """Have ``then`` called when the engine ends its scheduler."""
        self.tap.watch(self.scheduler, "shutdown", before=then, always=True)

    def detach(self) -> None:
        """Everything is as it was before."""
        self.tap.close()
        self._rows = [], 0, [], []
        if self._clocks is not None:
            self._clocks.set()

    def _number_of(self, name: str) -> int:
        followed = self.book.followed.get(name)
        return -1 if followed is None else followed.number

    def raised(self, name: str, error: BaseException, arguments: Sequence[Any]) -> None:
        """The engine's own call raised: this, and what was observed until then, is passed on while there is time."""
        if not self.tap.is_on or isinstance(error, DifferenceError):
            return
        with suppress(Exception):
            about = arguments[0] if arguments else None
            followed = self.book.followed.get(str(getattr(about, "request_id", about)))
            number = -1 if followed is None else followed.number
            # What the call had cached until then is not the next call's.
            self._registered.clear()
            raised = calls.Raised(name, type(error).__name__, raised_at(error), number)
            self._emit(raised)
            self.flush()
            if raised.is_error and self._logged != (self.steps, raised.where):
                # An exception passes several calls on its way.
                self._logged = self.steps, raised.where
                warn(f"observed: {raised.headline}: {printable(str(error), TEXT_CHARACTERS_MAX)}")

    def failed(self, error: Exception) -> bool:
        """The shadow is over, and the engine continues; but a difference in the mode strict is the engine's to see."""
        if isinstance(error, DifferenceError):
            return False
        self.detach()
        self.on_failure(error)
        return True

    # Steps

    def _begin_step(self) -> None:
        self.steps += 1
        wanted = self.sampling.is_sampled(self.steps)
        is_ready = self.sink.ready()
        # What was lost leaves a gap, even if there is room again by now.
        is_whole = is_ready and not self.sink.lost
        if self.tap.is_on and not (wanted and is_whole):
            if is_whole:
                # A later restart learns from this checkpoint what today's blocks hold.
                self._emit_checkpoint()
                self.flush()
            self.tap.is_on = False
            self._computing.clear()
        elif wanted and is_ready:
            if not self.tap.is_on:
                if self._may_take_time():
                    self._start("calls were lost" if self.sink.lost else "only a sample is observed")
            elif self._calls >= self.checkpoint_calls and self._may_take_time():
                self._emit_checkpoint()
            else:
                self._answer()
        if self.tap.is_on:
            self._emit(calls.Step(self.steps, int((time.monotonic() - self._started) * 1000)))

    def _answer(self) -> None:
        """Where the sink wants a checkpoint before its time, send one as soon as it may take the time."""
        if self.steps % ASKED_EVERY_STEPS == 0 and self.sink.wants_checkpoint():
            self._was_asked = True
        is_due = self._was_asked and self.steps >= self._asked_from_step
        if is_due and self._may_take_time(ASKED_SHARE_OF_TIME):
            self._emit_checkpoint()
            # A difference that recurs is not to cost a checkpoint each time.
            self._asked_from_step = self.steps + self._asked_interval_steps
            self._asked_interval_steps *= 2

    def _may_take_time(self, share_of_time: int | None = None) -> bool:
        share = self.share_of_time if share_of_time is None else min(share_of_time, self.share_of_time)
        return time.monotonic() - self._checkpoint_at >= share * self._checkpoint_seconds

    def _start(self, because: str) -> None:
        """Begin, or begin again, with all that is alive."""
        begun = time.monotonic()
        self._records.clear()
        for calls_before in (self._decoding, self._computed, self._slots, self._unsure, self._changing):
            calls_before.clear()
        self._blocks_free = -1
        self._emit(calls.Restart(self.sink.lost, because))
        self.sink.lost = 0
        self._registered.clear()
        self._granted.clear()
        self._computing.clear()
        self.book.clear()
        for request in self.scheduler.requests.values():
            self._emit(self.book.arrival_of(request))
        self._emit_checkpoint()
        # The tokens of all live requests are sent as well.
        self._checkpoint_seconds = self._checkpoint_at - begun
        self.tap.is_on = True

    def _emit_checkpoint(self) -> None:
        begun = time.monotonic()
        self._emit(checkpoint_of(self.scheduler, self.book))
        # Sending takes time as well.
        self.flush()
        self._checkpoint_at = time.monotonic()
        self._checkpoint_seconds = self._checkpoint_at - begun
        self._calls, self._was_asked = 0, False

    def flush(self) -> None:
        """Send the observations to the sink."""
        records = self._records
        if self._decoding:
            self._end_decoding()
        if self._rows[1] != self.book.version:
            # Requests that are over are not held.
            self._rows = [], 0, [], []
        if records:
            self._calls += calls.calls_in(records)
            try:
                self.sink.send(records)
            finally:
                records.clear()

    def end(self) -> None:
        """Nothing follows."""
        # Where calls were lost, something is missing at the end.
        if self.tap.is_on or not (self.tap.is_closed or self.sink.lost):
            self._emit(calls.End())
            self.flush()
        self.detach()

    def _emit(self, record: Raw) -> None:
        if self._decoding:
            self._end_decoding()
        self._records.append(record)
        if self.sink.is_immediate:
            self.flush()

    def _end_decoding(self) -> None:
        """Pass on the calls of running requests: what they say of tokens has not changed since."""
        if self._rows[0] != self._decoding or self._rows[1] != self.book.version:
            followed = [self.book.followed[request.request_id] for request in self._decoding]
            self._rows = self._decoding.copy(), self.book.version, followed, [each.number for each in followed]
        _, _, followed, numbers = self._rows
        texts = [request._all_token_ids for request in self._decoding]
        ones = [1] * len(texts)
        appended: list[int] = []
        for each, length in zip(followed, map(len, texts), strict=True):
            appended.append(length - each.tokens)
            each.tokens = length
        if appended == ones:
            appended, tokens = [], [text[-1] for text in texts]
        else:
            if min(appended) < 0:
                raise ValueError(LOST_TOKENS)
            tokens = [token for text, count in zip(texts, appended, strict=True) for token in text[len(text) - count :]]
        before = self._seen_before if self._changing else self._seen
        slots = [] if self._slots == ones else self._slots.copy()
        asked = self._computed.copy(), slots, self._unsure.copy()
        changing, self._changing = self._changing, []
        self._records.append(
            calls.Decoding(self._lookahead_tokens, numbers, *asked, appended, tokens, before, changing)
        )
        for done in (self._decoding, self._computed, self._slots, self._unsure):
            done.clear()

    def _allocating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around ``allocate_slots``: calls of running requests are passed on together, at the end of the step.

        It is the hottest path, once for each request of each step. So it reads only what is another thing later.
        """
        tap, queue, running = self.tap, self.pool.free_block_queue, self._running
        nothing = self._empty
        decoding, computed, asked, unsure = self._decoding, self._computed, self._slots, self._unsure
        counts_in_flight = self._counts_in_flight
        other = self.tap.reported("allocate_slots", original, self.after_allocate_slots)

        def call(*arguments: Any, num_lookahead_tokens: int = NOT_GIVEN, **named: Any) -> Any:
            # Without a request that is admitted: those come with what they hit.
            if named or num_lookahead_tokens != self._lookahead_tokens or len(arguments) != 2 or not tap.is_on:
                if num_lookahead_tokens != NOT_GIVEN:
                    named["num_lookahead_tokens"] = num_lookahead_tokens
                return other(*arguments, **named)
            request, slots = arguments
            try:
                answer = original(request, slots, num_lookahead_tokens=num_lookahead_tokens)
            except BaseException as error:
                self.raised("allocate_slots", error, arguments)
                raise
            try:
                if answer is not nothing and (answer is None or request.status is not running):
                    self.after_allocate_slots(answer, request, slots, num_lookahead_tokens=num_lookahead_tokens)
                    return answer
                decoding.append(request)
                computed.append(request.num_computed_tokens)
                asked.append(slots)
                if counts_in_flight:
                    unsure.append(request.num_in_flight_tokens)
                if answer is not nothing or queue.num_free_blocks != self._blocks_free:
                    self._change(request.request_id, answer)
            except Exception as error:
                if not self.failed(error):
                    raise
            return answer

        return call

    def _change(self, name: str, answer: Any) -> None:
        """The last call of a running request changed the pool."""
        if not self._changing:
            self._seen_before = self._seen
        given, gained, nulls = self._nothing, 0, None
        if answer is not self._empty and any(answer.blocks):
            given = list(answer.get_block_ids())
            gained = sum(map(len, given))
            self._granted[name] = False, given
        after: _Pool
        free_before, _, tail = self._seen
        free = self.pool.free_block_queue.num_free_blocks
        if free + gained == free_before and free > TAIL == len(tail):
            # No block became free, so the last ones are the same. Only shared blocks can have left a window.
            after = free, len(self.pool.cached_block_hash_to_block._cache), tail
            self._seen = after
            self._blocks_free = free
        else:
            nulls, after = self._entries_freed(name, self.book.followed[name].nulls), self._look()
        self._changing.append((len(self._decoding) - 1, given, nulls, self._take_registered(), after))

    def _followed(self, request: Any) -> Followed:
        """A request, of which all tokens were sent."""
        followed = self.book.followed[request.request_id]
        tokens = request._all_token_ids
        if len(tokens) != followed.tokens:
            self._emit(more_of(tokens, followed))
        return followed

    def _look(self, blocks: int = TAIL) -> _Pool:
        """The pool after a call that may have changed it."""
        queue = self.pool.free_block_queue
        block, end = queue.fake_free_list_tail.prev_free_block, queue.fake_free_list_head
        tail: list[int] = []
        for _ in range(blocks):
            if block is end or block is None:
                break
            tail.append(block.block_id)
            block = block.prev_free_block
        free, entries = queue.num_free_blocks, len(self.pool.cached_block_hash_to_block._cache)
        self._blocks_free, self._seen = free, (free, entries, tuple(tail[:TAIL]))
        return free, entries, tuple(tail)

    def _after(self, blocks: int = TAIL) -> After:
        if self._decoding:
            self._end_decoding()
        return After(*self._look(blocks))

    def _entries_freed(self, name: str, known: list[int]) -> tuple[int, ...]:
        """How many leading entries are freed now, counted from where the last look ended."""
        for index, tables in enumerate(self._windowed):
            table = tables.get(name)
            if table:
                end, count = len(table), known[index]
                if count < end and table[count].is_null:
                    count += 1
                    while count < end and table[count].is_null:
                        count += 1
                    known[index] = count
        return tuple(known)

    # Reported calls

    def _added(self, _answer: None, request: Any, *_arguments: Any, **_named: Any) -> None:
        if request.request_id in self.book.followed:
            return
        if request.resumable or request.prompt_token_ids is None:
            kind = "a request whose input is streamed" if request.resumable else "a prompt of embeddings"
            self._emit(calls.Suspended(f"{kind} cannot be followed"))
            self.sampling.stop()
            self.flush()
            self.tap.is_on = False
            warn(f"watches nothing more of this engine, until the server is started anew: {kind} cannot be followed")
            return
        self._emit(self.book.arrival_of(request))

    def _returned(self, _answer: Any, scheduler_output: Any, *arguments: Any, **others: Any) -> None:
        self._computing.discard(id(scheduler_output))
        self._ended(_answer, *arguments, **others)

    def _ended(self, _answer: Any, *arguments: Any, **others: Any) -> None:
        known = self.scheduler.requests
        if len(self.book.followed) > len(known):
            # A request goes with its blocks; where only the request went, these are lost.
            given = (*arguments, *others.values())
            because = next((each.name for each in given if isinstance(each, type(self._running))), "")
            for name in [name for name in self.book.followed if name not in known]:
                self._emit(calls.Forgotten(self.book.lose(name), because))
        self.flush()

    def _scheduled(self, output: Any, *_arguments: Any, **_named: Any) -> None:
        """What the step sends to the worker: of a request that runs, only where it was given blocks or is sent some."""
        if self._decoding:
            # Its answers add tokens.
            self._end_decoding()
        self._computing.add(id(output))
        granted, self._granted = self._granted, {}
        for new in output.scheduled_new_reqs:
            self._sent(new.req_id, True, list(new.block_ids), granted)
        known = output.scheduled_cached_reqs
        if not granted and not any(known.new_block_ids):
            return
        as_given: list[int] = []
        for name, blocks in zip(known.req_ids, known.new_block_ids, strict=True):
            if blocks is None and name not in granted:
                continue
            is_whole, sent = name in known.resumed_req_ids, list(blocks or self._nothing)
            if not is_whole and granted.get(name) == (False, sent):
                as_given.append(self.book.followed[name].number)
                continue
            if as_given:
                self._emit(calls.SentAsGiven(as_given))
                as_given = []
            self._sent(name, is_whole, sent, granted)
        if as_given:
            self._emit(calls.SentAsGiven(as_given))

    def _sent(self, name: str, is_whole: bool, blocks: Blocks, granted: dict[str, tuple[bool, Blocks]]) -> None:
        number = self.book.followed[name].number
        if granted.get(name) == (is_whole, blocks):
            self._emit(calls.Sent(number, is_whole, [], True))
        else:
            self._emit(calls.Sent(number, is_whole, [list(group) for group in blocks]))

    def after_get_computed_blocks(self, answer: Any, request: Any, max_cache_hit_length: int | None = None) -> None:
        # Of newer releases; only a connector sets it, and none of those is followed.
        del max_cache_hit_length
        blocks, tokens = answer[:2]
        number = self._followed(request).number
        self._emit(calls.LookedUp(number, tokens, list(blocks.get_block_ids()), request.num_preemptions > 0))

    def after_can_fit_full_sequence(
        self,
        fits: bool,
        request: Any,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_external_computed_tokens: int = 0,
        num_encoder_tokens: int = 0,
    ) -> None:
        del new_computed_blocks, num_encoder_tokens
        number = self._followed(request).number
        computed, external = request.num_computed_tokens, num_external_computed_tokens
        self._emit(calls.Gated(number, computed, num_new_computed_tokens, external, bool(fits)))

    def after_allocate_slots(
        self,
        answer: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        **others: Any,
    ) -> None:
        del new_computed_blocks, num_encoder_tokens, others
        followed = self._followed(request)
        # The scheduler counts what this lets run after the call, so these are as they were before it.
        is_first, computed = request.status is not self._running, request.num_computed_tokens
        is_whole = is_first or self._has_states
        given: Blocks | None = None
        nulls: tuple[int, ...] = ()
        if answer is not None:
            name = request.request_id
            gains = any(answer.blocks)
            if is_whole:
                given = list(self.manager.get_block_ids(name))
            else:
                # Most steps give nothing: then nothing is gone through.
                given = list(answer.get_block_ids()) if gains else self._nothing
            if gains:
                self._granted[name] = is_whole, given
            nulls = self._entries_freed(name, followed.nulls)
        self._emit(
            calls.Allocated(
                followed.number,
                computed,
                num_new_tokens,
                num_new_computed_tokens,
                num_lookahead_tokens,
                num_external_computed_tokens,
                delay_cache_blocks,
                is_first,
                given,
                is_whole,
                nulls,
                [Registered(*run) for run in self._take_registered()],
                self._after(),
                bool(full_sequence_must_fit),
                reserved_blocks,
                request.num_in_flight_tokens if self._counts_in_flight else 0,
            )
        )
        self._lookahead_tokens = num_lookahead_tokens

    def _caching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around ``cache_full_blocks``, once for each group of each request whose blocks fill."""
        tap = self.tap

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                answer = original(*arguments, **named)
            except BaseException as error:
                self.raised("cache_full_blocks", error, arguments)
                raise
            if not tap.is_on:
                return answer
            try:
                given = {**dict(zip(_CACHED, arguments, strict=False)), **named} if arguments else named
                first = given["num_cached_blocks"]
                # What is known now: null blocks are passed over, and what a retention interval leaves out.
                ids = [
                    0 if block._block_hash is None else block.block_id
                    for block in given["blocks"][first : given["num_full_blocks"]]
                ]
                self._registered.append((given["kv_cache_group_id"], first, ids))
                # What is cached within a call is reported with it.
                self._has_cached, self._blocks_free = True, -1
            except Exception as error:
                if not self.failed(error):
                    raise
            return answer

        return call

    def _take_registered(self) -> list[tuple[int, int, list[int]]]:
        """What was cached since the last record: the group, the first position, and the blocks, 0 for null blocks."""
        registered, self._registered = self._registered, []
        return registered

    def after_cache_blocks(self, _answer: None, request: Any, num_computed_tokens: int) -> None:
        number, registered = self._followed(request).number, [Registered(*run) for run in self._take_registered()]
        self._emit(calls.Cached(number, num_computed_tokens, registered, self._after()))

    def after_remove_skipped_blocks(
        self, _answer: None, request_id: str, total_computed_tokens: int = 0, **newer: int | None
    ) -> None:
        # Newer releases call what a window may leave by what it is: the tokens of steps that are over.
        total_computed_tokens = newer.get("processed_computed_tokens") or total_computed_tokens
        followed = self.book.followed[request_id]
        nulls = self._entries_freed(request_id, followed.nulls)
        self._emit(calls.Skipped(followed.number, total_computed_tokens, nulls, self._after()))

    def after_free(self, _answer: None, request: Any) -> None:
        is_over, name = request.is_finished(), request.request_id
        if name not in self.book.followed:
            lost = self.book.lost.pop(name, None)
            if lost is not None:
                # The scheduler had forgotten it, and its blocks are free at last.
                self._emit(calls.Freed(lost.number, True, self._after(FREED_TAIL)))
            # Else it was freed before. What that does to the pool shows in the next call.
            return
        number = self.book.followed[name].number
        self.book.clear_blocks(name)
        if is_over:
            self.book.forget(name)
        self._emit(calls.Freed(number, is_over, self._after(FREED_TAIL), request.status.name if is_over else ""))

    def after_get_num_common_prefix_blocks(self, answer: list[int], running_request_id: str) -> None:
        if self.steps % SHARED_EVERY_STEPS == 0:
            self._emit(calls.Shared(self.book.followed[running_request_id].number, list(answer)))

    def after_evict_blocks(self, _answer: None, block_ids: Any) -> None:
        self._emit(calls.Evicted(sorted(block_ids), self._after()))

    def after_reset_prefix_cache(self, succeeded: bool) -> None:
        self._emit(calls.Reset(bool(succeeded), self._after()))
        self.flush()

    def after_take_events(self, events: Sequence[Any]) -> None:
        """The events are published; an empty list is passed on as well where there should be some."""
        if self._publishes and (events or self._has_cached):
            self._has_cached = False
            self._emit(calls.Published(event_runs(events)))

    def after_make_prefix_cache_stats(self, taken: Any) -> None:
        if taken is not None and (taken.requests or taken.preempted_requests or taken.reset):
            words = to_statistics(taken)
            self._emit(calls.Counted(*(getattr(words, name) for name in calls.Counted.__struct_fields__)))
