"""A server, and the policy of its prefix cache: together they are what a block manager is built with.

A policy is written in words, joined by ``+``:

- ``dense``: vLLM 0.20.2 as published, every block is cached when it is full (``stock`` says the same);
- ``masked``: only what a hit can read is cached; an interval of one alignment;
- ``retention=N``: sliding windows and states are cached at every multiple of N tokens, and at the replay boundary;
  ``retention=0`` at the replay boundary alone, ``retention=auto`` at vLLM's default interval;
- ``interval-only``: with a retention interval, not at the replay boundary (no release has it, only ``ranges``);
- ``junctions``: with a retention interval, they are cached where a prompt parts from what is cached, too;
- ``scratch``: what is not cached goes to the front of the free queue when it is released ("prepend");
- ``pinned`` or ``pinned=B``: drops of a window of at least B blocks (16) leave a pinned tail;
- ``partial`` or ``partial=U``: hits may end inside compressed blocks, at multiples of U tokens (128), served by a copy;
- ``min=N``: a hit that ends inside a block is at least N tokens long.
"""

from __future__ import annotations

from attrs import evolve, field, frozen
from attrs.validators import ge, instance_of

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.kernel.errors import UsageError
from kvreference.compressed import C128, Tokens, with_partial_hits
from kvreference.geometry import Geometry
from kvreference.retention import interval_of
from kvreference.settings import Settings

PIN_DROP_BLOCKS_MIN = 16
_count = [instance_of(int), ge(1)]


@frozen
class Serving:
    """A server: the model's groups, its pool and its limits."""

    model: str
    """What the geometry is called, for readers."""
    geometry: Geometry
    blocks: int = field(validator=[instance_of(int), ge(2)])
    """The pool, the null block among them."""
    tokens_max: int = field(default=135_000, validator=_count)
    """``--max-model-len``."""
    chunk_tokens: int = field(default=8192, validator=_count)
    """``--max-num-batched-tokens``: what one step computes, of one request or of all together."""
    running_max: int = field(default=256, validator=_count)
    """``--max-num-seqs``."""
    drafts_max: int = field(default=0, validator=[instance_of(int), ge(0)])
    """How many draft tokens follow each sampled one; 0: no speculation."""
    acceptance: float = 1.0
    """The probability that a draft holds, given that all before it did."""
    version: str = VLLM_VERSION
    """Of vLLM, for the arm ``release``."""
    tier_blocks: int = field(default=0, validator=[instance_of(int), ge(0)])
    """How many blocks an ideal tier on the host has, for the arms ``release`` and ``reference``; 0: there is none."""


@frozen
class Policy:
    """What of a prefix stays in the cache, and where a hit may end."""

    name: str = "dense"
    interval_tokens: int | None = None
    """The retention interval; None: dense."""
    masked: bool = False
    """An interval of one alignment of the geometry."""
    scratch_first: bool = False
    pin_drop_blocks_min: int | None = None
    partial_unit_tokens: int | None = None
    partial_hit_tokens_min: int = 0
    keeps_junctions: bool = False
    keeps_replays: bool = True

    def geometry(self, serving: Serving) -> Geometry:
        """The server's groups, with the units at which hits may end."""
        if self.partial_unit_tokens is None:
            return serving.geometry
        return with_partial_hits(serving.geometry, Tokens(self.partial_unit_tokens))

    def settings(self, serving: Serving, requests_max: int) -> Settings:
        """What a block manager is built with, if at most ``requests_max`` requests are alive at once.

        Raises:
            UsageError: the policy does not fit the server.
        """
        try:
            geometry = self.geometry(serving)
            return Settings(
                geometry,
                serving.blocks,
                tokens_max=serving.tokens_max,
                chunk_tokens=serving.chunk_tokens,
                requests_max=requests_max,
                drafts_max=serving.drafts_max,
                # Where no state is kept, vLLM has no prefix cache either.
                caches=all(group.attention.serves_hits for group in geometry.groups),
                tells_events=False,
                retention_interval_tokens=geometry.alignment_tokens if self.masked else self.interval_tokens,
                keeps_junctions=self.keeps_junctions,
                scratch_first=self.scratch_first,
                pin_drop_blocks_min=self.pin_drop_blocks_min,
                partial_hit_tokens_min=self.partial_hit_tokens_min,
            )
        except ValueError as error:
            raise UsageError(f"policy {self.name!r} does not fit {serving.model}: {error}") from error


DENSE = Policy()


def policy_of(text: str) -> Policy:
    """The policy that ``text`` names (``retention=32768+scratch``).

    Raises:
        UsageError: it names none; says what there is.
    """
    policy = Policy(name=text)
    seen: set[str] = set()
    for word in text.split("+"):
        name, _, number = word.partition("=")
        if name in seen:
            raise UsageError(f"policy {text!r}: {name!r} is given twice")
        seen.add(name)
        policy = _with_word(policy, name, number)
    if seen & {"dense", "stock"} and seen & {"masked", "retention"}:
        raise UsageError(f"policy {text!r}: dense caching leaves nothing out, masked caching and retention do")
    for word in ("junctions", "interval-only"):
        if word in seen and "retention" not in seen:
            raise UsageError(f"policy {text!r}: {word!r} is about what a retention interval leaves out")
    if {"masked", "retention"} <= seen:
        raise UsageError(f"policy {text!r}: masked caching is an interval too; give one of the two")
    if "min" in seen and "partial" not in seen:
        raise UsageError(f"policy {text!r}: 'min' is about hits that end inside blocks, it needs 'partial'")
    return policy


def _with_word(policy: Policy, name: str, number: str) -> Policy:
    if name in ("dense", "stock", "masked", "junctions", "interval-only", "scratch") and number:
        raise UsageError(f"policy {policy.name!r}: {name!r} takes no number")
    if name in ("dense", "stock"):
        return policy
    if name == "masked":
        return evolve(policy, masked=True)
    if name == "junctions":
        return evolve(policy, keeps_junctions=True)
    if name == "interval-only":
        return evolve(policy, keeps_replays=False)
    if name == "scratch":
        return evolve(policy, scratch_first=True)
    if name == "retention":
        return evolve(policy, interval_tokens=_interval(policy, number))
    if name == "pinned":
        return evolve(policy, pin_drop_blocks_min=_number(policy, name, number or str(PIN_DROP_BLOCKS_MIN)))
    if name == "partial":
        return evolve(policy, partial_unit_tokens=_number(policy, name, number or str(C128)))
    if name == "min":
        return evolve(policy, partial_hit_tokens_min=_number(policy, name, number))
    raise UsageError(
        f"policy {policy.name!r}: no word {name!r}: there are dense, masked, retention=N, junctions, interval-only, "
        "scratch, pinned[=B], partial[=U], min=N, joined by +"
    )


def _interval(policy: Policy, number: str) -> int:
    try:
        interval = interval_of(number)
    except ValueError as error:
        raise UsageError(f"policy {policy.name!r}: {error}") from error
    if interval is None:
        raise UsageError(f"policy {policy.name!r}: retention needs a number of tokens: retention=32768, or retention=0")
    return interval


def _number(policy: Policy, name: str, number: str) -> int:
    if not number.isdecimal() or len(number) > 7 or int(number) < 1:
        raise UsageError(f"policy {policy.name!r}: what follows {name}= must be a number of at least 1, got {number!r}")
    return int(number)
