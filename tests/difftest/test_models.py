"""Model geometries.

Goal: a name or a file stands for exactly one geometry, and any other name or file for one message. Method: all presets,
good files, and every kind of bad file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import FILE_BYTES_MAX, GATED, GROUPS_MAX, MODELS, TOKENS_MAX, load
from kvreference.attention import Kind
from kvreference.compressed import dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode

FULL = {"kind": "full", "block_size_tokens": 16}
STATES = {"kind": "mamba", "block_size_tokens": 16, "states": "all"}
WINDOW = {"kind": "sliding_window", "block_size_tokens": 16, "window_tokens": 64}


def stored(tmp_path: Path, *groups: dict[str, Any], **more: Any) -> str:
    """A model file."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"groups": list(groups), **more}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_is_known_by_its_name(name: str) -> None:
    """It says where its numbers come from, and has no draft layer."""
    model = load(name)
    assert (name, MODELS[name]) == (model.name, model)
    assert model.source
    assert not any(group.lookahead for group in model.geometry.groups)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mamba-alone"])
def test_a_preset_with_a_draft_layer(name: str) -> None:
    """In every group but those that keep states, and nothing else is changed."""
    model = load(f"{name}+eagle")
    assert f"{name}+eagle" == model.name
    assert [group.keeps_states for group in model.geometry.groups] == [
        not group.lookahead for group in model.geometry.groups
    ]
    assert MODELS[name].with_lookahead() == model
    bare = Geometry(tuple(evolve(group, lookahead=False) for group in model.geometry.groups))
    assert (MODELS[name].geometry, MODELS[name].features) == (bare, model.features)


def test_a_draft_layer_takes_nothing_away() -> None:
    """A model keeps all its groups."""
    assert load("swa+pinned=2+eagle").features == load("swa+pinned=2").with_lookahead().features


PUBLISHED = {
    "dsv4-flash": dsv4_flash(),
    "dsv4-flash+mtp": dsv4_flash(mtp=True),
    **{f"dsv4-flash-ascend-{size}": dsv4_flash_ascend(size) for size in (32, 64, 128)},
    **{f"dsv4-flash-ascend-{size}+mtp": dsv4_flash_ascend(size, mtp=True) for size in (32, 64, 128)},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_deepseek_v4_is_as_it_is_grouped(name: str) -> None:
    """On a GPU and on Ascend; the draft layer is where the suffix puts it for any model."""
    assert PUBLISHED[name] == load(name).geometry


def test_every_kind_and_every_mode_is_a_preset() -> None:
    """So is a group with compressed slots: every kind of the reference can be driven."""
    groups = [group for model in MODELS.values() for group in model.geometry.groups]
    assert set(Kind) == {group.kind for group in groups}
    assert set(StateMode) == {group.states for group in groups} - {None}
    assert max(group.compress_ratio for group in groups) > 1


def test_published_models_are_presets() -> None:
    """They run by default."""
    assert set(GATED) < set(MODELS)


@pytest.mark.parametrize("name", ["fulll", "fulll+eagle", "+eagle", "", "no/such.json", "no/such.json+eagle", "Full"])
def test_other_names_are_rejected(name: str) -> None:
    """With the known names, and the suffixes."""
    with pytest.raises(
        UsageError,
        match=f"unknown model .*{'.*'.join(MODELS)}.*other suffixes: mtp, partial, whole-slots, hashed-ahead, masked",
    ):
        load(name)


@pytest.mark.parametrize("name", ["full+", "full+mtp", "full+eagle+eagle", "full++eagle", "full+Eagle", "full+masked"])
def test_other_suffixes_are_rejected(name: str) -> None:
    """The message has the name and what is wrong with it; see the tests of variants."""
    with pytest.raises(UsageError, match=f"^model {re.escape(repr(name))}: .*suffix|needs a sliding-window or a mamba"):
        load(name)


def test_a_file_is_a_model(tmp_path: Path) -> None:
    """Named like the file; every key but the kind and the block size may be left out."""
    model = load(stored(tmp_path, FULL, {**WINDOW, "lookahead": True}))
    groups = (Group(Kind.FULL, 16), Group(Kind.SLIDING_WINDOW, 16, 64, lookahead=True))
    assert ("model", Geometry(groups), "read from model.json") == (model.name, model.geometry, model.source)


def test_a_file_may_have_every_kind(tmp_path: Path) -> None:
    """Chunks, states and compressed blocks are written as windows are."""
    chunked = {**WINDOW, "kind": "chunked_local"}
    compressed = {**FULL, "compress_ratio": 4, "unit_tokens": 8}
    model = load(stored(tmp_path, chunked, {**STATES, "states": "align", "draft_states": 2}, compressed))
    groups = (
        Group(Kind.CHUNKED_LOCAL, 16, 64),
        Group(Kind.MAMBA, 16, states=StateMode.ALIGN, draft_states=2),
        Group(Kind.FULL, 16, compress_ratio=4, unit_tokens=8),
    )
    assert Geometry(groups) == model.geometry


def test_limits_may_be_reached(tmp_path: Path) -> None:
    """As many groups as are allowed, the longest window, the longest alignment."""
    assert GROUPS_MAX == len(load(stored(tmp_path, *[FULL] * GROUPS_MAX)).geometry.groups)
    longest = load(stored(tmp_path, {**FULL, "block_size_tokens": TOKENS_MAX}, {**WINDOW, "window_tokens": TOKENS_MAX}))
    assert TOKENS_MAX == longest.geometry.alignment_tokens


BAD_GROUPS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": ({**FULL, "kind": "ring"}, "ring"),
    "unknown mode of states": ({**STATES, "states": "some"}, "some"),
    "no mode of states": ({"kind": "mamba", "block_size_tokens": 16}, "mode of states"),
    "states of a full group": ({**FULL, "states": "all"}, "mode of states"),
    "drafts' states of a full group": ({**FULL, "draft_states": 1}, "takes no draft_states"),
    "a draft layer with states": ({**STATES, "lookahead": True}, "no draft layer"),
    "a slot cut in two": ({**FULL, "compress_ratio": 3}, "not whole slots"),
    "compress ratio of none": ({**FULL, "compress_ratio": 0}, "compress_ratio"),
    "a unit that does not divide the block": ({**FULL, "unit_tokens": 5}, "must divide the block"),
    "a unit that cuts a slot": ({**FULL, "compress_ratio": 8, "unit_tokens": 4}, "be whole slots"),
    "a unit of a window": ({**WINDOW, "unit_tokens": 8}, "cannot end inside"),
    "no kind": ({"block_size_tokens": 16}, "kind"),
    "no block size": ({"kind": "full"}, "block_size_tokens"),
    "unknown key": ({**FULL, "blocksize": 16}, "blocksize"),
    "block size of none": ({**FULL, "block_size_tokens": 0}, "block_size_tokens"),
    "negative block size": ({**FULL, "block_size_tokens": -16}, "block_size_tokens"),
    "block size in words": ({**FULL, "block_size_tokens": "16"}, "expected int, got '16'"),
    "block size with a point": ({**FULL, "block_size_tokens": 16.0}, "expected int, got 16.0"),
    "block size that is true": ({**FULL, "block_size_tokens": True}, "expected int, got True"),
    "no block size at all": ({**FULL, "block_size_tokens": None}, "expected int, got None"),
    "window missing": ({"kind": "sliding_window", "block_size_tokens": 16}, "needs window_tokens"),
    "window of one": ({**WINDOW, "window_tokens": 1}, "needs window_tokens"),
    "window of a full group": ({**FULL, "window_tokens": 64}, "takes no window_tokens"),
    "look-ahead in words": ({**FULL, "lookahead": "yes"}, "expected bool, got 'yes'"),
    "window too long": ({**WINDOW, "window_tokens": TOKENS_MAX + 1}, f"at most {TOKENS_MAX} tokens"),
    "block too long": ({**FULL, "block_size_tokens": TOKENS_MAX + 1}, f"at most {TOKENS_MAX} tokens"),
}


@pytest.mark.parametrize(("group", "message"), BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_a_bad_group_is_rejected(group: dict[str, Any], message: str, tmp_path: Path) -> None:
    """On one line that names the file and what is wrong with it."""
    path = stored(tmp_path, FULL, group)
    with pytest.raises(UsageError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_block_sizes_without_a_common_multiple_are_rejected(tmp_path: Path) -> None:
    """Each is small, yet no prompt would ever reach the alignment."""
    sizes = (2, 3, 5, 7, 11, 13, 17)
    assert load(stored(tmp_path, *({**FULL, "block_size_tokens": size} for size in sizes[:-1])))
    with pytest.raises(UsageError, match="common multiple"):
        load(stored(tmp_path, *({**FULL, "block_size_tokens": size} for size in sizes)))


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "Expecting value"),
    "not JSON": (b"groups: full", "Expecting value"),
    "binary": (bytes(range(256)), ""),
    "a list": (b"[]", 'an object with a list "groups"'),
    "no groups": (b"{}", 'an object with a list "groups"'),
    "groups by name": (b'{"groups": {"full": 16}}', 'an object with a list "groups"'),
    "groups of none": (b'{"groups": []}', "0 groups, and 1 to 64 are allowed"),
    "groups that are none": (b'{"groups": [1, "full", null]}', ""),
    "unknown key": (b'{"groups": [{"kind": "full", "block_size_tokens": 16}], "layers": 3}', "layers"),
    "too many groups": (
        json.dumps({"groups": [FULL] * (GROUPS_MAX + 1)}).encode(),
        f"{GROUPS_MAX + 1} groups, and 1 to {GROUPS_MAX} are allowed",
    ),
    "nested too deeply": (b"[" * 100_000, "recursion"),
    "too large": (b" " * FILE_BYTES_MAX + b"{}", f"larger than {FILE_BYTES_MAX} bytes"),
    "a number without end": (b'{"groups": ' + b"9" * 10_000 + b"}", ""),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_rejected(content: bytes, message: str, tmp_path: Path) -> None:
    """On one line that names the file and what is wrong with it."""
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        load(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    """A directory is an unknown model; for a name that no file can have, the message is the operating system's."""
    with pytest.raises(UsageError, match="unknown model"):
        load(str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be read: .+"):
        load("x" * 10_000)
    with pytest.raises(UsageError, match="unknown model"):
        load("a\0b")
