"""What one engine is asked, and its result: plain data, for the engine runs in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cattrs
from attrs import field, frozen


@frozen
class Ask:
    """A prompt: the tokens of an earlier one with its answer, if ``after`` names it, and then ``tokens``."""

    tokens: tuple[int, ...]
    after: int | None = None
    """The number of an ask of an earlier round."""


@frozen
class Job:
    """An engine to start, and what to ask it, round after round; the asks of a round are computed together."""

    name: str
    model: str
    rounds: tuple[tuple[Ask, ...], ...]
    answer_tokens: int
    options: Mapping[str, Any] = field(factory=dict)
    """Of the engine, under vLLM's own names; ``speculative_config`` may name the model ``DRAFT``."""
    environment: Mapping[str, str] = field(factory=dict)
    plug_ins: str = "swa_retention"
    mutants: tuple[str, ...] = ()
    """Faults of kvgate's own that are injected before the engine is built."""


DRAFT = "DRAFT"
"""Stands for the model's draft model, whose folder only the engine's process knows."""


@frozen
class Answer:
    """What came back for one prompt."""

    tokens: tuple[int, ...]
    cached_tokens: int
    first_logprob: float
    """Of the first token."""
    gap: float
    """By how much the chosen token was ahead of the next, where that was least: of log-probabilities."""


@frozen
class JobResult:
    """The result of a job, in the order of the prompts."""

    name: str
    answers: tuple[Answer, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    """The kind and block size, in tokens, of each KV-cache group."""
    preemptions: int = 0
    drafts: int = 0
    """Draft tokens that were proposed."""
    drafts_accepted: int = 0
    cached_blocks: int = 0
    """In the end."""
    pinned_blocks: int = 0
    """In the end."""
    seconds: float = 0.0
    error: str | None = None
    """What ended the engine, if it did not get to the end."""

    @property
    def cached_tokens(self) -> int:
        """How many tokens were served from the cache."""
        return sum(answer.cached_tokens for answer in self.answers)


_CONVERTER = cattrs.Converter(forbid_extra_keys=True)


def document(value: Job | JobResult) -> dict[str, Any]:
    """As JSON takes it."""
    plain: dict[str, Any] = _CONVERTER.unstructure(value)
    return plain


def job_of(plain: object) -> Job:
    """A job out of a document."""
    return _CONVERTER.structure(plain, Job)


def result_of(plain: object) -> JobResult:
    """The result of a job, from a document."""
    return _CONVERTER.structure(plain, JobResult)
