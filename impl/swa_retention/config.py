"""The configuration: what the environment asks for, read once and checked as a whole.

The variables are vLLM's own names for these features, so that a deployment that moves to a vLLM that has them keeps
its settings.
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
VARIABLES = (RETENTION, PIN, PIN_MIN_DROP, PARTIAL, PARTIAL_MIN, COMPRESSED)
"""All that is read."""

AUTO_INTERVAL_TOKENS = 32768
"""What ``auto`` stands for: every 32 Ki tokens a prompt can be resumed from."""
MIN_DROP_BLOCKS = 16
"""The shortest window drop, in blocks, that is pinned unless told otherwise: decoding drops a block at a time."""
COMPRESSED_BLOCK_SIZES_SLOTS = (128, 64, 32)
"""The block sizes that vLLM-Ascend's kernels have, in slots."""

_DIGITS_MAX = 18
"""More than any count of tokens has, and fewer than Python refuses to read."""
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


class ConfigurationError(ValueError):
    """A variable has a value that it cannot have."""

    def __init__(self, variable: str, value: str, allowed: str) -> None:
        super().__init__(f"{variable}={value!r} is not possible: {allowed}")


@frozen
class Configuration:
    """What is switched on."""

    retention_interval_tokens: int | None = None
    """At which boundaries the blocks of sliding windows stay cached, in tokens; None: everywhere, as in vLLM."""
    pins: bool = False
    """Whether what a window leaves behind is pinned."""
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
    def is_inert(self) -> bool:
        """Whether nothing is switched on."""
        return (
            self.retention_interval_tokens is None
            and not self.pins
            and not self.partial_hits
            and self.compressed_block_size_slots is None
        )


def read(environment: Mapping[str, str] = os.environ) -> Configuration:
    """The configuration that ``environment`` asks for.

    Raises:
        ConfigurationError: it asks for something that there is not.
    """
    partial_hits, partial_unit_tokens = _partial(environment)
    return Configuration(
        retention_interval_tokens=_interval(environment.get(RETENTION)),
        pins=_switch(environment, PIN),
        pin_min_drop_blocks=_blocks(environment, PIN_MIN_DROP, MIN_DROP_BLOCKS),
        partial_hits=partial_hits,
        partial_unit_tokens=partial_unit_tokens,
        partial_min_tokens=_tokens(environment, PARTIAL_MIN),
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


def _tokens(environment: Mapping[str, str], variable: str) -> int:
    text = environment.get(variable, "").strip()
    return _number(variable, text, "give a number of tokens") if text else 0


def _slots(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable, "").strip()
    allowed = f"give one of {', '.join(map(str, sorted(COMPRESSED_BLOCK_SIZES_SLOTS)))}"
    if not text:
        return None
    number = _number(variable, text, allowed)
    if number not in COMPRESSED_BLOCK_SIZES_SLOTS:
        raise ConfigurationError(variable, text, allowed)
    return number


def _interval(text: str | None) -> int | None:
    if text is None or not text.strip():
        return None
    if text.strip().lower() == "auto":
        return AUTO_INTERVAL_TOKENS
    return _number(RETENTION, text, f"give a non-negative number of tokens, or auto ({AUTO_INTERVAL_TOKENS})")


def _switch(environment: Mapping[str, str], variable: str) -> bool:
    text = environment.get(variable, "")
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ConfigurationError(variable, text, "give 1 or 0")


def _blocks(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable)
    if text is None or not text.strip():
        return default
    number = _number(variable, text, "give a number of blocks of at least 1")
    if number < 1:
        raise ConfigurationError(variable, text, "give a number of blocks of at least 1")
    return number


def _number(variable: str, text: str, allowed: str) -> int:
    # Not int(): it also takes 1_000, and a minus sign.
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise ConfigurationError(variable, text, allowed)
    return int(digits)
