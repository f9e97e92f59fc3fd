"""The findings of the scheduler: each is shown by its traces, and excuses nothing but itself.

Goal: the declared findings of vLLM's scheduler are true and narrow. Method: run the stored traces on vLLM, whole and
with one operation left out. Break vLLM so that it violates the same guarantees otherwise, where the findings must not
excuse it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from tests.difftest.having import with_base
from tests.published import published
from vllm.v1.core.sched.scheduler import Scheduler

from kvgate.adapters.registry import load_system
from kvgate.adapters.releases import INSTALLED, release_named
from kvgate.findings import explain_engine
from kvgate.findings.register import FOLDER, all_findings, id_of, with_ids
from kvgate.gate.case_runner import CaseRun, run_case
from kvgate.gate.level import Case
from kvgate.gate.trace_codec import Violated, level_of
from kvgate.kernel.data_file import read_csv
from kvgate.kernel.models import load
from kvgate.levels.registry import read
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.scheduler.operations import Operation, Stage
from kvgate.monitors.slot_memory import ENDED, NO_BLOCK
from kvgate.report.track_record import NOT_SHOWN, REFUSED, SHOWN, outcome
from kvreference.operations import Abort, Transferred
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

from .stage import full, run, serve, steps

FOLLOWS = sorted(FOLDER.glob("f014*/trace-no-block.jsonl")) + sorted(FOLDER.glob("f014*/trace-reset.jsonl"))
"""The consequences in a scheduler of a finding of its block manager, which is seen before."""
ELSEWHERE = [
    path
    for place in (
        "f024*/trace-by-reservation",
        "f061*/trace-state-alone",
        "f059*/trace",
        "f071*/trace*",
        "f072*/trace",
        "f075*/trace*",
    )
    for path in sorted(FOLDER.glob(f"{place}.jsonl"))
]
"""The traces of other releases, which ``test_traces_of_releases.py`` plays."""
OF_ASCEND = [
    *FOLDER.glob("f014*/trace-reserved.jsonl"),
    *FOLDER.glob("f013*/trace-given-twice.jsonl"),
    *FOLDER.glob("f073*/trace.jsonl"),
    *FOLDER.glob("f074*/trace.jsonl"),
    *FOLDER.glob("f08[23]*/trace.jsonl"),
]
"""The findings that ``test_ascend_system.py`` runs, ``test_later_ascend.py``, and ``worker/test_own_schedulers.py``."""
TRACES = [
    path
    for path in sorted(FOLDER.glob("*/*.jsonl"))
    if level_of(path, [SCHEDULER]) and path not in (*FOLLOWS, *ELSEWHERE, *OF_ASCEND)
]
MARKED = {
    "020-preempted-in-its-step-stays-cached",
    "021-behind-a-failed-load-stays-cached",
    "022-given-up-while-in-flight",
    "028-window-left-while-in-flight",
    "034-window-released-before-a-failed-load",
    "041-session-keeps-a-stale-hash",
    "042-session-says-an-old-stop",
    "046-adapters-of-one-name-share-blocks",
    "057-experts-of-released-blocks",
    "058-next-item-cuts-a-whole-one",
    "061-sent-with-what-follows-the-end",
    "063-load-fails-after-a-preemption",
    "066-sharer-of-a-failed-load-stays-cached",
}
"""Those that ghost memory knows by a mark on a block, by the load of the request that reads it, or by a rule."""
OF_BLOCKS = {"014-second-full-group-not-cut"}
"""Of the block manager: what follows under an engine is shown in ``worker/test_later_releases.py``."""
of_every_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{id_of(path.parent.name)[:3]}-{path.stem}")


def played(case: Case, detectors: tuple[str, ...] = SCHEDULER.gate) -> CaseRun:
    return run_case(SCHEDULER.bench_named("stock", detectors), case)


def played_without(finding: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> CaseRun:
    """A run on the vLLM that is installed, described without a finding.

    What 021 and 041 leave cached, 022, 028 and 061 free, and 034 keeps, differs from the reference before it is read;
    traces show which requests read it.
    """
    forget(finding, monkeypatch)
    return played(
        case, SCHEDULER.monitors if finding[:3] in ("021", "022", "028", "034", "041", "061") else SCHEDULER.gate
    )


def first_violated(run: CaseRun) -> Violated | None:
    """The first violation of a run."""
    return Violated.by(run.divergences[0]) if run.divergences else None


def forget(finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe the vLLM that is installed without a finding."""
    without_it = evolve(INSTALLED, findings=INSTALLED.findings - {finding})
    described = {**SUBJECTS, "stock": evolve(SUBJECTS["stock"], release=without_it)}
    monkeypatch.setattr("kvgate.levels.scheduler.engine.SUBJECTS", described)


def unwrapped(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def test_every_finding_of_the_scheduler_has_a_trace() -> None:
    """And the row of its page has the guarantee and the version of its trace."""
    folders = {path.parent.name for path in TRACES if path.stem == "trace"}
    of_engines = {each.id for each in all_findings() if each.explains_engine or each.unrecognised} - OF_BLOCKS
    of_engines -= {id_of(path.parent.name) for path in (*ELSEWHERE, *OF_ASCEND) if path.stem == "trace"}
    assert of_engines | MARKED == set(map(id_of, folders))
    rows = {row["id"]: row for row in read_csv((FOLDER / "findings.csv").read_text(encoding="utf-8"))}
    for folder in folders | {path.parent.name for path in ELSEWHERE if path.stem == "trace"}:
        header = read(FOLDER / folder / "trace.jsonl").header
        assert header.violates is not None
        row = rows[id_of(folder)]
        shown = row["guarantee"], row["versions"].partition(", ")[0]
        assert (header.violates.statement, header.system_version) == shown


@pytest.mark.parametrize("path", [*TRACES, *ELSEWHERE], ids=lambda path: f"{id_of(path.parent.name)[:3]}-{path.stem}")
def test_a_write_up_quotes_the_guarantee_and_says_how_to_see_it(path: Path) -> None:
    """Its own words, and one command."""
    text = unwrapped((path.parent / "README.md").read_text(encoding="utf-8"))
    violates = read(path).header.violates
    assert violates is not None
    for said in (
        f"**Violates {violates.statement}:**",
        STATEMENTS[violates.statement],
        f"kvgate replay difftest/kvgate/findings/{path.parent.name}/{path.name}",
    ):
        assert said in text


@of_every_trace
def test_vllm_shows_its_finding(path: Path) -> None:
    """It is counted and the run continues to its end; or it ends the run, as the divergence that the header names."""
    trace = read(path)
    assert trace.header.violates is not None
    (finding,) = with_ids([id_of(path.parent.name)])
    run = played(trace.case)
    # The consequence of a mark may be another guarantee, and ends the run.
    is_marked = finding.id in MARKED and trace.header.violates.statement == finding.statement
    if finding.unrecognised or not (finding.goes_on or is_marked):
        assert trace.header.violates == first_violated(run)
        assert (None if finding.unrecognised else finding.id) == run.found()[0].finding
    else:
        assert finding.id in [each.finding for each in run.known()]
        assert {"001-new-block-ids-never-drained"} >= {each.finding for each in run.found()}
        assert len(trace.operations) == run.performed


ON_A_NEWER_RELEASE = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.findings import modelled
from kvgate.gate.case_runner import run_case
from kvgate.gate.trace_codec import Violated
from kvgate.levels.registry import read

trace = read(Path(sys.argv[1]))
system = load_system(trace.header.system)

def played():
    run = run_case(trace.level.bench(system, trace.level.gate), trace.case)
    violated = [Violated.by(each) == trace.header.violates for each in run.divergences]
    return run.performed, [each.finding for each in run.known()], violated

declared, having = played(), modelled.findings_of
modelled.findings_of = lambda system: [each for each in having(system) if each.id != sys.argv[2]]
print(json.dumps([declared, played()]))
"""


@pytest.mark.ci
@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: f"{path.parent.name[1:4]}-{path.stem}")
def test_another_release_shows_its_finding(path: Path) -> None:
    """Counted, and the run continues to its end; undeclared, it is the divergence that the header names."""
    trace = read(path)
    published(release_named(trace.header.system))
    finding = id_of(path.parent.name)
    command = [sys.executable, "-c", ON_A_NEWER_RELEASE, str(path), finding]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert 0 == finished.returncode, finished.stderr[-3000:]
    (performed, known, violated), (_, known_without, violated_without) = json.loads(finished.stdout.splitlines()[-1])
    assert finding in known
    assert finding not in known_without
    assert (len(trace.operations), [], [True]) == (performed, violated, violated_without)


@pytest.mark.parametrize("path", FOLLOWS, ids=lambda path: path.stem)
def test_what_follows_in_a_scheduler_is_the_same_finding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run, as the header says; and on a vLLM described without the finding nothing is declared."""
    trace, finding = read(path), id_of(path.parent.name)
    run = played(trace.case)
    assert trace.header.violates == first_violated(run)
    assert finding == run.found()[0].finding
    assert f"kvgate replay {path.relative_to(FOLDER.parents[2]).as_posix()}" in (path.parent / "README.md").read_text()
    assert [None] == [each.finding for each in played_without(finding, trace.case, monkeypatch).found()]


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "blocks_still_valid": ("f021*/trace.jsonl", lambda _rule, _valid, _blocks: 0),
    "lacks_blocks": ("f021*/trace.jsonl", lambda _rule, _groups, _tables, _tokens: True),
    "prefixes_kept": ("f041*/trace.jsonl", lambda kept, *rest: kept(*rest) + 2),
    "tokens_read_whole": ("f058*/trace.jsonl", lambda _rule, *_rest: 1),
    "experts_returned": ("f057*/trace.jsonl", lambda _rule, experts, _kept: [0 for _ in experts]),
    "tokens_passed": ("f028*/trace.jsonl", lambda passed, *rest: passed(*rest) - 16),
    "is_fenced": ("f022*/trace.jsonl", lambda _rule, _request: False),
    "tokens_counted": ("f061*/trace.jsonl", lambda _rule, _request, _computed, _beyond: 13),
    "reported_stop": ("f042*/trace.jsonl", lambda _rule, _stop, _earlier: "nothing"),
}
"""Rules that only a scheduler asks, how each is broken, and where it shows."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_of_the_reference_shows(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the rule under a delta is compared too. Method: break it on the reference's side alone."""
    place, answer = BROKEN[rule]
    (path,) = FOLDER.glob(place)
    monkeypatch.setattr("kvgate.levels.scheduler.engine.reference_of", with_base(Delta(rule, answer)))
    found = played(read(path).case).found()
    assert None in [each.finding for each in found]


@of_every_trace
def test_undescribed_it_is_a_divergence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the header names, and no finding explains it."""
    trace = read(path)
    run = played_without(id_of(path.parent.name), trace.case, monkeypatch)
    assert trace.header.violates == first_violated(run)
    assert run.found()[0].finding is None


def test_an_end_that_is_missed_otherwise_is_not_finding_053(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 053 excuses what it says alone. Method: its run without a shortest length, and no end."""
    (path,) = FOLDER.glob("f053*/trace.jsonl")
    case = read(path).case
    submitted, *steps = case.operations
    plain = evolve(case, operations=(evolve(submitted, answers_min=0), *steps))
    assert not played(plain).found()
    monkeypatch.setattr("vllm.v1.core.sched.scheduler.check_stop", lambda *_: False)
    assert [("scheduler", None)] == [(each.divergence.detector, each.finding) for each in played(plain).found()]


def test_another_assertion_next_to_too_many_adapters_is_not_finding_038(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 038 excuses its own assertion alone. Method: its run, where another one fails at the same place."""
    (path,) = FOLDER.glob("f038*/trace.jsonl")
    original = Scheduler.schedule

    def schedule(scheduler: Any) -> Any:
        try:
            return original(scheduler)
        except AssertionError:
            raise AssertionError from None

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    run = played(read(path).case)
    assert [("KV-SYS-01", None)] == [(each.divergence.difference.statement, each.finding) for each in run.found()]


def test_an_item_that_is_kept_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: 060 excuses no hang of 035. Method: 035 with a budget for either item alone."""
    (path,) = FOLDER.glob("f035*/trace.jsonl")
    case = read(path).case
    tight = evolve(case, stage=evolve(case.stage, encoder_budget=case.stage.encoder_cache))
    run = played_without("035-next-item-has-no-room", tight, monkeypatch)
    assert [("progress", None)] == [(each.divergence.detector, each.finding) for each in run.found()]


FOR_THE_STORY = {
    "020-trace-with-another": [1],
    "025-trace": [4],
    "027-trace": [1],
    "035-trace-reset": [1, 2],
    "048-trace-with-another": [1],
    "061-trace-state": [8],
}
"""A request that waits, without which newer releases do not show it; a step that could still say that the transfer has
ended; a waiting request that would fit; a reset in between, which makes no difference; and the end of a transfer, which
ends at the end of a run as well."""


@pytest.mark.ci
@of_every_trace
def test_no_operation_can_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of them the run does not show it, or not yet."""
    trace, finding = read(path), id_of(path.parent.name)
    shorter = (evolve(trace.case, operations=without(trace.operations, at)) for at in range(len(trace.operations)))
    runs = (played_without(finding, case, monkeypatch) for case in shorter)
    longer = [at for at, run in enumerate(runs) if trace.header.violates == first_violated(run)]
    assert FOR_THE_STORY.get(f"{id_of(path.parent.name)[:3]}-{path.stem}", []) == longer


def without(operations: tuple[Operation, ...], index: int) -> tuple[Operation, ...]:
    return (*operations[:index], *operations[index + 1 :])


def test_the_track_record_plays_them() -> None:
    """On vLLM all are shown; for a system without a scheduler, the record says that it has none."""
    for path in TRACES:
        trace, finding = read(path), id_of(path.parent.name)
        assert SHOWN == outcome(load_system("stock"), trace, finding)
        assert outcome(load_system("reference"), trace, finding) not in (SHOWN, NOT_SHOWN)


def test_a_release_without_a_memory_of_experts_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are all from 0.21.0 on: the track record says that it cannot run such a trace, and continues with the next."""
    # vLLM's own scheduler needs it to be imported.
    pytest.importorskip("vllm.v1.core.sched.scheduler")
    monkeypatch.delattr("vllm.model_executor.layers.fused_moe.routed_experts_capturer.RoutedExpertsReader")
    (path,) = FOLDER.glob("f056*/trace.jsonl")
    assert outcome(load_system("stock"), read(path), id_of(path.parent.name)).startswith(f"{REFUSED}: ")


# Faults that are not excused

EVERYWHERE = Stage(by_priority=True, connector=True)
"""Where most of it is declared."""
ROOM = full(60, chunk_tokens=40, tokens_max=200)
SHARED: tuple[Operation, ...] = (serve(0, 48), *steps(1), Abort(0), serve(1, 49, family=0), *steps(4))
LOADED: dict[str, Any] = {"external_tokens": 64, "loads": True}
LOADS: tuple[Operation, ...] = (
    serve(0, 100, **LOADED),
    serve(1, 100, **LOADED),
    *steps(1),
    Transferred(0),
    Transferred(1),
    *steps(6),
)


def caches_what_is_not_full(original: Any, manager: Any, request: Any, tokens: int) -> None:
    """A block is cached as soon as anything is computed of it."""
    size = manager.block_size
    original(manager, request, min(request.num_tokens, -(-tokens // size) * size))


def rejects_loaded(original: Any, manager: Any, request: Any, *them: Any, **more: Any) -> Any:
    """A request that has loaded is given no blocks, although plenty are free."""
    loaded = request.num_computed_tokens > 0 and request.status.name == "WAITING"
    return None if loaded else original(manager, request, *them, **more)


def takes_no_notice(_original: Any, _scheduler: Any, _request: Any) -> bool:
    """The end of a load is not noticed."""
    return False


MANAGER, GROUP = "vllm.v1.core.kv_cache_manager.KVCacheManager", "vllm.v1.core.single_type_kv_cache_manager"
NEIGHBOURS: dict[str, tuple[str, Any, Settings, tuple[Operation, ...], str]] = {
    "caches what is not full": (
        f"{GROUP}.FullAttentionManager.cache_blocks",
        caches_what_is_not_full,
        ROOM,
        SHARED,
        "KV-MEM-01",
    ),
    "rejects requests that have loaded": (f"{MANAGER}.allocate_slots", rejects_loaded, ROOM, LOADS, "KV-LIVE-03"),
    "takes no notice of loads": (
        "vllm.v1.core.sched.scheduler.Scheduler._try_promote_blocked_waiting_request",
        takes_no_notice,
        ROOM,
        LOADS,
        "KV-LIVE-03",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_similar_fault_is_not_excused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It violates the same guarantee, where the findings are declared, and nothing explains it."""
    target, replacement, settings, operations, statement = NEIGHBOURS[name]
    engine = Engine(settings, EVERYWHERE, with_reference=False)
    assert [] == [each for each in run(engine, operations) if explain_engine(each, engine) is None]
    module, kind, method = target.rsplit(".", 2)
    owner = getattr(__import__(module, fromlist=[kind]), kind)
    original = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda *them, **more: replacement(original, *them, **more))
    monkeypatch.setattr("kvgate.levels.scheduler.queue_order_monitor.Line.end", lambda *_: None)
    engine = Engine(settings, EVERYWHERE, with_reference=False)
    first = run(engine, operations)[0]
    assert (statement, None) == (first.difference.statement, explain_engine(first, engine))


def test_061_has_its_window_taken_from_it_where_that_is_repaired() -> None:
    """On 0.33.0 what comes after the end does not count: no rule answers otherwise, and no block that is gone is
    excused; on older releases both are so."""
    (finding,) = with_ids(["061-sent-with-what-follows-the-end"])
    settings = Settings(load("swa+eagle").geometry, blocks=64, drafts_max=3)
    later, older = finding.acts(settings, "0.33.0"), finding.acts(settings, "0.30.0")
    gone: Any = SimpleNamespace(
        reader=SimpleNamespace(request=0, group=0), token=29, got=NO_BLOCK, wanted=(1,) * 30, found=(), mark=ENDED
    )
    assert ([], False, False) == (list(later.deltas), later.misreads(gone), later.on_its_own(gone))
    assert older.deltas
    assert older.unfollowed is not None
    assert older.unfollowed(gone)
