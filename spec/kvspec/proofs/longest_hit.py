"""Chapter 05: the look-up that runs is right, for every cached set, and however long the request and its blocks are.

The cached blocks of a request are an unknown map. The counts of what is missing are another. Two facts of this running
count are used: it grows over a missing block, and where it has grown, a block is missing. ``BLOCKS`` proves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import accumulate, islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen

from kvreference import hit_lookup
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec import sequences
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.proofs.running_tables import on_lengths
from kvspec.running import fresh, key
from kvspec.sequences import Met, Stretch, times
from kvspec.stand_in import group
from kvspec.symbolic import current_path, either, formula_of, implies, negated

LOOK_UP = "kvreference.hit_lookup"


class Prefixes:
    """The prefixes of a request: each is known by how many whole grains are before its last one."""

    def __getitem__(self, place: Any) -> Any:
        return place


class Beginnings:
    """The entries inside blocks: which prefixes begin one."""

    def __init__(self, begins: Any, index: int) -> None:
        self.begins, self.index = begins, index

    def find(self, content: tuple[int, Any]) -> int | None:
        """The block that begins with a prefix of this group."""
        index, prefix = content
        assert index == self.index, "of another group"
        return 7 if self.begins[prefix] != 0 else None


class Cached(hit_lookup._Found):
    """All that may be cached of a request in one group."""

    def __init__(self, its: Group, index: int, grain_tokens: Any, absent: Any, begins: Any) -> None:
        self.group, self.index, self.grain_tokens, self.absent = its, index, grain_tokens, absent
        self.prefixes: Any = Prefixes()
        self.partial_map: Any = Beginnings(begins, index)


def _full(u: Any) -> Group:
    return group(Kind.FULL, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead == 1))


def _window(u: Any) -> Group:
    return group(Kind.SLIDING_WINDOW, u.block, u.window, lookahead=bool(u.lookahead == 1))


def _local(u: Any) -> Group:
    return group(Kind.CHUNKED_LOCAL, u.block, u.window, lookahead=bool(u.lookahead == 1))


def _states(u: Any) -> Group:
    return group(Kind.MAMBA, u.block, states=StateMode.ALL if u.aligned == 0 else StateMode.ALIGN)


def _unread_of_states(u: Any) -> Any:
    """The next token reads the state of the token before it."""
    return either(u.hit > 0, u.hit - 1, 0)


def _unread_of_full(_u: Any) -> Any:
    return 0


def _unread_of_window(u: Any) -> Any:
    """The next token reads itself and ``window - 1`` tokens before it."""
    return either(u.hit + 1 - u.window > 0, u.hit + 1 - u.window, 0)


def _unread_of_local(u: Any) -> Any:
    """The next token reads what is in its chunk of ``window`` tokens."""
    return u.hit - u.hit % u.window


# One group

ONE: dict[str, Unknown] = {
    "block": Count(1),
    "window": Count(1),
    "lookahead": Count(0, 1),
    "grain": Count(1),
    "hit": Count(0),
    "tokens": Count(1),
    "missing": AMap(),
    "absent": AMap(),
    "begins": AMap(),
    "looked": Count(0),
    "witness": Count(0),
}
"""``missing`` and ``begins``: by block and by prefix, 0 or not. ``absent``: how many are missing before a block."""


class _Missing:
    """A block that may be missing."""

    def __init__(self, u: Any, place: Any) -> None:
        self.u, self.place = u, place

    def is_in(self, first: Any, end: Any) -> Any:
        """Whether it is missing, and from ``first`` to before ``end``."""
        return (first <= self.place) & (self.place < end) & (self.u.missing[self.place] != 0)


def _count(at_first: Any, at_end: Any, first: Any, end: Any, looked: _Missing, witness: _Missing) -> Any:
    """The counts of what is missing before ``first`` and before ``end`` differ if and only if something is in between:
    if so ``witness`` is, and if not ``looked`` is not.
    """
    grows = implies(looked.is_in(first, end), at_first < at_end)
    return grows & implies(at_first != at_end, witness.is_in(first, end))


class _Resume:
    """The blocks that a resume needs, from the sentence and not from the code."""

    def __init__(self, u: Any, unread: Callable[[Any], Any], unit: Any) -> None:
        self.u = u
        self.matched = u.hit + either(u.lookahead == 1, unit, 0)
        self.first, self.end = unread(u) // u.block, self.matched // u.block
        self.whole = self.matched % u.block == 0
        self.begins = u.begins[self.matched // u.grain - 1] != 0

    def needs(self, block: Any) -> Any:
        """Whether a block must be cached."""
        return (self.first <= block) & (block < self.end)

    def counts(self) -> Any:
        """The facts about the counts: at the observed block, and at one that is missing if they differ."""
        looked, witness = _Missing(self.u, self.u.looked), _Missing(self.u, self.u.witness)
        return _count(self.u.absent[self.first], self.u.absent[self.end], self.first, self.end, looked, witness)

    def is_right(self, found: Any) -> Any:
        """Whether ``found`` is the answer: if so all is there, and if not something is not."""
        u = self.u
        there = implies(self.needs(u.looked), u.missing[u.looked] == 0)
        sound = implies(found, (u.hit == 0) | ((self.matched <= u.tokens - 1) & there & (self.whole | self.begins)))
        lacks = (self.matched > u.tokens - 1) | (self.needs(u.witness) & (u.missing[u.witness] != 0))
        lacks = lacks | (negated(self.whole) & negated(self.begins))
        return sound & implies(negated(found), (u.hit != 0) & lacks)


def _satisfies(
    name: str,
    title: str,
    make: Callable[[Any], Group],
    unread: Callable[[Any], Any],
    matched: str,
    lookahead: int = 1,
    **more: Unknown,
) -> Obligation:
    """That a group of one kind answers correctly whether it can be resumed."""

    def resume(u: Any) -> _Resume:
        return _Resume(u, unread, getattr(u, matched))

    def claim(u: Any) -> Any:
        found = Cached(make(u), 0, u.grain, u.absent, u.begins).satisfies(u.hit, u.tokens)
        return resume(u).is_right(found)

    return Obligation(
        id=f"hit-lookup.running-satisfies-{name}",
        statements=("KV-OP-01",),
        title=title,
        unknowns={**ONE, "lookahead": Count(0, lookahead), **more},
        assumes=lambda u: (u.absent[0] == 0) & resume(u).counts(),
        claim=claim,
        witnesses={
            "a block is missing": lambda u: (u.hit == 4 * u.block) & (u.block == 4) & (u.missing[u.looked] != 0),
            "all is there": lambda u: (
                (u.hit == 2 * u.block) & (u.lookahead == lookahead) & (u.tokens > 40) & (u.absent[resume(u).end] == 0)
            ),
        },
        mutants=(
            only(
                "one-may-be-missing",
                "One missing block is tolerated.",
                f"{LOOK_UP}:_Found.satisfies",
                lambda self, hit, tokens: (
                    hit == 0
                    or (
                        self.group.tokens_matched(hit) <= tokens - 1
                        and self.absent[self.group.blocks_needed(hit)[1]]
                        <= self.absent[self.group.blocks_needed(hit)[0]] + 1
                    )
                ),
            ),
            only(
                "the-last-token-matches",
                "The request's last token may match.",
                f"{LOOK_UP}:_Found.satisfies",
                lambda self, hit, tokens: _rightly(self, hit, tokens + 1),
            ),
            only(
                "the-block-before-is-asked-for",
                "The beginning of a block is taken for there whenever blocks are.",
                f"{LOOK_UP}:_Found._beginning",
                lambda self, matched_tokens: 7,
            ),
        ),
    )


_rightly = hit_lookup._Found.satisfies

FULL = _satisfies(
    "full",
    "Full attention, compressed or not, with a draft layer or not, can be resumed at a length if and only if each "
    "block up to there and the look-ahead is cached, the last one at least as a beginning, and the last token is left.",
    _full,
    _unread_of_full,
    "unit",
    unit=Count(1),
)
WINDOW = _satisfies(
    "window",
    "A window can be resumed if and only if each block that the next token reads, and the look-ahead, is cached.",
    _window,
    _unread_of_window,
    "block",
)
LOCAL = _satisfies(
    "chunk",
    "A chunk can be resumed if and only if each block that the next token reads, and the look-ahead, is cached.",
    _local,
    _unread_of_local,
    "block",
)


class _Cut:
    """The prefixes of a request. Of a cut, of which only each so many-th is taken, one is met; ``which`` is the cut."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def __getitem__(self, which: Any) -> Any:
        if not isinstance(which, slice):
            return which
        self.which = which
        return (self.place,)


class _OneGroup:
    """The groups of a geometry, any number of them: only one is asked for."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def __getitem__(self, index: Any) -> Group:
        assert index == self.u.index, "of another group"
        return group(Kind.FULL, self.u.block)


class _SomeBlocks:
    """A cached map in which some of the blocks of a group are missing."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def find(self, content: Any) -> Any:
        """The block, if it is there."""
        index, place = content
        assert index == self.u.index, "of another group"
        return key(self.u.blocks[place]) if self.u.missing[place] == 0 else None


class _Prefixes:
    """Entries inside blocks: the block that begins with a prefix is known by the place of this prefix."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def find(self, content: Any) -> Any:
        """The place."""
        index, place = content
        assert index == self.u.index, "of another group"
        return place


def _counts_on(u: Any) -> Any:
    """One turn, at any block: from what was counted before it."""
    geometry: Any = SimpleNamespace(groups=_OneGroup(u), grain_tokens=u.grain)
    prefixes: Any = _Cut(u.place)
    maps: Any = _SomeBlocks(u), _Prefixes(u)
    starts, counted = list[Any](), vars(hit_lookup)["accumulate"]

    def from_there(missing: Any, initial: Any) -> Any:
        starts.append(initial)
        return counted(missing, initial=u.before)

    with patch.object(hit_lookup, "accumulate", from_there):
        found: Any = hit_lookup._Found(geometry, u.index, maps, prefixes)
    # The prefix at a place has so many whole grains, and one more, before its end.
    begins = 0 if prefixes.which.start is None else prefixes.which.start
    first, step = (begins + 1) * u.grain, prefixes.which.step * u.grain
    fine: Any = (first == u.block) & (step == u.block) & (prefixes.which.stop is None)
    before, after = found.absent
    there, (block,) = u.missing[u.place] == 0, found.blocks
    fine = fine & (starts == [0]) & (before == u.before) & ((block is not None) == there)
    fine = fine & (block is None or block == u.blocks[u.place])
    fine = fine & ((found._beginning(u.matched) + 1) * u.grain == u.matched)
    # Both facts hold before the first block, of which the count is 0; so they hold after any number of turns.
    looked, witness = _Missing(u, u.looked), _Missing(u, either(u.at_first == before, u.place, u.witness))
    return fine & (after >= before) & _count(u.at_first, after, u.first, u.place + 1, looked, witness)


def _counted_before(u: Any) -> Any:
    looked, witness = _Missing(u, u.looked), _Missing(u, u.witness)
    rises = (u.first <= u.place) & (u.at_first <= u.before) & ((u.first < u.place) | (u.at_first == u.before))
    rises = rises & (u.block % u.grain == 0) & (u.matched % u.grain == 0)
    return rises & _count(u.at_first, u.before, u.first, u.place, looked, witness)


_finds: Callable[..., None] = hit_lookup._Found.__init__
"""What it does, where nothing is broken."""


class _OfTheFirstTwo:
    """A map that is asked for the second group in place of all after it."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def find(self, content: Any) -> Any:
        """What is there for one of the first two groups."""
        index, prefix = content
        return self.asked.find((min(index, 1), prefix))


class _Earlier:
    """Prefixes, of which a cut begins one too early."""

    def __init__(self, prefixes: Any) -> None:
        self.prefixes = prefixes

    def __getitem__(self, which: Any) -> Any:
        cut = slice(which.start - 1, which.stop, which.step) if isinstance(which, slice) else which
        return self.prefixes[cut]


BLOCKS = Obligation(
    id="hit-lookup.running-look-at-blocks",
    statements=("KV-OP-01", "KV-OP-02", "KV-OP-10", "KV-MEM-01"),
    title="A look-up finds each block of a group by the prefix that ends with it, a beginning by the prefix up to "
    "there, and counts what is missing: the counts before two blocks differ if and only if a block in between is "
    "missing.",
    unknowns={
        "index": Count(0),
        "block": Count(1),
        "grain": Count(1),
        "place": Count(0),
        "before": Count(0),
        "first": Count(0),
        "at_first": Count(0),
        "looked": Count(0),
        "witness": Count(0),
        "missing": AMap(),
        "blocks": AMap(),
        "matched": Count(1),
    },
    assumes=_counted_before,
    claim=_counts_on,
    witnesses={
        "blocks of several grains": lambda u: (
            (u.block == 12) & (u.grain == 4) & (u.place == 9) & (u.before == 5) & (u.missing[9] != 0)
        ),
        "nothing was missing so far": lambda u: (u.first == 2) & (u.place == 9) & (u.at_first == u.before),
    },
    mutants=(
        only(
            "counts-what-is-there",
            "What is there is counted.",
            f"{LOOK_UP}:accumulate",
            lambda missing, initial: accumulate((1 - each for each in missing), initial=initial),
        ),
        only(
            "does-not-add-up",
            "Of what is missing only the last block is counted.",
            f"{LOOK_UP}:accumulate",
            lambda missing, initial: [initial, *missing],
        ),
        only(
            "asks-by-the-prefix-before",
            "A block is asked for by the prefix that ends a grain before it does.",
            f"{LOOK_UP}:_Found.__init__",
            lambda self, geometry, index, maps, prefixes: _finds(self, geometry, index, maps, _Earlier(prefixes)),
        ),
        only(
            "blocks-of-the-second-group",
            "Blocks of a group after the second are asked for in the second.",
            f"{LOOK_UP}:_Found.__init__",
            lambda self, geometry, index, maps, prefixes: _finds(
                self, geometry, index, (_OfTheFirstTwo(maps[0]), maps[1]), prefixes
            ),
        ),
        only(
            "beginnings-of-the-second-group",
            "Beginnings of blocks of a group after the second are asked for in the second.",
            f"{LOOK_UP}:_Found.__init__",
            lambda self, geometry, index, maps, prefixes: _finds(
                self, geometry, index, (maps[0], _OfTheFirstTwo(maps[1])), prefixes
            ),
        ),
        only(
            "begins-a-grain-later",
            "The beginning of a block is found by the prefix that ends a grain later.",
            f"{LOOK_UP}:_Found._beginning",
            lambda self, matched: self.partial_map.find((self.index, self.prefixes[matched // self.grain_tokens])),
        ),
    ),
)
STATES = _satisfies(
    "states",
    "Where states are kept, a hit of some length can be served if and only if the state after its last token is "
    "cached, and a token is left to compute.",
    _states,
    _unread_of_states,
    "block",
    lookahead=0,
    aligned=Count(0, 1),
)


# All groups

_longest_length: Callable[..., int] = hit_lookup.longest_length
_worthwhile: Callable[..., bool] = hit_lookup.is_worthwhile
_longest_hit: Callable[..., Hit] = hit_lookup.longest_hit
_tables_found: Callable[..., tuple[Any, ...]] = hit_lookup.tables_found
_partials_found: Callable[..., tuple[Any, ...]] = hit_lookup.partials_found
"""What they do, where nothing is broken."""


class Some:
    """A group: where it can be resumed, and where it is hit inside a block."""

    def __init__(self, u: Any, which: Any) -> None:
        self.u, self.which = u, which
        self.group = self

    def satisfies(self, hit_tokens: Any, tokens: Any) -> bool:
        """Whether it can be resumed there by a request of so many tokens."""
        return bool((hit_tokens == 0) | ((tokens == self.u.readable) & (self.u.serves[self.which, hit_tokens] != 0)))

    def ends_inside(self, hit_tokens: Any) -> bool:
        """Whether a hit ends inside one of its blocks."""
        return bool((hit_tokens != 0) & (self.u.inside[self.which, hit_tokens] != 0))


class Groups:
    """The groups of a geometry, of which only the number is known."""

    def __init__(self, count: Any) -> None:
        self.count = count


ALL: dict[str, Unknown] = {
    "alignment": Count(1),
    "tokens": Count(1),
    "readable": Count(1),
    "least": Count(0),
    "groups": Count(1),
    "group": Count(0),
    "tried": Count(0),
    "other": Count(0),
    "serves": AMap(2),
    "inside": AMap(2),
    "lacks": AMap(),
    "ends": AMap(),
}
"""``tried`` and ``other`` are two lengths, in alignments; ``least`` is the least hit that ends inside a block.

``group`` is any group. By length, ``lacks`` is a group that cannot be resumed there, if there is one, and ``ends`` one
that is hit inside a block there, if there is one.
"""


def _decide(u: Any, hit: Any, which: Any) -> Any:
    """What makes ``lacks`` and ``ends`` the groups that they are, said of one group."""
    there = (u.lacks[hit] >= 0) & (u.lacks[hit] < u.groups) & (u.ends[hit] >= 0) & (u.ends[hit] < u.groups)
    lacks = implies(u.serves[u.lacks[hit], hit] != 0, u.serves[which, hit] != 0)
    return there & lacks & implies(u.inside[which, hit] != 0, u.inside[u.ends[hit], hit] != 0)


def _serves(u: Any, hit: Any, lacks: Any, ends: Any) -> Any:
    return (hit == 0) | ((u.serves[lacks, hit] != 0) & ((hit >= u.least) | (u.inside[ends, hit] == 0)))


def _is_served(u: Any, hit: Any) -> Any:
    """Whether a hit is one: by all groups, and worth a copy."""
    return _serves(u, hit, u.lacks[hit], u.ends[hit])


class Ranges:
    """``range``, as the look-up asks for it: of its lengths one is met, and of the groups those that are looked at."""

    def __init__(self, u: Any) -> None:
        self.u = u
        self.lengths: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) == 1:
            assert arguments[0] is self.u.groups, "each group is asked, once"
            return self._groups()
        self.lengths = arguments
        return self

    def __iter__(self) -> Iterator[Any]:
        yield self.u.tried * self.u.alignment

    def _groups(self) -> Met:
        """Those that decide at the length that is met, and another one."""
        u, hit, another = self.u, self.u.tried * self.u.alignment, fresh("another")
        current_path().fact(formula_of((another >= 0) & (another < u.groups)))
        met = [u.lacks[hit], u.ends[hit], another]
        for each in met:
            current_path().fact(formula_of(_decide(u, hit, each)))
        return Met(met)

    def __getitem__(self, which: slice) -> Ranges:
        first, end, step = self.lengths
        assert (which.start, which.stop, which.step) == (None, None, -1), "a range backwards"
        self.lengths = end - step, first - step, -step
        return self


def _turn(u: Any) -> tuple[Any, Ranges]:
    """What the running look-up comes to at a length that it tries: the hit, or None if it tries the next one."""
    ranges, asked = Ranges(u), list[Any]()

    def met(elements: Any) -> Met:
        all_of_them = Met(elements)
        asked.append(all_of_them)
        return all_of_them

    with ExitStack() as stack:
        for name, by in {
            "range": ranges,
            "len": lambda of: of.count if isinstance(of, Groups) else of.__len__(),
            "_Found": lambda _geometry, index, *_rest: Some(u, index),
            "tuple": met,
            "tables_found": lambda found, hit, _tokens: (found, hit),
            "partials_found": lambda found, hit: (found, hit),
        }.items():
            stack.enter_context(patch.object(hit_lookup, name, by, create=True))
        geometry: Any = SimpleNamespace(groups=Groups(u.groups), alignment_tokens=u.alignment)
        nothing: Any = None
        arguments = (geometry, nothing, nothing, u.tokens, nothing, u.least)
        try:
            hit = hit_lookup.longest_hit(*arguments, tokens_readable=u.readable)
        except StopIteration:
            return None, ranges
    parts: Any = (hit.blocks, hit.partials)
    for found, at in parts:
        assert found is asked[0], "the blocks of a hit are of all groups"
        assert at == hit.tokens, "the blocks are of this hit"
    return hit.tokens, ranges


def _none_longer(u: Any, than: Any) -> Any:
    """That no length longer than so many alignments is served: said of one of them."""
    return implies(u.other > than, negated(_is_served(u, u.other * u.alignment)))


def _is_longest(u: Any) -> Any:
    hit, ranges = _turn(u)
    first, end, step = ranges.lengths
    # From the last multiple before the request's last token down to 0, one by one.
    tried = (first % u.alignment == 0) & (first <= u.tokens - 1) & (u.tokens - 1 < first + u.alignment)
    tried = tried & (end == -1) & (step == -u.alignment)
    if hit is None:
        # There is a shorter one, and what is assumed of this one is so of that.
        return tried & (u.tried > 0) & _none_longer(u, u.tried - 1)
    fine = tried & (hit == u.tried * u.alignment) & _is_served(u, hit) & _none_longer(u, u.tried)
    return fine & _serves(u, hit, u.group, u.group)


def _is_given(u: Any) -> Any:
    fine = (u.tried * u.alignment <= u.tokens - 1) & (u.other * u.alignment <= u.tokens - 1) & (u.group < u.groups)
    for length in (u.tried, u.other):
        fine = fine & _decide(u, length * u.alignment, u.group)
    return fine & _none_longer(u, u.tried)


def _served_by(asked: Callable[[Some], Any]) -> Any:
    def some(found: Any, lengths: Any, tokens: Any, least: Any) -> Any:
        return _longest_length(Met(each for each in found if asked(each)), lengths, tokens, least)

    return some


def _of_some(hit: Any) -> Any:
    found, at = hit.blocks
    return evolve(hit, blocks=(Met(found), at))


LONGEST = Obligation(
    id="hit-lookup.running-longest-hit",
    statements=("KV-OP-01",),
    title="The running look-up comes to a length at which all groups can be resumed, and none is longer: it tries the "
    "multiples of the alignment before the last token, the longest first. At each it ends if all groups can be resumed "
    "there, and continues with the next one if not.",
    unknowns=ALL,
    assumes=_is_given,
    claim=_is_longest,
    witnesses={
        "the longest": lambda u: (
            (u.tried > 0) & (u.other > u.tried) & _is_served(u, u.tried * u.alignment) & (u.alignment == 4)
        ),
        "a shorter one is tried next": lambda u: (
            (u.other == u.tried) & (u.alignment == 4) & negated(_is_served(u, u.tried * u.alignment))
        ),
        "inside a block, and too short for a copy": lambda u: (
            (u.alignment == 4) & (u.tried == 3) & (u.least == 13) & (u.inside[u.ends[12], 12] != 0)
        ),
    },
    mutants=(
        only(
            "copies-of-any-length",
            "A hit inside a block is served however short it is.",
            f"{LOOK_UP}:longest_length",
            lambda found, lengths, tokens, _least: next(
                length for length in lengths if all(each.satisfies(length, tokens) for each in found)
            ),
        ),
        only(
            "one-group-answers",
            "The first group answers for all.",
            f"{LOOK_UP}:longest_length",
            _served_by(lambda each: each.which == 0),
        ),
        only(
            "the-last-group-is-not-asked",
            "All groups but the last are asked.",
            f"{LOOK_UP}:longest_length",
            _served_by(lambda each: each.which != each.u.groups - 1),
        ),
        only(
            "last-of-the-lengths",
            "The shortest is taken.",
            f"{LOOK_UP}:longest_length",
            lambda found, lengths, tokens, least: _longest_length(found, lengths[::-1], tokens, least),
        ),
        only(
            "copied-from-the-last-group",
            "Whether a hit is worth a copy is asked of the last group.",
            f"{LOOK_UP}:is_worthwhile",
            lambda groups, hit_tokens, least: _worthwhile(
                Met(each for each in groups if each.which == each.u.groups - 1), hit_tokens, least
            ),
        ),
        only(
            "blocks-of-some-groups",
            "The blocks of a hit are those of some of the groups.",
            f"{LOOK_UP}:longest_hit",
            lambda *arguments, **named: _of_some(_longest_hit(*arguments, **named)),
        ),
        only(
            "never-worthwhile-below",
            "A hit that is shorter than the minimum is none, wherever it ends.",
            f"{LOOK_UP}:is_worthwhile",
            lambda groups, hit_tokens, least: hit_tokens == 0 or hit_tokens >= least,
        ),
    ),
)


class Blocks:
    """The blocks that were found of a request: one of them is looked at."""

    def __init__(self, place: Any, block: Any) -> None:
        self.place, self.block = place, block

    def __getitem__(self, which: slice) -> list[Any]:
        if (self.place >= which.start) & (self.place < which.stop):
            return [Stretch(self.place - which.start), self.block, Stretch(which.stop - self.place - 1)]
        return [Stretch(which.stop - which.start)]


TABLE_KINDS = (
    (_full, _unread_of_full),
    (_window, _unread_of_window),
    (_local, _unread_of_local),
    (_states, _unread_of_states),
)


@frozen(eq=False)
class _Another:
    """Another group that was looked at: its table and its partial say which, and of which hit."""

    number: int

    def table(self, hit_tokens: Any) -> tuple[Any, ...]:
        """Its table."""
        return self.number, hit_tokens

    def partial(self, hit_tokens: Any) -> Any:
        """Its block of which a beginning is copied."""
        return self.table(hit_tokens)


def _table_of_hit(u: Any) -> Any:
    found: Any = object.__new__(hit_lookup._Found)
    make, unread_of = TABLE_KINDS[u.kind.__index__()]
    its = make(u)

    def needed(hit_tokens: Any) -> tuple[Any, Any]:
        first, end = its.blocks_needed(hit_tokens)
        return times(first), end

    found.group = SimpleNamespace(blocks_needed=needed, block_size_tokens=u.block, ends_inside=its.ends_inside)
    found.blocks = Blocks(u.place, key(u.found))
    # Each group before it and after it gives its own, in this order.
    groups: Any = Met([_Another(0), found, _Another(1)])
    first, table, last = hit_lookup.tables_found(groups, u.hit, u.hit + 1)
    first_partial, last_partial = hit_lookup.partials_found(groups, u.hit)
    fine: Any = True
    ends: Any = ((first, last), (first_partial, last_partial))
    for given in ends:
        for number, (its, hit_tokens) in enumerate(given):
            fine = fine & (its == number) & (hit_tokens == u.hit)
    unread = unread_of(u) // u.block
    length: Any = 0
    for part in table:
        if isinstance(part, Stretch):
            # Which blocks these are says another place.
            fine = fine & (part.count >= 0)
            length = length + part.count
        else:
            fine = fine & (part == u.found) & (length == u.place)
            length = length + 1
    named = any(not isinstance(part, Stretch) for part in table)
    return fine & (length == u.hit // u.block) & (named == ((u.place >= unread) & (u.place < length)))


TABLE = Obligation(
    id="hit-lookup.running-table-of-a-hit",
    statements=("KV-OP-01", "KV-OP-02", "KV-OP-04", "KV-MEM-01"),
    title="The table of a hit that ends with a block has a place for each of its blocks, however many: there stands "
    "the block that was found, or the null block where no token after the hit reads, for every kind of group. Each "
    "group has its own table, and its own block to copy from.",
    unknowns={
        "kind": Count(0, len(TABLE_KINDS) - 1),
        "block": Count(1),
        "unit": Count(1),
        "window": Count(1),
        "lookahead": Count(0, 1),
        "aligned": Count(0, 1),
        "hit": Count(0),
        "place": Count(0),
        "found": Count(1),
    },
    # A draft layer keeps no states.
    assumes=lambda u: (u.hit % u.block == 0) & ((u.kind < 3) | (u.lookahead == 0)),
    claim=_table_of_hit,
    witnesses={
        "two places are left": lambda u: (
            (u.kind == 1) & (u.block == 4) & (u.window == 5) & (u.hit == 12) & (u.place == 2)
        ),
        "a place that is not read": lambda u: (
            (u.kind == 1) & (u.block == 4) & (u.window == 5) & (u.hit == 12) & (u.place == 0)
        ),
    },
    mutants=(
        only(
            "nothing-is-left",
            "All blocks of a hit stand in its table.",
            f"{LOOK_UP}:_Found.table",
            lambda self, hit: tuple(self.blocks[times(0) : hit // self.group.block_size_tokens]),
        ),
        only(
            "the-first-group-for-all",
            "Each table is that of the first group.",
            f"{LOOK_UP}:tables_found",
            lambda found, hit, _tokens: tuple(next(iter(found)).table(hit) for _ in found),
        ),
        only(
            "tables-of-two-groups",
            "Only the first two groups have a table.",
            f"{LOOK_UP}:tables_found",
            lambda found, hit, tokens: _tables_found(islice(found, 2), hit, tokens),
        ),
        only(
            "copies-for-two-groups",
            "Beginnings of blocks are copied for the first two groups only.",
            f"{LOOK_UP}:partials_found",
            lambda found, hit: _partials_found(islice(found, 2), hit),
        ),
        only(
            "copies-for-the-first-group",
            "All beginnings of blocks are copied for the first group.",
            f"{LOOK_UP}:partials_found",
            lambda found, hit: tuple(next(iter(found)).partial(hit) for each in found if each.partial(hit)),
        ),
        only(
            "no-null-blocks",
            "The blocks of a hit stand at the beginning of its table.",
            f"{LOOK_UP}:_Found.table",
            lambda self, hit: tuple(
                self.blocks[self.group.blocks_needed(hit)[0] : hit // self.group.block_size_tokens]
            ),
        ),
    ),
)

LEADING, MISSING, REST = "leading", "missing", "rest"
"""Of what is asked for in a group: as many blocks as are cached in a row, the first that is not, and what follows."""


class _InARow:
    """The prefixes of a request. A cut of them has a first one that is not cached, or all of them are."""

    def __init__(self, u: Any) -> None:
        self.u = u
        self.cuts: list[slice] = []

    def __getitem__(self, which: slice) -> list[str]:
        self.cuts.append(which)
        return [LEADING, MISSING, REST] if self.u.lacks == 1 else [LEADING]


class _Rows:
    """A cached map: how many blocks of a group are cached in a row. What follows the first missing one is, too."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def find(self, content: tuple[Any, str]) -> Any:
        """What is there."""
        which, part = content
        return None if part == MISSING else sequences.Stretch(self.u.known[which] if part == LEADING else 1)


def _knows(u: Any) -> Any:
    """The group that knows most is met, and one before and one after it, whichever."""
    met = [(which, _group_of(u, which)) for which in (u.one, u.most, u.two)]
    geometry: Any = SimpleNamespace(groups=met, grain_tokens=u.grain)
    prefixes: Any = _InARow(u)
    cached: Any = _Rows(u)
    with ExitStack() as stack:
        stack.enter_context(on_lengths(hit_lookup))
        for name, by in (("enumerate", iter), ("list", sequences.Parts)):
            stack.enter_context(patch.object(hit_lookup, name, by, create=True))
        known = hit_lookup.tokens_known(geometry, cached, prefixes)
    fine: Any = known == either(u.full[u.most] != 0, _known(u, u.most), 0)
    asked = [its for _, its in met if its.keeps_all]
    for its, cut in zip(asked, prefixes.cuts, strict=True):
        fine = fine & ((cut.start + 1) * u.grain == its.block_size_tokens) & (cut.start + 1 == cut.step)
    return fine


def _group_of(u: Any, which: Any) -> Group:
    return group(Kind.FULL, u.block[which]) if u.full[which] != 0 else group(Kind.SLIDING_WINDOW, u.block[which], 4)


def _known(u: Any, which: Any) -> Any:
    return u.known[which] * u.block[which]


def _knows_most(u: Any) -> Any:
    fine: Any = True
    for which in (u.one, u.most, u.two):
        fine = fine & (u.known[which] >= 0) & (u.block[which] >= 1) & (u.block[which] % u.grain == 0)
        more = (u.full[u.most] != 0) & (_known(u, which) <= _known(u, u.most))
        fine = fine & implies(u.full[which] != 0, more)
    return fine


KNOWN = Obligation(
    id="retention.running-known-of-a-prompt",
    statements=("KV-OP-27",),
    title="The known prefix of a prompt of any length ends at its first block that is not cached, in the group of full "
    "attention that has most, of any number of groups; no window matters.",
    unknowns={
        **{name: Count(0) for name in ("one", "most", "two")},
        "grain": Count(1),
        "lacks": Count(0, 1),
        **{name: AMap() for name in ("full", "block", "known")},
    },
    assumes=_knows_most,
    claim=_knows,
    witnesses={
        "a block is missing": lambda u: (
            (u.full[u.most] != 0) & (u.known[u.most] == 70) & (u.lacks == 1) & (u.grain == 2) & (u.block[u.most] == 4)
        ),
        "another has less": lambda u: (u.full[u.two] != 0) & (_known(u, u.two) < _known(u, u.most)),
        "no full attention": lambda u: u.full[u.most] == 0,
    },
    mutants=(
        only(
            "a-window-knows",
            "What a window has counts as known.",
            "kvreference.geometry:Group.keeps_all",
            True,
        ),
        only(
            "known-across-a-gap",
            "Blocks after one that is missing count.",
            f"{LOOK_UP}:takewhile",
            filter,
        ),
        only(
            "the-last-group-knows",
            "The last group of full attention answers.",
            f"{LOOK_UP}:max",
            lambda _longest, known: known,
        ),
    ),
)

OBLIGATIONS: tuple[Obligation, ...] = (BLOCKS, FULL, WINDOW, LOCAL, STATES, LONGEST, TABLE, KNOWN)
