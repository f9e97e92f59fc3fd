"""The curve of best hits as a picture, by matplotlib: SVG or PNG."""

from __future__ import annotations

from pathlib import Path

from kvgate.explain.explanation import Explanation
from kvgate.kernel.errors import UsageError
from kvgate.kernel.extras import require

SUFFIXES = (".svg", ".png")
_INK, _MUTED, _BEST = "#1f2933", "#9aa5b1", "#0b6e99"


def draw(explanation: Explanation, path: Path) -> None:
    """Draw how much of a prompt can hit when it is sent again, over its length, to ``path``.

    Raises:
        UsageError: matplotlib is not there, or the file cannot be written, or is of no known kind.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: must end with {' or '.join(SUFFIXES)}")
    curve, figures = explanation.curve, explanation.figures
    if not curve:
        raise UsageError("--plot: prefix caching is off, and there is nothing to draw")
    require("matplotlib", "--plot", "plots")
    import matplotlib

    matplotlib.use("Agg")
    # The same picture from the same figures, byte by byte; and text as text: a file's name is not a formula.
    matplotlib.rcParams.update({"svg.hashsalt": "kvgate", "svg.fonttype": "none", "font.size": 10})
    matplotlib.rcParams["text.parse_math"] = False
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    tokens = [point.tokens for point in curve]
    axes.plot(tokens, tokens, color=_MUTED, linewidth=1, linestyle="--", label="all of it")
    axes.step(
        tokens, [point.hit for point in curve], where="post", color=_BEST, linewidth=2, label="what can hit at best"
    )
    shortest = figures.shortest_prompt
    if shortest is not None and shortest <= tokens[-1]:
        axes.axvline(shortest, color=_INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"nothing below {shortest:,}",
            (shortest, tokens[-1] * 0.92),
            xytext=(4, 0),
            textcoords="offset points",
            color=_INK,
        )
    axes.set_xlim(0, tokens[-1])
    axes.set_ylim(0, tokens[-1])
    axes.set_xlabel("length of a prompt that is sent again (tokens)")
    axes.set_ylabel("served from the cache (tokens)")
    axes.set_title(
        f"{explanation.case.layout.name}: hits end at multiples of {figures.alignment_tokens:,} tokens", color=_INK
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    try:
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise UsageError(f"--plot {path}: cannot be written: {error.strerror}") from error
