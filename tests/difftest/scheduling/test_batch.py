"""The worker's batch.

Goal: every wrong entry of a worker's batch is seen, and nothing else. Method: steps reported by hand, as they should
be, and with one thing changed.
"""

from __future__ import annotations

from attrs import evolve

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.batch import All, Batch, Due, SentRequest

NEW = SentRequest(8, 0, ((1, 2), (3, 4)), whole=True, new=True)
DUE = Due(8, 0, ((1, 2), (3, 4)))
MORE = SentRequest(1, 8, ((5,), (6,)), whole=False, new=False)
MORE_DUE = Due(1, 8, ((1, 2, 5), (3, 4, 6)))


def first_step(first: SentRequest = NEW, due: Due = DUE, batch: Batch | None = None) -> Difference | None:
    """The difference in one step of one request."""
    return (batch or Batch(64, 4)).step({7: first}, {7: due}, ())


def second(then: SentRequest = MORE, due: Due = MORE_DUE) -> Difference | None:
    """The difference in a second step."""
    batch = Batch(64, 4)
    assert first_step(batch=batch) is None
    return first_step(then, due, batch)


def subject(found: Difference | None) -> str:
    """The subject of a difference."""
    assert found is not None
    assert "KV-SYS-03" == found.statement
    return found.subject


def test_what_is_reported_is_what_is_due() -> None:
    """A new request; then further blocks, or none."""
    assert first_step() is None
    assert second() is None
    assert second(evolve(MORE, blocks=None), Due(1, 8, DUE.table)) is None


def test_blocks_are_put_together() -> None:
    """New blocks are appended to the known ones; a resumed request gets all of them anew."""
    batch = Batch(64, 4)
    assert first_step(batch=batch) is None
    assert first_step(MORE, MORE_DUE, batch) is None
    assert ((1, 2, 5), (3, 4, 6)) == batch.tables(7)
    back = SentRequest(9, 0, ((9,), (8,)), whole=True, new=False)
    assert first_step(back, Due(9, 0, ((9,), (8,))), batch) is None
    assert ((9,), (8,)) == batch.tables(7)


def test_blocks_before_the_window_do_not_matter() -> None:
    """Where the table has null blocks, the worker may name what was there."""
    assert second(due=Due(1, 8, ((1, 2, 5), (0, 4, 6)))) is None
    assert "request 7, as sent to the worker (blocks by group)" == subject(
        second(due=Due(1, 8, ((0, 3, 5), (3, 4, 6))))
    )


def test_wrong_blocks_are_seen() -> None:
    """Too few, too many, of another group, or those of a resumed request appended to the ones it lost."""
    where = "request 7, as sent to the worker (blocks by group)"
    assert where == subject(second(evolve(MORE, blocks=None)))
    assert where == subject(second(evolve(MORE, blocks=((5, 9), (6,)))))
    assert where == subject(second(evolve(MORE, blocks=((6,), (5,)))))
    batch = Batch(64, 4)
    assert first_step(batch=batch) is None
    unflagged = SentRequest(9, 0, ((9,), (8,)), whole=False, new=False)
    assert where == subject(first_step(unflagged, Due(9, 0, ((9,), (8,))), batch))


def test_wrong_tokens_are_seen() -> None:
    """Where they begin, how many they are, which of them are drafts."""
    where = "request 7, as sent to the worker (start, tokens)"
    assert where == subject(second(evolve(MORE, start=9)))
    assert where == subject(second(evolve(MORE, tokens=2)))
    drafted = evolve(MORE_DUE, drafts=(5, 6))
    assert "request 7, as sent to the worker (drafts)" == subject(second(due=drafted))
    assert second(evolve(MORE, drafts=(5, 6)), drafted) is None
    assert second(evolve(MORE, drafts=(5, 6))) is None


def test_a_new_request_is_sent_as_new() -> None:
    """Once."""
    assert "request 7, as sent to the worker" == subject(first_step(evolve(NEW, new=False)))
    assert "request 7, as sent to the worker" == subject(second(evolve(MORE, new=True)))


def test_exactly_the_computing_requests_are_sent() -> None:
    """No request more, and none less."""
    assert "requests of a step" == subject(Batch(64, 4).step({}, {7: DUE}, ()))
    assert "requests of a step" == subject(Batch(64, 4).step({7: NEW}, {}, ()))


def test_limits_are_kept() -> None:
    """Of tokens and of requests."""
    assert Batch(8, 1).step({7: NEW}, {7: DUE}, ()) is None
    assert "tokens of a step" == subject(Batch(7, 1).step({7: NEW}, {7: DUE}, ()))
    assert "requests of a step" == subject(Batch(64, 1).step({7: NEW, 8: NEW}, {7: DUE, 8: DUE}, ()))


def test_ended_requests_are_sent() -> None:
    """The worker forgets it; if the message is missing, this is seen."""
    batch = Batch(64, 4)
    assert first_step(batch=batch) is None
    assert batch.remembered([7]) is None
    assert "ends sent to the worker" == subject(batch.remembered([]))
    assert batch.step({}, {}, [7]) is None
    assert batch.remembered([]) is None
    assert () == batch.tables(7)


def test_tokens_are_sent_as_they_are() -> None:
    """The prompt of a new request; the number of answers; all tokens of a request that was not in the step before."""
    prompt = (11, 12, 13)
    new = evolve(DUE, prompt=prompt)
    assert first_step(evolve(NEW, prompt=prompt), new) is None
    assert "request 7, as sent to the worker (prompt)" == subject(first_step(evolve(NEW, prompt=prompt[::-1]), new))
    answered = evolve(MORE_DUE, answered=2)
    assert second(evolve(MORE, answered=2), answered) is None
    assert "request 7, as sent to the worker (tokens answered)" == subject(second(evolve(MORE, answered=3), answered))
    every = evolve(MORE_DUE, every=tuple(range(9)))
    where = "request 7, as sent to the worker (all tokens)"
    assert second(MORE, every) is None
    assert where == subject(second(evolve(MORE, every=tuple(range(9))), every))
    staged = evolve(every, more=True)
    assert second(evolve(MORE, more=(8,)), staged) is None
    where_more = "request 7, as sent to the worker (tokens to compute)"
    assert where_more == subject(second(evolve(MORE, more=()), staged))
    assert where_more == subject(second(MORE, staged)) == subject(second(evolve(MORE, more=(8,)), every))
    for tokens, expected in [(9, None), (8, where)]:
        batch = Batch(64, 4)
        assert [None, None] == [first_step(batch=batch), batch.step({}, {}, ())]
        found = first_step(evolve(MORE, every=tuple(range(tokens))), every, batch)
        assert expected == (found and subject(found))


def test_what_is_sent_of_all_together() -> None:
    """Total tokens, common blocks, the requests that lost their blocks, and the masked requests in their order."""
    due = All(9, (1, 0), frozenset({2}), masked=((3, (7,)), (1, ())))
    assert Batch(64, 4).together(due, due) is None
    for other in (
        evolve(due, tokens=8),
        evolve(due, shared=(9, 9)),
        evolve(due, preempted=frozenset()),
        evolve(due, masked=((1, ()), (3, (7,)))),
        evolve(due, masked=((3, ()), (1, ()))),
    ):
        assert "a step, as sent to the worker (of all together)" == subject(Batch(64, 4).together(other, due))
