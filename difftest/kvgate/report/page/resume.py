"""What a hit needs: at every boundary, in every group, which blocks must be cached, and which of them are.

It is read off the reference, whose sentence this is: the longest boundary at which nothing is missing is the hit. Next
to it stands whether the system has the same blocks cached. A hit that is too short comes from a look-up that looks
wrong, or from a cache that does not hold what it should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from attrs import frozen

from kvgate.kernel.comparison import hit_tokens_of
from kvgate.kernel.difference import Divergence
from kvgate.report.page.recording import Frame, Names, Recording, Side, describe_content
from kvreference.answers import Hit
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Continue, LookUp, Sample

BOUNDARIES_MAX = 10
"""How many boundaries are shown, the longest first; the hits of both sides always are."""
_ABOUT_HITS = frozenset(("KV-OP-01", "KV-OP-02", "KV-OP-16", "KV-OP-19", "KV-OP-20"))
ABOUT_CONTENT = "content of block "


@frozen
class Stretch:
    """Needed blocks in a row of which the same is known."""

    first: int
    last: int
    """Their indices in the request's table."""
    in_reference: bool
    in_system: bool
    is_beginning: bool = False
    """Whether it is the beginning of a block alone that is needed."""


@frozen
class Need:
    """What one group needs at one boundary."""

    stretches: tuple[Stretch, ...]
    reaches_last_token: bool
    """Whether what must match, a look-ahead block included, goes beyond what a hit can cover."""

    @property
    def in_reference(self) -> bool:
        """Whether the reference has all of it."""
        return not self.reaches_last_token and all(stretch.in_reference for stretch in self.stretches)

    @property
    def in_system(self) -> bool:
        """Whether the system has all of it."""
        return not self.reaches_last_token and all(stretch.in_system for stretch in self.stretches)


@frozen
class Boundary:
    """One length at which a hit could end."""

    tokens: int
    needs: tuple[Need, ...]
    is_expected: bool
    """Whether it is the reference's hit."""
    is_got: bool
    """Whether it is the system's."""


@frozen
class Resume:
    """All that is shown."""

    request: int
    tokens: int
    """How many the request has."""
    is_later: bool
    """Whether it is about a later request that begins with the same tokens, and continues."""
    groups: tuple[str, ...]
    boundaries: tuple[Boundary, ...]
    left_out: int
    conclusion: str
    """What follows, in a sentence."""


def resume(recording: Recording, divergence: Divergence | None) -> Resume | None:
    """What the hit needs that ``divergence`` is about; None if it is about none."""
    if divergence is None or not recording.frames or not recording.settings.caches:
        return None
    operation, difference = divergence.operation, divergence.difference
    last = recording.frames[-1]
    if last.reference is None or last.index != divergence.step:
        return None
    if difference.subject.startswith(ABOUT_CONTENT) and last.reference.snapshot is not None:
        block = int(difference.subject.removeprefix(ABOUT_CONTENT))
        tables = last.reference.snapshot.tables
        holder = next((number for number, groups in tables.items() if any(block in table for table in groups)), None)
        reference = _replayed(recording, len(recording.operations))
        if holder is not None and reference is not None:
            return _Table(*reference, holder, last.system).later()
        return None
    if isinstance(operation, (LookUp, Admit)):
        ours, theirs = hit_tokens_of(last.reference.answer), hit_tokens_of(last.system.answer)
        if ours == theirs and difference.statement not in _ABOUT_HITS:
            return None
        before = recording.frames[-2].system if len(recording.frames) > 1 else None
        reference = _replayed(recording, len(recording.operations) - 1)
        return reference and _Table(*reference, operation.request, before).shown(ours, theirs, _served(last))
    return None


def _replayed(recording: Recording, operations: int) -> tuple[Manager, Names] | None:
    """The reference after the first operations of a recording, and its names; None if it cannot follow so far."""
    reference, names = recording.new_reference(recording.settings), Names()
    for operation in recording.operations[:operations]:
        if reference.population.resolve(operation) != operation:
            return None
        reference.apply(operation)
        if isinstance(operation, (Arrive, Sample, Continue)):
            names.arrived(reference, operation.request)
    return reference, names


def _served(frame: Frame) -> Sequence[Sequence[int]]:
    """By group, the blocks that serve the system's hit."""
    answer, snapshot = frame.system.answer, frame.system.snapshot
    if isinstance(answer, Hit):
        return answer.blocks
    request = getattr(frame.operation, "request", -1)
    return () if snapshot is None else snapshot.tables.get(request, ())


class _Table:
    """The reference, asked about one request; next to it the system as it stood then."""

    def __init__(self, reference: Manager, names: Names, request: int, system: Side | None) -> None:
        self._reference, self._names = reference, names
        self._known = set() if system is None else set(system.contents)
        self._before = () if system is None else system.contents
        self._served: Sequence[Sequence[int]] = ()
        self._begun = set() if system is None or system.snapshot is None else set(system.snapshot.begun)
        self._request = self._reference.population[request]
        self._hit_tokens_max = len(self._request.tokens) - 1
        # In some releases the token after a hit may be the last one.
        self._beyond_tokens = int(getattr(reference, "matches_last_token", False))

    def shown(self, ours: int | None, theirs: int | None, served: Sequence[Sequence[int]]) -> Resume:
        """At a look-up whose hits are known, and by which blocks the system ``served`` its own."""
        self._served = served
        candidates = list(self._candidates())
        kept = [each for number, each in enumerate(candidates) if number < BOUNDARIES_MAX or each in (ours, theirs)]
        boundaries = (Boundary(tokens, self._needs(tokens), tokens == ours, tokens == theirs) for tokens in kept)
        return self._resume(tuple(boundaries), len(candidates) - len(kept), False)

    def later(self) -> Resume:
        """For a later request that begins with the same tokens, and continues."""
        self._hit_tokens_max = len(self._request.tokens)
        candidates = list(self._candidates())[:BOUNDARIES_MAX]
        needs = {tokens: self._needs(tokens) for tokens in candidates}
        ours = next((tokens for tokens, groups in needs.items() if all(need.in_reference for need in groups)), None)
        theirs = next((tokens for tokens, groups in needs.items() if all(need.in_system for need in groups)), None)
        boundaries = (Boundary(tokens, needs[tokens], tokens == ours, tokens == theirs) for tokens in candidates)
        return self._resume(tuple(boundaries), len(list(self._candidates())) - len(candidates), True)

    def _candidates(self) -> Sequence[int]:
        alignment = self._reference.geometry.alignment_tokens
        return range(self._hit_tokens_max // alignment * alignment, -1, -alignment)

    def _resume(self, boundaries: tuple[Boundary, ...], left_out: int, is_later: bool) -> Resume:
        groups = tuple(map(_group_in_words, self._reference.geometry.groups))
        conclusion = _of_later(boundaries) if is_later else self._of_look_up(boundaries)
        number, tokens = self._request.number, len(self._request.tokens)
        return Resume(number, tokens, is_later, groups, boundaries, left_out, conclusion)

    def _of_look_up(self, boundaries: Sequence[Boundary]) -> str:
        expected = next((each for each in boundaries if each.is_expected), None)
        got = next((each for each in boundaries if each.is_got), None)
        if expected is None or got is None:
            return "The system's hit ends where no hit can end."
        if got.tokens > expected.tokens:
            lacks = _lacking(got, lambda stretch: stretch.in_reference)
            return f"To resume at token {got.tokens}, {lacks}. The system serves it all the same{self._from(got)}."
        if got.tokens == expected.tokens:
            return "Both sides resume at the same token."
        lacks = _lacking(expected, lambda stretch: stretch.in_system)
        if lacks != _NOTHING:
            return f"In the system, {lacks} for token {expected.tokens}."
        return f"Everything that token {expected.tokens} needs is cached on both sides: the system's look-up misses it."

    def _from(self, boundary: Boundary) -> str:
        """The first block that serves what it does not hold."""
        for group, need in enumerate(boundary.needs):
            for stretch in need.stretches:
                if stretch.in_reference or group >= len(self._served) or stretch.first >= len(self._served[group]):
                    continue
                block = self._served[group][stretch.first]
                if 0 < block < len(self._before) and self._before[block] is not None:
                    return f", from block {block}, which holds {describe_content(self._before[block])}"
        return ""

    def _needs(self, tokens: int) -> tuple[Need, ...]:
        return tuple(self._need(index, group, tokens) for index, group in enumerate(self._reference.geometry.groups))

    def _need(self, index: int, group: Group, tokens: int) -> Need:
        if tokens and group.tokens_matched(tokens) > self._hit_tokens_max + self._beyond_tokens:
            return Need((), True)
        first, end = group.blocks_needed(tokens)
        present = list(self._present(index, range(first, end)))
        stretches = []
        for (ours, theirs), run in groupby(zip(range(first, end), present, strict=True), key=lambda pair: pair[1]):
            blocks = [block for block, _ in run]
            stretches.append(Stretch(blocks[0], blocks[-1], ours, theirs))
        return Need((*stretches, *self._beginning(index, group, group.tokens_matched(tokens))), False)

    def _beginning(self, index: int, group: Group, matched_tokens: int) -> Iterator[Stretch]:
        """The block of which a beginning must be an entry, where a hit ends inside one."""
        if matched_tokens % group.block_size_tokens == 0:
            return
        prefix = self._reference.prefixes[self._request.number][
            matched_tokens // self._reference.geometry.grain_tokens - 1
        ]
        source = self._reference.pool.partial.find((index, prefix))
        block = matched_tokens // group.block_size_tokens
        yield Stretch(block, block, source is not None, source in self._begun, is_beginning=True)

    def _present(self, group: int, blocks: range) -> Iterator[tuple[bool, bool]]:
        """Whether each of a request's blocks is cached, in the reference and in the system."""
        for block in blocks:
            content = self._reference.content(self._request.number, group, block)
            found = self._reference.pool.cached.find(content)
            yield found not in (None, NULL), self._names.of(content) in self._known


_NOTHING = "nothing is lacking"


def _lacking(boundary: Boundary, has: Callable[[Stretch], bool]) -> str:
    """What a boundary needs that a side does not have."""
    if any(need.reaches_last_token for need in boundary.needs):
        return "a hit would reach the last token"
    said = [
        f"{'block' if stretch.first == stretch.last else 'blocks'} {_span(stretch)} of group {group}"
        for group, need in enumerate(boundary.needs)
        for stretch in need.stretches
        if not has(stretch)
    ]
    if not said:
        return _NOTHING
    return f"{', '.join(said[:4])}{' and more' if len(said) > 4 else ''} {'is' if len(said) == 1 else 'are'} not cached"


def _span(stretch: Stretch) -> str:
    return str(stretch.first) if stretch.first == stretch.last else f"{stretch.first} to {stretch.last}"


def _of_later(boundaries: Sequence[Boundary]) -> str:
    ours = next((each.tokens for each in boundaries if each.is_expected), 0)
    theirs = next((each.tokens for each in boundaries if each.is_got), 0)
    if ours == theirs:
        return f"It would resume at token {ours} on both sides: what differs is not needed there."
    return f"It should resume at token {ours}; with what the system has cached, it resumes at token {theirs}."


def _group_in_words(group: Group) -> str:
    window = f", window {group.window_tokens}" if group.window_tokens is not None else ""
    draft = ", draft layer" if group.lookahead else ""
    return f"{group.kind.value.replace('_', ' ')}, {group.block_size_tokens} tokens a block{window}{draft}"
