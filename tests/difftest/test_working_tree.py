"""A checkout of vLLM, or a diff, over a release; and how much of a patch ran.

Goal: a maintainer runs the gate on a working tree without installing it, and reads what of it never ran.
Method: small trees and patches, with git; whole runs with vLLM are in ``command/test_check.py``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvgate.adapters.working_tree import Tree, apply, changes_between, changes_since, functions_of, lay_over
from kvgate.campaigns.patch_coverage import branches_of, coverage_of
from kvgate.gate.verdict import PatchCoverage
from kvgate.kernel.errors import SystemUnavailableError, UsageError

BEFORE = """
def add(one, other):
    if one > 100:
        raise ValueError(
            "too large"
        )
    return one + other


TOP = 1
"""
SIGN = "if other < 0:\n        return one\n    return (\n        other + one\n    )"
AFTER = BEFORE.replace("return one + other", SIGN)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The package of a release with one module."""
    package = tmp_path / "release" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "sums.py").write_text(BEFORE, encoding="utf-8")
    return package


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one commit, and a change that is not committed."""
    root = tmp_path / "tree"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "sums.py").write_text(BEFORE, encoding="utf-8")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "before")
    (root / "vllm" / "sums.py").write_text(AFTER, encoding="utf-8")
    return root


def git(at: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=at, check=True, capture_output=True, text=True).stdout


def test_what_is_new_are_the_first_lines_of_statements(tree: Path, release: Path) -> None:
    """The same by the repository and by the release; code at the top of a module runs at once, and is left out."""
    expected = {tree / "vllm" / "sums.py": {7, 8, 9}}
    assert expected == changes_since(tree, "HEAD").lines
    assert expected == changes_between(release, tree / "vllm").lines
    assert {tree / "vllm" / "sums.py": {3, 4, 7, 8, 9}} == functions_of([tree / "vllm" / "sums.py"]).lines


def test_what_is_gone_changes_the_statements_around_it(tree: Path) -> None:
    """A patch that only removes lines changes a function, too."""
    (tree / "vllm" / "sums.py").write_text(
        BEFORE.replace(
            '    if one > 100:\n        raise ValueError(\n            "too large"\n        )\n', "    one += 0\n", 1
        ).replace("    one += 0\n", ""),
        encoding="utf-8",
    )
    assert {tree / "vllm" / "sums.py": {3}} == changes_since(tree, "HEAD").lines


def test_a_diff_is_applied_to_a_copy(tree: Path, release: Path, tmp_path: Path) -> None:
    """The release stays as it is."""
    (tmp_path / "a.diff").write_text(git(tree, "diff"), encoding="utf-8")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    apply(tmp_path / "a.diff", release, scratch)
    assert AFTER == (scratch / "vllm" / "sums.py").read_text(encoding="utf-8")
    assert BEFORE == (release / "sums.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("nothing", "changes no file of vLLM"),
        ("--- a/vllm/sums.py\n+++ b/vllm/sums.py\n@@ -1,1 +1,1 @@\n-nowhere\n+here\n", "does not apply to this vLLM"),
    ],
)
def test_a_diff_that_does_not_apply_is_one_message(
    text: str | None, message: str, release: Path, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "a.diff").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        apply(tmp_path / "a.diff", release, tmp_path)


def test_what_is_not_a_checkout_is_rejected(tree: Path, release: Path, tmp_path: Path) -> None:
    """A folder without vLLM, a revision that does not exist, a folder that is not a repository."""
    with pytest.raises(UsageError, match="give a checkout of vLLM"):
        lay_over(tmp_path / "empty", release)
    with pytest.raises(UsageError, match=r"git diff: .*nowhere"):
        changes_since(tree, "nowhere")


def test_a_checkout_without_a_file_of_the_release_is_rejected(
    tree: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release's would be run in its place; a file that the release does not have is ignored."""
    monkeypatch.setattr("kvgate.adapters.working_tree.lay_over", lambda *_given: None)
    (tree / "vllm" / "tools.py").write_text("", encoding="utf-8")
    git(tree, "add", "-A")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "more")
    (tree / "vllm" / "tools.py").unlink()
    Tree(tree, base="HEAD").over(release)
    (tree / "vllm" / "sums.py").unlink()
    with pytest.raises(UsageError, match=r"--vllm-path .*removes vllm/sums\.py, which the release has"):
        Tree(tree, base="HEAD").over(release)


IMPORTS = """
import sys
from pathlib import Path
from kvgate.adapters.working_tree import Tree
path, release = map(Path, sys.argv[1:])
tree = Tree(path)
tree.over(release)
import vllm, vllm.sums, vllm.compiled
print(vllm.sums.add(1, -1), vllm.compiled.__file__ == str(release / "compiled.py"))
print(vllm.__path__ == [str(path / "vllm"), str(release)], sorted(*tree.changes.lines.values()))
"""


def test_modules_come_from_the_tree_and_then_from_the_release(tree: Path, release: Path) -> None:
    """Parts that the tree lacks, such as compiled ones, are the release's."""
    (release / "compiled.py").write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(tree), str(release)], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["1 True", "True [7, 8, 9]"]


def test_a_process_has_one_vllm(tree: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one is loaded it is too late."""
    monkeypatch.setitem(sys.modules, "vllm", sys)
    with pytest.raises(SystemUnavailableError, match="start another process"):
        Tree(tree).over(release)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[[str], PatchCoverage]:
    """Runs some calls of a patch, and says how much of it ran."""
    path = tmp_path / "patch_of_sums.py"
    path.write_text(AFTER, encoding="utf-8")

    def of(calls: str) -> PatchCoverage:
        pytest.importorskip("coverage")
        changes = functions_of([path])
        names: dict[str, object] = {}
        exec(compile(AFTER, str(path), "exec"), names)
        measure = branches_of(changes)
        with measure.measured():
            exec(calls, names)
        return coverage_of(changes, measure.take())

    return of


def test_what_never_ran_is_named(measured: Callable[[str], PatchCoverage]) -> None:
    """Lines, and branches of lines that ran; all of it, if all ran."""
    part = measured("add(1, 2)")
    assert (3, 5, 2, 4) == (part.lines_ran, part.lines, part.branches_ran, part.branches)
    never = {(each.line, each.to): each.text for each in part.never}
    ways: dict[tuple[int, int | None], str] = {(3, 4): "if one > 100:", (7, 8): "if other < 0:"}
    assert {(4, None): "raise ValueError(", (8, None): "return one", **ways} == never
    whole = measured("add(1, 2), add(1, -2)\ntry:\n    add(101, 1)\nexcept ValueError:\n    pass")
    assert () == whole.never
