"""The KV-cache memory of DeepSeek-V4, made by published code, and its oracle.

The layers' classes of vLLM-Ascend 0.20.2rc1 give the specs, its planner (or the plug-in's) makes groups and tensors of
them, and its model runner allocates and shapes the memory. ``KINDS`` has the expected memory of each layer, written
from the model.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from kvgate.adapters.model_runner.runner import AscendWorker, Rank, set_ranks
from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.operations import Stage
from kvreference.settings import Settings

RATIOS = (0, 0, 4, 128, 4, 128, 4)
"""The compress ratio of each layer, as DeepSeek-V4-Flash begins: 0 has a window alone."""
FLASH_RATIOS = (0, 0, *(4, 128) * 20, 4)
"""All 43 layers."""
MEMORY_BYTES = 1 << 20
"""For each layer of C4."""
PUBLISHED_SLOTS = 128
WHOLE_PAGE, INDEXER_PAGE = 1024, 130
"""Bytes of a page for each slot of compressed attention: bfloat16 values of 512 dimensions; and int8 values of 128
dimensions with a scale of float16."""
INDEXER, STATE, WINDOW, ATTENTION = ".indexer", ".state_cache", ".swa_cache", ".attn"


@frozen
class Kind:
    """The expected memory of a layer, where compressed attention has blocks of 128 slots."""

    slots: int
    """Of a block."""
    slot_bytes: tuple[int, ...]
    """By tensor: values, and scales if it has any."""
    page_bytes: int = WHOLE_PAGE
    """For each slot of compressed attention."""


KINDS = {
    "attention": Kind(128, (512 * 2,)),
    "indexer": Kind(128, (128, 2), INDEXER_PAGE),
    "window": Kind(128, (512 * 2,)),
    # Keys and their scores, of two overlapping runs of 4 tokens.
    "state of C4": Kind(8, (2 * 2 * 512 * 4,)),
    "state of the indexer": Kind(8, (2 * 2 * 128 * 4,), INDEXER_PAGE),
    "state of C128": Kind(32, (2 * 512 * 4,)),
}


class WrongMemoryError(Exception):
    """The memory is not what it should be."""


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise WrongMemoryError(message)


class Server(AscendWorker):
    """A model runner whose layers are those of DeepSeek-V4."""

    _compresses = True

    def __init__(self, scheduler: Any, drafts_max: int, mtp: bool, ratios: Sequence[int]) -> None:
        from vllm.config import set_current_vllm_config

        config = scheduler.vllm_config
        set_ranks(Rank())
        self.kinds: dict[str, str] = {}
        """By layer, which of ``KINDS`` it is."""
        self.memory_bytes = MEMORY_BYTES * list(ratios).count(4)
        self.config = scheduler.kv_cache_config
        self.runner = self._bare(scheduler, drafts_max, Rank())
        with set_current_vllm_config(config):
            for index, ratio in enumerate(ratios):
                self._layer(f"model.layers.{index}.self_attn", ratio)
            if mtp:
                self._layer(f"mtp.layers.{len(ratios)}.self_attn", 0)
            self.specs = self.runner.get_kv_cache_spec()
            self._plan()
            self.runner.attn_groups = []
            # It chooses how graphs are captured, of a model that is not there.
            self.runner._check_and_update_cudagraph_mode = lambda *_: None
            self.runner.initialize_attn_backend(self.config)
            self.runner.may_reinitialize_input_batch(self.config)
            self.raw = self.runner._allocate_kv_cache_tensors(self.config)
            self.shaped = self.runner._reshape_kv_cache_tensors(self.config, self.raw)

    def _layer(self, prefix: str, ratio: int) -> None:
        """The caches of a layer, in the order in which the model makes them, and with what it gives them."""
        import torch

        home = importlib.import_module("vllm_ascend.patch.worker.patch_deepseek_compressor")
        config, float32 = self.runner.vllm_config, torch.float32
        cache = {"cache_config": config.cache_config}

        def state(name: str, dims: int, block_slots: int) -> None:
            home.AscendCompressorStateCache(dims, float32, ratio, block_slots, f"{prefix}{name}{STATE}")

        if ratio:
            state(".compressor", 2 * 512 * (2 if ratio == 4 else 1), 8 if ratio == 4 else 32)
            self.kinds[f"{prefix}.compressor{STATE}"] = f"state of C{ratio}"
        if ratio == 4:
            name = f"{prefix}{INDEXER}.k_cache"
            home.AscendDeepseekV4IndexerCache(128, torch.int8, name, compress_ratio=ratio, **cache)
            state(f"{INDEXER}.compressor", 2 * 2 * 128, 8)
            self.kinds[name] = "indexer"
            self.kinds[f"{prefix}{INDEXER}.compressor{STATE}"] = "state of the indexer"
        home.AscendDeepseekV4SWACache(512, 128, torch.bfloat16, f"{prefix}{WINDOW}", **cache)
        self.kinds[f"{prefix}{WINDOW}"] = "window"
        # Its constructor makes the operators of attention.
        kind: Any = importlib.import_module("vllm_ascend.models.layer.attention.layer").DSAAttention
        layer: Any = object.__new__(kind)
        torch.nn.Module.__init__(layer)
        backend = importlib.import_module("vllm_ascend.attention.dsa_v1").AscendDSABackend
        for field, value in {
            "compress_ratio": ratio,
            "head_size": 512,
            "kv_cache_dtype": "auto",
            "attn_backend": backend,
        }.items():
            setattr(layer, field, value)
        config.compilation_config.static_forward_context[f"{prefix}{ATTENTION}"] = layer
        if ratio:
            self.kinds[f"{prefix}{ATTENTION}"] = "attention"

    def _plan(self) -> None:
        """Groups and tensors, by the planner."""
        importlib.import_module("vllm_ascend.patch.platform.patch_kv_cache_utils")
        planner: Any = importlib.import_module("vllm.v1.core.kv_cache_utils")
        config = self.runner.vllm_config
        groups = planner.get_kv_cache_groups(config, self.specs)
        self.config = planner.get_kv_cache_config_from_groups(config, groups, self.memory_bytes)
        self.runner.kv_cache_config = self.config


def prepare(*, plug_in: bool) -> str:
    """Put the system in place, once a process; returns its name."""
    system = "ascend-worker-retention" if plug_in else "ascend-worker"
    load_system(system)
    SUBJECTS[system].install()
    return system


def serve(system: str, slots: int, *, mtp: bool, ratios: Sequence[int] = RATIOS) -> Server:
    """A model runner that has its memory."""
    import torch

    subject = SUBJECTS[system]
    geometry = load(f"dsv4-flash-ascend-{slots}{'+mtp' * mtp}+whole-slots").geometry
    settings = Settings(geometry, blocks=100, tokens_max=40000, chunk_tokens=512, drafts_max=int(mtp))
    with subject.while_built(settings):
        scheduler = subject.build(settings, Stage(running_max=2))
        scheduler.vllm_config.model_config.dtype = torch.bfloat16
        return Server(scheduler, settings.drafts_max, mtp, ratios)


@frozen
class Tensor:
    """A tensor of a layer, and where its bytes are."""

    name: str
    group: int
    view: Any
    memory: int
    """Where the memory that backs it begins."""
    slot_bytes: int
    addresses: Any
    """Of each byte in the memory, by block, slot, and byte of the slot."""


def tensors_of(server: Server, slots: int) -> list[Tensor]:
    """All of them, with as many blocks, slots and bytes as there should be."""
    runner, config = server.runner, server.config
    group_of = {name: index for index, group in enumerate(config.kv_cache_groups) for name in group.layer_names}
    _demand(set(server.kinds) == set(group_of) == set(server.shaped), "other layers have memory than need it")
    found = []
    for name, kind in ((name, KINDS[kind]) for name, kind in server.kinds.items()):
        views, group = server.shaped[name], group_of[name]
        block_slots = kind.slots * slots // PUBLISHED_SLOTS
        table = runner.input_batch.block_table.block_tables[group]
        _demand(
            block_slots == table.block_size,
            f"{name}: blocks of {block_slots} slots, and kernel blocks of {table.block_size}",
        )
        _demand(len(kind.slot_bytes) == len(views), f"{name}: {len(views)} tensors")
        for index, (view, slot_bytes) in enumerate(zip(views, kind.slot_bytes, strict=True)):
            label, memory = f"{name}[{index}]", view.untyped_storage()
            shape = (view.shape[0], view.shape[1], view[0, 0].numel() * view.element_size())
            due = (config.num_blocks, block_slots, slot_bytes)
            _demand(due == shape, f"{label}: blocks, slots and bytes are {shape}, and not {due}")
            at = _addresses(view)
            _demand(0 <= at.min() and at.max() < memory.nbytes(), f"{label}: bytes outside the memory")
            pages = memory.nbytes() // (kind.page_bytes * slots)
            _demand(
                memory.nbytes() == kind.page_bytes * slots * config.num_blocks,
                f"{label}: memory of {pages} pages for {config.num_blocks} blocks",
            )
            page = at // (kind.page_bytes * slots)
            astray = (page != np.arange(config.num_blocks)[:, None, None]).any((1, 2)).nonzero()[0]
            _demand(not len(astray), f"{label}: block {astray[:1]} is not in its page")
            found.append(Tensor(label, group, view, memory.data_ptr(), slot_bytes, at))
    return found


def _addresses(view: Any) -> Any:
    """Of each byte of a tensor in its memory, by block and slot."""
    size = view.element_size()
    at = np.full((1,) * (view.dim() + 1), view.data_ptr() - view.untyped_storage().data_ptr(), dtype=np.int64)
    for axis, (count, stride) in enumerate((*zip(view.shape, view.stride(), strict=True), (size, 0))):
        # The last axis is the bytes of an element.
        step = 1 if axis == view.dim() else stride * size
        at = at + (np.arange(count, dtype=np.int64) * step).reshape(
            [-1 if each == axis else 1 for each in range(at.ndim)]
        )
    return at.reshape(view.shape[0], view.shape[1], -1)


def check_apart(tensors: list[Tensor]) -> None:
    """In each group, no byte belongs to two slots, over all blocks, tensors and layers."""
    owners: dict[tuple[int, int], Any] = {}
    for each in tensors:
        key = each.group, each.memory
        owner = owners.setdefault(key, np.zeros(each.view.untyped_storage().nbytes(), dtype=bool))
        at = each.addresses.ravel()
        _demand(not owner[at].any(), f"{each.name}: overlaps another tensor of its group")
        before = np.count_nonzero(owner)
        owner[at] = True
        _demand(np.count_nonzero(owner) - before == len(at), f"{each.name}: two of its slots overlap")


def check_bytes(tensors: list[Tensor]) -> int:
    """Write every slot of a group with a number of its own, read them back, and find nothing else in the memory.

    Returns how many slots were written.
    """
    import torch

    raw, written = _raw(tensors), 0
    for group in sorted({each.group for each in tensors}):
        for memory in raw.values():
            memory.fill(0)
        next_number, numbers = 1, dict[str, Any]()
        mine = [each for each in tensors if each.group == group]
        for each in mine:
            blocks, block_slots = each.view.shape[:2]
            these = next_number + np.arange(blocks * block_slots).reshape(blocks, block_slots)
            next_number += these.size
            numbers[each.name] = these
            _demand(next_number < 1 << 16, "more slots than numbers of two bytes")
            _bytes_of(each).copy_(torch.from_numpy(_pattern(these, each.slot_bytes)))
        for each in mine:
            same = (_bytes_of(each).numpy() == _pattern(numbers[each.name], each.slot_bytes)).all((1, 2))
            _demand(bool(same.all()), f"{each.name}: block {(~same).nonzero()[0][:1]} reads otherwise than written")
        for key, memory in raw.items():
            here = [each for each in mine if each.memory == key]
            blocks = len(tensors[0].view)
            for block, page in enumerate(memory.view("<u2").reshape(blocks, -1)):
                due = np.zeros(next_number, dtype=np.int64)
                for each in here:
                    due[numbers[each.name][block]] = each.slot_bytes // 2
                due[0] = len(page) - due.sum()
                got = np.bincount(page, minlength=next_number)
                _demand(bool((due == got).all()), f"{[each.name for each in here]}: other bytes in page {block}")
        written += next_number - 1
    return written


def check_copies(server: Server, tensors: list[Tensor]) -> int:
    """Have the plug-in copy blocks of each group up to a slot, and look at every byte of all memories.

    After that slot, a destination may have what it had or what the source has. Returns how many slots were copied.
    """
    from swa_retention.copying.runner import copy_blocks
    from swa_retention.partial.copies import BlockCopy

    for name, views in server.shaped.items():
        # As the runner binds the memory of DeepSeek-V4's layers.
        server.runner.compilation_config.static_forward_context[name].kv_cache = [views]
    raw, draw, copied = _raw(tensors), np.random.default_rng(0), 0
    for group, described in enumerate(server.config.kv_cache_groups):
        mine = [each for each in tensors if each.group == group]
        # Groups with a window have no ratio.
        ratio = getattr(server.specs[described.layer_names[0]], "compress_ratio", None) or 1
        for memory in raw.values():
            memory[:] = draw.integers(256, size=len(memory), dtype=np.uint8)
        before = {key: memory.copy() for key, memory in raw.items()}
        ends = draw.integers(1, mine[0].view.shape[1], size=2).tolist()
        pairs = [(1, 2, ends[0]), (4, 3, ends[1])]
        copy_blocks(server.runner, [BlockCopy(group, source, to, end * ratio) for source, to, end in pairs])
        due = {key: memory.copy() for key, memory in before.items()}
        for each in mine:
            for source, to, end in pairs:
                for slot, (at, into) in enumerate(zip(each.addresses[source], each.addresses[to], strict=True)):
                    content = before[each.memory][at]
                    if slot < end or (content == raw[each.memory][into]).all():
                        due[each.memory][into] = content
                copied += end
        for key, memory in raw.items():
            wrong = (due[key] != memory).nonzero()[0]
            names = [each.name for each in mine if len(wrong) and wrong[0] in each.addresses and each.memory == key]
            _demand(
                not len(wrong), f"group {group}, byte {wrong[:1]} of {names}: not what the copies are to leave there"
            )
    return copied


def _raw(tensors: list[Tensor]) -> dict[int, Any]:
    """The bytes of each memory."""
    import torch

    memories = {each.memory: each.view.untyped_storage() for each in tensors}
    return {key: torch.empty(0, dtype=torch.uint8).set_(memory).numpy() for key, memory in memories.items()}


def _bytes_of(tensor: Tensor) -> Any:
    import torch

    return tensor.view.view(torch.uint8).flatten(2)


def _pattern(numbers: Any, slot_bytes: int) -> Any:
    """By block and slot, its number again and again."""
    return np.repeat(numbers.astype("<u2")[..., None], slot_bytes // 2, axis=2).view(np.uint8)


def compare(system: str, slots: int, *, mtp: bool, ratios: Sequence[int] = RATIOS) -> dict[str, Any]:
    """Make the memory of a model and check it; returns what was compared.

    Raises:
        WrongMemoryError: it is not what it should be.
    """
    server = serve(system, slots, mtp=mtp, ratios=ratios)
    tensors = tensors_of(server, slots)
    check_apart(tensors)
    written = check_bytes(tensors)
    copied = check_copies(server, tensors) if system.endswith("-retention") else 0
    memories = {each.memory: each.view.untyped_storage().nbytes() for each in tensors}
    _demand(sum(memories.values()) <= server.memory_bytes, "more memory than there is")
    sharing = {key: {each.group for each in tensors if each.memory == key} for key in memories}
    kinds = [KINDS[kind] for kind in server.kinds.values()]
    padded = [kind for kind in kinds if sum(kind.slot_bytes) * kind.slots < kind.page_bytes * PUBLISHED_SLOTS]
    return {
        "layers": len(server.kinds),
        "tensors": len(tensors),
        "groups": len(server.config.kv_cache_groups),
        "memories": len(memories),
        "shared": sum(len(groups) > 1 for groups in sharing.values()),
        "padded": len(padded),
        "blocks": server.config.num_blocks,
        "slots": written,
        "copied": copied,
    }
