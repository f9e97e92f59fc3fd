"""vLLM with the plug-in and nothing switched on, operation by operation the same as vLLM without it.

Goal: with the plug-in installed and no switch set, vLLM is stock. So is a block manager for which nothing is switched
on, in a process in which every patch is in place. Method: the same generated cases in processes of their own, and a
digest of all that can be observed after each operation; one injected change must be seen.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from kvgate.campaigns.digests import MODELS

if TYPE_CHECKING:
    from tests.fork_server import ForkServer


pytestmark = pytest.mark.ci

OPERATIONS = 150
SWITCHES = (
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
    "VLLM_PIN_SWA_TOKENS",
    "VLLM_PREFIX_CACHE_PARTIAL_HITS",
    "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE",
)
INJECTED = """
import json
from kvgate.campaigns.digests import digests, factory_of
from kvgate_mutants.mutants.plugin.retention import scratch_first_uninvited
factory = factory_of("inert")
from swa_retention.features import FEATURES
from swa_retention.register import look
print(json.dumps(sorted({look(patch).state.value for feature in FEATURES for patch in feature.patches})))
with scratch_first_uninvited.applied():
    print(json.dumps(list(digests(factory, "full", 150))))
"""


def printed_by(fork_server: ForkServer, *command: str) -> list[str]:
    """The output of a clean process with no switch set; all of them hash alike."""
    environment = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    environment |= {"PYTHONHASHSEED": "0", "VLLM_PLUGINS": "swa_retention", "VLLM_LOGGING_LEVEL": "ERROR"}
    finished = fork_server.run(*command, timeout=600, env=environment)
    assert 0 == finished.returncode, finished.stderr
    return finished.stdout.splitlines()


def digests_of(arm: str, fork_server: ForkServer) -> dict[str, list[str]]:
    """Per model, a digest of every operation."""
    command = ("-m", "kvgate.campaigns.digests", arm, "--operations", str(OPERATIONS))
    return dict(map(json.loads, printed_by(fork_server, *command)))


@pytest.fixture(scope="module")
def stock(fork_server: ForkServer) -> dict[str, list[str]]:
    """The behaviour of vLLM without the plug-in."""
    return digests_of("stock", fork_server)


@pytest.mark.parametrize("arm", ["unset", "inert"])
def test_it_is_stock_vllm(arm: str, stock: dict[str, list[str]], fork_server: ForkServer) -> None:
    """Every answer, every block id, every hash, and the order of the free queue."""
    assert list(MODELS) == list(stock)
    assert all(len(lines) == OPERATIONS for lines in stock.values())
    assert stock == digests_of(arm, fork_server)


def test_an_injected_fault_is_seen(stock: dict[str, list[str]], fork_server: ForkServer) -> None:
    """Every patch that fits is in place. With scratch that goes first uninvited, all is the same up to a release."""
    states, lines = map(json.loads, printed_by(fork_server, "-c", INJECTED))
    assert "patched" in states
    assert not {"fits", "differs", "missing"} & set(states)
    assert stock["full"][0] == lines[0]
    assert stock["full"] != lines
