"""What a divergence means to those who use the server.

A comparison says what differs first, and a monitor what it watches. Here one name is found for what both have seen: the
worst of what the difference itself means, and of what monitors report if the run continues without the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from attrs import frozen

from kvgate.gate.suspects import Suspect
from kvgate.kernel.comparison import hit_tokens_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Answer, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.block_pool import NULL
from kvreference.snapshot import Snapshot


class Anomaly(str, Enum):
    """What goes wrong, the worst first."""

    WRONG_ANSWER = "WRONG ANSWER"
    CRASH = "CRASH"
    HANG = "HANG"
    LEAK = "LEAK"
    LOST_HIT = "LOST HIT"
    WASTE = "WASTE"
    WRONG_EVENT = "WRONG EVENT"
    ORDER = "ORDER"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Anomaly).index(self)

    @property
    def meaning(self) -> str:
        """What a user of the server notices, in one sentence."""
        return MEANINGS[self]


MEANINGS: Mapping[Anomaly, str] = MappingProxyType(
    {
        Anomaly.WRONG_ANSWER: "A request gets a wrong answer: it reads KV-cache entries that are not its own, "
        "or loses tokens.",
        Anomaly.CRASH: "The engine raises, and every request on it fails.",
        Anomaly.HANG: "A request waits permanently: nothing can free what it needs.",
        Anomaly.LEAK: "Blocks or memory are lost permanently: the server holds fewer and fewer requests.",
        Anomaly.LOST_HIT: "The prefix cache misses what it could serve: prompts are computed again.",
        Anomaly.WASTE: "More blocks or more work are used than needed: fewer requests fit, or steps take longer.",
        Anomaly.WRONG_EVENT: "KV events or statistics are wrong: routers and dashboards that read them are misled.",
        Anomaly.ORDER: "Blocks or requests are served in another order than promised: hit rates or waiting times may "
        "suffer.",
    }
)
_OF: Mapping[Anomaly, str] = MappingProxyType(
    {
        Anomaly.WRONG_ANSWER: "KV-MEM-01 KV-MEM-02 KV-MEM-03 KV-MEM-04 KV-INV-01 KV-INV-02 KV-INV-03 KV-INV-04 "
        "KV-INV-06 KV-INV-09 KV-OP-01 KV-OP-06 KV-OP-07 KV-OP-09 KV-OP-10 KV-OP-11 KV-OP-19 KV-OP-20 KV-OP-24 "
        "KV-OP-25 KV-OP-26 KV-SYS-02 KV-SYS-03 KV-SYS-05 KV-TIER-01 KV-TIER-02 KV-TIER-03 KV-TIER-04",
        Anomaly.CRASH: "KV-SYS-01",
        Anomaly.HANG: "KV-LIVE-01 KV-LIVE-02 KV-LIVE-03 KV-TIER-06",
        Anomaly.LEAK: "KV-LEAK-01 KV-LEAK-02 KV-TIER-05",
        Anomaly.LOST_HIT: "KV-INV-05 KV-INV-07 KV-OP-08 KV-OP-15 KV-OP-16 KV-OP-18 KV-OP-21 KV-OP-22 KV-OP-23 KV-OP-27",
        Anomaly.WASTE: "KV-OP-03 KV-OP-04 KV-OP-14 KV-WORK-01 KV-WORK-02 KV-SYS-06",
        Anomaly.WRONG_EVENT: "KV-OP-12 KV-OP-13",
        Anomaly.ORDER: "KV-INV-08 KV-OP-02 KV-OP-05 KV-OP-17 KV-SYS-04",
    }
)
OF_STATEMENTS: Mapping[str, Anomaly] = MappingProxyType(
    {statement: anomaly for anomaly, statements in _OF.items() for statement in statements.split()}
)
"""The worst that the violation of a guarantee means, where neither the answers nor the states say more."""
_SURE = frozenset(("KV-INV-04", "KV-INV-06", "KV-OP-09", "KV-OP-10", "KV-OP-19", "KV-OP-20", "KV-OP-25", "KV-OP-26"))
"""The guarantees whose violation always means that, for any states."""


@frozen
class Diagnosis:
    """What a divergence means, and where it comes from."""

    anomaly: Anomaly
    suspects: tuple[Suspect, ...] = ()
    """The functions that may have done it, the likeliest first; none where nothing was replaced or changed."""
    follows: Divergence | None = None
    """What a monitor reports if the run continues."""
    then: tuple[Any, ...] = ()
    """The operations that come between."""

    @property
    def cause(self) -> str | None:
        """The function that did it, if it can be no other: divergences with one cause are one story."""
        return self.suspects[0].function if len(self.suspects) == 1 else None


def of_statement(divergence: Divergence) -> Anomaly:
    """What a divergence means, if nothing more is known."""
    if divergence.detector == "line":
        # It reports who is served before whom.
        return Anomaly.ORDER
    return OF_STATEMENTS[divergence.difference.statement]


def of_lockstep(divergence: Divergence, lockstep: Lockstep) -> Anomaly:
    """What a difference means, by the answers and the states of both sides."""
    if divergence.detector != "lockstep" or lockstep.reference is None or lockstep.raised is not None:
        return of_statement(divergence)
    if divergence.difference.statement in _SURE:
        return of_statement(divergence)
    found = list(_of_answers(*lockstep.answers))
    if not found:
        found = list(of_states(lockstep.reference.snapshot(), lockstep.system.snapshot()))
    return min(found, key=lambda each: each.rank, default=of_statement(divergence))


def _of_answers(ours: Answer | None, theirs: Answer | None) -> Iterator[Anomaly]:
    """What different answers mean; nothing where the states must say it."""
    match ours, theirs:
        case (Happened(), _):
            yield Anomaly.WRONG_EVENT
        case (Statistics(), _) if ours != theirs:
            yield Anomaly.WRONG_EVENT
        case Shared(blocks=mine), Shared(blocks=other) if mine != other:
            longer = any(b > a for a, b in zip(mine, other, strict=False))
            yield Anomaly.WRONG_ANSWER if longer else Anomaly.WASTE
        case Success(succeeded=due), Success(succeeded=done) if due != done:
            yield Anomaly.WRONG_ANSWER if done else Anomaly.WASTE
        case ((Hit() | Granted() | Refused()), (Hit() | Granted() | Refused())):
            tokens, their_tokens = hit_tokens_of(ours) or 0, hit_tokens_of(theirs) or 0
            if tokens != their_tokens:
                yield Anomaly.WRONG_ANSWER if their_tokens > tokens else Anomaly.LOST_HIT
            elif type(ours) is not type(theirs):
                # If it is never admitted, a monitor says that it hangs.
                yield Anomaly.WASTE
            elif isinstance(ours, (Hit, Granted)) and isinstance(theirs, (Hit, Granted)):
                yield from _of_numbers(_real(ours.blocks), _real(theirs.blocks))


def of_states(ours: Snapshot, theirs: Snapshot) -> Iterator[Anomaly]:
    """What different states mean: who holds more or less than due, what is free, what is cached."""
    for number, table in ours.tables.items():
        yield from _of_numbers(_real(table), _real(theirs.tables.get(number, ())))
    for mine, other in zip(_stray_references(ours), _stray_references(theirs), strict=True):
        if mine != other:
            yield Anomaly.LEAK if other > mine else Anomaly.WRONG_ANSWER
    if (lost := _lost(theirs) - _lost(ours)) != 0:
        yield Anomaly.LEAK if lost > 0 else Anomaly.WRONG_ANSWER
    if list(ours.free) != list(theirs.free) and sorted(ours.free) == sorted(theirs.free):
        yield Anomaly.ORDER
    cached = [sum(content is not None for content in each.contents) for each in (ours, theirs)]
    if cached[0] != cached[1]:
        yield Anomaly.LOST_HIT if cached[1] < cached[0] else Anomaly.WASTE


def _stray_references(state: Snapshot) -> list[int]:
    """Of each block, how many references are counted that no table has."""
    held = Counter(block for table in state.tables.values() for blocks in table for block in blocks)
    return [count - held[block] for block, count in enumerate(state.references) if block != NULL]


def _lost(state: Snapshot) -> int:
    """How many blocks are neither free nor pinned nor in a table."""
    held = {block for table in state.tables.values() for blocks in table for block in blocks}
    kept = (held | set(state.pinned.blocks)) - {NULL}
    return len(state.references) - len(kept) - state.blocks_free


def _of_numbers(mine: int, other: int) -> Iterator[Anomaly]:
    """What it means that a request holds more or fewer blocks than it needs."""
    if mine != other:
        yield Anomaly.WASTE if other > mine else Anomaly.WRONG_ANSWER


def _real(table: Sequence[Sequence[Any]]) -> int:
    return sum(block != NULL for blocks in table for block in blocks)
