"""The memory that vLLM-Ascend's planner and worker make for DeepSeek-V4: pages, padding, strides and scales.

Goal: each slot of each layer has bytes of its own where its block's page is, layers of one group never share bytes, and
a mistake in a stride, an offset or a page is seen. Method: the layers, the planner and the model runner are the
published ones (``tests.difftest.worker.dsv4_memory``), every address is checked, and every slot of a group is written
with a number of its own and found in the raw memory. Then the same with one fault each
(``tests.difftest.worker.dsv4_faults``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

FOUND = {
    "scales at the offset of the values": "indexer.k_cache[1]: overlaps another tensor of its group",
    "scales without the stride of the page": "indexer.k_cache[1]: block [2] is not in its page",
    "stride without the padding": "compressor.state_cache[0]: block [1] is not in its page",
    "page of the values alone": "indexer.k_cache[0]: block [1] is not in its page",
    "half the page": "swa_cache[0]: block [1] is not in its page",
    "half the slots": "blocks, slots and bytes are (10, 32, 1024), and not (10, 64, 1024)",
    "slots of an element less": "two of its slots overlap",
    "padding of the indexer's states of another block size": "memory of 78 pages for 10 blocks",
    "states of another block size": "blocks of 16 slots, and kernel blocks of 8",
    "two layers of a group in a tensor": ".attn[0]: overlaps another tensor of its group",
    "kernel blocks that are divided in the table alone": "blocks of 64 slots, and kernel blocks of 32",
    "copies without scales": "indexer.k_cache[1]']: not what the copies are to leave there",
    "copies of all layers but the last": ".attn[0]']: not what the copies are to leave there",
    "copies of a slot too few": "not what the copies are to leave there",
}
"""By fault, what it is reported as."""


def _found(server: ForkServer, *arguments: str) -> Any:
    environment = {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}
    finished = server.run("-m", "tests.difftest.worker.dsv4_faults", *arguments, env=environment, timeout=300)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def with_plug_in(fork_server: ForkServer) -> Any:
    """The comparisons by block size, and the findings of each fault."""
    return _found(fork_server)


def _check(compared: Any) -> None:
    """The draft model's layer has a memory of its own, the other layers share theirs."""
    shapes = [[each[name] for name in ("layers", "tensors", "groups", "memories")] for each in compared]
    assert [[23, 26, 7, 6], [24, 27, 7, 7]] == shapes
    for each in compared:
        assert (6, 6) == (each["shared"], each["padded"])
        assert each["slots"] > 12_000


@pytest.mark.ci
@pytest.mark.parametrize("slots", [128, 64, 32])
def test_each_slot_has_its_bytes(slots: int, with_plug_in: Any) -> None:
    """With the plug-in, which copies the slots before a boundary in all tensors of a group."""
    compared = with_plug_in["compared"][str(slots)]
    _check(compared)
    assert all(each["copied"] > 100 for each in compared)


@pytest.mark.ci
def test_published_each_slot_has_its_bytes(fork_server: ForkServer) -> None:
    """Without it, vLLM-Ascend has blocks of 128 slots."""
    _check(_found(fork_server, "published")["compared"]["128"])


@pytest.mark.ci
def test_faults_are_found(with_plug_in: Any) -> None:
    """Fourteen, each by what is wrong."""
    found = with_plug_in["faults"]
    assert set(FOUND) == set(found)
    for name, report in FOUND.items():
        assert report in (found[name] or ""), name


@pytest.mark.deep
@pytest.mark.parametrize("words", [(), ("published",)], ids=["plug-in", "published"])
def test_each_slot_of_the_whole_model_has_its_bytes(words: tuple[str, ...], fork_server: ForkServer) -> None:
    """All 43 layers, and that of the draft model."""
    compared = _found(fork_server, "flash", *words)["compared"]
    assert ({"128"} if words else {"128", "64", "32"}) == set(compared)
    for without, with_mtp in compared.values():
        assert (167, 168) == (without["layers"], with_mtp["layers"])
        assert with_mtp["slots"] > 80_000
