"""The adapters for vLLM with the plug-in ``swa_retention``: the same block manager, with what is switched on.

The plug-in is put in place as vLLM would, and stays: with nothing switched on it must not be noticed. What a release
has itself is left to the release, and compared as the release's own is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from math import lcm
from typing import TYPE_CHECKING, Any

from attrs import evolve

from kvgate.adapters.groups import counts_begun_slots, not_represented
from kvgate.adapters.native import Native, leaves_out, not_had, not_retained
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.adapters.releases.description import Release
from kvgate.adapters.stock import Stock
from kvreference.answers import Copy, Partial
from kvreference.block_pool import Pinned
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks


FIXED = frozenset({"013-compressed-block-known-by-its-slots", "014-second-full-group-not-cut"})
"""What the plug-in fixes of compressed groups: one is vLLM-Ascend's, one is vLLM's."""
FIXED_BY_RETENTION = frozenset({"007-events-span-null-blocks"})
"""What it fixes where it decides what is retained: it registers runs of neighbours."""
CACHED_BY_PLUG_IN: Mapping[str | None, str] = {"scratch-of-windows": "scratch-of-windows-alone"}
"""What a release decides by design, and what of it is left if the plug-in decides what is cached."""
FIXED_MASKS = frozenset({"011-mask-omits-look-ahead", "015-replay-above-its-look-ahead"})
"""What it fixes where it does so in place of a release that does it too."""


def fixes(settings: Settings, release: Release = INSTALLED) -> frozenset[str]:
    """The findings of a release that the plug-in fixes under ``settings``."""
    compressed = any(group.compress_ratio > 1 for group in settings.geometry.groups)
    retains = settings.retention_interval_tokens is not None and caches_itself(settings, release)
    masks = FIXED_MASKS if release.masks else frozenset[str]()
    return (FIXED if compressed else frozenset()) | (FIXED_BY_RETENTION | masks if retains else frozenset())


def caches_itself(settings: Settings, release: Release) -> bool:
    """Whether the plug-in decides what is cached, and not the release."""
    interval = settings.retention_interval_tokens
    is_native = release.interval is not None or (release.masks and interval == settings.geometry.alignment_tokens)
    return _unit(settings) is not None or not is_native


def with_plug_in(release: Release, settings: Settings) -> Release:
    """``release`` with what the plug-in decides in its place."""
    if not caches_itself(settings, release):
        return release
    return evolve(release, masks=False, choices=CACHED_BY_PLUG_IN.get(release.choices, release.choices))


def needs_plug_in(release: Release, settings: Settings) -> bool:
    """Whether a release keeps what ``settings`` say only with the plug-in.

    Raises:
        ValueError: it does not do so with it either.
    """
    if next(not_retained(release, settings), None) is None:
        return False
    refusal = next(chain(not_in_plug_in(settings), _not_on_release(release, settings)), None)
    if refusal is not None:
        raise ValueError(refusal)
    return True


class Retention(Stock):
    """vLLM's block manager with the plug-in, under the gate's protocol.

    Raises:
        ValueError: settings for which the plug-in has nothing.
    """

    def __init__(self, settings: Settings) -> None:
        with switched_on(settings):
            super().__init__(settings)

    def fixes(self) -> frozenset[str]:
        return fixes(self.settings)

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(not_in_plug_in(settings), counts_begun_slots(settings), not_represented(settings)), None)

    def partials_of(self, _blocks: KVCacheBlocks) -> tuple[Partial, ...]:
        from swa_retention.partial.hit import sources_of

        return tuple(Partial(each.group, each.block.block_id, each.tokens) for each in sources_of(_blocks.blocks))

    def take_copies(self) -> tuple[Copy, ...]:
        from swa_retention.partial.dispatch import take_copies

        return tuple(map(copy_of, take_copies(self.manager)))

    def snapshot(self) -> Snapshot:
        seen = evolve(super().snapshot(), scratch_first=self.settings.scratch_first)
        partial = getattr(self.manager.coordinator, "partial", None)
        if partial is not None:
            copies = tuple(map(copy_of, partial.pending.copies))
            seen = evolve(seen, copies=copies, begun=partial.boundaries.block_ids())
        tier = getattr(self.manager.block_pool, "pinned_tier", None)
        if tier is None:
            return seen
        pinned = frozenset(block for block, is_pinned in enumerate(tier.pinned) if is_pinned)
        return evolve(seen, pinned=Pinned(pinned, tuple(self._walk(tier.queue))))


class RetentionRelease(Retention, Native):
    """The block manager of another release of vLLM with the plug-in.

    Raises:
        ValueError: settings for which the release and the plug-in have nothing.
    """

    def __init__(self, description: Release, settings: Settings) -> None:
        with switched_on(settings, description):
            Native.__init__(self, with_plug_in(description, settings), settings)

    def fixes(self) -> frozenset[str]:
        return fixes(self.settings, RELEASES[self.description.name])

    def refusal(self, settings: Settings) -> str | None:
        release = RELEASES[self.description.name]
        return next(
            chain(not_in_plug_in(settings), _not_on_release(release, settings), not_had(release, settings)), None
        )


@contextmanager
def switched_on(settings: Settings, release: Release = INSTALLED) -> Iterator[None]:
    """Managers built in this context have the features of ``settings``, as far as ``release`` leaves them to the
    plug-in."""
    from swa_retention.config import COMPRESSED_BLOCK_SIZES_SLOTS, Configuration
    from swa_retention.patches.attach import activate
    from swa_retention.releases import handed_over, release_of

    interval = settings.retention_interval_tokens
    # An interval of one alignment has a switch of its own.
    masked = settings.caches and interval == settings.geometry.alignment_tokens
    drop, unit = settings.pin_drop_blocks_min, _unit(settings)
    configuration = Configuration(
        None if masked else interval,
        masked=masked,
        junctions=settings.keeps_junctions,
        scratch_first=settings.scratch_first,
        pins=drop is not None,
    )
    if drop is not None:
        configuration = evolve(configuration, pin_min_drop_blocks=drop)
    if unit is not None:
        configuration = evolve(
            configuration,
            partial_hits=True,
            partial_unit_tokens=unit,
            partial_min_tokens=settings.partial_hit_tokens_min,
        )
    compressed = [group for group in settings.geometry.groups if group.compress_ratio > 1]
    if compressed:
        # Other sizes are of groups in small: what is switched on for them is that all groups are cut to a hit.
        slots = compressed[0].block_size_tokens // compressed[0].compress_ratio
        slots = slots if slots in COMPRESSED_BLOCK_SIZES_SLOTS else COMPRESSED_BLOCK_SIZES_SLOTS[0]
        configuration = evolve(configuration, compressed_block_size_slots=slots)
    row = release_of(release.version)
    activate(handed_over(configuration, row) if row is not None else configuration)
    try:
        yield
    finally:
        activate(Configuration())


def copies_carried(output: Any) -> tuple[Copy, ...]:
    """The copies that a step of vLLM's scheduler begins with."""
    from swa_retention.patches.dispatch import copies_of

    return tuple(map(copy_of, copies_of(output)))


def copy_of(copy: Any) -> Copy:
    """A copy of the plug-in in the gate's words."""
    return Copy(copy.group, copy.source, copy.destination, copy.tokens)


def _unit(settings: Settings) -> int | None:
    """At which multiples hits may end inside blocks, in tokens; None if they never do."""
    geometry = settings.geometry
    return geometry.alignment_tokens if any(group.copies for group in geometry.groups) else None


def not_in_plug_in(settings: Settings) -> Iterator[str]:
    """What the plug-in does otherwise, or not."""
    if settings.geometry.hashed_ahead_tokens:
        yield "hashes that cover the token after a block: they were not tried with the plug-in"
    unit = _unit(settings) if settings.caches else None
    for index, group in enumerate(settings.geometry.groups):
        if unit is None:
            break
        if group.copies != (group.keeps_all and group.block_size_tokens > unit):
            yield f"group {index}: where the plug-in cuts blocks at all, it cuts all larger ones of full attention"
        if group.copies and group.unit != unit:
            yield f"group {index} has a unit of {group.unit} tokens: the plug-in has one, {unit} tokens"
        if group.keeps_states:
            yield f"partial hits next to the states of group {index}: the plug-in supports them next to windows only"


def adds_partial_hits(release: Release) -> bool:
    """Whether the plug-in adds partial hits to a release of vLLM."""
    from swa_retention.releases import PARTIAL_HITS, release_of

    row = release_of(release.version)
    return row is None or PARTIAL_HITS not in row.refused


def _not_on_release(release: Release, settings: Settings) -> Iterator[str]:
    """What a release of vLLM decides with the plug-in too, and what the plug-in rejects there."""
    geometry, interval, name = settings.geometry, settings.retention_interval_tokens, f"vLLM {release.version}"
    copies, slides = _unit(settings) is not None, any(group.slides for group in geometry.groups)
    if copies and not adds_partial_hits(release):
        yield f"partial hits: the plug-in has none on {name}"
    if release.masks and settings.caches and leaves_out(geometry):
        masked = slides or not copies
        if masked and interval is None:
            yield f"caching of blocks that no hit can read: {name} leaves them out (+masked)"
        if not masked and interval is not None:
            yield f"masked caching: with partial hits and without windows, {name} with the plug-in caches all blocks"
    blocks = lcm(*(group.block_size_tokens for group in geometry.groups))
    if release.interval is not None and interval and interval != geometry.alignment_tokens and interval % blocks:
        yield f"a retention interval of {interval} tokens: {name} takes multiples of {blocks} tokens"
    if interval is not None and not (slides or release.retains_states):
        yield f"a retention interval of {interval} tokens: the plug-in has one for sliding windows alone"
    if settings.keeps_junctions and release.interval is not None and not release.pins_junctions:
        yield f"junctions: {name} keeps none"
    if release.choices is not None and not settings.scratch_first:
        yield f"scratch first off: {name} always has it (+scratch)"


def install() -> None:
    """Put in place the patches of all features that the plug-in adds to this vLLM.

    Raises:
        swa_retention.register.IncompatibleError: they do not fit this vLLM.
    """
    from swa_retention.config import Configuration
    from swa_retention.features import FEATURES
    from swa_retention.register import apply
    from swa_retention.releases import check_release

    release = check_release(Configuration())
    for feature in FEATURES:
        if feature.name not in release.native and feature.name not in release.refused:
            apply(feature.patches)
