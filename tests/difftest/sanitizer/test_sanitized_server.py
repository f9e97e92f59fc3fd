"""The sanitizer in a real server, ``vllm serve`` with a tiny model on the CPU.

Goal: with ``KVGATE_SANITIZE=log`` a server's log names a misuse, and the server continues; without one it is silent.
Method: the same prompts, which differ in the last token of a block, with a mutant of vLLM's hashes and without it.
"""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from kvgate.adapters.cpu_engine.serving import Serving, served
from kvgate.live.exercises import EXERCISES, Exercises
from kvgate.live.server import connected


@pytest.mark.deep
@pytest.mark.parametrize("mutants", [(), ("last-token-ignored",)], ids=["sound", "broken"])
def test_a_server_logs_and_continues(mutants: tuple[str, ...]) -> None:
    """Foreign hits are in the log if and only if the server has the mutant."""
    environment = {"KVGATE_SANITIZE": "log", "VLLM_LOGGING_LEVEL": "INFO"}
    serving = Serving("gemma-3", environment, plug_ins=("kvgate_sanitizer",), mutants=mutants)
    with served(serving) as up, connected(up.url) as server:
        EXERCISES["near-twins"](Exercises(server))
        assert up.is_up
        log = (up.folder / "log").read_text(encoding="utf-8", errors="replace")
    assert "kvgate sanitizer: is on" in log
    assert "kvgate sanitizer: is off" not in log
    assert bool(mutants) == ("kvgate sanitizer: foreign hit: block " in log)
