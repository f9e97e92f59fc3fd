"""Sessions: requests of which the client sends the prompt in parts, each of which is answered before the next begins.

Between two parts a session keeps its blocks, and waits for its client. The last token that a part was answered was
never computed, and the next part takes its place. Parts that come early wait in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from attrs import define, field, frozen

from kvgate.levels.scheduler.nodes import one_named
from kvgate.levels.scheduler.operations import Serve
from kvreference.content import Media
from kvreference.operations import Run
from kvreference.population import Request, Status
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings

PARTS_MAX = 1_000_000
"""More parts than one run has."""
Prompt = tuple[Run, ...]


@frozen
class Part:
    """A part that has come, and not begun."""

    prompt: Prompt
    media: tuple[Media, ...]
    came: float
    """When, among the numbers of requests."""


@define
class Session:
    """One session."""

    first: Serve
    """Its first part."""
    limit_tokens: int
    """How many tokens it has at most when all parts that have come are answered."""
    waiting: deque[Part | None] = field(factory=deque)
    """The parts that have come, and not begun; None is the end."""
    stop: object = None
    """The token that stopped one of its parts last."""

    @property
    def is_closed(self) -> bool:
        """Whether its client sends no further part."""
        return bool(self.waiting) and self.waiting[-1] is None


class Sessions:
    """The sessions of one scheduler."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.open: dict[int, Session] = {}
        self.parts = 0
        """How many further parts have come."""

    def named(self, request: int, alive: Collection[int]) -> int | None:
        """The session for which a number stands, if there is one whose client may send more."""
        return one_named(request, self.open_to_parts(alive))

    def open_to_parts(self, alive: Collection[int]) -> list[int]:
        """The sessions whose client may send more."""
        return [number for number, each in self.open.items() if number in alive and not each.is_closed]

    def take(self, session: Session, request: Request, prompt: Prompt) -> bool:
        """Take a further part, if it is short enough: a session that grows beyond what fits is never served again."""
        tokens = sum(run.length for run in prompt)
        paused = request.status is Status.PAUSED
        limit = (request.tokens_computed if paused else session.limit_tokens) + tokens + session.first.answers_max
        if limit > self.settings.tokens_max or blocks_to_run(self.settings, limit - 1) > self.settings.blocks - 1:
            return False
        session.limit_tokens = limit
        self.parts += 1
        return True
