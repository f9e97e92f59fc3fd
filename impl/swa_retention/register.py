"""The register: what of vLLM is replaced, why, and until when; and how it is put in place.

A patch replaces one attribute of a class or module, or adds one. It is put in place only if the attribute is the one
that the patch was written for, and all patches are, or none. Whatever has bound the old object by its name is bound to
the new one as well.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from attrs import frozen

from swa_retention.fingerprint import fingerprint

MARK = "__swa_retention__"
"""The attribute of a replacement that holds what it replaced."""


class State(Enum):
    """How a symbol is found."""

    FITS = "fits"
    """It is the one that the patch was written for."""
    PATCHED = "patched"
    """This plug-in has replaced it already."""
    NATIVE = "native"
    """vLLM has the feature itself: what the patch would add is there."""
    DIFFERS = "differs"
    """It is another one: another version of vLLM, or another plug-in was here first."""
    MISSING = "missing"
    """There is no such symbol."""


@frozen
class Patch:
    """One symbol of vLLM, and what becomes of it."""

    target: str
    """``module:name`` or ``module:Class.name``."""
    why: str
    how: str
    upstream: str
    """Where vLLM does the same."""
    until: str
    """When the patch is to be removed."""
    written_for: str | None
    """The fingerprint of what is replaced; None if something is added. What is added is there in a vLLM that has it."""
    replacement: Callable[[Any], Any]
    """From what is replaced to what replaces it; from None if something is added."""


@frozen
class Found:
    """A patch and the symbol that it is for."""

    patch: Patch
    state: State
    detail: str = ""


class IncompatibleError(RuntimeError):
    """This vLLM is not one that the patches fit."""

    def __init__(self, found: Sequence[Found]) -> None:
        lines = [
            f"  {each.patch.target}: {each.state.value}{f' ({each.detail})' if each.detail else ''}" for each in found
        ]
        super().__init__(
            "swa_retention does not fit this vLLM, and has changed nothing. These symbols are not what its patches "
            "were written for:\n"
            + "\n".join(lines)
            + "\nUnset its switches, or install a vLLM that it supports (0.20.2); "
            "`python -m swa_retention doctor` shows the rest."
        )


def owner_of(target: str) -> tuple[Any, str]:
    """The class or module that holds a symbol, and the symbol's name in it.

    Raises:
        ImportError, AttributeError: there is none.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, name


def look(patch: Patch) -> Found:
    """How the symbol of ``patch`` is found here."""
    try:
        owner, name = owner_of(patch.target)
    except (ImportError, AttributeError) as error:
        return Found(patch, State.MISSING, str(error))
    there = inspect.getattr_static(owner, name, None)
    if there is not None and getattr(there, MARK, there) is not there:
        return Found(patch, State.PATCHED)
    if patch.written_for is None:
        return Found(patch, State.FITS if there is None else State.NATIVE)
    if there is None:
        return Found(patch, State.MISSING, "no such attribute")
    try:
        seen = fingerprint(there)
    except (OSError, TypeError, SyntaxError) as error:
        return Found(patch, State.DIFFERS, f"its source cannot be read: {error}")
    if seen == patch.written_for:
        return Found(patch, State.FITS)
    return Found(patch, State.DIFFERS, f"{_home(there)}, fingerprint {seen} in place of {patch.written_for}")


def _home(symbol: Any) -> str:
    """Where a symbol was defined: in vLLM, or by somebody who replaced it."""
    module = getattr(symbol, "__module__", "an unknown module")
    return f"defined in {module}"


def apply(patches: Sequence[Patch], stands_aside: bool = False) -> list[Found]:
    """Put ``patches`` in place, all of them or none; those that are in place already stay as they are.

    With ``stands_aside``, a vLLM that has itself what one of them would add has the whole feature: none is put in
    place.

    Raises:
        IncompatibleError: one of them does not fit.
    """
    found = [look(patch) for patch in patches]
    if stands_aside and any(each.state is State.NATIVE for each in found):
        return found
    wrong = [each for each in found if each.state not in (State.FITS, State.PATCHED)]
    if wrong:
        raise IncompatibleError(wrong)
    for each in found:
        if each.state is State.FITS:
            _put(each.patch)
    return found


def _put(patch: Patch) -> None:
    owner, name = owner_of(patch.target)
    before = inspect.getattr_static(owner, name, None)
    after = patch.replacement(before)
    setattr(after, MARK, before)
    setattr(owner, name, after)
    if before is not None and inspect.ismodule(owner):
        _rebind(before, after)


def _rebind(before: Any, after: Any) -> None:
    """Whoever imported the old object by name has the new one."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is before:
                setattr(module, name, after)


def remove(patches: Sequence[Patch]) -> None:
    """Put back what ``patches`` replaced, for tests."""
    for patch in reversed(patches):
        owner, name = owner_of(patch.target)
        after = inspect.getattr_static(owner, name, None)
        before = getattr(after, MARK, after)
        if before is after:
            continue
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
            if inspect.ismodule(owner):
                _rebind(after, before)
