"""Answers from the cache next to answers without it.

A server may differ from itself: many kernels add up in another order when the batch is another. So every prompt is
asked twice without the cache. Where these two differ, nothing is known about the cache: that is reported, not passed.
Nor can it where they may have come from the cache themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from kvgate.live.server import Reply

NOT_KNOWN = (
    "what was asked with a salt of its own is not known to be uncached: start vllm serve with "
    "--enable-prompt-tokens-details, or keep all other clients off the server meanwhile"
)
_REASONS_MAX = 3
TOLERANCE = 1e-3
"""How much log-probabilities may differ by default: enough for 32 bits; bfloat16 needs about 0.1."""


class Verdict(str, Enum):
    """The result for one prompt."""

    EQUAL = "equal"
    DIFFERS = "differs"
    TIE = "tie"
    """Where the answers part, both tokens were as likely, within the tolerance: not decided by the cache."""
    NOT_CHECKED = "not checked"
    """The server differs from itself without the cache, or it is unknown whether the cache was used."""
    SALT_IGNORED = "salt ignored"
    """A salt that was never used before was served from the cache."""


@frozen
class Comparison:
    """One prompt."""

    verdict: Verdict
    why: str = ""
    cached_tokens: int | None = None


@frozen
class Tally:
    """What was found of many prompts."""

    comparisons: tuple[Comparison, ...]

    def count(self, verdict: Verdict) -> int:
        """How many of a verdict."""
        return sum(each.verdict is verdict for each in self.comparisons)

    @property
    def sentence(self) -> str:
        """All of it in one."""
        counts = ", ".join(f"{self.count(verdict)} {verdict.value}" for verdict in Verdict if self.count(verdict))
        known = [each.cached_tokens for each in self.comparisons if each.cached_tokens is not None]
        return f"{len(self.comparisons)} prompts: {counts}; {sum(known) if known else 'unknown'} tokens from the cache"

    @property
    def complaint(self) -> str | None:
        """What is wrong, if anything is; too few checked prompts count as wrong."""
        salts = self.count(Verdict.SALT_IGNORED)
        if salts:
            return f"{self.sentence}. {salts} with a salt of their own were served from the cache: salts are ignored"
        wrong = [
            f"{number}: {each.why}" for number, each in enumerate(self.comparisons) if each.verdict is Verdict.DIFFERS
        ]
        if wrong:
            return f"{self.sentence}. Answers differ with the cache:\n" + "\n".join(wrong)
        if 2 * self.count(Verdict.EQUAL) > len(self.comparisons):
            return None
        reasons = sorted({each.why for each in self.comparisons if each.verdict is Verdict.NOT_CHECKED})
        return (
            f"{self.sentence}. Half or more could not be checked: give --live-tolerance, or a server that repeats "
            "itself" + "".join(f"\n{reason}" for reason in reasons[:_REASONS_MAX])
        )


def compare_answers(cached: Reply, without: Reply, again: Reply, tolerance: float = TOLERANCE) -> Comparison:
    """Compare the answers to a prompt that was asked with the cache, and twice without."""
    if without.cached_tokens or again.cached_tokens:
        return Comparison(Verdict.SALT_IGNORED, "", cached.cached_tokens)
    if without.cached_tokens is None or again.cached_tokens is None:
        return Comparison(Verdict.NOT_CHECKED, NOT_KNOWN, cached.cached_tokens)
    noise = parting(without, again, tolerance)
    if noise is not None:
        return Comparison(Verdict.NOT_CHECKED, f"without the cache, {noise}", cached.cached_tokens)
    if is_tie(without, again, tolerance):
        return Comparison(Verdict.TIE, "", cached.cached_tokens)
    difference = parting(without, cached, tolerance)
    if difference is not None:
        return Comparison(Verdict.DIFFERS, difference, cached.cached_tokens)
    verdict = Verdict.TIE if is_tie(without, cached, tolerance) else Verdict.EQUAL
    return Comparison(verdict, "", cached.cached_tokens)


def parting(one: Reply, other: Reply, tolerance: float) -> str | None:
    """How two answers differ, if they do and it was no tie."""
    if one.places and other.places:
        distance = abs(one.places[0].logprob - other.places[0].logprob)
        if one.places[0].token == other.places[0].token and distance > tolerance:
            return f"the first token's log-probability is off by {distance:.3g} (allowed: {tolerance:g})"
    if one.text == other.text or is_tie(one, other, tolerance):
        return None
    place = _first_unlike(one, other)
    where = "" if place is None else f" from token {place} on"
    return f"{_shown(one.text)} and {_shown(other.text)} differ{where}"


def is_tie(one: Reply, other: Reply, tolerance: float) -> bool:
    """Whether two answers differ, and part where both tokens were as likely."""
    place = _first_unlike(one, other)
    if place is None:
        return False
    here, there = one.places[place], other.places[place]
    return all(
        abs(each.others[here.token] - each.others[there.token]) <= tolerance
        if {here.token, there.token} <= set(each.others)
        else False
        for each in (here, there)
    )


def _first_unlike(one: Reply, other: Reply) -> int | None:
    pairs = zip(one.places, other.places, strict=False)
    return next((place for place, (here, there) in enumerate(pairs) if here.token != there.token), None)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def tally(
    cached: Sequence[Reply], without: Sequence[Reply], again: Sequence[Reply], tolerance: float = TOLERANCE
) -> Tally:
    """Compare the answers to many prompts."""
    return Tally(tuple(compare_answers(*each, tolerance) for each in zip(cached, without, again, strict=True)))
