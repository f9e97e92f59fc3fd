"""Model geometries.

Goal: a name or a file stands for exactly one geometry, and any other name or file for one message. Method: all
presets, good files, and every way in which a file can be bad.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvgate.errors import UsageError
from kvgate.models import FILE_BYTES_MAX, GATED, GROUPS_MAX, MODELS, TOKENS_MAX, load
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group

FULL = {"kind": "full", "block_size_tokens": 16}
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


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_with_a_draft_layer(name: str) -> None:
    """In every group, and nothing else is changed."""
    model = load(f"{name}+eagle")
    assert f"{name}+eagle" == model.name
    assert all(group.lookahead for group in model.geometry.groups)
    assert MODELS[name].with_lookahead() == model
    assert [(g.kind, g.block_size_tokens, g.window_tokens) for g in MODELS[name].geometry.groups] == [
        (g.kind, g.block_size_tokens, g.window_tokens) for g in model.geometry.groups
    ]


def test_published_models_are_presets() -> None:
    """What runs by default."""
    assert set(GATED) < set(MODELS)


@pytest.mark.parametrize(
    "name", ["fulll", "full+", "full+mtp", "full+eagle+eagle", "+eagle", "", "no/such.json", "Full"]
)
def test_other_names_are_refused(name: str) -> None:
    """With the names that there are."""
    with pytest.raises(UsageError, match=f"unknown model .*{'.*'.join(MODELS)}"):
        load(name)


def test_a_file_is_a_model(tmp_path: Path) -> None:
    """Named like the file; every key but the kind and the block size may be left out."""
    model = load(stored(tmp_path, FULL, {**WINDOW, "lookahead": True}))
    groups = (Group(Kind.FULL, 16), Group(Kind.SLIDING_WINDOW, 16, 64, lookahead=True))
    assert ("model", Geometry(groups), "read from model.json") == (model.name, model.geometry, model.source)


def test_limits_may_be_reached(tmp_path: Path) -> None:
    """As many groups as are allowed, the longest window, the longest alignment."""
    assert GROUPS_MAX == len(load(stored(tmp_path, *[FULL] * GROUPS_MAX)).geometry.groups)
    longest = load(stored(tmp_path, {**FULL, "block_size_tokens": TOKENS_MAX}, {**WINDOW, "window_tokens": TOKENS_MAX}))
    assert TOKENS_MAX == longest.geometry.alignment_tokens


BAD_GROUPS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": ({**FULL, "kind": "mamba"}, "mamba"),
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
def test_a_bad_group_is_refused(group: dict[str, Any], message: str, tmp_path: Path) -> None:
    """On one line that names the file and what is wrong with it."""
    path = stored(tmp_path, FULL, group)
    with pytest.raises(UsageError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_block_sizes_without_a_common_multiple_are_refused(tmp_path: Path) -> None:
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
    "groups of none": (b'{"groups": []}', "at least one group"),
    "groups that are none": (b'{"groups": [1, "full", null]}', ""),
    "unknown key": (b'{"groups": [{"kind": "full", "block_size_tokens": 16}], "layers": 3}', "layers"),
    "too many groups": (
        json.dumps({"groups": [FULL] * (GROUPS_MAX + 1)}).encode(),
        f"{GROUPS_MAX + 1} groups, at most {GROUPS_MAX}",
    ),
    "nested too deeply": (b"[" * 100_000, "recursion"),
    "too large": (b" " * FILE_BYTES_MAX + b"{}", f"larger than {FILE_BYTES_MAX} bytes"),
    "a number without end": (b'{"groups": ' + b"9" * 10_000 + b"}", ""),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """On one line that names the file and what is wrong with it."""
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        load(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A directory is an unknown model; a name that no file can have is told by the system's own words."""
    with pytest.raises(UsageError, match="unknown model"):
        load(str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be read: .+"):
        load("x" * 10_000)
    with pytest.raises(UsageError, match="unknown model"):
        load("a\0b")
