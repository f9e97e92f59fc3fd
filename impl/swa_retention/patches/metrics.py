"""What the plug-in counts, in vLLM's own metrics endpoint.

The scheduler counts, and the endpoint is in another process. Of the statistics that vLLM sends there after each step,
only the part for KV connectors has room for more. The counts are an entry of it, which is removed again before any
logger of vLLM sees it. Each step sends what was counted since the last one, so several front-ends add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from attrs import frozen

from swa_retention.config import Configuration
from swa_retention.patches.attach import active
from swa_retention.patches.dispatch import copies_of
from swa_retention.register import Patch

CARRIED = "swa_retention"
"""The entry of the statistics that the counts are carried in, and how each metric's name begins."""


@frozen
class Metric:
    """A number in the endpoint, as ``vllm:swa_retention_NAME``; of a counter with the suffix ``_total``."""

    name: str
    documentation: str
    is_gauge: bool = False


PINS = (
    Metric("pinned_blocks", "Blocks that are pinned and that no request holds.", is_gauge=True),
    Metric("demoted_blocks", "Pinned blocks that became free because blocks ran short."),
)
PARTIAL_HITS = (
    Metric("partial_hits", "Requests that were admitted with a hit that ends inside a block."),
    Metric("copies_ordered", "Copies of the beginning of a block that were sent to the workers."),
    Metric("copies_done", "Copies of steps of which the output came back from the workers."),
)


JUNCTIONS = (Metric("junctions", "Requests whose prompts part from those that are cached, at a junction."),)


def metrics_of(configuration: Configuration) -> tuple[Metric, ...]:
    """The metrics of what is switched on."""
    keeps_junctions = configuration.junctions and configuration.retention_interval_tokens is not None
    switched_on = (
        (configuration.pins, PINS),
        (configuration.partial_hits, PARTIAL_HITS),
        (keeps_junctions, JUNCTIONS),
    )
    return tuple(metric for is_on, metrics in switched_on if is_on for metric in metrics)


def _counts(coordinator: Any) -> Iterator[tuple[str, int]]:
    """What was counted since it was asked last; gauges as they are now."""
    tier, partial = getattr(coordinator.block_pool, "pinned_tier", None), getattr(coordinator, "partial", None)
    if tier is not None:
        yield "pinned_blocks", tier.queue.num_free_blocks
        yield "demoted_blocks", tier.demoted
        tier.demoted = 0
    for counting in (partial, getattr(coordinator, "junctions", None)):
        if counting is not None:
            yield from counting.counts.items()
            counting.counts.clear()


def make_stats(original: Any) -> Callable[..., Any]:
    """``Scheduler.make_stats`` that adds the counts."""

    @wraps(original)
    def make_stats(self: Any, *arguments: Any, **keywords: Any) -> Any:
        stats = original(self, *arguments, **keywords)
        if stats is not None:
            counts = dict(_counts(self.kv_cache_manager.coordinator))
            if counts:
                # What a connector counts is its own: it is not changed.
                stats.kv_connector_stats = {**(stats.kv_connector_stats or {}), CARRIED: counts}
        return stats

    return make_stats


def update_from_output(original: Any) -> Callable[..., Any]:
    """A scheduler's ``update_from_output`` that counts the copies of the step as done."""

    @wraps(original)
    def update_from_output(self: Any, scheduler_output: Any, *arguments: Any, **keywords: Any) -> Any:
        copies = copies_of(scheduler_output)
        if copies:
            self.kv_cache_manager.coordinator.partial.counts["copies_done"] += len(copies)
        return original(self, scheduler_output, *arguments, **keywords)

    return update_from_output


def loggers(original: Any) -> Callable[..., None]:
    """``StatLoggerManager.__init__`` that makes the metrics where vLLM makes its own, in the same form."""

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        from vllm.v1.metrics.loggers import PrometheusStatLogger

        original(self, *arguments, **keywords)
        self.swa_retention = [_made(logger) for logger in self.stat_loggers if isinstance(logger, PrometheusStatLogger)]

    return build


def _made(logger: Any) -> dict[str, Callable[[int, int], None]]:
    """By the name of a metric, how a number of an engine is put into it."""
    return {metric.name: _recorder(metric, logger) for metric in metrics_of(active())}


def _recorder(metric: Metric, logger: Any) -> Callable[[int, int], None]:
    made, mode = (
        (logger._gauge_cls, {"multiprocess_mode": "mostrecent"}) if metric.is_gauge else (logger._counter_cls, {})
    )
    family = made(
        name=f"vllm:{CARRIED}_{metric.name}",
        documentation=metric.documentation,
        labelnames=["model_name", "engine"],
        **mode,
    )
    # Each is there from the start on, as 0.
    of_engine = {index: family.labels(*labels) for index, labels in logger.per_engine_labelvalues.items()}

    def record(engine: int, number: int) -> None:
        if metric.is_gauge:
            of_engine[engine].set(number)
        else:
            of_engine[engine].inc(number)

    return record


def record(original: Any) -> Callable[..., None]:
    """``StatLoggerManager.record`` that takes the counts out of a step's statistics."""

    @wraps(original)
    def record(
        self: Any,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int | None = None,
    ) -> None:
        carried = None if scheduler_stats is None else scheduler_stats.kv_connector_stats
        if carried and CARRIED in carried:
            counts = carried.pop(CARRIED)
            # Without a connector there is nothing.
            scheduler_stats.kv_connector_stats = carried or None
            for recorders in self.swa_retention:
                for name, number in counts.items():
                    recorders[name](engine_idx or 0, number)
        original(self, scheduler_stats, iteration_stats, mm_cache_stats, engine_idx)

    return record


_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_LOGGERS = "vllm.v1.metrics.loggers:StatLoggerManager"
_WHY = "An operator must see what the plug-in does, where vLLM's own metrics are."
_UPSTREAM = "none: vLLM has none of what is counted"
_UNTIL = "vLLM has these features, and counts them itself"


def _patch(
    target: str,
    how: str,
    written_for: str | Mapping[str, str | None],
    replacement: Callable[[Any], Any],
    only_where: str = "vllm",
) -> Patch:
    return Patch(target, _WHY, how, _UPSTREAM, _UNTIL, written_for, replacement, only_where)


PATCHES = (
    _patch(
        f"{_SCHEDULER}.make_stats",
        "After vLLM's own code, what was counted is added to the statistics of a step.",
        {"0.20.2": "2ecd718e1c1c11d2", "0.33.0": "8da6e7f5aef769ab"},
        make_stats,
    ),
    _patch(
        f"{_LOGGERS}.__init__",
        "After vLLM's own code, the metrics of what is switched on are made.",
        "a79645b91bd6446d",
        loggers,
    ),
    _patch(
        f"{_LOGGERS}.record",
        "Before vLLM's own code, the counts are taken out of the statistics and recorded.",
        "58c588ed8d74fe25",
        record,
    ),
)
DONE = (
    _patch(
        f"{_SCHEDULER}.update_from_output",
        "Before vLLM's own code, the copies of the step are counted as done.",
        {"0.20.2": "2571911baae8d6cf", "0.21.0": "df43fb6b04441d03", "0.22.1": "d6f2ac0b1428916c"},
        update_from_output,
    ),
    _patch(
        "vllm_ascend.core.recompute_scheduler:RecomputeScheduler.update_from_output",
        "Before vLLM-Ascend's own code, the copies of the step are counted as done.",
        "82856a84bc627424",
        update_from_output,
        only_where="vllm_ascend",
    ),
)
