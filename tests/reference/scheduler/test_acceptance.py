"""Acceptance: which requests are rejected when they are submitted, and that every accepted one fits."""

from __future__ import annotations

from typing import Any

import pytest

from kvreference.admission import fits_empty_pool
from kvreference.compressed import dsv4_flash_ascend
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run
from kvreference.scheduler.limits import Limits, Reason
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.scheduler.room import blocks_to_run, is_room
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings

from .stage import DRAFTING, FULL, WINDOW, line, perform, scheduler_of, submit

GEOMETRIES = (
    Geometry((FULL,)),
    Geometry((DRAFTING, WINDOW)),
    Geometry((Group("sliding_window", 4, 3, lookahead=True), Group("full", 2))),
    Geometry((FULL, Group("chunked_local", 2, 4))),
    Geometry((FULL, Group("mamba", 8, states="align", draft_states=3))),
    Geometry((FULL, Group("mamba", 8, states="all", draft_states=3))),
    Geometry((Group("full", 4, unit_tokens=2), WINDOW)),
)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [(128, None), (129, Reason.NEVER_FITS), (200, Reason.NEVER_FITS), (4096, Reason.PROMPT_TOO_LONG)],
)
def test_a_request_that_can_never_fit_is_rejected(tokens: int, reason: Reason | None) -> None:
    """Goal: an oversize request does not block others (bug oversize-request-blocks-queue).

    Method: pool 9, of which the null block holds nothing: 8 blocks of 16 are 128 tokens. A request of 20 after it is
    served in any case.
    """
    scheduler = scheduler_of(Group("full", 16), blocks=9, tokens_max=4096, chunk_tokens=64)
    assert reason == perform(scheduler, submit(0, tokens)).reason
    perform(scheduler, submit(scheduler.manager.population.arrived, 20), *[Step()] * 3)
    assert ([], []) == line(scheduler)


def test_refusal_is_progress_and_leaves_nothing() -> None:
    """Goal: a rejection is reported at once, and the request never arrives. Method: the block manager is not called."""
    scheduler = scheduler_of(FULL, blocks=3)
    observation = perform(scheduler, submit(0, 5))
    assert (Reason.NEVER_FITS, (), True) == (observation.reason, observation.performed, observation.progress)
    assert 0 == scheduler.manager.population.arrived


def test_answers_count() -> None:
    """Goal: an accepted request gets to its end. Method: 4 tokens fit into 2 blocks with one answer, which is never
    computed; a second answer needs the first in a third block.
    """
    scheduler = scheduler_of(FULL, blocks=3)
    assert Reason.NEVER_FITS == perform(scheduler, submit(0, 4, answers_max=2)).reason
    assert None is perform(scheduler, submit(0, 4, answers_max=1)).reason


def test_the_longest_request_bounds_the_answers() -> None:
    """Goal: no answer is longer than any request may become. Method: 3 tokens of at most 5: two answers."""
    scheduler = scheduler_of(FULL, tokens_max=5)
    perform(scheduler, submit(0, 3, answers_max=100), Step())
    assert ([0], []) == line(scheduler)
    perform(scheduler, Step())
    assert ([], []) == line(scheduler)


def test_speculation_counts() -> None:
    """Goal: a decode step needs slots for its drafts and for those to come. Method: 4 tokens of which the last is the
    answer to the first 3, with 2 drafts and 2 look-ahead slots, are 8 slots: 4 blocks; without speculation 2.
    """
    for drafts_max, blocks in ((2, 4), (0, 2)):
        asked = submit(0, 3, answers_max=2)
        assert Reason.NEVER_FITS == perform(scheduler_of(DRAFTING, blocks=blocks, drafts_max=drafts_max), asked).reason
        scheduler = scheduler_of(DRAFTING, blocks=blocks + 1, drafts_max=drafts_max)
        perform(scheduler, asked, Step((Reply(drafts=2),)), Step((Reply(accepted=2, drafts=2),)))
        assert ([], []) == line(scheduler)


def test_no_slot_lies_beyond_the_longest_request() -> None:
    """Goal: speculation at the very end asks for nothing that is never used. Method: at most 8 tokens, of which 7 are
    computed, with 2 drafts and 2 look-ahead slots. A window of 16 keeps 4 blocks of 2, not 6. States every 8 tokens are
    one, and one for each draft; a second is for a ninth token.
    """
    window = Group("sliding_window", 2, 16, lookahead=True)
    states = Group("mamba", 8, states="align", draft_states=2)
    for groups, blocks in (((window,), 4), ((FULL, states), 7)):
        scheduler = scheduler_of(*groups, blocks=blocks + 1, tokens_max=8, drafts_max=2)
        perform(scheduler, submit(0, 5, answers_max=9), *[Step((Reply(drafts=2),))] * 3)
        assert ([], []) == line(scheduler)


def test_the_source_of_a_copy_counts() -> None:
    """Goal: a hit that ends inside a block does not make a request too large. Method: block 4, unit 2; 2 of 8 tokens
    are served by a copy from a third block, which the admission gate asks for and which a pool of 2 does not have.
    """
    half = Group("full", 4, unit_tokens=2)
    wanted = Submit(Arrive(1, (Run(0, 2), Run(50, 6))))
    assert Reason.NEVER_FITS == perform(scheduler_of(half, blocks=3), wanted).reason
    scheduler = scheduler_of(half, blocks=4)
    perform(scheduler, submit(0, 3), Step(), wanted, Step())
    assert ([], []) == line(scheduler)


def test_as_many_as_may_be_alive() -> None:
    """Goal: the number of requests has a limit. Method: two may be alive; the third comes when one was aborted."""
    scheduler = scheduler_of(FULL, requests_max=2)
    perform(scheduler, submit(0, 4), submit(1, 4))
    assert Reason.TOO_MANY == perform(scheduler, submit(2, 4)).reason
    perform(scheduler, Abort(0))
    assert None is perform(scheduler, submit(2, 4)).reason


@pytest.mark.parametrize(("blocks", "reason"), [(144, None), (143, Reason.NEVER_FITS)])
def test_windows_are_counted_with_recycling(blocks: int, reason: Reason | None) -> None:
    """Goal: a request for which the pool was sized is accepted and admitted (bug swa-admission-budgets-full-sequence).

    Method: 2000 tokens, block 16: 125 blocks in full, and twice ceil((63 + 64) / 16) + 1 = 9 in windows of 64 with
    chunks of 64: 143 blocks and the null block. A request after it is served too.
    """
    groups = Group("full", 16), Group("sliding_window", 16, 64), Group("sliding_window", 16, 64)
    scheduler = scheduler_of(*groups, blocks=blocks, tokens_max=2048, chunk_tokens=64)
    assert reason == perform(scheduler, submit(0, 2000)).reason
    perform(scheduler, submit(scheduler.manager.population.arrived, 32, first=5000), *[Step()] * 33)
    assert ([], []) == line(scheduler)


def test_the_longest_request_of_a_real_model_fits_its_smallest_pool() -> None:
    """Goal: a pool sized for one request serves it (bug ascend-dsa-admission-cap-missing). Method: DeepSeek-V4-Flash, a
    prompt of 32768 tokens in chunks of 8192, and the smallest pool that should do: four steps.
    """
    geometry = dsv4_flash_ascend(128)
    limits: dict[str, Any] = {"tokens_max": 32769, "chunk_tokens": 8192, "caches": False}
    blocks = blocks_to_run(Settings(geometry, 2, **limits), 32768)
    scheduler = scheduler_of(*geometry.groups, blocks=blocks, **limits)
    assert Reason.NEVER_FITS == perform(scheduler, submit(0, 32768)).reason
    scheduler = scheduler_of(*geometry.groups, blocks=blocks + 1, limits=Limits(budget_tokens=8192), **limits)
    perform(scheduler, submit(0, 32768), *[Step()] * 4)
    assert ([], []) == line(scheduler)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_request_that_fits_alone_passes_the_gate_of_an_empty_pool(geometry: Geometry) -> None:
    """Goal: acceptance and the admission gate do not disagree. Method: small pools and every length; and the gate's
    own count is not asked for more than ours.
    """
    accepted = 0
    for blocks in range(2, 24):
        settings = Settings(geometry, blocks, tokens_max=24, chunk_tokens=4, drafts_max=3)
        scheduler = Scheduler(settings, Limits())
        for tokens in range(1, 24):
            if perform(scheduler.copy(), submit(0, tokens)).reason is None:
                accepted += 1
                assert fits_empty_pool(settings, tokens)
    assert accepted > 20


def test_others_hold_part_of_the_pool() -> None:
    """Goal: what a request holds itself is part of what it needs. Method: 5 blocks; one needs 3 and holds 2 of them,
    and another that needs 3 as well holds 2; with one more block held for a load neither has room.
    """
    assert is_room(5, {0: 3, 1: 3}, {0: 2, 1: 2})
    assert not is_room(5, {0: 3, 1: 3}, {0: 2, 1: 2, 2: 1})
    assert not is_room(5, {0: 4, 1: 3}, {0: 2, 1: 2})
    assert is_room(5, {}, {0: 9})
