"""What a divergence means to those who use the server.

A comparison says what differs first, and a monitor what it watches. Here one name is found for what both have seen: the
worst of what the difference itself means, and of what monitors report if the run goes on without the reference.
"""

from __future__ import annotations

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
        Anomaly.WRONG_ANSWER: "A request is computed from KV-cache entries that are not its own, or misses some.",
        Anomaly.CRASH: "The engine raises, and every request on it fails.",
        Anomaly.HANG: "A request waits for ever, although nothing that it waits for can come.",
        Anomaly.LEAK: "Blocks or memory are lost for good: the server holds fewer and fewer requests.",
        Anomaly.LOST_HIT: "The prefix cache misses what it could serve: prompts are computed again.",
        Anomaly.WASTE: "More blocks or more work are used than needed: fewer requests fit, or steps take longer.",
        Anomaly.WRONG_EVENT: "KV events or statistics are wrong: routers and dashboards that read them are misled.",
        Anomaly.ORDER: "Blocks are used or evicted in another order: answers are right, and hit rates may suffer.",
    }
)
_OF_STATEMENTS: Mapping[str, Anomaly] = MappingProxyType(
    {
        "KV-MEM": Anomaly.WRONG_ANSWER,
        "KV-LEAK": Anomaly.LEAK,
        "KV-LIVE": Anomaly.HANG,
        "KV-WORK": Anomaly.WASTE,
        "KV-SYS-01": Anomaly.CRASH,
        "KV-SYS-04": Anomaly.ORDER,
        "KV-SYS-06": Anomaly.WASTE,
        "KV-SYS": Anomaly.WRONG_ANSWER,
        "KV-INV-04": Anomaly.WRONG_ANSWER,
        "KV-INV-05": Anomaly.LOST_HIT,
        "KV-INV-06": Anomaly.WRONG_ANSWER,
        "KV-OP-09": Anomaly.WRONG_ANSWER,
        "KV-OP-10": Anomaly.WRONG_ANSWER,
        "KV-OP-12": Anomaly.WRONG_EVENT,
        "KV-OP-13": Anomaly.WRONG_EVENT,
        "KV-OP-18": Anomaly.LOST_HIT,
        "KV-OP-19": Anomaly.WRONG_ANSWER,
        "KV-OP-20": Anomaly.WRONG_ANSWER,
        "KV-OP-21": Anomaly.LOST_HIT,
        "KV-OP-22": Anomaly.LOST_HIT,
        "KV-OP-25": Anomaly.WRONG_ANSWER,
        "KV-OP-26": Anomaly.WRONG_ANSWER,
    }
)
"""What the violation of a guarantee means, where neither the answers nor the states say more."""


@frozen
class Diagnosis:
    """What a divergence means, and where it comes from."""

    anomaly: Anomaly
    suspects: tuple[Suspect, ...] = ()
    """The functions that may have done it, the likeliest first; none where nothing was replaced or changed."""
    follows: Divergence | None = None
    """What a monitor reports if the run goes on."""
    then: tuple[str, ...] = ()
    """The operations that come between, in words."""

    @property
    def cause(self) -> str | None:
        """The function that did it, as far as is known: divergences with one cause are one story."""
        return self.suspects[0].function if self.suspects else None


def of_statement(divergence: Divergence) -> Anomaly:
    """What a divergence means, if nothing more is known."""
    return of_id(divergence.difference.statement)


def of_id(statement: str) -> Anomaly:
    """What the violation of a guarantee means, if nothing more is known."""
    named = (_OF_STATEMENTS.get(each) for each in (statement, statement.rpartition("-")[0]))
    return next((each for each in named if each is not None), Anomaly.ORDER)


def of_lockstep(divergence: Divergence, lockstep: Lockstep) -> Anomaly:
    """What a difference means, by the answers and the states of both sides."""
    if divergence.detector != "lockstep" or lockstep.reference is None or lockstep.raised is not None:
        return of_statement(divergence)
    found = list(_of_answers(*lockstep.answers))
    if not found:
        found = list(_of_states(lockstep.reference.snapshot(), lockstep.system.snapshot()))
    return min(found, key=lambda each: each.rank, default=of_statement(divergence))


def _of_answers(ours: Answer | None, theirs: Answer | None) -> Iterator[Anomaly]:
    """What different answers mean; nothing where the states must say it."""
    match ours, theirs:
        case (Happened(), _):
            yield Anomaly.WRONG_EVENT
        case (Statistics(), _) if ours != theirs:
            yield Anomaly.WRONG_EVENT
        case (Refused(), Granted()) | (Granted(), Refused()):
            # If it is refused for ever, a monitor says that it hangs.
            yield Anomaly.WASTE
        case Shared(blocks=mine), Shared(blocks=other) if mine != other:
            longer = any(b > a for a, b in zip(mine, other, strict=False))
            yield Anomaly.WRONG_ANSWER if longer else Anomaly.WASTE
        case Success(succeeded=due), Success(succeeded=done) if due != done:
            yield Anomaly.WRONG_ANSWER if done else Anomaly.WASTE
        case ((Hit() | Granted() | Refused()), (Hit() | Granted() | Refused())):
            tokens, their_tokens = hit_tokens_of(ours) or 0, hit_tokens_of(theirs) or 0
            if tokens != their_tokens:
                yield Anomaly.WRONG_ANSWER if their_tokens > tokens else Anomaly.LOST_HIT
            elif isinstance(ours, Granted) and isinstance(theirs, Granted):
                yield from _of_numbers(_real(ours.blocks), _real(theirs.blocks))


def _of_states(ours: Snapshot, theirs: Snapshot) -> Iterator[Anomaly]:
    """What different states mean: who holds more or less than due, what is free, what is cached."""
    for number, table in ours.tables.items():
        yield from _of_numbers(_real(table), _real(theirs.tables.get(number, ())))
    for mine, other in ((_stray_references(ours), _stray_references(theirs)), (_lost(ours), _lost(theirs))):
        if mine != other:
            yield Anomaly.LEAK if other > mine else Anomaly.WRONG_ANSWER
    if list(ours.free) != list(theirs.free) and sorted(ours.free) == sorted(theirs.free):
        yield Anomaly.ORDER
    cached = [sum(content is not None for content in each.contents) for each in (ours, theirs)]
    if cached[0] != cached[1]:
        yield Anomaly.LOST_HIT if cached[1] < cached[0] else Anomaly.WASTE


def _stray_references(state: Snapshot) -> int:
    """How many references are counted that no table has."""
    return sum(state.references[1:]) - sum(map(_real, state.tables.values()))


def _lost(state: Snapshot) -> int:
    """How many blocks are neither free nor in a table."""
    held = {block for table in state.tables.values() for blocks in table for block in blocks}
    return len(state.references) - len(held - {NULL}) - state.blocks_free


def _of_numbers(mine: int, other: int) -> Iterator[Anomaly]:
    """What it means that a request holds more or fewer blocks than it needs."""
    if mine != other:
        yield Anomaly.WASTE if other > mine else Anomaly.WRONG_ANSWER


def _real(table: Sequence[Sequence[Any]]) -> int:
    return sum(block != NULL for blocks in table for block in blocks)
