"""The switches by vLLM's ``--additional-config``.

Goal: they mean what the variables mean, on every release and in every process that vLLM starts. A contradiction, an
unknown key and an invalid value are errors that name them. Without the key nothing is changed. Method: values, one of
each kind; and configurations of each release of vLLM, built in processes of their own.
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

from swa_retention.additional_config import VARIABLE_OF, follow, switches_of, unset_in
from swa_retention.config import VARIABLES, Configuration, ConfigurationError, read
from swa_retention.releases import RELEASES, RETENTION, Release

from .upstream.archive import wheel_of

INTERVAL, PIN = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"
PROGRAM = Path(__file__).parent / "additional_config_starts.py"
DEEP = pytest.mark.deep
INSTALLED = {distribution.name for distribution in distributions()}


def test_every_variable_has_a_key() -> None:
    """One each."""
    assert sorted(VARIABLES) == sorted(VARIABLE_OF.values())


@pytest.mark.parametrize(
    ("section", "variables"),
    [
        ({"retention_interval": 0}, {INTERVAL: "0"}),
        ({"retention_interval": "auto", "junctions": False}, {INTERVAL: "auto", "VLLM_PREFIX_CACHE_JUNCTIONS": "0"}),
        ({"pins": True, "pin_min_drop_size": 2}, {PIN: "1", "VLLM_PIN_MIN_DROP_SIZE": "2"}),
        ({"pins": "1"}, {PIN: "1"}),
        ({"partial_hits": True}, {"VLLM_PREFIX_CACHE_PARTIAL_HITS": "auto"}),
        ({"compressed_kv_block_size": 64}, {"VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE": "64"}),
        ({}, {}),
    ],
)
def test_a_key_means_what_its_variable_means(section: dict[str, Any], variables: dict[str, str]) -> None:
    """In JSON's own types, or as the variable has it."""
    assert read(variables) == read(switches_of({"swa_retention": section}))


@pytest.mark.parametrize("additional_config", [None, {}, {"another": {"pins": True}}, object()])
def test_without_the_key(additional_config: object) -> None:
    """vLLM also takes an object of a class of its own."""
    assert {} == switches_of(additional_config)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ([1], r"additional_config.swa_retention=\[1\] is not possible: give an object"),
        ("pins", "additional_config.swa_retention='pins' is not possible: give an object"),
        (
            {"pin": True},
            "additional_config.swa_retention.pin=True is not possible: unknown key; the keys are retention",
        ),
        ({"pins": 2048}, "additional_config.swa_retention.pins=2048 is not possible: give 1 or 0"),
        ({"pins": None}, "additional_config.swa_retention.pins=None is not possible: give a number, a string"),
        ({"pins": ""}, "additional_config.swa_retention.pins='' is not possible: give a number, a string"),
        ({"retention_interval": True}, "swa_retention.retention_interval=True is not possible: give a non-negative"),
        ({"retention_interval": -1}, "swa_retention.retention_interval=-1 is not possible: give a non-negative"),
        ({"retention_interval": 1.5}, "swa_retention.retention_interval=1.5 is not possible: give a number, a string"),
        ({"compressed_kv_block_size": 16}, "compressed_kv_block_size=16 is not possible: give one of 32, 64, 128"),
    ],
)
def test_what_cannot_be_meant(section: object, message: str) -> None:
    """By the key, its value, and what is allowed."""
    with pytest.raises(ConfigurationError, match=message):
        switches_of({"swa_retention": section})


def test_a_contradiction_names_both() -> None:
    """The same in other words is none, and neither is a variable that is empty, nor another one."""
    wanted = {PIN: "true", INTERVAL: "0"}
    assert {INTERVAL: "0"} == unset_in({PIN: "1"}, wanted)
    assert wanted == unset_in({PIN: "", "VLLM_PREFIX_CACHE_MASKED": "1"}, wanted)
    message = f"additional_config.swa_retention.pins='true' is not possible: {PIN}='0' contradicts it"
    with pytest.raises(ConfigurationError, match=message):
        unset_in({PIN: "0"}, wanted)


needs_vllm = pytest.mark.skipif(not {"pip", "torch"} <= INSTALLED, reason="vLLM or pip is not installed")


@needs_vllm
@pytest.mark.parametrize(
    "release",
    [
        pytest.param(each, id=each.version, marks=pytest.mark.ci if each in (RELEASES[0], RELEASES[-1]) else DEEP)
        for each in RELEASES
    ],
)
def test_on_each_release(release: Release) -> None:
    """The patches and the environment after a configuration was built, and in processes that follow."""
    pytest.importorskip("vllm")
    path = "" if release is RELEASES[0] else str(wheel_of(release.version))
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment | {"PYTHONPATH": path, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_PLUGINS": "swa_retention"},
    )
    assert 0 == ended.returncode, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    contradicted, refused = seen.pop("contradiction"), seen.pop("refused")
    pinned = [["patched"], {PIN: "true", "VLLM_PIN_MIN_DROP_SIZE": "2"}]
    assert {
        "version": release.version,
        # One function is another, and does what it did.
        "nothing": [["vllm.config.vllm:VllmConfig.__post_init__"], ["fits"], {}],
        "without_the_key": [["fits"], {}],
        **dict.fromkeys(("with_the_key", "again", "forked"), pinned),
        "spawned": True,
    } == seen
    assert f"swa_retention.pins='0' is not possible: {PIN}='true' contradicts it" in contradicted
    error, is_patched = refused
    assert ("swa_retention has no interval auto on vLLM 0.23.0" in error) == release.reads_interval
    # 0.33.0 has all that an interval switches on.
    assert is_patched == (not release.native.get(RETENTION))


def test_a_configuration_is_looked_at_once_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejected setting does not reach the environment."""
    from swa_retention import additional_config

    looked: list[Any] = []
    monkeypatch.setattr(additional_config, "when_imported", lambda _target, action: action())
    monkeypatch.setattr(additional_config, "_wrap", looked.append)
    environment: dict[str, str] = {}

    def refuse(_configuration: Configuration) -> None:
        raise RuntimeError

    follow(refuse, environment)
    with pytest.raises(RuntimeError):
        looked[0]({"swa_retention": {"pins": True}})
    assert {} == environment
