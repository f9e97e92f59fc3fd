"""What is to be proved: obligations by their ids, or what they say of one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model
from kvspec.proof_result import Task
from kvspec.registry import obligations


def chosen(names: Sequence[str]) -> list[str]:
    """The ids that were asked for, or that begin with what was; all of them if nothing was.

    Raises:
        UsageError: a name that no obligation has.
    """
    if not names:
        return list(obligations())
    ids: dict[str, None] = {}
    for name in names:
        found = [each for each in obligations() if each == name or each.startswith(f"{name.rstrip('.')}.")]
        if not found:
            raise UsageError(
                f"unknown obligation {name!r}: give an id, or a chapter of {', '.join(chapters())}; --list shows all"
            )
        ids |= dict.fromkeys(found)
    return list(ids)


def chapters() -> list[str]:
    """The part of the ids before the dot, each once."""
    return list(dict.fromkeys(name.partition(".")[0] for name in obligations()))


def of_model(model: Model, ids: Sequence[str]) -> Iterator[Task]:
    """What ``ids`` say of the groups of a model, each group of the same shape once."""
    for name in ids:
        binds = obligations()[name].binds
        if binds is None:
            continue
        groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for index, group in enumerate(model.geometry.groups):
            fixed = binds(model.geometry, group)
            if fixed is not None:
                groups.setdefault(tuple(fixed.items()), []).append(index)
        for fixed_items, indices in groups.items():
            values = ", ".join(f"{unknown} {value}" for unknown, value in fixed_items)
            named = f"group{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
            yield Task(name, dict(fixed_items), f"{named} ({values})")
