"""The arms serve every workload alike.

Goal: the reference and vLLM's real scheduler agree on every request of every generated workload, under every policy of
the scheduler, and every read was sound. Method: small variants in pools that are nearly too small; all results of each
request are compared, and the counters, the steps and the evictions.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from attrs import evolve

from kvgate.findings.f037_fewer_drafts_end_the_process import is_of_fewer_drafts
from kvgate.simulation import release
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.comparison import difference
from kvgate.simulation.policy import policy_of
from kvgate.simulation.result import Result
from kvreference.mamba import StateMode

from . import agreement
from .agreement import compare
from .made_workloads import WORKLOADS, outgrowing, small
from .small_workloads import DRAFTED, SERVED_BY_VLLM, draw_for_vllm, with_states

pytest.importorskip("vllm")

ROOT = Path(__file__).parents[3]

PLUG_IN = (
    *("dense", "masked+scratch", "retention=0+scratch", "retention=256+scratch+pinned=2", "partial=16"),
    *("retention=0+junctions+scratch", "retention=256+junctions+scratch+partial=16"),
)


def agree(setting: Setting, real: str) -> Result:
    """Serve with both, compare, and return the reference's result."""
    ours, theirs = arm_of("reference").run(setting), arm_of(real).run(setting)
    assert ours.soundness.unsound is None
    assert theirs.soundness.unsound is None
    assert difference(ours, theirs) is None
    assert ours.soundness == theirs.soundness
    assert ours.usage == theirs.usage
    assert ours.soundness.reads > 0
    return ours


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_reference_and_vllm_as_published(name: str) -> None:
    """Goal: dense caching on a hybrid model. Method: a pool in which something is evicted."""
    assert agree(small(WORKLOADS[name], "gemma-hybrid", "dense"), "stock").evictions > 0


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", PLUG_IN)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_reference_and_the_plug_in(name: str, policy: str) -> None:
    """Goal: every policy of the plug-in, on DeepSeek-V4's groups in small. Method: a pool nearly too small."""
    agree(small(WORKLOADS[name], "compressed", policy), "retention")


@pytest.mark.parametrize("acceptance", [0.0, 0.6, 1.0])
def test_with_drafts(acceptance: float) -> None:
    """Goal: accepted and rejected drafts agree for both. Method: two drafts after each token, a draft layer flagged."""
    setting = small(WORKLOADS["repeat-rate"], "gemma-hybrid+eagle", "dense", drafts=2, acceptance=acceptance, spare=40)
    ours = agree(setting, "stock")
    tokens = sum(each.answer_tokens + each.prompt_tokens - 1 - each.hit_tokens for each in ours.counted)
    assert ours.computed_tokens > tokens


@pytest.mark.ci
def test_the_release_is_vllm() -> None:
    """Goal: with its findings the release agrees with vLLM where the reference does not. Method: drawn, with drafts."""
    acted, apart = set[str](), 0
    for seed in range(12):
        setting = draw_for_vllm(Random(seed), 1 + seed % 4, 0.6, (*SERVED_BY_VLLM[2:], *DRAFTED))
        ours = arm_of("release").run(setting)
        theirs = arm_of(ours.system).run(setting)
        assert (None, None) == (ours.soundness.unsound, theirs.soundness.unsound)
        assert difference(ours, theirs) is None
        acted |= {finding[:3] for finding, _times in ours.findings}
        apart += difference(arm_of("reference").run(setting), theirs) is not None
    assert {"002", "006"} <= acted
    assert apart


@pytest.mark.deep
@pytest.mark.parametrize("version", ["0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.27.1", "0.30.0", "0.33.0"])
def test_a_release_is_its_scheduler(version: str) -> None:
    """Goal: so it is for each release, with its own scheduler, states among them. Method: in a process of its own."""
    command = [sys.executable, "-m", "tests.difftest.simulation.agreement", version, "1000"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"vLLM {version}: 1000 of 1000 workloads served alike" in finished.stdout, finished.stdout + finished.stderr
    for happened in ("hits", "preemptions", "evictions", "states", "drafts", "findings"):
        assert f"{happened}: " in finished.stdout


@pytest.mark.ci
@pytest.mark.parametrize("mode", StateMode)
def test_states_are_served_as_vllm_serves_them(mode: StateMode) -> None:
    """Goal: models with state-space layers, in each mode, with 0 to 4 drafts. Method: drawn; wrong reads alike, too."""
    seen = set[str]()
    for seed in range(10):
        geometries = with_states(mode, seed % 5)
        compared = compare(draw_for_vllm(Random(seed), seed % 5, 0.6, geometries, all_lanes=seed % 2 == 0))
        assert None is compared.difference
        seen |= compared.seen
    assert {"states", "drafts"} <= seen
    assert (mode is StateMode.NONE) == ("hits" not in seen)


@pytest.mark.ci
@pytest.mark.parametrize("broken", ["chunks", "crash", "unsound"])
def test_states_served_otherwise_are_seen(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: agreement on states is not an accident. Method: chunks end anywhere; finding 037 is forgotten; an unsound
    read is not excused by the finding.
    """
    if broken == "chunks":
        monkeypatch.setattr(release, "tokens_to_a_state", lambda _request, _start, tokens, *_block: tokens)
    elif broken == "crash":
        monkeypatch.setattr(release.ReleaseRun, "ends_with_fewer_drafts", False)
    else:
        monkeypatch.setattr(agreement, "WRONG", frozenset())
    seeds = [934] if broken == "crash" else range(1, 30)
    assert any(compare(agreement.draw("0.20.2", seed)).difference is not None for seed in seeds)


@pytest.mark.ci
def test_ends_of_the_process_that_differ_are_seen() -> None:
    """Goal: two processes that end are alike only if they end in one step, by finding 037, and served alike before.

    Method: a workload in which both end, and results that are changed in one of the three.
    """
    drawn = agreement.draw("0.20.2", 934)
    serving = evolve(drawn.serving, blocks=116, tokens_max=380, running_max=8)
    setting = evolve(drawn, serving=serving, policy=policy_of("dense"))
    ours, theirs = arm_of("release").run(setting), arm_of("stock").run(setting)
    assert None is difference(ours, theirs)
    assert (ours.crash_finding, theirs.crash_finding) == ("037-fewer-drafts-end-the-process",) * 2
    first, *rest = theirs.served
    for other in (
        evolve(theirs, crash="AssertionError: num_required_blocks 10 < len(req_blocks) 11"),
        evolve(theirs, crash=None),
        evolve(theirs, steps=theirs.steps + 1),
        evolve(theirs, served=(evolve(first, hit_tokens=first.hit_tokens + 1), *rest)),
        evolve(theirs, served=tuple(rest)),
    ):
        assert difference(ours, other) is not None
        assert difference(other, ours) is not None


def test_an_assertion_elsewhere_is_not_finding_037() -> None:
    """Goal: the place counts, and not the words alone. Method: the same words, raised by the manager and by another."""

    class Manager:
        def allocate_new_blocks(self, text: str) -> None:
            raise AssertionError(text)

    text = "num_required_blocks 10 < len(req_blocks) 11"
    found = []
    for owner, said in (("MambaManager", text), ("FullAttentionManager", text), ("MambaManager", "other words")):
        manager = type(owner, (Manager,), {})
        with pytest.raises(AssertionError) as caught:
            manager().allocate_new_blocks(said)
        found.append(is_of_fewer_drafts(caught.value))
    assert [True, False, False] == found


def test_preempted_requests() -> None:
    """Goal: requests are preempted in both alike. Method: answers that outgrow a pool in which prompts fit."""
    assert agree(outgrowing(), "stock").preemptions > 0


def test_a_difference_is_found() -> None:
    """Goal: agreement is not an accident. Method: the same with another pool, or under another policy, must differ."""
    workload = WORKLOADS["agents"]
    ours = arm_of("reference").run(small(workload, "compressed", "dense"))
    for setting in (small(workload, "compressed", "dense", spare=60), small(workload, "compressed", "masked")):
        assert difference(ours, arm_of("reference").run(setting)) is not None


def test_a_fault_of_vllm_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the real scheduler is checked, not trusted. Method: its hashes distinguish prompts by their
    length alone.
    """
    from vllm.v1.core import kv_cache_utils

    original = kv_cache_utils.hash_block_tokens
    setting = small(WORKLOADS["prefixes"], "full", "dense", spare=100)
    assert arm_of("stock").run(setting).soundness.sound
    monkeypatch.setattr(
        kv_cache_utils,
        "hash_block_tokens",
        lambda function, parent, tokens, *more: original(function, parent, [0] * len(tokens), *more),
    )
    broken = arm_of("stock").run(setting)
    assert not broken.soundness.sound
    assert "of request 0, in group 0" in str(broken.soundness.unsound)
