"""Known differences between a published system and the reference, each with a finding that tells its story.

A declared difference is counted and shown at every run. What explains it is its fault alone: planted into the
reference, the fault must make it do all that the system did, where the reference itself does something else. So another
defect that violates the same statement is still a divergence, even in the same run. Where the register says that a
finding is explained beside another, the reference with that other fault takes the place of the reference itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import evolve

from kvgate.adapters.release_variants import spoken
from kvgate.adapters.stock import Stock
from kvgate.findings.faults import (
    EventsSpanNullBlocks,
    ExternalTokensTakeOtherHits,
    LoadForgetsItsLastToken,
    LookAheadSpreads,
)
from kvgate.findings.faults_of_ascend import KnownBySlots, KnownBySlotsAndSpanning
from kvgate.findings.faults_of_releases import (
    LookAheadKeptAtZero,
    MaskOmitsLookAhead,
    ReplayAboveItsLookAhead,
    SecondGroupUncut,
)
from kvgate.findings.prompt_tails import only_prompt_tails, prompt_tails_beside
from kvgate.kernel.comparison import Comparison
from kvgate.kernel.correspondence import Correspondence
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Answer, Granted, Hit
from kvreference.attention import Kind
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.settings import Settings


def explain(divergence: Divergence, lockstep: Lockstep) -> str | None:
    """The id of the finding that explains ``divergence``, or None. ``lockstep`` stands where it diverged.

    Findings are vLLM's, of one release or of many, and vLLM-Ascend's: in any other system the same fault is that
    system's own.
    """
    if not isinstance(lockstep.system, Stock):
        return None
    # What a system is there to mend is news in it.
    known = {name: explains for name, explains in EXPLANATIONS.items() if name not in lockstep.system.mends()}
    return next((finding for finding, explains in known.items() if explains(divergence, lockstep)), None)


class GateSubtractsSkippedBlocks(Manager):
    """The gate takes the whole table off what a request holds at once at most, of which the dead blocks are no part."""

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        if any(group.keeps_states for group in self.geometry.groups):
            return super()._fits(request, hit, computed)
        sources = {partial.source for partial in hit.partials}
        needed, held = self.pool.count_free(sources), sources
        known = self.tables.get(request.number)
        for index, (group, blocks) in enumerate(zip(self.geometry.groups, hit.blocks, strict=True)):
            peak = min(
                group.blocks_occupied(len(request.tokens)),
                group.blocks_held_at_most(self.settings.chunk_tokens, self.settings.tokens_max),
            )
            dead = group.blocks_dead(computed)
            entries = max(dead, len(blocks)) if known is None else len(known[index].blocks)
            needed += max(0, peak - entries) + self.pool.count_free(blocks[dead:])
            held.update(blocks[dead:])
        return self.pool.make_room(needed, held)


class SaltNamedLikeAnAdapter(Manager):
    """Nothing tells whether a name is that of a salt or of an adapter."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._interned = _PrefixesWithoutDomains(self.geometry.grain_tokens)


class _PrefixesWithoutDomains(Prefixes):
    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        grain = self.grain_tokens
        parent = known[-1] if known else self._child(None, (), 0)
        for start in range(len(known) * grain, len(tokens) - grain + 1, grain):
            names = tuple((key.name, key.offset_tokens) for key in keys.of_block(start, start + grain))
            parent = self._child(parent, (tuple(tokens[start : start + grain]), names), start + grain)
            known.append(parent)


class MediaForgottenInPromptTail(Manager):
    """What the prompt does not fill depends on the last multimodal item alone."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._interned = _PrefixesWithLastMedia(self.geometry.grain_tokens)


class _PrefixesWithLastMedia(Prefixes):
    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        super().extend(known, tokens, evolve(keys, media=keys.media[-1:]) if known else keys)


class LookAheadVerifiedOnce(Manager):
    """The groups shorten the hit in turn, and each asks for its look-ahead block only the first time it is asked.

    It asks again if the hit was shortened by a group that did not ask.
    """

    aligns_before_the_drop = False

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        bare = Geometry(tuple(evolve(group, lookahead=False) for group in self.geometry.groups))
        return longest_hit(bare, self.pool.cached, self.prefixes[request.number], self._hit_tokens(request) + 1)

    def _hit_tokens(self, request: Request) -> int:
        alignment = self.geometry.alignment_tokens
        tokens = (len(request.tokens) - 1) // alignment * alignment
        # Groups that are alike are asked as one, full attention before all others.
        kinds = sorted(dict.fromkeys(self.geometry.groups), key=lambda kind: kind.window_tokens is not None)
        verified: set[Group] = set()
        while True:
            before = tokens
            for kind in kinds:
                asks = kind.lookahead and kind not in verified
                longest = self._longest(request, kind, tokens, asks)
                if asks:
                    verified.add(kind)
                elif longest < tokens:
                    verified.clear()
                tokens = longest
            if tokens == before:
                return tokens

    def _longest(self, request: Request, kind: Group, tokens: int, asks: bool) -> int:
        """The longest hit of at most ``tokens`` that the groups like ``kind`` can serve."""
        indices = [index for index, group in enumerate(self.geometry.groups) if group == kind]
        asked = evolve(kind, lookahead=asks)
        last = len(request.tokens) - (0 if getattr(self, "matches_last_token", False) else 1)

        def satisfied(hit_tokens: int) -> bool:
            if hit_tokens > 0 and asked.tokens_matched(hit_tokens) > last:
                return False
            needed = range(*asked.blocks_needed(hit_tokens))
            contents = (self.content(request.number, index, block) for index in indices for block in needed)
            return all(self.pool.cached.find(content) is not None for content in contents)

        alignment = self.geometry.alignment_tokens
        longest = next(length for length in range(tokens, -1, -alignment) if satisfied(length))
        if self.aligns_before_the_drop and asks and kind.window_tokens and kind.block_size_tokens != alignment:
            whole_window = kind.blocks_occupied(kind.window_tokens - 1) * kind.block_size_tokens
            return longest if longest >= whole_window else max(0, longest - alignment)
        return longest


class AlignedBeforeTheDrop(LookAheadVerifiedOnce):
    """Where the window reaches back to the first token, what was found is aligned before the look-ahead block goes."""

    aligns_before_the_drop = True


def _explained_by(fault: type[Manager], without: type[Manager] = Manager) -> Callable[[Divergence, Lockstep], bool]:
    """Whether the system did what the reference with ``fault`` does, and not what the one without it does."""

    def explains(divergence: Divergence, lockstep: Lockstep) -> bool:
        happened = divergence.operation is not None
        return happened and _does_the_same(fault, lockstep) and not _does_the_same(without, lockstep)

    return explains


def _explained_beside(
    fault: type[Manager], *others: type[Manager], without: type[Manager] = Manager
) -> Callable[[Divergence, Lockstep], bool]:
    """Whether ``fault`` explains it; or with one of ``others``, where one step shows both, and that one alone does not.

    The longer or shorter hit of an admission goes through the gate and takes blocks in the same step.
    """
    alone = _explained_by(fault, without=without)
    beside = [_explained_by(type(fault.__name__, (fault, other), {}), without=other) for other in others]

    def explains(divergence: Divergence, lockstep: Lockstep) -> bool:
        if alone(divergence, lockstep):
            return True
        return any(both(divergence, lockstep) for both in beside) and not _does_the_same(without, lockstep)

    return explains


def _does_the_same(kind: type[Manager], lockstep: Lockstep) -> bool:
    """Whether a manager of ``kind`` can go the way that the system went, and ends where the system stands."""
    manager = spoken(kind, lockstep.system)(lockstep.system.population.settings)
    ours: Answer | None = None
    for operation in lockstep.performed:
        if manager.population.resolve(operation) != operation:
            return False
        ours = manager.apply(operation)
    theirs, comparison = lockstep.answers[1], Comparison()
    return (
        ours is not None
        and theirs is not None
        and comparison.of_answers(operation, ours, theirs) is None
        and comparison.of_states(operation, manager.snapshot(), lockstep.system.snapshot()) is None
        and (lockstep.reference is None or _identities_fit(kind, lockstep, lockstep.reference))
    )


def _identities_fit(kind: type[Manager], lockstep: Lockstep, reference: Manager) -> bool:
    """Whether every identity that the system ever gave to a content stands for one content of a manager of ``kind``."""
    system = lockstep.system
    manager, truth = spoken(kind, system)(reference.settings), spoken(Manager, system)(reference.settings)
    truth._interned = reference._interned
    seen = Correspondence()
    for operation in lockstep.performed[:-1]:
        manager.apply(operation)
        truth.apply(operation)
        identities = lockstep.comparison.correspondence.theirs(truth.pool.cached.contents())
        for content, identity in zip(manager.pool.cached.contents(), identities, strict=True):
            if identity is not None and not seen.relate(content, identity):
                return False
    manager.apply(lockstep.performed[-1])
    return all(map(seen.relate, manager.pool.cached.contents(), lockstep.system.snapshot().contents))


def _new_block_ids_grow(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Only the list that nobody drains, with every block that a full group was given; whatever else grows is news."""
    settings = lockstep.system.population.settings
    place = re.fullmatch(r".*\.single_type_managers\[(\d+)\]\.new_block_ids", divergence.difference.subject)
    if place is None or settings.geometry.groups[int(place[1])].kind is not Kind.FULL:
        return False
    if lockstep.reference is None:
        return True
    manager = spoken(Manager, lockstep.system)(settings)
    answers: list[Answer] = [manager.apply(operation) for operation in lockstep.performed]
    given = sum(len(answer.blocks[int(place[1])]) for answer in answers if isinstance(answer, Granted))
    return divergence.difference.got == str(given)


def _where_it_looks_up(explains: Callable[[Divergence, Lockstep], bool]) -> Callable[[Divergence, Lockstep], bool]:
    """Where hits may end inside blocks, it is not vLLM that looks them up: then nothing is a fault of its look-up."""

    def explains_there(divergence: Divergence, lockstep: Lockstep) -> bool:
        groups = lockstep.system.population.settings.geometry.groups
        return not any(group.copies for group in groups) and explains(divergence, lockstep)

    return explains_there


def _of(
    releases: Collection[str], explains: Callable[[Divergence, Lockstep], bool]
) -> Callable[[Divergence, Lockstep], bool]:
    """Only these releases have it: in any other it would be that one's own, and news."""

    def explains_there(divergence: Divergence, lockstep: Lockstep) -> bool:
        return getattr(lockstep.system, "release", None) in releases and explains(divergence, lockstep)

    return explains_there


def _either(*several: Callable[[Divergence, Lockstep], bool]) -> Callable[[Divergence, Lockstep], bool]:
    """Whether one of ``several`` explains it."""
    return lambda divergence, lockstep: any(explains(divergence, lockstep) for explains in several)


def _or_beside_tails(
    explains: Callable[[Divergence, Lockstep], bool], fault: type[Manager], without: type[Manager] | None = None
) -> Callable[[Divergence, Lockstep], bool]:
    """Or ``fault`` and 012 do together what the system did, in a release that has 012, and ``without`` and 012 do not.

    The admission that the fault gave another hit, or let in, caches the end of its prompt as well.
    """

    def explains_there(divergence: Divergence, lockstep: Lockstep) -> bool:
        if explains(divergence, lockstep):
            return True
        if getattr(lockstep.system, "release", None) not in PROMPT_TAILS or only_prompt_tails(divergence, lockstep):
            return False
        other = without is not None and prompt_tails_beside(without, divergence, lockstep)
        return not other and prompt_tails_beside(fault, divergence, lockstep)

    return explains_there


def _slots_for_tokens(divergence: Divergence, lockstep: Lockstep) -> bool:
    """013, which shares the look-up with 005, 006 and 014: what one of those does alone is that one's.

    One event may tell null blocks as well (007), the gate let in too many (002), and a load forget its last token
    (009), in the same step. Of states it says nothing: vLLM-Ascend's own groups have none.
    """
    if lockstep.system.population.settings.geometry.keeps_states:
        return False
    explains = (
        _explained_beside(KnownBySlots, GateSubtractsSkippedBlocks, LoadForgetsItsLastToken),
        _explained_by(KnownBySlotsAndSpanning, without=EventsSpanNullBlocks),
    )
    others = SecondGroupUncut, LookAheadVerifiedOnce, AlignedBeforeTheDrop
    return any(each(divergence, lockstep) for each in explains) and not any(
        _does_the_same(other, lockstep) for other in others
    )


PROMPT_TAILS = ("0.27.1", "0.30.0", "0.33.0")
"""The releases that cache the block in which a prompt ends."""

EXPLANATIONS: Mapping[str, Callable[[Divergence, Lockstep], bool]] = {
    "001-new-block-ids-never-drained": _new_block_ids_grow,
    # Early, for where it is nearly every case shows it.
    "013-compressed-block-known-by-its-slots": _of(("ascend 0.20.2rc1",), _slots_for_tokens),
    "002-gate-subtracts-skipped-blocks": _or_beside_tails(
        _explained_beside(GateSubtractsSkippedBlocks, ExternalTokensTakeOtherHits, LoadForgetsItsLastToken),
        GateSubtractsSkippedBlocks,
    ),
    "003-salt-collides-with-adapter-name": _explained_by(SaltNamedLikeAnAdapter),
    "004-media-forgotten-in-prompt-tail": _explained_by(MediaForgottenInPromptTail),
    "005-lookahead-verified-at-another-length": _where_it_looks_up(
        _or_beside_tails(_explained_by(LookAheadVerifiedOnce), LookAheadVerifiedOnce)
    ),
    "006-aligned-before-the-drop": _where_it_looks_up(
        _either(
            _or_beside_tails(
                _explained_beside(
                    AlignedBeforeTheDrop,
                    GateSubtractsSkippedBlocks,
                    ExternalTokensTakeOtherHits,
                    LoadForgetsItsLastToken,
                    without=LookAheadVerifiedOnce,
                ),
                AlignedBeforeTheDrop,
                LookAheadVerifiedOnce,
            ),
            # What is let in with the shorter hit leaves out what that release leaves out, in the same step.
            _of(
                ("0.22.1",), _explained_beside(AlignedBeforeTheDrop, MaskOmitsLookAhead, without=LookAheadVerifiedOnce)
            ),
        )
    ),
    "007-events-span-null-blocks": _explained_by(EventsSpanNullBlocks),
    "008-external-tokens-take-other-hits": _explained_beside(ExternalTokensTakeOtherHits, LoadForgetsItsLastToken),
    "009-load-forgets-its-last-token": _explained_by(LoadForgetsItsLastToken),
    "011-mask-omits-look-ahead": _of(("0.22.1",), _explained_by(MaskOmitsLookAhead)),
    "012-prompt-tail-that-serves-nobody": _of(PROMPT_TAILS, only_prompt_tails),
    "014-second-full-group-not-cut": _explained_by(SecondGroupUncut),
    "015-replay-above-its-look-ahead": _of(("0.23.0",), _explained_by(ReplayAboveItsLookAhead)),
    "016-look-ahead-kept-at-zero": _of(("0.33.0",), _explained_by(LookAheadKeptAtZero)),
    "010-lookahead-spreads-to-equal-groups": _where_it_looks_up(
        _explained_beside(
            LookAheadSpreads,
            GateSubtractsSkippedBlocks,
            AlignedBeforeTheDrop,
            ExternalTokensTakeOtherHits,
            LoadForgetsItsLastToken,
        )
    ),
}
"""Finding id to the question whether it explains a divergence."""
