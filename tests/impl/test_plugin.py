"""The plug-in in a process of its own, as vLLM loads it.

Goal: with no switch set nothing is changed and nothing is imported. With one, exactly its patches are in place. An
invalid switch stops the start with one clear message. Method: interpreters with an environment each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from typing import TYPE_CHECKING

import pytest

from swa_retention.config import VARIABLES

if TYPE_CHECKING:
    from tests.fork_server import ForkServer


SWITCHES = VARIABLES

PATCHED = """
import inspect
from swa_retention.features import FEATURES
from swa_retention.register import look
import swa_retention.plugin
from vllm.plugins import load_general_plugins
load_general_plugins()
load_general_plugins()
swa_retention.plugin.register()
for feature in FEATURES:
    # What is not installed here, or not imported yet, has nothing to be looked at.
    found = {look(patch).state.value for patch in feature.patches} - {"absent", "waiting"}
    print(feature.name, *sorted(found), sep="|")
"""


def environment(**switches: str) -> dict[str, str]:
    """These switches, and no others."""
    others = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    return {**others, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": "swa_retention", **switches}


def test_with_nothing_switched_on_nothing_happens() -> None:
    """Neither vLLM nor any patch is imported."""
    program = (
        "import sys; from swa_retention.plugin import register; register(); "
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('vllm', 'torch') or "
        "name.startswith('swa_retention.patches')))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, env=environment()
    )
    assert ("[]\n", 0) == (finished.stdout, finished.returncode), finished.stderr


def test_vllm_is_notified_of_it() -> None:
    """By the entry point that vLLM reads, and the only one that the plug-in brings."""
    entries = [(entry.group, entry.name, entry.value) for entry in distribution("swa-retention").entry_points]
    assert [("vllm.general_plugins", "swa_retention", "swa_retention.plugin:register")] == entries


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("switches", "states"),
    [
        ({}, ("fits", "fits", "fits")),
        ({SWITCHES[0]: "auto"}, ("patched", "fits|patched", "fits|patched")),
        ({SWITCHES[1]: "1"}, ("fits|patched", "patched", "fits|patched")),
        ({SWITCHES[0]: "0", SWITCHES[1]: "1"}, ("patched", "patched", "fits|patched")),
        ({SWITCHES[3]: "auto"}, ("fits|patched", "fits|patched", "patched")),
    ],
    ids=["nothing", "retention", "pins", "both", "partial hits"],
)
def test_vllm_loads_what_is_switched_on(
    switches: dict[str, str], states: tuple[str, ...], fork_server: ForkServer
) -> None:
    """Once, however often it is called; a patch shared by two features is put in place for either."""
    finished = fork_server.run("-c", PATCHED, env=environment(**switches))
    assert 0 == finished.returncode, finished.stderr
    found = dict(line.split("|", 1) for line in finished.stdout.splitlines()[-4:])
    assert states == (found["retention"], found["the pinned tier"], found["partial hits"])


def test_a_broken_switch_stops_the_start(fork_server: ForkServer) -> None:
    """With the variable, its value, and what is allowed."""
    finished = fork_server.run("-c", PATCHED, env=environment(**{SWITCHES[0]: "often"}))
    assert 0 != finished.returncode
    assert "VLLM_PREFIX_CACHE_RETENTION_INTERVAL='often' is not possible" in finished.stderr.splitlines()[-1]
