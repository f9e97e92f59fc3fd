"""What a scheduler tells its connector: whom it asks for, behind which hit, and which blocks a request has.

A connector knows nothing else: it reads and writes the blocks that it is told of. What it is told is compared with what
the block manager answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.adapter.interception import Interception, number_of
from kvgate.levels.scheduler.nodes import Tables

Judge = Callable[[str, Difference | None], None]
"""Called with a detector and what it found."""


class ConnectorCheck:
    """What the connector of one scheduler is told."""

    def __init__(
        self,
        interception: Interception,
        judge: Judge,
        undecided: Callable[[int], None],
        ended: Callable[[int, bool], None],
    ) -> None:
        self.interception = interception
        self.undecided = undecided
        """Called with the number of every request of which the connector cannot tell yet what it offers."""
        self.resets: list[bool] = []
        """Whether each reset was done that it was asked for since somebody looked last."""
        self._judge = judge
        self._ended = ended

    def asked(self, request: Any, hit_tokens: int) -> None:
        """It is asked what other nodes have for a request behind its hit."""
        number = self._known(request)
        if number is None:
            return
        self._compare("KV-OP-24", f"the hit of request {number}", self.interception.hit_of(number), hit_tokens)

    def allocated(self, request: Any, tables: Tables, external_tokens: int) -> None:
        """It is told of a request's blocks, and how many tokens it takes from other nodes."""
        number = self._known(request)
        if number is None:
            return
        self._compare("KV-OP-24", f"the blocks of request {number}", self.interception.followed._tables(number), tables)
        expected = self.interception.external_of(number)
        self._compare("KV-OP-24", f"the tokens that request {number} takes", expected, external_tokens)

    def ended(self, request: Any, tables: Tables, is_read: bool) -> None:
        """It is told of a request's end; whether its blocks stay held for another node."""
        number = self._known(request)
        if number is None:
            return
        held = self.interception.followed._tables(number)
        self._compare("KV-OP-25", f"the blocks of request {number}, which ends", held, tables)
        self._ended(number, is_read)

    def reset(self, done: bool) -> None:
        """It is asked to forget what it keeps."""
        self.resets.append(done)

    def shown(self, what: str, expected: Any, got: Collection[Any]) -> None:
        """It was shown something, which is compared by identity."""
        if [id(expected)] != [id(each) for each in got]:
            told = "nothing" if not got else "something else"
            self._judge("connector", Difference("KV-OP-24", f"{what}, as the connector is told", "what it is", told))

    def _known(self, request: Any) -> int | None:
        """Its number; None if it is none of the requests that the scheduler has."""
        number = number_of(request)
        if self.interception.followed.has(number, request):
            return number
        found = Difference("KV-OP-24", "the request that the connector is told", "one of the scheduler's", f"{number}")
        self._judge("connector", found)
        return None

    def _compare(self, statement: str, subject: str, expected: Any, got: Any) -> None:
        if self.interception.followed.scheduling.in_full and _plain(expected) != _plain(got):
            found = Difference(statement, f"{subject}, as the connector is told", str(expected), str(got))
            self._judge("connector", found)


def _plain(value: Any) -> Any:
    """Tables as tuples: sequences of several types stand for the same."""
    return tuple(map(tuple, value)) if isinstance(value, (list, tuple)) else value
