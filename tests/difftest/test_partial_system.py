"""vLLM 0.20.2 with the plug-in's partial hits, in lockstep with the reference.

Goal: hits that end inside blocks are those that the reference says, with the same copies from the same blocks, beside
drafts, retention, pins, transfers and a minimum; and no request ever reads what another one computed for other tokens.
Method: lockstep over drawn cases, with ghost memory beside it, which knows what every slot holds; nothing may differ
that is not declared of vLLM itself. And the plug-in broken, one thing at a time, which must differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kvgate.campaign import Campaign, Lane, Outcome, Plan
from kvgate.models import load
from kvgate.runner import Bench
from kvgate.system import System
from kvgate.systems import load_system
from kvreference.answers import Copies, Hit
from kvreference.content import Keys
from kvreference.operations import Admit, Arrive, Dispatch, LookUp, Run
from kvreference.settings import Settings
from swa_retention.partial.boundaries import Boundaries
from swa_retention.partial.groups import Group
from swa_retention.partial.hits import PartialHits
from swa_retention.partial.lookup import Window

pytest.importorskip("vllm")

PLAIN, DRAFTING, EVERYTHING = (
    "compressed+partial",
    "compressed+eagle+partial",
    "compressed+eagle+partial+pinned=1+retention=1+scratch",
)
MASKED, LOADING, PINNED, WORTHWHILE = (
    "compressed+mtp+partial+masked+scratch",
    "compressed+eagle+partial+transfers",
    "compressed+partial+pinned=1",
    "compressed+eagle+partial+min=48",
)
AGREED = (
    PLAIN,
    MASKED,
    DRAFTING,
    LOADING,
    PINNED,
    EVERYTHING,
    WORTHWHILE,
    "mixed-blocks+mtp+partial+transfers",
    "dsv4-flash+partial",
    "dsv4-flash-ascend-128+mtp+partial",
)
"""Models on which nothing differs that is not declared; the last ones are the published DeepSeek-V4-Flash."""
OPERATIONS = 1500


def campaign(model: str, operations: int = OPERATIONS, kinds: int = 5) -> Outcome:
    """What drawn cases show, until so many kinds of divergences are found."""
    lanes = tuple(Lane(load(model), preset) for preset in ("tiny", "hostile", "long"))
    plan = Plan(lanes, operations, kinds_max=kinds, minimises=False)
    return Campaign(Bench(load_system("retention").factory), plan).run()


def statements(outcome: Outcome) -> set[str]:
    """What is violated by anything that nothing explains."""
    return {found.divergence.difference.statement for found in outcome.found}


@pytest.mark.parametrize("model", AGREED)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert set() == statements(campaign(model))


def test_hits_do_end_inside_blocks() -> None:
    """What agrees is not that nothing happens: copies are made, and hits wait until a step is dispatched."""
    ordered, order = Counter[str](), PartialHits.entered

    def counted(self: PartialHits, request_id: str, tables: Any) -> None:
        before = len(self.pending.copies)
        order(self, request_id, tables)
        ordered["copies"] += len(self.pending.copies) - before

    def fenced(self: PartialHits, hit: Any) -> bool:
        ordered["fenced"] += is_fenced(self, hit)
        return is_fenced(self, hit)

    is_fenced = PartialHits.is_fenced
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialHits, "entered", counted)
        patch.setattr(PartialHits, "is_fenced", fenced)
        campaign(PLAIN, 2 * OPERATIONS)
    assert ordered["copies"] > 50
    assert ordered["fenced"] > 0


# Soundness


def looked_up(system: System, number: int) -> Hit:
    """The hit of a request."""
    hit = system.apply(LookUp(number))
    assert isinstance(hit, Hit)
    return hit


def test_what_diverges_inside_a_block_is_never_shared() -> None:
    """Two prompts share 40 tokens of a block of 64 and part there: the second is served what is alike, and no more.

    The third shares with the second what the first does not have: it is copied from the second one's block.
    """
    system = load_system("retention").factory(Settings(load(PLAIN).geometry, 200, chunk_tokens=1024))
    prompts = (Run(0, 60),), (Run(0, 40), Run(500, 20)), (Run(0, 40), Run(500, 30))
    found = []
    for number, prompt in enumerate(prompts):
        system.apply(Arrive(number, prompt))
        found.append(looked_up(system, number))
        system.apply(Admit(number, 1024))
        copies = system.apply(Dispatch())
        assert isinstance(copies, Copies)
        assert len(found[-1].partials) == len(copies.copies)
    assert [0, 32, 48] == [hit.tokens for hit in found]
    tables = system.snapshot().tables
    sources = {partial.group: partial.source for partial in found[2].partials}
    # Group 0 has blocks of 32, group 1 of 64: the second request's own blocks, in which its 20 tokens lie.
    assert {0: tables[1][0][1], 1: tables[1][1][0]} == sources


@pytest.mark.parametrize("other", [Keys(salt="other"), Keys(lora="other")], ids=["salt", "adapter"])
def test_another_salt_or_adapter_shares_nothing(other: Keys) -> None:
    """The same tokens, of which the first request's keys are a part: the key of a boundary covers those too."""
    system = load_system("retention").factory(Settings(load(PLAIN).geometry, 200, chunk_tokens=1024))
    for operation in (Arrive(0, (Run(0, 60),)), Admit(0, 1024), Dispatch(), Arrive(1, (Run(0, 60),), other)):
        system.apply(operation)
    assert 0 == looked_up(system, 1).tokens


# What is broken


def no_entry(_self: Boundaries, _key: bytes) -> None:
    """Nothing is known inside blocks."""


def key_of_the_place(_hashes: Any, end_tokens: int, _grain: int, group: int) -> bytes:
    """The key says where a prefix ends, and not what it is."""
    return end_tokens.to_bytes(8, "big") + group.to_bytes(4, "big")


def key_of_all_groups(hashes: Any, end_tokens: int, grain: int, _group: int) -> bytes:
    """The key is the same in every group."""
    digest: bytes = hashes[end_tokens // grain - 1]
    return digest


def source_not_held(self: PartialHits, request_id: str, hit: Any, hit_tokens: int) -> None:
    """The source stays where it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(self.pool), "touch", lambda *_all: None)
        enter(self, request_id, hit, hit_tokens)


enter, register = PartialHits.enter, PartialHits.register


def offered_from_the_start(self: PartialHits, request_id: str, hit: Any, hit_tokens: int) -> None:
    """What the hit covers is offered again: by the blocks of the hit."""
    enter(self, request_id, hit, hit_tokens)
    self.cursors[request_id].offered_tokens = [0] * len(self.copying)


def nothing_is_copied(self: PartialHits, request_id: str, _tables: Any) -> None:
    """The sources are held, and no copy is ordered."""
    sources, _ = self.entering.pop(request_id, ((), 0))
    self.pending.sources += [source.block for source in sources]


def fence_stays(self: PartialHits) -> Any:
    """What was computed in a step that went to the worker cannot be copied either."""
    fenced = self.pending.fenced
    copies = dispatch(self)
    self.pending.fenced = fenced
    return copies


dispatch = PartialHits.dispatch


def unaware_of_lookahead(_self: Group, hit_tokens: int) -> int:
    """No more than what is served must match."""
    return hit_tokens


def longest_of_the_window(self: Window, hit_tokens: int) -> int:
    """A window serves whatever the others do."""
    first, end = self.group.blocks_needed(hit_tokens)
    self.found = {index: self.cached(index) or self.null for index in range(first, end)}
    return hit_tokens


def always_loaded(_self: PartialHits) -> bool:
    """Whatever is registered counts as loaded."""
    return True


def said(says: Callable[[PartialHits], bool]) -> property:
    """An attribute that is what it is, whoever sets it."""
    return property(says, lambda _self, _value: None)


HITS = "swa_retention.partial.hits"
BROKEN: dict[str, tuple[str, str, Any, str]] = {
    "no entry is found": ("swa_retention.partial.boundaries.Boundaries.find", DRAFTING, no_entry, "KV-OP-01"),
    "a key of the place": (f"{HITS}.key_of", PLAIN, key_of_the_place, "KV-OP-04"),
    "a key of all groups": (f"{HITS}.key_of", PLAIN, key_of_all_groups, "KV-OP-19"),
    "look-ahead unknown": (
        "swa_retention.partial.groups.Group.tokens_matched",
        DRAFTING,
        unaware_of_lookahead,
        "KV-OP-18",
    ),
    "window not asked": ("swa_retention.partial.lookup.Window.at_most", PLAIN, longest_of_the_window, "KV-OP-01"),
    "the minimum ignored": (
        "swa_retention.partial.lookup.Worthwhile.at_most",
        WORTHWHILE,
        lambda _self, tokens: tokens,
        "KV-OP-01",
    ),
    "sources uncounted": ("swa_retention.patches.pinning.sources_of", PLAIN, lambda _hit: iter(()), "KV-SYS-01"),
    "not fenced": (f"{HITS}.PartialHits.is_fenced", PLAIN, lambda *_all: False, "KV-OP-04"),
    "fenced for ever": (f"{HITS}.PartialHits.dispatch", PLAIN, fence_stays, "KV-OP-03"),
    "what is computed counts as loaded": (f"{HITS}.PartialHits.arrived", PLAIN, said(always_loaded), "KV-OP-04"),
    "source not held": (f"{HITS}.PartialHits.enter", PLAIN, source_not_held, "KV-INV-01"),
    "nothing copied": (f"{HITS}.PartialHits.entered", PLAIN, nothing_is_copied, "KV-OP-19"),
    "nothing registered": (f"{HITS}.PartialHits.register", PLAIN, lambda *_all: None, "KV-OP-18"),
    "offered again": (f"{HITS}.PartialHits.enter", PLAIN, offered_from_the_start, "KV-OP-18"),
    "cursor not forgotten": (f"{HITS}.PartialHits.forget", PLAIN, lambda *_all: None, "KV-LEAK-01"),
    "recycled with entries": (
        "swa_retention.partial.boundaries.Boundaries.forget",
        PLAIN,
        lambda *_all: None,
        "KV-OP-18",
    ),
    "entries outlive a reset": (
        "swa_retention.partial.boundaries.Boundaries.clear",
        PLAIN,
        lambda *_all: None,
        "KV-OP-18",
    ),
    "entries do not count as cached": (
        "swa_retention.patches.free_queue.is_scratch",
        MASKED,
        lambda _pool, block: block.block_hash is None,
        "KV-OP-17",
    ),
    "entries are not pinned": (
        "swa_retention.pinned_tier.is_scratch",
        PINNED,
        lambda _pool, block: block.block_hash is None,
        "KV-OP-21",
    ),
}
"""What is broken, where, on which model, how, and the guarantee that is then the first to be violated."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee that the break violates is told, and nothing that is declared of vLLM excuses it."""
    target, model, by, statement = BROKEN[name]
    load_system("retention")
    monkeypatch.setattr(target, by, raising=not isinstance(by, property))
    assert {statement} == statements(campaign(model, 10 * OPERATIONS, kinds=1))
