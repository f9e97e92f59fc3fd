"""``kvgate check`` of a patch of vLLM.

Goal: the author of a change to the block manager reads what a user of the server would notice, which function caused
it, and which changed lines never ran. Method: diffs of the installed vLLM, by the command as a process.
"""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from pathlib import Path

import pytest

from .stage import run_kvgate

PATCHES = {
    "a wrong answer": (
        "single_type_kv_cache_manager",
        "                num_contiguous_blocks += 1\n                if",
        "                num_contiguous_blocks += 2\n                if",
    ),
    "a branch that never runs": (
        "block_pool",
        "        blocks = self._cache.get(key)\n        if blocks is None:\n",
        "        blocks = self._cache.get(key)\n"
        "        if block is blocks:\n            return\n"
        "        if blocks is None:\n",
    ),
    "a lost cache entry": (
        "single_type_kv_cache_manager",
        "num_full_blocks = num_tokens // self.block_size",
        "num_full_blocks = max(0, num_tokens // self.block_size - 1)",
    ),
    "an entry that is looked for": (
        "block_pool",
        "self._cache[key] = {blocks.block_id: blocks, block.block_id: block}",
        "self._cache[key] = {block.block_id: block}",
    ),
}
"""By effect: a file of vLLM, a passage in it, and its replacement."""
RUN = ("check", "-x", "--jobs", "2", "--time-budget", "60s", "--model", "swa", "--model", "full")


@pytest.fixture
def patch(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A diff, as git writes it."""
    found = find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    name, passage, instead = PATCHES[request.param]
    path = Path("vllm", "v1", "core", f"{name}.py")
    before = (Path(found.submodule_search_locations[0]).parent / path).read_text(encoding="utf-8")
    assert 1 == before.count(passage), "this vLLM has another passage"
    old, new = (text.splitlines(keepends=True) for text in (before, before.replace(passage, instead)))
    diff = tmp_path / "patch.diff"
    diff.write_text("".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")), encoding="utf-8")
    return diff


@pytest.mark.ci
@pytest.mark.parametrize(
    ("patch", "code", "expected"),
    [
        (
            "a wrong answer",
            1,
            ("WRONG ANSWER", "SlidingWindowManager.find_longest_cache_hit", "1 of 1 changed line ran"),
        ),
        ("a branch that never runs", 0, ("1 of 2 changed lines ran", "never ran")),
        ("a lost cache entry", 1, ("LOST HIT", "SingleTypeKVCacheManager.cache_blocks", "1 of 1 changed line ran")),
        ("an entry that is looked for", 1, ("CRASH", "BlockHashToBlockMap.insert", "AssertionError")),
    ],
    indirect=["patch"],
)
def test_a_patch(patch: Path, code: int, expected: tuple[str, ...], tmp_path: Path) -> None:
    """The headline, then the function; the coverage; and what was run, as it is typed again."""
    ended = run_kvgate(tmp_path, *RUN, "--diff", str(patch))
    assert code == ended.code, ended.out + ended.err
    for each in (*expected, f"--diff {patch}"):
        assert each in ended.out
    if code:
        assert ended.out.index(expected[0]) < ended.out.index(expected[1])


def test_a_revision_without_a_checkout(tmp_path: Path) -> None:
    """One message."""
    ended = run_kvgate(tmp_path, "check", "--base", "main")
    assert 2 == ended.code
    assert "--base" in ended.message
