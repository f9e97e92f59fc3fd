"""Checks a recording: the reference follows it call by call, and every answer is compared.

Compared are the answer of each call, what it cached, and of the pool how many blocks are free, how many contents are
cached and which blocks were freed last; at a checkpoint the whole state. After a difference in the state, nothing is
checked until the next checkpoint. A wrong answer that changed no state is reported, and the checks continue with the
hit that the scheduler used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from attrs import define, evolve, field, frozen

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.findings.modelled import key_sizes_tokens, live_reference
from kvgate.kernel.comparison import Comparison, Correspondence
from kvgate.kernel.difference import Difference
from kvgate.shadow import calls
from kvgate.shadow.calls import After, Blocks, Checkpoint, Registered, Stored
from kvgate.shadow.order_agnostic_reference import OrderAgnosticReference
from kvreference.answers import BlockTable, Hit, Statistics
from kvreference.attention import Kind
from kvreference.events import Cleared, Event
from kvreference.events import Stored as StoredEvent
from kvreference.operations import TakeEvents
from kvreference.prefix_cache import no_hit
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot, check

AFTER_DIFFERENCE = "after a difference in the state"
ENDS_MAX = 2**14
"""Of how many requests it is remembered how they ended."""
_ENDS = {"FINISHED_ABORTED": "aborted", "FINISHED_STOPPED": "stopped", "FINISHED_LENGTH_CAPPED": "ended at its limit"}
CALLS_SHOWN = 12
"""How many calls before a difference are printed with it."""


@frozen
class Finding:
    """A difference in a recording."""

    call: int
    """Which call it was, from 0."""
    step: int
    """In which step of the scheduler."""
    record: Stored
    difference: Difference
    since_start_ms: int = 0
    """When the step began, since the start of the shadow."""


@define
class CheckStats:
    """How much was checked, and what was not, and why."""

    calls: int = 0
    """Records that were read."""
    judged: int = 0
    """Calls whose answer was compared."""
    checkpoints: int = 0
    """Whole states that were compared."""
    steps: int = 0
    unjudged: dict[str, int] = field(factory=dict)
    """Calls that were not compared, by why."""
    lost: int = 0
    """Calls that were not recorded."""
    blocks_lost: int = 0
    """Blocks that were found to be lost."""


class ShadowChecker:
    """Follows one recording, from its first checkpoint on."""

    def __init__(self, settings: Settings, system: str = "stock", version: str = VLLM_VERSION) -> None:
        live = live_reference(settings, system, version)
        self.settings, self._choices, self.known = live.settings, live.choices, live.known
        """``known`` are the findings of the system, and how often each acted."""
        self._counts_admitted = live.counts_admitted
        """Whether a look-up counts only if its request is admitted after it."""
        self._begins_blocks = live.begins_blocks
        """Whether the cache also has boundaries inside blocks, which are not followed."""
        self._key_sizes_tokens = key_sizes_tokens(settings, system, version)
        self.stats = CheckStats()
        self.reference: OrderAgnosticReference | None = None
        self._why_not = "before the first checkpoint"
        self._hits: dict[int, Hit] = {}
        self._uncounted: dict[int, bool] = {}
        """The look-ups that count with an admission: whether the request was preempted."""
        self._unknown_blocks: set[int] = set()
        """Cached blocks of unknown content."""
        self._counts_are_known = True
        self._step = 0
        self._since_start_ms = 0
        self._sent: dict[int, list[int]] = {}
        """How many blocks of each request and group the worker was sent, where that is known."""
        self._given: dict[int, Blocks] = {}
        """What each request was given in this step."""
        self._events_are_known = False
        self._hash_of: dict[tuple[int, bytes], bytes] = {}
        """What each cached content is known by outside, as far as that was published."""
        self._raised: tuple[str, str] | None = None
        """What raised in this step: an exception passes several calls on its way."""
        self._holders: dict[int, int] = {}
        """Which request was given each block last."""
        self._ends: dict[int, str] = {}
        """How requests ended, the latest of them."""
        self._leaked: Counter[int] = Counter()
        """The blocks with references that no request's table explains, and how many."""
        self._violated: set[Difference] = set()
        """What was wrong at the last checkpoint: it is counted once."""
        self._lost: list[str] = []
        self._lost_blocks: set[int] = set()
        """The blocks that were found to be lost, and still are."""
        self._lost_requests: set[int] = set()
        """The requests that the scheduler has forgotten with their blocks."""

    @property
    def is_following(self) -> bool:
        """Whether the reference stands where the engine stands."""
        return self.reference is not None

    def follow(self, record: Stored) -> list[Finding]:
        """The differences that ``record`` shows."""
        number = self.stats.calls
        self.stats.calls += 1
        try:
            found = list(self._follow(record))
        except _UNFOLLOWED as error:
            # What cannot be followed is a difference too: the engine did what the reference cannot do there.
            found = [Difference("KV-SYS-02", _subject(record), "a legal call", f"{type(error).__name__}: {error}")]
            self._stop(AFTER_DIFFERENCE)
        return [Finding(number, self._step, record, difference, self._since_start_ms) for difference in found]

    def take_lost(self) -> list[str]:
        """Which blocks were found to be lost since the last time, and whose they were, in words."""
        lost, self._lost = self._lost, []
        return lost

    def _note(self, record: Stored) -> None:
        """Remember who had which block, and how requests ended: to name what is lost, also when it is found later."""
        if isinstance(record, calls.Step):
            self._given.clear()
        elif isinstance(record, calls.Allocated) and record.given is not None:
            self._given[record.number] = record.given
            for blocks in record.given:
                self._holders.update(dict.fromkeys(blocks, record.number))
        elif isinstance(record, (calls.Freed, calls.Forgotten)):
            self._sent.pop(record.number, None)
            if record.because:
                self._ends[record.number] = record.because
                if len(self._ends) > ENDS_MAX:
                    del self._ends[next(iter(self._ends))]

    def _whose(self, number: int) -> str:
        end = self._ends.get(number, "")
        return f"request {number}" + (f", which was {_ENDS.get(end, f'over as {end}')}" if end else "")

    def _at_exception(self, record: calls.Raised) -> Sequence[Difference]:
        raised = record.error, record.where
        if not record.is_error or raised == self._raised:
            return ()
        self._raised = raised
        self._stop("after an exception")
        return (Difference("KV-SYS-01", record.headline, "an answer", f"{record.error} at {record.where}"),)

    def restart(self, lost: int, because: str) -> None:
        """So many calls and maybe more are missing: the checks continue at the next checkpoint."""
        self.stats.lost += lost
        self._stop(because)

    def _stop(self, why: str) -> None:
        self.reference = None
        self._why_not = why
        self._events_are_known = False
        self._hash_of.clear()
        self._sent.clear()

    def _follow(self, record: Stored) -> Sequence[Difference]:
        self._note(record)
        if isinstance(record, calls.Raised):
            return self._at_exception(record)
        if isinstance(record, calls.Step):
            self._step, self._since_start_ms, self._raised = record.number, record.since_start_ms, None
            self.stats.steps += 1
            if self.reference is not None and self.settings.geometry.fences:
                self.reference.holdings.dispatch()
                self.reference.cache.dispatched()
            return ()
        if isinstance(record, Checkpoint):
            return self._at_checkpoint(record)
        if isinstance(record, calls.Restart):
            self.restart(record.lost, record.because)
            return ()
        if isinstance(record, calls.Suspended):
            self._stop(record.because)
            return ()
        if isinstance(record, calls.End):
            return ()
        if self.reference is None and isinstance(record, (calls.Arrived, calls.Grew)):
            return ()
        if self.reference is None:
            self.stats.unjudged[self._why_not] = self.stats.unjudged.get(self._why_not, 0) + 1
            return ()
        return self._check(self.reference, record)

    def _check(self, reference: OrderAgnosticReference, record: Stored) -> Sequence[Difference]:
        if isinstance(record, calls.Arrived):
            reference.arrive(record)
            return ()
        if isinstance(record, calls.Grew):
            reference.grow(record)
            return ()
        self.stats.judged += 1
        found = _CHECKS[type(record)](self, reference, record)
        if found is None:
            return ()
        difference, continues = found
        if not continues:
            self._stop(AFTER_DIFFERENCE)
        return (difference,)

    # What is asked

    def _looked_up(self, reference: OrderAgnosticReference, record: calls.LookedUp) -> _Found:
        counted = reference.cache.statistics
        ours = reference.hit(record.number, record.was_preempted)
        theirs = Hit(record.hit_tokens, _table(record.blocks))
        self._hits[record.number] = theirs
        if self._counts_admitted and reference.cache.statistics != counted:
            # Its admission counts the hit that the scheduler used.
            reference.cache.statistics = counted
            self._uncounted[record.number] = record.was_preempted
        if ours == theirs:
            return None
        if reference.cache.statistics != counted:
            # What the engine counts is its own hit.
            tokens = len(reference.population[record.number].tokens)
            reference.cache.statistics = counted.counted(tokens, theirs.tokens, record.was_preempted)
        if self._is_from_unknown(theirs):
            return None
        statement = "KV-OP-01" if ours.tokens != theirs.tokens else "KV-OP-02"
        difference = Difference(statement, "answer to LookedUp", str(ours), str(theirs))
        return difference, True

    def _is_from_unknown(self, theirs: Hit) -> bool:
        """Whether a hit uses blocks that were cached while calls were not observed: it is not checked."""
        from_unknown = any(block in self._unknown_blocks for blocks in theirs.blocks for block in blocks)
        if from_unknown:
            self._skip_check("a hit on blocks that were cached while calls were not observed")
        return from_unknown

    def _skip_check(self, why: str) -> None:
        self.stats.judged -= 1
        self.stats.unjudged[why] = self.stats.unjudged.get(why, 0) + 1

    def _gated(self, reference: OrderAgnosticReference, record: calls.Gated) -> _Found:
        hit = self._hit_of(record.number, record.hit_tokens)
        ours = reference.fits(record, hit)
        if ours == record.fits:
            return None
        shown = {True: "fits", False: "does not fit"}
        difference = Difference("KV-OP-03", "answer to Gated", shown[ours], shown[record.fits])
        return difference, True

    def _hit_of(self, number: int, hit_tokens: int) -> Hit:
        hit = self._hits.get(number)
        return hit if hit is not None and hit.tokens == hit_tokens else no_hit(self.settings.geometry)

    def _allocated(self, reference: OrderAgnosticReference, record: calls.Allocated) -> _Found:
        hit = self._hits.pop(record.number, None) if record.is_first else None
        was_preempted = self._uncounted.pop(record.number, None) if record.is_first else None
        if hit is not None and was_preempted is not None and record.given is not None:
            tokens = len(reference.population[record.number].tokens)
            reference.cache.statistics = reference.cache.statistics.counted(tokens, record.hit_tokens, was_preempted)
        if hit is None or hit.tokens != record.hit_tokens:
            hit = no_hit(self.settings.geometry)
        ours = reference.allocate(record, hit)
        if (ours is None) != (record.given is None):
            shown = (
                "rejected" if ours is None else f"{ours}",
                "rejected" if record.given is None else f"{record.given}",
            )
            return Difference("KV-OP-04", "answer to Allocated", *shown), False
        if ours is not None and record.given is not None:
            if record.is_whole:
                ours = tuple(tuple(table.blocks) for table in reference.tables[record.number])
            theirs = _table(record.given)
            if ours != theirs:
                statement = "KV-OP-24" if record.external_tokens else "KV-OP-05"
                return (
                    Difference(statement, f"blocks given to request {record.number}", str(ours), str(theirs)),
                    False,
                )
        is_read = ours is not None and record.nulls is not None
        if is_read and record.nulls != reference.entries_freed(record.number):
            return _freed_differ(reference, record), False
        # What a request that runs was given is the same: then what it gave back is not.
        statement = "KV-OP-05" if record.is_first else "KV-OP-06"
        return self._compare_after(reference, record.number, record.registered, record.after, statement)

    def _cached(self, reference: OrderAgnosticReference, record: calls.Cached) -> _Found:
        reference.register(record.number, record.tokens, None)
        return self._compare_after(reference, record.number, record.registered, record.after, "KV-OP-08")

    def _skipped(self, reference: OrderAgnosticReference, record: calls.Skipped) -> _Found:
        reference.skip(record.number, record.computed)
        if record.nulls != reference.entries_freed(record.number):
            return _freed_differ(reference, record), False
        return self._compare_after(reference, record.number, (), record.after, "KV-OP-06")

    def _freed(self, reference: OrderAgnosticReference, record: calls.Freed) -> _Found:
        reference.free(record.number)
        if record.is_over:
            reference.leave(record.number)
            self._hits.pop(record.number, None)
        return self._compare_after(reference, record.number, (), record.after, "KV-OP-07")

    def _evicted(self, reference: OrderAgnosticReference, record: calls.Evicted) -> _Found:
        for block in record.blocks:
            reference.evict(block)
            self._unknown_blocks.discard(block)
        return self._compare_after(reference, -1, (), record.after, "KV-OP-10")

    def _reset(self, reference: OrderAgnosticReference, record: calls.Reset) -> _Found:
        ours = reference.reset()
        if ours != record.succeeded:
            return Difference("KV-OP-11", "answer to Reset", str(ours), str(record.succeeded)), False
        if ours:
            self._unknown_blocks.clear()
        return self._compare_after(reference, -1, (), record.after, "KV-OP-11")

    def _shared(self, reference: OrderAgnosticReference, record: calls.Shared) -> _Found:
        if record.number not in reference.tables:
            self._skip_check("what is shared with a request that holds nothing")
            return None
        ours = reference.share(record.number)
        if ours == record.blocks:
            return None
        return Difference("KV-OP-14", "answer to Shared", str(ours), str(record.blocks)), True

    def _counted(self, reference: OrderAgnosticReference, record: calls.Counted) -> _Found:
        ours, reference.cache.statistics = reference.cache.statistics, Statistics()
        theirs = Statistics(*(getattr(record, name) for name in record.__struct_fields__))
        if not self._counts_are_known:
            self._counts_are_known = True
            self._skip_check("the first statistics after a restart")
            return None
        if ours == theirs:
            return None
        return Difference("KV-OP-13", "answer to Counted", str(ours), str(theirs)), True

    # What is passed on

    def _forgotten(self, reference: OrderAgnosticReference, record: calls.Forgotten) -> _Found:
        held = sorted({block for table in reference.tables.get(record.number, ()) for block in table.blocks if block})
        if not held:
            return None
        reference.leave(record.number)
        self._lost_requests.add(record.number)
        self._count_lost(held)
        whose = self._whose(record.number)
        self._lost.append(f"blocks {', '.join(map(str, held))} were never freed; they belong to {whose}")
        return Difference("KV-LEAK-01", f"blocks of {whose}", "freed", str(held)), True

    def _count_lost(self, blocks: Iterable[int]) -> None:
        new = set(blocks) - self._lost_blocks
        self._lost_blocks |= new
        self.stats.blocks_lost += len(new)

    def _sent_to_worker(self, reference: OrderAgnosticReference, record: calls.Sent) -> _Found:
        tables = [table.blocks for table in reference.tables.get(record.number, ())]
        known = None if record.is_whole else self._sent.get(record.number)
        self._sent[record.number] = [len(blocks) for blocks in tables]
        given = self._given.get(record.number)
        if record.is_as_given and given is None:
            self._skip_check("what the worker is sent of a request, after a gap")
            return None
        all_sent = given if record.is_as_given and given is not None else record.blocks
        for index, (blocks, sent) in enumerate(zip_longest(tables, all_sent, fillvalue=())):
            if index < len(tables) and self.settings.geometry.groups[index].kind is Kind.MAMBA:
                # The blocks of states change their places within a table.
                continue
            first = 0 if record.is_whole else len(blocks) - len(sent) if known is None else known[index]
            if list(blocks[max(0, first) :]) != list(sent):
                shown = "whole table" if record.is_whole else f"table from entry {max(0, first)} on"
                subject = f"what the worker is sent of request {record.number}, group {index}: its {shown}"
                return Difference("KV-SYS-03", subject, str(list(blocks[max(0, first) :])), str(list(sent))), True
        return None

    def _published(self, reference: OrderAgnosticReference, record: calls.Published) -> _Found:
        ours, theirs = _runs(reference.take_due()), record.runs
        if self._begins_blocks:
            self._skip_check("KV events, where boundaries inside blocks are cached as well")
            return None
        if not self._events_are_known or self._unknown_blocks:
            # Of a block of unknown content it is not known that it was cached.
            self._events_are_known = True
            self._skip_check("KV events after a restart")
            return None
        shape = [(kind, group, len(contents)) for kind, group, contents in ours]
        got = [(run.kind, run.group, len(run.hashes)) for run in theirs]
        if shape != got:
            return Difference("KV-OP-12", "KV events: (kind, group, blocks)", str(shape), str(got)), True
        for (kind, group, contents), run in zip(ours, theirs, strict=True):
            for content, known_by in zip(contents, run.hashes, strict=True):
                before = self._hash_of.get((group, content), known_by)
                if kind == "BlockStored":
                    self._hash_of[group, content] = known_by
                else:
                    self._hash_of.pop((group, content), None)
                if before != known_by:
                    subject = f"KV events: what a block of group {group} is known by"
                    return Difference("KV-OP-12", subject, "one hash for each content", "another"), True
            if kind == "AllBlocksCleared":
                self._hash_of.clear()
        return None

    # The state after a call

    def _compare_after(
        self,
        reference: OrderAgnosticReference,
        number: int,
        registered: Sequence[Registered],
        after: After,
        statement: str,
    ) -> _Found:
        ours = reference.take_registered(number)
        theirs = [
            (run.group, position, block)
            for run in registered
            for position, block in enumerate(run.blocks, start=run.first)
            if block
        ]
        for _, _, block in theirs:
            self._unknown_blocks.discard(block)
        if ours != theirs:
            extra = [each for each in theirs if each not in ours]
            shown = "(group, position, block) that are cached"
            return Difference("KV-OP-10" if extra else "KV-OP-08", shown, str(ours), str(theirs)), False
        free = reference.blocks_said_free
        if free != after.free:
            return Difference(statement, "blocks free", str(free), str(after.free)), False
        entries = reference.contents_cached
        if entries != after.entries and not (self._unknown_blocks or self._begins_blocks):
            return Difference("KV-INV-05", "contents cached", str(entries), str(after.entries)), False
        tail = reference.last_free(len(after.tail))
        if tail != after.tail:
            return Difference(statement, "last of the free queue", str(tail), str(after.tail)), False
        return None

    # Checkpoints

    def _at_checkpoint(self, checkpoint: Checkpoint) -> Sequence[Difference]:
        theirs = OrderAgnosticReference.at(self.settings, checkpoint, self._choices, self._key_sizes_tokens)
        known, seen = self.reference, theirs.snapshot()
        # What follows from a difference is not another one.
        is_counted = known is None and self._why_not == AFTER_DIFFERENCE
        found = None if known is None else self._compare(known, seen)
        wrong = {*filter(None, [_identities_differ(checkpoint)]), *self._violations(checkpoint, seen, is_counted)}
        new = sorted(wrong - self._violated, key=lambda each: (each.statement, each.got))
        self._violated = wrong
        if new and known is not None and found is None:
            # What a finding did that acted has led the reference there, too.
            acted = {each.statement: each.finding for each in self.known.violations()}
            ours = {(each.statement, each.detail) for each in check(known.snapshot()) if each.statement in acted}
            for each in [each for each in new if (each.statement, each.got) in ours]:
                self.known.times[acted[each.statement]] += 1
                new.remove(each)
        if found is None and new and not is_counted:
            found = new[0]
        self._counts_are_known = known is not None and self._counts_are_known
        if known is not None:
            theirs.cache.statistics = known.cache.statistics
            theirs.due = known.due
        self.reference = theirs
        self._unknown_blocks = {block for block in checkpoint.identities if block not in checkpoint.contents}
        return () if found is None else (found,)

    def _violations(self, checkpoint: Checkpoint, seen: Snapshot, is_counted: bool) -> Iterator[Difference]:
        """What does not hold at a checkpoint, besides what is known; and name the blocks that are lost."""
        held = Counter(block for tables in seen.tables.values() for table in tables for block in table if block)
        extra = Counter({block: count - held[block] for block, count in enumerate(checkpoint.references) if block})
        # Only positive counts.
        extra = +extra
        self._lost_requests &= seen.tables.keys()
        of_lost = {block for number in self._lost_requests for table in seen.tables[number] for block in table}
        self._lost_blocks &= extra.keys() | of_lost
        # Blocks that were counted before are no new difference.
        before = self._leaked | Counter({block: extra[block] for block in self._lost_blocks})
        for block in extra - before:
            holder = self._holders.get(block)
            whose = "its last holder is unknown" if holder is None else f"it was last given to {self._whose(holder)}"
            self._lost.append(f"block {block} is held by no request, and not free; {whose}")
            self._count_lost([block])
        # No request can free such a block: it is never free again.
        explained = list((extra if is_counted else extra & before).elements())
        self._leaked = extra
        # A checkpoint does not say what the pool counts.
        for violation in check(evolve(seen, blocks_free=len(seen.free), freed_late=(explained,))):
            yield Difference(violation.statement, "the state at a checkpoint", "holds", violation.detail)

    def _compare(self, ours: OrderAgnosticReference, theirs: Snapshot) -> Difference | None:
        mine = ours.snapshot()
        if self._unknown_blocks:
            # Tables, references and the free queue need no content; but content decides which free blocks are scratch.
            why = "contents at a checkpoint, with blocks that were cached while calls were not observed"
            self.stats.unjudged[why] = self.stats.unjudged.get(why, 0) + 1
            if self.settings.scratch_first:
                return None
            return Comparison().of_states(TakeEvents(), _without_contents(mine), _without_contents(theirs))
        self.stats.checkpoints += 1
        # Prefixes are interned by each side for itself: what they stand for is the digest.
        mine, theirs = _by_digest(mine), _by_digest(theirs)
        return Comparison().of_states(TakeEvents(), mine, theirs) or _contents_differ(mine, theirs)


_Found = tuple[Difference, bool] | None
"""A difference, and whether the state is still the same."""
_UNFOLLOWED = (
    *(ValueError, LookupError, AttributeError, AssertionError, TypeError, ArithmeticError, RuntimeError, StopIteration),
)
_CallCheck = Callable[[ShadowChecker, OrderAgnosticReference, Any], _Found]

_CHECKS: dict[type, _CallCheck] = {
    calls.LookedUp: ShadowChecker._looked_up,
    calls.Gated: ShadowChecker._gated,
    calls.Allocated: ShadowChecker._allocated,
    calls.Cached: ShadowChecker._cached,
    calls.Skipped: ShadowChecker._skipped,
    calls.Freed: ShadowChecker._freed,
    calls.Forgotten: ShadowChecker._forgotten,
    calls.Sent: ShadowChecker._sent_to_worker,
    calls.Published: ShadowChecker._published,
    calls.Evicted: ShadowChecker._evicted,
    calls.Reset: ShadowChecker._reset,
    calls.Shared: ShadowChecker._shared,
    calls.Counted: ShadowChecker._counted,
}


def _runs(events: Sequence[Event]) -> list[tuple[str, int, list[bytes]]]:
    """Events as they are published: those of one kind and one group that follow each other as one."""
    runs: list[tuple[str, int, list[bytes]]] = []
    for event in events:
        kind, contents = "AllBlocksCleared", list[Any]()
        if isinstance(event, StoredEvent):
            kind, contents = "BlockStored", list(event.contents)
        elif not isinstance(event, Cleared):
            kind, contents = "BlockRemoved", [event.content]
        pieces = [(content[0], content[1].piece) for content in contents]
        if not pieces and kind != "AllBlocksCleared":
            # An event that names no block is passed over where events are observed, too.
            continue
        group = pieces[0][0] if pieces else 0
        if runs and (kind, group) == runs[-1][:2]:
            runs[-1][2].extend(piece for _, piece in pieces)
        else:
            runs.append((kind, group, [piece for _, piece in pieces]))
    return runs


def _by_digest(snapshot: Snapshot) -> Snapshot:
    def bare(content: Any) -> Any:
        return None if content is None else (content[0], content[1].piece)

    entries = {bare(content): blocks for content, blocks in snapshot.entries.items()}
    return evolve(snapshot, contents=[bare(content) for content in snapshot.contents], read_entries=lambda: entries)


def _without_contents(snapshot: Snapshot) -> Snapshot:
    return evolve(snapshot, contents=[None] * len(snapshot.contents), read_entries=dict)


def _freed_differ(reference: OrderAgnosticReference, record: calls.Allocated | calls.Skipped) -> Difference:
    shown = f"blocks of request {record.number} that left the window, by group with one"
    return Difference("KV-OP-06", shown, str(reference.entries_freed(record.number)), str(record.nulls))


def _contents_differ(ours: Snapshot, theirs: Snapshot) -> Difference | None:
    """The first block that both sides have cached, with another content."""
    for block, (mine, other) in enumerate(zip(ours.contents, theirs.contents, strict=True)):
        if mine != other:
            return Difference("KV-OP-09", f"content of block {block}", str(mine), str(other))
    return None


def _identities_differ(checkpoint: Checkpoint) -> Difference | None:
    """The first block that is known by what another content is known by, or by another name than the same content."""
    known = Correspondence()
    for block, content in checkpoint.contents.items():
        if not known.relate(content, checkpoint.identities.get(block)):
            return Difference("KV-OP-09", f"what block {block} is known by", "one name for each content", "another")
    return None


def _table(blocks: Blocks) -> BlockTable:
    return tuple(map(tuple, blocks))


def _subject(record: Stored) -> str:
    number = getattr(record, "number", None)
    name = type(record).__name__
    return name if number is None or isinstance(record, calls.Step) else f"{name} of request {number}"
