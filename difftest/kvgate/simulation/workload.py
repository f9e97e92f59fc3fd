"""A workload: what is asked of a server, as data.

Token ids are written as runs, so that a prompt of a million tokens is one value; two prompts share a prefix exactly as
long as their runs agree. What the model answers is part of the workload: a later turn of a conversation can quote it.

Clients are *lanes*. A lane serves one session at a time, one turn after the other. It sends a turn when the one before
it has ended and the turn's pause is over, and takes the next session in order when its own is over. So ``lanes`` is the
concurrency of a fixed-concurrency benchmark, whose sessions have one turn each, and the number of agents of a trace
replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from attrs import field, frozen
from attrs.validators import ge, instance_of, le, min_len, optional

from kvreference.operations import Run

TOKEN_MAX = 1 << 40
"""Token ids stay below this. They are names, not a vocabulary."""
LANES_MAX = 200_000
"""The most clients."""


@frozen
class Turn:
    """One request."""

    prompt: tuple[Run, ...] = field(validator=min_len(1))
    answers: Run = field()
    """What the model answers; its length is how many tokens the request is answered."""
    pause_steps: int = field(default=0, validator=[instance_of(int), ge(0)])
    """So many steps pass after the end of the turn before, while its client thinks or runs a tool."""

    @property
    def prompt_tokens(self) -> int:
        """How long the prompt is."""
        return sum(run.length for run in self.prompt)

    @property
    def tokens(self) -> int:
        """How long prompt and answers are together."""
        return self.prompt_tokens + self.answers.length

    @property
    def runs(self) -> tuple[Run, ...]:
        """Prompt and answers."""
        return (*self.prompt, self.answers)


@frozen
class Session:
    """Requests that one client sends, each when the one before it has ended."""

    turns: tuple[Turn, ...] = field(validator=min_len(1))


@frozen
class Workload:
    """What is asked of a server."""

    name: str
    sessions: tuple[Session, ...] = field(validator=min_len(1))
    lanes: int = field(default=1, validator=[instance_of(int), ge(1), le(LANES_MAX)])
    """How many sessions are served at once."""
    warm_up: tuple[Session, ...] = ()
    """Sent before by the same lanes, and not counted: what is counted is sent when all of it has ended."""
    about: str = ""
    """In one sentence, for readers."""
    requests_max: int | None = field(default=None, validator=optional([instance_of(int), ge(1)]))
    """After how many counted requests the clients stop, as a benchmark does whose time is over; None: at the end."""

    @cached_property
    def requests(self) -> int:
        """How many requests are sent, those of the warm-up among them."""
        counted = sum(len(session.turns) for session in self.sessions)
        return sum(len(session.turns) for session in self.warm_up) + min(counted, self.requests_max or counted)

    @cached_property
    def tokens_longest(self) -> int:
        """How long the longest request becomes, sent or not."""
        return max(turn.tokens for session in (*self.warm_up, *self.sessions) for turn in session.turns)


def single(*turns: Turn) -> tuple[Session, ...]:
    """Every turn as a session of its own: its client does not wait for those before it."""
    return tuple(Session((turn,)) for turn in turns)


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same tokens in as few runs as there can be."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].first + found[-1].length == run.first:
            found[-1] = Run(found[-1].first, found[-1].length + run.length)
        else:
            found.append(run)
    return tuple(found)


def cut(runs: Iterable[Run], start: int, length: int) -> tuple[Run, ...]:
    """``length`` tokens from ``start`` on."""
    found: list[Run] = []
    end = start + length
    for run in runs:
        first, last = max(0, start), min(run.length, end)
        if first < last:
            found.append(Run(run.first + first, last - first))
        start, end = start - run.length, end - run.length
    return tuple(found)


def common_tokens(ours: tuple[Run, ...], theirs: tuple[Run, ...]) -> int:
    """How many leading tokens two lists of runs share."""
    shared = 0
    mine, other = list(reversed(ours)), list(reversed(theirs))
    while mine and other and mine[-1].first == other[-1].first:
        one, two = mine.pop(), other.pop()
        length = min(one.length, two.length)
        shared += length
        for run, rest in ((one, mine), (two, other)):
            if run.length > length:
                rest.append(Run(run.first + length, run.length - length))
    return shared
