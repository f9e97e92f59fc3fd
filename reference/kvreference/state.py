"""States: what operations change, and how it is copied."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

Kind = TypeVar("Kind", bound="State")


class State:
    """Something that operations change.

    ``changing`` are the attributes that are states, or containers that are changed in place. All others are constants.
    """

    changing: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, changing: tuple[str, ...] = ()) -> None:
        if changing:
            cls.changing = (*cls.changing, *changing)

    def copy(self: Kind) -> Kind:
        """An independent one in the same state. Constants are shared."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        for name in self.changing:
            setattr(other, name, independent(getattr(self, name)))
        return other


def independent(part: Any) -> Any:
    """A copy of a state, or of a container. The elements of that are all states, all lists, or all constants."""
    if isinstance(part, dict):
        first = next(iter(part.values()), None)
        if isinstance(first, (State, list)):
            return {key: independent(each) for key, each in part.items()}
    elif isinstance(part, list) and part and isinstance(part[0], State):
        return [each.copy() for each in part]
    return part.copy()
