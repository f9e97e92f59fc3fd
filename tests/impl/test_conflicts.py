"""Conflicts: other plug-ins that change the same vLLM, vLLMs that the plug-in is not for, and values that make no
sense.

Goal: the user sees one message that says what is wrong and what to do, or nothing is wrong. Method: real plug-ins of
vLLM together with ours, in either order; the published wheels of other versions; and a real start of an engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from swa_retention.config import VARIABLES
from swa_retention.releases import MASKED, PARTIAL_HITS, PINS, RELEASES, RETENTION, Release

from .upstream.archive import wheel_of
from .upstream.stand_ins import write

# To look for pip's module would be enough for setuptools to leave distutils alone, which vLLM does not survive.
INSTALLED = {distribution.name for distribution in distributions()}
pytestmark = [
    pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed"),
    pytest.mark.ci,
]

HERE = Path(__file__).parent
INTERVAL, PIN = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"
FREE_BLOCKS = "vllm.v1.core.block_pool:BlockPool.free_blocks"

RIVAL = """
from functools import wraps

def register():
    from vllm.v1.core.block_pool import BlockPool
    before = BlockPool.free_blocks
    def free_blocks(self, ordered_blocks, *more, **named):
        return before(self, ordered_blocks, *more, **named)
    BlockPool.free_blocks = {how}
"""
REPLACES, WRAPS = RIVAL.format(how="free_blocks"), RIVAL.format(how="wraps(before)(free_blocks)")


def rival(folder: Path, source: str) -> str:
    """A second plug-in of vLLM, in a folder of its own, as installed."""
    metadata = folder / "rival-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\nrival = rival:register\n")
    (folder / "rival.py").write_text(source)
    return str(folder)


def starts(*cases: dict[str, Any], vllm: Path | None = None, **everywhere: str) -> list[list[str]]:
    """The result of each of ``cases``: its output, and the error that ended it.

    With ``vllm``, the vLLM of that folder; ``everywhere`` is in the environment of all of them.
    """
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    path = os.pathsep.join(map(str, filter(None, (vllm, environment.get("PYTHONPATH")))))
    environment |= {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING", **everywhere}
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "forked.py"), json.dumps(cases)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
    )
    assert 0 == finished.returncode, finished.stderr
    seen: list[list[str]] = json.loads(finished.stdout.splitlines()[-1])
    return seen


def test_another_plug_in(tmp_path: Path) -> None:
    """The message names an earlier plug-in, and a later one that replaces a patch; one that wraps a patch and says so
    is accepted.
    """
    replaces, wraps = rival(tmp_path / "replaces", REPLACES), rival(tmp_path / "wraps", WRAPS)
    on = {"do": "build", "environment": {INTERVAL: "0"}}
    first, first_wrapped, later, later_wrapped, both_off = starts(
        on | {"front": [replaces]},
        on | {"front": [wraps]},
        on | {"back": [replaces]},
        on | {"back": [wraps]},
        {"do": "build", "front": [replaces]},
    )
    for _printed, error in (first, first_wrapped):
        assert error.startswith("IncompatibleError: swa_retention does not fit this vLLM, and has changed nothing.")
        assert f"\n  {FREE_BLOCKS}: differs (defined in rival, fingerprint " in error
    assert later[1].startswith("DisplacedError: swa_retention patched this vLLM, and another plug-in has replaced some")
    assert f"\n  {FREE_BLOCKS}: defined in rival, fingerprint " in later[1]
    assert later[1].endswith("load one of the two alone (VLLM_PLUGINS), or unset swa_retention's switches.")
    assert ["retains", ""] == [later_wrapped[0].splitlines()[-1], later_wrapped[1]]
    assert ["does not retain", ""] == [both_off[0].splitlines()[-1], both_off[1]]


def test_a_method_of_another_plug_in_is_not_vllm_s_own() -> None:
    """It is rejected by its name, and not taken for a vLLM that has the feature."""
    ((_printed, error),) = starts({"do": "register_with_a_rival_method", "environment": {INTERVAL: "0"}})
    assert "FreeKVCacheBlockQueue.prepend_n: differs (defined in " in error


def test_an_unexamined_vllm() -> None:
    """It is rejected with the list of known releases, and only if something is switched on."""
    refused, off = starts({"do": "register_elsewhere", "environment": {INTERVAL: "0"}}, {"do": "register_elsewhere"})
    assert refused[1].startswith(
        "UnsupportedError: swa_retention was not run on vLLM 0.22.0, and has changed nothing: "
    )
    assert ["registered\n", ""] == off


@pytest.mark.parametrize("release", RELEASES[1:], ids=lambda release: release.version)
def test_a_later_vllm(release: Release) -> None:
    """Its symbols are those of the releases table, and the message names what it has itself and what is rejected."""
    switches = {RETENTION: {INTERVAL: "0"}, PINS: {PIN: "1"}, MASKED: {"VLLM_PREFIX_CACHE_MASKED": "1"}}
    switches[PARTIAL_HITS] = {"VLLM_PREFIX_CACHE_PARTIAL_HITS": "auto"}
    refused = [feature for feature in switches if feature in release.refused]
    everything = {
        name: value for feature in switches if feature not in refused for name, value in switches[feature].items()
    }
    put_in_place, log, *not_put = starts(
        {"do": "register", "environment": everything},
        {"do": "doctor", "environment": everything},
        *({"do": "register", "environment": switches[feature]} for feature in refused),
        vllm=wheel_of(release.version),
    )
    assert ["registered", ""] == [put_in_place[0].splitlines()[-1], put_in_place[1]]
    lines = log[0].splitlines()
    assert {"exit 0", "the pinned tier: switched on, and fits this vLLM"} <= set(lines)
    for feature in switches.keys() & release.native.keys():
        said = f"vLLM {release.version} has {feature} itself ({release.native[feature]})"
        assert f"swa_retention: {said}\n" in put_in_place[0]
        assert f"  {said}" in lines
    assert (RETENTION in release.native) != ("retention: switched on, and fits this vLLM" in lines)
    for feature, (_printed, error) in zip(refused, not_put, strict=True):
        assert error.startswith(f"UnsupportedError: swa_retention has no {feature} on vLLM {release.version}, and has ")


def test_a_broken_value_at_a_real_start(tmp_path: Path) -> None:
    """The operator reads one line: the variable, the value, and what is allowed.

    vLLM knows of the variables as soon as they switch something on.
    """
    broken, whole, off = starts(
        {"do": "start_engine", "environment": {INTERVAL: "often"}},
        {"do": "start_engine", "environment": {INTERVAL: "0"}},
        {"do": "start_engine", "environment": {PIN: "0"}},
        HF_HOME=str(write(tmp_path)),
    )
    assert (
        "ConfigurationError: VLLM_PREFIX_CACHE_RETENTION_INTERVAL='often' is not possible: "
        "give a non-negative number of tokens, or auto (32768)" == broken[1]
    )
    assert "" == whole[1]
    assert f"detected: {INTERVAL}" not in whole[0]
    assert f"Unknown vLLM environment variable detected: {PIN}" in off[0]
