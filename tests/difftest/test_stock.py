"""The adapter for vLLM 0.20.2 as published.

Goal: the adapter drives vLLM's own manager as vLLM's scheduler would, for every kind of group and for transfers; a
setting that vLLM lacks is rejected in one sentence. Method: lockstep over generated cases, in which only declared
findings may differ; the groups that vLLM receives; and settings, one for each rejection, together with some that are
accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from attrs import evolve

from kvgate.adapters.groups import group_specs, unsupported
from kvgate.adapters.registry import load_system
from kvgate.findings import explain
from kvgate.findings.modelled import reference_named
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.difference import Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench, draw_case, run
from kvreference.answers import Answer, Granted
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Finish, Operation, Run, Transferred
from kvreference.settings import Settings

FULL = Group(Kind.FULL, 16)
WINDOW = Group(Kind.SLIDING_WINDOW, 16, 64)
LOCAL = Group(Kind.CHUNKED_LOCAL, 16, 64)

AGREED = {
    "local": 2000,
    "local+transfers": 2000,
    "mamba-none": 2000,
    "mamba-none+transfers": 2000,
    "mamba-all": 2000,
    "mamba-all+transfers": 1000,
    "dsv4-flash": 400,
    "dsv4-flash+transfers": 400,
    "full+transfers": 2000,
    "swa+eagle+transfers": 2000,
    "gemma-hybrid+transfers": 1000,
    "gpt-oss-hybrid+mtp+transfers": 1000,
    "mixed-blocks+transfers": 2000,
}
"""Models on which nothing differs that is not declared, and how many operations are run here."""


def drawn(
    model: str, operations: int
) -> Iterator[tuple[Settings, list[Operation], list[Divergence], list[str | None]]]:
    """Cases on vLLM until so many operations were performed: each with what diverged, and what explains it."""
    pytest.importorskip("vllm")
    bench, performed, index = Bench(load_system("stock").factory), 0, 0
    while performed < operations:
        lane = Lane(load(model), ("tiny", "hostile")[index % 2])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"stock/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        yield (
            case.settings,
            lockstep.performed,
            list(divergences),
            [explain(divergence, lockstep) for divergence in divergences],
        )
        performed, index = performed + len(lockstep.performed), index + 1


@pytest.mark.few(2)
@pytest.mark.parametrize(("model", "operations"), AGREED.items(), ids=AGREED)
def test_vllm_and_the_reference_agree(model: str, operations: int) -> None:
    """But for what is declared; and where other nodes take part, they do."""
    seen: Counter[str] = Counter()
    for settings, performed, divergences, known in drawn(model, operations):
        assert [] == [each for each, finding in zip(divergences, known, strict=True) if finding is None]
        seen.update(what_happened(settings, performed))
    assert seen["Granted"] > 10
    assert ("+transfers" in model) == (seen["at once"] > 0) == (seen["later"] > 0) == (seen["arrived"] > 0)
    assert load(model).geometry.fences == (seen["Dispatch"] > 0)


def what_happened(settings: Settings, performed: list[Operation]) -> Iterator[str]:
    """The effects of a case's operations, by the reference."""
    manager = reference_named("stock")(settings)
    for operation in performed:
        answer: Answer = manager.apply(operation)
        yield type(operation).__name__
        if isinstance(answer, Granted):
            yield "Granted"
            if answer.external_tokens:
                yield "later" if answer.loads else "at once"
        if isinstance(operation, Transferred) and operation.succeeded:
            yield "arrived"


WINDOW_OF_32 = Settings(
    Geometry((FULL, evolve(WINDOW, window_tokens=32))), blocks=30, tokens_max=100, chunk_tokens=16, requests_max=2
)


def performed_on_vllm(settings: Settings, *operations: Operation) -> Answer | None:
    """The answer to the last operation; nothing may differ from the reference on the way."""
    pytest.importorskip("vllm")
    lockstep = Bench(load_system("stock").factory, ("lockstep", "check", "ghost")).set_up(settings)
    for operation in operations:
        assert lockstep.perform(operation) is None
        assert lockstep.performed[-1] == operation
    return lockstep.answers[1]


def test_an_admission_reports_the_blocks_for_external_tokens() -> None:
    """vLLM's own answer leaves them out. Tokens before the window have none."""
    arrival = Arrive(0, (Run(0, 80),))
    at_once = performed_on_vllm(WINDOW_OF_32, arrival, Admit(0, 16, 64))
    assert Granted(0, ((1, 2, 3, 4, 7), (5, 6, 8)), external_tokens=64) == at_once
    later = performed_on_vllm(WINDOW_OF_32, arrival, Admit(0, 16, 64, loads=True))
    assert Granted(0, ((1, 2, 3, 4), (5, 6)), external_tokens=64, loads=True) == later
    loaded = performed_on_vllm(
        WINDOW_OF_32, arrival, Admit(0, 16, 64, loads=True), Transferred(0), Admit(0, 16, external_tokens=7)
    )
    assert Granted(0, ((7,), (8,))) == loaded


@pytest.mark.parametrize(
    "ends",
    [
        (Admit(0, 16, 64), Finish(0, sends=True), Transferred(0)),
        (Admit(0, 16, 64, loads=True), Abort(0), Transferred(0)),
        (Admit(0, 16, 64, loads=True), Transferred(0, succeeded=False), Abort(0)),
        (Admit(0, 16, 64, loads=True), Transferred(0), Abort(0)),
    ],
    ids=["sent", "aborted", "failed", "arrived"],
)
def test_blocks_are_held_until_a_transfer_is_over(ends: tuple[Operation, ...]) -> None:
    """For a finished or aborted request; afterwards neither side has anything of it."""
    pytest.importorskip("vllm")
    operations = (Arrive(0, (Run(0, 80),)), *ends)
    lockstep, divergences = run(Bench(load_system("stock").factory), WINDOW_OF_32, operations)
    assert [] == divergences
    assert tuple(lockstep.performed[: len(operations)]) == operations
    assert not lockstep.system.population.alive


def test_a_state_serves_no_request_before_its_step_is_dispatched() -> None:
    """A step of vLLM ends when the next one starts."""
    settings = Settings(load("mamba-all").geometry, blocks=60, tokens_max=100)
    first = (Arrive(0, (Run(0, 32),)), Admit(0, 32), Arrive(1, (Run(0, 33),)))
    assert not isinstance(performed_on_vllm(settings, *first, Admit(1, 1)), Granted)
    granted = performed_on_vllm(settings, *first, Dispatch(), Admit(1, 1))
    assert isinstance(granted, Granted)
    assert 32 == granted.hit_tokens


# The groups


def kinds(*groups: Group) -> list[tuple[str, bool]]:
    """The kind of every group as vLLM is given it, and whether it is flagged."""
    pytest.importorskip("vllm")
    return [(type(each.kv_cache_spec).__name__, each.is_eagle_group) for each in group_specs(Geometry(groups))]


def test_every_kind_of_group_has_its_name_in_vllm() -> None:
    """In a model with compressed groups, windows are kept like latent attention."""
    mamba = Group(Kind.MAMBA, 16, states=StateMode.ALL)
    named = kinds(FULL, WINDOW, LOCAL, mamba)
    assert ["FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec", "MambaSpec"] == [n for n, _ in named]
    compressed = kinds(evolve(FULL, compress_ratio=4), WINDOW)
    assert ["MLAAttentionSpec", "SlidingWindowMLASpec"] == [name for name, _ in compressed]


def test_numbers_of_a_group_reach_vllm() -> None:
    """Block sizes in tokens, windows, ratios, modes and states for drafts."""
    pytest.importorskip("vllm")
    mamba = Group(Kind.MAMBA, 32, states=StateMode.ALIGN, draft_states=3)
    specs = [
        each.kv_cache_spec for each in group_specs(Geometry((evolve(FULL, compress_ratio=4), WINDOW, LOCAL, mamba)))
    ]
    assert [16, 16, 16, 32] == [spec.block_size for spec in specs]
    attributes = [
        (0, "compress_ratio", 4),
        (0, "storage_block_size", 4),
        (1, "sliding_window", 64),
        (2, "attention_chunk_size", 64),
        (3, "mamba_cache_mode", "align"),
        (3, "num_speculative_blocks", 3),
    ]
    assert attributes == [(index, name, getattr(specs[index], name)) for index, name, _ in attributes]


def test_vllm_flags_no_group_or_the_one_that_drafts() -> None:
    """None where all attention has a draft layer: then vLLM takes all groups for it, states included."""
    drafting, mamba = evolve(FULL, lookahead=True), Group(Kind.MAMBA, 16, states=StateMode.ALL)
    assert [False, True] == [flag for _, flag in kinds(WINDOW, drafting)]
    assert [False, False] == [flag for _, flag in kinds(evolve(WINDOW, lookahead=True), drafting)]
    assert [False, False] == [flag for _, flag in kinds(drafting, mamba)]
    assert [False, False] == [flag for _, flag in kinds(FULL, WINDOW)]


# Settings that vLLM does not have

REFUSED = {
    "gemma-hybrid+masked": "a retention interval of 16 tokens: vLLM 0.20.2 caches every block that is full",
    "gemma-hybrid+retention": "a retention interval of 0 tokens: vLLM 0.20.2 caches every block that is full",
    "gemma-hybrid+scratch": "scratch first: vLLM 0.20.2 has one free queue, in the order of release",
    "gemma-hybrid+pinned=2": "a pinned tier (drops of 2 blocks and more): vLLM 0.20.2 pins nothing",
    "dsv4-flash+partial": "partial hits in group 0 (a unit of 128 tokens in blocks of 256): "
    "vLLM 0.20.2 caches whole blocks only",
    "local+eagle": "a draft layer in group 1: vLLM 0.20.2 asserts that chunked local attention has none",
}


@pytest.mark.parametrize(("model", "message"), REFUSED.items(), ids=REFUSED)
def test_what_vllm_does_not_have_is_rejected(model: str, message: str) -> None:
    """With the setting, and what vLLM has instead. The same model without it is accepted."""
    settings = load(model).features.applied_to(Settings(load(model).geometry, blocks=2000))
    assert message == unsupported(settings)
    assert unsupported(Settings(load(model.partition("+")[0]).geometry, blocks=2000)) is None
    pytest.importorskip("vllm")
    with pytest.raises(UsageError) as error:
        Bench(load_system("stock").factory).set_up(settings)
    assert f"the system does not support the settings it was given: {message}" == str(error.value)


def test_groups_that_vllm_would_not_make_are_rejected() -> None:
    """It makes one group of those that are alike, and asserts the rest."""
    alike = Settings(Geometry((WINDOW, evolve(WINDOW, lookahead=True))), blocks=100)
    assert "2 groups that are alike: vLLM 0.20.2 makes one of them, and asserts that they differ" == unsupported(alike)
    sizes = Settings(Geometry((evolve(FULL, block_size_tokens=32), LOCAL)), blocks=100)
    message = "group 1: vLLM 0.20.2 asserts that blocks have one size where attention is chunked local"
    assert message == unsupported(sizes)
    assert unsupported(Settings(Geometry((WINDOW,)), blocks=100)) is None


def test_transfers_of_states_at_block_ends_are_rejected() -> None:
    """Only vLLM's scheduler shows that it has none, so the operation is rejected."""
    pytest.importorskip("vllm")
    settings = Settings(load("mamba-align").geometry, blocks=60, tells_events=False)
    bench = Bench(load_system("stock").factory)
    arrival = Arrive(0, (Run(0, 40),))
    assert [] == run(bench, settings, (arrival, Admit(0, 32)))[1]
    with pytest.raises(UsageError, match=r"does not support transfers where states are kept in mode align: .* asserts"):
        run(bench, settings, (arrival, Admit(0, 32, external_tokens=1)))
