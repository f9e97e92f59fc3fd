"""Salting: stored data reveals no tokens, and suffices to check."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from kvgate.shadow.calls import ENCODER, Appended, Arrived, Arriving, Grew, Media
from kvgate.shadow.salting import TOKEN, Salting

GRAIN = 4


def arriving(number: int, tokens: Sequence[int], **more: object) -> Arriving:
    """A request."""
    return Arriving(number, array(TOKEN, tokens).tobytes(), len(tokens), True, **more)  # type: ignore[arg-type]  # named by each test


def digests(salting: Salting, tokens: Sequence[int], **more: object) -> list[bytes]:
    """The stored digests of a request."""
    (record,) = salting.salted([arriving(0, tokens, **more)])
    assert isinstance(record, Arrived)
    return record.digests


def test_equal_prefixes_have_equal_digests_and_nothing_else_has() -> None:
    """Goal: sharing can be checked. Method: prompts that differ in one token."""
    salting = Salting(GRAIN, [GRAIN])
    one, other = digests(salting, range(12)), digests(salting, [*range(8), 9, 9, 9, 9])
    assert one[:2] == other[:2]
    assert one[2] != other[2]


def test_a_grain_that_repeats_does_not_show() -> None:
    """Goal: salting hides frequencies. Method: the same grain many times, and after another beginning."""
    salting = Salting(GRAIN, [GRAIN])
    repeated = digests(salting, [7] * 40)
    assert 10 == len({*repeated})
    assert not {*repeated} & {*digests(salting, [1, *[7] * 39])}


def test_another_salt_says_something_else() -> None:
    """Goal: two recordings cannot be laid side by side. Method: the same prompt under two salts, and under one."""
    assert digests(Salting(GRAIN, [GRAIN]), range(8)) != digests(Salting(GRAIN, [GRAIN]), range(8))
    key = bytes(32)
    assert digests(Salting(GRAIN, [GRAIN], key), range(8)) == digests(Salting(GRAIN, [GRAIN], key), range(8))


@pytest.mark.parametrize("more", [{"salt": "a"}, {"lora": "a"}, {"media": [Media("cat", 1, 3)]}])
def test_what_else_content_depends_on_is_in_it(more: dict[str, object]) -> None:
    """Goal: a salt is not an adapter, and an item is itself. Method: the same tokens with each."""
    salting = Salting(GRAIN, [GRAIN])
    bare = digests(salting, range(8))
    assert bare[0] != digests(salting, range(8), **more)[0]
    assert digests(salting, range(8), salt="a")[0] != digests(salting, range(8), lora="a")[0]


@pytest.mark.parametrize("ahead_tokens", [0, 1])
def test_an_item_at_a_boundary_is_in_what_covers_its_first_token(ahead_tokens: int) -> None:
    """Goal: a digest that covers the token after a grain covers its item. Method: an item from there on."""
    salting = Salting(GRAIN, [GRAIN], ahead_tokens=ahead_tokens)
    bare, with_item = digests(salting, range(9)), digests(salting, range(9), media=[Media("cat", GRAIN, 3)])
    assert (ahead_tokens == 1) == (bare[0] != with_item[0])
    assert bare[1] != with_item[1]


def test_tokens_that_come_one_by_one() -> None:
    """Goal: generated tokens count like those of the prompt. Method: the same tokens at once and one by one."""
    salting = Salting(GRAIN, [GRAIN])
    whole = digests(salting, range(11))
    found = digests(salting, range(2))
    for token in range(2, 11):
        (record,) = salting.salted([Appended(0, [token])])
        assert isinstance(record, Grew)
        assert token + 1 == record.tokens
        found = [*found, *record.digests]
    assert whole == found


def test_no_token_is_in_what_is_stored() -> None:
    """Goal: prompts are never stored in clear. Method: look for tokens, as bytes of any width, and for names."""
    salting = Salting(GRAIN, [GRAIN])
    tokens = [0x41424344 + index for index in range(9)]
    stored = ENCODER.encode(salting.salted([arriving(0, tokens, salt="secret", lora="adapter"), Appended(0, tokens)]))
    for token in tokens:
        for width in (4, 8):
            assert token.to_bytes(width, "little") not in stored
            assert token.to_bytes(width, "big") not in stored
    assert b"secret" not in stored
    assert b"adapter" not in stored
