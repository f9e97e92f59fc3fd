"""The comparison with a system that has an order of its own: exact in everything but order.

The free queue is a set, and so are the blocks that are listed for one content. Of the events, those of one content are
compared in order, and those of different contents are not; each Stored event is taken apart into its blocks. Such a
system names content in events as it does in its state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from attrs import evolve

from kvgate.kernel.comparison import Comparison
from kvgate.kernel.difference import Difference
from kvreference.content import UNTAGGED
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.operations import Operation
from kvreference.snapshot import Snapshot

_UNKNOWN = "content that was never cached"
Reported: TypeAlias = "dict[Hashable, list[tuple[Hashable, ...]]]"
"""Per content, what is reported of it, in order."""


class UnorderedComparison(Comparison):
    """Compares a system with the reference that follows it."""

    def of_states(self, operation: Operation, ours: Snapshot, theirs: Snapshot) -> Difference | None:
        return super().of_states(operation, _unordered(ours), _unordered(theirs))

    def _events(self, ours: Sequence[Event], theirs: Sequence[Event]) -> Difference | None:
        stretches = list(_stretches(ours)), list(_stretches(theirs))
        if len(stretches[0]) != len(stretches[1]):
            counts = (str(len(stretch) - 1) for stretch in stretches)
            return Difference("KV-OP-12", "times that the cache was cleared", *counts)
        for mine, others in zip(*stretches, strict=True):
            expected = _by_content((atom for event in mine for atom in _atoms(event)), self._known)
            got = _by_content((atom for event in others for atom in _atoms(event)), self._ours)
            for content in {**expected, **got}:
                reported = expected.get(content, []), got.get(content, [])
                if reported[0] != reported[1]:
                    return Difference("KV-OP-12", f"events of {content}", str(reported[0]), str(reported[1]))
        return None

    def _ours(self, identity: Hashable) -> Hashable:
        """The content that an identity of the system stands for."""
        try:
            return self.correspondence.ours(identity)
        except KeyError:
            return _UNKNOWN

    def _known(self, content: Hashable) -> Hashable:
        """A content of the reference, if it was ever cached."""
        return content if content is None or self.correspondence.theirs([content]) != [None] else _UNKNOWN


def _unordered(snapshot: Snapshot) -> Snapshot:
    def entries() -> dict[Hashable, tuple[int, ...]]:
        return {content: tuple(sorted(blocks)) for content, blocks in snapshot.entries.items()}

    return evolve(snapshot, free=sorted(snapshot.free), read_entries=entries)


def _stretches(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events between two that clear the cache."""
    stretch: list[Event] = []
    for event in events:
        if isinstance(event, Cleared):
            yield stretch
            stretch = []
        else:
            stretch.append(event)
    yield stretch


def _atoms(event: Event) -> Iterator[tuple[Hashable, ...]]:
    """What an event reports block by block: the content first, its parent next, then the rest."""
    if isinstance(event, Removed):
        yield event.content, None, "removed"
    elif isinstance(event, Stored):
        parent, size = event.parent, event.block_size_tokens
        for index, content in enumerate(event.contents):
            keys = event.extra_keys[index] if index < len(event.extra_keys) else ()
            tokens = event.tokens[index * size : (index + 1) * size]
            bare = tuple(evolve(key, domain=UNTAGGED) for key in keys)
            yield content, parent, "stored", event.group, tokens, size, event.lora, bare
            parent = content


def _by_content(atoms: Iterable[tuple[Hashable, ...]], named: Callable[[Hashable], Hashable]) -> Reported:
    """What is reported of each content, with identities as ``named`` has them."""
    reported: Reported = {}
    for content, parent, *rest in atoms:
        reported.setdefault(named(content), []).append((named(parent), *rest))
    return reported
