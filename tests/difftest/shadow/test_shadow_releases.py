"""A shadow on the releases of vLLM after 0.20.2, each with its own scheduler.

Goal: the shadow follows 10,000 calls of each release without a difference. Batched calls are the calls that were made.
An engine, or a shadow, that is broken shows a difference. Method: each release in a process of its own, with a worker
that computes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.published import published

from kvgate.adapters.registry import LATER_MODELS
from kvgate.adapters.releases import LATER_ASCEND, OF_VLLM, RELEASES
from kvgate.adapters.releases.description import Release
from kvgate.findings.modelled import BEGINS_BLOCKS

pytestmark = pytest.mark.ci

pytest.importorskip("vllm")

CALLS = 10_000
FOLLOWED = [each.name for each in (*OF_VLLM[1:], *LATER_ASCEND) if each.scheduler is not None]
AHEAD = [name for name in FOLLOWED if RELEASES[name].frees_late or RELEASES[name].holds_windows]
"""Those whose windows hold what steps in flight read."""
FREED_LATER = "a KV connector with asynchronous steps: this release frees blocks by the steps that are over"
ALONE = "081-no-look-ahead-without-a-connector"
DRAFTS_WITH_ONE = "a KV connector with a draft layer: without a connector this release asks for no look-ahead block"
AHEAD_INSIDE = "mixed-blocks+eagle+masked"
"""A model of which some releases cache boundaries inside blocks before these are full."""
PROGRAM = """
import json, sys

from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import RELEASES

name, calls, models = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
release = RELEASES[name]
version = release.version
load_system(name)

from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter import attachment, geometry
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.calls import Decoding
from kvgate.shadow.sink_protocol import DifferenceError
from tests.difftest.shadow.live import Kept, Server, connected, watched

said = []
attachment.warn = said.append

AHEAD_INSIDE = "mixed-blocks+eagle+masked+scratch:2"

def server_of(model, asynchronous):
    name, _, drafts = model.partition(":")
    blocks = 200 if "dsv4" in name or "compressed" in name else 60
    return Server(name, system=release.name, blocks=blocks, drafts_max=int(drafts or 0), asynchronous=asynchronous)

def strict(model, asynchronous):
    server = server_of(model, asynchronous)
    shadow = attachment.attach(server.scheduler, Switch(Mode.STRICT, checkpoint_calls=200))
    assert shadow is not None, said
    shadow.share_of_time = 0
    return server, shadow

def followed():
    judged, checkpoints, findings, many, differences = 0, 0, set(), 0, []
    for model in models:
        for asynchronous in (False, True):
            server = server_of(model, asynchronous)
            sink = watched(server, release=release)
            before = -1
            while sink.judge.stats.judged < calls / len(models) / 2:
                server.serve(10)
                assert before < (before := sink.judge.stats.judged), (model, sink.found)
            judged += sink.judge.stats.judged
            checkpoints += sink.judge.stats.checkpoints
            findings |= set(sink.judge.known.times)
            differences += map(str, sink.found)
            many += sink.together
    return {
        "judged": judged, "checkpoints": checkpoints, "findings": sorted(findings),
        "differences": differences, "together": many,
    }

def together(model, asynchronous):
    kept = []
    for is_immediate in (True, False):
        server = server_of(model, asynchronous)
        sink = Kept(server.settings, is_immediate)
        ahead = geometry.counts_in_flight(release, server.settings.geometry)
        Observer(server.scheduler, sink, sink.fail, counts_in_flight=ahead)
        server.serve(120)
        kept.append(sink)
    many = sum(len(each.numbers) for each in kept[1].raw if isinstance(each, Decoding))
    return [kept[1].is_as(kept[0]), many]

def broken(change, asynchronous=False, model=models[0]):
    server, shadow = strict(model, asynchronous)
    change(server, shadow)
    try:
        server.serve(400)
    except DifferenceError as error:
        return str(error)
    return f"no difference in {shadow.sink.checker.stats.judged} calls"

def no_hits(server, _shadow):
    manager = server.scheduler.kv_cache_manager
    original = manager.coordinator.find_longest_cache_hit
    manager.coordinator.find_longest_cache_hit = lambda hashes, length: original(hashes, min(length, 15))

def leak(server, _shadow):
    pool = server.scheduler.kv_cache_manager.block_pool
    original = pool.free_blocks
    pool.free_blocks = lambda blocks, *more, **others: original([*blocks][:-1], *more, **others)

def nothing_in_flight(_server, shadow):
    shadow._counts_in_flight = False

def nothing_ahead(_server, shadow):
    assert shadow.sink.salting._ahead_tokens == 1
    shadow.sink.salting._ahead_tokens = 0

def refusal(change, model=models[0]):
    said.clear()
    server = server_of(model, False)
    change(server.scheduler)
    assert attachment.attach(server.scheduler, Switch(Mode.STRICT)) is None
    return said[0]

def freed_later(scheduler):
    # As with a connector, if steps are asynchronous.
    scheduler.defer_block_free = True

def with_connector():
    those = [model.partition(":")[0] for model in models]
    if geometry.LOOKS_AHEAD_WITH_ONE in release.findings:
        # One with a draft layer, which is rejected.
        those.sort(key=lambda model: "eagle" in model or "mtp" in model)
        those = [*those[:2], those[-1]]
    else:
        those = those[:2]
    shadows, refused = connected(release.name, those, range(6), release)
    return {
        "judged": sum(each.judge.stats.judged for each in shadows),
        "loaded": sum(each.loaded for each in shadows),
        "differences": [str(found) for each in shadows for found in each.found],
        "refused": sorted(refused),
    }

def plugged_in(scheduler):
    scheduler.kv_cache_manager.coordinator.single_type_managers[0].reach = None

def drafts_again(scheduler):
    scheduler.kv_cache_manager.coordinator.num_reprefillable_tokens = 1

def two_ahead(scheduler):
    scheduler.kv_cache_manager.block_pool.num_hash_lookahead_tokens = 2

def kept_free(scheduler):
    scheduler.kv_cache_manager.watermark_blocks = 1

print("\\n" + json.dumps({
    "followed": followed(),
    "together": [together(model, asynchronous) for model in models[:3] for asynchronous in (False, True)],
    "connector": with_connector(),
    "sound": broken(lambda _server, _shadow: None),
    "no hits": broken(no_hits),
    "leak": broken(leak),
    "in flight": broken(nothing_in_flight, True),
    "nothing ahead": [broken(nothing_ahead, model=each) for each in models if "hashed-ahead" in each],
    "refused": [refusal(change) for change in (freed_later, plugged_in, drafts_again, two_ahead, kept_free)],
    "ahead inside": refusal(lambda scheduler: None, AHEAD_INSIDE) if "012" in str(release.findings) else "",
    "states": "" if release.follows_states else refusal(lambda scheduler: None, "mamba-align+scratch"),
}))
"""


def models_of(name: str) -> list[str]:
    """The models, each with what the release always does and, if it has it, with a retention interval."""
    release = RELEASES[name]
    if release.system == "ascend":
        # Those of the gate.
        those = [each for each in LATER_MODELS[release.version] if not is_refused(each, release)]
        return [f"{each}:{2 * ('eagle' in each) or 1 * ('mtp' in each)}" for each in those]
    masked, scratch = "+masked" if release.masks else "", "+scratch" if release.choices else ""
    names = ["gemma-hybrid", f"gpt-oss-hybrid+eagle{masked}", f"mixed-blocks{masked}"]
    names += ["full", f"dsv4-flash{masked}", "local"]
    if release.interval is not None:
        junctions = "+junctions" if release.pins_junctions else ""
        names += ["gpt-oss-hybrid+retention=64", f"two-windows+mtp+retention=0{junctions}"]
    if release.hashes_ahead:
        names += ["gpt-oss-hybrid+eagle+hashed-ahead+retention=64+junctions", "full+eagle+hashed-ahead"]
        names += [f"mixed-blocks+eagle+hashed-ahead{masked}"]
    if release.follows_states:
        names += ["mamba-align", *["mamba-all"] * release.keeps_all_states]
    if release.retains_states and release.follows_states:
        names += [f"mamba-{each}+retention=128+junctions" for each in ("align+eagle", "window")]
    return [f"{name}{scratch}:{2 * ('eagle' in name or 'mixed' in name) or 1 * ('mtp' in name)}" for name in names]


def is_refused(model: str, release: Release) -> bool:
    """Whether boundaries inside its blocks are cached before the blocks are full."""
    return model.startswith(AHEAD_INSIDE) and BEGINS_BLOCKS in release.findings


@pytest.fixture(scope="module", params=FOLLOWED)
def results(request: pytest.FixtureRequest) -> Any:
    """The findings of the shadows of one release, and its version."""
    name = request.param
    release = RELEASES[name]
    published(release)
    if release.below is not None:
        published(RELEASES[release.below])
    # A process has one vLLM for good.
    program = (sys.executable, "-c", PROGRAM, name, str(CALLS), *models_of(name))
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    root = Path(__file__).parents[3]
    finished = subprocess.run(program, env=environment, timeout=300, cwd=root, capture_output=True, text=True)
    assert 0 == finished.returncode, finished.stderr[-3000:]
    return name, json.loads(finished.stdout.splitlines()[-1])


def test_a_release_is_followed(results: Any) -> None:
    """10,000 calls without a difference, many of them passed on together."""
    found = results[1]["followed"]
    assert [] == found["differences"]
    assert found["together"] > 1000
    assert found["judged"] >= CALLS
    assert found["checkpoints"] > 50
    assert "002-gate-subtracts-skipped-blocks" in found["findings"]


def test_calls_passed_on_together_are_the_calls(results: Any) -> None:
    """Each life is the same, recorded with and without batches, and many calls were batched."""
    equal, many = zip(*results[1]["together"], strict=True)
    assert all(equal)
    assert min(many) > 20


def test_what_is_broken_shows(results: Any) -> None:
    """Look-ups that miss, and blocks that are not freed, differ; so does a shadow that ignores steps in flight, or the
    token after a block that its hash covers.
    """
    name, found = results
    assert found["sound"].startswith("no difference in ")
    assert found["no hits"].startswith("KV-OP-01")
    assert found["leak"].startswith("KV-")
    assert (name in AHEAD) == (not found["in flight"].startswith("no difference"))
    assert 3 * RELEASES[name].hashes_ahead == len(found["nothing ahead"])
    assert all(each.startswith("KV-OP-") for each in found["nothing ahead"])


def test_a_connector_is_followed(results: Any) -> None:
    """Tokens from other nodes, if steps are synchronous, or the release frees blocks at once."""
    name, found = results
    assert [] == found["connector"]["differences"]
    assert found["connector"]["judged"] > 150
    assert found["connector"]["loaded"] > 5
    drafts = [DRAFTS_WITH_ONE] * (ALONE in RELEASES[name].findings)
    assert [*drafts, *[FREED_LATER] * (name in AHEAD)] == found["connector"]["refused"]


def test_a_rejection_is_logged(results: Any) -> None:
    """The log says why no shadow is attached: blocks that are freed later, the plug-in, blocks that stay free."""
    later, plug_in, drafts, ahead, watermark = results[1]["refused"]
    assert ahead.endswith(": hashes that cover 2 tokens after a block")
    assert drafts.endswith(": draft layers that compute the last tokens of a prompt again")
    assert later.endswith(f": {FREED_LATER}")
    assert plug_in.endswith("retention, on another vLLM than 0.20.2")
    assert watermark.endswith(": a watermark: blocks that stay free for requests that run")
    inside = "larger blocks of full attention, with a draft layer: boundaries inside them are cached"
    begins = BEGINS_BLOCKS in RELEASES[results[0]].findings
    assert results[1]["ahead inside"].endswith(inside if begins else "")
    assert ("0.27.1" in results[0]) == results[1]["states"].endswith(": a model with states, on vLLM 0.27.1")
