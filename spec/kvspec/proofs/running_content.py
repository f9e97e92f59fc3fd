"""Chapters 03 and 06: the content of a block, and the policy by which it is cached.

The running ``Prefixes.extend`` makes the prefixes of a request, of any number of tokens: one turn of its loop is run.
Two requests are compared by where they first differ. Before a turn their prefixes are the same if and only if they
agree up to there, and so they are after it; before the first turn neither has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen, validators

from kvreference import content, population, prefix_cache
from kvreference.answers import Hit, Statistics
from kvreference.content import Keys, Media, Prefix
from kvreference.manager import OWN, Manager, prefixes_kept
from kvreference.operations import Arrive, Continue, Operation
from kvreference.population import Population, Request
from kvreference.prefix_cache import NoPrefixCache, PrefixCache
from kvreference.retention import Dense, Sparse, junction
from kvreference.rules import OWN_RULES
from kvreference.tables import content_up_to
from kvspec.obligation import Count, Obligation, only
from kvspec.proofs.running_pool import books, counts_of_any, manager_over
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import OWNER, on_lengths
from kvspec.running import undecided
from kvspec.sequences import Cut
from kvspec.symbolic import Term, expression_of, implies, negated

CONTENT = "kvreference.content"
EXTEND: Callable[..., None] = content.Prefixes.extend
CHILD: Callable[..., Prefix] = content.Prefixes._child
NAMES: Callable[..., Any] = content.names_of_piece
WITHIN: Callable[..., Any] = Keys.media_within
KEPT: Callable[..., int] = prefixes_kept
COPY: Callable[[Manager], Manager] = Manager.copy
COPY_CACHE: Callable[[NoPrefixCache], NoPrefixCache] = NoPrefixCache.copy
PERFORM: Callable[..., Any] = Manager.perform
content_of: Callable[..., Any] = content_up_to
"""What these do, where nothing is broken."""


class _Known:
    """The prefixes that a request has so far: how many, which is the last, and which were appended."""

    def __init__(self, length: Any) -> None:
        self.length = length
        self.last: Any = None
        self.added: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __getitem__(self, place: Any) -> Any:
        is_last = place == (-1 if isinstance(place, int) else self.length - 1)
        assert is_last, "only the last is asked for"
        return self.last

    def append(self, prefix: Any) -> None:
        self.last = prefix
        self.added.append(prefix)
        self.length = self.length + 1


@frozen(eq=False)
class _Cut(Cut):
    """A part of one of two requests, by places: they are the same before the place ``differ``, and not there."""

    differ: Any

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Cut)
        assert (self.start == other.start) & (self.end == other.end), "of the same places"
        if self.start > self.differ:
            return undecided("later ones are the same")
        return bool(self.end <= self.differ)

    __hash__ = None  # type: ignore[assignment]  # it is looked for among edges that were met


class _Text:
    """The tokens of a request."""

    def __init__(self, length: Any, differ: Any = 0) -> None:
        self.length, self.differ = length, differ

    def __getitem__(self, places: slice) -> tuple[Cut, Cut]:
        assert places.step is None, "in their order"
        return _Cut(places.start, places.stop, self.differ).first_and_others()


def _extends(u: Any) -> Any:
    interned = content.Prefixes(u.grain, OWN_RULES, u.ahead)
    made: list[Any] = []

    def child(parent: Any, piece: Any, tokens: Any) -> str:
        made.append((parent, piece, tokens))
        return "a prefix"

    prefixes: Any = _Known(u.known)
    start, before = u.turn * u.grain, object()

    def ranged(first: Any, end: Any, step: Any) -> Any:
        made.append((first, step))
        if (start >= first) & (start < end):
            # Before this turn there is a prefix for each grain before it.
            prefixes.length, prefixes.last = u.turn, before
            yield start

    text: Any = _Text(u.tokens)
    with (
        patch.object(content, "range", ranged, create=True),
        patch.object(interned, "_child", child),
        on_lengths(content),
    ):
        interned.extend(prefixes, text, Keys())
    (first, step), *turns = made
    begins = (first == u.known * u.grain) & (step == u.grain)
    there = (u.turn >= u.known) & (start + u.grain + u.ahead <= u.tokens)
    if not turns:
        return begins & negated(there) & (prefixes.added == [])
    ((parent, ((token, others), names), end),) = turns
    of_last = (u.turn == 0) == (parent is None)
    piece = (token.start == start) & (token.end == start + 1) & (others.start == start + 1)
    piece = piece & (others.end == start + u.grain + u.ahead) & (end == start + u.grain)
    once = prefixes.added == ["a prefix"] and names == () and parent in (None, before)
    return begins & there & piece & of_last & (prefixes.length == u.turn + 1) & once


EXTENDS = Obligation(
    id="content-and-cached-map.running-prefixes",
    statements=("KV-OP-08", "KV-OP-09", "KV-OP-16", "KV-OP-27"),
    title="Of any number of tokens, the prefix at each whole grain is known, once, as soon as its tokens are, and "
    "those after it that its content depends on: it is the prefix before it, and the tokens since, in their order.",
    unknowns={"grain": Count(1), "ahead": Count(0, 1), "known": Count(0), "turn": Count(0), "tokens": Count(0)},
    claim=_extends,
    witnesses={
        "the second of two": lambda u: (
            (u.grain == 4) & (u.known == 1) & (u.turn == 2) & (u.tokens == 13) & (u.ahead == 1)
        )
    },
    mutants=(
        only(
            "ahead-is-not-awaited",
            "A prefix is known before the token after it is.",
            f"{CONTENT}:Prefixes.extend",
            lambda self, known, tokens, keys: EXTEND(_without_ahead(self), known, tokens, keys),
        ),
        only(
            "tokens-in-any-order",
            "The order of the tokens does not count.",
            f"{CONTENT}:Prefixes.extend",
            lambda self, known, tokens, keys: _extends_sorted(self, known, tokens, keys),
        ),
    ),
)


def _extends_sorted(its: Any, known: Any, tokens: Any, keys: Keys) -> None:
    with patch.object(content, "tuple", lambda values: tuple(sorted(values)), create=True):
        EXTEND(its, known, tokens, keys)


def _without_ahead(its: Any) -> Any:
    made: Any = object.__new__(content.Prefixes)
    vars(made).update({**vars(its), "ahead_tokens": 0})
    return made


# Two requests

FIRST, SECOND, BOTH = "first", "second", "both"
OF_ITEM = ("identifier", "offset", "length")
OF_REQUEST = (*OF_ITEM, "salt", "lora", "version")
"""What a request has: a multimodal item that the other has not, after one that ``BOTH`` have, and names; 0 for none."""


def _of(u: Any, which: str) -> Any:
    """What a request has, or both have."""
    return SimpleNamespace(
        **{name: getattr(u, f"{name}_of_{which}") for name in OF_REQUEST if which != BOTH or name in OF_ITEM}
    )


class _Version(Term):
    """A version, of which only the text is read, and whether it is 0.

    Equal numbers have equal texts, and different ones different texts, unless a format rounds or cuts them.
    """

    __slots__ = ("other",)

    def __init__(self, number: Any, other: Any) -> None:
        super().__init__(expression_of(number))
        self.other = other

    def __format__(self, how: str) -> str:
        if how:
            return "as others, too"
        return "the other" if self == self.other else "this one"


def _keys(u: Any, which: str) -> Keys:
    its = _of(u, which)
    version: Any = _Version(its.version, u.version_of_first) if isinstance(its.version, Term) else its.version
    with validators.disabled():
        media = tuple(Media(item.identifier, item.offset, item.length) for item in (_of(u, BOTH), its))
        return Keys(None if its.salt == 0 else its.salt, None if its.lora == 0 else its.lora, media, version)


def _items_in_order(u: Any) -> Any:
    first, second, both = (_of(u, which) for which in (FIRST, SECOND, BOTH))
    in_order = (both.offset + both.length <= first.offset) & (both.offset + both.length <= second.offset)
    # An identifier stands for its content, and so for its length.
    alike = first.identifier == second.identifier
    one_length = implies(alike, first.length == second.length)
    return in_order & one_length & negated(alike & (first.offset == second.offset))


def _agree(u: Any, tokens: Any) -> Any:
    """Whether all that the first so many tokens depend on is the same, besides tokens."""
    first, second = _of(u, FIRST), _of(u, SECOND)
    adapters = (first.lora == second.lora) & ((first.lora == 0) | (first.version == second.version))
    items = (first.offset >= tokens) & (second.offset >= tokens)
    return (tokens == 0) | (items & (first.salt == second.salt) & adapters)


def _names(u: Any) -> Any:
    first, second = (
        content.names_of_piece(_keys(u, which), u.start, u.start + u.tokens, u.known) for which in (FIRST, SECOND)
    )
    return _agree(u, u.start + u.tokens) == (first == second)


KEYS = Obligation(
    id="content-and-cached-map.running-keys-of-a-piece",
    statements=("KV-OP-09", "KV-OP-16", "KV-OP-27"),
    title="Two requests that agree up to some place have the same keys for tokens that begin there if and only if they "
    "agree up to the end of these: in their salts, in their adapters and the versions of these, and in each multimodal "
    "item that begins before the end, and in its offset. Items that begin later make no difference.",
    unknowns={
        **{name: Count(0) for name in ("start", "known")},
        "tokens": Count(1),
        **{f"{name}_of_{which}": Count(0) for name in OF_REQUEST for which in (FIRST, SECOND)},
        **{f"{name}_of_{BOTH}": Count(0) for name in OF_ITEM},
        **{f"length_of_{which}": Count(1) for which in (FIRST, SECOND, BOTH)},
    },
    assumes=lambda u: _items_in_order(u) & _agree(u, u.start),
    claim=_names,
    witnesses={
        "items that begin later": lambda u: (
            (u.start == 8)
            & (u.tokens == 5)
            & (u.offset_of_both == 7)
            & (u.length_of_both == 3)
            & (u.salt_of_first != 0)
            & (u.lora_of_first != 0)
            & (u.version_of_first != 0)
            & _agree(u, 13)
        ),
        "an item differs": lambda u: negated(_agree(u, u.start + u.tokens)) & (u.start > 0),
        "a salt differs": lambda u: (u.salt_of_first != u.salt_of_second) & (u.start == 0),
    },
    mutants=(
        only(
            "keys-do-not-count",
            "Only tokens count.",
            f"{CONTENT}:names_of_piece",
            lambda keys, start, end, known: (),
        ),
        only(
            "any-version-of-an-adapter",
            "Adapters with one name are taken for one.",
            f"{CONTENT}:names_of_piece",
            lambda keys, start, end, known: keys.of_block(start, end),
        ),
        only(
            "salts-do-not-count",
            "The salt is not named.",
            f"{CONTENT}:names_of_piece",
            lambda keys, start, end, known: NAMES(keys, start + 1, end, known),
        ),
        only(
            "all-items-count",
            "Items that begin later count, too.",
            f"{CONTENT}:Keys.media_within",
            lambda self, start, end: tuple((each.identifier, each.offset_tokens - start) for each in self.media),
        ),
        only(
            "where-an-item-begins-does-not-count",
            "An item counts, and not where it begins.",
            f"{CONTENT}:Keys.media_within",
            lambda self, start, end: tuple((name, 0) for name, _ in WITHIN(self, start, end)),
        ),
        only(
            "one-item-counts",
            "Of several items in a piece the first counts.",
            f"{CONTENT}:Keys.media_within",
            lambda self, start, end: WITHIN(self, start, end)[:1],
        ),
    ),
)


class _Edges:
    """The edges of the tree, however many: another request may have made one, or not. Each has a prefix of its own."""

    def __init__(self) -> None:
        self._met: list[tuple[Any, Any]] = []

    def get(self, edge: Any) -> Any:
        """The prefix at an edge, if there is one."""
        found = next((prefix for known, prefix in self._met if known == edge), None)
        if found is None and undecided("another request has made it"):
            parent, piece = edge
            found = Prefix(parent, piece, 0)
            self._met.append((edge, found))
        return found

    def __setitem__(self, edge: Any, prefix: Any) -> None:
        self._met.append((edge, prefix))


def _interns(u: Any) -> Any:
    interned = content.Prefixes(u.grain, OWN_RULES, u.ahead)
    interned._children = _Edges()  # type: ignore[assignment]  # it stands for one
    geometry: Any = SimpleNamespace(grain_tokens=u.grain)
    lasts: list[Any] = []
    contents: list[Any] = []

    def agree(turns: Any) -> Any:
        """Whether tokens and keys agree up to the end of so many pieces, and in what their content depends on."""
        reads = turns * u.grain + u.ahead
        return (turns == 0) | ((reads <= u.differ) & (reads <= u.keys_differ))

    same_length = bool(u.other == u.turn)
    turns = u.turn, u.turn if same_length else u.other
    for turn, group in zip(turns, (u.group, u.other_group), strict=True):
        as_first = bool(lasts) and same_length and agree(turn)
        lasts.append(None if turn == 0 else lasts[0] if as_first else object())
        prefixes: Any = _Known(u.known)

        def ranged(_first: Any, _end: Any, _step: Any, prefixes: Any = prefixes, turn: Any = turn) -> Any:
            # Which turns there are, and what they begin with, is proved above.
            prefixes.length, prefixes.last = turn, lasts[-1]
            yield turn * u.grain

        def names(_keys: Any, start: Any, end: Any, _known: Any) -> Any:
            return _Cut(start, end, u.keys_differ)

        text: Any = _Text(u.tokens, u.differ)
        with (
            on_lengths(content),
            patch.object(content, "range", ranged, create=True),
            patch.object(content, "names_of_piece", names),
        ):
            interned.extend(prefixes, text, Keys())
        contents.append(content_up_to(geometry, group, prefixes, (turn + 1) * u.grain))
    alike = (u.group == u.other_group) & same_length
    return (alike & agree(u.turn + 1)) == (contents[0] == contents[1])


EQUAL = Obligation(
    id="content-and-cached-map.running-same-content",
    statements=("KV-OP-09", "KV-OP-16", "KV-OP-27"),
    title="Two contents, of any two requests with any number of tokens, are the same if and only if they are of one "
    "group and of one length, and the requests agree so far, and in the token after it where a content depends on "
    "that: in tokens and in keys. Other requests make no difference.",
    unknowns={
        "grain": Count(1),
        "ahead": Count(0, 1),
        **{name: Count(0) for name in ("turn", "other", "known", "tokens")},
        **{name: Count(0) for name in ("differ", "keys_differ", "group", "other_group")},
    },
    claim=_interns,
    witnesses={
        "they differ later": lambda u: (
            (u.turn == 9) & (u.other == 9) & (u.grain == 4) & (u.ahead == 1) & (u.differ == 41)
        ),
        "they differ in the token after it": lambda u: (
            (u.turn == 9) & (u.other == 9) & (u.grain == 4) & (u.ahead == 1) & (u.differ == 40)
        ),
    },
    mutants=(
        only(
            "never-interned",
            "Equal prefixes are not the same.",
            f"{CONTENT}:Prefixes._child",
            lambda self, parent, piece, tokens: Prefix(parent, piece, tokens),
        ),
        only(
            "known-by-its-last-piece",
            "A prefix is known by its last tokens, and not by those before them.",
            f"{CONTENT}:Prefixes._child",
            lambda self, parent, piece, tokens: CHILD(self, None, piece, tokens),
        ),
        only(
            "known-by-its-tokens",
            "A prefix is known by its tokens, and not by keys.",
            f"{CONTENT}:Prefixes._child",
            lambda self, parent, piece, tokens: CHILD(self, parent, piece[0], tokens),
        ),
        only(
            "one-content-for-all-groups",
            "The content of a block does not say of which group it is.",
            "kvspec.proofs.running_content:content_up_to",
            lambda geometry, group, prefixes, tokens: (0, content_of(geometry, group, prefixes, tokens)[1]),
        ),
        only(
            "ahead-does-not-count",
            "The token after a prefix does not count.",
            f"{CONTENT}:Prefixes.extend",
            lambda self, known, tokens, keys: EXTEND(_without_ahead(self), known, tokens, keys),
        ),
    ),
)

# A request


class _Lengths:
    """The lengths of neighbouring prefixes, ``count`` of them; a limit lies before all of them or after."""

    def __init__(self, count: Any, first: Any, last: Any) -> None:
        self.count, self.first, self.last = count, first, last

    @property
    def tokens(self) -> _Lengths:
        """Each of them, in tokens."""
        return self

    def __le__(self, most: Any) -> Any:
        """How many are at most that."""
        if self.last <= most:
            return self.count
        assert self.first > most, "no limit lies between them"
        return 0


class _Session:
    """The prefixes of a session: those that may stay, and those that depend on what changes."""

    def __init__(self, u: Any) -> None:
        self.u = u
        self.cut: list[Any] = []

    def __iter__(self) -> Iterator[_Lengths]:
        u = self.u
        if u.stay > 0:
            yield _Lengths(u.stay, u.grain, u.stay * u.grain)
        if u.more > 0:
            yield _Lengths(u.more, (u.stay + 1) * u.grain, (u.stay + u.more) * u.grain)

    def __delitem__(self, which: slice) -> None:
        assert which.stop is None and which.step is None, "all after some"  # noqa: PT018  # one thing is asked
        self.cut.append(which.start)


class _Prompt(Tokens):
    """The tokens of a request, and what was put in place of the last ones."""

    def __init__(self, length: Any) -> None:
        super().__init__(length)
        self.put: list[Any] = []

    def __setitem__(self, which: slice, tokens: Any) -> None:
        assert which.stop is None and which.step is None, "all after some"  # noqa: PT018  # one thing is asked
        self.put.append((which.start, tokens))


class _NotLookedAt:
    """The tables of a session, however many: that it has some may be asked, and nothing else."""

    def __contains__(self, number: int) -> bool:
        return number == OWNER


def _has_prefixes(u: Any) -> Any:
    its, arrives, reads = books(Population), bool(u.arrives == 1), bool(u.reads == 1)
    manager = manager_over(SimpleNamespace(tables=_NotLookedAt()))
    manager.population, manager.geometry = its, SimpleNamespace(hashed_ahead_tokens=u.ahead)
    extended: list[Any] = []
    manager._interned = SimpleNamespace(extend=lambda *arguments: extended.append(arguments))
    with validators.disabled():
        earlier, item = Media("an item", 0, 1), Media("another", u.offset, u.length)
        keys = Keys("a salt", "an adapter", (earlier,), 1)
        operation: Any = Arrive(OWNER, (), keys, reads) if arrives else Continue(OWNER, (), (item,))
    session, new, tokens = _Session(u), _Prompt(u.tokens), _Prompt(u.tokens)
    manager.prefixes = {} if arrives else {OWNER: session}
    if not arrives:
        its.alive = {OWNER: Request(OWNER, tokens, keys, reads, tokens_computed=u.computed)}  # type: ignore[arg-type]  # they stand for them
    with patch.object(population, "spell", lambda _prompt: new), on_lengths(population), validators.disabled():
        manager.perform(operation)
    request, ((prefixes, of, of_keys),) = its[OWNER], extended
    own = prefixes is manager.prefixes[OWNER] and of is request.tokens and of_keys is request.keys
    fine = own & (request.prompt_tokens == u.tokens)
    fine = fine & (request.reads_cache is reads and request.preemptions == 0)
    if arrives:
        return fine & (prefixes == [] and of is new and of_keys is keys)
    ((place, put),), ((stay),) = tokens.put, session.cut
    fine = fine & (place == u.computed) & (of is tokens and put is new) & (stay == u.stay)
    before, after = of_keys.media
    names = (of_keys.salt, of_keys.adapter) == (keys.salt, keys.adapter)
    same = before is earlier and after.identifier == item.identifier
    return fine & (names and same) & (after.offset_tokens == u.computed + u.offset) & (after.length_tokens == u.length)


PREFIXES = Obligation(
    id="content-and-cached-map.running-prefixes-of-a-request",
    statements=("KV-OP-09", "KV-OP-13", "KV-OP-15", "KV-OP-16", "KV-OP-27"),
    title="When a request arrives, its prefixes are those of its own prompt and keys, and none were there before. It "
    "reads the cache if it may, and was never preempted. When a session continues, its tokens after those that are "
    "computed are replaced, the items of the new part are added after these, and exactly the prefixes stay of which "
    "the content depends on computed tokens only. Its tables, in any number of groups, are not touched: none of its "
    "blocks is looked at again.",
    unknowns={
        **{name: Count(0, 1) for name in ("arrives", "ahead", "reads")},
        **{name: Count(0) for name in ("stay", "more", "computed", "offset")},
        **{name: Count(1) for name in ("grain", "length", "tokens")},
    },
    assumes=lambda u: (
        ((u.stay == 0) | (u.stay * u.grain + u.ahead <= u.computed))
        & ((u.more == 0) | ((u.stay + 1) * u.grain + u.ahead > u.computed))
    ),
    claim=_has_prefixes,
    witnesses={
        "two stay": lambda u: (
            (u.arrives == 0) & (u.stay == 2) & (u.more == 1) & (u.grain == 4) & (u.ahead == 1) & (u.computed == 12)
        ),
        "it arrives": lambda u: (u.arrives == 1) & (u.tokens == 70),
    },
    mutants=(
        only(
            "what-is-ahead-stays",
            "A prefix stays although the token after it changes.",
            "kvreference.manager:prefixes_kept",
            lambda prefixes, computed: KEPT(prefixes, computed + 1),
        ),
        only(
            "all-prefixes-stay",
            "The prefixes of a session stay when its last answer is replaced.",
            "kvreference.manager:prefixes_kept",
            lambda prefixes, computed: sum(each.count for each in prefixes),
        ),
        only(
            "a-session-looks-again",
            "When a session continues, its blocks are looked at again in all groups but the first.",
            "kvreference.manager:Manager.perform",
            lambda self, operation: _looks_again(self, operation),
        ),
        only(
            "items-by-their-places-in-the-part",
            "The items of a new part are known by their places in it.",
            "kvreference.population:evolve",
            lambda its, **changes: evolve(
                its, **{name: 0 if name == "offset_tokens" else each for name, each in changes.items()}
            ),
        ),
    ),
)


def _looks_again(self: Manager, operation: Operation) -> None:
    PERFORM(self, operation)
    if isinstance(operation, Continue):
        for table in self.tables[OWNER][1:]:
            table.registered = 0


# The policy


class _Empty:
    """Holdings without requests, over a pool that is not looked at."""

    def __init__(self) -> None:
        self.pool: Any = SimpleNamespace(cached=object(), partial=object())
        self.tables: dict[int, Any] = {OWNER: object()}

    def copy(self) -> _Empty:
        """The same."""
        return self


def _follows_settings(u: Any) -> Any:
    caches, sparse, keeps = bool(u.caches == 1), bool(u.sparse == 1), bool(u.keeps == 1)
    geometry: Any = SimpleNamespace(
        grain_tokens=u.grain, hashed_ahead_tokens=u.ahead, groups=(), alignment_tokens=u.alignment, lookahead_tokens=0
    )
    settings: Any = SimpleNamespace(
        geometry=geometry,
        caches=caches,
        retention_interval_tokens=u.interval if sparse else None,
        keeps_junctions=keeps,
        partial_hit_tokens_min=u.least,
        steps_in_flight_max=u.steps,
    )
    holdings: Any = _Empty()
    made = Manager(settings, evolve(OWN, holdings=lambda *_: holdings))
    made.cache.statistics = counted = counts_of_any()
    fenced: Any = {object()}
    if isinstance(made.cache, PrefixCache):
        made.cache.fenced = fenced
    manager = made.copy() if u.copied == 1 else made
    kept_counts = manager.cache.statistics == counted and getattr(manager.cache, "fenced", fenced) == fenced
    manager.cache.statistics = Statistics()
    manager.prefixes = {OWNER: []}
    request: Any = SimpleNamespace(
        number=OWNER, tokens=Tokens(u.tokens), reads_cache=True, preemptions=0, junction_tokens=u.before, status=None
    )
    asked: list[Any] = []

    def found(*arguments: Any) -> Hit:
        asked.append(arguments)
        return Hit(u.hit, ())

    def registers(*arguments: Any) -> tuple[list[Any], list[Any]]:
        asked.append(arguments)
        return [], []

    with (
        patch.object(prefix_cache, "longest_hit", found),
        patch.object(prefix_cache, "tokens_known", lambda *_: u.known),
        patch.object(prefix_cache, "register", registers),
        on_lengths(prefix_cache),
    ):
        manager._hit(request)
        manager._register(request, u.tokens, None)
    interned = manager._interned
    fine = (interned.grain_tokens == u.grain) & (interned.ahead_tokens == u.ahead) & (interned is made._interned)
    fine = fine & kept_counts
    if not caches:
        return fine & (asked == [])
    looked_up, registered = asked
    kept: Any = registered[2]
    parts = junction(geometry, u.known, u.tokens - 1, u.hit) if sparse and keeps else 0
    fine = fine & (looked_up[5] == u.least) & (request.junction_tokens == parts) & (kept.geometry is geometry)
    if not sparse:
        return fine & (type(kept) is Dense)
    return fine & (type(kept) is Sparse) & (kept.interval_tokens == u.interval) & (kept.junction_tokens == parts)


def _with_new_prefixes(its: Manager) -> Manager:
    its._interned = content.Prefixes(its.geometry.grain_tokens, OWN_RULES, its.geometry.hashed_ahead_tokens)
    return its


def _with_new_counts(its: Any) -> Any:
    its.statistics = Statistics()
    return its


POLICY = Obligation(
    id="retention.running-policy-of-the-settings",
    statements=("KV-OP-08", "KV-OP-09", "KV-OP-13", "KV-OP-15", "KV-OP-16", "KV-OP-27"),
    title="A manager, or a copy of it, registers the blocks of a request by the policy that its settings name: all of "
    "them without a retention interval, else those of the interval and of the junction that the last look-up of this "
    "request found, if junctions are kept. It looks up with the least hit of the settings, and its contents depend on "
    "the token after them if the geometry says so. A copy has the same contents and statistics, and the same content "
    "cannot serve yet. Without prefix caching, nothing is looked up or registered.",
    unknowns={
        **{name: Count(0, 1) for name in ("caches", "sparse", "keeps", "copied", "ahead")},
        **{name: Count(0) for name in ("interval", "least", "before", "hit", "known")},
        **{name: Count(1) for name in ("grain", "alignment", "tokens", "steps")},
    },
    claim=_follows_settings,
    witnesses={
        "a junction of a copy, with steps ahead": lambda u: (
            (u.caches == 1)
            & (u.sparse == 1)
            & (u.keeps == 1)
            & (u.copied == 1)
            & (u.steps == 2)
            & (u.known == 64)
            & (u.tokens == 80)
            & (u.alignment == 16)
            & (u.hit == 16)
            & (u.interval == 0)
        ),
        "dense": lambda u: (u.caches == 1) & (u.sparse == 0) & (u.keeps == 1),
    },
    mutants=(
        only(
            "always-dense",
            "The retention interval is not used.",
            "kvreference.prefix_cache:Sparse",
            lambda geometry, _interval: Dense(geometry),
        ),
        only(
            "junctions-without-the-setting",
            "Junctions are kept wherever there is an interval.",
            "kvreference.prefix_cache:no_junction",
            prefix_cache.junction_of,
        ),
        only(
            "contents-of-a-copy-are-others",
            "A copy of a manager has prefixes of its own, which are never those of requests that came before.",
            "kvreference.manager:Manager.copy",
            lambda self: _with_new_prefixes(COPY(self)),
        ),
        only(
            "a-copy-counts-anew",
            "A copy of a manager has forgotten what was counted.",
            "kvreference.prefix_cache:NoPrefixCache.copy",
            lambda self: _with_new_counts(COPY_CACHE(self)),
        ),
        only(
            "a-copy-is-dense",
            "A copy of a manager keeps all blocks.",
            "kvreference.prefix_cache:PrefixCache.copy",
            lambda self: PrefixCache(self.geometry, Dense(self.geometry), self.partial_hit_tokens_min),
        ),
        only(
            "junction-of-no-request",
            "The junction of a request is found and not kept.",
            "kvreference.retention:Sparse.at_junction",
            lambda self, junction_tokens: self,
        ),
        only(
            "ahead-is-not-asked-for",
            "No content depends on the token after it.",
            "kvreference.manager:Prefixes",
            lambda grain, rules, _ahead: content.Prefixes(grain, rules),
        ),
        only(
            "any-hit-inside-a-block",
            "The least hit of the settings is not used.",
            "kvreference.prefix_cache:PrefixCache",
            lambda geometry, retention, _least, rules, parts: PrefixCache(geometry, retention, 0, rules, parts),
        ),
    ),
)

OBLIGATIONS = (EXTENDS, KEYS, EQUAL, PREFIXES, POLICY)
