"""The adapters for vLLM-Ascend: its own coordinator and managers, as published, without an NPU.

It is driven as vLLM's is, for the block manager around them is vLLM's. What differs: the block size of a compressed
group is given in slots, and memory is taken for complete slots only (``+whole-slots``). A prefill that ends inside a
slot then holds a block less than vLLM's managers would take, until the slot is complete. Nothing is lost by it: what
the slot will be made of is in the compressor's state, which is another group.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from kvgate.adapters.groups import counts_begun_slots, group_specs, not_represented
from kvgate.adapters.groups import not_retained as not_retained_by_stock
from kvgate.adapters.native import Native, not_retained
from kvgate.adapters.releases import ASCEND
from kvgate.adapters.retention import Retention, not_in_plug_in
from kvgate.adapters.stock import Stock
from kvreference.attention import Kind
from kvreference.geometry import Geometry
from kvreference.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec


class Ascend(Stock):
    """vLLM-Ascend's block manager under the gate's protocol.

    Raises:
        ValueError: settings for which vLLM-Ascend has nothing.
    """

    description = ASCEND

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(not_retained_by_stock(settings), _rejected(settings)), None)

    def groups(self, geometry: Geometry) -> list[KVCacheGroupSpec]:
        groups = group_specs(geometry)
        for ours, theirs in zip(geometry.groups, groups, strict=True):
            if ours.compress_ratio > 1:
                slots = ours.block_size_tokens // ours.compress_ratio
                theirs.kv_cache_spec = replace(theirs.kv_cache_spec, block_size=slots)
        return groups


class AscendRetention(Retention, Ascend):
    """The same with the plug-in.

    Raises:
        ValueError: settings for which vLLM-Ascend or the plug-in has nothing.
    """

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(not_in_plug_in(settings), _rejected(settings)), None)


class AscendRelease(Native):
    """vLLM-Ascend from 0.23.0 on, where DeepSeek-V4 is served: its managers are asked for by its own specs.

    A model without compression has vLLM's specs and managers, under its coordinator.

    Raises:
        ValueError: settings for which vLLM-Ascend has nothing.
    """

    by_its_specs = False
    """Whether a model without compression is asked for by its specs, too."""

    def refusal(self, settings: Settings) -> str | None:
        by_slots = self.description.counts_slots
        begun = () if by_slots else counts_begun_slots(settings)
        refused = _rejected(settings) if by_slots else _rejected_always(settings)
        drafts = _rejected_drafts(settings)
        return next(chain(not_retained(self.description, settings), begun, refused, drafts), None)

    def groups(self, geometry: Geometry) -> list[KVCacheGroupSpec]:
        groups = super().groups(geometry)
        if not self.by_its_specs and all(group.compress_ratio == 1 for group in geometry.groups):
            return groups
        specs: Any = importlib.import_module("vllm_ascend.core.kv_cache_interface")
        for ours, theirs in zip(geometry.groups, groups, strict=True):
            spec: Any = theirs.kv_cache_spec
            shape = {name: getattr(spec, name) for name in ("num_kv_heads", "head_size", "dtype")}
            shape |= {"block_size": spec.block_size, "model_version": "deepseek_v4"}
            if ours.kind is Kind.SLIDING_WINDOW:
                kind, further = specs.AscendSlidingWindowMLASpec, {"sliding_window": spec.sliding_window}
            else:
                kind, further = specs.AscendMLAAttentionSpec, {self.description.ratio_field or "": ours.compress_ratio}
                if self.description.counts_slots:
                    shape["block_size"] //= ours.compress_ratio
            theirs.kv_cache_spec = kind(**shape, **further)
        # Its layers pad the pages of states, so that those of all groups are as large.
        largest = max(group.kv_cache_spec.page_size_bytes for group in groups)
        for group in groups:
            unpadded: Any = group.kv_cache_spec
            if unpadded.page_size_bytes < largest:
                group.kv_cache_spec = replace(unpadded, page_size_padded=largest)
        return groups


class AscendWorkerRelease(AscendRelease):
    """The same where it feeds a worker, no more: what is cached is not compared.

    Raises:
        ValueError: settings for which vLLM-Ascend has nothing.
    """

    by_its_specs = True

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(not_retained_by_stock(settings), _rejected(settings)), None)


def _rejected(settings: Settings) -> Iterator[str]:
    geometry = settings.geometry
    for index, group in enumerate(geometry.groups):
        if group.compress_ratio > 1 and not group.whole_slots:
            yield f"memory for begun slots in group {index}: vLLM-Ascend takes it for whole slots only (+whole-slots)"
        slots = group.block_size_tokens // group.compress_ratio
        if settings.caches and slots % geometry.grain_tokens:
            yield (
                f"group {index}: blocks of {slots} slots are no multiple of the {geometry.grain_tokens} tokens of a "
                "hash, which vLLM-Ascend asserts"
            )
    yield from _rejected_always(settings)


def _rejected_always(settings: Settings) -> Iterator[str]:
    """What no release of vLLM-Ascend has."""
    if len(settings.geometry.groups) == 1:
        yield "a single group: vLLM-Ascend asserts that there are two kinds of groups where DeepSeek-V4 is served"
    yield from not_represented(settings)


def _rejected_drafts(settings: Settings) -> Iterator[str]:
    for index, group in enumerate(settings.geometry.groups):
        if group.compress_ratio > 1 and group.lookahead:
            yield f"a draft layer in group {index}: that of DeepSeek-V4 is in a sliding window (+mtp)"


def install_ascend(with_plug_in: bool) -> None:
    """Make vLLM's block manager in this process vLLM-Ascend's, for good; and put the plug-in's patches in place.

    Raises:
        AscendUnavailableError: vLLM-Ascend's wheel cannot be had.
        swa_retention.register.IncompatibleError: the plug-in does not fit it.
    """
    from kvgate.adapters.ascend_wheel import ascend_folder, import_managers
    from kvgate.adapters.retention import install

    # The settings of a server of DeepSeek-V4 with vLLM-Ascend.
    os.environ.setdefault("VLLM_ASCEND_APPLY_DSV4_PATCH", "1")
    import_managers(ascend_folder())
    if with_plug_in:
        install()
