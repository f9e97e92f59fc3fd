"""Broken references that known findings once excused.

Goal: a reference that is wrong ends the gate with exit code 1, on the models on which it once passed. Method: break it
in a process of its own, and run ``kvgate check`` on vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

THREE_LENGTHS = """
from itertools import islice
from kvreference import hit_lookup
sound = hit_lookup.longest_length
def longest_length(found, lengths, tokens, partial_hit_tokens_min):
    length = sound(found, lengths, tokens, partial_hit_tokens_min)
    return length if length in lengths[:3] else 0
hit_lookup.longest_length = longest_length
"""
SERVES_LOOK_AHEAD = """
from kvreference.hit_lookup import _Found
from kvreference.block_pool import NULL
def table(self, hit_tokens):
    first, end = self.group.blocks_needed(hit_tokens)
    kept = self.blocks[first : end if hit_tokens else 0]
    return (*(NULL,) * first, *(block for block in kept if block is not None))
_Found.table = table
"""
FORGETS_HELD = """
from kvreference import admission, holdings
sound = admission.has_room
def passes_gate(settings, pool, hit, tokens, computed, rules=admission.OWN_RULES):
    tables = admission.tables_of_hit(settings, hit, computed)
    needed = rules.ask(admission.blocks_to_come_with, settings, tokens, computed, tables)
    return sound(pool, needed, (), rules)
admission.passes_gate = holdings.passes_gate = passes_gate
"""
CHECK = """
import sys
from kvgate.cli.app import main
from kvgate.gate.profiles import PROFILES, Profile
# What is found may stay as large as it is.
PROFILES["precommit"] = Profile({operations}, shrink_seconds=0.5)
sys.argv = ["kvgate", "check", "--model", {model!r}, "--profile", "precommit", "--level", "blocks", "--seed", "1"]
main()
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("broken", "model", "operations", "code"),
    [
        pytest.param(THREE_LENGTHS, "swa", 5_000, 1, id="three lengths on swa"),
        pytest.param(SERVES_LOOK_AHEAD, "gemma-hybrid+eagle", 5_000, 1, id="look-ahead served on gemma-hybrid+eagle"),
        pytest.param(FORGETS_HELD, "swa", 15_000, 1, id="held hits forgotten on swa"),
        pytest.param(FORGETS_HELD, "gemma-hybrid", 15_000, 1, id="held hits forgotten on gemma-hybrid"),
        pytest.param("", "swa", 15_000, 0, id="sound on swa"),
        pytest.param("", "gemma-hybrid+eagle", 15_000, 0, id="sound on gemma-hybrid+eagle"),
    ],
)
def test_a_broken_reference_ends_with_exit_code_1(
    broken: str, model: str, operations: int, code: int, fork_server: ForkServer
) -> None:
    """And the sound one with 0."""
    finished = fork_server.run("-c", broken + CHECK.format(model=model, operations=operations), timeout=600)
    assert code == finished.returncode, finished.stdout[-3000:] + finished.stderr[-3000:]
