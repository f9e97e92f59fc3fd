"""Which branches of vLLM's block manager and scheduler run: measured with coverage.py, file by file.

A branch is what coverage.py counts: each way out of a line that has several. What coverage.py leaves out by default
(``if TYPE_CHECKING``, bodies of ``...``) is not counted. Only this process is measured, so cases run in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen

from kvgate.gate.case_runner import Arc

FILES = tuple(
    f"*/vllm/v1/core/{name}.py"
    for name in (
        "block_pool",
        "kv_cache_manager",
        "kv_cache_coordinator",
        "single_type_kv_cache_manager",
        "sched/scheduler",
        "encoder_cache_manager",
    )
)
"""The files in which branches are measured, as patterns of paths."""


@frozen
class Function:
    """The branches of one function; of what is outside of functions, the name is empty."""

    name: str
    reached: int
    unreached: tuple[tuple[int, int], ...]
    """From which line to which."""


@frozen
class File:
    """The branches of one file."""

    path: Path
    functions: tuple[Function, ...]
    lines_unreached: frozenset[int]

    @property
    def reached(self) -> int:
        return sum(function.reached for function in self.functions)

    @property
    def branches(self) -> int:
        return self.reached + sum(len(function.unreached) for function in self.functions)


@frozen
class Ways:
    """The branches of a file, each as the line that it leaves and the line that it comes to."""

    taken: tuple[tuple[int, int], ...]
    untaken: tuple[tuple[int, int], ...]


class Branches:
    """Measures in this process.

    If the files were imported before, what is outside of their functions counts as unreached.
    """

    def __init__(self, patterns: Sequence[str] = FILES) -> None:
        from coverage import Coverage

        self._coverage = Coverage(
            data_file=None, config_file=False, branch=True, include=list(patterns), check_preimported=False
        )
        # Cases in which nothing of it runs are no mistake.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])

    @contextmanager
    def measured(self) -> Iterator[None]:
        """What runs meanwhile is measured."""
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()

    def take(self) -> frozenset[Arc]:
        """What ran since the last call, which is then forgotten. Not while it is measured."""
        data = self._coverage.get_data()
        found = frozenset((path, *arc) for path in data.measured_files() for arc in data.arcs(path) or ())
        self._coverage.erase()
        return found

    def add(self, arcs: Iterable[Arc]) -> None:
        """What ran in other processes."""
        by_path: dict[str, list[tuple[int, int]]] = {}
        for path, *way in arcs:
            by_path.setdefault(path, []).append((way[0], way[1]))
        self._coverage.get_data().add_arcs(by_path)

    def lines_of(self, paths: Iterable[Path]) -> Iterator[tuple[Path, set[int], set[int], Ways]]:
        """Of each file, the lines that can run, those that never did, and its branches. Not while it is measured."""
        every = [*paths]
        for path in every:
            self._coverage.get_data().touch_file(str(path))
        report = self._report() if every else {}
        for path in every:
            found = report.get(str(path), {})
            missing = set(found.get("missing_lines", ()))
            taken, untaken = (tuple(map(tuple, found.get(f"{name}_branches", ()))) for name in ("executed", "missing"))
            yield path, missing | set(found.get("executed_lines", ())), missing, Ways(taken, untaken)

    def _report(self) -> dict[str, dict[str, Any]]:
        with TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            self._coverage.json_report(outfile=str(report))
            files: dict[str, dict[str, Any]] = json.loads(report.read_text())["files"]
        return {str(Path(path).resolve()): each for path, each in files.items()}

    def files(self) -> tuple[File, ...]:
        """All that ran so far, by file and function. Not while it is measured."""
        document = self._report()
        return tuple(
            File(
                Path(path),
                tuple(
                    Function(name, len(each["executed_branches"]), tuple(map(tuple, each["missing_branches"])))
                    for name, each in document[path]["functions"].items()
                ),
                frozenset(document[path]["missing_lines"]),
            )
            for path in document
        )
