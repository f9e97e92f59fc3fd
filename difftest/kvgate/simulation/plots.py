"""Plots of simulations, as SVG that reads well on a white or a dark page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvgate.kernel.extras import require
from kvgate.simulation.cost import relative_work
from kvgate.simulation.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f6fb2", "#d1662a", "#3a8f5c", "#8a5aa8", "#b23b4e", "#7a6a4f", "#4a9da8", "#888888")
WIDTH_INCHES, HEIGHT_INCHES = 8.0, 4.5


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Plot the results, and return the files.

    Raises:
        UsageError: matplotlib is not installed.
    """
    require("matplotlib", "--plot", "plots")
    import matplotlib

    matplotlib.use("svg")
    written = []
    for workload in dict.fromkeys(each.workload for each in results):
        ours = [each for each in results if each.workload == workload]
        stem = "".join(c if c.isalnum() else "-" for c in workload).strip("-").lower()
        stem = "-".join(part for part in stem.split("-") if part)
        pools = len({each.blocks for each in ours}) > 1
        written.append(_figure(folder / f"{stem}-hit-rate.svg", _hit_rates_by_pool if pools else _hit_rates, ours))
        written.append(_figure(folder / f"{stem}-requests.svg", _hits_by_request, ours))
        written.append(_figure(folder / f"{stem}-pool.svg", _pool_use, ours))
    return written


def _figure(path: Path, paint: Callable[[Axes, Sequence[Result]], None], results: Sequence[Result]) -> Path:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # The same plot is the same file, and its words are words: they can be searched, and need no font here.
    look = {"svg.hashsalt": "kvgate", "svg.fonttype": "none", "font.size": 10, "text.parse_math": False}
    with rc_context(look):  # type: ignore[arg-type]  # Matplotlib types its keys one by one, and no dict of them by name.
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        paint(axes, results)
        figure.savefig(path, metadata={"Date": None})
    return path


def _name(result: Result, results: Sequence[Result]) -> str:
    """What distinguishes a result from the others."""
    parts = [result.policy]
    if len({each.arm for each in results}) > 1:
        parts.append(result.arm)
    if len({each.blocks for each in results}) > 1:
        parts.append(f"{result.blocks:,} blocks")
    return ", ".join(parts)


def _title(axes: Axes, what: str, results: Sequence[Result]) -> None:
    first = results[0]
    where = first.model if len({each.blocks for each in results}) > 1 else f"{first.model}, {first.blocks:,} blocks"
    axes.set_title(f"{what}\n{first.workload} on {where}", fontsize=11, loc="left")


def _hit_rates(axes: Axes, results: Sequence[Result]) -> None:
    """Hit rate and work, one bar each per simulation."""
    names = [_name(each, results) for each in results]
    places = range(len(results))
    hits = axes.barh([place - 0.2 for place in places], [100 * each.hit_rate for each in results], 0.38)
    works = axes.barh([place + 0.2 for place in places], [100 * relative_work(each) for each in results], 0.38)
    for bars, colour in ((hits, COLOURS[0]), (works, COLOURS[1])):
        for bar in bars:
            bar.set_color(colour)
        axes.bar_label(bars, fmt="%.1f %%", padding=3, fontsize=9)
    hits.set_label("prefix-cache hit rate (% of prompt tokens)")
    works.set_label("work (% of an empty cache's)")
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xlabel("per cent")
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)
    _title(axes, "What hits, and what is left to compute", results)


def _hit_rates_by_pool(axes: Axes, results: Sequence[Result]) -> None:
    """Hit rate over the size of the pool, a line per policy and arm."""
    lines: dict[str, list[Result]] = {}
    several = len({each.arm for each in results}) > 1
    for each in results:
        lines.setdefault(f"{each.policy}, {each.arm}" if several else each.policy, []).append(each)
    for place, (name, members) in enumerate(lines.items()):
        members = sorted(members, key=lambda each: each.blocks)
        axes.plot(
            [each.blocks for each in members],
            [100 * each.hit_rate for each in members],
            marker="o",
            # Arms that agree lie on each other: the later ones are dashed, so that both are seen.
            linestyle=("-", "--", ":")[place % 3],
            color=COLOURS[place % len(COLOURS)],
            label=name,
        )
    _percent(axes)
    axes.set_xlabel("pool (blocks)")
    axes.legend(frameon=False)
    _title(axes, "Hit rate by size of the pool", results)


def _hits_by_request(axes: Axes, results: Sequence[Result]) -> None:
    """What each counted request hit, in the order in which they were sent."""
    for place, result in enumerate(results):
        axes.plot(
            range(len(result.counted)),
            [100 * each.hit_tokens / each.prompt_tokens for each in result.counted],
            linestyle="none",
            marker="osD^vPX*"[place % 8],
            markersize=4,
            fillstyle="none" if place else "full",
            color=COLOURS[place % len(COLOURS)],
            label=_name(result, results),
        )
    _percent(axes)
    axes.set_xlabel("request, in the order of sending")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False)
    _title(axes, "Hit of every request", results)


def _pool_use(axes: Axes, results: Sequence[Result]) -> None:
    """Blocks that requests hold, step by step."""
    for place, result in enumerate(results):
        axes.plot(
            [each.step for each in result.usage],
            [100 * each.blocks_held / (result.blocks - 1) for each in result.usage],
            color=COLOURS[place % len(COLOURS)],
            linewidth=1.2,
            linestyle=("-", "--", ":")[place % 3],
            label=_name(result, results),
        )
    axes.set_ylim(0, 105)
    axes.set_ylabel("blocks held by requests (% of the pool)")
    axes.set_xlabel("step of the scheduler")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False)
    _title(axes, "Use of the pool", results)


def _percent(axes: Axes) -> None:
    axes.set_ylim(-3, 103)
    axes.set_ylabel("prefix-cache hit rate (% of prompt tokens)")
