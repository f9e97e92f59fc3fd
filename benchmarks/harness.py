"""The harness of every benchmark: rows, arms that take turns, and programs that print rows.

A benchmark is a module of this folder with a function ``rows(quick)``. It yields each row as soon as it is measured,
so an interrupt keeps the rows until then. `python -m benchmarks` runs all of them.

A program ends with exit code 2 for bad usage and 3 if a system under test is missing, each with one line; 130 if it was
interrupted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NoReturn, Protocol, TypeVar

from attrs import asdict, field, frozen
from attrs.validators import instance_of

from kvgate.kernel.errors import SystemUnavailableError, UsageError

T = TypeVar("T")


def _is_finite(_row: object, attribute: object, value: float) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{getattr(attribute, 'name', 'value')} must be a finite number, got {value}")


@frozen
class Row:
    """One figure.

    Raises:
        ValueError: a figure is not finite, or lies outside its own spread.
    """

    what: str = field(validator=instance_of(str))
    value: float = field(converter=float, validator=_is_finite)
    """The median of the rounds."""
    unit: str = field(validator=instance_of(str))
    """Of a ratio, what it is a ratio to."""
    least: float = field(converter=float, validator=_is_finite)
    largest: float = field(converter=float, validator=_is_finite)
    rounds: int = 1

    def __attrs_post_init__(self) -> None:
        if not self.least <= self.value <= self.largest:
            raise ValueError(f"{self.what}: {self.value} is not between {self.least} and {self.largest}")


class Benchmark(Protocol):
    """What a module of this folder offers."""

    def __call__(self, quick: bool) -> Iterator[Row]:
        """Measure; with ``quick`` briefly, in few rounds and with small loads, and of a long list a part."""
        ...


def row_of(what: str, values: Sequence[float], unit: str) -> Row:
    """The row of some rounds."""
    return Row(what, median(values), unit, min(values), max(values), len(values))


def ratio_row(what: str, values: Sequence[float], base: Sequence[float], unit: str) -> Row:
    """The row of rounds set against those of a base, round by round."""
    return row_of(what, [value / other for value, other in zip(values, base, strict=True)], unit)


def turns(arms: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run the arms by turns, forth and back (A B B A) in each round; two results of every arm for each round."""
    found: dict[str, list[T]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in (*arms, *reversed([*arms])):
            found[name].append(arms[name]())
    return found


def against_base(
    what: str, found: Mapping[str, Sequence[float]], base: str, unit: str, scale: float = 1.0
) -> Iterator[Row]:
    """The row of the arm ``base``, times ``scale``, and the ratio of every other arm to it."""
    for arm, values in found.items():
        if arm == base:
            yield row_of(f"{what}: {arm}", [value * scale for value in values], unit)
        else:
            yield ratio_row(f"{what}: {arm}", values, found[base], f"of {base}")


def figure(value: float) -> str:
    """A number with three significant digits, and all digits before the point."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def print_rows(rows: Iterable[Row], title: str, as_json: bool = False) -> None:
    """Print each row as soon as it is measured; as JSON all of them at the end."""
    if as_json:
        print(json.dumps({"title": title, "rows": [asdict(row) for row in rows]}, indent=1))
        return
    for number, row in enumerate(rows):
        if number == 0:
            print(
                f"{title}, {platform.machine()}, Python {platform.python_version()}; median (least to largest, rounds)"
            )
        spread = f"({figure(row.least)} to {figure(row.largest)}, {row.rounds})" if row.rounds > 1 else ""
        print(f"{row.what:<52} {figure(row.value):>10} {row.unit} {spread}".rstrip(), flush=True)


def options_of(name: str, about: str | None) -> argparse.ArgumentParser:
    """A parser whose usage can be typed. ``about`` is shown as it is."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def at_least_one(text: str) -> int:
    """A number of rounds or processes, at least one."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text}: give at least 1")
    return found


def end_with(name: str, main: Callable[[], int | None]) -> NoReturn:
    """Run a program and end with its exit code, or with one line and the exit code for what went wrong."""
    try:
        sys.exit(main())
    except (UsageError, SystemUnavailableError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 3)
    except KeyboardInterrupt:
        sys.exit(130)
