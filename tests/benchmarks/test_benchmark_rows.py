"""One command measures all: every benchmark is registered, rows become a history and a table, nothing is lost."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import asdict, evolve
from benchmarks import __main__ as program
from benchmarks import running
from benchmarks.harness import Row, figure, ratio_row, row_of
from benchmarks.history import (
    FORMAT,
    VERSION,
    Entry,
    Machine,
    State,
    append,
    entry_of,
    latest,
    line_of,
    read,
    this_machine,
)
from benchmarks.registry import BENCHMARKS
from benchmarks.running import Job, run
from benchmarks.table import data, markdown, page
from benchmarks.table import line_of as table_line

from kvgate.kernel.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"

# Parts of the command itself.
PARTS = {
    *("__main__", "harness", "history", "operation_path", "registry", "running", "table", "plugin_arm"),
    # Runs that measure nothing.
    *("prose", "record", "soak", "twice"),
}

MACHINE = Machine("x86_64", 2, "3.11.7", "0.20.2", 0.1)
ROW = Row("a load: an arm", 1.25, "of the base", 1.0, 1.5, 3)
ENTRY = Entry("lockstep", "2026-01-02T03:04:05+00:00", "0123456789ab", MACHINE, False, State.COMPLETE, 61.2, (ROW,))


def programs() -> set[str]:
    """The files in `benchmarks/`: its modules, and its packages."""
    modules = {file.stem for file in FOLDER.glob("*.py")}
    return modules | {file.parent.name for file in FOLDER.glob("*/__init__.py")}


def registered() -> set[str]:
    """The modules and packages that the registry names."""
    return {each.module.split(".")[1] for each in BENCHMARKS.values()}


def test_every_benchmark_is_registered() -> None:
    """Goal: `python -m benchmarks` leaves nothing out. Method: compare the folder with the registry."""
    assert programs() - PARTS == registered()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_keeps_the_contract(name: str) -> None:
    """Goal: no output is parsed. Method: read the module, which may want vLLM: its function takes ``quick``."""
    source = (ROOT / Path(*BENCHMARKS[name].module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    function = BENCHMARKS[name].function
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == function]
    needed = [function.args.args[: len(function.args.args) - len(function.args.defaults)] for function in functions]
    assert [["quick"]] == [[argument.arg for argument in arguments] for arguments in needed]
    assert ["Iterator[Row]"] == [ast.unparse(function.returns) for function in functions if function.returns]


@pytest.mark.parametrize("name", sorted(registered()))
def test_nothing_asserts_a_time(name: str) -> None:
    """Goal: benchmarks measure. Method: no ``assert`` in them names a measured time."""
    files = [FOLDER / f"{name}.py"] if (FOLDER / f"{name}.py").exists() else sorted((FOLDER / name).glob("*.py"))
    asserted = [
        ast.unparse(node.test)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert [] == [each for each in asserted if re.search(r"second|\bratio", each)]


def test_rows_are_medians_with_their_spread() -> None:
    """Goal: a row says how far its rounds lay apart. Method: three rounds, alone and against a base."""
    assert Row("x", 2.0, "ms", 1.0, 9.0, 3) == row_of("x", [9, 1, 2], "ms")
    assert Row("x", 2.0, "of y", 0.5, 3.0, 3) == ratio_row("x", [2, 6, 2], [1, 2, 4], "of y")


@pytest.mark.parametrize("value", [0.5, 2.0, float("nan"), float("inf")])
def test_a_row_out_of_its_spread_is_rejected(value: float) -> None:
    """Goal: no row that cannot be. Method: medians outside the rounds, and no numbers."""
    with pytest.raises(ValueError, match=r"x|value"):
        Row("x", value, "ms", 1.0, 1.5, 3)


def test_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Goal: nothing is lost between runs. Method: write two entries, read them."""
    path, other = tmp_path / "history.jsonl", evolve(ENTRY, state=State.FAILED, rows=(), why="no engine", commit=None)
    assert [] == read(path)
    append(path, ENTRY)
    append(path, other)
    assert [ENTRY, other] == read(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (b"[]", "not an object"),
        (b"{", "not JSON"),
        ({"format": "other"}, f'"format" must be "{FORMAT}"'),
        ({"version": VERSION + 1}, "version 2"),
        ({"quick": 1}, "expected bool"),
        ({"state": "done"}, "state"),
        ({"extra": 1}, "extra"),
        ({"rows": [{**asdict(ROW), "value": float("nan")}]}, "finite"),
        ({"rows": [{**asdict(ROW), "value": "1"}]}, "expected a number"),
    ],
    ids=str,
)
def test_a_damaged_history_is_rejected(change: bytes | dict[str, object], said: str, tmp_path: Path) -> None:
    """Goal: the history is validated. Method: a good line, then one with a single thing wrong."""
    good = line_of(ENTRY)
    line = change if isinstance(change, bytes) else json.dumps({**json.loads(good), **change}).encode()
    path = tmp_path / "history.jsonl"
    path.write_bytes(good.encode() + b"\n" + line + b"\n")
    with pytest.raises(UsageError, match="line 2") as refused:
        read(path)
    assert said in str(refused.value)


def test_entry_survives_the_way_through_text() -> None:
    """Goal: one form for the file and for `--json`. Method: there and back."""
    assert ENTRY == entry_of(line_of(ENTRY).encode(), "here")


def test_the_table_shows_the_best_of_each() -> None:
    """Goal: a quick or a broken run does not displace a good one. Method: four runs in different orders."""
    quick = evolve(ENTRY, quick=True)
    cut = evolve(ENTRY, state=State.INTERRUPTED)
    empty = evolve(ENTRY, rows=())
    later = evolve(ENTRY, when="2027")
    assert {"lockstep": ENTRY} == latest([cut, ENTRY, quick, cut, empty])
    assert {"lockstep": later} == latest([ENTRY, later])
    assert {"lockstep": cut} == latest([quick, cut])


def test_the_table_says_what_was_measured_when_and_on_what() -> None:
    """Goal: a reader can check every row. Method: a run that was interrupted; the table reports what is missing."""
    printed = markdown([evolve(ENTRY, state=State.INTERRUPTED)])
    assert "| a load: an arm | 1.25 | of the base | 1 to 1.5 | 3 |" in printed
    assert "x86_64, 2 cores, Python 3.11.7, vLLM 0.20.2, load 0.1 a core, 61 s, interrupted after 1 rows." in printed
    assert "Not measured yet: reference, explore" in printed
    summed = page([evolve(ENTRY, state=State.INTERRUPTED)])
    assert ", interrupted | " in summed
    assert "| x86_64, 2 cores, Python 3.11.7, vLLM 0.20.2, load 0.1 a core |\n\nNot measured yet: reference, " in summed


def test_table_cells_hold_what_they_are_given() -> None:
    """Goal: no row breaks the table. Method: a bar and a line break in what was measured; one round."""
    assert "| a\\|b c | 12,346 | ms | - | 1 |" == table_line(Row("a|b\nc", 12345.6, "ms", 12345.6, 12345.6))
    assert ["0.123", "1.5", "12,000", "0"] == [figure(each) for each in (0.12345, 1.5, 12000.0, 0.0)]


def stand_in(body: str) -> list[str]:
    """A benchmark that is a few lines of Python."""
    return [sys.executable, "-c", body]


def said(row: Row) -> str:
    """The line of Python that reports a row."""
    return f"print({json.dumps(asdict(row))!r}, flush=True)\n"


def test_a_run_keeps_rows_as_they_come() -> None:
    """Goal: rows are values and appear at once. Method: a process that reports two."""
    seen: list[Row] = []
    entry = run(Job("lockstep", True), seen.append, stand_in(said(ROW) * 2))
    assert [ROW, ROW] == seen == list(entry.rows)
    assert (State.COMPLETE, True, None, "lockstep") == (entry.state, entry.quick, entry.why, entry.name)
    assert this_machine().cores == entry.machine.cores


def test_a_failure_is_reported_and_costs_no_row() -> None:
    """Goal: a broken benchmark is visible and costs no row. Method: a process that reports a row and fails."""
    entry = run(Job("lockstep", True), lambda _row: None, stand_in(said(ROW) + "raise SystemExit('no engine here')"))
    assert (State.FAILED, (ROW,), "no engine here") == (entry.state, entry.rows, entry.why)


def test_what_is_not_a_row_is_rejected() -> None:
    """Goal: output that is not a row is noticed. Method: a log line among the rows."""
    with pytest.raises(UsageError, match="lockstep, row 2: not JSON"):
        run(Job("lockstep", True), lambda _row: None, stand_in(said(ROW) + "print('INFO hello')"))


def test_an_interruption_keeps_the_results_and_leaves_no_files() -> None:
    """Goal: Ctrl-C loses no row. Method: interrupt at the first row of a process that would go on."""

    def interrupt(_row: Row) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    entry = run(Job("lockstep", True), interrupt, stand_in(said(ROW) + "import time; time.sleep(600)"))
    assert (State.INTERRUPTED, (ROW,)) == (entry.state, entry.rows)
    assert time.monotonic() - started < 600


@pytest.mark.parametrize(
    ("ends", "code", "count"),
    [((State.COMPLETE, State.COMPLETE), 0, 2), ((State.FAILED, State.COMPLETE), 1, 2), ((State.INTERRUPTED,), 130, 1)],
    ids=["complete", "failed", "interrupted"],
)
def test_the_command_writes_history_and_table(
    ends: Sequence[State],
    code: int,
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Goal: one command writes one table and ends with the documented exit code. Method: two benchmarks."""
    left = list(ends)

    def ended(job: Job, _seen: object) -> Entry:
        return evolve(ENTRY, name=job.name, state=left.pop(0), quick=job.quick, why="no engine")

    monkeypatch.setattr(program, "run", ended)
    assert code == program.main(["--only", "lockstep", "--only", "explore", "--quick", "--out", str(tmp_path)])
    assert count == len(read(tmp_path / "history.jsonl"))
    out = capsys.readouterr()
    assert len((tmp_path / "benchmarks.csv").read_text().splitlines()) == 1 + count * len(ENTRY.rows)
    assert out.out.count("| a load: an arm |") == count
    assert ("explore failed: no engine" in out.err) == (State.FAILED in ends)


def test_the_table_can_be_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the table follows from the history. Method: a history of one entry, and no measuring."""
    append(tmp_path / "history.jsonl", ENTRY)
    assert 0 == program.main(["--table", "--out", str(tmp_path)])
    assert page([ENTRY]) == (tmp_path / "TABLE.md").read_text()
    assert data([ENTRY]) == (tmp_path / "benchmarks.csv").read_text()
    assert "## lockstep" in capsys.readouterr().out


def test_the_committed_table_is_that_of_the_history() -> None:
    """Goal: no figure is stale or written by hand. Method: generate the page and its rows again."""
    folder, newest = ROOT / "benchmarks", latest(read(ROOT / "benchmarks" / "history.jsonl")).values()
    assert page(newest) == (folder / "TABLE.md").read_text(), "run: python -m benchmarks --table"
    assert data(newest) == (folder / "benchmarks.csv").read_text(), "run: python -m benchmarks --table"


def test_an_unknown_benchmark_is_rejected(tmp_path: Path) -> None:
    """Goal: a typing error measures nothing. Method: an unknown name, and a missing folder."""
    with pytest.raises(UsageError, match="no benchmark 'locstep': there are reference"):
        program.main(["--only", "locstep"])
    with pytest.raises(UsageError, match="no such folder"):
        program.main(["--out", str(tmp_path / "none")])


@pytest.mark.parametrize("options", [("--table",), ("--only", "explore", "--quick")], ids=" ".join)
def test_a_folder_that_cannot_be_written_to_is_reported_first(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nothing is measured for nothing. Method: a folder of the system's; a table that is a folder."""
    monkeypatch.setattr(program, "run", None)
    with pytest.raises(UsageError, match=r"--out /proc: cannot be written: "):
        program.main([*options, "--out", "/proc"])
    (tmp_path / "TABLE.md").mkdir()
    with pytest.raises(UsageError, match=r"TABLE.md: cannot be written: Is a directory"):
        program.main([*options, "--out", str(tmp_path)])


MISTAKES = {
    "a model that is none": (("lockstep", "--model", "nosuch"), 2, "lockstep: unknown model 'nosuch'"),
    "no rounds": (("lockstep", "--rounds", "0"), 2, "argument --rounds: 0: give at least 1"),
    "no number": (("explore", "--rounds", "few"), 2, "argument --rounds: few: give at least 1"),
    "no such row": (("headlines", "--row", "99"), 2, "headlines: no such row"),
    "no place for a table": (("headlines", "--out", "/proc"), 2, "headlines: --out /proc: cannot be written: "),
    "no such system": (("agreement", "--list", "--sut", "x:y"), 3, "agreement: x:y: cannot import x"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_benchmark_alone_ends_in_words(arguments: tuple[str, ...], code: int, message: str) -> None:
    """Goal: a mistake ends in a message, never in a traceback. Method: one mistake each, in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (code, "") == (done.returncode, done.stdout)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["headlines", "agreement", "lockstep"])
def test_a_benchmark_says_how_it_is_called(name: str) -> None:
    """Goal: the printed usage can be typed. Method: the first words of its help."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(f"usage: python -m benchmarks.{name} ")


@pytest.mark.ci
def test_a_real_one_from_the_outside(tmp_path: Path) -> None:
    """Goal: the command works as typed. Method: the explorer's benchmark, quick, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "explore", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (0, "") == (done.returncode, done.stderr if done.returncode else "")
    (entry,) = read(tmp_path / "history.jsonl")
    assert entry == entry_of(done.stdout.strip().encode(), "standard output")
    assert {"states/s"} == {row.unit for row in entry.rows}


TELLS_EACH_ROW = """
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from benchmarks import __main__ as program
program.progress_line = lambda: nullcontext(SimpleNamespace(say=lambda text: print(text, file=sys.stderr, flush=True)))
sys.exit(program.main(["--quick", "--only", "explore", "--out", sys.argv[1]]))
"""


@pytest.mark.ci
def test_a_real_interruption(tmp_path: Path) -> None:
    """Goal: an interrupted command ends with 130 and keeps its rows. Method: SIGINT after the first row, from the
    benchmark with the most rows.
    """
    command = [sys.executable, "-c", TELLS_EACH_ROW, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    printed = next(line for line in process.stderr if "states/s" in line)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=running.PATIENCE_SECONDS * 3)
    assert 130 == process.returncode
    (entry,) = read(tmp_path / "history.jsonl")
    assert (State.INTERRUPTED, True) == (entry.state, entry.rows[0].what in printed)
    assert "Not measured yet" in out
