"""Random batches of vLLM-Ascend's worker with the plug-in, for every block size that can be asked for.

Goal: every slot, table entry and copied byte is the reference's; a block size that the back-end does not have, and a
copy of a slot too few, are seen. Method: ``tests.difftest.worker.batches``, in a process of its own.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from tests.published import published

from kvgate.adapters.ascend_wheel import WHERE

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

CASES = [
    pytest.param(slots, mtp, partial, id=f"{slots}{'-mtp' * mtp}{'-partial' * partial}")
    for slots in (32, 64, 128)
    for mtp in (False, True)
    for partial in (False, True)
]
BROKEN_COPIES = """
from swa_retention.copying import views
from tests.difftest.worker.batches import run
original = views._views
def a_slot_less(tensor, layout, block, tokens):
    return original(tensor, layout, block, max(tokens - layout.tokens_per_slot, layout.tokens_per_slot))
views._views = a_slot_less
run(64, 60, mtp=False, partial=True)
"""
BROKEN_SIZES = """
from swa_retention.patches import ascend_layers
from tests.difftest.worker.batches import run
ascend_layers._sizes = lambda: ascend_layers.BLOCK_SIZES[128]
run(64, 60, mtp=False, partial=False)
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Where vLLM-Ascend is."""
    return {WHERE: str(published()), "VLLM_LOGGING_LEVEL": "ERROR"}


def _compare(
    slots: int, mtp: bool, partial: bool, batches: int, server: ForkServer, environment: dict[str, str]
) -> None:
    words = ("mtp",) * mtp + ("partial",) * partial
    program = ("-m", "tests.difftest.worker.batches", str(slots), str(batches), *words)
    finished = server.run(*program, env=environment, timeout=3600)
    assert 0 == finished.returncode, finished.stderr[-2000:]
    compared = ast.literal_eval(finished.stdout.splitlines()[-1])
    assert batches == compared["batches"]
    assert compared["slots"] > 100 * batches
    assert bool(compared["copies"]) == partial


@pytest.mark.ci
@pytest.mark.parametrize(("slots", "mtp", "partial"), CASES[3::4])
def test_batches(slots: int, mtp: bool, partial: bool, fork_server: ForkServer, environment: dict[str, str]) -> None:
    """A hundred."""
    _compare(slots, mtp, partial, 100, fork_server, environment)


@pytest.mark.deep
@pytest.mark.parametrize(("slots", "mtp", "partial"), CASES)
def test_many_batches(
    slots: int, mtp: bool, partial: bool, fork_server: ForkServer, environment: dict[str, str]
) -> None:
    """Two thousand; they are the same in every run."""
    _compare(slots, mtp, partial, 2_000, fork_server, environment)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("program", "message"), [(BROKEN_COPIES, "copied from block"), (BROKEN_SIZES, "No common block size for 4")]
)
def test_what_is_broken_is_seen(
    program: str, message: str, fork_server: ForkServer, environment: dict[str, str]
) -> None:
    """In the copies, and in the sizes."""
    finished = fork_server.run("-c", program, env=environment, timeout=300)
    assert 0 != finished.returncode
    assert message in finished.stderr
