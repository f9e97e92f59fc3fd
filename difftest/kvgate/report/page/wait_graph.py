"""The wait-for graph as a drawing: a row for each request, and an arrow from each waiting request to what it waits for.

The rows are equally high, so the arrows are known without measuring anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kvgate.kernel.text import counted
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvgate.report.page.recording import Recording
from kvreference.scheduler.room import blocks_to_run

REQUESTS_MAX = 24
"""How many requests are drawn."""
ARROWS_MAX = 60
"""How many arrows are drawn."""
ROW = 60
"""The height of a row."""
WIDTH = 96
"""The width of the drawing."""
_LEVEL = 12
"""How much further out an arrow goes for each row more that it spans."""

_HELD_UP_BY = {
    Reason.BLOCKS: "waits for blocks that others hold",
    Reason.LINE: "waits for one that comes first",
    Reason.PLACE: "waits for a place among those that run",
    Reason.TURN: "waits for room in a step",
    Reason.TRANSFER: "waits for a transfer",
    Reason.READER: "waits for another node to read its blocks",
    Reason.GRAMMAR: "waits for its grammar to be compiled",
    Reason.CLIENT: "waits for the next part from its client",
    Reason.RESUMED: "waits for the engine to be resumed",
    Reason.ANSWER: "waits for what other nodes offer",
    Reason.NO_REQUEST: "waits for no other request: only the scheduler could advance it",
}


@frozen
class Row:
    """One request."""

    request: int
    standing: str
    waits: tuple[str, ...]
    is_stuck: bool
    """Whether nothing will ever end its wait."""


@frozen
class Arrow:
    """From a waiting request to what it waits for."""

    path: str
    title: str
    in_circle: bool


@frozen
class Drawing:
    """All that is drawn."""

    rows: tuple[Row, ...]
    arrows: tuple[Arrow, ...]
    height: int
    blocks_free: int
    blocks_usable: int
    conclusion: str
    requests_left_out: int
    arrows_left_out: int


def drawing(recording: Recording) -> Drawing | None:
    """The graph of a hang; None where nothing hung."""
    graph = recording.waiting
    if graph is None:
        return None
    numbers = _in_order(graph)
    shown = numbers[:REQUESTS_MAX]
    stuck, circle = set(graph.stuck()), graph.circle()
    places = {number: place for place, number in enumerate(shown)}
    edges = [edge for edge in dict.fromkeys(graph.edges) if edge.holder in places and edge.request in places]
    rows = tuple(
        Row(number, _standing(graph, number), tuple(_waits(graph, number)), number in stuck) for number in shown
    )
    return Drawing(
        rows,
        tuple(_arrow(edge, places, circle) for edge in edges[:ARROWS_MAX]),
        len(shown) * ROW,
        graph.blocks_free,
        recording.settings.blocks - 1,
        _conclusion(recording, graph),
        len(numbers) - len(shown),
        max(0, len(edges) - ARROWS_MAX),
    )


def _in_order(graph: WaitFor) -> list[int]:
    """All requests in the graph: first those with a place, in their order."""
    numbers = dict.fromkeys(number for reported in graph.standing if (number := _number(reported)) is not None)
    numbers |= dict.fromkeys(edge.request for edge in graph.edges)
    numbers |= dict.fromkeys(edge.holder for edge in graph.edges if edge.holder is not None)
    return list(numbers)


def _number(reported: str) -> int | None:
    words = reported.split(maxsplit=2)
    return int(words[1]) if len(words) > 1 and words[0] == "request" and words[1].isdigit() else None


def _standing(graph: WaitFor, number: int) -> str:
    return next((reported.split(maxsplit=2)[-1] for reported in graph.standing if _number(reported) == number), "")


def _waits(graph: WaitFor, number: int) -> Iterator[str]:
    for reason in dict.fromkeys(edge.reason for edge in graph.of(number)):
        edges = [edge for edge in graph.of(number) if edge.reason is reason]
        lost = ", which never ends" if any(edge.lost for edge in edges) else ""
        yield _HELD_UP_BY[reason] + lost


def _arrow(edge: Wait, places: dict[int, int], circle: tuple[int, ...]) -> Arrow:
    """An arc on the left of the rows, further out the more rows it spans."""
    assert edge.holder is not None, "an arrow ends somewhere"
    start, end = places[edge.request], places[edge.holder]
    out = max(6, WIDTH - 24 - _LEVEL * abs(end - start))
    from_y, to_y = start * ROW + ROW // 2 - 5, end * ROW + ROW // 2 + 5
    path = f"M {WIDTH - 4} {from_y} C {out} {from_y}, {out} {to_y}, {WIDTH - 6} {to_y}"
    around = {(one, other) for one, other in zip(circle, (*circle[1:], *circle[:1]), strict=True)}
    return Arrow(path, edge.describe(), (edge.request, edge.holder) in around)


def _conclusion(recording: Recording, graph: WaitFor) -> str:
    """What it comes down to, in a sentence."""
    circle = graph.circle()
    if circle:
        names = " → ".join(f"request {number}" for number in (*circle, circle[0]))
        return f"They wait for one another in a circle: {names}."
    lost = [edge.request for edge in graph.edges if edge.lost]
    if lost:
        return f"Request {lost[0]} waits for a transfer that never ends, and is never removed."
    alone = next((edge.request for edge in graph.edges if edge.reason is Reason.NO_REQUEST), None)
    if alone is None:
        return "Nothing will ever end the wait of the marked requests."
    return _of_one_alone(recording, graph, alone)


def _of_one_alone(recording: Recording, graph: WaitFor, number: int) -> str:
    """About a request that waits for no other request."""
    last = recording.frames[-1].requests if recording.frames else {}
    tokens, usable = last[number].tokens if number in last else 0, recording.settings.blocks - 1
    needed = blocks_to_run(recording.settings, tokens)
    later = len({edge.request for edge in graph.edges if edge.holder == number})
    more = f" {counted(later, 'request')} after it {'waits' if later == 1 else 'wait'} as well." if later else ""
    if needed > usable:
        why = (
            f"can never run: its {counted(tokens, 'token')} need {counted(needed, 'block')}, and the pool has {usable}"
        )
        return f"Request {number} {why}.{more}"
    return f"Request {number} waits for no other request: only the scheduler keeps it from making progress.{more}"
