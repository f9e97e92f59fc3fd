"""Variants of a model.

Goal: a suffix switches on one mechanism, in any order of suffixes, and any other suffix is rejected with the known
ones. Method: every suffix by itself against what it means, all orders of several, and every mistake.
"""

from __future__ import annotations

import re
from itertools import permutations

import pytest
from attrs import evolve, fields

from kvgate.explore.mechanisms import MECHANISMS
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import MODELS, load
from kvgate.kernel.variants import DIGITS_MAX, FEATURES, GEOMETRIES, Features, read
from kvreference.settings import Settings


def lookaheads(name: str) -> list[int]:
    """The groups of a model in which a draft layer lives."""
    return [index for index, group in enumerate(load(name).geometry.groups) if group.lookahead]


# The meaning of each

DRAFTS = {
    "full+eagle": [0],
    "gemma-hybrid+eagle": [0, 1, 2, 3, 4, 5],
    "mamba-all+eagle": [0],
    "swa+mtp": [0],
    "gemma-hybrid+mtp": [4],
    "gpt-oss-hybrid+mtp": [0],
    "two-windows+mtp": [2],
    "mixed-blocks+mtp": [1],
    "compressed+mtp": [2],
    "compressed+partial+mtp": [2],
    "dsv4-flash+mtp": [2],
    "dsv4-flash-ascend-64+mtp": [3],
}
"""One flag is for all groups that keep slots, the other for the last of the largest sliding-window blocks."""

UNITS = {
    "compressed+partial": [16, 16, 16, 4],
    "compressed+partial+eagle": [16, 16, 16, 4],
    "dsv4-flash+partial": [128, 64, 64, 4, 8],
    "dsv4-flash-ascend-32+partial": [128, 128, 32, 32, 2, 8],
    "dsv4-flash-ascend-128+partial": [128, 128, 128, 128, 8, 32],
    "mixed-blocks+partial": [16, 16],
    "mixed-blocks+partial+eagle": [16, 16],
}
"""Hits may end at whole slots of the coarsest ratio, in every compressed group; elsewhere at block ends as before.

Where nothing is compressed, at the block ends of the other groups.
"""

SLOTS = {
    "compressed+whole-slots": [True, True, False, False],
    "dsv4-flash-ascend-32+whole-slots+mtp": [True, True, False, False, False, False],
}
"""Compressed groups take memory for whole slots."""

KNOBS = {
    "masked": Features(masked=True),
    "retention": Features(retention_interval_tokens=0),
    "retention=0": Features(retention_interval_tokens=0),
    "retention=128": Features(retention_interval_tokens=128),
    "retention=0128": Features(retention_interval_tokens=128),
    "scratch": Features(scratch_first=True),
    "pinned": Features(pin_drop_blocks_min=16),
    "pinned=1": Features(pin_drop_blocks_min=1),
    "transfers": Features(transfers=True),
}


@pytest.mark.parametrize(("name", "groups"), DRAFTS.items(), ids=DRAFTS)
def test_a_draft_layer_lives_where_the_suffix_says(name: str, groups: list[int]) -> None:
    """And nowhere else; nothing but that is changed."""
    assert groups == lookaheads(name)
    base, _, _ = name.partition("+")
    bare = tuple(evolve(group, lookahead=False, unit_tokens=None) for group in load(name).geometry.groups)
    assert MODELS[base].geometry.groups == bare


@pytest.mark.parametrize(("name", "units"), UNITS.items(), ids=UNITS)
def test_hits_may_end_inside_blocks(name: str, units: list[int]) -> None:
    """The units are whole slots, and divide the blocks: a geometry that is not so cannot be made."""
    geometry = load(name).geometry
    base, _, _ = name.partition("+")
    assert units == [group.unit for group in geometry.groups]
    assert any(group.copies for group in geometry.groups)
    assert not any(group.copies for group in MODELS[base].geometry.groups)
    assert geometry.alignment_tokens < MODELS[base].geometry.alignment_tokens


@pytest.mark.parametrize(("name", "groups"), SLOTS.items(), ids=SLOTS)
def test_compressed_groups_take_whole_slots(name: str, groups: list[bool]) -> None:
    """And no other group does."""
    assert groups == [group.whole_slots for group in load(name).geometry.groups]


@pytest.mark.parametrize(("suffix", "tokens"), [("min", 128), ("min=1", 1), ("min=48", 48)])
def test_a_minimum_is_one_of_partial_hits(suffix: str, tokens: int) -> None:
    """It is a setting, and the geometry stays as it is."""
    model, whole = load(f"compressed+partial+{suffix}"), load("compressed+partial")
    assert Features(partial_hit_tokens_min=tokens) == model.features
    assert whole.geometry == model.geometry
    assert tokens == model.features.applied_to(Settings(model.geometry, blocks=10)).partial_hit_tokens_min


@pytest.mark.parametrize(("suffix", "features"), KNOBS.items(), ids=KNOBS)
def test_a_feature_is_switched_on_alone(suffix: str, features: Features) -> None:
    """The geometry stays as it is."""
    model = load(f"mixed-blocks+{suffix}")
    assert (f"mixed-blocks+{suffix}", features) == (model.name, model.features)
    assert MODELS["mixed-blocks"].geometry == model.geometry


HASHED = "gemma-hybrid+eagle+hashed-ahead"


@pytest.mark.parametrize("name", [HASHED, "gemma-hybrid+hashed-ahead+eagle"])
def test_hashes_cover_a_token_more_instead_of_look_ahead(name: str) -> None:
    """No hit needs a look-ahead block then; the model still has a draft layer."""
    geometry = load(name).geometry
    assert (1, [], 0, True) == (
        geometry.hashed_ahead_tokens,
        lookaheads(name),
        geometry.lookahead_tokens,
        geometry.has_draft_layer,
    )
    assert 3 == Settings(geometry, blocks=10, drafts_max=3).lookahead_tokens


def test_no_suffix_and_no_feature_is_forgotten() -> None:
    """One that is added needs a row above; and one that nothing switches on is none."""
    words = {word.partition("=")[0] for name in (*DRAFTS, *UNITS, *SLOTS, HASHED) for word in name.split("+")[1:]}
    assert set(GEOMETRIES) == words
    assert set(FEATURES) == {"min", "junctions", *(suffix.partition("=")[0] for suffix in KNOBS)}
    assert {each.name for each in fields(Features)} == {feature.knob for feature in FEATURES.values()}
    assert all(what for _, what in GEOMETRIES.values())
    assert all(feature.what for feature in FEATURES.values())


SETTINGS = Settings(MODELS["mixed-blocks"].geometry, blocks=10)


def test_features_become_settings() -> None:
    """An interval counts tokens; without prefix caching nothing is retained; without features nothing changes."""
    assert SETTINGS == Features().applied_to(SETTINGS)
    features = load("mixed-blocks+retention=128+scratch+pinned=2").features
    expected = evolve(SETTINGS, retention_interval_tokens=128, scratch_first=True, pin_drop_blocks_min=2)
    assert expected == features.applied_to(SETTINGS)
    junctions = load("mixed-blocks+retention=128+scratch+junctions+pinned=2").features
    assert evolve(expected, keeps_junctions=True) == junctions.applied_to(SETTINGS)
    off = evolve(SETTINGS, caches=False)
    assert evolve(off, scratch_first=True, pin_drop_blocks_min=2) == features.applied_to(off)


def test_an_interval_counts_the_alignment_that_results() -> None:
    """Partial hits make the alignment smaller, wherever their suffix stands."""
    for name in ("compressed+masked+partial", "compressed+partial+masked"):
        model = load(name)
        applied = model.features.applied_to(Settings(model.geometry, blocks=10))
        assert (16, 16) == (applied.retention_interval_tokens, model.geometry.alignment_tokens)


# Order, and what a model had before

SEVERAL = ("partial", "mtp", "masked", "scratch", "pinned=3", "min=32")


def test_the_order_means_nothing() -> None:
    """All orders of all suffixes that go together, but for the name."""
    found = {(load("+".join(("compressed", *words))).geometry, words) for words in permutations(SEVERAL)}
    assert 1 == len({geometry for geometry, _ in found})
    expected = Features(masked=True, scratch_first=True, pin_drop_blocks_min=3, partial_hit_tokens_min=32)
    assert {expected} == {load("+".join(("compressed", *words))).features for _, words in found}


def test_a_variant_can_be_varied_again() -> None:
    """Its features stay, and the name says all."""
    once, twice = load("mixed-blocks+pinned=2+mtp"), MODELS["mixed-blocks"].varied("pinned=2").varied("mtp")
    assert ("mixed-blocks+pinned=2+mtp", once) == (twice.name, twice)


@pytest.mark.parametrize("name", sorted({name for each in MECHANISMS.values() for name in each.models}))
def test_a_mechanism_is_driven_on_models(name: str) -> None:
    """With settings that can be made."""
    model = load(name)
    assert name == model.name
    serves = all(group.attention.serves_hits for group in model.geometry.groups)
    assert model.features.applied_to(Settings(model.geometry, blocks=10, caches=serves)).blocks == 10


# Rejections

REFUSED = {
    "unknown": (
        "eagles",
        "no suffix 'eagles': there are eagle, mtp, partial, whole-slots, hashed-ahead, masked, retention, scratch, ",
    ),
    "empty": ("", "no suffix '': there are "),
    "empty between": ("mtp++scratch", "no suffix '': there are "),
    "empty at the end": ("mtp+", "no suffix '': there are "),
    "in capitals": ("MTP", "no suffix 'MTP': there are "),
    "with a space": ("mtp +scratch", "no suffix 'mtp ': there are "),
    "a number alone": ("=4", "no suffix '': there are "),
    "twice": ("scratch+mtp+scratch", "suffix 'scratch' is given twice"),
    "twice with a number": ("pinned+pinned=2", "suffix 'pinned' is given twice"),
    "twice in the geometry": ("mtp+mtp", "suffix 'mtp' is given twice"),
    "two draft layers": ("mtp+eagle", "suffixes 'eagle' and 'mtp' exclude each other"),
    "two intervals": ("retention=4+masked", "suffixes 'masked' and 'retention' exclude each other"),
    "a number of a geometry": ("eagle=1", "suffix 'eagle' takes no number"),
    "a number of a switch": ("scratch=1", "suffix 'scratch' takes no number"),
    "a number of another": ("masked=4", "suffix 'masked' takes no number"),
    "no number": ("pinned=", "suffix 'pinned': what follows = must be a number of at least 1"),
    "a word for a number": ("retention=four", "suffix 'retention': what follows = must be a number of at least 0"),
    "a negative number": ("retention=-1", "suffix 'retention': what follows = must be a number of at least 0"),
    "an interval between alignments": ("retention=48", "suffix 'retention': an interval is a multiple of the model's"),
    "junctions alone": ("junctions", "suffix 'junctions' is about what a retention interval leaves out"),
    "a fraction": ("retention=1.5", "suffix 'retention': what follows = must be a number of at least 0"),
    "two numbers": ("retention=1=2", "suffix 'retention': what follows = must be a number of at least 0"),
    "drops of nothing": ("pinned=0", "suffix 'pinned': what follows = must be a number of at least 1"),
    "a number without end": ("retention=" + "9" * 10_000, "suffix 'retention': what follows = must be a number of at"),
    "one digit too many": ("pinned=1" + "0" * DIGITS_MAX, "suffix 'pinned': what follows = must be a number of at"),
    "a minimum of nothing": ("min=32", "suffix 'min' is about hits that end inside blocks: it needs 'partial'"),
    "a minimum of no tokens": ("partial+min=0", "suffix 'min': what follows = must be a number of at least 1"),
}


@pytest.mark.parametrize(("suffixes", "message"), REFUSED.values(), ids=REFUSED)
def test_other_suffixes_are_rejected(suffixes: str, message: str) -> None:
    """With what is wrong with them, on one line; on the command line under the name of the model."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as refused:
        read(MODELS["mixed-blocks"].geometry, suffixes)
    with pytest.raises(UsageError) as words:
        load(f"mixed-blocks+{suffixes}")
    assert f"model {f'mixed-blocks+{suffixes}'!r}: {refused.value}" == str(words.value)
    assert "\n" not in str(words.value)


def test_the_largest_number_may_be_given() -> None:
    """The control of one digit more."""
    assert 10**DIGITS_MAX - 1 == load("swa+pinned=" + "9" * DIGITS_MAX).features.pin_drop_blocks_min


NO_WINDOW = "a retention interval needs a sliding-window or a mamba group, and the model has neither"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("full+masked", NO_WINDOW),
        ("full+retention", NO_WINDOW),
        ("mamba-none+masked", NO_WINDOW),
        ("local+retention=2", NO_WINDOW),
        ("full+mtp", "suffix 'mtp' changes nothing here: a draft layer in the last of the groups"),
        ("mamba-align+mtp", "suffix 'mtp' changes nothing here: a draft layer in the last of the groups"),
        ("local+partial", "suffix 'partial' changes nothing here: hits may end inside blocks that are compressed"),
        ("full+hashed-ahead", "suffix 'hashed-ahead' changes nothing here: hashes cover the token after a block"),
        ("full+partial", "suffix 'partial' changes nothing here: hits may end inside blocks that are compressed"),
    ],
)
def test_what_does_not_fit_the_model_is_rejected(name: str, message: str) -> None:
    """Here, and not when the first settings are drawn."""
    with pytest.raises(UsageError, match=message):
        load(name)
