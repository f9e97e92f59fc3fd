"""The report of token equality: models by features, each cell with what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvgate.equality.feature import EVIDENCE, FEATURE
from kvgate.equality.table import FAULTS, TOLERANCE, Cell, State
from kvgate.kernel.output import AGREEMENT, DIVERGENCE, INTERRUPTED, NOT_EXHAUSTIVE
from kvgate.kernel.text import counted
from kvgate.report.document import Column, Report, Section, Story, columns

COLUMNS = (
    *columns("model", "feature", "state"),
    *(Column("answers"), Column("differ"), Column("logprob distance", ".2g"), Column("gap", ".2g")),
    *columns("cached tokens", "preemptions", "drafts", "drafts accepted", "cached blocks", "pinned blocks"),
    *(Column("seconds", ".1f"), Column("why"), Column("injected", shown=False)),
)
NOT_TESTED = ("DeepSeek-V4: its model in vLLM 0.20.2 is not built without CUDA.",)


def report_of(cells: Sequence[Cell], interrupted: bool = False) -> Report:
    """The report of all cells that were filled."""
    wrong = [cell for cell in cells if not cell.is_as_it_should_be]
    number = counted(len(wrong), "unexpected cell") if wrong else "no unexpected cell"
    return Report(
        command="equality",
        outcome=f"{number} in {counted(len(cells), 'cell')}",
        exit_code=INTERRUPTED if interrupted else _exit_code(wrong),
        ended="interrupted" if interrupted else "completed",
        circumstances={"tolerance": TOLERANCE},
        claimed=tuple(f"{feature.name}: {feature.sentence}" for feature in _features(cells)),
        tested=(Section("", COLUMNS, tuple(map(_row, cells)), notes=tuple(_footer(cells)), keys=2),),
        found=tuple(map(_finding, wrong)),
        not_tested=NOT_TESTED,
        found_noun="unexpected cell",
    )


def _exit_code(wrong: Sequence[Cell]) -> int:
    states = {cell.state for cell in wrong}
    if states - {State.NOT_SHOWN, State.FAILED}:
        return DIVERGENCE
    return NOT_EXHAUSTIVE if states else AGREEMENT


def _features(cells: Sequence[Cell]) -> list[Any]:
    return [FEATURE[name] for name in dict.fromkeys(cell.feature for cell in cells) if name not in FAULTS]


def _row(cell: Cell) -> tuple[Any, ...]:
    result = cell.result
    seen: tuple[Any, ...] = (None,) * 7
    if result is not None and result.error is None:
        seen = (
            *(result.cached_tokens, result.preemptions, result.drafts, result.drafts_accepted),
            *(result.cached_blocks, result.pinned_blocks, round(result.seconds, 1)),
        )
    return (
        *(cell.model, f"injected: {cell.feature}" if cell.is_fault_injected else cell.feature, cell.state.value),
        *(cell.answers, cell.differ, cell.logprob_distance, cell.gap, *seen, cell.why, cell.is_fault_injected),
    )


def _finding(cell: Cell) -> Story:
    what = f"{cell.model}, {cell.feature}: {cell.state.value}"
    why = f": {cell.why}" if cell.why else ""
    headline = f"{what}, {cell.differ} of {cell.answers} answers differ{why}"
    unseen = [f"  {name}: {EVIDENCE[name]}" for name in EVIDENCE if cell.state is State.NOT_SHOWN and name in cell.why]
    place = _row(cell)[:2]
    severity: Any = "warning" if cell.state in (State.NOT_SHOWN, State.FAILED) else "error"
    return Story(headline, "\n".join((headline, *unseen)), severity=severity, place=place)


def _footer(cells: Sequence[Cell]) -> Iterator[str]:
    compared = [
        cell for cell in cells if cell.state not in (State.NOT_THERE, State.FAILED) and not cell.is_fault_injected
    ]
    if compared:
        distance, gap = max(cell.logprob_distance for cell in compared), min(cell.gap for cell in compared)
        yield (
            f"{sum(cell.answers for cell in compared)} answers next to those without a cache. First tokens' "
            f"log-probabilities differ by at most {distance:.2g} (allowed: {TOLERANCE:g}); no chosen token was "
            f"less than {gap:.2g} ahead of the next."
        )
