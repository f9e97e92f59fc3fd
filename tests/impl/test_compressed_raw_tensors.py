"""The check of raw KV-cache tensors.

Goal: if a layer has no tensor, or a tensor is of a layer that no group knows, the error names them and lists the
tensors, and no memory was allocated. Otherwise vLLM's own allocation is untouched. Method: vLLM's own function on
configurations that do not fit, and a runner that records whether it was called.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from swa_retention.compressed.raw_tensors import RawTensorError, check_raw_tensors
from swa_retention.config import Configuration
from swa_retention.patches.attach import activate
from swa_retention.patches.compressed import allocate_kv_cache_tensors
from swa_retention.register import MARK


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    activate(Configuration(compressed_block_size_slots=64))
    yield
    activate(Configuration())


def patched() -> Any:
    """vLLM's own function, with the check."""
    pytest.importorskip("vllm")
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    own = GPUModelRunner._allocate_kv_cache_tensors
    return allocate_kv_cache_tensors(getattr(own, MARK, own))


def config(groups: list[list[str]], tensors: list[tuple[int, list[str]]]) -> Any:
    """A configuration of these groups of layers and these tensors: bytes, and who shares them."""
    return SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(layer_names=layers) for layers in groups],
        kv_cache_tensors=[SimpleNamespace(size=size, shared_by=layers) for size, layers in tensors],
    )


RUNNER = SimpleNamespace(device="cpu", runner_only_attn_layers={"encoder"})


def test_where_all_is_well_it_is_vllms_own() -> None:
    """Each layer has its tensor, and those that share have one; a layer of the runner alone needs none."""
    tensors = patched()(RUNNER, config([["a", "b", "encoder"], ["c"]], [(64, ["a", "c"]), (32, ["b"])]))
    assert {"a": 64, "b": 32, "c": 64} == {layer: tensor.numel() for layer, tensor in tensors.items()}
    assert tensors["a"] is tensors["c"]


def test_layers_without_a_tensor_and_tensors_of_no_layer_are_named() -> None:
    """With the tensors that there would be: their bytes, and whose they are."""
    with pytest.raises(RawTensorError) as caught:
        patched()(RUNNER, config([["a", "b"], ["c"]], [(64, ["a", "c"]), (32, ["stray"])]))
    assert (("b",), ("stray",)) == (caught.value.missing, caught.value.extra)
    assert [
        "the raw KV-cache tensors do not fit the KV-cache groups:",
        "  layers without a tensor: b",
        "  tensors of layers that are in no group: stray",
        "  tensors: 64 bytes of a, c, 32 bytes of stray",
    ] == str(caught.value).splitlines()


def test_nothing_is_allocated_before_the_check() -> None:
    """The runner's own function, which asserts nothing here, is not called."""
    calls = list[Any]()
    allocate = allocate_kv_cache_tensors(lambda _self, config: calls.append(config))
    with pytest.raises(RawTensorError, match="layers without a tensor: b"):
        allocate(RUNNER, config([["a", "b"]], [(64, ["a"])]))
    assert not calls
    allocate(RUNNER, config([["a"]], [(64, ["a"])]))
    assert 1 == len(calls)


def test_an_assertion_of_the_runner_is_passed_on() -> None:
    """It is about something else."""

    def gives_up(_self: Any, _config: Any) -> Any:
        raise AssertionError("no memory")

    with pytest.raises(AssertionError, match="no memory"):
        allocate_kv_cache_tensors(gives_up)(RUNNER, config([["a"]], [(64, ["a"])]))


def test_switched_off_it_is_vllms_own_assertion() -> None:
    """It adds nothing."""
    activate(Configuration())
    with pytest.raises(AssertionError, match="not correctly initialized"):
        patched()(RUNNER, config([["a"]], []))


def test_a_report_has_a_limit() -> None:
    """Names and tensors beyond it are counted."""
    tensors = [(index + 1, [f"layer.{index:02}"]) for index in range(30)]
    with pytest.raises(RawTensorError) as caught:
        check_raw_tensors(config([[f"gone.{index:02}" for index in range(20)]], tensors), ())
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("gone.07 and 12 more")
    assert lines[2].endswith("layer.07 and 22 more")
    assert lines[3].endswith("8 bytes of layer.07 and 22 more")
    assert 20 == len(caught.value.missing)
