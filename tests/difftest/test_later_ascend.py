"""vLLM-Ascend 0.23.0 and 0.30.0rc2: their managers and schedulers, followed by the reference.

Goal: the code that runs is theirs and agrees but for declared findings; settings that they lack are rejected. Method:
generated cases at both levels, each release in a process of its own; the traces of their findings; settings that they
do not have.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.published import published

from kvgate.adapters.ascend import AscendRelease
from kvgate.adapters.release_variants import release_of
from kvgate.adapters.releases import LATER_ASCEND, release_named
from kvgate.adapters.releases.ascend_schedulers import OWN_SCHEDULERS
from kvgate.adapters.releases.description import Release
from kvgate.findings.modelled import reference_of_release
from kvgate.findings.register import FOLDER, with_ids
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvreference.settings import Settings

STABLE, NEWEST = LATER_ASCEND
PROGRAM = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.gate.trace_codec import Violated
from kvgate.kernel.models import load
from kvgate.levels.manager import MANAGER
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER

name, traces, seeds, models = sys.argv[1], sys.argv[2].split(), sys.argv[3].split(), sys.argv[4:]
system, results = load_system(name), {"cases": [], "shown": [], "schedulers": []}
for level in (SCHEDULER,) if name.partition("@")[0] != "ascend" else (MANAGER, SCHEDULER):
    bench = level.bench(system, level.gate)
    for model, seed in ((model, seed) for model in models for seed in seeds):
        run = run_case(bench, level.allowed(bench, level.draw(load(model), "legal", seed)))
        new = [str(each) for each in run.found() if each.finding is None]
        results["cases"].append([run.performed, [each.finding for each in run.known()], new])
        if level is SCHEDULER:
            kind = type(run.world.scheduler)
            results["schedulers"].append(f"{kind.__module__}:{kind.__qualname__}")
    for path in traces:
        trace = read(Path(path))
        if trace.case.level is level:
            run = run_case(bench, trace.case)
            known = [each.finding for each in run.known()]
            results["shown"].append([Path(path).parent.name, known, [each.finding for each in run.found()]])
import vllm.v1.core.kv_cache_manager as manager
results["coordinator"] = manager.get_kv_cache_coordinator.__module__
print(json.dumps(results))
"""


def results_of(release: Release, name: str, findings: str, *models: str, seeds: str = "1") -> Any:
    """A process's results for a system, for the traces of its ``findings``, and for a case of each model and seed.

    A finding is its number, and if it has several traces, the name of one after a slash.
    """
    pytest.importorskip("vllm")
    published(release)
    numbers = (each.partition("/") for each in findings.split())
    traces = " ".join(
        str(path) for number, _, name in numbers for path in FOLDER.glob(f"f{number}*/{name or 'trace'}.jsonl")
    )
    command = [sys.executable, "-c", PROGRAM, name, traces, seeds, *models]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.ci
@pytest.mark.parametrize(
    ("release", "slots", "traces"),
    [(STABLE, "+whole-slots", ["014/trace-reserved", "080"]), (NEWEST, "", ["080", "081", "083"])],
    ids=["0.23.0", "0.30.0rc2"],
)
def test_drawn_cases_agree_and_traces_show_their_findings(release: Release, slots: str, traces: list[str]) -> None:
    """At both levels, under the coordinator of vLLM-Ascend."""
    models = (f"compressed+mtp+masked+scratch{slots}", "gemma-hybrid+eagle+scratch", "mamba-align+scratch")
    results = results_of(release, release.name, " ".join(traces), *models)
    assert results["coordinator"] == "vllm_ascend.patch.platform.patch_kv_cache_coordinator"
    assert 2 * len(models) == len(results["cases"])
    assert [] == [found for _, _, found in results["cases"] if found]
    assert all(performed > 10 for performed, _, _ in results["cases"])
    assert {name[:3] for name in traces} == {folder[1:4] for folder, *_ in results["shown"]}
    for folder, known, found in results["shown"]:
        assert folder[1:4] in [(each or "")[:3] for each in (*known, *found)]
        assert None not in found


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in OWN_SCHEDULERS if "@" in name])
def test_its_own_schedulers_agree(name: str) -> None:
    """In drawn cases; of the scheduler of profiled chunks, the trace of 082 ends as it is declared."""
    own = OWN_SCHEDULERS[name]
    findings = "082" if "082-preemption-ends-the-engine" in own.release.findings else ""
    results = results_of(
        own.release, name, findings, "gpt-oss-hybrid+scratch", "gemma-hybrid+eagle+scratch", seeds="1 2"
    )
    assert set(own.classes) == set(results["schedulers"])
    assert 4 == len(results["cases"])
    assert [] == [found for _, _, found in results["cases"] if found]
    assert all(performed >= 25 for performed, _, _ in results["cases"])
    assert ["082"] * bool(findings) == [found[0][:3] for _, _, found in results["shown"]]


INTERVALS = """
import sys
from attrs import evolve
from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import release_named
from kvgate.kernel.models import load
from kvreference.settings import Settings

load_system(sys.argv[1])
from kvgate.adapters.ascend import AscendRelease
from kvgate.adapters.native import Native
named, release = load("gpt-oss-hybrid+retention=512+scratch"), release_named(sys.argv[1])
kind = Native if release.system == "native" else AscendRelease
settings = named.features.applied_to(Settings(named.geometry, blocks=64, scratch_first=release.choices is not None))
for place in ("config", "environment"):
    system = kind(evolve(release, interval=place), evolve(settings, scratch_first=release.choices is not None))
    print(system.manager.coordinator.retention_interval)
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    ("release", "read"),
    [(release_named("native@0.30.0"), ["512", "None"]), (NEWEST, ["None", "None"])],
    ids=lambda given: given.name if isinstance(given, Release) else None,
)
def test_an_interval_is_ignored(release: Release, read: list[str]) -> None:
    """In the configuration, where vLLM 0.30.0 reads it, and in the environment."""
    pytest.importorskip("vllm")
    published(release)
    command = [sys.executable, "-c", INTERVALS, release.name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    assert read == ended.stdout.split()[-2:]


def schedule(num_spec_tokens: int, tokens: int) -> None:
    """As a scheduler's step, with two assertions."""
    assert tokens > 0
    assert tokens == 1 + num_spec_tokens


@pytest.mark.parametrize(
    ("tokens", "limit", "is_known"),
    [(4, 4, True), (0, 4, False), (4, 5, False), (4, None, False)],
    ids=["padding", "another assertion", "room for all drafts", "no limit"],
)
def test_an_assertion_about_drafts_alone_is_083(tokens: int, limit: int | None, is_known: bool) -> None:
    """And no other of the same step, which has no message either."""
    with pytest.raises(AssertionError) as raised:
        schedule(4, tokens)
    engine: Any = SimpleNamespace(
        lockstep=SimpleNamespace(raised=raised.value),
        stage=SimpleNamespace(long_prefill_tokens=limit),
        settings=SimpleNamespace(drafts_max=4),
    )
    found = Divergence(0, None, "scheduler", Difference("KV-SYS-01", "AssertionError", "an answer", "AssertionError: "))
    (finding,) = with_ids(["083-padding-longer-than-a-chunk"])
    assert finding.explains_engine is not None
    assert is_known == finding.explains_engine(found, engine)


@pytest.mark.parametrize("release", LATER_ASCEND, ids=lambda release: release.version)
def test_a_worker_is_of_the_same_release(release: Release) -> None:
    """The two names stand for one release, whose choices and findings the reference has."""
    worker = release.name.replace("ascend@", "ascend-worker@")
    assert release is release_named(worker) is release_named(release.name) is release_of(worker)
    settings = Settings(load("mamba-align+scratch").geometry, blocks=64, scratch_first=True)
    _, known = reference_of_release(release, settings)
    assert "080-each-step-counts-a-state-too-many" in {finding.id for finding in known.findings}


@pytest.mark.parametrize(
    ("release", "model", "refused"),
    [
        (STABLE, "compressed+masked+scratch", "memory for begun slots in group 0"),
        (NEWEST, "compressed+masked+scratch+whole-slots", "memory for whole slots only in group 0"),
        (STABLE, "full+scratch", "a single group"),
        (NEWEST, "compressed+eagle+masked+scratch", "a draft layer in group 0"),
        (STABLE, "compressed+eagle+masked+scratch+whole-slots", "a draft layer in group 0"),
        (NEWEST, "gpt-oss-hybrid+retention=256+scratch", "interval of 256 tokens: vLLM-Ascend 0.30.0rc2 has none"),
    ],
)
def test_what_they_do_not_have_is_rejected(release: Release, model: str, refused: str) -> None:
    """With what they have instead."""
    named = load(model)
    with pytest.raises(ValueError, match=refused):
        AscendRelease(release, named.features.applied_to(Settings(named.geometry, blocks=64)))


def test_every_scheduler_is_on_the_page() -> None:
    """As run, in the column of its release."""
    page = (Path(__file__).parents[2] / "difftest" / "ASCEND.md").read_text(encoding="utf-8")
    for name in OWN_SCHEDULERS:
        assert f"`{name}`" in page
