"""The needs of a hit.

Goal: the table shows at every boundary what the reference's sentence asks for and what the system has; a sentence
states the result. Method: a look-up that looks wrong, a cache that lost something, a foreign hit, and a hit that ends
inside a block; each against needs worked out by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.adapters.reference import Reference
from kvgate.levels.manager import Bench
from kvgate.report.page.recording import record
from kvgate.report.page.resume import Boundary, Resume, Stretch, resume
from kvreference.answers import Answer, Hit
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, LookUp, Operation, Run
from kvreference.population import Request
from kvreference.prefix_cache import no_hit
from kvreference.settings import Settings

from .stage import BY_ANOTHER, ENDED, FULL, PROMPT, TWICE, ForgetsTheWindow, HitsNothing, KeepsABlock, ServesOthers

from .stage import case_of, recorded  # isort: skip


def shown(factory: type[Reference], operations: Sequence[Operation], settings: Settings | None = None) -> Resume:
    """The table of what a faulty system diverges with."""
    given = (settings,) if settings is not None else ()
    recording, found = recorded(factory, operations, *given)
    table = resume(recording, found.divergence)
    assert table is not None
    return table


def stretches(boundary: Boundary) -> list[tuple[Stretch, ...]]:
    return [need.stretches for need in boundary.needs]


def test_a_look_up_that_looks_wrong() -> None:
    """Everything is cached on both sides, and the system does not see it."""
    table = shown(HitsNothing, TWICE)
    assert (1, 12, False, 0) == (table.request, table.tokens, table.is_later, table.left_out)
    assert ("full, 4 tokens a block", "sliding window, 4 tokens a block, window 6") == table.groups
    eight, four, nothing = table.boundaries
    assert (8, 4, 0) == (eight.tokens, four.tokens, nothing.tokens)
    # A window of six tokens reaches back to token 3: its first block is read for a resume at 8, too.
    assert [(Stretch(0, 1, True, True),), (Stretch(0, 1, True, True),)] == stretches(eight)
    assert [(), ()] == stretches(nothing)
    assert [(True, False), (False, False), (False, True)] == [(b.is_expected, b.is_got) for b in table.boundaries]
    assert "Everything that token 8 needs is cached on both sides: the system's look-up misses it." == table.conclusion


def test_a_window_needs_no_more_than_it_reads() -> None:
    """At token 16 the last five tokens before it: the blocks before those are not asked for."""
    table = shown(HitsNothing, (Arrive(0, (Run(0, 20),)), Admit(0, 64), Arrive(1, (Run(0, 20),)), LookUp(1)))
    assert 16 == table.boundaries[0].tokens
    assert [(Stretch(0, 3, True, True),), (Stretch(2, 3, True, True),)] == stretches(table.boundaries[0])


def test_a_cache_that_lost_something() -> None:
    """The content of a block differs: the table shows what a later request could use, not this one."""
    table = shown(ForgetsTheWindow, TWICE, Settings(Geometry((Group("full", 4),) * 2), blocks=24))
    assert (0, True, 12) == (table.request, table.is_later, table.boundaries[0].tokens)
    assert "It should resume at token 12; with what the system has cached, it resumes at token 8." == table.conclusion
    both, lost = [(Stretch(0, 2, True, True),), (Stretch(0, 1, True, True), Stretch(2, 2, True, False))]
    assert [both, lost] == stretches(table.boundaries[0])
    assert [True, False] == [need.in_system for need in table.boundaries[0].needs]


def test_what_no_later_request_needs() -> None:
    """A window's block before the last boundary: what was lost changes no hit."""

    class ForgetsTheFirst(Reference):
        """The window's first block."""

        def apply(self, operation: Operation) -> Answer:
            answer = super().apply(operation)
            if isinstance(operation, Admit):
                self.pool.evict(self.tables[0][1].blocks[0])
            return answer

    table = shown(ForgetsTheFirst, TWICE)
    assert "It would resume at token 12 on both sides: what differs is not needed there." == table.conclusion


def test_a_foreign_hit() -> None:
    """The system serves what is not cached for this request, and the page says which request it comes from."""
    table = shown(ServesOthers, BY_ANOTHER, FULL)
    expected = (
        "To resume at token 4, block 0 of group 0 is not cached. The system serves it all the same, from block 1, "
        "which holds the first 4 tokens of request 0, group 0."
    )
    assert expected == table.conclusion
    eight, four, nothing = table.boundaries
    assert [(Stretch(0, 0, False, False),)] == stretches(four)
    assert (False, True, True) == (eight.is_got, four.is_got, nothing.is_expected)


def test_a_hit_inside_a_block() -> None:
    """The beginning of the block is needed, and is not a block of its own."""

    class WholeBlocksAlone(Reference):
        """No hit at all, where one would end inside a block."""

        def _hit(self, request: Request) -> Hit:
            hit = super()._hit(request)
            return no_hit(self.geometry) if hit.partials else hit

    settings = Settings(Geometry((Group("full", 8, unit_tokens=4),)), blocks=12)
    table = shown(
        WholeBlocksAlone, (Arrive(0, (Run(0, 13),)), Admit(0, 64), Arrive(1, (Run(0, 13),)), LookUp(1)), settings
    )
    twelve = table.boundaries[0]
    assert (12, True) == (twelve.tokens, twelve.is_expected)
    assert [(Stretch(0, 0, True, True), Stretch(1, 1, True, True, is_beginning=True))] == stretches(twelve)


def test_look_ahead_may_reach_too_far() -> None:
    """The page says so, and names no block."""
    settings = Settings(Geometry((Group("full", 4, lookahead=True),)), blocks=12)
    table = shown(HitsNothing, TWICE, settings)
    eight, four, _ = table.boundaries
    assert (True, False) == (eight.needs[0].reaches_last_token, four.needs[0].reaches_last_token)
    assert four.is_expected


def test_only_what_is_about_hits_has_a_table() -> None:
    """A leak has none, an agreement has none, and what the reference cannot follow has none."""
    recording, found = recorded(KeepsABlock, ENDED)
    assert resume(recording, found.divergence) is None
    assert resume(record(Bench(Reference, ("lockstep",)), case_of(TWICE)), None) is None


def test_the_table_is_bounded() -> None:
    """The longest boundaries, and always those of both sides."""
    table = shown(
        HitsNothing,
        (Arrive(0, (Run(0, 100),)), Admit(0, 128), Arrive(1, (*PROMPT, Run(500, 88))), LookUp(1)),
        Settings(FULL.geometry, blocks=60, chunk_tokens=128),
    )
    tokens = [boundary.tokens for boundary in table.boundaries]
    assert ([96, 92], [60, 12, 0]) == (tokens[:2], tokens[-3:])
    assert 25 - len(tokens) == table.left_out
