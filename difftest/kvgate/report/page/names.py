"""Names for what blocks hold, the same for both sides of a lockstep.

The reference identifies content by what it is, a system by hashes. A reader needs neither: "the first 32 tokens of
request 0" names it, after the request that had it first. What a system holds gets the name that stands for its identity
since it first appeared, so that a foreign content is seen to be foreign.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

from attrs import frozen

from kvgate.kernel.correspondence import Correspondence
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.manager import Manager
from kvreference.snapshot import Snapshot


@frozen(order=True)
class Named:
    """What a block holds."""

    group: int
    request: int
    """Who had it first; -1 if only the system knows it."""
    tokens: int
    """How many of that request's first tokens it stands for; a number of its own if only the system knows it."""


class Names:
    """The names given in one run."""

    def __init__(self) -> None:
        self._owners: dict[Prefix, int] = {}
        self._related = Correspondence()
        self._strangers: dict[Hashable, Named] = {}
        """What only the system knows."""
        self._before: tuple[Sequence[Hashable], Sequence[Hashable]] = (), ()
        # Most operations leave all contents alone.
        self._in_reference: tuple[Sequence[Hashable], tuple[Named | None, ...]] = (), ()
        self._in_system: tuple[Sequence[Hashable], tuple[Named | None, ...]] = (), ()

    def arrived(self, reference: Manager, request: int) -> None:
        """``request`` has tokens that it did not have before."""
        for prefix in reversed(reference.prefixes.get(request, [])):
            if prefix in self._owners:
                return
            self._owners[prefix] = request

    def of(self, content: Content) -> Named:
        """The name of a content of the reference."""
        group, prefix = content
        return Named(group, self._owners.get(prefix, -1), prefix.tokens)

    def relate(self, ours: Snapshot, theirs: Snapshot) -> None:
        """Two states of the same step: what appears in the same block for the first time is the same."""
        now = (ours.contents, theirs.contents)
        if now == self._before:
            return
        self._before = (ours.contents, list(theirs.contents))
        for mine, other in zip(ours.contents, theirs.contents, strict=False):
            if mine is not None and other is not None:
                self._related.relate(mine, other)

    def in_reference(self, snapshot: Snapshot) -> tuple[Named | None, ...]:
        """What each block of the reference holds."""
        if self._in_reference[0] != snapshot.contents:
            contents = cast("Sequence[Content | None]", snapshot.contents)
            named = tuple(None if content is None else self.of(content) for content in contents)
            self._in_reference = snapshot.contents, named
        return self._in_reference[1]

    def in_system(self, snapshot: Snapshot) -> tuple[Named | None, ...]:
        """What each block of the system holds."""
        if self._in_system[0] != snapshot.contents:
            # Copied, for the next operation may change what a system returned.
            self._in_system = list(snapshot.contents), tuple(map(self._named, snapshot.contents))
        return self._in_system[1]

    def _named(self, identity: Hashable | None) -> Named | None:
        if identity is None:
            return None
        if identity in self._strangers:
            return self._strangers[identity]
        try:
            return self.of(cast("Content", self._related.ours(identity)))
        except KeyError:
            return self._strangers.setdefault(identity, Named(-1, -1, len(self._strangers)))
