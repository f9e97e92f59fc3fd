"""The check of raw KV-cache tensors.

Goal: whoever's layer has no tensor, or has one that no group knows of, reads which, and what tensors there are; where
all is well, vLLM's own allocation is untouched. Method: vLLM's own function on configurations that do not fit, and a
runner that asserts nothing.
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

torch = pytest.importorskip("torch")


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
    """With what there is: shape, type, bytes, and whose."""
    with pytest.raises(RawTensorError) as caught:
        patched()(RUNNER, config([["a", "b"], ["c"]], [(64, ["a", "c"]), (32, ["stray"])]))
    assert (("b",), ("stray",)) == (caught.value.missing, caught.value.extra)
    assert [
        "the raw KV-cache tensors do not fit the KV-cache groups:",
        "  layers without a tensor: b",
        "  tensors of layers that are in no group: stray",
        "  tensors: (64,) int8 (64 bytes) of a, c, (32,) int8 (32 bytes) of stray",
    ] == str(caught.value).splitlines()


def test_a_runner_that_asserts_nothing_is_checked_too() -> None:
    """Python leaves assertions out if it is told to."""
    unchecked = allocate_kv_cache_tensors(lambda _self, _config: {"a": torch.zeros(2, 3)})
    with pytest.raises(RawTensorError, match="layers without a tensor: b"):
        unchecked(RUNNER, config([["a", "b"]], []))


def test_any_other_assertion_is_passed_on() -> None:
    """It is about something else."""

    def gives_up(_self: Any, _config: Any) -> Any:
        raise AssertionError("no memory")

    with pytest.raises(AssertionError, match="no memory"):
        allocate_kv_cache_tensors(gives_up)(RUNNER, config([["a"]], []))


def test_switched_off_it_is_vllms_own_assertion() -> None:
    """Nothing is said beyond it."""
    activate(Configuration())
    with pytest.raises(AssertionError, match="not correctly initialized"):
        patched()(RUNNER, config([["a"]], []))


def test_a_layer_may_have_several_tensors() -> None:
    """vLLM-Ascend keeps keys and values apart, and leaves out what a layer has not."""
    tensors = {"a": (torch.zeros(4, dtype=torch.bfloat16), torch.zeros(2, 2), None)}
    with pytest.raises(RawTensorError) as caught:
        check_raw_tensors({"a", "b"}, tensors)
    assert "  tensors: (4,) bfloat16 (8 bytes) and (2, 2) float32 (16 bytes) and nothing of a" in str(caught.value)


def test_a_report_has_a_limit() -> None:
    """Names and tensors beyond it are counted."""
    tensors = {f"layer.{index:02}": torch.zeros(index + 1) for index in range(30)}
    with pytest.raises(RawTensorError) as caught:
        check_raw_tensors({f"gone.{index:02}" for index in range(20)}, tensors)
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("gone.07 and 12 more")
    assert lines[2].endswith("layer.07 and 22 more")
    assert lines[3].endswith("(8,) float32 (32 bytes) of layer.07 and 22 more")
    assert 20 == len(caught.value.missing)
