"""Who waits for whom across two nodes: the wait-for graph of both, with the edges between them.

On one node, a request that loads, or has ended and is still read, waits for something outside. Here the other side is
known. The prefill node holds blocks until the decode node has read them, and the decode node may have to free blocks
before it can read. So the graph of both nodes may show a stuck request where the graph of one node shows none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from attrs import evolve

from kvgate.levels.pair.handover import Handovers, Stand
from kvgate.levels.pair.node import NodeEngine
from kvgate.levels.pair.operations import Node
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvreference.population import Status

_PLACE_OF = {Node.PREFILL: 0, Node.DECODE: 1}


def place_of(node: Node, number: int) -> int:
    """A request on a node, as the graph's number."""
    return 2 * number + _PLACE_OF[node]


class Across:
    """The wait-for graph of two nodes."""

    def __init__(self, prefill: NodeEngine, decode: NodeEngine, handovers: Handovers) -> None:
        self.nodes: Mapping[Node, NodeEngine] = {Node.PREFILL: prefill, Node.DECODE: decode}
        self.handovers = handovers
        for node, engine in self.nodes.items():
            engine.progress.called = partial(self._called_on, node)

    def _called_on(self, node: Node, number: int) -> str:
        return self.called(place_of(node, number))

    def called(self, place: int) -> str:
        """The name of a request on a node: its number on the prefill node, wherever it is."""
        number, there = divmod(place, 2)
        if not there:
            return f"request {number} on the prefill node"
        return f"request {self.handovers.named.get(number, number)} on the decode node"

    def is_open(self, place: int) -> bool:
        """Whether a request has not ended on its node."""
        number, there = divmod(place, 2)
        return self.nodes[Node.DECODE if there else Node.PREFILL].is_open(number)

    def wait_for(self) -> WaitFor:
        """Who waits for whom now."""
        edges = tuple(edge for node in self.nodes for edge in self._edges(node))
        standing = tuple(line for node in self.nodes for line in self._standing(node))
        return WaitFor(edges, self._free(Node.DECODE), standing)

    def describe(self, waiting: WaitFor) -> str:
        """The graph in words."""
        return "; ".join((*waiting.standing, *waiting.describe_waits(self.called)))

    def _free(self, node: Node) -> int:
        return int(self.nodes[node].followed.manager.block_pool.get_num_free_blocks())

    def _standing(self, node: Node) -> Iterator[str]:
        waiting = self.nodes[node].progress.wait_for(self.nodes[node].scheduled)
        yield f"{self._free(node)} blocks are free on the {node.value} node"
        yield from waiting.standing

    def _edges(self, node: Node) -> Iterator[Wait]:
        engine = self.nodes[node]
        for edge in engine.progress.wait_for(engine.scheduled).edges:
            request = engine.followed.population.alive.get(edge.request)
            if node is Node.PREFILL and request is not None and request.status is Status.ENDING:
                yield from self._held_for_reader(edge)
                continue
            holder = None if edge.holder is None else place_of(node, edge.holder)
            yield evolve(edge, request=place_of(node, edge.request), holder=holder)

    def _held_for_reader(self, edge: Wait) -> Iterator[Wait]:
        """Why the prefill node still holds the blocks of a request that it has computed."""
        place, handover = place_of(Node.PREFILL, edge.request), self.handovers.open.get(edge.request)
        engine = self.nodes[Node.PREFILL]
        if handover is None:
            is_signalled = engine.nodes.signals_end_of(edge.request)
            yield Wait(place, Reason.TRANSFER if is_signalled else Reason.NO_REQUEST)
        elif handover.stand is not Stand.PREFILLED:
            yield Wait(place, Reason.TRANSFER, lost=handover.lost)
        elif handover.there is not None:
            yield Wait(place, Reason.READER, place_of(Node.DECODE, handover.there))
        else:
            others = self.nodes[Node.DECODE].followed.population.alive
            yield from (Wait(place, Reason.PLACE, place_of(Node.DECODE, other)) for other in others)
