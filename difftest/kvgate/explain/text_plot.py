"""A small plot in characters: how much of a prompt can hit, over its length."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.explain.figures import Point

_WIDTH = 60
_HEIGHT = 8


def text_plot(curve: Sequence[Point]) -> list[str]:
    """The share of a prompt that hits when it is sent again, in percent, over its length in tokens."""
    if not curve:
        return []
    longest = curve[-1].tokens
    columns = [_share(curve, longest * (column + 1) / _WIDTH) for column in range(_WIDTH)]
    lines = []
    for row in range(_HEIGHT, 0, -1):
        label = f"{round(100 * row / _HEIGHT):>4} %" if row % 2 == 0 else " " * 6
        dots = "".join("█" if share * _HEIGHT >= row - 0.5 else " " for share in columns)
        lines.append(f"{label} │{dots.rstrip()}")
    return [*lines, "   0 % └" + "─" * _WIDTH, f"        0{f'{longest:,} tokens':>{_WIDTH - 1}}"]


def _share(curve: Sequence[Point], tokens: float) -> float:
    point = min(curve, key=lambda each: abs(each.tokens - tokens))
    return point.hit / point.tokens
