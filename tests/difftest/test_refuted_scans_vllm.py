"""The scans that z3 refutes, on vLLM 0.20.2.

Goal: the counterexamples are about production code: where vLLM has the fault of a scan, it says what the scan says, and
elsewhere what the reference says. Method: the operations of each counterexample, on vLLM's own manager.
"""

from __future__ import annotations

import pytest

from kvgate.adapters.registry import load_system
from kvreference.answers import Hit
from kvspec.prover import prove
from kvspec.refuted.replay import Refuted
from kvspec.refuted.scans import SCANS

HAS_THE_FAULT = {
    "drop-on-every-visit": False,
    "drop-remembered": True,
    "cut-before-drop": True,
    "window-taken-for-full": False,
}
"""Those of findings 005 and 006, in fewer blocks than their traces; the first was vllm-project/vllm#32802."""


@pytest.mark.parametrize("design", SCANS, ids=lambda design: design.name)
def test_vllm_says_what_the_scan_or_the_reference_says(design: Refuted) -> None:
    """The last operation of the trace is the look-up in question."""
    pytest.importorskip("vllm")
    proof = prove(design.obligation)
    assert proof.counterexample is not None
    replay = design.replay(proof.counterexample)
    system = load_system("stock").factory(replay.settings)
    *_, hit = (system.apply(operation) for operation in replay.operations)
    assert isinstance(hit, Hit)
    expected = replay.design if HAS_THE_FAULT[design.name] else replay.sound
    assert expected == f"a hit of {hit.tokens} tokens"
