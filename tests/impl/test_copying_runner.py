"""The memory of a model runner that is copied.

Goal: all tensors of all layers of the copy's group, in slots of each layer's own compress ratio, each tensor once, and
nothing of other groups, though they share memory. Method: stand-ins for the runners of vLLM and of vLLM-Ascend with KV
caches in the shapes that these make; no NPU is here, and vLLM-Ascend's runner is not run.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from swa_retention.copying.layout import LayoutError
from swa_retention.copying.runner import copy_blocks
from swa_retention.partial.copies import BlockCopy

pytest.importorskip("vllm")

if TYPE_CHECKING:
    import torch

BLOCKS = 10


@pytest.fixture(params=[("cuda",), ("cpu",)], ids=["by views", "by index"], autouse=True)
def _devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations, on this device."""
    monkeypatch.setattr("swa_retention.copying.runner.BY_INDEX", request.param)


def full(block_size: int, heads: int = 2, head_size: int = 32) -> Any:
    """Full attention with ``block_size`` tokens a block."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return FullAttentionSpec(block_size=block_size, num_kv_heads=heads, head_size=head_size, dtype=torch.float32)


def latent(block_size: int, ratio: int) -> Any:
    """Compressed attention: ``ratio`` tokens a slot."""
    import torch
    from vllm.v1.kv_cache_interface import MLAAttentionSpec

    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
    return MLAAttentionSpec(block_size=block_size, compress_ratio=ratio, **shape)


def random_tensor(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """No two elements alike."""
    import torch

    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def runner_of(groups: list[Any], layers: dict[str, tuple[int, Any, Any]], **more: Any) -> Any:
    """A runner with ``layers``, each with its group, its backend and its KV cache."""
    parts = [[SimpleNamespace(backend=backend, layer_names=[name])] for name, (_, backend, _) in layers.items()]
    named = [[name for name, (group, _, _) in layers.items() if group == index] for index in range(len(groups))]
    return SimpleNamespace(
        kv_cache_config=SimpleNamespace(
            num_blocks=BLOCKS,
            kv_cache_groups=[
                SimpleNamespace(kv_cache_spec=spec, layer_names=names)
                for spec, names in zip(groups, named, strict=True)
            ],
        ),
        attn_groups=parts,
        compilation_config=SimpleNamespace(
            static_forward_context={name: SimpleNamespace(kv_cache=cache) for name, (_, _, cache) in layers.items()}
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1)
        ),
        **{"runner_only_attn_layers": set(), **more},
    )


def flash() -> Any:
    """A backend whose slots are apart, in tensors of keys and values, blocks, slots, heads and elements."""
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend

    return FlashAttentionBackend


def triton_latent() -> Any:
    """A backend whose slots are apart, in tensors of blocks, slots and elements."""
    from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend

    return TritonMLABackend


def test_all_layers_of_the_group_and_no_others() -> None:
    """Two layers of one group, and one of another that lives in the same memory under another shape."""
    first, second = random_tensor((2, BLOCKS, 64, 2, 32)), random_tensor((2, BLOCKS, 64, 2, 32), 1)
    window = second.view(2, BLOCKS, 16, 8, 32)
    layers = {"first": (0, flash(), first), "second": (0, flash(), second), "window": (1, flash(), window)}
    expected = [first.clone(), second.clone()]
    copy_blocks(runner_of([full(64), full(16, heads=8)], layers), [BlockCopy(0, 3, 5, 17)])
    for tensor in expected:
        tensor[:, 5, :17] = tensor[:, 3, :17]
    assert [True, True] == [expected[0].equal(first), expected[1].equal(second)]


def test_copies_of_two_groups() -> None:
    """Each is done in the layers of its own group."""
    first, second = random_tensor((2, BLOCKS, 64, 2, 32)), random_tensor((2, BLOCKS, 128, 2, 32), 1)
    expected = [first.clone(), second.clone()]
    runner = runner_of([full(64), full(128)], {"first": (0, flash(), first), "second": (1, flash(), second)})
    copy_blocks(runner, [BlockCopy(1, 1, 2, 100), BlockCopy(0, 3, 5, 17)])
    expected[0][:, 5, :17] = expected[0][:, 3, :17]
    expected[1][:, 2, :100] = expected[1][:, 1, :100]
    assert [True, True] == [expected[0].equal(first), expected[1].equal(second)]


def test_a_block_of_several_rows() -> None:
    """A kernel may work with blocks of 16 tokens where the block manager has 64: a block is four rows."""
    cache = random_tensor((2, BLOCKS * 4, 16, 2, 32))
    expected = cache.clone()
    copy_blocks(runner_of([full(64)], {"layer": (0, flash(), cache)}), [BlockCopy(0, 3, 5, 40)])
    expected[:, 20:22] = expected[:, 12:14]
    expected[:, 22, :8] = expected[:, 14, :8]
    assert expected.equal(cache)


def test_each_layer_has_its_own_ratio() -> None:
    """The first 256 tokens are 64 slots of one layer and 2 of another, in one group of unlike layers."""
    from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

    specs = {"four": latent(512, 4), "many": latent(512, 128)}
    caches = {"four": random_tensor((BLOCKS, 128, 32)), "many": random_tensor((BLOCKS, 4, 32), 1)}
    expected = {name: cache.clone() for name, cache in caches.items()}
    whole = UniformTypeKVCacheSpecs(block_size=512, kv_cache_specs=specs)
    layers = {name: (0, triton_latent(), cache) for name, cache in caches.items()}
    copy_blocks(runner_of([whole], layers), [BlockCopy(0, 7, 2, 256)])
    for name, slots in (("four", 64), ("many", 2)):
        expected[name][2, :slots] = expected[name][7, :slots]
    assert [True, True] == [expected[name].equal(caches[name]) for name in specs]


def test_vllm_ascend_keeps_a_layer_in_several_tensors() -> None:
    """Lists in lists, blocks first, page by page in one memory; its specs count slots. Bytes are copied whole."""
    import torch

    dsa = type("Backend", (), {"__module__": "vllm_ascend.attention.dsa_v1"})
    raw = (random_tensor((BLOCKS, 8 * (32 + 8 + 4))) * 255).to(torch.uint8)
    keys = raw[:, :256].view(BLOCKS, 8, 1, 32)
    # Two bytes an element: the scales of each slot.
    scales = raw.view(torch.float16)[:, 128:160].view(BLOCKS, 8, 1, 4)
    spec = SimpleNamespace(block_size=8, compress_ratio=128, num_kv_heads=1, head_size=32)
    expected = raw.clone()
    copy_blocks(runner_of([spec], {"layer": (0, dsa, [[keys, scales]])}), [BlockCopy(0, 1, 4, 3 * 128)])
    expected[4, :256] = expected[1, :256]
    expected[4, 256 : 256 + 3 * 8] = expected[1, 256 : 256 + 3 * 8]
    assert expected.equal(raw)


def test_context_parallel_ranks_copy_whole_blocks() -> None:
    """Of which tokens a rank has the slots is not asked."""
    cache = random_tensor((2, BLOCKS, 64, 2, 32))
    expected = cache.clone()
    runner = runner_of([full(64)], {"layer": (0, flash(), cache)})
    runner.vllm_config.parallel_config.decode_context_parallel_size = 2
    copy_blocks(runner, [BlockCopy(0, 3, 5, 32)])
    expected[:, 5] = expected[:, 3]
    assert expected.equal(cache)


def test_a_shared_kv_cache_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that use another one's have none of their own, and two names of the same elements are one."""
    seen: list[int] = []
    monkeypatch.setattr(
        "swa_retention.copying.runner.copy_in", lambda tensor, _index: seen.append(int(tensor.data_ptr()))
    )
    monkeypatch.setattr(
        "swa_retention.copying.runner.copy_views",
        lambda regions, _copies: seen.extend(int(tensor.data_ptr()) for tensor, _ in regions),
    )
    cache = random_tensor((2, BLOCKS, 64, 2, 32))
    layers = {name: (0, flash(), cache) for name in ("layer", "again", "shares")}
    runner = runner_of([full(64)], layers, runner_only_attn_layers={"shares"})
    # vLLM gives such a layer to a group of the block manager, and to none of the backends.
    del runner.attn_groups[-1]
    copy_blocks(runner, [BlockCopy(0, 3, 5, 32)])
    assert [cache.data_ptr()] == seen


def test_a_new_kv_cache_is_looked_at_anew() -> None:
    """The layout of the last one is forgotten with it."""
    runner = runner_of([full(64)], {"layer": (0, flash(), random_tensor((2, BLOCKS, 64, 2, 32)))})
    copy_blocks(runner, [BlockCopy(0, 3, 5, 32)])
    cache = random_tensor((2, BLOCKS, 64, 2, 32))
    expected = cache.clone()
    new = runner_of([full(64)], {"layer": (0, flash(), cache)})
    runner.kv_cache_config, runner.compilation_config = new.kv_cache_config, new.compilation_config
    copy_blocks(runner, [BlockCopy(0, 3, 5, 32)])
    expected[:, 5, :32] = expected[:, 3, :32]
    assert expected.equal(cache)


@pytest.mark.parametrize(
    "copies",
    [
        [BlockCopy(0, 3, 5, 16), BlockCopy(0, 5, 6, 16)],
        [BlockCopy(0, 3, 5, 16), BlockCopy(1, 4, 5, 16)],
        [BlockCopy(0, 3, 3, 16)],
    ],
    ids=["from a destination", "into one destination", "into itself"],
)
def test_copies_that_get_in_each_others_way(copies: list[BlockCopy]) -> None:
    """Rejected before anything is copied."""
    with pytest.raises(ValueError, match="in each other's way"):
        copy_blocks(None, copies)


@pytest.mark.parametrize("shape", [(2, BLOCKS + 1, 64, 2, 32), (2, BLOCKS, 32, 2, 32)], ids=["blocks", "slots"])
def test_another_layout_than_expected(shape: tuple[int, ...]) -> None:
    """Rejected: nothing is copied where the layout may mean something else."""
    runner = runner_of([full(64)], {"layer": (0, flash(), random_tensor(shape))})
    with pytest.raises(LayoutError, match="does not hold 10 blocks of 64"):
        copy_blocks(runner, [BlockCopy(0, 3, 5, 16)])


def test_a_backend_without_an_axis_of_slots() -> None:
    """Rejected too."""
    backend = type(
        "Flat", (), {"get_kv_cache_shape": staticmethod(lambda blocks, slots, *_, **__: (blocks, slots * 2))}
    )
    cache = random_tensor((BLOCKS, 128))
    with pytest.raises(LayoutError, match="without an axis for each slot"):
        copy_blocks(runner_of([full(64)], {"layer": (0, backend, cache)}), [BlockCopy(0, 3, 5, 16)])


def test_a_layer_without_a_backend() -> None:
    """Rejected by its name."""
    runner = runner_of([full(64)], {"layer": (0, flash(), random_tensor((2, BLOCKS, 64, 2, 32)))})
    runner.attn_groups = []
    with pytest.raises(LayoutError, match="layer layer of KV-cache group 0"):
        copy_blocks(runner, [BlockCopy(0, 3, 5, 16)])
