"""The doctor.

Goal: an operator reads what would be patched, what is rejected, and why. Method: the command, and the examination with
one thing wrong each.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from swa_retention import doctor, features, releases
from swa_retention.config import read
from swa_retention.doctor import examine
from swa_retention.register import State, look, remove

if TYPE_CHECKING:
    from tests.fork_server import ForkServer


INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
PARTIAL = "VLLM_PREFIX_CACHE_PARTIAL_HITS"


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    """Other tests of this process may have put patches in place, and want them there again."""
    pytest.importorskip("vllm")
    remove([patch for feature in features.FEATURES for patch in feature.patches])
    yield
    from kvgate.adapters.retention import install

    install()


def test_all_is_well() -> None:
    """Every symbol with its state, its reason, its upstream number, and until when it is needed."""
    code, lines = examine({INTERVAL: "65536"})
    assert 0 == code
    assert f"  {INTERVAL} = 65536" in lines
    assert "  of sliding windows, every 65536 tokens and the last boundary of each prompt are kept" in lines
    assert "retention: switched on, and fits this vLLM" in lines
    assert "the pinned tier: switched off, and fits this vLLM" in lines
    symbols = [line for line in lines if "would be patched" in line]
    patches = [patch for feature in features.FEATURES for patch in feature.patches]
    assert sum(look(patch).state is not State.ABSENT for patch in patches) == len(symbols)
    assert all(1 == each.patches.count(patch) for each in features.FEATURES for patch in each.patches)
    absent = [line for line in lines if "more symbols: nothing to patch, vllm" in line]
    assert ["vllm_ascend is not installed"] * len(features.FEATURES) == [line.split(", ")[1] for line in absent]
    assert all("Upstream: " in line and "Until: " in line for line in symbols)


@pytest.mark.ci
def test_nothing_is_switched_on() -> None:
    """It says so, and what would fit."""
    code, lines = examine({})
    assert 0 == code
    assert "  nothing is switched on: nothing is patched" in lines


@pytest.mark.ci
@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({PARTIAL: "1"}, "  hits end inside blocks, wherever the model allows it"),
        (
            {PARTIAL: "256", f"{PARTIAL[:-1]}_MIN_TOKENS": "512"},
            "  hits end inside blocks, at multiples of 256 tokens, if they have at least 512 tokens",
        ),
    ],
)
def test_partial_hits_are_reported(switches: dict[str, str], message: str) -> None:
    """Where they end, and from which length on."""
    code, lines = examine(switches)
    assert 0 == code
    assert message in lines
    assert "partial hits: switched on, and fits this vLLM" in lines


def test_a_broken_value() -> None:
    """Nothing else is checked."""
    code, lines = examine({"VLLM_PIN_SWA_TOKENS": "2048"})
    assert 2 == code
    assert "VLLM_PIN_SWA_TOKENS='2048' is not possible: give 1 or 0" in lines[-1]


@pytest.mark.parametrize(
    ("additional_config", "code", "line"),
    [
        ('{"swa_retention": {"pins": true}}', 0, "  VLLM_PIN_SWA_TOKENS = true, by additional_config"),
        ('{"swa_retention": {"pins": true}}', 0, "the pinned tier: switched on, and fits this vLLM"),
        (None, 0, "  --additional-config of vLLM is not known here: doctor --additional-config JSON checks it too"),
        (
            '{"swa_retention": {"retention_interval": 32}}',
            2,
            "  additional_config.swa_retention.retention_interval='32' is not possible: "
            f"{INTERVAL}='0' contradicts it; give one of the two",
        ),
        ("[]", 2, "  additional_config='[]' is not possible: give a JSON object"),
        ("{", 2, "  additional_config='{' is not possible: give a JSON object"),
    ],
)
def test_additional_config(additional_config: str | None, code: int, line: str) -> None:
    """Its switches are as those of the environment, and may not contradict them."""
    found, lines = examine({INTERVAL: "0"}, additional_config)
    assert code == found
    assert line in lines


@pytest.mark.ci
def test_auto_where_vllm_reads_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes numbers alone."""
    monkeypatch.setattr(releases, "running", lambda: "0.23.0")
    code, lines = examine({INTERVAL: "auto"})
    assert 1 == code
    assert f"  interval auto: REJECTED, vLLM reads {INTERVAL} itself there, and takes a number only" in lines


@pytest.mark.ci
@pytest.mark.parametrize(("ascend", "code"), [(None, 0), ("0.20.2rc1", 0), ("0.23.0", 1), ("0.30.0rc2", 1)])
def test_another_vllm_ascend(ascend: str | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plug-in adds is rejected there, with the version; vLLM's own features are not."""
    monkeypatch.setattr(releases, "ascend_version", lambda: ascend)
    found, lines = examine({"VLLM_PIN_SWA_TOKENS": "1"})
    assert code == found
    assert ("  the pinned tier (switched on): added" in lines) == (code == 0)
    assert any(line.startswith("the pinned tier: switched on") for line in lines) == (code == 0)
    row, interval = releases.RELEASES[3], read({INTERVAL: "1024"})
    assert releases.RETENTION in row.native
    assert [] == list(releases.refusals(interval, row))
    refused = dict(releases.refusals(read({PARTIAL: "auto", "VLLM_PIN_SWA_TOKENS": "1"}), row))
    assert ({releases.PINS, releases.PARTIAL_HITS} if code else set()) == set(refused)
    assert all(f"vLLM-Ascend {ascend} has a coordinator" in why for why in refused.values())


@pytest.mark.ci
def test_another_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol that differs is named; it is an error only for what is switched on."""
    first, *others = features.RETAINS.patches[1:]
    strange = evolve(features.RETAINS, patches=(evolve(first, written_for="0" * 16), *others))
    monkeypatch.setattr(features, "FEATURES", (strange, features.PINS))
    monkeypatch.setattr(features, "RETAINS", strange)
    code, lines = examine({INTERVAL: "0"})
    assert 1 == code
    assert "retention: switched on, and this vLLM is rejected" in lines
    assert any(
        "BlockPool.free_blocks: REJECTED, its source differs (defined in vllm.v1.core.block_pool" in line
        for line in lines
    )
    assert 0 == examine({"VLLM_PIN_SWA_TOKENS": "1"})[0]


@pytest.mark.ci
def test_a_release_that_is_not_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is rejected as a whole if something is switched on."""
    monkeypatch.setattr(releases, "running", lambda: "0.22.0")
    assert 0 == examine({})[0]
    code, lines = examine({INTERVAL: "0"})
    assert 1 == code
    assert "vLLM 0.22.0: REJECTED, the plug-in supports 0.20.2, " in lines[-1]


@pytest.mark.ci
def test_the_row_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native features are vLLM's; a rejected one is an error if it is switched on."""
    row = releases.Release("0.20.2", {releases.RETENTION: "--flag"}, {releases.PINS: "no reason"})
    monkeypatch.setattr(releases, "RELEASES", (row,))
    code, lines = examine({INTERVAL: "0"})
    assert 0 == code
    assert {"  retention (switched on): native (--flag)", "  vLLM 0.20.2 has retention itself (--flag)"} <= set(lines)
    assert not any(line.startswith("retention: ") for line in lines)
    code, lines = examine({"VLLM_PIN_SWA_TOKENS": "1"})
    assert 1 == code
    assert "  the pinned tier (switched on): rejected: no reason" in lines


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor has nothing to patch, and an exit code of its own."""

    def nowhere(_name: str) -> Any:
        return None

    monkeypatch.setattr(doctor, "find_spec", nowhere)
    code, lines = examine({INTERVAL: "0"})
    assert 3 == code
    assert "vLLM is not installed: nothing can be patched" == lines[-1]


@pytest.mark.ci
def test_the_command(fork_server: ForkServer) -> None:
    """``python -m swa_retention doctor``, and help without a command."""
    ended = fork_server.run("-m", "swa_retention", "doctor")
    assert 0 == ended.returncode
    # vLLM's log lines while it is imported may come first.
    assert any(line.startswith("vLLM ") for line in ended.stdout.splitlines())
    bare = subprocess.run(
        [sys.executable, "-m", "swa_retention"], capture_output=True, text=True, check=False, timeout=60
    )
    assert 2 == bare.returncode
    assert "doctor" in bare.stderr
