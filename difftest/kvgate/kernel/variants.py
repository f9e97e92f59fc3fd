"""Variants of a model: the mechanisms that a name's suffixes switch on, one word each.

``gemma-hybrid+masked+pinned=2`` is the model ``gemma-hybrid`` with masked caching and a pinned tier. The order of the
suffixes means nothing: an interval, say, is a multiple of the alignment that results from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm
from typing import Any

from attrs import evolve, frozen

from kvreference.compressed import Tokens, with_partial_hits
from kvreference.geometry import Geometry
from kvreference.settings import Settings

DIGITS_MAX = 6
"""How many digits the number of a suffix may have."""


@frozen
class Features:
    """What a model's requests and its manager do besides the ordinary."""

    masked: bool = False
    """Whether the retention interval is one alignment."""
    retention_interval_tokens: int | None = None
    scratch_first: bool = False
    pin_drop_blocks_min: int | None = None
    transfers: bool = False
    """Whether other nodes provide, load and read."""
    partial_hit_tokens_min: int = 0
    """The shortest hit that may end inside a block."""
    keeps_junctions: bool = False

    def applied_to(self, settings: Settings) -> Settings:
        """``settings`` with these features."""
        interval = settings.geometry.alignment_tokens if self.masked else self.retention_interval_tokens
        return evolve(
            settings,
            retention_interval_tokens=interval if settings.caches else None,
            keeps_junctions=self.keeps_junctions and settings.caches,
            scratch_first=self.scratch_first,
            pin_drop_blocks_min=self.pin_drop_blocks_min,
            partial_hit_tokens_min=self.partial_hit_tokens_min,
        )


def _lookahead_everywhere(geometry: Geometry) -> Geometry:
    return Geometry(tuple(evolve(group, lookahead=not group.keeps_states) for group in geometry.groups))


def _lookahead_in_last_window(geometry: Geometry) -> Geometry:
    windows = [(group.block_size_tokens, index) for index, group in enumerate(geometry.groups) if group.slides]
    _, last = max(windows, default=(0, None))
    return Geometry(tuple(evolve(group, lookahead=index == last) for index, group in enumerate(geometry.groups)))


def _partial(geometry: Geometry) -> Geometry:
    ratios = [group.compress_ratio for group in geometry.groups if group.compress_ratio > 1]
    if ratios:
        return with_partial_hits(geometry, Tokens(max(ratios)))
    # Nothing is compressed: blocks of full attention are cut where those of the other groups end, if they are larger.
    others = [group.unit for group in geometry.groups if not group.keeps_all]
    unit = lcm(*others) if others else None
    return Geometry(
        tuple(
            evolve(group, unit_tokens=unit)
            if unit and group.keeps_all and group.block_size_tokens > unit and not group.block_size_tokens % unit
            else group
            for group in geometry.groups
        )
    )


def _whole_slots(geometry: Geometry) -> Geometry:
    return Geometry(tuple(evolve(group, whole_slots=group.compress_ratio > 1) for group in geometry.groups))


def _hashed_ahead(geometry: Geometry) -> Geometry:
    if not geometry.lookahead_tokens:
        return geometry
    return Geometry(tuple(evolve(group, lookahead=False) for group in geometry.groups), hashed_ahead_tokens=1)


GEOMETRIES: Mapping[str, tuple[Callable[[Geometry], Geometry], str]] = {
    "eagle": (_lookahead_everywhere, "a draft layer in every group: what vLLM assumes if no group is flagged"),
    "mtp": (
        _lookahead_in_last_window,
        "a draft layer in the last of the groups with the largest sliding-window blocks",
    ),
    "partial": (_partial, "hits may end inside blocks that are compressed, or larger than the others, and are copied"),
    "whole-slots": (
        _whole_slots,
        "compressed groups take memory for complete slots, and not for begun ones: as vLLM-Ascend does",
    ),
    "hashed-ahead": (
        _hashed_ahead,
        "hashes cover the token after a block, which its draft layers read, and hits need no look-ahead block",
    ),
}
"""The suffixes that change the geometry."""


@frozen
class Feature:
    """A suffix that changes what the manager does."""

    knob: str
    """Which of ``Features`` it sets."""
    alone: int
    """To what, without a number."""
    what: str
    number_min: int | None = None
    """The smallest number that may follow it; None if none may."""


FEATURES: Mapping[str, Feature] = {
    "masked": Feature("masked", True, "masked caching: a retention interval of one alignment"),
    "retention": Feature(
        "retention_interval_tokens",
        0,
        "a retention interval, in tokens: retention=64; retention alone keeps the replay boundary only",
        number_min=0,
    ),
    "scratch": Feature("scratch_first", True, "scratch first in the free queue"),
    "junctions": Feature(
        "keeps_junctions",
        True,
        "with a retention interval, the boundary is kept where a prompt parts from the cached ones",
    ),
    "pinned": Feature(
        "pin_drop_blocks_min",
        16,
        "a pinned tier; pinned=2 pins drops of at least two blocks, pinned alone of sixteen",
        number_min=1,
    ),
    "transfers": Feature("transfers", True, "other nodes provide, load and read blocks"),
    "min": Feature(
        "partial_hit_tokens_min",
        128,
        "a minimum for hits that end inside blocks, in tokens: min=64; shorter ones are not worth a copy",
        number_min=1,
    ),
}
"""The suffixes that change what the manager does."""

_EXCLUSIVE = (("eagle", "mtp"), ("masked", "retention"))


def read(geometry: Geometry, suffixes: str, features: Features | None = None) -> tuple[Geometry, Features]:
    """The geometry and the features that ``suffixes`` (``mtp+retention=64``) make of a model with ``features``.

    Raises:
        ValueError: a suffix that does not exist, is given twice, excludes another, does not fit the model, or has a
            number that it does not take.
    """
    numbers: dict[str, str | None] = {}
    for word in suffixes.split("+"):
        name, equals, number = word.partition("=")
        if name not in GEOMETRIES and name not in FEATURES:
            raise ValueError(f"no suffix {name!r}: there are {', '.join((*GEOMETRIES, *FEATURES))}")
        if name in numbers:
            raise ValueError(f"suffix {name!r} is given twice")
        numbers[name] = number if equals else None
    for one, other in _EXCLUSIVE:
        if one in numbers and other in numbers:
            raise ValueError(f"suffixes {one!r} and {other!r} exclude each other")

    found = features or Features()
    for name in (name for name in (*GEOMETRIES, *FEATURES) if name in numbers):
        given = numbers[name]
        if name in FEATURES:
            if name in ("masked", "retention"):
                # One of them takes the place of what the model had.
                found = evolve(found, masked=False, retention_interval_tokens=None)
            found = evolve(found, **{FEATURES[name].knob: _value(name, given)})
            continue
        change, what = GEOMETRIES[name]
        changed = change(geometry)
        if given is not None:
            raise ValueError(f"suffix {name!r} takes no number")
        if changed == geometry:
            raise ValueError(f"suffix {name!r} changes nothing here: {what}")
        geometry = changed
    retains = found.masked or found.retention_interval_tokens is not None
    if retains and not any(group.is_sparse for group in geometry.groups):
        raise ValueError("a retention interval needs a sliding-window or a mamba group, and the model has neither")
    if (found.retention_interval_tokens or 0) % geometry.alignment_tokens:
        alignment = geometry.alignment_tokens
        raise ValueError(f"suffix 'retention': an interval is a multiple of the model's alignment, {alignment} tokens")
    if found.keeps_junctions and not retains:
        raise ValueError("suffix 'junctions' is about what a retention interval leaves out: it needs 'retention'")
    if found.partial_hit_tokens_min and not any(group.copies for group in geometry.groups):
        raise ValueError("suffix 'min' is about hits that end inside blocks: it needs 'partial'")
    return geometry, found


def _value(name: str, number: str | None) -> Any:
    feature = FEATURES[name]
    if number is None:
        return feature.alone
    if feature.number_min is None:
        raise ValueError(f"suffix {name!r} takes no number")
    if not number.isdecimal() or len(number) > DIGITS_MAX or int(number) < feature.number_min:
        raise ValueError(
            f"suffix {name!r}: what follows = must be a number of at least {feature.number_min}, and of at most "
            f"{DIGITS_MAX} digits"
        )
    return int(number)
