"""The configuration.

Goal: a valid setting means what the operator writes, and an invalid one is rejected with its name, its value and what
is allowed. Method: values, one of each kind.
"""

from __future__ import annotations

import pytest

from swa_retention.config import Configuration, ConfigurationError, read

INTERVAL, PIN, DROP = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS", "VLLM_PIN_MIN_DROP_SIZE"
PARTIAL, SHORTEST = "VLLM_PREFIX_CACHE_PARTIAL_HITS", "VLLM_PREFIX_CACHE_PARTIAL_HIT_MIN_TOKENS"
MASKED, SCRATCH = "VLLM_PREFIX_CACHE_MASKED", "VLLM_PREFIX_CACHE_SCRATCH_FIRST"
COMPRESSED = "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE"


@pytest.mark.parametrize(
    ("text", "interval"), [(None, None), ("", None), (" ", None), ("0", 0), ("32768", 32768), (" Auto ", 32768)]
)
def test_intervals(text: str | None, interval: int | None) -> None:
    """Unset, nothing, a number, auto."""
    is_auto = "auto" in (text or "").lower()
    assert Configuration(interval, interval_is_auto=is_auto) == read({} if text is None else {INTERVAL: text})


@pytest.mark.parametrize(
    ("switches", "alignment_tokens", "expected"),
    [
        ({}, 16, None),
        ({INTERVAL: "0"}, 16, 0),
        ({INTERVAL: "64"}, 16, 64),
        ({INTERVAL: "auto"}, 16, 32768),
        ({INTERVAL: "auto"}, 48, 32784),
        ({INTERVAL: "auto"}, 65536, 65536),
        ({MASKED: "1"}, 48, 48),
        ({MASKED: "1", INTERVAL: "96"}, 48, 96),
    ],
)
def test_the_interval_of_a_model(switches: dict[str, str], alignment_tokens: int, expected: int | None) -> None:
    """A number stays as it is, auto is rounded up, masked caching is the alignment unless an interval is given."""
    assert expected == read(switches).interval_tokens(alignment_tokens)


def test_an_interval_that_is_not_a_multiple_is_an_error() -> None:
    """It names the value that was given."""
    with pytest.raises(ConfigurationError, match=f"{INTERVAL}='32768' .* 48 tokens for this model"):
        read({INTERVAL: "32768"}).interval_tokens(48)


@pytest.mark.parametrize(
    ("switches", "first", "follows"),
    [
        ({}, None, False),
        ({INTERVAL: "0"}, None, True),
        ({INTERVAL: "0", SCRATCH: "0"}, False, False),
        ({MASKED: "1"}, None, False),
        ({MASKED: "1", SCRATCH: "1"}, True, False),
        ({SCRATCH: "on"}, True, False),
    ],
)
def test_scratch_first(switches: dict[str, str], first: bool | None, follows: bool) -> None:
    """It has a switch of its own, and follows the interval where that is not set."""
    configuration = read(switches)
    assert (first, follows) == (configuration.scratch_first, configuration.interval_puts_scratch_first)


@pytest.mark.parametrize(("text", "pins"), [("1", True), ("true", True), ("ON", True), ("0", False), ("", False)])
def test_pins(text: str, pins: bool) -> None:
    """Common spellings of yes and no."""
    assert Configuration(pins=pins) == read({PIN: text})


def test_the_shortest_drop() -> None:
    """Sixteen blocks by default."""
    assert 16 == read({PIN: "1"}).pin_min_drop_blocks
    assert 16 == read({PIN: "1", DROP: ""}).pin_min_drop_blocks
    assert 3 == read({PIN: "1", DROP: "3"}).pin_min_drop_blocks
    # Every drop: one of no block leaves nothing to pin.
    assert 1 == read({PIN: "1", DROP: "0"}).pin_min_drop_blocks


@pytest.mark.parametrize(
    ("text", "on", "unit_tokens"),
    [
        ("", False, None),
        ("0", False, None),
        ("off", False, None),
        ("1", True, None),
        (" Auto", True, None),
        ("128", True, 128),
    ],
)
def test_partial_hits(text: str, on: bool, unit_tokens: int | None) -> None:
    """Off, on with the finest unit, on with a unit."""
    assert Configuration(partial_hits=on, partial_unit_tokens=unit_tokens) == read({PARTIAL: text})


def test_the_shortest_partial_hit() -> None:
    """Any length by default."""
    assert 0 == read({PARTIAL: "1"}).partial_min_tokens
    assert 2048 == read({PARTIAL: "1", SHORTEST: "2048"}).partial_min_tokens


def test_compressed_blocks() -> None:
    """By default, as vLLM-Ascend has them."""
    assert read({COMPRESSED: " "}).compressed_block_size_slots is None
    assert [32, 64, 128] == [read({COMPRESSED: text}).compressed_block_size_slots for text in ("32", "64", "128")]


def test_inert() -> None:
    """Nothing is switched on unless something is; how long a drop must be switches nothing on."""
    assert read({}).is_inert
    assert read({DROP: "3"}).is_inert
    assert read({SCRATCH: "0"}).is_inert
    assert not read({SCRATCH: "1"}).is_inert
    assert not read({MASKED: "1"}).is_inert
    assert not read({INTERVAL: "0"}).is_inert
    assert not read({PIN: "1"}).is_inert
    assert read({SHORTEST: "3"}).is_inert
    assert not read({PARTIAL: "auto"}).is_inert
    assert not read({COMPRESSED: "128"}).is_inert


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        (INTERVAL, "often", r"give a non-negative number of tokens, or auto \(32768\)"),
        (INTERVAL, "-1", "non-negative"),
        (INTERVAL, "1_000", "non-negative"),
        (INTERVAL, "1.5", "non-negative"),
        (INTERVAL, "٣", "non-negative"),
        (PIN, "2", "give 1 or 0"),
        (PIN, "2048", "give 1 or 0"),
        (DROP, "-1", "give a number of blocks"),
        (DROP, "few", "give a number of blocks"),
        (MASKED, "auto", "give 1 or 0"),
        (SCRATCH, "2", "give 1 or 0"),
        (PARTIAL, "-128", "give auto, a number of tokens at whose multiples a hit may end, or 0"),
        (PARTIAL, "00", "give auto"),
        (SHORTEST, "-1", "give a number of tokens"),
        (COMPRESSED, "16", "give one of 32, 64, 128"),
        (COMPRESSED, "many", "give one of 32, 64, 128"),
    ],
)
def test_what_cannot_be_meant_is_rejected(variable: str, value: str, allowed: str) -> None:
    """By the variable, the value, and what is allowed."""
    with pytest.raises(ConfigurationError, match=f"^{variable}='{value}' is not possible: .*{allowed}"):
        read({variable: value})
