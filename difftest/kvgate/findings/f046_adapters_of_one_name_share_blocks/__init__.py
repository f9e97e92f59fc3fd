"""Finding 046: Two LoRA adapters of one name share their blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.content import ExtraKey, Keys, names_of_piece
from kvreference.rules import Delta


def _by_name(names_of: Callable[..., tuple[ExtraKey, ...]], keys: Keys, *place: int) -> tuple[ExtraKey, ...]:
    """An adapter is known by its name alone."""
    return tuple(name for name in names_of(keys, *place) if name.domain != "adapter")


def _of_another_adapter(misread: Misread) -> bool:
    """The state is that of the same tokens, with another adapter of the same name."""
    wanted, found = misread.wanted, misread.found
    if not found or [origin[1:] for origin in wanted[1:]] != [origin[1:] for origin in found[1:]]:
        return False
    roots = [cast("tuple[str | None, str | None]", origin[1]) for origin in (wanted[0], found[0])]
    names = [(salt, str(adapter).partition("#")[0]) for salt, adapter in roots if adapter is not None]
    return roots[0] != roots[1] and len(names) == len(roots) and names[0] == names[1]


FINDING = Finding(
    id="046-adapters-of-one-name-share-blocks",
    # What 003 takes for equal are the names that are left.
    rank=-1,
    statement="KV-OP-01",
    condition="two LoRA adapters of one name",
    on=lambda _stage: True,
    acts=lambda *_run: Acts([Delta(names_of_piece.__name__, _by_name)], misreads=_of_another_adapter),
    holds=lambda _ideal, _answered, keys, *_place: keys.lora_version > 0,
)
