"""The plug-in's counts in vLLM's own metrics.

Goal: usage of the KV cache counts pinned blocks as free; pins, demotions and copies are in vLLM's endpoint, and counted
once; vLLM's own statistics are as they were. Method: vLLM's block manager and scheduler without a model; statistics
that are encoded and decoded as on their way to another process; vLLM's own loggers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from attrs import evolve

from kvgate.adapters.retention import Retention
from kvgate.kernel.models import load
from kvgate_mutants.mutants.plugin.checks import junctions_are_counted_once
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.settings import Settings
from swa_retention.config import Configuration
from swa_retention.features import PARTIAL_HITS, PINS
from swa_retention.patches.attach import activate
from swa_retention.patches.metrics import CARRIED
from swa_retention.register import apply

from .test_dispatch import FIRST, model, request_of, scheduler_of

__all__ = ["model"]

BLOCKS = 64


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    # Patches that wait for their module are put in place now.
    import_module("vllm.v1.core.sched.scheduler")
    import_module("vllm.v1.metrics.loggers")
    for feature in (PINS, PARTIAL_HITS):
        apply(feature.patches)
    yield
    activate(Configuration())


def pinned_system() -> Any:
    """vLLM's block manager with a pinned tier and few blocks."""
    settings = Settings(load("gemma-hybrid").geometry, BLOCKS, tokens_max=1024, pin_drop_blocks_min=1)
    return Retention(evolve(settings, chunk_tokens=1024))


def test_pinned_blocks_count_as_free() -> None:
    """A request that runs is counted in full, and one that ended not at all."""
    system = pinned_system()
    manager = system.manager
    system.apply(Arrive(0, (Run(0, 64),)))
    system.apply(Admit(0, 64))
    held = BLOCKS - 1 - manager.block_pool.get_num_free_blocks()
    assert held
    assert held / (BLOCKS - 1) == pytest.approx(manager.usage)
    system.apply(Finish(0))
    assert manager.block_pool.pinned_tier.queue.num_free_blocks
    assert 0.0 == manager.usage


def test_demotions_are_counted() -> None:
    """As many blocks as became free."""
    system = pinned_system()
    tier = system.manager.block_pool.pinned_tier
    system.apply(Arrive(0, (Run(0, 64),)))
    system.apply(Admit(0, 64))
    system.apply(Finish(0))
    waiting = tier.queue.num_free_blocks
    tier.make_room(system.manager.block_pool.get_num_free_blocks() + 2, ())
    assert (2, waiting - 2) == (tier.demoted, tier.queue.num_free_blocks)
    # Not enough: none of them.
    tier.make_room(BLOCKS + 1, ())
    assert 2 == tier.demoted


def stepped(scheduler: Any, *requests: Any) -> Any:
    """The statistics of the step that admits these requests, as another process receives them."""
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    for request in requests:
        scheduler.add_request(request)
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    sampled = [[1] for _ in names]
    runner = ModelRunnerOutput(names, {name: index for index, name in enumerate(names)}, sampled, None, {}, [])
    sent = next(iter(scheduler.update_from_output(output, runner).values()))
    received: Any = MsgpackDecoder(EngineCoreOutputs).decode(MsgpackEncoder().encode(sent))
    return received.scheduler_stats


@contextmanager
def endpoint(model: Path) -> Iterator[Any]:
    """vLLM's own loggers, and how a metric is read."""
    from prometheus_client import REGISTRY
    from vllm.config import ModelConfig, VllmConfig
    from vllm.v1.metrics.loggers import StatLoggerManager

    config = VllmConfig(model_config=ModelConfig(model=str(model), skip_tokenizer_init=True, dtype="float32"))
    manager: Any = StatLoggerManager(config)

    def read(name: str) -> float | None:
        labels = {"model_name": str(config.model_config.served_model_name), "engine": "0"}
        return REGISTRY.get_sample_value(name, labels)

    manager.read = read
    yield manager
    StatLoggerManager(config)


@pytest.mark.parametrize(
    ("switched_on", "expected"),
    [
        (Configuration(), {}),
        (Configuration(pins=True), {"pinned_blocks": 0.0, "demoted_blocks_total": 0.0}),
        (
            Configuration(partial_hits=True),
            {"partial_hits_total": 0.0, "copies_ordered_total": 0.0, "copies_done_total": 0.0},
        ),
        (Configuration(retention_interval_tokens=0), {"junctions_total": 0.0}),
        (Configuration(retention_interval_tokens=0, junctions=False), {}),
    ],
    ids=["nothing", "pins", "partial hits", "junctions", "no junctions"],
)
def test_the_metrics_of_what_is_switched_on_are_there(
    model: Path, switched_on: Configuration, expected: dict[str, float]
) -> None:
    """From the start, as 0; and no others."""
    names = ("pinned_blocks", "demoted_blocks_total", "partial_hits_total", "copies_ordered_total", "copies_done_total")
    activate(switched_on)
    with endpoint(model) as loggers:
        found = {name: loggers.read(f"vllm:{CARRIED}_{name}") for name in (*names, "junctions_total")}
    assert expected == {name: value for name, value in found.items() if value is not None}


def test_from_the_scheduler_to_the_endpoint(model: Path) -> None:
    """A copy is counted once, when its step is sent and when it comes back; the loggers of vLLM see nothing of it."""
    activate(Configuration(partial_hits=True, pins=True, pin_min_drop_blocks=1))
    scheduler = scheduler_of(model, log_stats=True)
    with endpoint(model) as loggers:

        def read() -> list[float | None]:
            names = ("partial_hits_total", "copies_ordered_total", "copies_done_total", "pinned_blocks")
            return [loggers.read(f"vllm:{CARRIED}_{name}") for name in names]

        for index, request in enumerate(
            (request_of("first", FIRST), request_of("second", [*FIRST[:100], *range(300, 320)], 8))
        ):
            stats = stepped(scheduler, request)
            assert CARRIED in stats.kv_connector_stats
            loggers.record(stats, None)
            assert stats.kv_connector_stats is None
            tier = scheduler.kv_cache_manager.block_pool.pinned_tier
            assert [index, index, index, tier.queue.num_free_blocks] == read()
            assert tier.queue.num_free_blocks or index
        # The next step counts nothing again.
        loggers.record(stepped(scheduler), None)
        assert [1.0, 1.0, 1.0] == read()[:3]


def test_junctions_are_counted_once() -> None:
    """A request that waits is looked up again, and counts once."""
    assert junctions_are_counted_once() is None


def test_a_connector_keeps_its_own_counts(model: Path) -> None:
    """In the dictionary that it handed over, and in the loggers."""
    from vllm.v1.metrics.stats import SchedulerStats

    activate(Configuration(pins=True))
    with endpoint(model) as loggers:
        loggers.stat_loggers = [SimpleNamespace(record=lambda *_stats, **_named: None)]
        stats = SchedulerStats(kv_connector_stats={"loads": 3, CARRIED: {"pinned_blocks": 5, "demoted_blocks": 2}})
        loggers.record(stats, None)
        assert {"loads": 3} == stats.kv_connector_stats
        assert (5.0, 2.0) == (
            loggers.read(f"vllm:{CARRIED}_pinned_blocks"),
            loggers.read(f"vllm:{CARRIED}_demoted_blocks_total"),
        )


def test_with_nothing_switched_on_statistics_are_vllms_own(model: Path) -> None:
    """Nothing rides on them."""
    activate(Configuration())
    assert stepped(scheduler_of(model, log_stats=True), request_of("first", FIRST)).kv_connector_stats is None
