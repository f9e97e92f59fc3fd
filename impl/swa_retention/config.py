"""The configuration: what the environment asks for, checked as a whole.

Most variables are vLLM's own names for these features, so that a deployment that moves to a vLLM that has them keeps
its settings. Masked caching, scratch first and junctions have no switch in vLLM: the first two are always on from 0.23
on, junctions in 0.33.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from attrs import frozen

RETENTION = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
PIN = "VLLM_PIN_SWA_TOKENS"
PIN_MIN_DROP = "VLLM_PIN_MIN_DROP_SIZE"
PARTIAL = "VLLM_PREFIX_CACHE_PARTIAL_HITS"
PARTIAL_MIN = "VLLM_PREFIX_CACHE_PARTIAL_HIT_MIN_TOKENS"
COMPRESSED = "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE"
MASKED = "VLLM_PREFIX_CACHE_MASKED"
SCRATCH_FIRST = "VLLM_PREFIX_CACHE_SCRATCH_FIRST"
JUNCTIONS = "VLLM_PREFIX_CACHE_JUNCTIONS"
VARIABLES = (RETENTION, PIN, PIN_MIN_DROP, PARTIAL, PARTIAL_MIN, COMPRESSED, MASKED, SCRATCH_FIRST, JUNCTIONS)
"""All that is read."""

AUTO_INTERVAL_TOKENS = 32768
"""What ``auto`` stands for: every 32 Ki tokens a prompt can be resumed from."""
MIN_DROP_BLOCKS = 16
"""The shortest window drop, in blocks, that is pinned by default: decoding drops a block at a time."""
COMPRESSED_BLOCK_SIZES_SLOTS = (128, 64, 32)
"""The block sizes that vLLM-Ascend's kernels have, in slots."""

_DIGITS_MAX = 18
"""More than any count of tokens has, and fewer than Python's limit."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class ConfigurationError(ValueError):
    """A variable, or a key of vLLM's ``additional_config``, has a value that it cannot have."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is not possible: {allowed}")
        self.allowed = allowed


@frozen
class Configuration:
    """What is switched on."""

    retention_interval_tokens: int | None = None
    """At which boundaries the blocks of sliding windows stay cached, in tokens; None: everywhere, as in vLLM."""
    interval_is_auto: bool = False
    """Whether the interval is rounded up to a multiple of the alignment, instead of being rejected."""
    masked: bool = False
    """Whether only what a hit can read stays cached: an interval of one alignment, where none is given."""
    junctions: bool = True
    """Whether, with a retention interval, the boundary is kept at which a prompt parts from what is cached."""
    scratch_first: bool | None = None
    """Whether uncached blocks are reused first; None: if a retention interval is in effect."""
    pins: bool = False
    """Whether the blocks that a window drops are pinned."""
    pin_min_drop_blocks: int = MIN_DROP_BLOCKS
    """The shortest window drop, in blocks, of which a tail is pinned."""
    partial_hits: bool = False
    """Whether a hit may end inside a block, and is then served by a copy."""
    partial_unit_tokens: int | None = None
    """At which multiples such a hit may end, in tokens; None: at every one that the other groups allow."""
    partial_min_tokens: int = 0
    """The shortest hit, in tokens, that is worth a copy."""
    compressed_block_size_slots: int | None = None
    """The slots of a compressed block on vLLM-Ascend; None: as vLLM-Ascend has it."""

    @property
    def retains(self) -> bool:
        """Whether some boundaries of sliding windows stay cached, and others do not."""
        return self.retention_interval_tokens is not None or self.masked

    @property
    def interval_puts_scratch_first(self) -> bool:
        """Whether a retention interval that is in effect puts scratch first."""
        return self.scratch_first is None and self.retention_interval_tokens is not None

    @property
    def is_inert(self) -> bool:
        """Whether nothing is switched on."""
        return not (
            self.retains
            or self.scratch_first
            or self.pins
            or self.partial_hits
            or self.compressed_block_size_slots is not None
        )

    def interval_tokens(self, alignment_tokens: int) -> int | None:
        """The interval for a model whose hits end at multiples of ``alignment_tokens``; None if nothing is left out.

        Raises:
            ConfigurationError: the interval that was given is not a multiple of that.
        """
        interval = self.retention_interval_tokens
        if interval is None:
            return alignment_tokens if self.masked else None
        if self.interval_is_auto:
            return -(-interval // alignment_tokens) * alignment_tokens
        if interval % alignment_tokens:
            multiple = f"a multiple of scheduler_block_size, which is {alignment_tokens} tokens for this model"
            raise ConfigurationError(RETENTION, str(interval), f"give {multiple}, or 0 or auto")
        return interval


def read(environment: Mapping[str, str] = os.environ) -> Configuration:
    """The configuration that ``environment`` asks for.

    Raises:
        ConfigurationError: it asks for something that there is not.
    """
    partial_hits, partial_unit_tokens = _partial(environment)
    interval_tokens, interval_is_auto = _interval(environment.get(RETENTION, ""))
    return Configuration(
        retention_interval_tokens=interval_tokens,
        interval_is_auto=interval_is_auto,
        masked=_switch(environment, MASKED),
        junctions=_switch(environment, JUNCTIONS) if environment.get(JUNCTIONS, "").strip() else True,
        scratch_first=_switch(environment, SCRATCH_FIRST) if environment.get(SCRATCH_FIRST, "").strip() else None,
        pins=_switch(environment, PIN),
        # A drop of no block leaves nothing to pin, so that 0, which pins every drop, is 1.
        pin_min_drop_blocks=max(1, _number_or(environment, PIN_MIN_DROP, MIN_DROP_BLOCKS, "give a number of blocks")),
        partial_hits=partial_hits,
        partial_unit_tokens=partial_unit_tokens,
        partial_min_tokens=_number_or(environment, PARTIAL_MIN, 0, "give a number of tokens"),
        compressed_block_size_slots=_slots(environment, COMPRESSED),
    )


def _partial(environment: Mapping[str, str]) -> tuple[bool, int | None]:
    """Whether partial hits are on, and their unit in tokens."""
    text = environment.get(PARTIAL, "").strip().lower()
    if text in _FALSE:
        return False, None
    if text == "auto" or text in _TRUE:
        return True, None
    allowed = "give auto, a number of tokens at whose multiples a hit may end, or 0"
    unit_tokens = _number(PARTIAL, text, allowed)
    if not unit_tokens:
        raise ConfigurationError(PARTIAL, text, allowed)
    return True, unit_tokens


def _number_or(environment: Mapping[str, str], variable: str, default: int, allowed: str) -> int:
    text = environment.get(variable, "").strip()
    return _number(variable, text, allowed) if text else default


def _slots(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable, "").strip()
    allowed = f"give one of {', '.join(map(str, sorted(COMPRESSED_BLOCK_SIZES_SLOTS)))}"
    if not text:
        return None
    number = _number(variable, text, allowed)
    if number not in COMPRESSED_BLOCK_SIZES_SLOTS:
        raise ConfigurationError(variable, text, allowed)
    return number


def _interval(text: str) -> tuple[int | None, bool]:
    """The interval in tokens, and whether it is auto."""
    if not text.strip():
        return None, False
    if text.strip().lower() == "auto":
        return AUTO_INTERVAL_TOKENS, True
    return _number(RETENTION, text, f"give a non-negative number of tokens, or auto ({AUTO_INTERVAL_TOKENS})"), False


def _switch(environment: Mapping[str, str], variable: str) -> bool:
    text = environment.get(variable, "")
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ConfigurationError(variable, text, "give 1 or 0")


def _number(variable: str, text: str, allowed: str) -> int:
    # Not int(): it also takes 1_000, and a minus sign.
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise ConfigurationError(variable, text, allowed)
    return int(digits)
