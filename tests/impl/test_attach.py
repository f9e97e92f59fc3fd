"""The switches of a block manager that is built.

Goal: a switch that has nothing to work on is reported, or ends the start if a number was given that can have no effect.
`auto` and masked caching take what the model allows. Pins lose nothing to masked caching. Method: vLLM's own block
manager, of models with windows and without, with each switch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("vllm")

from attrs import evolve

from kvgate.adapters.retention import Retention
from kvgate.adapters.stock import Stock
from kvgate.kernel.models import load
from kvreference.answers import Granted
from kvreference.geometry import Geometry
from kvreference.operations import Admit, Arrive, Finish, Run, Schedule
from kvreference.settings import Settings
from swa_retention.config import Configuration, ConfigurationError, read
from swa_retention.features import FEATURES
from swa_retention.patches.attach import activate, alignment_tokens
from swa_retention.register import apply

JUNCTIONS = "VLLM_PREFIX_CACHE_JUNCTIONS"
INTERVAL, MASKED = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PREFIX_CACHE_MASKED"
SCRATCH = "VLLM_PREFIX_CACHE_SCRATCH_FIRST"


@pytest.fixture(autouse=True)
def _patched() -> None:
    for feature in FEATURES:
        apply(feature.patches)


@contextmanager
def active(configuration: Configuration) -> Iterator[None]:
    """A manager built meanwhile has it."""
    activate(configuration)
    try:
        yield
    finally:
        activate(Configuration())


def coordinator_of(model: str, switches: dict[str, str], caches: bool = True) -> Any:
    """vLLM's coordinator of a model, with these variables set."""
    with active(read(switches)):
        settings = Settings(load(model).geometry, blocks=64, tokens_max=1024, caches=caches)
        return Stock(settings).manager.coordinator


def kept(coordinator: Any) -> tuple[set[int], bool]:
    """The intervals of the windows, and whether scratch goes first."""
    slides = [each for each in coordinator.single_type_managers if hasattr(each.kv_cache_spec, "sliding_window")]
    reaches = [each.reach for each in slides if each.kv_cache_spec.sliding_window and hasattr(each, "reach")]
    return {reach.interval_tokens for reach in reaches}, getattr(coordinator.block_pool, "scratch_first", False)


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """vLLM's logger passes nothing on, and other tests of this process may have made it quiet."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.WARNING, "vllm.swa_retention")


def reported(caplog: pytest.LogCaptureFixture) -> str:
    """The warnings, each on a line."""
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)


@pytest.mark.parametrize(
    ("switches", "interval", "scratch_first"),
    [
        ({INTERVAL: "0"}, 0, True),
        ({INTERVAL: "0", SCRATCH: "0"}, 0, False),
        ({MASKED: "1"}, 32, False),
        ({MASKED: "1", SCRATCH: "1"}, 32, True),
        ({SCRATCH: "1"}, None, True),
    ],
)
def test_each_switch_of_its_own(switches: dict[str, str], interval: int | None, scratch_first: bool) -> None:
    """Masked caching finds the alignment itself."""
    assert 32 == load("mixed-blocks").geometry.alignment_tokens
    expected = set() if interval is None else {interval}
    assert (expected, scratch_first) == kept(coordinator_of("mixed-blocks", switches))


@pytest.mark.parametrize(
    ("model", "partial"),
    [("gpt-oss-hybrid", "0"), ("gpt-oss-hybrid+eagle", "0"), ("dsv4-flash", "0"), ("dsv4-flash", "auto")],
)
def test_full_attention_is_left_to_vllm(model: str, partial: str) -> None:
    """Where each of its blocks ends at a boundary, and nowhere else: otherwise a block is due when one is reached."""
    coordinator = coordinator_of(model, {INTERVAL: "0", "VLLM_PREFIX_CACHE_PARTIAL_HITS": partial})
    alignment = alignment_tokens(coordinator)
    for manager in coordinator.single_type_managers:
        slides = bool(getattr(manager.kv_cache_spec, "sliding_window", None))
        assert hasattr(manager, "reach") == (slides or manager.block_size != alignment)


@pytest.mark.parametrize(
    ("model", "switches", "are_kept"),
    [
        ("mixed-blocks", {INTERVAL: "0"}, True),
        ("mixed-blocks", {INTERVAL: "auto"}, True),
        ("mixed-blocks", {INTERVAL: "0", JUNCTIONS: "0"}, False),
        ("mixed-blocks", {INTERVAL: "32"}, False),  # every boundary is kept
        ("mixed-blocks", {MASKED: "1", JUNCTIONS: "1"}, False),
        ("mixed-blocks", {SCRATCH: "1", JUNCTIONS: "1"}, False),
        ("swa", {INTERVAL: "0"}, False),  # windows alone do not show where prompts part
    ],
)
def test_junctions_are_kept_with_an_interval(model: str, switches: dict[str, str], are_kept: bool) -> None:
    """Unless they are switched off, or can add nothing."""
    assert are_kept == hasattr(coordinator_of(model, switches), "junctions")


@pytest.mark.parametrize(("switches", "hits"), [({}, [0, 0, 128, 128]), ({JUNCTIONS: "0"}, [0, 0, 0, 0])])
def test_a_shared_beginning_is_hit(switches: dict[str, str], hits: list[int]) -> None:
    """With an interval of 0: four prompts that share 130 tokens, and have 60 of their own."""
    with active(read({INTERVAL: "0", **switches})):
        system = Stock(Settings(load("gpt-oss-hybrid").geometry, blocks=64, tokens_max=1024, chunk_tokens=512))
    found = []
    for number in range(4):
        system.apply(Arrive(number, (Run(0, 130), Run(1000 * (number + 1), 60))))
        answer = system.apply(Admit(number, 512))
        assert isinstance(answer, Granted)
        found.append(answer.hit_tokens)
        system.apply(Finish(number))
    assert hits == found


@pytest.mark.parametrize("switches", [{INTERVAL: "64"}, {INTERVAL: "auto"}, {MASKED: "1"}])
def test_retention_without_prefix_caching_is_reported(
    switches: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is changed."""
    coordinator = coordinator_of("mixed-blocks", switches, caches=False)
    assert f"prefix caching is off, and {next(iter(switches))} has no effect" in reported(caplog)
    assert (set(), False) == kept(coordinator)


def test_an_interval_without_windows_is_rejected() -> None:
    """As vLLM does from 0.23 on."""
    with pytest.raises(ConfigurationError, match=f"{INTERVAL}='64' .* no sliding-window or Mamba layers: "):
        coordinator_of("full", {INTERVAL: "64"})


@pytest.mark.parametrize(
    ("model", "switches"),
    [("full", {INTERVAL: "0"}), ("full", {INTERVAL: "auto"}), ("full", {MASKED: "1"}), ("mamba-all", {INTERVAL: "64"})],
)
def test_what_else_has_no_effect_without_windows_is_reported(
    model: str, switches: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was given that could be wrong; and states are kept, where later releases would leave some out."""
    coordinator = coordinator_of(model, switches)
    assert f"the model has no sliding window, and {next(iter(switches))} has no effect" in reported(caplog)
    assert not hasattr(coordinator.single_type_managers[0], "reach")
    assert not kept(coordinator)[1]


@pytest.mark.parametrize("partial", [False, True])
def test_auto_is_rounded_up(partial: bool) -> None:
    """To a multiple of an alignment that does not divide it."""
    model = load("mixed-blocks")
    geometry = Geometry(
        tuple(evolve(group, block_size_tokens=group.block_size_tokens * 3) for group in model.geometry.groups)
    )
    with active(read({INTERVAL: "auto", **({"VLLM_PREFIX_CACHE_PARTIAL_HITS": "auto"} if partial else {})})):
        coordinator: Any = Stock(Settings(geometry, blocks=64, tokens_max=65536)).manager.coordinator
    alignment = coordinator.partial.unit_tokens if partial else geometry.alignment_tokens
    assert 32768 % alignment
    rounded = -(-32768 // alignment) * alignment
    assert {rounded} == kept(coordinator)[0]
    assert not partial or rounded == coordinator.partial.admitted.interval_tokens


@pytest.mark.parametrize("suffix", ["", "+mtp"])
def test_pins_lose_nothing_to_masked_caching(suffix: str) -> None:
    """The pins of a running request's drops are the same with masked caching and without.

    So pins do not switch masked caching off, as the published ones do: those pin the end of a drop, wherever hits end.
    """
    geometry = load(f"mixed-blocks{suffix}").geometry
    # Longer blocks of full attention: of the window's blocks, half or more serve no hit.
    geometry = Geometry((evolve(geometry.groups[0], block_size_tokens=128), *geometry.groups[1:]))
    settings = Settings(geometry, blocks=256, tokens_max=2048, pin_drop_blocks_min=1)
    masked = evolve(settings, retention_interval_tokens=geometry.alignment_tokens)
    assert pinned_while_running(settings)
    assert pinned_while_running(settings) == pinned_while_running(masked)


def pinned_while_running(settings: Settings) -> frozenset[int]:
    """The blocks that are pinned when a prompt was computed in chunks."""
    system = Retention(settings)
    system.apply(Arrive(0, (Run(0, 1800),)))
    system.apply(Admit(0, 200))
    for _ in range(8):
        system.apply(Schedule(0, 200))
    pinned = system.snapshot().pinned
    assert pinned is not None
    return pinned.blocks
