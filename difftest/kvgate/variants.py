"""Variants of a model: the mechanisms that a name's suffixes switch on, one word each.

``gemma-hybrid+masked+pinned=2`` is the model ``gemma-hybrid`` with masked caching and a pinned tier. Suffixes that
change the geometry come first in effect, whatever their order: an interval is a multiple of the alignment that results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve, frozen

from kvreference.compressed import C128, Tokens, with_partial_hits
from kvreference.geometry import Geometry
from kvreference.settings import Settings


@frozen
class Features:
    """What a model's requests and its manager do besides the ordinary."""

    interval_alignments: int | None = None
    """The retention interval, in alignments; None for none."""
    scratch_first: bool = False
    pin_drop_blocks_min: int | None = None
    transfers: bool = False
    """Whether other nodes provide, load and read."""

    def applied_to(self, settings: Settings) -> Settings:
        """``settings`` with these features."""
        interval = self.interval_alignments
        alignment = settings.geometry.alignment_tokens
        return evolve(
            settings,
            retention_interval_tokens=None if interval is None or not settings.caches else interval * alignment,
            scratch_first=self.scratch_first,
            pin_drop_blocks_min=self.pin_drop_blocks_min,
        )


def _lookahead_everywhere(geometry: Geometry) -> Geometry:
    return Geometry(tuple(evolve(group, lookahead=not group.keeps_states) for group in geometry.groups))


def _lookahead_in_last_window(geometry: Geometry) -> Geometry:
    last = max((index for index, group in enumerate(geometry.groups) if group.slides), key=_size_of(geometry))
    return Geometry(
        tuple(evolve(group, lookahead=index == last) for index, group in enumerate(geometry.groups)),
    )


def _size_of(geometry: Geometry) -> Callable[[int], tuple[int, int]]:
    return lambda index: (geometry.groups[index].block_size_tokens, index)


def _partial(geometry: Geometry) -> Geometry:
    ratios = [group.compress_ratio for group in geometry.groups if group.compress_ratio > 1]
    return with_partial_hits(geometry, Tokens(max(ratios, default=C128)))


GEOMETRIES: Mapping[str, tuple[Callable[[Geometry], Geometry], str]] = {
    "eagle": (_lookahead_everywhere, "a draft layer in every group: what vLLM assumes if no group is flagged"),
    "mtp": (
        _lookahead_in_last_window,
        "a draft layer in the last of the groups with the largest sliding-window blocks",
    ),
    "partial": (_partial, "hits may end inside compressed blocks, and are copied"),
}
"""The suffixes that change the geometry."""

FEATURES: Mapping[str, tuple[Callable[[Features, int | None], Features], str]] = {
    "masked": (
        lambda features, _: evolve(features, interval_alignments=1),
        "masked caching: a retention interval of one alignment",
    ),
    "retention": (
        lambda features, number: evolve(features, interval_alignments=number or 0),
        "a retention interval, in alignments: retention=4; retention alone keeps the replay boundary only",
    ),
    "scratch": (lambda features, _: evolve(features, scratch_first=True), "scratch first in the free queue"),
    "pinned": (
        lambda features, number: evolve(features, pin_drop_blocks_min=16 if number is None else number),
        "a pinned tier; pinned=2 pins drops of at least two blocks, pinned alone of sixteen",
    ),
    "transfers": (
        lambda features, _: evolve(features, transfers=True),
        "other nodes provide, load and read blocks",
    ),
}
"""The suffixes that change what the manager does."""


def read(geometry: Geometry, suffixes: str) -> tuple[Geometry, Features]:
    """The geometry and the features that ``suffixes`` (``mtp+retention=4``) make of a model.

    Raises:
        ValueError: a suffix that does not exist, does not fit the model, or has no number where it needs one.
    """
    features = Features()
    words = [word for word in suffixes.split("+") if word]
    for word in sorted(words, key=lambda word: word not in GEOMETRIES):
        name, equals, number = word.partition("=")
        if equals and not number.isdecimal():
            raise ValueError(f"suffix {word!r}: what follows = must be a number")
        if word in GEOMETRIES:
            geometry = GEOMETRIES[word][0](geometry)
        elif name in FEATURES:
            features = FEATURES[name][0](features, int(number) if equals else None)
        else:
            raise ValueError(f"no suffix {word!r}: there are {', '.join((*GEOMETRIES, *FEATURES))}")
    return geometry, features
