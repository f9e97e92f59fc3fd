"""vLLM 0.33.0's own scheduler with pins.

Goal: pins agree with what its scheduler does otherwise than older ones: frees that wait for steps in flight, and blocks
that must stay free. Method: the published scheduler under the gate's monitors, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.published import published

from kvgate.adapters.releases import release_named

PROGRAM = Path(__file__).parent / "newest_scheduler.py"
DEMOTED = {
    # Two blocks in each of two groups.
    "alone": [4, True],
    # And a watermark of four.
    "with others": [8, True],
    "running": [4, True],
    "others load": [11, True],
    "others load too much": [0, False],
    # Four blocks in each group, and the watermark.
    "the whole fits": [12, False],
}


@pytest.fixture(scope="module")
def seen() -> Any:
    """The program's output."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, check=False, timeout=300
    )
    assert 0 == ended.returncode, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.ci
def test_deferred_frees_end_in_the_pinned_tier(seen: Any) -> None:
    """Cached blocks are pinned and held until the step is over; a request that hits them meanwhile holds
    them longer.
    """
    frees = seen["deferred_frees"]
    assert [] == frees["wrong"]
    pinned = [place for place, (is_pinned, _held) in enumerate(frees["deferred"]) if is_pinned]
    assert (8, 6) == (len(frees["deferred"]), len(pinned))
    assert {1} == {held for _is_pinned, held in frees["deferred"]}
    assert 0 == frees["waiting"]
    # Three blocks of full attention, and the two of the window that a resume at 48 tokens reads.
    hit = [place for place, held in enumerate(frees["hit"]) if held == 2]
    assert 5 == len(hit)
    assert set(hit) < set(pinned)
    assert [1 if place in hit else 0 for place in pinned] == frees["after"]
    assert 0 == frees["left"]
    assert ([0] * 6, 6) == (frees["at the end"], frees["in the tier"])


@pytest.mark.ci
def test_what_must_stay_free_is_demoted_too(seen: Any) -> None:
    """As many as are missing, if that is enough."""
    assert DEMOTED == seen["kept_free"]
