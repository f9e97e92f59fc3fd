"""Defects of the published vLLM and vLLM-Ascend that the sanitizer reports without the reference.

Goal: its reports are about real defects as well as about mutants. Method: replay the traces of findings in clean
processes with the sanitizer on; a finding that misuses no block is the control, and nothing is reported.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fork_server import ForkServer

import kvgate.findings

FINDINGS = Path(kvgate.findings.__path__[0])
PROGRAM = """
import sys
from kvgate.sanitizer.adapter.hooks import Sanitizer
sanitizer = Sanitizer(lambda misuse: print("reported:", misuse.kind))
sanitizer.install()
from kvgate.cli.__main__ import main
try:
    main()
finally:
    print("failures:", sanitizer.failures)
"""
TIMEOUT_SECONDS = 120.0
REPORTED = {
    "f003_salt_collides_with_adapter_name/trace.jsonl": "foreign hit",
    "f004_media_forgotten_in_prompt_tail/trace-memory.jsonl": "foreign hit",
    "f008_external_tokens_take_other_hits/trace.jsonl": "broken prefix cache",
    "f009_load_forgets_its_last_token/trace.jsonl": "use after free",
    "f034_window_released_before_a_failed_load/trace.jsonl": "use after free",
}
NOT_REPORTED = (
    "f002_gate_subtracts_skipped_blocks/trace.jsonl",
    "f007_events_span_null_blocks/trace.jsonl",
    "f020_preempted_in_its_step_stays_cached/trace.jsonl",
    "f025_aborted_load_never_reclaimed/trace.jsonl",
)


def reported(fork_server: ForkServer, trace: str) -> list[str]:
    """The kinds of misuse that are reported while a trace is replayed."""
    with fork_server.start("-c", PROGRAM, "replay", str(FINDINGS / trace)) as child:
        output, errors = child.communicate(TIMEOUT_SECONDS)
    assert "failures: []" in output, output + errors
    assert "operations" in output
    return [line.removeprefix("reported: ") for line in output.splitlines() if line.startswith("reported: ")]


@pytest.mark.few(1)
@pytest.mark.parametrize(("trace", "kind"), REPORTED.items())
def test_a_published_defect_is_reported(fork_server: ForkServer, trace: str, kind: str) -> None:
    """The first report is of this kind."""
    assert kind == reported(fork_server, trace)[0]


@pytest.mark.ci
@pytest.mark.parametrize("trace", NOT_REPORTED)
def test_what_misuses_no_block_is_not_reported(fork_server: ForkServer, trace: str) -> None:
    """Estimates of the gate, events, decisions of the scheduler."""
    assert [] == reported(fork_server, trace)
