"""A finding excuses nothing but itself.

Goal: where findings act, a broken rule of the reference and another defect of the system are still divergences. Method:
break each rule that has a delta, on the reference's side; inject similar faults into a system that has the findings;
change misreads that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve, frozen

from kvgate.adapters.release_variants import release_of
from kvgate.findings.in_turn import without_look_ahead
from kvgate.findings.past_load import miscounted
from kvgate.findings.register import FOLDER, all_findings, with_ids
from kvgate.gate.case_runner import CaseRun, Lane, run_case
from kvgate.gate.fault import GateFaultError
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench, draw_case
from kvgate.levels.registry import read
from kvgate.monitors.slot_memory import ENDED, FAILED, LATE, PREEMPTED, GhostMemory, Misread, Where
from kvreference.answers import Done, Granted, Refused
from kvreference.attention import Kind
from kvreference.content import ExtraKey
from kvreference.events import Event, Stored
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.tables import Table

from .having import Having, having, with_base

CASES = 40
"""In how many cases a fault is looked for at most."""


@frozen
class Fault:
    """A fault, and where it is looked for: on a finding's trace, or in cases of a model."""

    rule: str
    answer: Callable[..., Any]
    where: str
    release: str = "stock"

    def cases(self) -> Sequence[Case]:
        if self.where.endswith(".jsonl"):
            return [read(next(FOLDER.glob(self.where))).case]
        lane = Lane(load(self.where), "hostile")
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        return [draw_case(generator, lane, f"findings/{index}", 0) for index in range(CASES)]

    @property
    def delta(self) -> Delta:
        return Delta(self.rule, self.answer)

    def system(self, *wrong: Delta) -> type[Having]:
        release = release_of(self.release)
        assert release is not None
        return having(release, wrong=wrong)


def first_found(system: type[Having], cases: Sequence[Case]) -> CaseRun | None:
    """The first run that finds anything."""
    runs = (run_case(Bench(system), case) for case in cases)
    return next((run for run in runs if run.divergences), None)


def without_domain(domain: str) -> Callable[..., Any]:
    """Content does not depend on these keys."""
    return lambda names, *rest: tuple(key for key in names(*rest) if key.domain != domain)


def shorter(longest: Callable[..., int], found: Sequence[Any], lengths: range, *rest: int) -> int:
    """Only three lengths are tried."""
    first = longest(found, lengths, *rest)
    return first if first in lengths[:3] else 0


def without_parents(events: Callable[..., list[Event]], *rest: Any) -> list[Event]:
    """No event names its parent block."""
    return [evolve(event, parent=None) if isinstance(event, Stored) else event for event in events(*rest)]


def last_left_out(tables: Callable[..., tuple[tuple[int, ...], ...]], *rest: Any) -> tuple[tuple[int, ...], ...]:
    """The last block of a hit is left out in the first group."""
    first, *others = tables(*rest)
    return first[:-1], *others


def one_grain_less(content: Callable[..., Any], geometry: Any, index: int, prefixes: Any, tokens: int) -> Any:
    """A block is known by one grain less than it holds."""
    return content(geometry, index, prefixes, max(tokens - geometry.grain_tokens, geometry.grain_tokens))


def first_grain_too(ends: Callable[..., list[int]], group: Any, request: Any, table: Table, *rest: Any) -> list[int]:
    """The first grain of a block of full attention is an entry too."""
    return [*ends(group, request, table, *rest), *([16] if group.keeps_all else [])]


def first_block_again(again: Callable[..., tuple[int, ...]], *rest: Any) -> tuple[int, ...]:
    """A first block of full attention that was evicted is cached again, too."""
    _geometry, group, _request, table, _tokens, is_cached = rest
    lost = group.keeps_all and table.registered and not is_cached(table.blocks[0])
    return (*again(*rest), *([0] if lost else []))


TAIL = "f012*/trace.jsonl"
BROKEN = {
    "salts ignored": Fault("names_of_piece", without_domain("salt"), "f003*/trace.jsonl"),
    "adapters ignored": Fault("names_of_piece", without_domain("lora"), "full"),
    "media ignored": Fault("names_of_piece", without_domain("media"), "full"),
    "one block too few": Fault("blocks_to_come_with", lambda count, *rest: count(*rest) - 1, "swa"),
    "three lengths": Fault("longest_length", shorter, "swa"),
    "three lengths in turn": Fault("longest_length", shorter, "two-windows+eagle"),
    "a block left out": Fault("tables_found", last_left_out, "compressed"),
    "one token computed too few": Fault("tokens_computed", lambda count, *rest: count(*rest) - 1, "swa+transfers"),
    "last group first": Fault(
        "rounds_of_admission", lambda rounds, *rest: _one_by_one(rounds(*rest)), "gemma-hybrid+transfers"
    ),
    "events without parents": Fault("stored_events", without_parents, "swa"),
    "an event a block": Fault("stored_events", lambda events, *rest: _a_block_each(events, *rest), "swa"),
    "never due by 011": Fault("due_tokens", lambda _due, *_rest: None, "f011*/trace.jsonl", "native@0.22.1"),
    "cached again": Fault("cached_again", first_block_again, "mamba-align+scratch", "native@0.33.0"),
    "never due by 015": Fault("due_tokens", lambda _due, *_rest: None, "f015*/trace.jsonl", "native@0.23.0"),
    "never due by 016": Fault("due_tokens", lambda _due, *_rest: None, "f016*/trace.jsonl", "native@0.33.0"),
    "an entry too many": Fault("ends_inside", first_grain_too, TAIL, "native@0.33.0"),
    "nothing lost": Fault("contents_lost", lambda _lost, *_rest: [], "mixed-blocks", "native@0.33.0"),
    "in use when all are free": Fault("is_unused", lambda _unused, _references: False, "full"),
    "one free block untold": Fault("blocks_said_free", lambda said, *rest: said(*rest) - 1, "f014*/trace-load.jsonl"),
    "copies of nothing": Fault("partials_found", lambda _partials, *_rest: (), "compressed+partial", "retention"),
    "states never at their ends": Fault(
        "holds_its_end", lambda holds, group, *rest: not group.keeps_states and holds(group, *rest), "mamba-align+eagle"
    ),
    "nothing is yet to be computed": Fault("yet_to_compute", lambda _yet, *_rest: (), "mamba-all"),
    "all of it goes last": Fault(
        "goes_last", lambda _last, _group, blocks: [*filter(None, blocks)], "mamba-align+scratch", "native@0.23.0"
    ),
    "nothing passed is released": Fault("places_released", lambda _released, *_rest: (), "swa"),
    "everything is shared": Fault("is_held_by_all", lambda _held, *_rest: True, "full"),
    "a block too few is enough": Fault(
        "blocks_to_have", lambda had, *rest: had(*rest) - 1, "f080*/trace.jsonl", "ascend@0.23.0"
    ),
    "one grain less": Fault("content_up_to", one_grain_less, "f013*/trace.jsonl", "ascend"),
}


def _one_by_one(rounds: Sequence[range]) -> list[range]:
    return [range(index, index + 1) for each in rounds for index in reversed(each)]


def _a_block_each(events: Callable[..., list[Event]], *rest: Any) -> list[Event]:
    *before, due, began = rest
    return [event for position in due for event in events(*before, [position], began)]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_of_the_reference_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the rule under a delta is compared too. Method: break it on the reference's side alone; the same cases
    without the break find nothing.
    """
    fault = BROKEN[name]
    cases, system = fault.cases(), fault.system()
    assert first_found(system, cases[:3]) is None
    monkeypatch.setattr("kvgate.levels.manager.reference_of", with_base(fault.delta))
    if name == "last group first":
        # The reference rejects what would make its own counts wrong.
        with pytest.raises(GateFaultError):
            first_found(system, cases)
        return
    run = first_found(system, cases)
    assert run is not None
    assert [None] == [each.finding for each in run.found()]


WHERE_IT_ACTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("002", lambda blocks: blocks + 1),
    ("004", lambda names: (*names, ExtraKey("media", "invented", -99))),
    ("005", lambda tokens: tokens - 16),
    ("006", lambda tokens: tokens - 16),
    ("006", lambda tokens: tokens + 32),
    ("007", lambda events: events[:-1]),
    ("007", lambda events: [*events, *events]),
    ("008", lambda rounds: rounds[:-1]),
    ("009", lambda tokens: tokens - 1),
    ("033", lambda blocks: blocks + 1),
    ("036", lambda answer: answer - 16 if isinstance(answer, int) else answer[::-1]),
]
"""By finding, what the rule that its first delta is of answers wrongly. In the other direction some answer what the
system does, which is the finding itself."""


@pytest.mark.parametrize(("name", "answers"), WHERE_IT_ACTS)
def test_a_rule_that_is_broken_only_where_a_finding_acts_shows(
    name: str, answers: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no delta hides the rule that it builds on. Method: break it only for arguments for which the two differ."""
    (path,) = FOLDER.glob(f"f{name}*/trace.jsonl")
    case = read(path).case
    (finding,) = (each for each in all_findings() if each.id.startswith(name))
    delta, broken = finding.acts(case.settings, "").deltas[0], []

    def wrong(rule: Callable[..., Any], *arguments: Any) -> Any:
        ideal = rule(*arguments)
        if delta.answer(rule, *arguments) == ideal:
            return ideal
        broken.append(ideal)
        return answers(ideal)

    system = having()
    assert first_found(system, [case]) is None
    monkeypatch.setattr("kvgate.levels.manager.reference_of", with_base(Delta(delta.rule, wrong)))
    run = first_found(system, [case])
    assert broken
    assert run is not None
    assert [None] == [each.finding for each in run.found()]


def test_every_rule_with_a_delta_is_broken_once() -> None:
    """Control: no rule is missing."""
    traces = [read(path) for path in sorted(FOLDER.glob("f*/*.jsonl"))]
    rules = {
        delta.rule
        for trace in traces
        for finding in all_findings()
        if finding.where(trace.header.settings)
        for acts in [finding.acts(trace.header.settings, "0.33.0")]
        for delta in (*acts.deltas, *acts.follow, *acts.without)
    }
    # The calls that only a scheduler makes are broken in scheduling/test_engine_findings.py, those of the work monitor
    # in monitors/test_work.py. How far blocks are looked at differs between releases, too: it is compared with each of
    # them.
    of_schedulers = {"experts_returned", "tokens_read_whole", "blocks_still_valid", "prefixes_kept", "reported_stop"}
    of_schedulers |= {"tokens_passed", "tokens_counted", "lacks_blocks"}
    # That a block may be named twice is asked only where a finding says so; without it the reference raises.
    of_schedulers |= {"tokens_looked_at", "nulls_passed", "may_be_named_twice"}
    assert rules - of_schedulers == {fault.rule for fault in BROKEN.values()}
    assert len(rules) > 10


def no_look_ahead(longest: Callable[..., int], found: Sequence[Any], *rest: Any) -> int:
    """No look-ahead block is asked for."""
    return longest([without_look_ahead(each) for each in found], *rest)


def loses_an_alignment(longest: Callable[..., int], found: Sequence[Any], lengths: range, *rest: int) -> int:
    """Every hit is one alignment shorter than it could be."""
    return max(longest(found, lengths, *rest) + lengths.step, 0)


def off_by(factor: int) -> Callable[..., int]:
    """Where the pool's counter is off, it is so by ``factor`` times as much."""
    return lambda said, pool: len(pool.free) + factor * (said(pool) - len(pool.free))


LOADED_TOO_LONG = "f014*/trace-load.jsonl"
INJECTED = {
    "gate open": Fault("blocks_to_come_with", lambda _count, *_rest: 0, "swa"),
    "gate lenient": Fault("blocks_to_come_with", lambda count, *rest: count(*rest) - 1, "gemma-hybrid+mtp"),
    "salts ignored": Fault("names_of_piece", without_domain("salt"), "full"),
    "adapters ignored": Fault("names_of_piece", without_domain("lora"), "full"),
    "media ignored": Fault("names_of_piece", without_domain("media"), "full"),
    "look-ahead forgotten": Fault("longest_length", no_look_ahead, "two-windows+eagle"),
    "look-ahead forgotten where it spreads": Fault("longest_length", no_look_ahead, "gemma-hybrid+mtp"),
    "hits shortened": Fault("longest_length", loses_an_alignment, "mixed-blocks+eagle"),
    "events without parents": Fault("stored_events", without_parents, "mamba-align"),
    "in one round": Fault(
        "rounds_of_admission", lambda _rounds, tables, *_rest: [range(len(tables))], "gemma-hybrid+transfers"
    ),
    "loads keep too much": Fault("tokens_computed", lambda count, *rest: count(*rest) - 1, "swa+transfers"),
    "miscounted twice": Fault("blocks_said_free", off_by(2), LOADED_TOO_LONG),
    "miscounted the other way": Fault("blocks_said_free", off_by(-1), LOADED_TOO_LONG),
    "not miscounted": Fault("blocks_said_free", off_by(0), LOADED_TOO_LONG),
    "reset in use": Fault("is_unused", lambda _unused, _references: True, "full"),
    "miscounted twice by slots": Fault("blocks_said_free", off_by(2), "f013*/trace-load.jsonl", "ascend"),
    "an entry too many": Fault("ends_inside", first_grain_too, TAIL, "native@0.33.0"),
    "without its entry": Fault("ends_inside", lambda _ends, *rest: rest[-1], TAIL, "native@0.33.0"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", INJECTED)
def test_a_similar_fault_is_not_excused(name: str) -> None:
    """Goal: a fault that violates the guarantee of a finding is a divergence. Method: inject it into a system that has
    all findings of its release."""
    fault = INJECTED[name]
    run = first_found(fault.system(fault.delta), fault.cases())
    assert run is not None
    assert [None] == [each.finding for each in run.found()]


# Reads from a wrong slot


class Recorder:
    """Which misreads were known."""

    def __init__(self) -> None:
        self.known: list[Misread] = []

    def wrapped(self, is_known: Callable[[Misread], bool]) -> Callable[[Misread], bool]:
        def asked(misread: Misread) -> bool:
            known = is_known(misread)
            self.known += [misread] if known else []
            return known

        return asked


def other_token(misread: Misread) -> Misread:
    """The state is that of another token."""
    state, _token, media = misread.found[-1]
    return evolve(misread, found=[*misread.found[:-1], (state, -7, media)])


def never_written(misread: Misread) -> Misread:
    """Nothing was ever written there."""
    return evolve(misread, found=[])


def other_block(misread: Misread) -> Misread:
    """Another block."""
    return evolve(misread, block=misread.block + 9)


def of_another_salt(misread: Misread) -> Misread:
    """The state is that of another name."""
    return evolve(misread, found=[(None, ("another", None), None), *misread.found[1:]])


def of_another_step(misread: Misread) -> Misread:
    """The computed tokens were not loaded."""
    return evolve(misread, reader=misread.reader._replace(again=False))


def first_token_differs(misread: Misread) -> Misread:
    """The state is that of a prefix that differs from the first token on."""
    root, (state, _token, media), *rest = misread.found
    return evolve(misread, found=[root, (state, -7, media), *rest])


READ = [
    ("f003*/trace-memory.jsonl", "stock", "003", [other_token, never_written, of_another_salt]),
    ("f004*/trace-memory.jsonl", "stock", "004", [other_token, never_written, of_another_salt, first_token_differs]),
    ("f008*/trace.jsonl", "stock", "008", [other_block]),
    ("f009*/trace.jsonl", "stock", "009", [other_block, of_another_step]),
    ("f009*/trace-chunked-local.jsonl", "stock", "009", [other_block, of_another_step]),
    ("f013*/trace.jsonl", "ascend", "013", [first_token_differs, of_another_salt]),
]


@pytest.mark.parametrize(
    ("path", "release", "finding", "neighbours"), READ, ids=lambda value: value if isinstance(value, str) else ""
)
def test_another_misread_is_not_known(
    path: str, release: str, finding: str, neighbours: Sequence[Callable[[Misread], Misread]]
) -> None:
    """Goal: only what follows from a finding is known. Method: the misreads of its trace, and each of them changed."""
    case, seen = read(next(FOLDER.glob(path))).case, Recorder()
    of_release = release_of(release)
    assert of_release is not None
    lockstep = Bench(having(of_release)).set_up(case.settings)
    (ghost,) = (monitor for monitor in lockstep.monitors if isinstance(monitor, GhostMemory))
    ghost._physical.is_known = seen.wrapped(lockstep.known.is_known)
    assert [] == [found for each in case.operations if (found := lockstep.perform(each)) is not None]
    assert seen.known
    assert all(map(lockstep.known.is_known, seen.known))
    assert [finding] == sorted({each[:3] for each in lockstep.known.times} & {finding})
    for neighbour in neighbours:
        assert not any(lockstep.known.is_known(neighbour(misread)) for misread in seen.known), neighbour.__name__


def test_after_a_known_misread_another_is_a_divergence() -> None:
    """Goal: a known misread does not switch ghost memory off. Method: the memory trace of 003; then its blocks hold
    nothing any more.
    """
    case = read(next(FOLDER.glob("f003*/trace-memory.jsonl"))).case
    lockstep = Bench(having()).set_up(evolve(case.settings, blocks=16, requests_max=3))
    assert [] == [found for each in case.operations if (found := lockstep.perform(each)) is not None]
    assert lockstep.known.times["003-salt-collides-with-adapter-name"]
    (ghost,) = (monitor for monitor in lockstep.monitors if isinstance(monitor, GhostMemory))
    ghost.forget(range(case.settings.blocks))
    (_, _, second, *_) = case.operations
    assert isinstance(second, Arrive)
    assert lockstep.perform(evolve(second, request=2)) is None
    found = lockstep.perform(Admit(2, 64))
    assert found is not None
    assert ("ghost", "KV-MEM-01") == (found.detector, found.difference.statement)


@pytest.mark.parametrize("mark", [PREEMPTED, FAILED, LATE])
def test_a_mark_is_known_by_its_own_finding(mark: str) -> None:
    """Goal: 020, 021 and 022 are distinguished by what a worker knows of a block. Method: each mark, and none."""
    case = read(next(FOLDER.glob("f003*/trace-memory.jsonl"))).case
    (misread, *_) = misreads_of(case)
    settings = evolve(case.settings, loads_out_of_turn=True)
    acts = {each.id[:3]: each.acts(settings, "") for each in all_findings() if each.where(settings)}
    marked = evolve(misread, mark=mark, found=[])
    expected = {PREEMPTED: "020", FAILED: "021", LATE: "022"}[mark]
    assert [expected] == [name for name, each in acts.items() if each.misreads(marked)]
    assert [] == [name for name, each in acts.items() if each.misreads(evolve(marked, mark=None))]


def misreads_of(case: Case) -> list[Misread]:
    """The reads from wrong slots in a case."""
    lockstep, seen = Bench(having()).set_up(case.settings), Recorder()
    (ghost,) = (monitor for monitor in lockstep.monitors if isinstance(monitor, GhostMemory))
    ghost._physical.is_known = seen.wrapped(lockstep.known.is_known)
    for operation in case.operations:
        lockstep.perform(operation)
    return seen.known


def test_a_block_that_two_groups_were_given_is_known_without_the_reference() -> None:
    """Goal: 008 is known by the tables alone where no rule is asked. Method: its trace; then as if none was shared."""
    seen = misreads_of(read(FOLDER / "f008_external_tokens_take_other_hits" / "trace.jsonl").case)
    (finding,) = with_ids(["008-external-tokens-take-other-hits"])
    settings = Settings(Geometry((Group(Kind.FULL, 16), Group(Kind.SLIDING_WINDOW, 16, 32))), blocks=8)
    is_known = finding.acts(settings, "").unfollowed
    assert is_known is not None
    assert [True] * len(seen) == [is_known(each) for each in seen] != []
    assert not any(is_known(evolve(each, is_shared=False)) for each in seen)


RELEASED = [
    ("009-load-forgets-its-last-token", Where(3, 1, 64, again=True)),
    ("034-window-released-before-a-failed-load", Where(3, 1, 64, unread_after_load=50)),
]


@pytest.mark.parametrize(("finding", "reader"), RELEASED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_null_block_is_known_only_in_a_group_that_releases_blocks(finding: str, reader: Where) -> None:
    """Goal: 009 and 034 excuse no null block in a table of full attention. Method: the same read in both groups."""
    (found,) = with_ids([finding])
    settings = Settings(Geometry((Group(Kind.FULL, 16), Group(Kind.SLIDING_WINDOW, 16, 32))), blocks=8)
    is_known = found.acts(settings, "").misreads
    misread = Misread(reader, 2, 0, "token 2 in its slot", "null", [], [])
    assert is_known(misread)
    assert not is_known(evolve(misread, reader=reader._replace(group=0)))


OF_SLOTS = Geometry((Group(Kind.FULL, 32, compress_ratio=4, whole_slots=True), Group(Kind.SLIDING_WINDOW, 16, 32)))
"""A block of the first group has 8 slots: block 1, tokens 32 to 63, is known by the first 16 tokens."""


@pytest.mark.parametrize(
    ("shared", "group", "salt", "longer", "known"),
    [
        (16, 0, None, 0, True),
        (20, 0, None, 0, True),
        (15, 0, None, 0, False),
        (16, 1, None, 0, False),
        (16, 0, "other", 0, False),
        (16, 0, None, 1, False),
    ],
)
def test_a_read_is_known_by_what_shares_its_slots(
    shared: int, group: int, salt: str | None, longer: int, known: bool
) -> None:
    """Goal: 013 knows a prefix that shares the block's slots, and no shorter one, in compressed groups alone. Method: a
    read of token 40 that finds another prefix."""
    (finding,) = with_ids(["013-compressed-block-known-by-its-slots"])
    wanted = [(None, (None, None), None), *((token, token, ()) for token in range(41))]
    other = [*range(shared), *range(900, 941 - shared + longer)]
    found = [(None, (salt, None), None), *((token, token, ()) for token in other)]
    misread = Misread(Where(3, group, 64), 40, 5, "this", "another", wanted, found)
    assert known == finding.acts(Settings(OF_SLOTS, blocks=8), "").misreads(misread)


@pytest.mark.parametrize(("computed_from", "known"), [(None, True), (41, True), (40, False), (0, False)])
def test_a_slot_that_was_never_written_is_known_within_a_hit(computed_from: int | None, known: bool) -> None:
    """Goal: 013 excuses no slot that the request should have written itself. Method: a read of token 40 that finds
    nothing, with hits that end before it and after it."""
    (finding,) = with_ids(["013-compressed-block-known-by-its-slots"])
    wanted = [(None, (None, None), None), *((token, token, ()) for token in range(41))]
    reader = Where(3, 0, 64, computed_from=computed_from)
    misread = Misread(reader, 40, 5, "this", "nothing", wanted, [])
    assert known == finding.acts(Settings(OF_SLOTS, blocks=8), "").misreads(misread)


def raised_in(name: str) -> AssertionError:
    """An assertion that failed in a function of that name."""
    scope: dict[str, Any] = {}
    exec(f"def {name}():\n    raise AssertionError", scope)
    with pytest.raises(AssertionError) as raised:
        scope[name]()
    return raised.value


REJECTED, DONE = Refused(0, gate=True), Done()
OF_THE_QUEUE, ANOTHER = raised_in("popleft_n"), raised_in("cache_full_blocks")
ASSERTION, SCHEDULED = ("KV-SYS-01", AssertionError.__name__), ("KV-OP-04", "answer to Schedule")


@pytest.mark.parametrize(
    ("detector", "violated", "answers", "raised", "known"),
    [
        ("scheduler", ASSERTION, (DONE, DONE), OF_THE_QUEUE, True),
        ("scheduler", ASSERTION, (DONE, DONE), ANOTHER, False),
        ("scheduler", ASSERTION, (DONE, DONE), None, False),
        ("lockstep", ASSERTION, (REJECTED, None), OF_THE_QUEUE, True),
        ("lockstep", ASSERTION, (REJECTED, None), ANOTHER, False),
        ("lockstep", ASSERTION, (DONE, None), OF_THE_QUEUE, False),
        ("lockstep", ("KV-SYS-01", TypeError.__name__), (REJECTED, None), OF_THE_QUEUE, False),
        ("lockstep", SCHEDULED, (REJECTED, Granted(0, ((*range(12),),))), None, True),
        ("lockstep", SCHEDULED, (REJECTED, Granted(0, ((*range(11),),))), None, False),
        ("lockstep", ("KV-INV-05", "cached map"), (REJECTED, REJECTED), None, False),
        ("ghost", ("KV-MEM-01", "request 3, group 0"), (REJECTED, REJECTED), None, False),
        ("line", ("KV-LIVE-01", "request 4"), (REJECTED, REJECTED), None, False),
        ("clients", ("KV-SYS-05", "request 4"), (REJECTED, REJECTED), None, False),
    ],
)
def test_a_miscount_explains_only_what_takes_from_an_empty_queue(
    detector: str,
    violated: tuple[str, str],
    answers: tuple[Any, Any],
    raised: AssertionError | None,
    known: bool,
) -> None:
    """Goal: 013 and 014 excuse no other assertion, and nothing else next to a rejected request. Method: the same
    miscount with 11 blocks in the reference's queue, and other answers, detectors and exceptions."""
    reference = SimpleNamespace(snapshot=lambda: SimpleNamespace(blocks_free=16), pool=SimpleNamespace(free=range(11)))
    lockstep: Any = SimpleNamespace(reference=reference, answers=answers, raised=raised)
    assert known == miscounted(Divergence(0, None, detector, Difference(*violated, "an answer", "")), lockstep)


@pytest.mark.parametrize(
    ("drafts", "in_flight", "later", "known"),
    [(0, 1, 1, False), (3, 1, 3, True), (3, 1, 4, False), (0, 2, 1, True), (0, 2, 2, False), (3, 2, 7, True)],
)
def test_a_state_is_known_by_061_only_if_a_step_can_have_passed_it(
    drafts: int, in_flight: int, later: int, known: bool
) -> None:
    """Goal: a state that is further than drafts and steps in flight reach is new. Method: several distances."""
    (finding,) = with_ids(["061-sent-with-what-follows-the-end"])
    geometry = Geometry((Group(Kind.FULL, 16), Group(Kind.MAMBA, 16, states=StateMode.ALL, draft_states=drafts)))
    settings = Settings(geometry, blocks=40, drafts_max=drafts, steps_in_flight_max=in_flight)
    wanted = [(None, (None, None), None), *((token, token, ()) for token in range(20))]
    found = [*wanted, *((token, token, ()) for token in range(20, 20 + later))]
    misread = Misread(Where(3, 1, 64), 19, 5, "this", "another", wanted, found, mark=ENDED)
    assert known == finding.acts(settings, "").on_its_own(misread)
