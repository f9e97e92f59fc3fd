"""Chunked local attention through the manager: by default, attention chunks of 8 tokens in blocks of 4."""

from __future__ import annotations

import pytest

from kvreference.answers import Granted, Hit, Refused
from kvreference.geometry import Group
from kvreference.operations import Admit, Evict, LookUp, ReleaseSkipped, Schedule

from .stage import BUDGET, arrive, cached, compute_prompt, enter, free, manager_of, pass_through, perform, table

LOCAL = Group("chunked_local", 4, 8)
FULL = Group("full", 4)


@pytest.mark.parametrize(
    ("tokens", "needed"),
    [(4, (0, 1)), (7, (0, 1)), (8, (2, 2)), (11, (2, 2)), (12, (2, 3)), (13, (2, 3)), (15, (2, 3)), (16, (4, 4))],
)
def test_what_a_resume_reads(tokens: int, needed: tuple[int, int]) -> None:
    """Goal: the token at 15 reads its own chunk, 8..15: of the blocks before it, block 2. Method: a resume at each of
    several tokens; at a chunk's first token nothing before it is read.
    """
    assert needed == LOCAL.blocks_needed(tokens)


@pytest.mark.parametrize(
    ("tokens", "hit"),
    [
        (5, Hit(4, ((1,), (3,)))),
        (9, Hit(8, ((1, 2), (0, 0)))),
        (13, Hit(12, ((1, 2, 5), (0, 0, 6)))),
        (17, Hit(16, ((1, 2, 5, 7), (0, 0, 0, 0)))),
    ],
)
def test_a_hit_has_its_own_chunk(tokens: int, hit: Hit) -> None:
    """Goal: a hit names the blocks of the chunk in which it continues, and null before. Method: 20 tokens in two
    groups, computed 8, 4, 4 and 4 at a time, so that each step takes a block in either: 1, 2 and 3, 4; 5 and 6; 7 and
    8.
    """
    manager = manager_of(FULL, LOCAL)
    perform(manager, arrive(0, 20), Admit(0, 8), Schedule(0, 4), Schedule(0, 4), Schedule(0, 4))
    assert hit == perform(manager, arrive(1, tokens), LookUp(1))


def test_a_chunk_is_freed_as_a_whole() -> None:
    """Goal: with the last token of a chunk, all of it is dead. Method: 15 tokens: 8 are; 16: all of them; window 8
    would keep seven.
    """
    for tokens, expected in [(15, [0, 0, 3, 4]), (16, [0, 0, 0, 0])]:
        manager = manager_of(LOCAL, blocks=8)
        enter(manager, 0, tokens, reads_cache=False)
        perform(manager, ReleaseSkipped(0))
        assert expected == table(manager, 0)
        assert [2, 1] == free(manager)[-2:]


def test_it_recycles() -> None:
    """Goal: a long prompt needs no more than its chunk and what is computed. Method: steps of 8: four blocks at most,
    ceil((8 + 8) / 4), and no more are there; 100 tokens pass.
    """
    manager = manager_of(LOCAL, blocks=5, chunk_tokens=8)
    assert isinstance(enter(manager, 0, 100, reads_cache=False), Granted)
    assert all(isinstance(answer, Granted) for answer in compute_prompt(manager, 0))
    assert 25 == len(table(manager, 0))


@pytest.mark.parametrize(
    ("group", "usable", "passes"),
    [
        (LOCAL, 4, True),
        (LOCAL, 3, False),
        (Group("chunked_local", 4, 10), 6, True),
        (Group("chunked_local", 4, 10), 5, False),
    ],
)
def test_the_gate(group: Group, usable: int, passes: bool) -> None:
    """Goal: the peak counts; where chunks begin within blocks it is a block more. Method: 100 tokens in steps of 8:
    ceil((8 + 8) / 4) = 4 blocks; with chunks of 10, ceil((10 + 8) / 4) + 1 = 6.
    """
    manager = manager_of(group, blocks=usable + 1, chunk_tokens=8)
    answer = enter(manager, 0, 100, reads_cache=False)
    assert (Granted(0, ((1, 2),)) if passes else Refused(0, gate=True)) == answer


def test_a_hole_in_an_older_chunk_does_not_matter() -> None:
    """Goal: blocks that no later token reads may be gone. Method: 20 tokens; of the local group's blocks 6..10 all but
    8, the third, are evicted: a hit of 12 needs that one alone, 16 and 8 none, 4 the first.
    """
    manager = manager_of(FULL, LOCAL)
    pass_through(manager, 0, 20)
    perform(manager, *map(Evict, (6, 7, 9, 10)))
    assert [1, 2, 3, 4, 5, 8] == cached(manager)
    for number, (tokens, expected) in enumerate([(20, 16), (16, 12), (12, 8), (8, 0)], start=1):
        answer = perform(manager, arrive(number, tokens), LookUp(number))
        assert isinstance(answer, Hit)
        assert expected == answer.tokens
    perform(manager, Admit(2, BUDGET))
    assert [0, 0, 8] == table(manager, 2, group=1)[:3]


def test_alone_it_resumes_at_a_chunk_without_anything() -> None:
    """Goal: where nothing is read nothing need be cached. Method: chunked local attention alone, an empty cache: no
    token after 16 depends on one before it, so a prompt of 20 begins there.
    """
    assert Granted(16, ((1,),)) == enter(manager_of(LOCAL), 0, 20)
    assert Granted(0, ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10))) == enter(manager_of(FULL, LOCAL), 0, 20)
