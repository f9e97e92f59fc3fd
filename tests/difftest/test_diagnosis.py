"""The meaning of a divergence, and its cause.

Goal: the author of a patch first reads what a user of the server would notice, and which function caused it; one cause
is one story. Method: vLLM's own block manager with one function replaced at a time, as ``--preload`` does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.adapters.retention import install
from kvgate.cli.check import store
from kvgate.gate.campaign import Campaign, Outcome
from kvgate.gate.case_runner import Lane, Trial, Trials, run_case
from kvgate.gate.diagnosis import MEANINGS, OF_STATEMENTS, Anomaly, Diagnosis, of_states
from kvgate.gate.profiles import plan
from kvgate.gate.story import tell
from kvgate.gate.suspects import Suspect, suspects_among
from kvgate.gate.verdict import Found, Verdict
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvgate.levels.manager import GATE, MANAGER, Bench
from kvgate.levels.registry import read
from kvreference.attention import Kind
from kvreference.block_pool import Pinned
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS
from swa_retention import features
from swa_retention.register import remove

pytestmark = pytest.mark.ci
OPERATIONS = 2_000
CORE = "vllm.v1.core"


@pytest.fixture(autouse=True)
def _without_the_plug_in() -> Iterator[None]:
    """Other tests of this process may have put its patches in place, and want them there again."""
    pytest.importorskip("vllm")
    remove([patch for feature in features.FEATURES for patch in feature.patches])
    yield
    install()


@pytest.fixture
def bench() -> Bench:
    """vLLM's block manager, with the detectors of the gate."""
    return Bench(load_system("stock").factory, GATE)


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any]], None]:
    """Puts a function in the place of one of vLLM's; it gets the original first."""

    def replace(target: str, broken: Callable[..., Any]) -> None:
        from kvgate_mutants.mutants.mutant import locate

        owner, name = locate(target)
        original = vars(owner)[name]
        function = getattr(original, "__func__", original)

        def patched(*arguments: Any, **named: Any) -> Any:
            return broken(function, *arguments, **named)

        # Functions that are written apart have codes of their own.
        patched.__code__ = patched.__code__.replace(co_name=name)
        monkeypatch.setattr(owner, name, classmethod(patched) if isinstance(original, classmethod) else patched)

    return replace


def run(bench: Bench, *models: str) -> Outcome:
    """A short campaign that looks into what it finds."""
    trials = Trials(bench)
    short = plan("quick", [load(model) for model in models])

    short = evolve(short, operations=OPERATIONS, shrink_seconds=20.0)
    return Campaign(trials, short, trials.diagnosed).run()


def narrower(own: Callable[..., Any], cls: Any, *given: Any, **named: Any) -> Any:
    """A window is looked up a block short."""
    import dataclasses

    spec = named["kv_cache_spec"]
    named["kv_cache_spec"] = dataclasses.replace(spec, sliding_window=max(2, spec.sliding_window - spec.block_size))
    return own(cls, *given, **named)


def forgetful(own: Callable[..., Any], self: Any, block_hash: Any, groups: Any) -> Any:
    """Every fourth block is not found."""
    found = own(self, block_hash, groups)
    return None if found and found[0].block_id % 4 == 3 else found


def keeps_one(own: Callable[..., Any], self: Any, blocks: Any) -> None:
    """Of more than three blocks the first is not released."""
    blocks = list(blocks)
    own(self, blocks[1:] if len(blocks) > 3 else blocks)


def backwards(own: Callable[..., Any], self: Any, blocks: Any) -> None:
    """Blocks are released in the other order."""
    own(self, list(blocks)[::-1])


def silent(own: Callable[..., Any], self: Any) -> list[Any]:
    """The last event is not reported."""
    events: list[Any] = own(self)
    return events[:-1]


def raising(own: Callable[..., Any], self: Any, blocks: Any) -> None:
    """Three blocks at once cannot be released."""
    blocks = list(blocks)
    assert len(blocks) != 3, "not three"
    own(self, blocks)


WINDOW = f"{CORE}.single_type_kv_cache_manager:SlidingWindowManager.find_longest_cache_hit"
EVENTS = f"{CORE}.kv_cache_manager:KVCacheManager.take_events"
FREE = f"{CORE}.block_pool:BlockPool.free_blocks"


@pytest.mark.parametrize(
    ("target", "broken", "anomaly"),
    [
        (WINDOW, narrower, Anomaly.WRONG_ANSWER),
        (f"{CORE}.block_pool:BlockPool.get_cached_block", forgetful, Anomaly.LOST_HIT),
        (FREE, keeps_one, Anomaly.LEAK),
        (FREE, backwards, Anomaly.ORDER),
        (EVENTS, silent, Anomaly.WRONG_EVENT),
        (FREE, raising, Anomaly.CRASH),
    ],
)
def test_one_cause_is_one_story_with_its_name(
    bench: Bench, replaced: Callable[..., None], target: str, broken: Callable[..., Any], anomaly: Anomaly
) -> None:
    """However many kinds of divergence it leads to."""
    replaced(target, broken)
    (found,) = run(bench, "swa", "gemma-hybrid").found
    assert found.diagnosis is not None
    assert (anomaly, target) == (found.anomaly, found.diagnosis.suspects[0].function)
    story = tell(found, system="stock", version="0.20.2").splitlines()
    assert story[0] == f"{anomaly.value}: {anomaly.meaning}"
    assert story[1].startswith(f"in {target}, defined in {__file__}:")


def test_a_wrong_answer_is_named_although_lockstep_sees_something_else(
    bench: Bench, replaced: Callable[..., None]
) -> None:
    """The comparison first sees a table; if the run continues, ghost memory says what is read."""
    replaced(WINDOW, narrower)
    (found,) = run(bench, "swa", "gemma-hybrid").found
    assert found.diagnosis is not None
    assert found.diagnosis.follows is not None
    assert "lockstep" == found.divergence.detector
    assert ("ghost", "KV-MEM-01") == (found.diagnosis.follows.detector, found.diagnosis.follows.difference.statement)
    assert found.also
    story = tell(found, system="stock", version="0.20.2")
    assert "what follows, without the reference: KV-MEM-01, found by ghost" in story
    assert f"also seen: {found.also[0].statement}" in story


def test_without_a_replaced_function_nothing_is_suspected(bench: Bench) -> None:
    """Neither libraries nor the gate itself count as patches of vLLM."""
    del bench
    assert [each for each in suspects_among().values() if "swa_retention" not in each.file] == []


def test_two_causes_are_two_stories(bench: Bench, replaced: Callable[..., None]) -> None:
    """The worse one comes first, whichever was found first."""
    replaced(EVENTS, silent)
    replaced(WINDOW, narrower)
    found = run(bench, "swa", "gemma-hybrid").found
    likeliest = {each.diagnosis.suspects[0].function for each in found if each.diagnosis is not None}
    assert {EVENTS, WINDOW} <= likeliest
    # Where both ran, no one says which it was.
    assert [None] == [each.diagnosis.cause for each in found if each.diagnosis and len(each.diagnosis.suspects) == 2][
        :1
    ]
    ranks = [each.anomaly.rank for each in found]
    assert ranks == sorted(ranks)


def test_every_guarantee_has_an_anomaly_and_every_anomaly_a_meaning() -> None:
    """Also where neither answers nor states say more."""
    assert set(STATEMENTS) == set(OF_STATEMENTS)
    assert set(Anomaly) == set(MEANINGS) == set(OF_STATEMENTS.values())


def test_looking_into_it_ends_in_time(bench: Bench, replaced: Callable[..., None]) -> None:
    """A generated case is examined only as long as time is left."""
    replaced(FREE, keeps_one)
    trials = Trials(bench)
    lane = Lane(load("swa"), "long")
    found = next(each for seed in map(str, range(20)) for each in trials.trial(lane, seed, 0).found)
    diagnosed = trials.diagnosed(found, time.monotonic())
    assert diagnosed.diagnosis is not None


class TwoCauses:
    """Cases that all diverge in the same way; every other one by another function."""

    def __init__(self, found: Found) -> None:
        self.found, self.cases = found, 0

    def trial(self, *_given: Any) -> Trial:
        self.cases += 1
        return Trial(1, (evolve(self.found, case=evolve(self.found.case, seed=self.cases)),))

    def smallest(self, found: Found, until: float) -> Found:
        del until
        return found

    def diagnosed(self, found: Found, _until: float) -> Found:
        number = found.case.seed
        assert isinstance(number, int)
        name, anomaly = ("one", Anomaly.ORDER) if number % 2 else ("other", Anomaly.LOST_HIT)
        return evolve(found, diagnosis=Diagnosis(anomaly, (Suspect(name, "patch.py", 1),)))


def test_two_functions_that_show_in_the_same_way_are_two_stories() -> None:
    """The second is not counted as the first, and does not take its place."""
    settings = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16)
    divergence = Divergence(0, None, "lockstep", Difference("KV-OP-05", "answer", "1", "2"))
    trials = TwoCauses(Found(divergence, MANAGER.case(settings, ())))
    short = evolve(plan("quick", [load("full")]), operations=6)
    stories = Campaign(trials, short, trials.diagnosed).run().found
    assert [("other", 3), ("one", 3)] == [(each.diagnosis.cause, each.times) for each in stories if each.diagnosis]
    assert all(each.also == () for each in stories)


def test_what_a_story_says_is_said_again_by_its_replay(
    bench: Bench, replaced: Callable[..., None], tmp_path: Path
) -> None:
    """The stored case runs up to the consequences of the divergence."""
    replaced(WINDOW, narrower)
    (found,) = run(bench, "swa", "gemma-hybrid").found
    store(found, Verdict("stock", "0.20.2", "quick", 0, GATE), tmp_path / "trace.jsonl")
    case = read(tmp_path / "trace.jsonl").case
    again = run_case(bench, case)
    rest = case.operations[again.performed :]
    (seen,) = (Trials(bench).diagnosed(evolve(each, rest=rest)) for each in again.found())
    assert (found.anomaly, found.divergence.kind) == (seen.anomaly, seen.divergence.kind)
    assert seen.diagnosis is not None
    assert seen.diagnosis.follows is not None


def test_pinned_blocks_are_not_lost() -> None:
    """One pin too few loses a hit, but no block; one too many withholds no block permanently."""
    settings = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=4, pin_drop_blocks_min=1)
    state = Manager(settings).snapshot()
    pinned = evolve(state, free=list(state.free)[1:], blocks_free=2, pinned=Pinned(frozenset({1}), (1,)))
    assert [] == [each for each in of_states(pinned, state) if each in (Anomaly.LEAK, Anomaly.WRONG_ANSWER)]


def test_a_block_with_a_reference_too_few_does_not_concern_order() -> None:
    """Even if another has one too many: the sums agree."""
    state = Manager(Settings(Geometry((Group(Kind.FULL, 4),)), blocks=4)).snapshot()
    wrong = evolve(state, references=[0, 1, -1, 0])
    assert {Anomaly.LEAK, Anomaly.WRONG_ANSWER} == set(of_states(state, wrong))
