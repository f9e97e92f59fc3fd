"""What a simulation reports: per request, as the server counts it, and over time. All of it is data.

Two hit rates, because they differ. ``hit_rate`` adds up what every request hit at its admission, each once.
``server.hit_rate`` is what vLLM's own counters say, which count a request again at every step in which it is looked up
and not admitted. Requests of the warm-up are in neither.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import cattrs
from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter


@frozen
class Served:
    """One request that was served to its end. Counts are in tokens by default."""

    number: int
    """In the order in which requests were sent, over all lanes."""
    session: int
    turn: int
    counted: bool
    """Not sent to warm up."""
    prompt_tokens: int
    answer_tokens: int
    hit_tokens: int
    """What it hit when it was admitted the first time."""
    computed_tokens: int
    """All that was computed for it, prompt and answers, rejected drafts and what preemption threw away among them."""
    copied_tokens: int = 0
    """What was copied for hits that end inside blocks."""
    preemptions: int = 0
    look_ups: int = 1
    """How often it was looked up: more than once if it was not admitted at once, or lost its blocks."""
    hit_with_tier_tokens: int | None = None
    """What it could have hit then on the device and in an ideal tier; None if there is no tier."""


@frozen
class Counters:
    """Prefix-cache counters as vLLM keeps them: requests that were preempted before are not among them."""

    look_ups: int = 0
    queries_tokens: int = 0
    hits_tokens: int = 0

    @property
    def hit_rate(self) -> float:
        """Hits by queries, as a server reports it."""
        return self.hits_tokens / self.queries_tokens if self.queries_tokens else 0.0

    def since(self, before: Counters) -> Counters:
        """What was counted since ``before``."""
        return Counters(
            self.look_ups - before.look_ups,
            self.queries_tokens - before.queries_tokens,
            self.hits_tokens - before.hits_tokens,
        )


@frozen
class Usage:
    """The pool at the end of one step. Few steps are kept, evenly spread."""

    step: int
    ended: int
    """How many requests have ended."""
    blocks_held: int
    """Blocks that some request holds."""
    running: int


@frozen
class Soundness:
    """What a monitor that knows nothing of hashes found in the blocks that were read."""

    reads: int = 0
    """How many blocks were checked when a token's attention read them."""
    hits: int = 0
    """How many requests began after a hit, each block of which was checked."""
    unsound: str | None = None
    """The first read that was not what the request's own tokens had written; None: all were."""
    judged: bool = True
    """Whether ghost memory checked at all."""

    @property
    def sound(self) -> bool:
        """Whether hit rates may be believed."""
        return self.judged and self.unsound is None


@frozen
class Result:
    """One simulation."""

    arm: str
    workload: str
    model: str
    policy: str
    blocks: int
    seed: int
    served: tuple[Served, ...]
    """In the order of ``number``."""
    server: Counters
    """Of the counted part: since the warm-up ended."""
    soundness: Soundness
    steps: int
    evictions: int
    """Cached blocks that were taken for something else, from the first request on."""
    usage: tuple[Usage, ...] = ()
    seconds: float = 0.0
    """Process time of the simulation, building apart."""
    system: str = ""
    """The system whose block manager served, or was followed; none where it is the reference."""
    choices: str | None = None
    """What the release decides differently by design, by name."""
    findings: tuple[tuple[str, int], ...] = ()
    """The findings of the release that acted, and how often."""
    crash: str | None = None
    """Why the engine's process ended in the last step, before all was served; None: it did not."""

    @property
    def crash_finding(self) -> str | None:
        """The finding by which the engine's process ended; None if it did not, or not by one."""
        found = re.search(r" \(finding (\S+)\)$", self.crash or "")
        return found and found.group(1)

    @property
    def counted(self) -> tuple[Served, ...]:
        """The requests that were not sent to warm up."""
        return tuple(each for each in self.served if each.counted)

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all counted prompts."""
        return sum(each.prompt_tokens for each in self.counted)

    @property
    def hit_tokens(self) -> int:
        """What counted requests hit, each when it was admitted the first time."""
        return sum(each.hit_tokens for each in self.counted)

    @property
    def hit_rate(self) -> float:
        """Hits by prompt tokens, each request once."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def hit_rate_with_tier(self) -> float | None:
        """The same with an ideal tier; None if there is none."""
        hits = [each.hit_with_tier_tokens for each in self.counted if each.hit_with_tier_tokens is not None]
        return sum(hits) / self.prompt_tokens if hits and self.prompt_tokens else None

    @property
    def computed_tokens(self) -> int:
        """What was computed for counted requests."""
        return sum(each.computed_tokens for each in self.counted)

    @property
    def copied_tokens(self) -> int:
        """What was copied for counted requests."""
        return sum(each.copied_tokens for each in self.counted)

    @property
    def preemptions(self) -> int:
        """How often counted requests lost their blocks."""
        return sum(each.preemptions for each in self.counted)


@cache
def _converter() -> cattrs.Converter:
    return strict_converter()


def to_record(result: Result) -> dict[str, Any]:
    """A result as a JSON object."""
    record: dict[str, Any] = _converter().unstructure(result)
    return record


def from_record(record: object, name: str) -> Result:
    """The result in a JSON object.

    Raises:
        UsageError: it is not well formed; says what is wrong.
    """
    try:
        result: Result = _converter().structure(record, Result)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{name}: {explain(error)}") from error
    return result
