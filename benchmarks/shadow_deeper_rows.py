"""The rows of `benchmarks/shadow.py` for a model with more layers, whose step is nearer to a real one's."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.row import Row
from benchmarks.shadow import LAYERS_TIMES
from benchmarks.shadow_rows import rows_of


def rows(quick: bool) -> Iterator[Row]:
    """Ratios to the engine without a shadow."""
    return rows_of(LAYERS_TIMES[1], quick)
