"""What shows mutants of compressed groups below the block manager: pages, tensors, and vLLM-Ascend's own code.

vLLM-Ascend is not at hand: what replaces its functions is called in front of stand-ins for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

SLOT_TOKENS = 8


@dataclass(frozen=True)
class Spec:
    """A layer's spec: what of it the plug-in changes."""

    block_size: int = 128
    page_size_padded: int = 1024
    page_size_bytes: int = 0


@contextmanager
def _block_size(slots: int | None) -> Iterator[None]:
    """Compressed blocks have so many slots."""
    from swa_retention.config import Configuration
    from swa_retention.patches.attach import activate, active

    before = active()
    activate(Configuration(compressed_block_size_slots=slots))
    try:
        yield
    finally:
        activate(before)


def _group(**pages: int) -> Any:
    """Layers with the bytes of their pages; a request needs two blocks of each group."""
    specs = {layer: Spec(page_size_bytes=page) for layer, page in pages.items()}
    spec = SimpleNamespace(kv_cache_specs=specs, max_memory_usage_pages=lambda _config: 2)
    return SimpleNamespace(kv_cache_spec=spec, layer_names=list(pages))


def _groups() -> list[Any]:
    """Two groups; one has a page size that the other has not. The tensors: 10 for a, c and 10 for b, 30 for d."""
    return [_group(a=10, b=10), _group(c=10, d=30)]


def page_sizes_are_those_of_all_groups() -> str | None:
    """A tensor for every layer, and none for nobody."""
    from vllm.v1.core import kv_cache_utils

    return _tensors(vars(kv_cache_utils)["_get_kv_cache_config_deepseek_v4"])


def ascends_tensors_are_those_of_all_groups() -> str | None:
    """The same in front of vLLM-Ascend's own layout."""
    from swa_retention.patches import compressed

    return _tensors(compressed.kv_cache_tensors(_in_slots))


def _tensors(layout: Any) -> str | None:
    config = SimpleNamespace(cache_config=SimpleNamespace(num_gpu_blocks_override=None))
    with _block_size(64):
        try:
            blocks, tensors = layout(config, _groups(), 200)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    found = blocks, sorted((tensor.size, tuple(tensor.shared_by)) for tensor in tensors)
    return None if found == (4, [(40, ("a", "c")), (40, ("b",)), (120, ("d",))]) else f"tensors: {found}"


def a_block_takes_what_its_tensors_take() -> str | None:
    """Over all tensors."""
    from vllm.v1.core import kv_cache_utils

    with _block_size(64):
        try:
            found = vars(kv_cache_utils)["_pool_bytes_per_block"](_groups())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None if found == 50 else f"a block takes {found} bytes"


def a_request_takes_what_its_blocks_take() -> str | None:
    """Two blocks of two groups."""
    from vllm.v1.core import kv_cache_utils

    with _block_size(64):
        try:
            found = vars(kv_cache_utils)["_max_memory_usage_bytes_from_groups"](None, _groups())
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None if found == 200 else f"a request takes {found} bytes"


def a_layer_without_a_tensor_is_named() -> str | None:
    """One of two layers has none."""
    import torch

    from swa_retention.compressed.raw_tensors import RawTensorError
    from swa_retention.patches import compressed

    config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=["has.one", "has.none"])])
    runner = SimpleNamespace(runner_only_attn_layers=set())
    tensors = {"has.one": torch.zeros(2, dtype=torch.int8)}
    with _block_size(64):
        try:
            compressed.allocate_kv_cache_tensors(lambda _self, _config: tensors)(runner, config)
        except RawTensorError as error:
            return None if error.missing == ("has.none",) else f"missing is said to be {error.missing}"
    return "nobody says that a layer has no tensor"


def _manager() -> Any:
    """A manager of full attention with blocks of 16 tokens, in slots of eight."""
    from kvgate.adapters.stock import Stock
    from kvgate.kernel.models import load
    from kvreference.operations import Arrive, Run
    from kvreference.settings import Settings

    system = Stock(Settings(load("full").geometry, blocks=16, tokens_max=64))
    system.apply(Arrive(0, (Run(0, 32),)))
    manager: Any = system.manager.coordinator.single_type_managers[0]
    manager.slot_tokens = SLOT_TOKENS
    manager.request = system._requests[0]
    return manager


def _in_slots(*_arguments: Any, **_named: Any) -> Any:
    """Stands in for vLLM-Ascend's own: it does not know that blocks are counted in tokens."""
    raise LookupError("vLLM-Ascend's own was asked, in slots")


def _without_a_slot_begun(found: Any, expected: Any) -> str | None:
    return None if found == expected else f"{found} in place of {expected}"


def blocks_needed_are_counted_in_tokens() -> str | None:
    """Of 20 tokens two slots are complete, and they are in one block."""
    from swa_retention.patches import ascend_managers

    try:
        needed = ascend_managers.get_num_blocks_to_allocate(_in_slots)(_manager(), "r", 20, [], 0, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(needed, 1)


def blocks_are_taken_for_complete_slots() -> str | None:
    """Of 20 tokens two slots are complete, and they are in one block."""
    from swa_retention.patches import ascend_managers

    try:
        taken = ascend_managers.allocate_new_blocks(_in_slots)(_manager(), "r", 20, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(len(taken), 1)


def loaded_blocks_are_taken_for_complete_slots() -> str | None:
    """Twenty tokens come from elsewhere."""
    from swa_retention.patches import ascend_managers

    manager = _manager()
    try:
        ascend_managers.allocate_new_computed_blocks(_in_slots)(manager, "r", [], 0, 20)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(len(manager.req_to_blocks["r"]), 1)


def blocks_are_cached_under_all_that_they_hold() -> str | None:
    """The second block, under the hash of 32 tokens."""
    from swa_retention.patches import ascend_managers

    manager = _manager()
    request = manager.request
    blocks = manager.allocate_new_blocks(request.request_id, 32, 32)
    try:
        ascend_managers.cache_blocks(_in_slots)(manager, request, 32, retention_interval=None)
    except LookupError as error:
        return str(error)
    return _without_a_slot_begun(blocks[1].block_hash[:-4], request.block_hashes[1])


def hits_are_looked_up_in_tokens() -> str | None:
    """The look-up is vLLM's."""
    from swa_retention.patches import ascend_managers

    coordinator = SimpleNamespace(looks_up_tokens=True)
    try:
        ascend_managers.find_longest_cache_hit(_in_slots)(coordinator, [], 0)
    except LookupError as error:
        return str(error)
    except AttributeError:
        # vLLM's own was asked, and the coordinator is none.
        return None
    return None


def ascends_factory_takes_newer_keywords() -> str | None:
    """A scheduler says its block."""
    from swa_retention.newer_keywords import said
    from swa_retention.patches import ascend_managers

    def make(size: int) -> tuple[int, Any]:
        return size, said().get("scheduler_block_size")

    try:
        made = ascend_managers.get_kv_cache_coordinator(make)(3, scheduler_block_size=64)
    except TypeError as error:
        return str(error)
    return _without_a_slot_begun(made, (3, 64))


def ascends_coordinator_takes_newer_keywords() -> str | None:
    """A scheduler says its block."""
    from swa_retention.patches import newer_keywords

    built: Any = SimpleNamespace(eagle_group_ids=set())
    try:
        newer_keywords.coordinator(lambda _self: None)(built, scheduler_block_size=64)
    except TypeError as error:
        return str(error)
    return _without_a_slot_begun(getattr(built, "scheduler_block_size", None), 64)


def the_block_size_is_what_was_asked_for() -> str | None:
    """Sixty-four slots, where vLLM-Ascend writes 128."""
    from swa_retention.patches import ascend_layers

    cache = SimpleNamespace(block_size=64, user_specified_block_size=True)
    model = SimpleNamespace(hf_config=SimpleNamespace(model_type="deepseek_v4"))

    def refresh(config: Any) -> None:
        config.cache_config.block_size = 128

    with _block_size(64):
        ascend_layers.refresh_block_size(refresh)(SimpleNamespace(cache_config=cache, model_config=model))
    return _without_a_slot_begun(cache.block_size, 64)


def compressed_layers_have_the_block_size() -> str | None:
    """Sixty-four slots."""
    from swa_retention.patches import ascend_layers

    with _block_size(64):
        spec = ascend_layers.compressed_spec(lambda _self, _config: Spec())(None, None)
    return _without_a_slot_begun(spec, Spec(64))


def windows_have_the_block_size() -> str | None:
    """Thirty-two slots."""
    from swa_retention.patches import ascend_layers

    with _block_size(32):
        spec = ascend_layers.window_spec(lambda _self, _config: Spec())(None, None)
    return _without_a_slot_begun(spec, Spec(32))


def states_shrink_with_the_block_size() -> str | None:
    """A quarter of eight slots, in a quarter of the page."""
    from swa_retention.patches import ascend_layers

    with _block_size(32):
        spec = ascend_layers.state_spec(lambda _self, _config: Spec())(SimpleNamespace(compress_ratio=4), None)
    return _without_a_slot_begun(spec, Spec(2, 256))
