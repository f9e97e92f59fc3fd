"""Two nodes of vLLM's scheduler: transferred blocks arrive, and held blocks are freed.

Goal: requests go from one node to the other with their blocks, late, failed or aborted, and at the end neither node
holds any. Method: short runs of both, which differ in what the connector did in between.
"""

from __future__ import annotations

import pytest
from attrs import evolve

pytest.importorskip("vllm")

from kvgate.findings import explain_pair
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.pair.handover import Stand
from kvgate.levels.pair.level import PAIR
from kvgate.levels.pair.operations import (
    Acknowledged,
    Ask,
    CollectOn,
    Node,
    Operation,
    PairStage,
    ResetCacheOn,
    ResetEncoderOn,
)
from kvgate.levels.pair.pair import Pair
from kvgate.levels.scheduler.adapter.names import name_of
from kvgate.levels.scheduler.connector_check import ConnectorCheck
from kvgate.levels.scheduler.level import EngineBench
from kvgate.levels.scheduler.operations import GrammarReady, Lost, Stage
from kvgate_mutants.mutants.pair import told_to_read_in_another_order
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Transferred
from kvreference.population import Status

from .rig import DRAFTING, HYBRID, D, P, ask, pair, run, settings, steps, undeclared

ASYNC = Stage(connector=True, asynchronous=True)
READ: tuple[Operation, ...] = (Transferred(0), Acknowledged(0), P)
ORDERS: dict[str, tuple[Operation, ...]] = {
    "at once": (ask(0, 70), P, D, *READ, *steps(Node.DECODE, 4)),
    "late": (ask(0, 70), P, D, D, D, P, Transferred(0), D, D, D, D, P, Acknowledged(0), P),
    "one after another": (
        ask(0, 70),
        ask(1, 50),
        P,
        D,
        Transferred(1),
        Transferred(0),
        Acknowledged(1),
        P,
        Acknowledged(0),
        P,
        *steps(Node.DECODE, 5),
    ),
    "a prompt that is cached there": (ask(0, 64), P, D, *READ, D, D, D, ask(1, 70, family=0), P, D, *READ, D, D, D),
    "failed": (ask(0, 70), P, D, Transferred(0, succeeded=False), Acknowledged(0), P, *steps(Node.DECODE, 6)),
    "aborted before it is prefilled": (ask(0, 200), P, Abort(0), P, D),
    "aborted before it is read": (ask(0, 70), P, Abort(0), Acknowledged(0), P, D),
    "aborted while it is read": (ask(0, 70), P, D, Abort(0), *READ, D, D),
    "aborted while it is answered": (ask(0, 70), P, D, *READ, D, Abort(0), D),
    "the end of the read is never reported": (ask(0, 70), P, D, Transferred(0), *steps(Node.DECODE, 5)),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("stage", [Stage(connector=True), ASYNC], ids=["in step", "asynchronous"])
def test_in_any_history_nothing_is_wrong_and_nothing_remains(name: str, stage: Stage) -> None:
    """Each order of messages, with and without steps in flight."""
    nodes = pair(prefill=stage, decode=stage)
    assert [] == undeclared(nodes, ORDERS[name])
    assert [] == [*nodes.prefill.nodes.under_way(), *nodes.decode.nodes.under_way(), *nodes.handovers]


@pytest.mark.parametrize("geometry", [DRAFTING, HYBRID], ids=["draft layers", "a window"])
def test_what_is_moved_is_what_is_read(geometry: Geometry) -> None:
    """Where blocks hold more than one kind of layer, the decode node reads what it needs, and every request
    is answered.
    """
    nodes = pair(settings(geometry, drafts_max=2 if geometry is DRAFTING else 0))
    operations: tuple[Operation, ...] = (ask(0, 90), ask(1, 60), P, D, Transferred(0), Transferred(1))
    assert [] == undeclared(nodes, (*operations, *steps(Node.DECODE, 8)))


def test_the_wrong_block_is_seen_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the connector's blocks against those held, the content itself is seen to be wrong."""
    monkeypatch.setattr("kvgate.levels.pair.pair.is_held", lambda *_: None)
    monkeypatch.setattr(ConnectorCheck, "_compare", lambda *_: None)
    with told_to_read_in_another_order.applied():
        (found,) = run(pair(), (ask(0, 70), P, D, *READ, D, D))
    assert ("ghost", "KV-MEM-01") == (found.detector, found.difference.statement)
    assert found.difference.subject.startswith("decode node, request 0")


def test_what_the_slots_hold_is_what_arrives() -> None:
    """The prefill node's slots are overwritten before they are read: the first token that reads them shows it."""
    nodes = pair()
    for operation in (ask(0, 70), P, D):
        assert nodes.perform(operation) is None
    (handover,) = nodes.handovers
    nodes.prefill.memory.forget([handover.tables[0][1]])
    assert nodes.perform(Transferred(0)) is None
    found = next(each for each in (nodes.perform(D), nodes.perform(D)) if each is not None)
    assert ("ghost", "KV-MEM-01", "decode node, request 0, group 0") == (
        found.detector,
        found.difference.statement,
        found.difference.subject,
    )
    assert "token 16 in block" in found.difference.expected


def test_a_message_that_never_comes_is_a_leak_on_both_nodes() -> None:
    """The client has aborted; the blocks stay held, and both nodes say for which request."""
    nodes = pair()
    found = run(nodes, (ask(0, 70), P, D, Lost(0), Abort(0)))
    assert [("leak", "KV-LEAK-01", "none")] * 2 == [
        (each.detector, each.difference.statement, each.difference.expected) for each in found
    ]
    assert [
        "request 0 holds 5 blocks for the decode node, and the message is lost",
        "request 0 holds 5 blocks for what it reads, and the read never ends",
    ] == [each.difference.got for each in found]


def test_a_read_that_never_ends_is_a_hang_on_both_nodes() -> None:
    """As long as the client waits."""
    nodes = pair()
    (found,) = run(nodes, (ask(0, 70), P, D, Lost(0), P, P, D, D))
    assert "KV-LIVE-03" == found.difference.statement
    assert "request 0 on the decode node waits for a transfer that never ends" in found.difference.got
    assert "request 0 on the prefill node waits for a transfer that never ends" in found.difference.got


def test_the_decode_node_has_numbers_of_its_own() -> None:
    """The request that is prefilled first comes first there, and keeps the name that its client knows."""
    nodes = pair(settings(chunk_tokens=128), prefill=Stage(connector=True, long_prefill_tokens=30))
    for operation in (ask(0, 100), ask(1, 20), P):
        assert nodes.perform(operation) is None
    assert {0: 1} == nodes.handovers.named
    assert "request 1 on the decode node" == nodes.progress.graph.called(1)


def test_a_client_that_waits_between_the_nodes_can_give_up() -> None:
    """The decode node runs one request at a time, and has one. The second is prefilled, and its client can still abort
    it.
    """
    nodes = pair(settings(requests_max=1))
    for operation in (ask(0, 40, answers=20), P, D, *READ, ask(1, 40), P):
        assert nodes.perform(operation) is None
    (between,) = nodes.handovers
    assert (1, None, Stand.PREFILLED) == (between.number, between.there, between.stand)
    assert nodes.perform(Abort(1)) is None
    assert Stand.READ is between.stand
    assert [] == undeclared(nodes, (Acknowledged(1), P, D, CollectOn(Node.DECODE)))


def test_states_are_not_handed_over() -> None:
    """A model with states is rejected with one sentence."""
    states = Geometry((Group("full", 16), Group("mamba", 16, states="all")))
    with pytest.raises(UsageError, match="no states are handed over"):
        pair(settings(states))


def test_a_request_that_is_held_is_ending() -> None:
    """Its state on each node: computed here, and waiting there until it is read."""
    nodes = pair()
    for operation in (ask(0, 70), P):
        assert nodes.perform(operation) is None
    (handover,) = nodes.handovers
    assert (Status.ENDING, Status.WAITING, Stand.PREFILLED) == (
        nodes.prefill.followed.population[0].status,
        nodes.decode.followed.population[0].status,
        handover.stand,
    )


# Grammars, priorities, resets


def test_a_request_waits_for_its_grammar_on_each_node() -> None:
    """Goal: neither node computes it before. Method: the steps in which each begins."""
    nodes = pair()
    structured = evolve(ask(0, 70), structured=True)
    begun = []
    for operation in (structured, P, P, GrammarReady(0), P, D, D, GrammarReady(0), D, *READ, D):
        assert nodes.perform(operation) is None
        begun.append((bool(nodes.prefill.followed.snapshot().tables), bool(nodes.decode.followed.snapshot().tables)))
    nothing, prefilled, read = (False, False), (True, False), (True, True)
    assert [*[nothing] * 4, *[prefilled] * 4, read] == begun[:9]
    assert [] == nodes.close()


@pytest.mark.parametrize(("by_priority", "first"), [(True, 1), (False, 0)])
def test_the_urgent_go_first_on_each_node(by_priority: bool, first: int) -> None:
    """Goal: the prefill node serves by priority, and the decode node gets it. Method: one place, two requests, the
    second more urgent.
    """
    stage = Stage(1, connector=True, by_priority=by_priority)
    nodes = pair(settings(chunk_tokens=64), prefill=stage, decode=stage)
    late, urgent = (evolve(ask(number, 60), priority=1 - number) for number in range(2))
    for operation in (late, urgent, P, P):
        assert nodes.perform(operation) is None
    assert first == next(iter(nodes.handovers)).number
    for operation in (late, urgent):
        assert operation.priority == nodes.decode.scheduler.requests[name_of(there_of(nodes, operation))].priority
    assert [] == [each for each in nodes.close() if explain_pair(each, nodes) is None]


def there_of(nodes: Pair, operation: Ask) -> int:
    """The number of a request on the decode node."""
    return next(there for there, here in nodes.handovers.named.items() if here == operation.arrival.request)


def test_a_node_forgets_its_caches() -> None:
    """Goal: a reset affects one node only. Method: a prompt that both have; the cache of each after a reset of one."""
    nodes = pair()
    for operation in (ask(0, 70), P, D, *READ, *steps(Node.DECODE, 4)):
        assert nodes.perform(operation) is None
    cached = [len(node.followed.snapshot().entries) for node in (nodes.prefill, nodes.decode)]
    assert all(cached)
    assert nodes.perform(ResetCacheOn(Node.DECODE)) is None
    assert [cached[0], 0] == [len(node.followed.snapshot().entries) for node in (nodes.prefill, nodes.decode)]
    assert [] == nodes.close()


def test_a_reset_that_is_not_done_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cache, and of the encoder."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def refuses(*_: object, **__: object) -> bool:
        return False

    stage = Stage(connector=True, encoder_budget=32, encoder_cache=64)
    lines = []
    for name, operation in (("prefix", ResetCacheOn(Node.PREFILL)), ("encoder", ResetEncoderOn(Node.PREFILL))):
        with monkeypatch.context() as broken:
            broken.setattr(Scheduler, f"reset_{name}_cache", refuses)
            found = pair(prefill=stage).perform(operation)
        assert found is not None
        lines.append((found.detector, found.difference.statement))
    assert [("scheduler", "KV-OP-11"), ("encoder", "KV-OP-11")] == lines


REACHED = {
    *((kind, node.value) for kind in ("GrammarReady", "ResetCacheOn", "ResetEncoderOn") for node in Node),
    ("answers_min", "asked"),
    ("priority", "asked"),
}


def forgotten(nodes: Pair) -> dict[tuple[str, str], int]:
    """How often each encoder was reset, and whether each prefix cache is empty."""
    return {
        (kind, node.value): done
        for node in Node
        for kind, done in (
            ("ResetCacheOn", not nodes.engine(node).followed.snapshot().entries),
            ("ResetEncoderOn", nodes.engine(node).encoder.resets),
        )
    }


def test_what_is_drawn_reaches_them() -> None:
    """Goal: no generated operation is useless. Method: generated cases, until each was performed on each node."""
    done: set[tuple[str, str]] = set()
    for seed in range(20):
        case = PAIR.draw(load("full"), "hostile", str(seed))
        nodes = Pair(case.settings, case.stage)
        for operation in case.operations:
            waited = [len(nodes.engine(node).progress.grammars) for node in Node]
            arrived, before = nodes.prefill.followed.population.arrived, forgotten(nodes)
            assert nodes.perform(operation) is None
            if isinstance(operation, GrammarReady):
                left = (len(nodes.engine(node).progress.grammars) for node in Node)
                ready = (node for node, was, now in zip(Node, waited, left, strict=True) if now < was)
                done |= {("GrammarReady", node.value) for node in ready}
            elif isinstance(operation, (ResetCacheOn, ResetEncoderOn)):
                done |= {each for each, was in before.items() if forgotten(nodes)[each] > was}
            elif isinstance(operation, Ask) and nodes.prefill.followed.population.arrived > arrived:
                done |= {(name, "asked") for name in ("answers_min", "priority") if getattr(operation, name)}
        if done == REACHED:
            break
    assert done == REACHED


def test_a_later_release_is_not_asked_for_what_it_was_not_tried_with() -> None:
    """Adapters, items and least numbers of answers stay with vLLM 0.20.2: as on one node."""
    with_all = ask(0, 70)
    keys = Keys("salt", "adapter", (Media("cat", 0, 4),), 1)
    with_all = evolve(with_all, arrival=evolve(with_all.arrival, keys=keys), answers_max=3, answers_min=2)
    stage = Stage(connector=True, adapters_max=1, encoder_budget=40, encoder_cache=40)
    case = PAIR.case(settings(), (with_all, P, D), PairStage(20, prefill=stage, decode=stage))
    assert case == PAIR.allowed(EngineBench(PAIR, "stock", ()), case)
    allowed = PAIR.allowed(EngineBench(PAIR, "native@0.33.0", ()), case)
    assert [(None, None)] * 2 == [
        (each.adapters_max, each.encoder_budget) for each in (allowed.stage.prefill, allowed.stage.decode)
    ]
    plain = evolve(with_all, arrival=evolve(with_all.arrival, keys=Keys("salt")), answers_min=0)
    assert (plain, P, D) == allowed.operations
