"""Mutants of what the plug-in counts: usage of the KV cache, and its metrics in vLLM's endpoint."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks

_POOL = "vllm.v1.core.block_pool:BlockPool"
_METRICS = "swa_retention.patches.metrics"


@breaks(f"{_POOL}.get_usage", shown_by=checks.usage_counts_what_requests_hold)
def pinned_blocks_count_as_used(original: Any, self: Any) -> Any:
    """Usage of the KV cache counts pinned blocks that no request holds."""
    return vllms_own(original)(self)


@breaks(f"{_POOL}.get_usage", shown_by=checks.usage_counts_what_requests_hold)
def held_pins_count_as_free(_original: Any, self: Any) -> Any:
    """Usage of the KV cache does not count a block that a request holds and that is pinned."""
    return 1 - (self.get_num_free_blocks() + sum(self.pinned_tier.pinned)) / (self.num_gpu_blocks - 1)


@breaks("swa_retention.pinned_tier:PinnedTier.make_room", shown_by=checks.demoted_blocks_are_counted)
def demotions_are_not_counted(original: Any, self: Any, *arguments: Any) -> None:
    """A block that is demoted is not counted."""
    original(self, *arguments)
    self.demoted = 0


@breaks("swa_retention.pinned_tier:PinnedTier.unpin", shown_by=checks.demoted_blocks_are_counted)
def other_ends_of_pins_count_as_demotions(original: Any, self: Any, block: Any) -> None:
    """A pin that ends with the content of its block is counted as a demotion."""
    original(self, block)
    self.demoted += 1


@breaks(f"{_METRICS}:make_stats", shown_by=checks.counts_are_sent_once)
def counts_are_not_sent(_original: Any, vllms: Any) -> Any:
    """The statistics of a step do not carry what was counted."""
    return vllms


@breaks(f"{_METRICS}:_counts", shown_by=checks.counts_are_sent_once)
def counts_are_sent_again(original: Any, coordinator: Any) -> Any:
    """What was counted once is sent with every step."""
    demoted = coordinator.block_pool.pinned_tier.demoted
    yield from list(original(coordinator))
    coordinator.block_pool.pinned_tier.demoted = demoted


@breaks("swa_retention.patches.junctions:get_computed_blocks", shown_by=checks.junctions_are_counted_once)
def junctions_are_not_counted(_original: Any, vllms: Any) -> Any:
    """A request that parts from what is cached is not counted."""
    return vllms


@breaks(f"{_METRICS}:update_from_output", shown_by=checks.copies_are_done_when_their_step_is_back)
def copies_are_never_done(_original: Any, vllms: Any) -> Any:
    """A copy whose step has come back from the workers is not counted as done."""
    return vllms


@breaks(f"{_METRICS}:loggers", shown_by=checks.counts_reach_the_endpoint)
def metrics_are_not_made(_original: Any, _vllms: Any) -> Any:
    """The endpoint does not have the metrics."""

    def build(self: Any) -> None:
        self.swa_retention = []

    return build


@breaks(f"{_METRICS}:record", shown_by=checks.counts_reach_the_endpoint)
def counts_reach_vllms_loggers(original: Any, vllms: Any) -> Any:
    """What was counted is left in the statistics that vLLM's own loggers see."""

    def record(self: Any, stats: Any, *arguments: Any) -> None:
        before = dict(stats.kv_connector_stats)
        original(lambda *_all: None)(self, stats, *arguments)
        stats.kv_connector_stats = before
        vllms(self, stats, *arguments)

    return record


@breaks(f"{_METRICS}:_recorder", shown_by=checks.counts_reach_the_endpoint)
def gauges_are_added_up(original: Any, metric: Any, logger: Any) -> Any:
    """A gauge is raised by each number that it is given."""
    from attrs import evolve

    return original(evolve(metric, is_gauge=False), logger)
