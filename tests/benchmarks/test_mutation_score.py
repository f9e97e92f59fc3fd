"""The score of the reference's tests: read from what mutmut wrote, with arguments that fit and none that is stale."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from benchmarks.mutation import __main__ as program
from benchmarks.mutation import argued
from benchmarks.mutation.argued import FORMAT, VERSION, Argument
from benchmarks.mutation.score import lines, score
from benchmarks.mutation.tree import ROOT, SETTINGS, Tree, settings_of
from benchmarks.mutation.verdicts import Mutant, Verdict, mutants

from kvgate.kernel.errors import UsageError

# As mutmut writes it, but for what it imports.
CHANGED = """
def x_half__mutmut_orig(number):
    return number // 2

def x_half__mutmut_1(number):
    return number / 2

def x_half__mutmut_2(number):
    return number // 3

class Pool:
    def xǁPoolǁtake__mutmut_orig(self):
        self.count = max(0, 1)

    def xǁPoolǁtake__mutmut_1(self):
        self.count = max(1, 1)
"""
CODES = {
    "kvreference.pool.x_half__mutmut_1": 1,
    "kvreference.pool.x_half__mutmut_2": 0,
    "kvreference.pool.xǁPoolǁtake__mutmut_1": None,
}
HALF = Argument(
    "kvreference.pool.half", "It is never asked for more.", ("- return number // 2", "+ return number // 3")
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A folder as mutmut leaves it: a killed mutant, a survivor, one that was not tried."""
    found = Tree(tmp_path)
    folder = found.mutants / "kvreference"
    folder.mkdir(parents=True)
    (folder / "pool.py").write_text(CHANGED, encoding="utf-8")
    (folder / "pool.py.meta").write_text(json.dumps({"exit_code_by_key": CODES}), encoding="utf-8")
    return found


def change_codes(tree: Tree, codes: dict[str, int | None]) -> None:
    """As mutmut would leave it after another run."""
    path = tree.mutants / "kvreference" / "pool.py.meta"
    path.write_text(json.dumps({"exit_code_by_key": {**CODES, **codes}}), encoding="utf-8")


def test_mutants_are_named_by_their_functions(tree: Tree) -> None:
    """Goal: an argument outlives mutmut's numbers. Method: a function and a method."""
    told = [("kvreference.pool.half", Verdict.KILLED), ("kvreference.pool.half", Verdict.SURVIVED)]
    told.append(("kvreference.pool.Pool.take", Verdict.WAITING))
    assert told == [(mutant.function, mutant.verdict) for mutant in mutants(tree)]


@pytest.mark.parametrize(("code", "verdict"), [(36, Verdict.TIMEOUT), (33, Verdict.UNREACHED), (77, Verdict.ODD)])
def test_an_end_that_is_none_is_not_taken_for_a_kill(tree: Tree, code: int, verdict: Verdict) -> None:
    """Goal: only tests that fail kill. Method: other exit codes; one that mutmut does not have is odd, and open; what
    the clock ended counts neither way.
    """
    change_codes(tree, {"kvreference.pool.x_half__mutmut_1": code})
    assert verdict == next(mutants(tree)).verdict
    found = score(tree, ())
    clock = verdict is Verdict.TIMEOUT
    assert (0.0, 1 if clock else 2) == (found.percent(argued=False), found.judged)
    assert clock == ("1 ended by the clock" in "\n".join(lines(found)))


def test_the_score_counts_what_was_tried(tree: Tree) -> None:
    """Goal: what was not tried counts neither way. Method: one killed, one survived, one waiting; then argued."""
    assert (50.0, 50.0) == tuple(score(tree, ()).percent(argued) for argued in (False, True))
    assert (50.0, 100.0) == tuple(score(tree, (HALF,)).percent(argued) for argued in (False, True))


def test_a_survivor_is_told_with_its_change(tree: Tree) -> None:
    """Goal: who reads it knows what to test. Method: the report, without an argument and with the one that fits."""
    told = "\n".join(lines(score(tree, ())))
    assert "survived: kvreference.pool.x_half__mutmut_2\n  - return number // 2\n  + return number // 3" in told
    assert "50.0 % of 2 mutants killed; 50.0 % without the 0 that are argued to be equivalent; 1 of 3 not tried" in told
    assert [] == score(tree, (HALF,)).unexplained


def test_an_argument_without_a_survivor_is_stale(tree: Tree) -> None:
    """Goal: no argument outlives its mutant. Method: the survivor is killed; one that waits may yet survive."""
    change_codes(tree, {"kvreference.pool.x_half__mutmut_2": 1})
    waits = Argument("kvreference.pool.Pool.take", HALF.why, ("- a", "+ b"))
    found = score(tree, (HALF, waits))
    assert (HALF,) == found.stale
    assert "an argument without a survivor: kvreference.pool.half" in "\n".join(lines(found))


def test_one_argument_can_fit_several_changes(tree: Tree) -> None:
    """Goal: what is argued of a kind of change is said once. Method: a pattern of functions, and what may differ; a
    change that differs in more is not argued away.
    """
    divisor = Argument("kvreference.*", HALF.why, apart_from=r"// \d")
    assert [] == score(tree, (divisor,)).unexplained
    assert 1 == len(score(tree, (Argument("kvreference.*", HALF.why, apart_from=r"// 2"),)).unexplained)
    assert 1 == len(score(tree, (Argument("kvreference.mamba.*", HALF.why, apart_from=r"// \d"),)).unexplained)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("format = 1", "Expected `str`"),
        (f'format = "{FORMAT}"\nversion = {VERSION + 1}', f"of version {VERSION}"),
        (f'format = "{FORMAT}"\nversion = {VERSION}\nmore = 1', "more"),
        (
            f'format = "{FORMAT}"\nversion = {VERSION}\n[[survivor]]\nfunction = "f"\nchange = ["- a"]\nwhy = "so"',
            "in a sentence",
        ),
        ("format = ", "Invalid"),
    ],
)
def test_damaged_arguments_are_refused(text: str, said: str, tmp_path: Path) -> None:
    """Goal: what is read is validated. Method: files with one thing wrong."""
    path = tmp_path / "survivors.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="survivors") as refused:
        argued.read(path)
    assert said in str(refused.value)


def test_the_arguments_that_there_are_can_be_read() -> None:
    """Goal: the file in the repository is sound. Method: read it; no survivor is argued twice."""
    found = argued.read()
    assert len(found) == len({(argument.function, argument.change, argument.apart_from) for argument in found})
    assert [] == [each.function for each in found if not each.function.startswith("kvreference.")]


def test_the_tree_follows_the_checkout(tmp_path: Path) -> None:
    """Goal: mutmut changes the reference as it is. Method: lay it out twice, with something foreign in between; what
    did not change is not written again, or mutmut would begin anew.
    """
    tree = Tree(tmp_path)
    tree.lay_out()
    copied = tmp_path / "kvreference" / "attention.py"
    assert (ROOT / "reference" / "kvreference" / "attention.py").read_text() == copied.read_text()
    before = copied.stat().st_mtime_ns
    stranger = tmp_path / "tests" / "reference" / "test_gone.py"
    stranger.write_text("")
    tree.lay_out()
    assert (before, False) == (copied.stat().st_mtime_ns, stranger.exists())
    assert (tmp_path / "tests" / "reference" / "test_attention.py").exists()


def test_the_settings_are_those_of_the_checkout() -> None:
    """Goal: one place says how mutmut is run. Method: the section, and nothing of the next one."""
    told = msgspec.toml.decode(settings_of(ROOT))
    assert msgspec.toml.decode((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"] == told["tool"]["mutmut"]
    assert [["kvreference"], ["tool"]] == [told["tool"]["mutmut"]["source_paths"], list(told)]


def test_a_checkout_without_settings_is_refused(tmp_path: Path) -> None:
    """Goal: mutmut does not guess. Method: a project without the section."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(ValueError, match="has no section"):
        settings_of(tmp_path)
    assert SETTINGS in (ROOT / "pyproject.toml").read_text()


def test_the_command_reports(tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the exit code says whether a test is missing. Method: with the survivor open, then argued."""
    monkeypatch.setattr(argued, "read", lambda: ())
    assert 1 == program.main(["report", "--dir", str(tree.folder)])
    assert "survived: kvreference.pool.x_half__mutmut_2" in capsys.readouterr().out
    monkeypatch.setattr(argued, "read", lambda: (HALF,))
    assert 0 == program.main(["report", "--dir", str(tree.folder)])


def test_nothing_to_report_is_told(tmp_path: Path) -> None:
    """Goal: no score of nothing. Method: an empty folder."""
    with pytest.raises(UsageError, match="nothing was run there yet"):
        program.main(["report", "--dir", str(tmp_path)])


def test_a_plain_function_keeps_its_name() -> None:
    """Goal: names are read back exactly. Method: a function whose own name begins like mutmut's."""
    assert "kvreference.a.x_axis" == Mutant("kvreference.a.x_x_axis__mutmut_12", Verdict.KILLED).function
