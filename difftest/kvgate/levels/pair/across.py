"""Checks of two nodes together: what neither node can see alone.

All checks of an engine run on each node. The checks here span both. The prefill node holds what the decode node still
reads. Neither holds anything for the other once all requests have ended. Some request always makes progress, on one
node or the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.kernel.difference import Difference
from kvgate.levels.pair.handover import Handovers
from kvgate.levels.pair.node import NodeEngine
from kvgate.levels.pair.waiting import Across
from kvgate.monitors.wait_graph import WaitFor


def is_held(prefill: NodeEngine, handovers: Handovers) -> Difference | None:
    """The blocks that the decode node reads, or may yet read, are held on the prefill node, each at its place."""
    needed = [each for each in handovers if each.needed]
    if not needed:
        return None
    snapshot = prefill.followed.snapshot()
    for each in needed:
        got = tuple(map(tuple, snapshot.tables.get(each.number, ())))
        # A table may continue after the blocks to read: with those of a draft layer.
        if len(got) != len(each.tables) or any(
            held[: len(due)] != due for held, due in zip(got, each.tables, strict=True)
        ):
            where = f"the prefill node's blocks of request {each.number}, which the decode node is to read"
            return Difference("KV-OP-25", where, str(each.tables), str(got) if got else "freed")
    return None


def remains(nodes: tuple[NodeEngine, NodeEngine], handovers: Handovers) -> Iterator[Difference]:
    """The transfers that are still open when all requests have ended and all messages have arrived."""
    prefill, decode = nodes
    for number in prefill.nodes.under_way():
        handover = handovers.open.get(number)
        why = "no message says that they are read" if handover is None or not handover.lost else "the message is lost"
        got = f"request {number} holds {_held(prefill, number)} for the decode node, and {why}"
        yield Difference("KV-LEAK-01", "blocks held on the prefill node", "none", got)
    for there in decode.nodes.under_way():
        number = handovers.named.get(there, there)
        got = f"request {number} holds {_held(decode, there)} for what it reads, and the read never ends"
        yield Difference("KV-LEAK-01", "blocks held on the decode node", "none", got)


def _held(engine: NodeEngine, number: int) -> str:
    blocks = sum(block != 0 for table in engine.followed.snapshot().tables.get(number, ()) for block in table)
    return f"{blocks} blocks"


class ProgressAcross:
    """Watches both nodes: if both stand still, and a request is stuck, it is a hang."""

    def __init__(self, prefill: NodeEngine, decode: NodeEngine, handovers: Handovers) -> None:
        self.engines = prefill, decode
        self.graph = Across(prefill, decode, handovers)
        self.waiting: WaitFor | None = None
        """Who waited for whom when a hang was found."""

    def observe(self) -> Difference | None:
        """After a step of either."""
        if not all(engine.still or engine.rests for engine in self.engines):
            return None
        waiting = self.graph.wait_for()
        # An ended request that still holds blocks is a leak. It is a hang only if another request waits for these.
        if not any(map(self.graph.is_open, waiting.stuck())):
            return None
        self.waiting = waiting
        expected = "a request makes progress on either node, or something changes"
        return Difference("KV-LIVE-03", "progress of both nodes", expected, self.graph.describe(waiting))
