"""The register: what of vLLM is replaced, why, and until when; and how it is put in place.

A patch replaces one attribute of a class or module, or adds one. It is put in place only if the attribute is the one
that the patch was written for, and all patches are, or none. Modules that have bound the old object by its name get the
new one as well. Patches of two features for one attribute are put on top of each other.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from attrs import frozen

from swa_retention.fingerprint import digest, fingerprint
from swa_retention.releases import SUPPORTED, number, running
from swa_retention.unimported import forget, installed, source_of, when_imported

MARK = "__swa_retention__"
"""The attribute of a replacement that holds what it replaced."""
PATCH = "__swa_retention_patch__"
"""The attribute of a replacement that holds the patch that put it in place."""
UNPATCHED = "unpatched"
"""In place of a fingerprint: from this release on the symbol stays as it is."""


class State(Enum):
    """How a symbol is found."""

    FITS = "fits"
    """It is the one that the patch was written for."""
    PATCHED = "patched"
    """This plug-in has replaced it already."""
    DIFFERS = "differs"
    """It is another one: another version of vLLM, or another plug-in was here first."""
    MISSING = "missing"
    """The symbol does not exist."""
    ABSENT = "absent"
    """The symbol's package is not installed, or has put another in its place, or this release needs no patch of it."""
    WAITING = "waiting"
    """It fits, and is patched as soon as its module is imported."""


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
    written_for: str | Mapping[str, str | None] | None
    """The fingerprint of what is replaced, and None if something is added; or that by release, each from this release
    on until the next: before the first, and where it is ``UNPATCHED``, there is nothing to patch."""
    replacement: Callable[[Any], Any]
    """From what is replaced to what replaces it; from None if something is added."""
    only_where: str | None = None
    """A module without which there is nothing to patch, as ``vllm_ascend``; None: what is patched is always there.

    The module of such a patch is not imported for it: the patch waits until other code imports it."""
    replaced_by: str | None = None
    """A module that puts another symbol in the place of this one when it is imported."""
    only_wraps: bool = False
    """Whether the replacement relies on the parameters alone: the fingerprint is that of the signature."""

    def fingerprint_here(self) -> str | None:
        """``written_for`` in the vLLM that this process has."""
        if self.written_for is None or isinstance(self.written_for, str):
            return self.written_for
        here = number(running())
        since = [version for version in self.written_for if number(version) <= here]
        return self.written_for[max(since, key=number)] if since else UNPATCHED


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
            + f"\nUnset its switches, or install a vLLM that it supports ({', '.join(SUPPORTED)}); "
            "`python -m swa_retention doctor` shows the rest."
        )


class DisplacedError(RuntimeError):
    """Other code has replaced what this plug-in had put in place."""

    def __init__(self, found: Sequence[Found]) -> None:
        lines = [f"  {each.patch.target}: {each.detail or each.state.value}" for each in found]
        super().__init__(
            "swa_retention patched this vLLM, and another plug-in has replaced some of its patches since, without "
            "saying that it calls them (functools.wraps):\n"
            + "\n".join(lines)
            + "\nHalf of a feature is worse than none: load one of the two alone (VLLM_PLUGINS), or unset "
            "swa_retention's switches."
        )


def owner_of(target: str) -> tuple[Any, str]:
    """The class or module that holds a symbol, and the symbol's name in it.

    Raises:
        ImportError, AttributeError: it does not exist.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = _own(getattr(owner, each), module)
    return owner, name


def _own(found: Any, module: str) -> Any:
    """The class that ``module`` defines under this name, where a subclass of it was put in its place.

    vLLM-Ascend does that with vLLM's scheduler. Its other subclasses are then patched, too.
    """
    bases = inspect.getmro(found) if inspect.isclass(found) else ()
    return next((base for base in bases if base.__module__ == module), found)


_IN_PLACE = (State.PATCHED, State.ABSENT, State.WAITING)


def look(patch: Patch) -> Found:
    """How the symbol of ``patch`` is found here."""
    if patch.only_where is not None and not installed(patch.only_where):
        return Found(patch, State.ABSENT, f"{patch.only_where} is not installed")
    if patch.replaced_by is not None and patch.replaced_by in sys.modules:
        return Found(patch, State.ABSENT, f"{patch.replaced_by} has replaced it")
    written_for = patch.fingerprint_here()
    if written_for == UNPATCHED:
        return Found(patch, State.ABSENT, "this vLLM needs no patch of it")
    if patch.only_where is not None and patch.target.partition(":")[0] not in sys.modules:
        return _look_unimported(patch, written_for)
    try:
        owner, name = owner_of(patch.target)
    except (ImportError, AttributeError) as error:
        return Found(patch, State.MISSING, str(error))
    there, is_patched = _below(inspect.getattr_static(owner, name, None), patch)
    if is_patched:
        return Found(patch, State.PATCHED)
    if written_for is None:
        return Found(patch, State.FITS) if there is None else Found(patch, State.DIFFERS, _home(there))
    if there is None:
        return Found(patch, State.MISSING, "no such attribute")
    try:
        seen = fingerprint(there, patch.only_wraps)
    except (OSError, TypeError, SyntaxError) as error:
        return Found(patch, State.DIFFERS, f"its source cannot be read: {error}")
    if seen == written_for:
        return Found(patch, State.FITS)
    return Found(patch, State.DIFFERS, f"{_home(there)}, fingerprint {seen} in place of {written_for}")


def _below(there: Any, patch: Patch) -> tuple[Any, bool]:
    """What a symbol was before this plug-in replaced it, if need be several times; and whether ``patch`` did."""
    while there is not None and hasattr(there, MARK):
        if _does_the_same(getattr(there, PATCH, patch), patch):
            return there, True
        there = getattr(there, MARK)
    return there, False


def _does_the_same(one: Patch, other: Patch) -> bool:
    """Whether two features ask for the same replacement, each with its own reason."""
    return (one.target, one.replacement) == (other.target, other.replacement)


def _look_unimported(patch: Patch, written_for: str | None) -> Found:
    """How a symbol is found whose module is not imported yet: from its file."""
    source = source_of(patch.target)
    if written_for is None:
        return Found(patch, State.WAITING) if source is None else Found(patch, State.DIFFERS, "its file has one")
    if source is None:
        return Found(patch, State.MISSING, "its file has no such symbol")
    text, is_decorated = source
    # What a decorator makes of it is seen, and checked, when it is imported.
    seen = written_for if is_decorated else digest(text, of_signature=patch.only_wraps)
    if seen == written_for:
        return Found(patch, State.WAITING)
    return Found(patch, State.DIFFERS, f"fingerprint {seen} in place of {written_for}")


def _home(symbol: Any) -> str:
    """Where a symbol was defined: in vLLM, or in the code that replaced it."""
    module = getattr(symbol, "__module__", "an unknown module")
    if hasattr(symbol, "__wrapped__"):
        # Who wraps takes over the name of the module too, but not its globals.
        module = getattr(symbol, "__globals__", {}).get("__name__", module)
    return f"defined in {module}"


def check(patches: Sequence[Patch]) -> list[Found]:
    """How the symbols of ``patches`` are found, if all of them can be put in place; nothing is changed.

    Raises:
        IncompatibleError: one of them does not fit.
    """
    found = [look(patch) for patch in patches]
    wrong = [each for each in found if each.state not in (State.FITS, *_IN_PLACE)]
    if wrong:
        raise IncompatibleError(wrong)
    return found


def apply(patches: Sequence[Patch]) -> list[Found]:
    """Put ``patches`` in place, all of them or none. Those already in place stay, those for something that is not
    installed are left out, and those for something that is not imported yet wait.

    Raises:
        IncompatibleError: one of them does not fit.
    """
    found = check(patches)
    for each in found:
        if each.state is State.FITS:
            _put(each.patch)
        elif each.state is State.WAITING:
            when_imported(each.patch.target, partial(apply, (each.patch,)))
    return found


def check_in_place(patches: Sequence[Patch]) -> None:
    """Check that no other code has replaced ``patches``.

    Where vLLM's own is there again, its module was loaded a second time: what is built from the first is still patched.

    Raises:
        DisplacedError: other code has.
    """
    displaced = [found for found in map(look, patches) if found.state not in (State.FITS, *_IN_PLACE)]
    if displaced:
        raise DisplacedError(displaced)


def _put(patch: Patch) -> None:
    owner, name = owner_of(patch.target)
    before = inspect.getattr_static(owner, name, None)
    after = patch.replacement(before)
    setattr(after, MARK, before)
    setattr(after, PATCH, patch)
    setattr(owner, name, after)
    if before is not None and inspect.ismodule(owner):
        _rebind(before, after)


def _rebind(before: Any, after: Any) -> None:
    """Give the new object to modules that imported the old one by name."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is before:
                setattr(module, name, after)


def remove(patches: Sequence[Patch]) -> None:
    """Put back what ``patches`` replaced, for tests.

    Raises:
        ValueError: another patch was put on top of one of them.
    """
    for patch in patches:
        forget(patch.target)
    # Of two patches for one symbol the one on top comes off first, independent of their order here.
    while [patch for patch in patches if _take_off(patch)]:
        pass
    covered = [patch.target for patch in patches if _below(_there(patch), patch)[1]]
    if covered:
        raise ValueError(f"{', '.join(covered)}: patched again since; take that back first")


def _there(patch: Patch) -> Any:
    """What stands where ``patch`` would; None if nothing does, or if its module is not imported."""
    if patch.target.partition(":")[0] not in sys.modules:
        return None
    try:
        owner, name = owner_of(patch.target)
    except (ImportError, AttributeError):
        return None
    return inspect.getattr_static(owner, name, None)


def _take_off(patch: Patch) -> bool:
    """Put back what ``patch`` replaced if it is on top; whether it was."""
    after = _there(patch)
    if not hasattr(after, MARK) or not _does_the_same(getattr(after, PATCH, patch), patch):
        return False
    owner, name = owner_of(patch.target)
    before = getattr(after, MARK)
    if before is None:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
        if inspect.ismodule(owner):
            _rebind(after, before)
    return True
