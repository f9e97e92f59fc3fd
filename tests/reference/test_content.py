"""Content identity: what makes two blocks hold the same, and what does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvreference.content import ExtraKey, Keys, Media, Prefix, Prefixes

TOKENS = list(range(100, 112))
"""Three grains of four tokens."""


def prefixes(interned: Prefixes, tokens: Sequence[int] = TOKENS, keys: Keys | None = None) -> list[Prefix]:
    """The prefixes of a request at every grain."""
    known: list[Prefix] = []
    interned.extend(known, tokens, keys or Keys())
    return known


def same(one: Keys, other: Keys) -> list[bool]:
    """Per grain, whether two requests of the same tokens hold the same content."""
    interned = Prefixes(4)
    pairs = zip(prefixes(interned, keys=one), prefixes(interned, keys=other), strict=True)
    return [mine is others for mine, others in pairs]


def test_equal_prefixes_are_one_object() -> None:
    """Goal: identity is content. Method: the same twelve tokens twice, in one set of prefixes and in another."""
    interned = Prefixes(4)
    assert prefixes(interned) == prefixes(interned)
    assert [4, 8, 12] == [prefix.tokens for prefix in prefixes(interned)]
    assert prefixes(interned)[0] is not prefixes(Prefixes(4))[0]


def test_a_different_token_changes_everything_from_there_on() -> None:
    """Goal: content is the whole prefix. Method: change token 5; the grain 8..11 has equal tokens, yet differs."""
    interned = Prefixes(4)
    changed = [*TOKENS[:5], 7, *TOKENS[6:]]
    pairs = zip(prefixes(interned), prefixes(interned, changed), strict=True)
    assert [True, False, False] == [one is other for one, other in pairs]


def test_a_prefix_is_a_shorter_one_and_a_piece() -> None:
    """Goal: content can be read off a prefix, piece by piece. Method: eight tokens after a salt, with an adapter and an
    item: each piece has its tokens and what else they depend on, the salt with the first piece alone.
    """
    one, two = prefixes(Prefixes(4), TOKENS[:8], Keys(salt="s", lora="a", media=(Media("m", 5, 1),)))
    assert [None, one] == [one.parent, two.parent]
    lora = ExtraKey("lora", "a")
    assert ((100, 101, 102, 103), (lora, ExtraKey("salt", "s"))) == one.piece
    assert ((104, 105, 106, 107), (lora, ExtraKey("media", "m", 1))) == two.piece
    assert [4, 8] == [prefix.tokens for prefix in (one, two)]


def test_content_may_cover_the_token_after_it() -> None:
    """Goal: the token that a draft layer has read decides, too. Method: change token 8; the second grain, 4..7, differs
    as well, and the third has no identity before a token follows it. An item that begins at token 8 counts for the
    second grain.
    """
    interned = Prefixes(4, ahead_tokens=1)
    changed = [*TOKENS[:8], 7, *TOKENS[9:]]
    pairs = zip(prefixes(interned), prefixes(interned, changed), strict=True)
    assert [True, False] == [one is other for one, other in pairs]
    assert [1, 2, 3] == [len(prefixes(interned, [*TOKENS, 1][:length])) for length in (8, 9, 13)]
    with_item = prefixes(interned, keys=Keys(media=(Media("m", 8, 1),)))
    assert [True, False] == [one is other for one, other in zip(prefixes(interned), with_item, strict=True)]


def test_only_whole_grains_are_content() -> None:
    """Goal: a grain that is not full has no identity yet. Method: 0, 3, 4, 11 tokens in grains of 4."""
    interned = Prefixes(4)
    assert [0, 0, 1, 2] == [len(prefixes(interned, TOKENS[:length])) for length in (0, 3, 4, 11)]


def test_extending_is_the_same_as_starting_over() -> None:
    """Goal: tokens that arrive one by one make the same prefixes. Method: extend after every token."""
    interned = Prefixes(4)
    known: list[Prefix] = []
    for length in range(len(TOKENS) + 1):
        interned.extend(known, TOKENS[:length], Keys(salt="s"))
    assert prefixes(interned, keys=Keys(salt="s")) == known


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Keys(), Keys(salt="x")),
        (Keys(salt="x"), Keys(salt="y")),
        (Keys(), Keys(lora="x")),
        (Keys(lora="x"), Keys(lora="y")),
        (Keys(salt="x"), Keys(lora="x")),
        (Keys(salt="x", lora="y"), Keys(salt="y", lora="x")),
    ],
)
def test_salt_and_adapter_separate_from_the_first_token_on(one: Keys, other: Keys) -> None:
    """Goal: a salt and an adapter are domains of their own. Method: 'x' as salt, as adapter, swapped; and equal."""
    assert [False, False, False] == same(one, other)
    assert [True, True, True] == same(other, other)


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (Media("cat", 5, 6), [True, True, True]),  # the same item in tokens 5..10
        (Media("cat", 6, 5), [True, False, False]),  # begins a token later
        (Media("dog", 5, 6), [True, False, False]),  # another item
        (Media("cat", 5, 3), [True, True, False]),  # ends with token 7, before the third grain
        (Media("cat", 1, 6), [False, False, False]),  # begins in the first grain
    ],
)
def test_a_multimodal_item_changes_content_where_it_lies(media: Media, expected: list[bool]) -> None:
    """Goal: the identifier and the place of an item are part of content, from the grain where it begins.

    Method: against an item 'cat' in tokens 5..10, that is in the grains 4..7 and 8..11.
    """
    assert expected == same(Keys(media=(Media("cat", 5, 6),)), Keys(media=(media,)))


def test_media_within() -> None:
    """Goal: an item counts where one of its tokens lies, with its offset from the start of the range.

    Method: items in 2..4 and 8..9, in ranges that touch, miss and lie inside them.
    """
    keys = Keys(media=(Media("a", 2, 3), Media("b", 8, 2)))
    assert (("a", 2),) == keys.media_within(0, 4)
    assert (("a", -2), ("b", 4)) == keys.media_within(4, 12)
    assert (("a", -1),) == keys.media_within(3, 4)
    assert () == keys.media_within(5, 8)
    assert () == keys.media_within(0, 2)
    assert () == keys.media_within(10, 12)


def test_extra_keys_of_blocks() -> None:
    """Goal: events name the adapter with every block, items where they lie, the salt with the first block only.

    Method: block 0..3 and block 4..7 of a request that has all three; and one that has none.
    """
    keys = Keys(salt="s", lora="l", media=(Media("cat", 2, 4),))
    lora, salt = ExtraKey("lora", "l"), ExtraKey("salt", "s")
    assert (lora, ExtraKey("media", "cat", 2), salt) == keys.of_block(0, 4)
    assert (lora, ExtraKey("media", "cat", -2)) == keys.of_block(4, 8)
    assert (lora,) == keys.of_block(8, 12)
    assert () == Keys().of_block(0, 4)


def test_the_salt_is_named_once_in_blocks_of_one_token() -> None:
    """Goal: the first block is the one that starts with the first token. Method: the first two blocks of one token."""
    keys = Keys(salt="s")
    assert [(ExtraKey("salt", "s"),), ()] == [keys.of_block(start, start + 1) for start in (0, 1)]


@pytest.mark.parametrize("arguments", [("", 0, 1), ("cat", -1, 1), ("cat", 0, 0)])
def test_what_is_not_an_item(arguments: tuple[str, int, int]) -> None:
    """Goal: an item has a name, a place and a token. Method: leave each of them out."""
    with pytest.raises(ValueError, match="must be"):
        Media(*arguments)


def test_what_are_no_keys() -> None:
    """Goal: an empty name would be no name; items lie in order. Method: empty names, overlap, wrong order."""
    with pytest.raises(ValueError, match="salt"):
        Keys(salt="")
    with pytest.raises(ValueError, match="lora"):
        Keys(lora="")
    for media in ((Media("a", 0, 4), Media("b", 3, 1)), (Media("b", 4, 1), Media("a", 0, 4))):
        with pytest.raises(ValueError, match="in order"):
            Keys(media=media)
    assert 2 == len(Keys(media=(Media("a", 0, 4), Media("b", 4, 1))).media)


def test_a_prefix_prints_its_length() -> None:
    """Goal: a report names content briefly. Method: the prefix of eight tokens."""
    assert "<prefix of 8 tokens>" == repr(prefixes(Prefixes(4))[1])


def test_a_prefix_is_forgotten_when_it_is_not_used() -> None:
    """Goal: no request is remembered. Method: three requests of three grains, of which two share one; the requests
    end one after the other, and one of the contents stays cached.
    """
    interned = Prefixes(4)
    requests = [prefixes(interned, tokens) for tokens in (TOKENS, [*TOKENS[:4], *range(8)], TOKENS[1:])]
    assert 3 + 2 + 2 == len(interned._children)
    cached = requests.pop(0)[1]
    assert 2 + 2 + 2 == len(interned._children)
    requests.clear()
    assert [cached.parent, cached] == list(interned._children.values())
    assert [cached.parent, cached] == prefixes(interned, TOKENS[:8])
    del cached
    assert 0 == len(interned._children)
