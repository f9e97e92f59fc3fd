"""Content identities of two systems, matched one to one as they appear.

The reference identifies content by what it is, a system under test by hashes. Which hash stands for which content is
the system's own affair, as long as it is one to one: two contents under one hash are a foreign hit to come, one
content under two hashes is a hit that will be missed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Correspondence:
    """A growing one-to-one relation. ``None`` corresponds to ``None`` alone."""

    def __init__(self) -> None:
        self._theirs: dict[Hashable, Hashable] = {None: None}
        self._ours: dict[Hashable, Hashable] = {None: None}

    def copy(self) -> Correspondence:
        """An independent relation that knows the same."""
        other = Correspondence()
        other._theirs, other._ours = dict(self._theirs), dict(self._ours)
        return other

    def relate(self, ours: Hashable, theirs: Hashable) -> bool:
        """Whether the two stand for the same content; two that are both new are related from now on."""
        known = self._theirs.get(ours, self)
        if known is not self:
            return known == theirs
        if theirs in self._ours:
            return False
        self._theirs[ours] = theirs
        self._ours[theirs] = ours
        return True

    def theirs(self, ours: Iterable[Hashable]) -> list[Hashable]:
        """What stands for each of ``ours`` on the other side; None for what never appeared."""
        return list(map(self._theirs.get, ours))

    def ours(self, theirs: Hashable) -> Hashable:
        """What ``theirs`` stands for; raises ``KeyError`` if it never appeared."""
        return self._ours[theirs]
