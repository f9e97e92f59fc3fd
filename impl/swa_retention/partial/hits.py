"""Partial hits of one block manager: its look-up, its entries, its copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import lcm
from typing import Any

from swa_retention.junctions import JUNCTION
from swa_retention.partial.boundaries import Boundaries, key_of
from swa_retention.partial.copies import BlockCopy, Pending
from swa_retention.partial.groups import Group
from swa_retention.partial.hit import Source, sources_of
from swa_retention.partial.lookup import Leading, LookUp, Window, Worthwhile, with_source
from swa_retention.partial.registration import Admitted, Cursor, reached


class PartialHits(LookUp):
    """What a coordinator of vLLM carries as ``partial`` where hits may end inside blocks."""

    def __init__(
        self,
        pool: Any,
        groups: Sequence[Group],
        admitted: Admitted,
        replay_tokens: Callable[[Any], int],
        tokens_min: int = 0,
    ) -> None:
        self.copying = [group for group in groups if group.copies]
        worthwhile = Worthwhile(tokens_min, lcm(*(group.block_tokens for group in self.copying)))
        super().__init__(pool, groups, admitted.unit_tokens, worthwhile)
        self.admitted = admitted
        self.replay_tokens = replay_tokens
        """The last boundary from which a request's prompt can be replayed."""
        self.boundaries = Boundaries()
        self.pending = Pending()
        self.cursors: dict[str, Cursor] = {}
        self.entering: dict[str, tuple[list[Source], int]] = {}
        """Requests in the middle of their admission: what is to be copied, and the hit's length in tokens."""
        self.counts = Counter[str]()
        """By the name of a metric, what was counted since the metrics were last sent."""
        self.arrived = False
        """Whether what is registered now was loaded, and is not computed by this step."""

    def _key(self, hashes: Sequence[bytes], end_tokens: int, group: int) -> bytes:
        return key_of(hashes, end_tokens, self.pool.hash_block_size, group)

    # Looking up

    def _entry(self, hashes: Sequence[bytes], group: int, end_tokens: int) -> Any:
        return self.boundaries.find(self._key(hashes, end_tokens, group))

    def _blocks(self, serving: Leading | Window, hashes: Sequence[bytes], hit_tokens: int) -> Sequence[Any]:
        group = serving.group
        if not isinstance(serving, Leading) or hit_tokens % group.block_tokens == 0:
            return serving.blocks(hit_tokens)
        return with_source(serving, hit_tokens, self._key(hashes, group.tokens_matched(hit_tokens), group.index))

    # Letting in

    def is_fenced(self, hit: Sequence[Sequence[Any]]) -> bool:
        """Whether ``hit`` would copy what this step has yet to compute."""
        return any(source.key in self.pending.fenced for source in sources_of(hit))

    def enter(self, request_id: str, hit: Sequence[Sequence[Any]], hit_tokens: int) -> None:
        """A request is admitted after ``hit``: from now on its sources are held, before any new block is taken."""
        sources = list(sources_of(hit))
        self.pool.touch([source.block for source in sources])
        self.counts["partial_hits"] += bool(sources)
        self.entering[request_id] = sources, hit_tokens
        self.cursors[request_id] = Cursor(hit_tokens, [hit_tokens] * len(self.copying))

    def entered(self, request_id: str, tables: Callable[[int], Sequence[Any]]) -> None:
        """It has its blocks: what the hit holds of its last ones is to be copied into them."""
        sources, hit_tokens = self.entering.pop(request_id, ((), 0))
        for source in sources:
            place = hit_tokens // self.groups[source.group].block_tokens
            self.pending.order(source.group, source.block, tables(source.group)[place], source.tokens)

    def forget(self, request_id: str) -> None:
        """The request releases its blocks."""
        self.cursors.pop(request_id, None)

    def wake(self, request_id: str) -> None:
        """The request's boundaries have changed: its next step always looks for them."""
        if request_id in self.cursors:
            self.cursors[request_id].wake_tokens = 0

    # Registering

    def register(self, request: Any, tokens: int, managers: Sequence[Any]) -> None:
        """``request`` has computed, or loaded, its first ``tokens`` tokens, all of them verified.

        ``managers`` are those of the groups, each of which knows the request's blocks.
        """
        cursor = self.cursors.get(request.request_id)
        if cursor is None:
            cursor = self.cursors[request.request_id] = Cursor(0, [0] * len(self.copying))
        cursor.single_tokens = self.replay_tokens(request), getattr(request, JUNCTION, 0)
        hashes, hash_block_tokens = request.block_hashes, self.pool.hash_block_size
        for group, end_tokens in reached(self.copying, self.admitted, cursor, tokens):
            key = key_of(hashes, end_tokens, hash_block_tokens, group.index)
            if end_tokens % group.block_tokens:
                blocks = managers[group.index].req_to_blocks[request.request_id]
                self.boundaries.register(key, blocks[end_tokens // group.block_tokens])
            if not self.arrived:
                self.pending.fenced.add(key)

    # Dispatching

    def dispatch(self) -> tuple[BlockCopy, ...]:
        """The copies of the step, in order. Their sources are let go of, and nothing is fenced any more."""
        if not self.pending.fenced and not self.pending.copies:
            # Most steps reach no boundary.
            return ()
        pending, self.pending = self.pending, Pending()
        self.counts["copies_ordered"] += len(pending.copies)
        if pending.sources:
            self.pool.free_blocks(_last_holds(pending.sources))
        return tuple(pending.copies)

    def reads(self) -> Counter[int]:
        """Per block id, how many pending copies read it."""
        return Counter(source.block_id for source in self.pending.sources)


def _last_holds(sources: Sequence[Any]) -> Iterator[Any]:
    """Each of ``sources`` once, where it stands last; what is held more often is let go of so often before.

    vLLM would put a block that it is given twice twice into its free queue.
    """
    left = Counter(source.block_id for source in sources)
    for source in sources:
        left[source.block_id] -= 1
        if left[source.block_id]:
            source.ref_cnt -= 1
        else:
            yield source
