"""The simulation in ranges is the reference, block for block.

Goal: the arm ``ranges`` gives the reference's results. Method: both serve small random workloads, and agree on every
request, on the pool's use and on the order of the free queue after every step. Each part, broken on purpose, makes them
differ. vLLM's real scheduler serves the same and agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.comparison import difference
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.ranges import lookup, manager
from kvgate.simulation.ranges.arm import RangesRun
from kvgate.simulation.ranges.content import Path, Piece, Row
from kvgate.simulation.ranges.content import Serving as Served
from kvgate.simulation.ranges.due import Sparse
from kvgate.simulation.ranges.pool import Pool, Queue, Scratch
from kvgate.simulation.reference import ReferenceRun
from kvgate.simulation.workload import Session, Turn, Workload, single
from kvreference.compressed import dsv4_flash
from kvreference.content import Prefix
from kvreference.operations import Run, spell

from .small_workloads import draw, draw_for_vllm

Held = list[tuple[int, tuple[int, ...]] | None]
"""The blocks of a queue: the group and the tokens up to a block's end, or None if it is not cached."""

drawn = settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def agree(setting: Setting) -> str | None:
    """In what the two arms differ, or None."""
    ours, theirs = arm_of("ranges").run(setting), arm_of("reference").run(setting)
    if not ours.soundness.sound:
        return ours.soundness.unsound
    return difference(ours, theirs) or (None if ours.usage == theirs.usage else "the pool's use")


@pytest.mark.ci
@drawn
@given(st.randoms(use_true_random=False))
def test_every_request_is_served_alike(rng: Random) -> None:
    """Goal: hits, evictions, preemptions, counters and the pool's use agree. Method: drawn workloads, both arms."""
    assert agree(draw(rng)) is None


def pausing(setting: Setting, rng: Random) -> Setting:
    """The same workload, whose clients pause."""
    sessions = tuple(
        Session(tuple(evolve(turn, pause_steps=rng.choice([0, 1, 5, 40])) for turn in session.turns))
        for session in setting.workload.sessions
    )
    return evolve(setting, workload=evolve(setting.workload, sessions=sessions))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(30))
def test_clients_pause_alike(seed: int) -> None:
    """Goal: every arm waits for the same pauses. Method: drawn workloads with pauses, which do change the run."""
    setting = pausing(draw(Random(seed)), Random(seed))
    assert agree(setting) is None


def test_a_pause_changes_what_is_served_when() -> None:
    """Control: of the drawn workloads some are served in other steps."""
    settings = [draw(Random(seed)) for seed in range(10)]
    without, paused = (
        [arm_of("ranges").run(each).steps for each in result]
        for result in (settings, [pausing(each, Random(1)) for each in settings])
    )
    assert without != paused


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(30))
def test_the_interval_alone_is_the_reference_without_replay_boundary(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the policy that no release has. Method: the reference with its sentence on the boundary broken."""
    setting = draw(Random(seed))
    alone = evolve(setting, policy=evolve(setting.policy, keeps_replays=False))
    with pytest.raises(UsageError, match="only ranges know 'interval-only'"):
        arm_of("reference").run(alone)
    ours = arm_of("ranges").run(alone)
    monkeypatch.setattr("kvreference.retention.replay_boundary", lambda _geometry, _tokens: 0)
    assert difference(ours, arm_of("reference").run(setting)) is None


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(10))
def test_the_free_queue_is_the_same_after_every_step(seed: int) -> None:
    """Goal: the order in which blocks will be taken agrees, by content. Method: both side by side, step by step."""
    setting = draw(Random(seed))
    ours, theirs = RangesRun(setting), ReferenceRun(setting)
    while not theirs.clients.over:
        for run in (ours, theirs):
            run._send()
            run._step()
        assert queues_of_reference(theirs) == queues_of_ranges(ours)


def queues_of_reference(run: ReferenceRun) -> tuple[Held, Held]:
    """The free and the pinned blocks of the reference, in order."""
    pool = run.manager.pool
    texts: dict[object, tuple[int, tuple[int, ...]]] = {}
    for content in pool.cached.entries():
        pieces: list[tuple[int, ...]] = []
        node: Prefix | None = content[1]
        while node is not None:
            assert isinstance(node.piece, tuple), "tokens, and what else they depend on"
            pieces.append(node.piece[0])
            node = node.parent
        texts[content] = content[0], tuple(token for piece in reversed(pieces) for token in piece)
    contents = pool.cached.contents()
    free, pinned = pool.free, pool.pinned_blocks().queue
    return [texts.get(contents[block]) for block in free], [texts.get(contents[block]) for block in pinned]


def queues_of_ranges(run: RangesRun) -> tuple[Held, Held]:
    """The same in ranges."""
    pool = run.scheduler.manager.pool
    sizes = [group.block_size_tokens for group in run.setting.settings.geometry.groups]
    texts: dict[int, tuple[int, ...]] = {}
    for sending in (entry.sending for entry in run.ledger.entries.values()):
        texts[sending.number] = tuple(spell(sending.asked.runs))

    known: dict[int, tuple[int, ...]] = {}

    def text(path: Path) -> tuple[int, ...]:
        if id(path) not in known:
            known[id(path)] = next(text for text in texts.values() if _follows(run, path, text))
        return known[id(path)]

    def blocks(queue: Queue) -> Held:
        held: Held = []
        for node in queue:
            if isinstance(node, Scratch):
                held += [None] * node.blocks
            elif isinstance(node, Piece):
                size, tokens = sizes[node.row.group], text(node.row.path)
                held += [(node.row.group, tokens[: i * size]) for i in range(node.end, node.first, -1)]
        return held

    return [*[None] * pool.scratch, *blocks(pool.queue)], blocks(pool.pinned)


def _follows(run: RangesRun, path: Path, text: tuple[int, ...]) -> bool:
    """Whether a path is the one of a text."""
    other = run.scheduler.manager.lines.path()
    for token in text:
        run.scheduler.manager.lines.extend(other, Run(token, 1))
    return path.end == other.end and path.agrees_with(other, path.end)


# Broken on purpose


def _released_upwards(pool: Pool, spans: list[tuple[Row, int, int]]) -> None:
    for row, first, end in spans:
        for piece in row.within(first, end):
            piece.references -= 1
            if not piece.references:
                (pool.pinned if piece.pinned else pool.queue).append(piece)
                first += piece.end - piece.first
        pool._put_scratch(end - first)


def _without_first(search: lookup._Found, hit_tokens: int) -> int | None:
    first, end = search.group.blocks_needed(hit_tokens)
    line, _, _ = search.path.segment_of(search.group.block_size_tokens, max(first, end - 1))
    there, _, row = line.serving[search.index].locate(max(first, end - 1))
    return there if row is None and end > first else None


def _never_moved_up(serving: Served, depth: int, first: int, end: int) -> None:
    serving.layers[depth].remove(first, end)


def _quiet_for_longer(self: manager.Manager, place: int, table: manager.Table) -> int:
    return table.end * self.groups[place].block_size_tokens


BREAKS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "releases the first blocks first": (Pool, "release", _released_upwards),
    "never pins": (Pool, "_pin", lambda _pool, _spans: None),
    "does not put scratch apart": (Pool, "_put_scratch", lambda pool, blocks: pool.queue.append_scratch(blocks)),
    "counts free blocks of a hit twice": (Pool, "count_free", lambda _pool, _spans: 0),
    "a request registered after others is lost": (Served, "_drop", _never_moved_up),
    "a hit needs its last block alone": (lookup._Found, "gap", _without_first),
    "skips hits in front of a gap": (lookup._Found, "before_gap", lambda _found, gap, _hit: gap),
    "has no replay boundary": (manager, "replay_boundary", lambda _geometry, _tokens: 0),
    "takes one boundary for the next": (Sparse, "_next", lambda due, position, full: (0, full, full)),
    "ends a quiet stretch a token late": (manager.Manager, "_quiet", _quiet_for_longer),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the comparison fails where it should. Method: one part of the simulation in ranges broken at a time."""
    owner, attribute, broken = BREAKS[name]
    monkeypatch.setattr(owner, attribute, broken)
    assert any(agree(draw(Random(seed))) is not None for seed in range(60))


# Rejections, and the sizes that it is for


@pytest.mark.parametrize(
    ("owner", "attribute", "broken"),
    [
        (Served, "forget", lambda _serving, _first, _end, _row: None),
        (Path, "segment_of", lambda path, _size, _index: (path.lines[0], 0, None)),
    ],
    ids=["what was evicted still serves", "what another prompt computed serves"],
)
def test_an_unsound_hit_is_seen_by_the_witness(
    owner: type, attribute: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a hit on the wrong blocks is reported. Method: the index of what is cached is broken, the
    witness is not.
    """
    monkeypatch.setattr(owner, attribute, broken)
    assert any(_unsound(draw(Random(seed))) for seed in range(60))


def _unsound(setting: Setting) -> bool:
    run = RangesRun(setting)
    # An unsound read breaks more later on.
    with suppress(AssertionError, IndexError):
        run.finish()
    return run.scheduler.manager.witness.unsound is not None


def test_settings_without_ranges_are_rejected() -> None:
    """Goal: nothing is simulated that would be wrong. Method: drafts, and hits that end inside blocks."""
    turns = single(Turn((Run(0, 600),), Run(1000, 2)))
    for serving, policy in (
        (Serving("dsv4", dsv4_flash(), 500, drafts_max=1), "dense"),
        (Serving("dsv4", dsv4_flash(), 500), "partial=128"),
    ):
        with pytest.raises(UsageError, match="ranges know no drafts"):
            arm_of("ranges").run(Setting(Workload("one", turns), serving, policy_of(policy)))


def test_a_million_tokens_are_a_few_objects() -> None:
    """Goal: long prompts are cheap by design. Method: count the objects of a prompt, not the time."""
    turns = single(Turn((Run(0, 1_000_000),), Run(2_000_000, 1)))
    serving = Serving("dsv4", dsv4_flash(), 71_833, tokens_max=1_010_000)
    run = RangesRun(Setting(Workload("one", turns), serving, policy_of("retention=32768+scratch")))
    result = run.finish()
    pieces = sum(isinstance(node, Piece) for node in run.scheduler.manager.pool.queue)
    # One for what full attention keeps, and one for each of 30 intervals and the replay boundary in four groups.
    assert result.steps == 123
    assert pieces == 1 + 4 * 31


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(8))
def test_the_real_scheduler_serves_alike(seed: int) -> None:
    """Goal: ranges tell what vLLM does. Method: small workloads that vLLM's own scheduler serves as well."""
    pytest.importorskip("vllm")
    setting = draw_for_vllm(Random(seed))
    arm = "stock" if setting.policy.name == "dense" else "retention"
    ours, theirs = arm_of("ranges").run(setting), arm_of(arm).run(setting)
    assert theirs.soundness.unsound is None
    assert difference(ours, theirs) is None
